"""A search without a person: a simulated user finds one digit among scikit-learn's digits."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .media import Media
from .session import SearchSession
from .summary import write_summary

# The simulated user stops after this many screens without a find.
PATIENCE = 2


def search_digits(path: str | os.PathLike[str], digit: int = 3, seed: int = 0) -> SearchSession:
    """Find all pictures of a digit from three examples, and write the page of the session.

    Parameters
    ----------
    path : path
        HTML file, with the pictures found, the threshold at 1 % false alarms and the curve.
    digit : int
        What to look for, 0 to 9.
    seed : int
        Chooses the three examples.

    Returns
    -------
    SearchSession
        The finished session.
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    truth = y == digit
    session = SearchSession(X)
    rng = np.random.default_rng(seed)
    session.label(rng.choice(np.flatnonzero(truth), 3, replace=False), True)
    idle = 0
    while idle < PATIENCE and not session.stop():
        rows = session.suggest(20)
        session.label(rows, truth[rows], who="simulated user")
        idle = 0 if truth[rows].any() else idle + 1
    names = [f"{row}.png" for row in range(len(X))]
    with tempfile.TemporaryDirectory() as folder:
        for row in session.gallery.places(session.labels()):
            (Path(folder) / names[row]).write_bytes(grey_png(255 - 15.9 * X[row].reshape(8, 8)))
        title = f"A search for the digit {digit} among {len(X)} pictures"
        write_summary(session, path, Media("image", names, Path(folder)), title)
    return session


def grey_png(pixels: NDArray[np.floating]) -> bytes:
    """Grey values from 0 to 255 as a PNG file."""
    height, width = pixels.shape
    rows = np.clip(pixels, 0, 255).astype(np.uint8)
    raw = np.hstack([np.zeros((height, 1), dtype=np.uint8), rows]).tobytes()

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
