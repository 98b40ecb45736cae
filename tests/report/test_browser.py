"""The report in a real browser: it opens without errors, the threshold moves, tables sort."""

import numpy as np
import pytest
from report_factories import NASTY, bank_report, verifier_report

from pcsda import PCSDA
from pcsda.report import evaluate, write_page

pytestmark = pytest.mark.more  # `make browser` runs it


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_page(verifier_report(), folder / "one.html")
    write_page(bank_report(), folder / "bank.html")
    write_page(_named_report(), folder / "named.html")
    return folder


def _named_report():
    """Report on one of three classes, one of which has a name that looks like HTML."""
    rng = np.random.default_rng(0)
    kinds = np.array(["weld", "bolt & <b>nut</b>", "rivet"])[np.arange(300) % 3]
    X = rng.standard_normal((300, 4)) + 4 * np.eye(4)[np.arange(300) % 3]
    model = PCSDA(n_subclasses=2, pos_label="weld", random_state=0).fit(X[:150], kinds[:150])
    return evaluate(model, X[150:], kinds[150:], n_resamples=20)


@pytest.fixture
def visit(browser, files):
    """Open a report; any console message or network request fails the test."""
    contexts, faults = [], []

    def go(name, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: m.type in ("error", "warning") and faults.append(m.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: r.url.startswith(("file:", "data:")) or faults.append(r.url))
        page.goto((files / f"{name}.html").as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert faults == []


def number(page, place):
    return int(page.inner_text(place).replace(",", ""))


@pytest.mark.parametrize("name", ["one", "bank"])
def test_the_report_opens_and_draws(visit, name):
    page = visit(name)
    # Two seconds to read, unpack and draw everything, whatever else the machine does.
    measure = page.context.new_cdp_session(page)
    measure.send("Performance.enable", {"timeDomain": "threadTicks"})
    found = {m["name"]: m["value"] for m in measure.send("Performance.getMetrics")["metrics"]}
    assert 0 < found["ThreadTime"] < 2
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert painted < 2000
    shown = ["scores", "det", "roc"] + ["subspace"] * (name == "one")
    for plot in shown:
        assert (
            page.locator(f"#{plot} .plot path, #{plot} .points path, #{plot} .js-line").count() > 0
        )
    assert page.locator("#subspace").is_visible() == (name == "one")
    assert page.locator("#labels-section").is_visible() == (name == "bank")


def test_labels_are_shown_verbatim(visit):
    page = visit("one")
    assert NASTY in page.inner_text(".summary")
    assert NASTY in page.inner_text("h1")
    assert NASTY in page.inner_text("#errors")
    assert NASTY in page.text_content("#subspace .legend")


def test_the_slider_changes_the_counts(visit):
    page = visit("one")
    view = verifier_report().views[0]
    assert (number(page, "#misses"), number(page, "#alarms")) == view.counts()
    for place in (0, len(view.thresholds) // 2, len(view.thresholds) - 1):
        page.evaluate(
            "place => { const s = document.getElementById('slider'); s.value = place;"
            " s.dispatchEvent(new Event('input')); }",
            place,
        )
        assert number(page, "#misses") == view.misses[place]
        assert number(page, "#alarms") == view.false_alarms[place]
        assert float(page.inner_text("#threshold")) == pytest.approx(
            view.thresholds[place], abs=0.01
        )
    page.wait_for_timeout(100)
    marker = page.evaluate("document.getElementById('roc').data[1].y[0]")
    assert marker == 0  # the marks on the curves moved along


def test_nothing_can_be_sent_anywhere(visit):
    """The drawing library's charts come with a button that uploads their data."""
    page = visit("one", has_touch=True, is_mobile=True)
    titles = {button.get_attribute("data-title") for button in page.locator(".modebar-btn").all()}
    assert titles == {"Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"}


@pytest.mark.parametrize(
    ("plot", "words"),
    [("roc", "false alarms"), ("det", "threshold"), ("scores", "%"), ("subspace", ", ")],
)
def test_charts_respond_to_the_mouse(visit, plot, words):
    page = visit("one")
    page.locator(f"#{plot}").scroll_into_view_if_needed()
    area = page.locator(f"#{plot} .nsewdrag").bounding_box()
    middle = area["x"] + area["width"] / 2, area["y"] + area["height"] / 2
    # Some point of every picture lies near its middle or on the way to a corner.
    for step in range(40):
        share = step / 40
        page.mouse.move(
            area["x"] + area["width"] * share,
            area["y"] + area["height"] * (0.05 + share) % area["height"],
        )
        if page.locator(f"#{plot} .hoverlayer text").count():
            break
    assert words in page.locator(f"#{plot} .hoverlayer").text_content()
    before = page.evaluate(f"document.getElementById('{plot}').layout.xaxis.range?.slice()")
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 90, middle[1] + 70, steps=5)
    page.mouse.up()
    page.wait_for_function(
        "([plot, before]) => JSON.stringify(document.getElementById(plot).layout.xaxis.range)"
        " !== JSON.stringify(before)",
        arg=[plot, before],
    )


def test_keys_move_the_threshold(visit):
    page = visit("one")
    before = page.inner_text("#threshold")
    page.focus("#slider")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert float(page.inner_text("#threshold")) > float(before)


def test_named_thresholds_can_be_chosen(visit):
    page = visit("one")
    view = verifier_report().views[0]
    for mark in view.marks:
        page.get_by_role("button", name=mark, exact=True).click()
        assert (number(page, "#misses"), number(page, "#alarms")) == view.counts(mark)
    pressed = page.locator("#marks [aria-pressed=true]").all_inner_texts()
    assert mark in pressed


def test_the_worst_errors_come_first(visit):
    page = visit("one")

    def rows():
        found = page.locator("#errors tbody tr:not(.why)").all_inner_texts()
        return [row.split("\t") for row in found]

    def wrongness(row):
        threshold = float(page.inner_text("#threshold"))
        llr = float(row[3].replace("−", "-"))
        return threshold - llr if row[2] == NASTY else llr - threshold

    far = [wrongness(row) for row in rows()]
    assert far == sorted(far, reverse=True)
    errors = sum(verifier_report().views[0].counts())
    assert [row[4] != "right" for row in rows()] == [n < errors for n in range(len(far))]
    page.get_by_role("button", name="Misses", exact=True).click()
    assert {row[2] for row in rows()} == {NASTY}
    page.get_by_role("button", name="False alarms", exact=True).click()
    assert NASTY not in {row[2] for row in rows()}
    count = len(rows())
    page.click("#more")
    assert len(rows()) > count


def test_a_bank_shows_one_label_or_all(visit):
    page = visit("bank")
    found = bank_report()
    for place in (2, 4, 0):
        page.select_option("#view", str(place))
        view = found.views[place]
        assert (number(page, "#misses"), number(page, "#alarms")) == view.counts()
        assert page.inner_text("#miss-rate").startswith(f"of {view.n_positive} ")
        page.wait_for_function(
            "n => document.getElementById('roc').data[0].x.length === n", arg=len(view.thresholds)
        )
        assert page.locator("#subspace").is_visible() == (place > 0)


def test_the_label_table_sorts(visit):
    page = visit("bank")

    def column(place):
        cells = page.locator(f"#labels tbody tr > :nth-child({place + 1})")
        return [cell.get_attribute("data-value") for cell in cells.all()]

    for place, heading in enumerate(["Label", "Positives", "Equal error rate", "Misses"]):
        for falling in (False, True):
            page.locator("#labels").get_by_role("button", name=heading).click()
            values = column(place)
            if place:
                found = [float(value) for value in values]
                assert found == sorted(found, reverse=falling)
            sort = page.locator("#labels th[aria-sort]")
            assert sort.count() == 1
            assert sort.get_attribute("aria-sort") == ("descending" if falling else "ascending")
    page.locator("#labels").get_by_role("button", name="Label").click()
    once = column(0)
    page.locator("#labels").get_by_role("button", name="Label").click()
    assert column(0) == once[::-1]


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (768, "dark"), (1280, "dark")])
def test_the_report_fits_every_width_and_both_colour_schemes(visit, width, scheme):
    page = visit("bank", viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = "document.querySelector('#figures').parentElement"
    assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")  # no column is out of sight
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    text = page.evaluate("getComputedStyle(document.querySelector('#roc .xtick text')).fill")
    dark = scheme == "dark"
    assert (sum(_channels(paper)) < 200) == dark
    assert (sum(_channels(text)) > 400) == dark


def _channels(colour):
    return [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def test_print_is_dark_on_white_and_has_no_controls(visit):
    page = visit("one", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert _channels(page.evaluate("getComputedStyle(document.body).backgroundColor")) == [255] * 3
    fill = page.evaluate("getComputedStyle(document.querySelector('#roc .xtick text')).fill")
    assert sum(_channels(fill)) < 100
    assert not page.locator("#slider").is_visible()
    assert page.locator("#misses").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_subclasses_are_named_in_place(visit):
    page = visit("named")
    names = page.locator("#subspace .annotation text").all_text_contents()
    assert names
    assert set(names) <= {"bolt & <b>nut</b>", "rivet"}
    assert "centre of a subclass" in page.inner_text("#subspace-note")


def test_a_phone_shows_reasons_and_meanings(visit):
    page = visit("one", viewport={"width": 390, "height": 844})
    assert "positives rejected at the threshold" in page.inner_text("#figures")
    assert "Nearest in this test: " in page.locator("#errors .why p").first.inner_text()
    assert page.locator("#calibration .plot-container").count() == 1
