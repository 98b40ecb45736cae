"""Write an evaluation as one HTML file: text and tables are made here, plots by the page itself."""

from __future__ import annotations

import gzip
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..validation import NOT_INSTALLED, import_extra
from ..writing import whole_file
from .evaluation import Evaluation
from .facts import NAMES
from .figures import Figure, value_of, written
from .words import answer, summary

# Names are cut to LONGEST characters, and at most MOST_LABELS labels are listed, to keep the page
# small.
LONGEST = 40
MOST_LABELS = 1000
# With up to this many other labels, each has its own colour in the subspace.
COLOURED = 7
# Error rates marked on the axes of the DET curve.
TICKS = (1e-4, 1e-3, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98, 0.999)
# Figures grouped by topic.
GROUPS = {
    "Identification": ("rank_1", "rank_5"),
    "At the threshold": ("misses", "false_alarms", "cost"),
    "At other thresholds": ("eer", "fnmr", "min_cost"),
    "Ranking": ("precision_at_k", "average_precision", "roc_auc"),
    "Calibration": ("cllr", "min_cllr"),
}
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    evaluation: Evaluation, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write an evaluation as an HTML report.

    Parameters
    ----------
    evaluation : Evaluation
        The result of :func:`evaluate`.
    path : path
        HTML file to write. If writing fails, no partial file remains.
    title : str, default=None
        Heading; None means a heading that names what was verified.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.report import evaluate, write_page
    >>> data = make_class_specific(600, n_features=5, random_state=0)
    >>> model = PCSDA(n_subclasses=4, random_state=0).fit(data.data[:300], data.target[:300])
    >>> found = evaluate(model, data.data[300:], data.target[300:], n_resamples=20)
    >>> write_page(found, "report.html", title="A class and its surroundings")
    """
    page = render(evaluation, title=title)
    with whole_file(path) as file:
        file.write(page.encode("utf-8", "replace"))


def render(evaluation: Evaluation, *, title: str | None = None) -> str:
    """Return the report as HTML."""
    if title is None:
        what = f"{len(evaluation.names)} labels" if evaluation.is_bank else evaluation.names[0]
        title = f"Verification of {cut(what)}"
    views = "".join(
        f'<option value="{place}">{escape(cut(view.name))}</option>'
        for place, view in enumerate(evaluation.views)
    )
    slots = {
        "title": escape(title),
        "answer": escape(answer(evaluation)),
        "command": _command(evaluation),
        "summary": "".join(f"<p>{escape(sentence)}</p>" for sentence in summary(evaluation)[1:]),
        "figures": _figure_rows(evaluation),
        "level": f"{evaluation.settings.level:.0%}",
        "views": views,
        "choice": "" if len(evaluation.views) > 1 else "hidden",
        "labels": _label_table(evaluation),
        "facts": "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in _all_facts(evaluation).items()
        ),
        "data": as_json(_data(evaluation)),
        "script": asset(__package__, "page.js"),
        "plotly": _plotly(),
    }
    return fill(__package__, "page.html", slots)


def fill(package: str, template: str, slots: Mapping[str, str]) -> str:
    """Fill the slots of a package's HTML template; style, date and version have default values."""
    known = {
        "style": asset(package, "page.css"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": escape(version("pcsda")),
        **slots,
    }
    return _SLOT.sub(lambda slot: known[slot[1]], asset(package, template))


def _command(evaluation: Evaluation) -> str:
    """Return the command that makes the decisions described in the page's first sentence."""
    if NAMES in evaluation.facts:
        return "pcsda identify MODEL NEW.csv"
    return f"pcsda score MODEL NEW.csv --threshold {evaluation.settings.threshold:.4g}"


def cut(text: str) -> str:
    """Shorten text to at most LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def as_json(value: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element, whatever text it contains."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def asset(package: str, name: str) -> str:
    """Return the text of a file in a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return the script of Plotly, compressed because it would dominate the size of the page."""
    plotly = import_extra("plotly.offline", "the report needs", "report", NOT_INSTALLED)
    return b64encode(gzip.compress(plotly.get_plotlyjs().encode(), mtime=0)).decode()


def _figure_rows(evaluation: Evaluation) -> str:
    """Make grouped table rows for the figures; narrow screens show the meaning below the name."""
    groups = []
    for heading, keys in GROUPS.items():
        chosen = [figure for figure in evaluation.figures if figure.key in keys]
        rows = "".join(map(_figure_row, chosen))
        if rows:
            head = f'<tr><th scope="rowgroup" colspan="5" class="group">{heading}</th></tr>'
            groups.append(f"<tbody>{head}{rows}</tbody>")
    return "".join(groups)


def _figure_row(figure: Figure) -> str:
    value, interval = value_of(figure)
    meaning = escape(figure.meaning)
    at = "" if figure.threshold is None else f"{figure.threshold:.2f}"
    return (
        f'<tr><th scope="row">{escape(figure.name)}<span class="short">{meaning}</span></th>'
        f'<td class="number">{value}</td><td class="number">{interval}</td>'
        f'<td class="number">{at}</td><td class="meaning">{meaning}</td></tr>'
    )


def _label_table(evaluation: Evaluation) -> str:
    """Make the rows of the label table; each cell has a value to sort by."""
    labels = evaluation.by_label
    hardest = sorted(range(len(labels)), key=lambda i: -(labels[i]["eer"] or 0.0))[:MOST_LABELS]
    rows = []
    for i in sorted(hardest):
        figures = dict(labels[i])
        name = escape(cut(figures.pop("label")))
        cells = [f'<th scope="row" data-value="{name}">{name}</th>']
        for key, value in figures.items():
            shown, sort = "–", ""
            if value is not None:
                shown, sort = written(key, value), f"{value:.6g}"
            cells.append(f'<td class="number" data-value="{sort}">{shown}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(rows)


def _all_facts(evaluation: Evaluation) -> Mapping[str, str]:
    s = evaluation.settings
    n_scores = evaluation.views[0].n_positive + evaluation.views[0].n_negative
    return {
        **evaluation.facts,
        "Prior": f"{s.prior:.4g}",
        "Costs": f"miss {s.cost_miss:g}, false alarm {s.cost_false_alarm:g}",
        "Threshold": f"{s.threshold:.4g}",
        "Intervals": f"{s.level:.0%}, bootstrap, {s.resamples(n_scores)} resamples; exact for "
        "shares of rows",
    }


def _data(evaluation: Evaluation) -> dict[str, Any]:
    """Return the data that the page plots, rounded to a few digits."""
    views = [_view_data(evaluation, place) for place in range(len(evaluation.views))]
    ticks = [(_short(ndtri(rate)), f"{100 * rate:g}") for rate in TICKS]
    return {"bank": evaluation.is_bank, "unit": evaluation.unit, "ticks": ticks, "views": views}


def _view_data(evaluation: Evaluation, place: int) -> dict[str, Any]:
    view, points = evaluation.views[place], evaluation.subspaces[place]
    n_p, n_n = view.n_positive, view.n_negative
    # The first view of a bank holds the trials of all its labels, one after the other.
    label, unit = np.divmod(view.listed["place"], len(evaluation.truth))
    together = evaluation.is_bank and place == 0
    marks = view.marks.items()
    return {
        "name": cut(view.name),
        "positives": n_p,
        "negatives": n_n,
        "eer": _short(view.eer),
        "marks": {name: _short(at) for name, at in marks},
        "places": {name: int(np.searchsorted(view.thresholds, at)) for name, at in marks},
        "thresholds": _list(view.thresholds),
        "misses": view.misses.tolist(),
        "alarms": view.false_alarms.tolist(),
        # Half a count replaces rates of zero, which a DET curve cannot show.
        "det_x": _list(ndtri((view.false_alarms / n_n).clip(0.5 / n_n, 1 - 0.5 / n_n))),
        "det_y": _list(ndtri((view.misses / n_p).clip(0.5 / n_p, 1 - 0.5 / n_p))),
        "edges": _list(view.histogram["edges"]),
        "bars": [_list(view.histogram["positive"] / n_p), _list(view.histogram["negative"] / n_n)],
        "listed": {
            "id": _texts(evaluation.ids[unit]),
            "truth": _texts(evaluation.truth[unit]),
            "claim": [cut(evaluation.names[i]) for i in label] if together else None,
            "llr": _list(view.listed["llr"]),
            "positive": view.listed["positive"].tolist(),
            "why": evaluation.reasons if place == 0 else [],
        },
        "calibration": {name: _list(values) for name, values in view.calibration.items()},
        "subspace": None if points is None else _subspace_data(points, view.name),
    }


def _subspace_data(points: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Group the points by label, with the class of interest first.

    If there are too many other labels to colour, they form one group.
    """
    truth, positive = points["truth"], points["positive"]
    others, counts = np.unique(truth[~positive], return_counts=True)
    kinds = [(name, positive)]
    if len(others) <= COLOURED:
        ordered = others[np.argsort(-counts, kind="stable")].tolist()
        kinds += [(other, ~positive & (truth == other)) for other in ordered]
    else:
        kinds.append(("the rest", ~positive))
    texts = np.array([f"{cut(t)}, {cut(i)}" for t, i in zip(truth, points["id"], strict=True)])
    centres = [{"name": cut(n), "x": _short(x), "y": _short(y)} for n, x, y in points["centres"]]
    return {
        "axes": points["axes"],
        "centres": centres,
        "kinds": [
            {
                "name": cut(kind),
                "x": _list(points["x"][chosen]),
                "y": _list(points["y"][chosen]),
                "text": texts[chosen].tolist(),
            }
            for kind, chosen in kinds
        ],
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _list(values: Iterable[float]) -> list[float]:
    return [_short(value) for value in values]


def _texts(values: NDArray[np.str_]) -> list[str]:
    return [cut(text) for text in values.tolist()]
