"""The numbers that the page of a session shows, and the files that the page exports."""

from __future__ import annotations

import csv
import io
import warnings
from base64 import b64encode
from html import escape
from typing import Any

import numpy as np

from ..report.page import fill
from ..tables.table import harmless
from .estimates import rests_on
from .media import Media, MediaError
from .operating import hardly_known
from .session import SearchSession
from .store import WORDS

# Limits of a saved page: number of pictures, and size of each.
MOST_PICTURES, LARGEST_PICTURE = 500, 200_000

# What the page adds if the interval of the misses is wide.
VAGUE = "The answers hardly tell how many it misses; more answers, or an audit, will."


def state_of(session: SearchSession, max_false_alarms: float = 0.01) -> dict[str, Any]:
    """Return everything that the page shows apart from the rows."""
    values = list(session.labels().values())
    curve = np.cumsum([value is True for value in values]).tolist()
    stop = session.stop()
    state: dict[str, Any] = {
        "rows": len(session.gallery),
        "unreadable": int((~session.gallery.usable).sum()),
        "shown": len(values),
        "found": sum(value is True for value in values),
        "refused": sum(value is False for value in values),
        "skipped": sum(value is None for value in values),
        "curve": curve[:: max(1, len(curve) // 400)],
        "remaining": None,
        "threshold": None,
        "stop": str(stop),
        "stopped": bool(stop),
        "note": "",
    }
    if curve:
        state["curve"][-1] = curve[-1]
    try:
        left = session.remaining()
        state["remaining"] = {
            "count": left.count,
            "low": left.count_low,
            "high": left.count_high,
            "basis": rests_on(left),
        }
        state["threshold"] = _threshold(session, max_false_alarms)
    except ValueError as error:
        state["note"] = sentence(str(error))
    return state


def _threshold(session: SearchSession, rate: float) -> dict[str, Any]:
    """Return the threshold for a false alarm rate, with its error rates."""
    # The interval says what a warning would say.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        found = session.choose_threshold(max_false_alarms=rate)
    return {
        "value": found.value,
        "rate": rate,
        "false_alarms": found.false_alarms,
        "false_alarms_interval": found.false_alarms_interval,
        "misses": found.misses,
        "misses_interval": found.misses_interval,
        "vague": f" {VAGUE}" if hardly_known(found) else "",
        "accepted": int((session.scores() >= found.value).sum()),
        "rows": len(session.gallery),
    }


def sentence(message: str) -> str:
    """Return a message as a sentence, with a capital and a full stop."""
    return f"{message[:1].upper()}{message[1:]}."


def labels_csv(session: SearchSession) -> str:
    """Return the label history as CSV in which no cell can be mistaken for a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    columns = _columns(session)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([harmless(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


def labels_parquet(session: SearchSession) -> bytes:
    """Return the label history as a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    columns = _columns(session)
    if len({type(name) for name in columns["id"]}) > 1:
        columns["id"] = [str(name) for name in columns["id"]]
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def _columns(session: SearchSession) -> dict[str, list[Any]]:
    history, values = session.history(), session.labels()
    last = {entry.id: entry.number for entry in history}
    return {
        "id": [entry.id for entry in history],
        "label": [WORDS[entry.value] for entry in history],
        "counts": [last[entry.id] == entry.number and entry.id in values for entry in history],
        "who": [entry.who for entry in history],
        "at": [entry.at for entry in history],
        "model": [entry.model for entry in history],
    }


def render(session: SearchSession, media: Media) -> str:
    """Return a session's report as one HTML page: rows found, curve of finds, and threshold.

    The page needs no network and runs no script.
    """
    state = state_of(session)
    found = [name for name, value in session.labels().items() if value is True]
    places = session.gallery.places(found).tolist()
    slots = {
        "facts": "".join(f"<p>{escape(line)}</p>" for line in _sentences(state)),
        "curve": curve_svg(state["curve"], state["shown"]),
        "cards": "".join(
            _card(session, media, place, number < MOST_PICTURES)
            for number, place in enumerate(places)
        ),
    }
    return fill(__package__, "summary.html", slots)


def _sentences(state: dict[str, Any]) -> list[str]:
    """Describe a session's numbers in words."""
    lines = [f"{state['found']} found among {state['shown']} rows shown, out of {state['rows']}."]
    left, threshold = state["remaining"], state["threshold"]
    if left:
        lines.append(
            f"About {left['count']:.3g} may remain (90% interval {left['low']} to "
            f"{left['high']}, based on {left['basis']})."
        )
    lines.append(state["stop"])
    if threshold:
        alarms, low, high = _percents(threshold, "false_alarms")
        share, least, most = _percents(threshold, "misses")
        lines.append(
            f"The threshold {threshold['value']:.3g} accepts {alarms}% of the negatives (90% "
            f"interval {low} to {high}%) and misses {share}% of the class ({least} to {most}%)."
            f"{threshold['vague']} {threshold['accepted']} of {threshold['rows']} rows are "
            "accepted."
        )
    if state["note"]:
        lines.append(state["note"])
    return lines


def _percents(threshold: dict[str, Any], kind: str) -> list[str]:
    """Return an error rate and the ends of its interval, in percent."""
    shares = threshold[kind], *threshold[f"{kind}_interval"]
    # Formatted twice, because two digits of 100 would be "1e+02".
    return ["0" if share < 5e-5 else f"{float(f'{100 * share:.2g}'):g}" for share in shares]


def curve_svg(curve: list[int], shown: int) -> str:
    """Draw the number of rows found against the number shown, as SVG."""
    if not curve:
        return ""
    width, height, most = 600, 200, max(max(curve), 1)
    step = width / len(curve)
    points = " ".join(
        f"{place * step:.1f},{height - height * value / most:.1f}"
        for place, value in enumerate([0, *curve])
    )
    return (
        '<svg viewBox="-40 -10 660 240" role="img" '
        f'aria-label="{curve[-1]} found of {shown} shown">'
        f'<path class="axis" d="M0 0V{height}H{width}"/><polyline class="curve" points="{points}"/>'
        f'<text x="-6" y="6" text-anchor="end">{most}</text>'
        f'<text x="{width}" y="{height + 20}" text-anchor="end">{shown} shown</text>'
        f'<text x="-6" y="{height}" text-anchor="end">0</text></svg>'
    )


def _card(session: SearchSession, media: Media, place: int, picture: bool) -> str:
    name = escape(str(session.gallery.ids[place]))
    card = media.card(place)
    body = f"<p>{escape(card['text'])}</p>" if card["text"] else ""
    body += "".join(
        f"<p><b>{escape(key)}</b> {escape(value)}</p>" for key, value in card["facts"].items()
    )
    if picture and card["kind"] == "image":
        body = _picture(media, place, name) + body
    return f'<figure class="card">{body}<figcaption>{name}</figcaption></figure>'


def _picture(media: Media, place: int, name: str) -> str:
    try:
        path, kind = media.file(place)
        content = path.read_bytes() if path.stat().st_size <= LARGEST_PICTURE else b""
    except (MediaError, OSError) as error:
        return f'<p class="lost">{escape(str(error))}</p>'
    if not content:
        return '<p class="lost">too large for this page</p>'
    return f'<img alt="{name}" src="data:{kind};base64,{b64encode(content).decode()}">'
