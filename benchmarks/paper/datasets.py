"""The data sets of the paper by name, and a few more: what they are and where to get them.

A set is read from the folder that the environment variable PCSDA_DATA names: an NPZ archive with
`X`, `y` and `label_names`, or, for faces, a folder of pictures for each class. A set that is not
there is reported as absent and not replaced by another.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

PICTURE_SHAPE = (40, 30)
PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".tif", ".tiff"}


@dataclass(frozen=True)
class Source:
    """A data set: its row in the paper's tables, its origin and its terms.

    `archive` and `folder` are names within PCSDA_DATA, `openml` is an OpenML id, and `published` is
    the row in the paper's tables, or None for sets that the paper does not use. `shape` is the
    shape of the pictures if rows are pixels.
    """

    name: str
    published: str | None
    archive: str
    about: str
    terms: str
    citation: str
    obtain: str
    folder: str | None = None
    openml: int | None = None
    shape: tuple[int, int] | None = None


@dataclass(frozen=True)
class Dataset:
    """Samples with integer labels 0..C-1, the names of the classes, and the shape of pictures."""

    name: str
    X: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    shape: tuple[int, int] | None = None


class AbsentError(LookupError):
    """The data set is not on this machine; the message says how to obtain it."""


_FACES = "pixels of grey pictures, 40 x 30; a folder of pictures for each class will do"

PAPER = (
    Source(
        "Jaffe",
        "Jaffe",
        "jaffe_40x30.npz",
        f"7 expressions of Japanese women, 210 pictures; {_FACES}",
        "research use by agreement, may not be passed on",
        "M. Lyons and others, Coding facial expressions with Gabor wavelets, FG 1998",
        "ask its authors (zenodo.org/records/3451524)",
        folder="jaffe",
        shape=PICTURE_SHAPE,
    ),
    Source(
        "Kanade",
        "Kanade",
        "kanade_40x30.npz",
        f"7 expressions, 245 pictures of the Cohn-Kanade database; {_FACES}",
        "research use by agreement, may not be passed on",
        "T. Kanade, J. F. Cohn, Y. Tian, Comprehensive database for facial expression analysis,"
        " FG 2000",
        "ask the Affect Analysis Group, University of Pittsburgh",
        folder="kanade",
        shape=PICTURE_SHAPE,
    ),
    Source(
        "BU",
        "BU",
        "bu_40x30.npz",
        f"7 expressions, 700 pictures of BU-3DFE; {_FACES}",
        "research use by agreement, may not be passed on",
        "L. Yin and others, A 3D facial expression database for facial behavior research, FG 2006",
        "ask Binghamton University",
        folder="bu",
        shape=PICTURE_SHAPE,
    ),
    Source(
        "YALE",
        "YALE",
        "yaleb_40x30.npz",
        f"38 persons under 64 lights, 2432 pictures (Extended Yale B, cropped); {_FACES}",
        "research use with credit",
        "K. C. Lee, J. Ho, D. Kriegman, Acquiring linear subspaces for face recognition under"
        " variable lighting, PAMI 2005",
        "the cropped pictures of the Extended Yale Face Database B, a folder for each person",
        folder="yaleb",
        shape=PICTURE_SHAPE,
    ),
    Source(
        "AR",
        "AR",
        "ar_40x30.npz",
        f"100 persons, 2600 pictures; {_FACES}",
        "research use by agreement, may not be passed on",
        "A. M. Martinez and A. C. Kak, PCA versus LDA, PAMI 2001",
        "ask its authors (Ohio State University)",
        folder="ar",
        shape=PICTURE_SHAPE,
    ),
    Source(
        "15 scenes",
        "15 scenes",
        "scenes15_vgg16_224.npz",
        "4485 pictures of 15 kinds of scene; VGG16 features (ImageNet), last convolution, mean"
        " over space, 512 numbers",
        "research use",
        "S. Lazebnik, C. Schmid, J. Ponce, Beyond bags of features, CVPR 2006",
        "the pictures from its authors, features by any VGG16 with ImageNet weights",
    ),
    Source(
        "OptDigits",
        "OptDigits",
        "optdigits.npz",
        "5620 handwritten digits, 64 counts each",
        "CC BY 4.0",
        "E. Alpaydin and C. Kaynak, Optical recognition of handwritten digits, UCI 1998",
        "python -m benchmarks.paper --openml fetches it from OpenML",
        openml=28,
        shape=(8, 8),
    ),
    Source(
        "Caltech101",
        "Caltech101",
        "caltech101_vgg16_224.npz",
        "9144 pictures of 101 things and a background; VGG16 features as for 15 scenes",
        "CC BY 4.0",
        "L. Fei-Fei, R. Fergus, P. Perona, Learning generative visual models from few training"
        " examples, 2004 (the paper cites Quattoni and Torralba 2009)",
        "the pictures from Caltech, features by any VGG16 with ImageNet weights",
    ),
)
EXTRA = (
    Source(
        "ORL",
        None,
        "orl_40x30.npz",
        f"40 persons, 400 pictures; {_FACES}",
        "free with credit",
        "F. Samaria and A. Harter, Parameterisation of a stochastic model for human face"
        " identification, 1994",
        "AT&T Laboratories Cambridge, a folder for each person",
        folder="orl",
        shape=PICTURE_SHAPE,
    ),
    Source(
        "USPS",
        None,
        "usps.npz",
        "9298 handwritten digits, 16 x 16",
        "commonly shared, no formal licence",
        "J. J. Hull, A database for handwritten text recognition research, PAMI 1994",
        "python -m benchmarks.paper --openml fetches it from OpenML",
        openml=41082,
        shape=(16, 16),
    ),
    Source(
        "ISOLET",
        None,
        "isolet_1560.npz",
        "1560 spoken letters (part 5), 617 numbers",
        "CC BY 4.0",
        "R. Cole and M. Fanty, ISOLET, UCI 1994",
        "the file isolet5 of the UCI repository",
    ),
    Source(
        "digits",
        "OptDigits",
        "",
        "1797 of the digits of OptDigits, bundled with scikit-learn",
        "CC BY 4.0",
        "E. Alpaydin and C. Kaynak, Optical recognition of handwritten digits, UCI 1998",
        "always there",
        shape=(8, 8),
    ),
)
SOURCES = {source.name: source for source in (*PAPER, *EXTRA)}


def load(name: str, *, openml: bool = False) -> Dataset:
    """Read a data set; with `openml`, fetch it from OpenML if it is not in PCSDA_DATA."""
    source = SOURCES[name]
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return _dataset(name, X, y)
    folder = os.environ.get("PCSDA_DATA")
    if folder and (path := Path(folder) / source.archive).is_file():
        with np.load(path, allow_pickle=False) as archive:
            names = archive["label_names"].astype(str)
            X = archive["X"].astype(np.float64)
            return Dataset(name, X, archive["y"], tuple(names), _shape_of(name, X))
    if folder and source.folder and (path := Path(folder) / source.folder).is_dir():
        return _dataset(name, *read_pictures(path))
    if openml and source.openml:
        from sklearn.datasets import fetch_openml

        return _dataset(name, *fetch_openml(data_id=source.openml, return_X_y=True, as_frame=False))
    wanted = source.archive + (f" or the folder {source.folder}" if source.folder else "")
    place = folder or "the folder that PCSDA_DATA names, which is not set"
    raise AbsentError(f"{name} is absent: no {wanted} in {place}. To obtain it: {source.obtain}")


def _dataset(name: str, X: np.ndarray, labels: np.ndarray) -> Dataset:
    names, y = np.unique(np.asarray(labels).astype(str), return_inverse=True)
    rows = np.asarray(X, dtype=np.float64)
    return Dataset(name, rows, y, tuple(names.tolist()), _shape_of(name, rows))


def _shape_of(name: str, X: np.ndarray) -> tuple[int, int] | None:
    """Return the shape of the pictures, or None if the columns are not their pixels."""
    shape = SOURCES[name].shape
    return shape if shape and prod(shape) == X.shape[1] else None


def read_pictures(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read grey pictures from one subfolder per class, resized to 40 x 30 by area."""
    from PIL import Image

    size = PICTURE_SHAPE[::-1]  # Pillow counts columns first
    rows, labels = [], []
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in PICTURES:
            with Image.open(path) as picture:
                small = picture.convert("L").resize(size, Image.Resampling.BOX)
            rows.append(np.asarray(small, dtype=np.float64).ravel())
            labels.append(path.parent.name)
    if not rows:
        raise AbsentError(
            f"{folder} has no pictures; put those of each class into a subfolder of its own"
            f" ({', '.join(sorted(PICTURES))})"
        )
    return np.array(rows), np.array(labels)
