"""An evaluation as one HTML file: text and tables from here, pictures drawn by the page itself."""

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
from scipy.special import ndtri

from ..writing import whole_file
from .evaluation import Evaluation
from .views import View
from .words import percent, summary, value_of

# Names longer than this are cut: nobody reads them, and a page of them would be large. So would
# one with more labels in its table.
LONGEST = 40
MOST_LABELS = 1000
# Labels of the rest that get a colour of their own in the subspace.
COLOURED = 7
# Error rates that are written on the axes of the DET curve.
TICKS = (1e-4, 1e-3, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98, 0.999)
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    evaluation: Evaluation, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write the report.

    Parameters
    ----------
    evaluation : Evaluation
    path : path
        HTML file. It appears whole or, where writing fails, not at all.
    title : str, default=None
        Heading; None names what was verified.
    """
    page = render(evaluation, title=title)
    with whole_file(path) as file:
        file.write(page.encode("utf-8", "replace"))


def render(evaluation: Evaluation, *, title: str | None = None) -> str:
    """Make the HTML."""
    if title is None:
        what = f"{len(evaluation.names)} labels" if evaluation.is_bank else evaluation.names[0]
        title = f"Verification of {cut(what)}"
    views = "".join(
        f'<option value="{place}">{escape(cut(view.name))}</option>'
        for place, view in enumerate(evaluation.views)
    )
    slots = {
        "title": escape(title),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": escape(version("pcsda")),
        "summary": "".join(f"<p>{escape(sentence)}</p>" for sentence in summary(evaluation)),
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
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "plotly": _plotly(),
    }
    return _SLOT.sub(lambda slot: slots[slot[1]], _asset("page.html"))


def cut(text: str) -> str:
    """Text, shortened where it is too long to read."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def as_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever text it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """The drawing library, packed: plain, it would be most of the page."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(
            'the report needs plotly, which is not installed: pip install "pcsda[report]"'
        ) from error
    return b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _figure_rows(evaluation: Evaluation) -> str:
    rows = []
    for figure in evaluation.figures:
        value, interval = value_of(figure)
        rows.append(
            f'<tr><th scope="row">{escape(figure.name)}</th><td class="number">{value}</td>'
            f'<td class="number">{interval}</td>'
            f'<td class="meaning">{escape(figure.meaning)}</td></tr>'
        )
    return "".join(rows)


def _label_table(evaluation: Evaluation) -> str:
    """Rows of the table of labels; every cell has the value that it is sorted by."""
    rows = []
    hardest = sorted(evaluation.by_label, key=lambda row: -(row["eer"] or 0.0))[:MOST_LABELS]
    kept = {row["label"] for row in hardest}
    for row in evaluation.by_label:
        if row["label"] not in kept:
            continue
        name = escape(cut(row["label"]))
        cells = [f'<th scope="row" data-value="{name}">{name}</th>']
        for key, value in row.items():
            if key == "label":
                continue
            shown = "–" if value is None else percent(value) if key == "eer" else _number(value)
            sort = "" if value is None else f"{value:.6g}"
            cells.append(f'<td class="number" data-value="{sort}">{shown}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(rows)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _all_facts(evaluation: Evaluation) -> Mapping[str, str]:
    s = evaluation.settings
    n_scores = evaluation.views[0].n_positive + evaluation.views[0].n_negative
    return {
        **evaluation.facts,
        "Prior": f"{s.prior:.4g}",
        "Costs": f"miss {s.cost_miss:g}, false alarm {s.cost_false_alarm:g}",
        "Threshold": f"{s.threshold:.4g}",
        "Intervals": f"{s.level:.0%}, bootstrap, {s.resamples(n_scores)} resamples",
    }


def _data(evaluation: Evaluation) -> dict[str, Any]:
    """What the page draws, as numbers of a few digits."""
    return {
        "bank": evaluation.is_bank,
        "unit": evaluation.unit,
        "ticks": [(_short(ndtri(rate)), f"{100 * rate:g}") for rate in TICKS],
        "views": [
            _view_data(evaluation, place, view) for place, view in enumerate(evaluation.views)
        ],
    }


def _view_data(evaluation: Evaluation, place: int, view: View) -> dict[str, Any]:
    n_p, n_n = view.n_positive, view.n_negative
    n_units = len(evaluation.truth)
    unit = view.listed["place"] % n_units
    claims = None
    if evaluation.is_bank and place == 0:
        claims = [evaluation.names[i] for i in view.listed["place"] // n_units]
    points = evaluation.subspaces[place]
    return {
        "name": cut(view.name),
        "positives": n_p,
        "negatives": n_n,
        "eer": _short(view.eer),
        "marks": {name: _short(at) for name, at in view.marks.items()},
        "places": {
            name: int(np.searchsorted(view.thresholds, at)) for name, at in view.marks.items()
        },
        "thresholds": _list(view.thresholds),
        "misses": view.misses.tolist(),
        "alarms": view.false_alarms.tolist(),
        # Rates of zero have no place on a DET curve; half a count stands for them.
        "det_x": _list(ndtri((view.false_alarms / n_n).clip(0.5 / n_n, 1 - 0.5 / n_n))),
        "det_y": _list(ndtri((view.misses / n_p).clip(0.5 / n_p, 1 - 0.5 / n_p))),
        "edges": _list(view.histogram["edges"]),
        "bars": [
            _list(view.histogram["positive"] / n_p),
            _list(view.histogram["negative"] / n_n),
        ],
        "listed": {
            "id": [cut(text) for text in evaluation.ids[unit].tolist()],
            "truth": [cut(text) for text in evaluation.truth[unit].tolist()],
            "claim": None if claims is None else [cut(text) for text in claims],
            "llr": _list(view.listed["llr"]),
            "positive": view.listed["positive"].tolist(),
        },
        "subspace": None if points is None else _subspace_data(points, view.name),
    }


def _subspace_data(points: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Points by kind: the class of interest, then the other labels, or all as one if many."""
    truth, positive = points["truth"], points["positive"]
    others, counts = np.unique(truth[~positive], return_counts=True)
    named = others[np.argsort(-counts, kind="stable")].tolist() if len(others) <= COLOURED else []
    kinds = [(cut(name), positive)]
    kinds += [(cut(other), ~positive & (truth == other)) for other in named]
    if not named:
        kinds.append(("the rest", ~positive))
    return {
        "axes": points["axes"],
        "kinds": [
            {
                "name": kind,
                "x": _list(points["x"][chosen]),
                "y": _list(points["y"][chosen]),
                "text": [
                    f"{cut(label)}, {cut(text)}"
                    for label, text in zip(
                        truth[chosen].tolist(), points["id"][chosen].tolist(), strict=True
                    )
                ],
            }
            for kind, chosen in kinds
        ],
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _list(values: Iterable[float]) -> list[float]:
    return [_short(value) for value in values]
