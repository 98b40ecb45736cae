"""Link the HTML display of estimators to their documentation, if the pages have an address."""

from __future__ import annotations

import os
from typing import Any, TypeVar

# Address of a copy of the documentation, such as the folder that `make docs` writes.
ADDRESS = "PCSDA_DOCS"

Kind = TypeVar("Kind", bound=type)


def documented(kind: Kind) -> Kind:
    """Link the HTML display of an estimator class and its subclasses to their pages.

    The documentation has no public address, so there is a link only if the environment variable
    `PCSDA_DOCS` holds the address of a copy.
    """
    links = {"module": "pcsda", "template": property(_template), "url_param_generator": _page}
    for name, value in links.items():
        setattr(kind, f"_doc_link_{name}", value)
    return kind


def _template(_: object) -> str:
    address = os.environ.get(ADDRESS, "").rstrip("/").replace("{", "{{").replace("}", "}}")
    return f"{address}/generated/api/{{page}}.html" if address else ""


def _page(model: object) -> dict[str, Any]:
    kind = type(model)
    module = "pcsda.normalization" if kind.__module__ == "pcsda.normalization" else "pcsda"
    return {"page": f"{module}.{kind.__name__}"}
