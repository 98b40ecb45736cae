"""The search page in a real browser, used as a person would: keys, pictures, sounds, widths."""

import os
import threading
import time
import wave

import numpy as np
import pytest
from retrieval_factories import Served, grey_png
from sklearn.datasets import load_digits

from pcsda import SearchSession
from pcsda.retrieval import server
from pcsda.retrieval.media import Media
from pcsda.retrieval.summary import render

pytestmark = pytest.mark.more  # `make browser` runs it
NASTY = "<img src=x onerror=alert(1)>"
X, y = load_digits(return_X_y=True)
X, y = X[:400], y[:400]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for row, pixels in enumerate(X):
        (folder / f"{row}.png").write_bytes(grey_png(255 - 15.9 * pixels.reshape(8, 8)))
    return folder


@pytest.fixture
def served(pictures):
    names = [f"{row}.png" for row in range(len(X))]
    session = SearchSession(X)
    session.label(np.flatnonzero(y == 3)[:3], True)
    served = Served(session, Media("image", names, pictures, {"title": [NASTY] * len(X)}))
    yield served
    served.stop()


@pytest.fixture
def visit(browser):
    """Open a server's page; console messages, dialogs and foreign requests fail the test."""
    contexts, faults = [], []

    def go(served, expected=(), **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()

        def hear(note):
            if served.server.should_exit:  # a page that is still open misses its server
                return
            if note.type in ("error", "warning") and not any(w in note.text for w in expected):
                faults.append(note.text)

        page.on("console", hear)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        allowed = (served.address, "data:", "blob:")
        page.on("request", lambda r: r.url.startswith(allowed) or faults.append(r.url))
        page.goto(served.address)
        page.wait_for_selector(".card")
        settled(page)
        return page

    yield go
    for context in contexts:
        context.close()
    assert faults == []


def until(page, condition, value=None):
    """Wait for a condition. Playwright's own wait needs `eval`, which the page forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(f"value => {condition}", value):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def settled(page):
    """Wait until the page has learned and shows how many were found."""
    until(page, "document.getElementById('stop').textContent !== '' && !busy && answered === asked")


def other_screen(page, before):
    until(page, "cards[0].place !== value", before[0])
    settled(page)


def shown(page):
    return page.evaluate("cards.map(card => card.place)")


def test_a_person_searches_with_the_keyboard(visit, served):
    page = visit(served)
    assert page.inner_text("#found") == "3"
    for _ in range(2):
        before = shown(page)
        for place in before:
            page.keyboard.press("y" if y[place] == 3 else "n")
        other_screen(page, before)
    values = served.session.labels()
    assert len(values) == 51
    assert all(value == (y[place] == 3) for place, value in values.items())
    found = sum(value is True for value in values.values())
    assert page.inner_text("#found") == str(found)
    assert found > 25
    assert page.locator("#curve polyline").get_attribute("points")
    assert "log-likelihood ratio" in page.inner_text("#threshold")
    assert page.locator(".card img").first.evaluate("image => image.naturalWidth") == 8
    assert NASTY in page.locator(".card").first.inner_text()  # as text


def test_each_answer_is_counted_at_once(visit, served):
    """The numbers used to wait for the next screen, as if the answers had been lost."""
    page = visit(served)
    page.keyboard.press("y")
    page.keyboard.press("n")
    until(page, "sending.then(() => true)")
    assert page.inner_text("#found") == "4"
    assert page.inner_text("#shown").splitlines() == ["5", "of 400"]


def test_an_ended_search_is_named(visit, served):
    page = visit(served)
    served.stop()
    page.keyboard.press("y")
    until(page, "message.classList.contains('wrong')")
    assert "The search does not answer. If it has ended, start it" in page.inner_text("#message")
    assert page.locator(".card[data-value]").count() == 0


@pytest.fixture
def texts():
    words = ["a long text that the card cuts " * 40] * len(X)
    session = SearchSession(X)
    session.label(3, True)
    served = Served(session, Media("text", words))
    yield served
    served.stop()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_selected_card_can_be_read(visit, texts, width):
    """Its text was cut, the bar with the buttons hid its end, and the mark hid its words."""
    page = visit(texts, viewport={"width": width, "height": 900})
    cut = "cards.map(c => c.node.firstChild).map(p => p.scrollHeight > p.clientHeight)"
    assert page.evaluate(cut) == [False] + [True] * 23
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    hidden = "cards[at].node.getBoundingClientRect().bottom > actions.getBoundingClientRect().top"
    assert not page.evaluate(f"(() => {{ const actions = byId('actions'); return {hidden}; }})()")
    page.keyboard.press("y")
    mark = "parseFloat(getComputedStyle(cards[7].node, '::after').top)"
    assert page.evaluate(f"{mark} > cards[7].node.firstChild.offsetTop + 100")


def test_keys_work_as_soon_as_rows_are_shown(visit, served, monkeypatch):
    page = visit(served)
    before, wait = shown(page), threading.Event()
    state_of = server.state_of
    monkeypatch.setattr(server, "state_of", lambda *args: (wait.wait(30), state_of(*args))[1])
    page.keyboard.press("r")  # and the numbers of the next screen are long in coming
    until(page, "cards[0].place !== value", before[0])
    page.keyboard.press("y")
    until(page, "sending.then(() => true)")
    wait.set()
    first = shown(page)[0]
    until(page, "document.getElementById('shown').textContent.startsWith('28')")
    assert served.session.labels()[first] is True


def test_arrows_skip_and_undo(visit, served):
    page = visit(served)
    places = shown(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("s")
    page.keyboard.press("y")
    until(page, "sending.then(() => true)")
    assert served.session.labels()[places[1]] is None
    assert served.session.labels()[places[2]] is True
    page.keyboard.press("u")
    until(page, "document.getElementById('message').textContent === 'Undone.'")
    assert places[2] not in served.session.labels()
    assert page.evaluate("at") == 2
    page.keyboard.press("y")  # now the message would be out of date
    assert page.inner_text("#message") == "Is the marked row what you are looking for?"
    page.keyboard.press("u")
    until(page, "message.textContent === 'Undone.'")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("at") == 2 + page.evaluate("perRow()")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("at") == 1
    page.click("#actions [data-value=no]")
    until(page, "sending.then(() => true)")
    assert served.session.labels()[places[1]] is False


def test_an_undo_shows_the_earlier_answer_to_the_same_row(visit, served):
    """The card looked as if it had no answer, and "all others: no" answered it again."""
    page = visit(served)
    place = shown(page)[0]
    page.keyboard.press("y")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("n")
    page.keyboard.press("u")
    until(page, "message.textContent === 'Undone.'")
    assert served.session.labels()[place] is True
    assert page.get_attribute(".card", "data-value") == "yes"
    page.keyboard.press("u")
    until(page, "!cards[0].value")
    assert place not in served.session.labels()


def test_marking_the_rest_no_brings_the_next_screen(visit, served):
    page = visit(served)
    places = shown(page)
    page.keyboard.press("y")
    page.keyboard.press("r")
    other_screen(page, places)
    values = served.session.labels()
    assert values[places[0]] is True
    assert all(values[place] is False for place in places[1:])


def test_marking_the_rest_is_undone_at_once(visit, served):
    """It took as many undos as there were rows, although the screen was gone after one key."""
    page = visit(served)
    places = shown(page)
    page.keyboard.press("y")
    page.keyboard.press("r")
    other_screen(page, places)
    page.keyboard.press("u")
    until(page, "message.textContent === 'Undone; those 23 rows will be shown again.'")
    settled(page)
    assert page.inner_text("#shown").splitlines()[0] == "4"
    assert set(served.session.labels()) & set(places) == {places[0]}


def test_a_reload_keeps_what_can_be_undone(visit, served):
    """A page that was loaded again had nothing to undo."""
    page = visit(served)
    first = shown(page)[0]
    page.keyboard.press("y")
    until(page, "sending.then(() => true)")
    page.reload()
    page.wait_for_selector(".card")
    settled(page)
    page.keyboard.press("u")
    until(page, "message.textContent === 'Undone; that row will be shown again.'")
    assert first not in served.session.labels()
    page.keyboard.press("u")  # the examples were not given on the page
    until(page, "message.textContent === 'This page has nothing to undo.'")


def test_leaving_while_an_answer_is_on_its_way_asks_first(visit, served, monkeypatch):
    """A reload right after some quick answers lost the last of them."""
    page, wait, label = visit(served), threading.Event(), served.session.label
    monkeypatch.setattr(served.session, "label", lambda *a, **k: (wait.wait(30), label(*a, **k)))
    stays = "!window.dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert not page.evaluate(stays)
    page.keyboard.press("y")
    assert page.evaluate(stays)
    wait.set()
    until(page, f"!{stays}")
    assert served.session.labels()[shown(page)[0]] is True


def test_an_undo_after_the_last_row_shows_it_again(visit, pictures):
    """The screen stayed empty until the page was loaded again."""
    session = SearchSession(X[:30])
    session.label(3, True)
    session.label(np.setdiff1d(np.arange(30), [3, 5]), False)
    served = Served(session, Media("image", [f"{row}.png" for row in range(30)], pictures))
    try:
        page = visit(served)
        page.keyboard.press("n")
        until(page, "message.textContent === 'No row is left to show.'")
        settled(page)
        page.keyboard.press("u")
        until(page, "cards.length === 1")
        settled(page)
        assert shown(page) == [5]
    finally:
        served.stop()


def test_a_new_screen_begins_at_its_top(visit, served):
    """After the last card of a screen, the first card of the next one was out of sight."""
    page = visit(served, viewport={"width": 390, "height": 700})
    before = shown(page)
    for _ in before:
        page.keyboard.press("n")
    other_screen(page, before)
    assert page.evaluate("cards[0].node.getBoundingClientRect().top") >= 0
    assert page.evaluate("message.getBoundingClientRect().top") > -1


def test_two_pages_share_one_session(visit, served):
    one, two = visit(served), visit(served)
    first, second = shown(one)[0], shown(two)[1]
    one.keyboard.press("y")
    two.keyboard.press("ArrowRight")
    two.keyboard.press("n")
    for page in (one, two):
        until(page, "sending.then(() => true)")
    assert (served.session.labels()[first], served.session.labels()[second]) == (True, False)
    one.keyboard.press("u")
    until(one, "document.getElementById('message').textContent === 'Undone.'")
    assert first not in served.session.labels()
    assert served.session.labels()[second] is False


def test_strategies_and_thresholds_can_be_chosen(visit, served):
    page = visit(served)
    before = shown(page)
    page.select_option("#how", "random")
    other_screen(page, before)
    assert len(served.session.store.audits()[0].ids) == 24
    assert "Answer all 24: an audit counts once it is complete." in page.inner_text("#message")
    words = page.inner_text("#threshold")
    page.select_option("#alarms", "0.05")
    until(page, "document.getElementById('threshold').innerText !== value", words)
    with page.expect_download() as download:
        page.get_by_role("link", name="labels (CSV)").click()
    assert download.value.suggested_filename == "labels.csv"


def test_missing_and_broken_files_are_marked(visit, tmp_path):
    for row in range(60):
        (tmp_path / f"{row}.png").write_text("no picture")
    (tmp_path / "3.png").unlink()
    session = SearchSession(X[:60])
    session.label(13, True)
    served = Served(session, Media("image", [f"{row}.png" for row in range(60)], tmp_path))
    try:
        page = visit(served, expected=("404",))
        page.wait_for_selector(".lost")
        until(page, "document.querySelectorAll('.card img').length === 0")
        words = page.inner_text("#grid")
        assert "is not a picture" in words
    finally:
        served.stop()


def test_sounds_have_a_player_and_a_spectrogram(visit, tmp_path):
    at = np.arange(4000) / 8000
    for row in range(30):
        with wave.open(str(tmp_path / f"{row}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            sound = 20000 * np.sin(2 * np.pi * (300 + 50 * row) * at)
            file.writeframes(sound.astype("<i2").tobytes())
    session = SearchSession(X[:30])
    session.label(3, True)
    served = Served(session, Media("audio", [f"{row}.wav" for row in range(30)], tmp_path))
    try:
        page = visit(served)
        assert page.locator(".card audio").count() == 24
        until(
            page,
            "(() => { const c = document.querySelector('canvas');"
            " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            " return c.width === 120 && new Set(d).size > 10; })()",
        )
        assert "p plays it" in page.inner_text("#message")
        players = "[...document.querySelectorAll('audio')].map(player => !player.paused)"
        page.keyboard.press("p")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("p")
        assert page.evaluate(players)[:3] == [False, True, False]
        page.keyboard.press("p")
        assert not any(page.evaluate(players))
    finally:
        served.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_every_width_and_both_colour_schemes(visit, served, width, scheme):
    page = visit(served, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in paper[4:-1].split(",")]
    assert (sum(channels) < 200) == (scheme == "dark")
    if os.environ.get("PCSDA_PICTURES"):  # a folder for pictures to look at
        page.screenshot(path=f"{os.environ['PCSDA_PICTURES']}/search-{width}-{scheme}.png")


def test_a_session_is_saved_as_one_page_without_scripts_or_network(browser, pictures, tmp_path):
    session = SearchSession(X)
    session.label(np.flatnonzero(y == 0)[:3], True)
    for _ in range(4):
        rows = session.suggest(20)
        session.label(rows, y[rows] == 0)
    found = sum(value is True for value in session.labels().values())
    assert found > 30
    names = [f"{row}.png" for row in range(len(X))]
    kept = render(session, Media("image", names, pictures))
    (tmp_path / "kept.html").write_text(kept, encoding="utf-8")
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "kept.html").as_uri())
    assert page.locator(".card img").count() == found
    assert page.locator(".card img").first.evaluate("image => image.naturalWidth") == 8
    assert all(url.startswith(("file:", "data:")) for url in asked)
    page.close()
