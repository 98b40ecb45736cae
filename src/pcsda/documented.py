"""Links from the HTML of estimators to their pages, where the documentation has an address."""

from __future__ import annotations

import os

# Address of a copy of the documentation, such as the folder that `make docs` writes.
ADDRESS = "PCSDA_DOCS"


class Documented:
    """Estimators with a page of their own.

    The documentation has no public address, and a link must not lead nowhere: without the
    environment variable `PCSDA_DOCS` there is no link.
    """

    _doc_link_module = "pcsda"

    @property
    def _doc_link_template(self) -> str:
        address = os.environ.get(ADDRESS, "").rstrip("/").replace("{", "{{").replace("}", "}}")
        return f"{address}/generated/api/{{page}}.html" if address else ""

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        kind = type(self)
        room = "pcsda.normalization" if kind.__module__ == "pcsda.normalization" else "pcsda"
        return {"page": f"{room}.{kind.__name__}"}
