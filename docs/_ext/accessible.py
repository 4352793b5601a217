"""Make the written pages readable by screen readers, where Markdown cannot say it.

- The head of a table without any text is left out; a header without text (above the names of
  rows) becomes an ordinary cell; a header that is a formula also has it as text.
- A picture without a description that is a link is hidden: the title beside it is the same link.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

HEAD = re.compile(r"<thead>.*?</thead>\n?", re.DOTALL)
HEADER = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
MATH = re.compile(r"<math\b(.*?)</math>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
DECORATION = re.compile(r'<a (?=[^>]*>(?:<span\b[^>]*>)?<img alt=""[^>]*>(?:</span>)?</a>)')


def text(html: str) -> str:
    """Return the text of a piece of HTML."""
    return TAG.sub("", html).strip()


def header(found: re.Match[str]) -> str:
    """Return a header with text that is no formula, or an ordinary cell if it is empty."""
    if not text(found[0]):
        return "<td></td>"
    if text(MATH.sub("", found[0])):
        return found[0]
    aloud = f'<span class="visually-hidden">{text(found[0])}</span>'
    silent = found[0].replace("<math", '<math aria-hidden="true"')
    return silent.replace("</th>", f"{aloud}</th>")


def head(found: re.Match[str]) -> str:
    """Return the head of a table without empty headers."""
    return HEADER.sub(header, found[0]) if text(found[0]) else ""


def clean(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Rewrite a page before it is written."""
    if "body" in context:
        body = HEAD.sub(head, context["body"])
        context["body"] = DECORATION.sub('<a aria-hidden="true" tabindex="-1" ', body)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("html-page-context", clean)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
