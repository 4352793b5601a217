r"""Docstrings as reST: escape the star of shapes such as ``(*batch, m)``, which is not emphasis.

``help(lowtucker.hosvd)`` shows raw docstrings, so the backslash is added only for the site.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# literals and code are not changed
STAR = re.compile(r"(``.*?``|:math:`.*?`|^\s*(?:>>>|\.\.\. ).*)|(?<=\()\*(?=\w)")


def escape_stars(_app: Any, _what: str, _name: str, _obj: Any, _opt: Any, lines: list[str]) -> None:
    """Escape a star at the beginning of a shape."""
    lines[:] = [STAR.sub(lambda found: found[1] or r"\*", line) for line in lines]


def skip_routing(
    _app: Any, _what: str, name: str, _obj: Any, _skip: bool, _opt: Any
) -> bool | None:
    """Skip the methods that scikit-learn adds to every estimator, which refer to its own site."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before numpydoc, whose priority is 500."""
    app.connect("autodoc-process-docstring", escape_stars, priority=400)
    app.connect("autodoc-skip-member", skip_routing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
