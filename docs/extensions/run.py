"""The directive `run`: Python that is run while the page is built, with what it prints and draws.

The blocks of a page share their names, as if typed one after the other. An error, or a warning
of Python, ends the build.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Run(SphinxDirective):
    """Run the content; `alt` says what the picture shows, where there is one."""

    has_content = True
    option_spec = {"alt": str}  # noqa: RUF012 - as docutils wants it

    def run(self) -> list[nodes.Node]:
        import matplotlib.pyplot as plt

        source = "\n".join(self.content)
        state = self.env.temp_data.setdefault("pcsda_run", {"names": {}, "pictures": 0})
        output = run_block(source, state["names"], f"{self.env.docname}, a block of code")
        code = nodes.literal_block(source, source, language="python")
        found: list[nodes.Node] = [code]
        if output:
            shown = nodes.literal_block(output, output, language="text", classes=["output"])
            found.append(shown)
        for number in plt.get_fignums():
            found.append(self._picture(plt.figure(number), state))
        plt.close("all")
        return found

    def _picture(self, figure: Any, state: dict[str, Any]) -> nodes.image:
        if "alt" not in self.options:
            raise self.error("a block that draws needs :alt:, which says what is to be seen")
        state["pictures"] += 1
        folder = Path(self.env.srcdir) / "generated" / "pictures"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.env.docname.replace('/', '-')}-{state['pictures']}.png"
        figure.savefig(folder / name, dpi=150)
        return nodes.image(uri=f"/generated/pictures/{name}", alt=self.options["alt"])


def run_block(source: str, names: dict[str, Any], title: str) -> str:
    """Run code in a folder that is gone afterwards, and return what it prints."""
    names.setdefault("__name__", "__main__")
    printed = io.StringIO()
    home = Path.cwd()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("error")
        os.chdir(names.setdefault("__folder__", _Folder()).path)
        try:
            exec(compile(source, f"<{title}>", "exec"), names)
        finally:
            os.chdir(home)
    return printed.getvalue().rstrip()


class _Folder:
    """A folder that lives as long as the names of a page do."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def setup(app):
    app.add_directive("run", Run)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
