"""The built site in two browsers: axe finds nothing, nothing is clipped, no mouse is needed."""

from __future__ import annotations

import pytest

from browsers import clipped, violations

pytestmark = pytest.mark.slow

# one page of each kind; Chromium opens all pages
KINDS = ["index.html", "solvers.html", "theory.html", "search.html", "gallery/index.html",
         "gallery/plot_04_holes.html", "api/generated/lowtucker.recover.html"]  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_and_no_table_is_clipped(site, browsers, width, scheme):
    """Axe examines all pages but those of the gallery and the API, which are made by templates."""
    main = [*sorted(path.name for path in site.glob("*.html")), *KINDS]
    rest = {
        f"{path.parent.name}/{path.name}"
        for path in [*site.glob("api/*.html"), *site.glob("gallery/*.html")]
    }
    assert min(len(main), len(rest)) > 20
    found = {}
    with browsers.page("chromium", scheme, width, offline=True) as page:
        for name in dict.fromkeys([*main, *sorted(rest)]):
            page.goto((site / name).as_uri())
            problems = clipped(page) + (violations(page) if name in main else [])
            if problems:
                found[name] = problems
        assert page.problems == []
    assert found == {}


@pytest.mark.parametrize("name", KINDS)
def test_page_in_firefox(site, browsers, name):
    for width, scheme in ((1280, "dark"), (390, "light")):
        with browsers.page("firefox", scheme, width) as page:
            page.goto((site / name).as_uri())
            assert page.locator("html").get_attribute("data-theme") == scheme
            assert violations(page) + clipped(page) == []
            assert page.problems == []


def test_clipped_tables_are_detected(browsers):
    row = "<tr><td>entries</td><td style='min-width: 500px'>wide</td></tr>"
    with browsers.page("chromium", width=390) as page:
        page.set_content(f"<div style='overflow: auto'><table>{row}</table></div>")
        assert clipped(page) == ["table: entrieswide"]
        page.set_content(f"<table>{row}</table>")
        assert [line.split(":")[0] for line in clipped(page)] == ["page", "table"]
        page.set_content("<div style='overflow: auto'><table><tr><td>entries</table></div>")
        assert clipped(page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_wide_tables_become_blocks_that_name_their_columns(site, browsers, width):
    with browsers.page("chromium", width=width, offline=True) as page:
        page.goto((site / "measurements.html").as_uri())
        table = page.get_by_role("table").first
        cell = table.get_by_role("cell").nth(1)
        stacked = cell.evaluate("cell => getComputedStyle(cell, '::before').content !== 'none'")
        assert stacked == (width == 390)
        assert table.get_by_role("row").count() > 5  # a table still, for screen readers
        page.set_viewport_size({"width": 1280, "height": 900})
        page.wait_for_function("!document.querySelector('table.stacked')")


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_keyboard_skips_the_navigation_and_searches(site, browsers, name):
    with browsers.page(name) as page:
        page.goto((site / "solvers.html").as_uri())
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent.trim()") == "Skip to main content"
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main-content"
        page.keyboard.press("Control+k")
        page.get_by_role("searchbox").first.wait_for()
        page.keyboard.type("hosvd")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=hosvd*")
        page.locator("#search-results li").first.wait_for(timeout=20_000)
