"""Formulas as MathML, which browsers draw by themselves: no script, no web font, no network.

docutils converts LaTeX; here its trees are repaired where browsers would misplace a sign, and
`\\tag{...}` gives a displayed formula its number in the paper.
"""

from __future__ import annotations

import re
from html import escape
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

ACCENTS = {"~", "ˉ", "^", "˜", "ˆ", "¯"}
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
TAG = re.compile(r"\\tag\{([^{}]*)\}")


def to_mathml(tex: str, block: bool) -> str:
    """One formula, without a number."""
    try:
        text = tex2mathml(tex.strip(), as_block=block)
    except MathError as error:
        raise ExtensionError(f"{error} in the formula {tex.strip()!r}") from error
    ElementTree.register_namespace("", NAMESPACE)
    root = ElementTree.fromstring(text.replace("&ApplyFunction;", "\u2061"))
    _accents(root)
    return ElementTree.tostring(root, encoding="unicode")


def _accents(parent: ElementTree.Element) -> None:
    """Put subscripts of a letter with an accent beside it: docutils puts them below."""
    for child in parent:
        _accents(child)
        if _name(child) == "munderover" and (child[2].text or "") in ACCENTS:
            base, below, accent = list(child)
            child.clear()
            child.tag = f"{{{NAMESPACE}}}msub"
            over = ElementTree.SubElement(child, f"{{{NAMESPACE}}}mover", accent="true")
            over.extend([base, accent])
            child.append(below)


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def visit_inline(self, node: nodes.math) -> None:
    self.body.append(to_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_display(self, node: nodes.math_block) -> None:
    tex = node.astext()
    numbers = TAG.findall(tex)
    number = ", ".join(f"({escape(number)})" for number in numbers)
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(f"<div>{to_mathml(TAG.sub('', tex), block=True)}</div>")
    if number:
        self.body.append(f'<span class="number">{number}</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
