"""A server in a thread, and pictures, for tests of the search page."""

import struct
import threading
import time
import zlib
from http.client import HTTPConnection

import numpy as np

from pcsda.retrieval.server import hosts_of, listen, make_app

TOKEN = "secret-token"


class Served:
    """A server on loopback, on a free port, and requests to it."""

    def __init__(self, session, shown):
        import uvicorn

        self.session = session
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        app = make_app(session, shown, TOKEN, hosts_of("127.0.0.1", self.port))
        self.server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
        )
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"

    def ask(self, path, method="GET", body=None, headers=None, token=TOKEN):
        link = HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"content-type": "application/json"} if body is not None else {}
        link.request(method, f"/{token}/{path}", body=body, headers=sent | (headers or {}))
        answer = link.getresponse()
        content = answer.read()
        link.close()
        return answer.status, content, dict(answer.getheaders())

    def stop(self):
        self.server.should_exit = True
        self.thread.join()


def grey_png(pixels):
    """Encode grey values from 0 to 255 as a PNG file."""
    height, width = pixels.shape
    rows = np.clip(pixels, 0, 255).astype(np.uint8)
    raw = np.hstack([np.zeros((height, 1), dtype=np.uint8), rows]).tobytes()

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
