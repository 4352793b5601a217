"""The built site: no link is broken, and it opens from a folder without a server or network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

pytestmark = pytest.mark.slow

EXTENSIONS = str(Path(__file__).parents[2] / "docs" / "_ext")
# one page of each kind
PAGES = ["index.html", "gallery/index.html", "gallery/plot_03_hyperspectral.html", "theory.html",
         "api/generated/lowtucker.recover.html", "architecture.html", "glossary.html"]  # fmt: skip


class Links(HTMLParser):
    """Collect the link targets and the anchors of a page."""

    def __init__(self):
        super().__init__()
        self.targets, self.anchors = [], {""}

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None:
                self.targets.append(value)
            elif name == "srcset":
                self.targets += [part.split()[0] for part in value.split(",")]


def links_of(page):
    parser = Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def broken(site):
    """Return every broken internal link, as "page: target"."""
    site = site.resolve()
    pages = {path: links_of(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 100
    found = []
    for path, links in pages.items():
        for target in links.targets:
            address = urlparse(target)
            if address.scheme or address.netloc:
                continue
            file = (path.parent / unquote(address.path)).resolve() if address.path else path
            missing = not file.exists()
            if not missing and file in pages and address.fragment:
                missing = unquote(address.fragment) not in pages[file].anchors
            if missing:
                found.append(f"{path.relative_to(site)}: {target}")
    return found


def test_no_internal_link_is_broken(site):
    assert broken(site) == []


def test_a_broken_link_is_detected(tmp_path):
    """The check above detects a wrong anchor and names the page."""
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#not">y</a>')
    (tmp_path / "b.html").write_text('<p id="there">')
    for k in range(100):
        (tmp_path / f"{k}.html").write_text("")
    assert broken(tmp_path) == ["a.html: b.html#not"]


def test_no_external_resource_is_loaded(site):
    """Scripts, styles, fonts and images are files of the site; ordinary links may be external."""
    fetched = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\ssrc="(?:https?:)?//|"""
        r"""<link\b(?![^>]*rel="(?:canonical|author|license)")[^>]*\shref="(?:https?:)?//"""
    )
    assert [path.name for path in site.rglob("*.html") if fetched.search(path.read_text())] == []
    imported = re.compile(r"""@import\s+["']?https?:|url\(\s*["']?(?:https?:)?//""")
    assert [path.name for path in site.rglob("*.css") if imported.search(path.read_text())] == []


def test_external_urls_are_well_formed(site):
    """External URLs are not requested, since there is no network access."""
    for path in site.rglob("*.html"):
        for target in links_of(path).targets:
            address = urlparse(target)
            if address.scheme in ("http", "https"):
                assert re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", address.netloc), (path, target)
            else:
                assert address.scheme in ("", "data", "mailto"), (path, target)


@pytest.fixture
def opened(site, browser):
    """Open a page of the site by file://, and record its requests, errors and warnings."""
    contexts = []

    def open_page(name, width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.requests, page.problems = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on(
            "console",
            lambda line: line.type in ("error", "warning") and page.problems.append(line.text),
        )
        page.goto(f"file://{site}/{name}")
        page.wait_for_load_state("load")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_page_opens_from_a_folder_without_requests_or_errors(opened, name, width, scheme):
    page = opened(name, width, scheme)
    assert page.problems == []
    assert page.requests
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert page.locator("html").get_attribute("data-theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width, (
        "the page scrolls horizontally"
    )
    pictures = "Array.from(document.images).filter(i => i.complete && !i.naturalWidth).length"
    assert page.evaluate(pictures) == 0


def test_formulae_are_rendered_without_scripts(opened):
    page = opened("theory.html")
    assert page.locator("math").count() > 100
    assert page.locator("mjx-container, .MathJax").count() == 0
    heights = page.evaluate(
        "Array.from(document.querySelectorAll('div.math > math'))"
        ".map(m => [m.getBoundingClientRect().height, m.querySelector('mfrac') !== null])"
    )
    assert heights
    assert all(height > 12 for height, _ in heights)
    assert min(height for height, fraction in heights if fraction) > 25  # two lines, not one


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["theory.html", "paper.html"])
def test_long_formulae_are_scrollable_and_not_cut(opened, name, width):
    page = opened(name, width)
    cut = page.evaluate(
        """Array.from(document.querySelectorAll('div.math')).filter(box => {
             const edge = box.getBoundingClientRect(), parts = box.querySelectorAll('math *');
             const left = Math.min(...Array.from(parts).map(p => p.getBoundingClientRect().left));
             const right = Math.max(...Array.from(parts).map(p => p.getBoundingClientRect().right));
             return left < edge.left - 1 || right > edge.left + box.scrollWidth + 1;
           }).map(box => box.textContent)"""
    )
    assert cut == []


def test_search_works_from_a_folder(opened):
    page = opened("search.html?q=hosvd")
    results = page.locator("#search-results li")
    results.first.wait_for(timeout=20000)
    assert "lowtucker.hosvd.html" in "".join(
        link.get_attribute("href") or "" for link in results.locator("a").all()
    )
    assert [url for url in page.requests if not url.startswith("file:")] == []


def test_invalid_formulae_and_broken_links_fail_the_build(build, tmp_path):
    (tmp_path / "conf.py").write_text(
        f"import sys; sys.path.insert(0, {EXTENSIONS!r})\n"
        "extensions = ['myst_parser', 'mathml']\nmyst_enable_extensions = ['dollarmath']\n"
        "html_math_renderer = 'mathml'\n"
    )
    for text, reason in (
        ("$\\nosuchthing x$", "unknown command"),
        ("[there](nowhere.md)", "nowhere.md"),
        ("$x$", None),
    ):
        (tmp_path / "index.md").write_text(f"# Title\n\n{text}\n")
        built = build(tmp_path, tmp_path / "html", "-E", "-q")
        assert (built.returncode == 0) == (reason is None), built.stderr
        assert reason is None or reason in built.stderr


def test_equation_numbers_are_kept(build, tmp_path):
    (tmp_path / "conf.py").write_text(
        f"import sys; sys.path.insert(0, {EXTENSIONS!r})\n"
        "extensions = ['mathml']\nhtml_math_renderer = 'mathml'\n"
    )
    (tmp_path / "index.rst").write_text(
        "Title\n=====\n\n.. math:: a = b\n   :label: first\n\nSee :eq:`first`.\n"
    )
    built = build(tmp_path, tmp_path / "html", "-q")
    assert built.returncode == 0, built.stderr
    html = (tmp_path / "html" / "index.html").read_text()
    assert re.search(r'<span class="eqno">\(1\)', html)
    assert re.search(r'href="#equation-first">\(1\)', html)
