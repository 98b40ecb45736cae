"""Documentation links in scikit-learn's HTML view of estimators."""

import re
from pathlib import Path

import pytest
from sklearn.utils import estimator_html_repr

import pcsda
from pcsda import normalization

DOCS = Path(__file__).parent.parent / "docs"
KINDS = [
    *(pcsda.PCSDA, pcsda.CSDA, pcsda.KernelPCSDA, pcsda.KernelCSDA, pcsda.MultilinearCSDA),
    *(pcsda.PCSDACV, pcsda.VerifierBank, pcsda.MixtureVerifier),
    *(pcsda.ExactKernelMap, pcsda.NystroemMap, pcsda.FourierMap),
    *(normalization.ZNorm, normalization.TNorm, normalization.SNorm, normalization.AdaptiveSNorm),
]


def links(kind):
    return re.findall(r'href="([^"#]*)', estimator_html_repr(kind()))


@pytest.mark.parametrize("kind", KINDS)
def test_estimators_link_to_the_documentation_where_it_has_an_address(kind, monkeypatch):
    monkeypatch.delenv("PCSDA_DOCS", raising=False)
    assert links(kind) == []
    monkeypatch.setenv("PCSDA_DOCS", "file:///srv/{docs}/")
    room = "normalization." if kind.__module__.endswith("normalization") else ""
    page = f"generated/api/pcsda.{room}{kind.__name__}.html"
    assert set(links(kind)) == {f"file:///srv/{{docs}}/{page}"}
    # The reference lists the name in the room that the address has, so the page is there.
    pages = sorted((DOCS / "api").glob("*.md"))
    reference = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    rooms = re.split(r"currentmodule:: ", reference)[1:]
    listed = [part for part in rooms if re.search(rf"^   {kind.__name__}$", part, re.MULTILINE)]
    assert len(listed) == 1
    assert listed[0].split()[0] == f"pcsda{'.' + room[:-1] if room else ''}"
