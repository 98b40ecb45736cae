"""The order of the examples in the gallery."""

from __future__ import annotations

ORDER = (
    "toy_problem",
    "face_verification",
    "search_session",
    "retrieval",
    "open_set_bank",
    "choosing_k",
    "few_positives",
    "family",
    "calibration",
    "streaming",
    "dask_arrays",
    "onnx_runtime",
)


class ByLearning:
    """Sorts files as one would learn from them; a file that is not listed comes last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> tuple[int, str]:
        stem = filename.removesuffix(".py")
        return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)
