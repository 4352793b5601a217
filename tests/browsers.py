"""Debian's Chromium and Firefox behind one interface, and axe in their pages.

Playwright drives Firefox by WebDriver BiDi, so no patched Firefox is needed. Firefox learns the
colour scheme from a preference at its start, since the protocol of this version has no command
for it: a scheme is therefore a browser of its own.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
PACKAGES = {"chromium": "chromium", "firefox": "firefox-esr"}
SCHEMES = ("light", "dark")


@dataclass
class Browsers:
    """Browsers of a session: each is started when it is first asked for."""

    driver: Any
    started: dict[tuple[str, str], Any] = field(default_factory=dict)

    def __call__(self, name: str, scheme: str = "light") -> Any:
        """Browser by name, for pages in a colour scheme."""
        key = (name, scheme if name == "firefox" else "")
        if key not in self.started:
            self.started[key] = self._start(name, scheme)
        return self.started[key]

    def _start(self, name: str, scheme: str) -> Any:
        path = shutil.which(PACKAGES[name])
        if path is None:
            pytest.skip(f"no {name} here; on Debian: apt-get install {PACKAGES[name]}")
        if name == "chromium":
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            return self.driver.chromium.launch(executable_path=path, args=arguments)
        override = {"layout.css.prefers-color-scheme.content-override": SCHEMES[::-1].index(scheme)}
        return self.driver.firefox.launch(
            executable_path=path, channel="moz-firefox", firefox_user_prefs=override
        )

    @contextmanager
    def page(self, name: str, scheme: str = "light", width: int = 1280, **options: Any) -> Any:
        """Empty page in a window of its own; ``page.problems`` has errors and warnings."""
        window = self(name, scheme).new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        page = window.new_page()
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on(
            "console",
            lambda line: line.type in ("error", "warning") and page.problems.append(line.text),
        )
        try:
            yield page
        finally:
            window.close()

    def close(self) -> None:
        for browser in self.started.values():
            browser.close()


def violations(page: Any, within: str = "html") -> list[str]:
    """What axe objects to in a page, by rule and element; hidden elements are not examined."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))  # not a script tag: the page may forbid it
    return page.evaluate(
        """async (within) => {
            // colours are judged when they have arrived
            await Promise.allSettled(document.getAnimations().map((one) => one.finished));
            const found = await axe.run(within, { resultTypes: ["violations"], preload: false });
            return found.violations.flatMap((rule) => rule.nodes.map((node) =>
                `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary}`));
        }""",
        within,
    )


def clipped(page: Any) -> list[str]:
    """What does not fit into the width of a page: the page itself, or a table in its frame."""
    return page.evaluate("""() => {
        const root = document.documentElement, found = [];
        if (root.scrollWidth > root.clientWidth) found.push(`page: ${root.scrollWidth} pixels`);
        for (const table of document.querySelectorAll("table")) {
            if (!table.checkVisibility()) continue;
            let frame = table.parentElement;
            while (frame !== root && getComputedStyle(frame).overflowX === "visible")
                frame = frame.parentElement;
            const right = frame.getBoundingClientRect().left + frame.clientWidth;
            const excess = table.getBoundingClientRect().right - right;
            if (excess > 1 || table.scrollWidth > table.clientWidth + 1)
                found.push(`table: ${table.textContent.trim().slice(0, 60)}`);
        }
        return found;
    }""")
