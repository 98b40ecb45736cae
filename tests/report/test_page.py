"""The page as text: complete, self-contained, and safe with any label."""

import html
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from report_factories import NASTY, bank_report, verifier_report
from sklearn.datasets import make_blobs

from pcsda import PCSDA
from pcsda.report import evaluate, page, write_page
from pcsda.report.evaluation import LABEL_VIEWS, PART, POINTS_PART
from pcsda.report.subspaces import subspace_sample
from pcsda.report.views import make_view


@pytest.fixture(scope="module")
def pages():
    return {"one": page.render(verifier_report()), "bank": page.render(bank_report())}


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def without_library(text):
    """Return the page without the drawing library, whose strings contain tags and addresses."""
    return re.sub(
        r'(<script type="text/plain" id="plotly">).*?</script>', "", text, flags=re.DOTALL
    )


@pytest.mark.parametrize("name", ["one", "bank"])
def test_a_page_is_complete_and_needs_no_network(pages, name):
    text = pages[name]
    assert len(text.encode()) < 6_000_000
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "{{" not in without_library(text)
    own = without_library(text)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", own)
    assert "http://" not in own
    assert "https://" not in own
    # The page tells the browser to fetch and send nothing.
    assert "Content-Security-Policy\" content=\"default-src 'none';" in own
    assert own.count("<script") == own.count("</script>") == 2


@pytest.mark.parametrize("name", ["one", "bank"])
def test_labels_are_never_read_as_tags(pages, name):
    own = without_library(pages[name])
    assert NASTY not in own
    assert "<script>alert" not in own
    assert html.escape(NASTY) in own
    data = data_of(pages[name])
    texts = [text for view in data["views"] for text in view["listed"]["truth"]]
    assert NASTY in texts


def test_the_page_holds_the_evaluations_data(pages):
    found = verifier_report()
    (view,) = data_of(pages["one"])["views"]
    assert view["positives"] == found.views[0].n_positive
    assert view["misses"] == found.views[0].misses.tolist()
    np.testing.assert_allclose(view["thresholds"], found.views[0].thresholds, rtol=1e-4)
    place = view["places"]["decision"]
    assert (view["misses"][place], view["alarms"][place]) == found.views[0].counts()
    shares = [sum(bars) for bars in view["bars"]]
    np.testing.assert_allclose(shares, 1, atol=1e-3)
    drawn = sum(len(kind["x"]) for kind in view["subspace"]["kinds"])
    assert drawn == len(found.truth)


def test_a_bank_lists_claims(pages):
    whole, *views = data_of(pages["bank"])["views"]
    listed = whole["listed"]
    for truth, claim, positive in zip(
        listed["truth"], listed["claim"], listed["positive"], strict=True
    ):
        assert (truth == claim) == positive
    for view in views:
        assert view["listed"]["claim"] is None
    assert whole["subspace"] is None


def test_many_other_labels_are_drawn_as_one():
    X, y = make_blobs(240, 4, centers=12, random_state=0)
    y = np.array([f"<b>{label}" for label in y])
    model = PCSDA(pos_label="<b>3", random_state=0).fit(X, y, subclass_labels=y)
    (view,) = data_of(page.render(evaluate(model, X, y, n_resamples=2)))["views"]
    found = view["subspace"]
    assert [kind["name"] for kind in found["kinds"]] == ["<b>3", "the rest"]
    assert [len(kind["x"]) for kind in found["kinds"]] == [20, 220]
    assert {centre["name"] for centre in found["centres"]} == set(model.subclass_names_)


def test_long_names_are_shortened():
    assert page.cut("x" * 40) == "x" * 40
    assert page.cut("x" * 41) == "x" * 39 + "…"


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "&", "a\\b\"c'"])
def test_json_is_safe_inside_a_page(text):
    inside = page.as_json({"a": text})
    assert not re.search("[<>&\u2028]", inside)
    assert json.loads(inside) == {"a": text}


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_page(verifier_report(), tmp_path / "r.html", title="<i>Mine</i>")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<title>&lt;i&gt;Mine&lt;/i&gt;</title>" in text

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_page(verifier_report(), tmp_path / "r.html")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == text


def test_without_plotly_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    page._plotly.cache_clear()
    with pytest.raises(ImportError, match=r'needs plotly, .* pip install "pcsda\[report\]"'):
        write_page(verifier_report(), tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more
def test_a_large_bank_with_long_names_stays_small():
    """Reach all limits at once, with names of the maximum length."""
    rng = np.random.default_rng(0)
    small = bank_report()
    long = [f"{i:04d}{'&' * 80}" for i in range(1200)]
    n_rows = 3000
    positive, llr = rng.random(n_rows) < 0.3, rng.normal(size=n_rows)
    names = np.array(long)[rng.integers(1200, size=n_rows)]
    views = [make_view("all", positive, llr, small.settings)]
    views += [make_view(long[i], positive, llr, small.settings, PART) for i in range(LABEL_VIEWS)]
    rows = subspace_sample(positive, 0, POINTS_PART)
    points = {"x": llr[rows], "y": llr[rows], "axes": ["a", "b"], "truth": names[rows],
              "id": names[rows], "positive": positive[rows], "centres": []}  # fmt: skip
    found = replace(
        small,
        names=long,
        views=views,
        subspaces=[None] + [points] * LABEL_VIEWS,
        by_label=[small.by_label[0] | {"label": name} for name in long],
        truth=names,
        ids=names,
    )
    text = page.render(found)
    assert len(text.encode()) < 6_000_000
    table = re.search(r'<table id="labels".*?<tbody>(.*?)</tbody>', text, re.DOTALL)[1]
    assert table.count("<tr>") == page.MOST_LABELS


@pytest.mark.parametrize("name", ["one", "bank"])
def test_every_figure_is_in_one_group_with_its_meaning(pages, name):
    found = {"one": verifier_report, "bank": bank_report}[name]()
    table = re.search(r'<table id="figures">(.*?)</table>', pages[name], re.DOTALL)[1]
    groups = re.findall(r'class="group">(.*?)</th>', table)
    assert groups == [g for g in page.GROUPS if g != "Identification" or name == "bank"]
    for figure in found.figures:
        assert table.count(f'<th scope="row">{html.escape(figure.name)}<span') == 1
        # Once in a column of its own, once below the name for narrow screens.
        assert table.count(f">{html.escape(figure.meaning)}<") >= 2


def test_reasons_are_never_read_as_tags(pages):
    listed = data_of(pages["one"])["views"][0]["listed"]
    assert listed["why"] == verifier_report().reasons
    assert any(NASTY in why for why in listed["why"])
