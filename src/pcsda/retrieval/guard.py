"""Check each request's host, origin, token and size, and add headers that restrict the browser."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# The answer that the page sends for a row has only a few dozen bytes.
LARGEST_REQUEST = 64 * 2**10
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """A filter that lets a request through if its host, origin and token are right and it is small.

    A page from another site can make a browser send requests here, and with a host name that
    resolves to this machine it could read the responses. The host and origin of a request reveal
    both attacks, and such a page cannot know the token.
    """

    def __init__(self, app: Any, token: str, hosts: set[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            response = PlainTextResponse(refusal[1], status_code=refusal[0])
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return 421, "this page answers only at its own address"
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return 403, "requests from other sites are refused"
        if scope["method"] == "POST":
            if headers.get("content-type", "").partition(";")[0] != "application/json":
                return 415, "send JSON"
            length = headers.get("content-length", "")
            # A chunked body may be longer than its Content-Length.
            pieces = "transfer-encoding" in headers
            if pieces or not length.isdigit() or int(length) > LARGEST_REQUEST:
                return 413, "the request is too large or does not say how large it is"
        given = scope["path"].lstrip("/").partition("/")[0]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return 403, "open the address that was printed when the search was started"
        return None
