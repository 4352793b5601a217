"""The playground by keyboard alone, examined by axe, in Chromium and Firefox."""

from __future__ import annotations

import re
from contextlib import contextmanager

import pytest

from browsers import violations

pytestmark = pytest.mark.slow

# browser, colour scheme, width in pixels
VIEWS = [("chromium", "light", 1280), ("chromium", "dark", 390),
         ("firefox", "light", 390), ("firefox", "dark", 1280)]  # fmt: skip
# small settings of the tabs, by the id of the panel
SMALL = {
    "synthetic": "shape=10%2C10%2C6&rank=2%2C2%2C2&ratio=5",
    "phase": "shape=6%2C6%2C6&largest=2&columns=3&most=4&trials=2",
}
TABS = ["picture", "synthetic", "data", "phase"]
# an outline or a shadow, of the focused element or of the label that stands for it
FOCUS_IS_VISIBLE = """() => {
    const focused = document.activeElement;
    return [focused, focused.closest("label")].filter(Boolean).some((element) => {
        const style = getComputedStyle(element);
        return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
            || style.boxShadow !== "none";
    });
}"""
FOCUSED = """() => {
    const e = document.activeElement;
    return `${e.tagName} ${e.id} ${e.ariaLabel ?? ""} ${e.textContent.trim().slice(0, 40)}`;
}"""


@contextmanager
def opened(browsers, server, name, scheme="light", width=1280, query=""):
    """Playground that is ready, and that logged nothing at the end."""
    with browsers.page(name, scheme, width) as page:
        page.goto(f"{server.url}?{query}")
        page.wait_for_selector("html[data-ready=true]")
        yield page
        # the browser itself logs the answer to settings that are refused
        assert [line for line in page.problems if "status of 422" not in line] == []


def panel(page):
    """The panel of the tab that is open."""
    return page.get_by_role("tabpanel")


def run_button(page):
    return panel(page).get_by_role("button", name="Run", exact=True)


def verdict(page):
    """Wait for the end of a run; return its verdict."""
    panel(page).locator(".run[data-running=false]").wait_for(timeout=90_000)
    answer = panel(page).get_by_role("status", name="Answer")
    answer.locator(".badge").first.wait_for()
    return answer.inner_text()


def run(page):
    """Run the open tab with its settings, on the example where it asks for a file."""
    if not run_button(page).is_visible():
        panel(page).get_by_role("button", name=re.compile("flame|example", re.I)).first.click()
        run_button(page).wait_for()
    run_button(page).click()
    return verdict(page)


def tab_to(page, wanted, most=150):
    """Press Tab until an element has the focus; every element on the way shows its focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS_IS_VISIBLE), page.evaluate(FOCUSED)
        if wanted.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"{wanted} cannot be reached by the Tab key")


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(("name", "scheme", "width"), VIEWS)
def test_axe_finds_nothing_before_and_after_a_run(browsers, server, name, scheme, width, tab):
    query = f"tab={tab}&{SMALL.get(tab, '')}"
    with opened(browsers, server, name, scheme, width, query) as page:
        selected = page.get_by_role("tab", selected=True)
        assert selected.get_attribute("aria-controls") == tab
        assert violations(page) == []
        assert run(page)
        for summary in panel(page).locator("summary:visible").all():
            summary.click()
        assert violations(page) == []


def test_the_tests_cover_every_tab(browsers, server):
    with opened(browsers, server, "chromium") as page:
        tabs = page.get_by_role("tab").all()
        assert sorted(t.get_attribute("aria-controls") for t in tabs) == sorted(TABS)


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_axe_finds_nothing_in_the_dialog_and_in_an_error(browsers, server, name):
    with opened(browsers, server, name, query=f"tab=synthetic&{SMALL['synthetic']}") as page:
        page.get_by_role("button", name=re.compile("code")).first.click()
        page.get_by_role("dialog").wait_for()
        assert violations(page) == []
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")
        panel(page).get_by_label("Step", exact=True).fill("-1")
        page.get_by_role("alert").first.wait_for()
        assert violations(page) == []


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_the_main_job_needs_no_mouse(browsers, server, name):
    with opened(browsers, server, name, query=f"tab=synthetic&{SMALL['synthetic']}") as page:
        tab_to(page, run_button(page))
        page.keyboard.press("Enter")
        assert verdict(page)


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_tabs_and_sliders_obey_the_arrow_keys(browsers, server, name):
    with opened(browsers, server, name, query=f"tab=synthetic&{SMALL['synthetic']}") as page:
        tab_to(page, page.get_by_role("tab", selected=True))
        for expected in [*TABS[2:], *TABS[:2]]:
            page.keyboard.press("ArrowRight")
            selected = page.get_by_role("tab", selected=True)
            assert selected.get_attribute("aria-controls") == expected
            assert selected.evaluate("element => element === document.activeElement")
            assert page.evaluate(FOCUS_IS_VISIBLE)
        slider = panel(page).get_by_role("slider").first
        tab_to(page, slider)
        before = int(slider.input_value())
        page.keyboard.press("ArrowRight")
        assert int(slider.input_value()) == before + 1


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_the_dialog_takes_the_focus_and_gives_it_back(browsers, server, name):
    with opened(browsers, server, name, query=f"tab=synthetic&{SMALL['synthetic']}") as page:
        button = page.get_by_role("button", name=re.compile("code")).first
        tab_to(page, button)
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        assert dialog.evaluate("element => element.contains(document.activeElement)")
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        assert button.evaluate("element => element === document.activeElement")


def test_the_default_runs_in_firefox(browsers, server):
    with opened(browsers, server, "firefox") as page:
        urls = []
        page.on("request", lambda request: urls.append(request.url))
        assert run(page)
        assert urls
        assert [url for url in urls if not url.startswith((server.url, "data:", "blob:"))] == []


def test_axe_is_not_blind(browsers, server):
    """The checks above find an image without a name, a control without a label, pale text."""
    with opened(browsers, server, "firefox") as page:
        panel(page).evaluate("""element => {
            element.insertAdjacentHTML("afterbegin", "<img src='/static/icon.svg'><input><p>pale");
            Object.assign(element.querySelector("p").style, { color: "#ccc", background: "#fff" });
        }""")
        found = {line.split(":")[0] for line in violations(page)}
        assert found >= {"image-alt", "label", "color-contrast"}
