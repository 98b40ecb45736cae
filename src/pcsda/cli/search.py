"""The command `search`, which finds more rows like the examples, on a page in the browser."""

from __future__ import annotations

import secrets
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.warning import number_of
from ..tables import Table, as_text, labels, listed, read, refuse_overwrite
from ..tables.table import no_column
from .columns import chosen
from .printing import show_json
from .problems import Problem, needs, note

if TYPE_CHECKING:
    from ..retrieval import SearchSession
    from ..retrieval.media import Media

# Number of columns that a card shows beside the media.
MOST_FACTS = 4


def search(a: Namespace) -> None:
    """Read the gallery, open the store and serve the page."""
    needs("starlette", "search", "for the page")
    needs("uvicorn", "search", "for the page")
    from ..retrieval.server import hosts_of, listen, serve

    session, media = open_session(a)
    if a.host not in ("127.0.0.1", "::1", "localhost"):
        note(f"anyone who can reach {a.host} and knows the address can open the page")
    host = "127.0.0.1" if a.host == "localhost" else a.host
    try:
        listener = listen(host, a.port)
    except OSError as error:
        raise Problem(f"port {a.port} of {host} cannot be used ({error})") from error
    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    hosts = hosts_of(host, port)
    address = f"http://{min(hosts)}/{token}/"
    facts = {"address": address, "rows": len(session.gallery), "store": str(session.store.path)}
    if a.json:
        show_json(facts)
    else:
        print(f"Find more like these: {address}")
        print(f"Labels go to {session.store.path}. End with Ctrl+C; nothing is lost.")
    sys.stdout.flush()
    if not (a.no_browser or a.json):
        webbrowser.open(address)
    serve(session, media, token, listener, hosts)


def open_session(a: Namespace) -> tuple[SearchSession, Media]:
    """Open the session for a gallery, and determine how to show its rows."""
    from ..retrieval import SearchSession
    from ..retrieval.store import OtherGalleryError

    if Path(a.gallery).is_dir() and not list(Path(a.gallery).glob("*.parquet")):
        raise Problem(
            f"{a.gallery} is a folder; give a table with a row of features for each file, "
            "and the folder as --media"
        )
    note(f"reading {a.gallery}")
    table = read(a.gallery)
    column = None if _is_folder(a.media) else a.media
    ids = labels(table, a.id, "--id").tolist() if a.id else None
    names = _features(table, (a.id, column), a)
    rows = table.features(names)
    if rows.dtype.kind not in "biuf":
        raise Problem(
            f"{table.source} has columns that are not numeric; choose columns with --features"
        )
    store = a.store or f"{a.gallery}.labels.db"
    refuse_overwrite(store, a.gallery)
    media = _media(a, table, ids, names)
    note(f"dividing {len(table)} rows of {rows.shape[1]} features into clusters")
    try:
        session = SearchSession(rows, ids, store=store, carry_over=a.carry_over)
    except OtherGalleryError as error:
        raise Problem(error.saying("--carry-over")) from error
    if earlier := len(session.labels()):
        note(f"{Path(store).name} has {number_of(earlier, 'earlier answer')}")
    _label(session, a.examples)
    return session, media


def _is_folder(media: str | None) -> bool:
    return media is not None and Path(media).is_dir()


def _features(table: Table, used: Sequence[str | None], a: Namespace) -> list[str]:
    """Return the columns given by --features, or all numeric columns without another use."""
    names = chosen(table, used, a.features, a.ignore)
    if a.features or table.matrix is not None:
        return names
    numeric = [name for name in names if table.columns[name].dtype.kind in "biuf"]
    if not numeric:
        raise Problem(f"{table.source} has no numeric columns, only {listed(names)}")
    return numeric


def _label(session: SearchSession, examples: Sequence[str]) -> None:
    """Label the examples that have no answer yet with "yes"."""
    if not examples:
        return
    by_text = {as_text(name): name for name in session.gallery.ids}
    known = session.labels()
    wanted = [by_text.get(name, name) for name in examples]
    try:
        session.label([name for name in wanted if name not in known], True)
    except ValueError as error:
        raise Problem(f"--examples: {error}") from error


def _media(a: Namespace, table: Table, ids: Any, names: Sequence[str]) -> Media:
    """Return what to show for each row: a picture, a sound, a text or the values of columns."""
    from ..retrieval.media import PICTURES, SOUNDS, Media, media_of

    beside = [n for n in table.columns if n not in {*names, a.id, a.media}]
    facts = {n: table.columns[n] for n in beside[:MOST_FACTS] if table.columns[n].ndim == 1}
    if a.media is None:
        if not facts:
            facts = {n: table.column(n) for n in table.names[:MOST_FACTS]}
            facts = {n: values for n, values in facts.items() if values.ndim == 1}
        return Media("row", columns=facts)
    if not _is_folder(a.media):
        known = list(dict.fromkeys([*table.columns, *table.names]))
        if a.media not in known:
            lacks = no_column(table.source, a.media, known)
            raise Problem(f"--media {a.media}: there is no such folder, and {lacks}")
        values = table.column(a.media)
        return media_of([as_text(v) for v in values], Path(a.gallery).parent, facts)
    if ids is None:
        raise Problem("--media with a folder needs --id, the column of file names")
    found = media_of(ids, a.media, facts)
    if found.kind == "text":
        kinds = ", ".join(sorted({*PICTURES, *SOUNDS}))
        raise Problem(f"--id {a.id} has no names of files that a browser can show: {kinds}")
    return found
