"""Convert formulae to MathML when the site is built: no scripts, fonts or requests are needed.

A formula that cannot be converted gives a warning, which ``make docs`` treats as an error.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

LOGGER = logging.getLogger(__name__)
# The converter outputs an unknown command as its own name
UNKNOWN = re.compile(r"\\[a-zA-Z]+")
TAG = re.compile(r"<[^>]*>")
# Commands that the converter lacks, and their replacements
MACROS = {
    r"\arg\min": r"\text{arg}\min",
    r"\begin{aligned}": r"\begin{split}",
    r"\end{aligned}": r"\end{split}",
}
# Arrows that the converter treats as variables, without space around them
ARROW = re.compile(r"<mi>(&#x0(?:219|21D|27F).;)</mi>")
# Bars of norms: an opening bar would be stretched, and a closing bar with an index would not
BAR = re.compile(r"<mo(?: stretchy=\"\w+\")?>(&#x0(?:2016|2225|007C);|\|)</mo>")
# Elements with a fixed number of parts; fewer indicate an unbalanced brace
PARTS = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2,
         "msubsup": 3, "munderover": 3}  # fmt: skip


@cache
def to_mathml(latex: str, display: bool) -> str:
    """Return the MathML of a formula.

    Raises
    ------
    ValueError
        If the converter fails, leaves a command unconverted, or drops a part of the formula.
    """
    for command, instead in MACROS.items():
        latex = latex.replace(command, instead)
    if display and "\\\\" in latex and r"\begin" not in latex:  # as Sphinx does for other renderers
        latex = rf"\begin{{split}}{latex}\end{{split}}"
    try:
        made = convert(latex, display="block" if display else "inline")
        made = ARROW.sub(r"<mo>\1</mo>", made)
        made = BAR.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', made)
        elements = list(ElementTree.fromstring(made).iter())
    except Exception as error:  # the converter raises many types, all caused by the formula
        raise ValueError(f"{type(error).__name__} {error}".strip()) from error
    left = UNKNOWN.findall(TAG.sub(" ", made))
    if left:
        raise ValueError(f"unknown command {', '.join(sorted(set(left)))}")
    for element in elements:
        name = element.tag.rpartition("}")[2]
        if len(element) != PARTS.get(name, len(element)):
            raise ValueError(f"{name} with {len(element)} parts; are its braces balanced?")
    return made


def _converted(node: nodes.Element, display: bool) -> str:
    latex = node.astext()
    try:
        return to_mathml(latex, display)
    except ValueError as error:
        LOGGER.warning("formula %r has no MathML: %s", latex, error, location=node)
        return f"<code>{latex}</code>"


def visit_math(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(f'<span class="math">{_converted(node, display=False)}</span>')
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number if it has one."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(_converted(node, display=True))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
