"""The built site in a real browser: pages fit on a phone, and none is a wall of tables."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.more  # `make browser` runs it, after `make docs`

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = [path for path in SITE.rglob("*.html") if not {"_static", "_modules"} & set(path.parts)]
MOST_TABLE = 2000  # pixels
# Folded tables have no height; those of the reference are part of a docstring.
HEIGHTS = """() => [...document.querySelectorAll("article table")]
    .filter(table => !table.closest("details:not([open]), dl.py"))
    .map(table => table.getBoundingClientRect().height)
    .reduce((sum, height) => sum + height, 0)"""


@pytest.fixture(scope="module")
def pages(lacking):
    """Return the pages of the built site."""
    if not PAGES:
        lacking("the site is not built; run make docs")
    return PAGES


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_pages_are_narrow_enough_and_short_of_tables(pages, browser, width, scheme):
    faults = []
    view = {"width": width, "height": 900}
    context = browser.new_context(viewport=view, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda m: m.type in ("error", "warning") and faults.append(m.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or faults.append(r.url))
    wide, long = {}, {}
    for path in pages if scheme == "light" else [SITE / "index.html"]:
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        wide[path] = page.evaluate("document.documentElement.scrollWidth")
        long[path] = page.evaluate(HEIGHTS)
    context.close()
    assert {path: size for path, size in wide.items() if size > width} == {}
    assert {path: size for path, size in long.items() if size > MOST_TABLE} == {}
    assert faults == []


def test_a_phone_shows_what_code_prints_and_the_figures_of_a_table(pages, browser):
    """Printed sentences were cut off; each column of figures took a third of the screen."""
    context = browser.new_context(viewport={"width": 390, "height": 900})
    page = context.new_page()
    page.goto((SITE / "start.html").as_uri())
    hidden = "pre => pre.scrollWidth - pre.clientWidth"
    found = page.evaluate(f"[...document.querySelectorAll('.output pre')].map({hidden})")
    assert found
    assert max(found) <= 0
    page.goto((SITE / "open_set.html").as_uri())
    page.evaluate("window.table = document.querySelector('article table')")
    widths = page.evaluate("[...table.rows[1].cells].map(cell => cell.offsetWidth)")
    assert max(widths) < 130
    page.evaluate("table.parentElement.scrollLeft = 1000")
    assert page.evaluate("table.parentElement.scrollLeft") > 0
    assert page.evaluate("table.rows[1].cells[0].getBoundingClientRect().left") >= 0
    context.close()
