"""A local web server for the search page."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..report.page import asset
from .guard import Guard
from .media import Media, MediaError
from .session import SearchSession
from .store import WORDS, StoreError
from .strategies import STRATEGIES
from .summary import labels_csv, labels_parquet, render, state_of

ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "": "text/html"}
MOST = 200


def make_app(session: SearchSession, media: Media, token: str, hosts: set[str]) -> Guard:
    """Make the web application that serves the page of one session, protected by a guard.

    Parameters
    ----------
    session : SearchSession
    media : Media
    token : str
        First part of every path; requests without it are rejected.
    hosts : set of str
        Host names with ports that a browser may use, such as "127.0.0.1:8000".
    """
    pages = Pages(session, media)
    routes = [
        Route("/{token}/", pages.asset),
        Route("/{token}/state", pages.state),
        Route("/{token}/next", pages.suggest),
        Route("/{token}/label", pages.label, methods=["POST"]),
        Route("/{token}/undo", pages.undo, methods=["POST"]),
        Route("/{token}/media/{place}", pages.media),
        Route("/{token}/export/{name}", pages.export),
        Route("/{token}/{name}", pages.asset),
    ]
    handlers = {StoreError: _failed(500), MediaError: _failed(404)}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, hosts)


class Pages:
    """Handlers for the requests that the search page sends."""

    def __init__(self, session: SearchSession, media: Media) -> None:
        self._session = session
        self._media = media

    def asset(self, request: Request) -> Response:
        """Return the page, its style sheet or its script."""
        name = request.path_params.get("name", "")
        if name not in ASSETS:
            return PlainTextResponse("there is no such page", status_code=404)
        return Response(asset(__package__, name or "page.html"), media_type=ASSETS[name])

    def state(self, request: Request) -> Response:
        """Return the state of the search: counts, estimate of members left, curve, threshold."""
        try:
            rate = float(request.query_params.get("alarms", "0.01"))
        except ValueError:
            rate = 0.0
        if not 0 < rate < 1:
            return _refused("alarms must be a number between 0 and 1")
        return JSONResponse(state_of(self._session, rate))

    def suggest(self, request: Request) -> Response:
        """Return the rows to show next."""
        how, n = request.query_params.get("how", "likely"), request.query_params.get("n", "24")
        number = int(n) if n.isdecimal() and len(n) <= len(str(MOST)) else 0
        if how not in STRATEGIES or not 1 <= number <= MOST:
            return _refused(f"how must be one of {', '.join(STRATEGIES)}, n between 1 and {MOST}")
        places = self._session.gallery.places(self._session.suggest(number, how=how))
        cards = [
            {"place": place, "id": str(self._session.gallery.ids[place])} | self._media.card(place)
            for place in places.tolist()
        ]
        return JSONResponse({"cards": cards})

    async def label(self, request: Request) -> Response:
        """Store an answer for one row, or the same answer for several, which undo as one."""
        try:
            body = json.loads(await request.body())
            places, value, who = body["place"], body["value"], str(body.get("who", "page"))[:100]
            places = places if isinstance(places, list) else [places]
            if value not in ("yes", "no", "skip") or not 1 <= len(places) <= MOST:
                raise ValueError
            if any(type(place) is not int or place < 0 for place in places):
                raise ValueError
            names = [self._session.gallery.ids[place] for place in places]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return _refused(
                f"an answer has a place in the gallery, or up to {MOST} of them, and a value: yes, "
                "no or skip"
            )
        await run_in_threadpool(self._session.label, names, value, who=who)
        # A refit holds the labels, and must not hold up all other requests.
        given = list((await run_in_threadpool(self._session.labels)).values())
        return JSONResponse({"stored": True, "found": given.count(True), "shown": len(given)})

    async def undo(self, request: Request) -> Response:
        """Undo the last answer given on this page; tell which answers of those rows count now."""
        try:
            who = str(json.loads(await request.body())["who"])[:100]
        except (ValueError, KeyError, TypeError, RecursionError):
            return _refused("say whose answer to undo")
        ids = await run_in_threadpool(self._session.undo, who)
        values = await run_in_threadpool(self._session.labels)
        known = {self._session.gallery.place(name): name for name in ids}
        known.pop(None, None)
        now = [WORDS[values[name]] if name in values else None for name in known.values()]
        return JSONResponse({"places": list(known), "values": now})

    def media(self, request: Request) -> Response:
        """Return the file that shows a row."""
        place, last = request.path_params["place"], len(self._session.gallery) - 1
        if not place.isdecimal() or len(place) > len(str(last)) or int(place) > last:
            return PlainTextResponse("there is no such row", status_code=404)
        path, kind = self._media.file(int(place))
        return FileResponse(path, media_type=kind)

    def export(self, request: Request) -> Response:
        """Return the labels, model or report as a file to download."""
        name = request.path_params["name"]
        makers: dict[str, Callable[[], bytes]] = {
            "labels.csv": lambda: labels_csv(self._session).encode(),
            "labels.parquet": lambda: labels_parquet(self._session),
            "model.pcsda": lambda: model_file(self._session),
            "report.html": lambda: render(self._session, self._media).encode(),
        }
        if name not in makers:
            return PlainTextResponse("there is no such file", status_code=404)
        try:
            content = makers[name]()
        except (ValueError, ImportError) as error:
            return _refused(str(error))
        attached = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=attached)


def model_file(session: SearchSession) -> bytes:
    """Return the bytes of a model file with the session's verifier."""
    from ..persistence import save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pcsda"
        save(session.model_, path)
        return path.read_bytes()


def _refused(why: str) -> Response:
    return PlainTextResponse(why, status_code=400)


def _failed(status: int) -> Callable[[Request, Exception], Response]:
    """Return a handler that responds with an error's message and the given status code."""
    return lambda _, error: PlainTextResponse(str(error), status_code=status)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a port, or on a free port if `port` is 0.

    The socket is opened before its address is printed, so that the port is known.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def hosts_of(host: str, port: int) -> set[str]:
    """Return the names, with the port, by which a browser on this machine may call a host."""
    shown = f"[{host}]" if ":" in host else host
    names = {shown, "localhost"} if host in ("127.0.0.1", "::1") else {shown}
    return {f"{name}:{port}" for name in names}


def serve(
    session: SearchSession, media: Media, token: str, listener: socket.socket, hosts: set[str]
) -> None:
    """Serve the page until the program is interrupted."""
    import uvicorn

    app = make_app(session, media, token, hosts)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=64 * 2**10,
    )
    uvicorn.Server(config).run(sockets=[listener])
