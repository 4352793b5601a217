"""The sources of the site: nothing public is missing, nothing points nowhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from urllib.parse import urlparse
from xml.etree import ElementTree

import pytest

import lowtucker
from test_layers import LEVELS

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("api/*.md")])
READ_ON_GITHUB = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *PAGES]
MODULES = {
    "lowtucker.io": "io", "lowtucker.theory": "theory", "lowtucker.metrics": "metrics",
    "lowtucker.estimators": "estimators",
}  # fmt: skip
LINK = re.compile(r"\]\(([^()\s]+)\)")


def extension(name):
    """One of the site's own Sphinx extensions."""
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(text):
    """Names in the autosummary lists of a page."""
    found = []
    for block in re.findall(r"\.\. autosummary::\n(.*?)```", text, re.DOTALL):
        found += re.findall(r"^   ([A-Za-z_.]+)$", block, re.MULTILINE)
    return found


def prose(page):
    """Text of a page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def test_every_public_name_is_on_one_page_of_the_api():
    pages = ("recover", "operators", "tensors", "solvers", "running")
    names = [name for page in pages for name in listed((DOCS / f"api/{page}.md").read_text())]
    expected = set(lowtucker.__all__) - {"__version__", "io", "theory", "metrics"}
    assert sorted(names) == sorted(expected)


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_public_module_is_on_its_page(module):
    if module == "lowtucker.estimators":
        pytest.importorskip("sklearn")
    names = listed((DOCS / f"api/{MODULES[module]}.md").read_text())
    expected = {name for name in importlib.import_module(module).__all__ if not name.isupper()}
    assert sorted(names) == sorted(expected)


def test_every_page_is_in_a_table_of_contents():
    entries = {"index"}
    for page in PAGES:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            names = [line for line in block.split() if not line.startswith(":")]
            folder = page.relative_to(DOCS).parent
            entries |= {(folder / name).as_posix() for name in names}
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES}
    assert entries - pages == {"gallery/index"}  # which the examples make
    assert pages <= entries


@pytest.mark.parametrize("page", READ_ON_GITHUB, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there_or_have_the_form_of_an_address(page):
    scripts = {path.stem for path in (REPOSITORY / "examples/gallery").glob("*.py")} | {"index"}
    for target in LINK.findall(prose(page)):
        address = urlparse(target)
        if address.scheme:
            assert address.scheme in ("http", "https")
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", address.netloc), target
        elif address.path.startswith("gallery/images/"):
            continue  # made by the build, which complains where one is missing
        elif address.path.startswith("gallery/"):
            assert address.path.removeprefix("gallery/") in scripts, target
        elif address.path:
            assert (page.parent / address.path).exists(), target


def test_the_picture_of_the_layers_has_those_that_the_code_is_held_to():
    drawn = ElementTree.parse(DOCS / "images" / "layers.svg").getroot()
    words = {element.text for element in drawn.iter() if element.tag.endswith("}text")}
    assert {part for level in LEVELS for part in level} <= words


def test_exit_codes_on_the_page_of_the_commands_are_those_that_they_name():
    from lowtucker.cli import main

    text = " ".join(main.get_command(None, "recover").help.split())
    for said in ("Exit code 0 when", "3 when not", "2 for bad input", "130 when interrupted"):
        assert said in text


@pytest.mark.parametrize(
    ("latex", "part"),
    [
        (r"\frac{a}{b}", "<mfrac>"),
        (r"\arg\min_X F(X)", "arg"),
        (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "<mtr>"),
        (r"a &= b \\ c &= d", "<mtr>"),
        (r"a \iff b", "<mo>&#x027FA;</mo>"),
    ],
)
def test_formulae_become_mathml(latex, part):
    assert part in extension("mathml").to_mathml(latex, True)


@pytest.mark.parametrize(
    ("latex", "reason"),
    [
        (r"\nosuchthing x", r"unknown command \\nosuchthing"),
        (r"\frac{a", "are its braces balanced"),
        (r"a & b", "not well-formed"),
    ],
)
def test_formulae_that_cannot_be_shown_are_refused(latex, reason):
    with pytest.raises(ValueError, match=reason):
        extension("mathml").to_mathml(latex, False)


def test_stars_of_shapes_are_escaped_and_those_of_code_are_not():
    lines = ["array, shape (*batch, m)", "see ``f(*args)``", ">>> f(*args)", ":math:`D(*x)`"]
    extension("docstrings").escape_stars(None, "", "", None, None, lines)
    assert lines == [r"array, shape (\*batch, m)", *lines[1:]]
    assert lines[1:] == ["see ``f(*args)``", ">>> f(*args)", ":math:`D(*x)`"]
