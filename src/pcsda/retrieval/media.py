"""Showing a row as a picture, a sound, a text or its column values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# Larger files are not shown, to save memory in the browser.
LARGEST = 50 * 2**20
# Longer texts are cut.
LONGEST = 2000
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"}
SOUNDS = {".wav", ".mp3", ".ogg", ".oga", ".flac"}
# Signatures of file types with their offsets. SVG is excluded, because it can run scripts.
_SIGNS = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"BM", 0, "image/bmp"),
    (b"WAVE", 8, "audio/wav"),
    (b"ID3", 0, "audio/mpeg"),
    (b"\xff\xfb", 0, "audio/mpeg"),
    (b"\xff\xf3", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
)


class MediaError(ValueError):
    """Error raised if a file cannot be shown; the message gives the reason."""


@dataclass(frozen=True)
class Media:
    """The picture, sound, text or column values to show for each row.

    Parameters
    ----------
    kind : {"image", "audio", "text", "row"}
    values : sequence
        One file name under `folder` or one text for each row; may be empty if `kind` is "row".
    folder : path or None
        The folder with the files; no file outside it is ever read.
    columns : mapping of str to array or sequence
        Additional columns to show.
    """

    kind: str = "row"
    values: Sequence[Any] = ()
    folder: Path | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    def card(self, place: int) -> dict[str, Any]:
        """Return what the page needs in order to show a row."""
        facts = {name: _short(values[place]) for name, values in self.columns.items()}
        text = _short(self.values[place]) if self.kind == "text" else ""
        return {"kind": self.kind, "text": text, "facts": facts}

    def file(self, place: int) -> tuple[Path, str]:
        """Return the path and media type of a row's file.

        Raises
        ------
        MediaError
            If the file is missing, outside the folder or too large, or if it is not of the kind to
            show.
        """
        if self.folder is None or self.kind not in ("image", "audio"):
            raise MediaError("this session has no files")
        root = self.folder.resolve()
        try:
            # After `resolve` no link and no ".." can lead out of the folder.
            path = (root / str(self.values[place])).resolve()
            inside, there = path.is_relative_to(root), path.is_file()
            size = path.stat().st_size if inside and there else 0
        except (OSError, ValueError) as error:
            raise MediaError("this is not the name of a file") from error
        if not inside:
            raise MediaError("the file is outside the folder")
        if not there:
            raise MediaError("the file is missing")
        if size > LARGEST:
            raise MediaError(
                f"the file has {size / 2**20:.0f} MB, more than the limit of {LARGEST // 2**20} MB"
            )
        return path, self._type(path)

    def _type(self, path: Path) -> str:
        try:
            with open(path, "rb") as file:
                start = file.read(16)
        except OSError as error:
            raise MediaError("the file cannot be read") from error
        for sign, at, name in _SIGNS:
            if start[at : at + len(sign)] == sign and name.startswith(self.kind):
                return name
        what = "a picture" if self.kind == "image" else "a sound"
        raise MediaError(f"the file is not {what} that a browser can show")


def media_of(
    values: Sequence[Any], folder: str | os.PathLike[str], columns: Mapping[str, Any]
) -> Media:
    """Make a Media from one value per row: a name of a picture, a name of a sound, or a text.

    The first values show which of these they are.
    """
    names = [str(value) for value in values[:100]]
    for kind, endings in (("image", PICTURES), ("audio", SOUNDS)):
        # A majority is enough: a card whose file cannot be shown says so.
        if 2 * sum(os.path.splitext(name)[1].lower() in endings for name in names) > len(names):
            return Media(kind, values, Path(folder), columns)
    return Media("text", values, None, columns)


def _short(value: object) -> str:
    """Return a value as text, with six digits if it is a fraction; sixteen fill a card."""
    text = str(value)
    if isinstance(value, (float, np.floating)) and not float(value).is_integer():
        text = f"{value:.6g}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
