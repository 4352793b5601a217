"""Pictures of all that users see: the documentation, the playground, reports, a notebook's result.

    make docs
    python tools/screenshots.py OUT            # all: some minutes
    python tools/screenshots.py OUT --only app # or site, reports, notebook
    python tools/screenshots.py OUT --only app --docs # also replaces docs/images/app.png

Every page is taken light, dark and as on a phone, in Chromium, and the playground also in Firefox.
What does not fit into the width of a page, what axe objects to, and errors of scripts are printed,
and make the command fail. Look at the pictures all the same: a machine does not see that a picture
is empty or that colours are alike.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import sync_playwright

from browsers import Browsers, clipped, violations

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "app.png"
SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
# name, colour scheme, width in pixels
VIEWS = [("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)]
GALLERY = ["index", "plot_01_first_recovery", "plot_04_holes", "plot_10_from_matlab"]
API = ["index", "recover", "operators", "generated/lowtucker.recover",
       "generated/lowtucker.Result"]  # fmt: skip
SECONDS = 120

Page = Any
# A name, an address, and what is done before the picture is taken
Shot = tuple[str, str, Callable[[Page], None]]


def nothing(page: Page) -> None:
    """Take the page as it is."""


def site() -> Iterator[Shot]:
    """Return the pages of the documentation, of which ``make docs`` was called."""
    if not (SITE / "index.html").exists():
        raise SystemExit(f"no site in {SITE}; call `make docs` first, or give --only")
    names = [path.stem for path in sorted(SITE.glob("*.html")) if path.stem != "genindex"]
    names += [f"gallery/{name}" for name in GALLERY] + [f"api/{name}" for name in API]
    for name in names:
        path = SITE / f"{name}.html"
        if path.exists():
            yield f"site/{name.replace('/', '-')}", path.as_uri(), nothing


def ready(page: Page) -> None:
    """Wait for a tab of the playground, and for its pictures."""
    page.wait_for_selector("html[data-ready=true]")
    if page.locator("#picture").is_visible():
        page.wait_for_selector("#picture [data-part=why]", timeout=1000 * SECONDS)


def run(page: Page) -> None:
    """Run a tab of the playground with its settings, on its example where it wants a file."""
    ready(page)
    panel = page.get_by_role("tabpanel")
    button = panel.get_by_role("button", name="Run", exact=True)
    if not button.is_visible():
        panel.locator("[data-part=example]").click()
        button.wait_for()
    button.click()
    panel.locator(".run[data-running=false]").wait_for(timeout=1000 * SECONDS)


def playground(url: str) -> Iterator[Shot]:
    """Return the tabs of the playground, before and after a run."""
    for tab in ("picture", "synthetic", "data", "phase"):
        yield f"app/{tab}-before", f"{url}?tab={tab}", ready
        yield f"app/{tab}-after", f"{url}?tab={tab}", run
    yield "app/picture-fails", f"{url}?tab=picture&missing=95&scratches=0", run


def reports(folder: Path) -> Iterator[Shot]:
    """Return a small report of ``reproduce``, and one of ``video``."""
    from lowtucker.lab.experiments.clip import Clip
    from lowtucker.lab.experiments.flame import synthetic_flame
    from lowtucker.lab.experiments.reproduce import Reproduction
    from lowtucker.lab.experiments.video import VideoRecovery
    from small_paper import small_paper

    figures = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "shrinkage", "tuned")
    reproduction = Reproduction(figures, folder / "reproduce", trials=2, paper=small_paper())
    reproduction.run(reproduction.pending())
    yield "reports/reproduce", (folder / "reproduce" / "report.html").as_uri(), nothing
    (folder / "video").mkdir()
    video = VideoRecovery(Clip(synthetic_flame((30, 30, 8)), "flame", False), (6, 6, 2), 3000)
    video.write(folder / "video", video.run())
    yield "reports/video", (folder / "video" / "report.html").as_uri(), nothing


def notebook(folder: Path) -> Iterator[Shot]:
    """Return what a notebook shows of a result: of a success, and of a failure."""
    import lowtucker as lt

    X = lt.random_tucker((20, 20, 10), (3, 3, 2), seed=0)
    for name, m in (("success", 1500), ("failure", 150)):
        A = lt.gaussian(X.shape, m, seed=1)
        result = lt.recover(A, A.forward(X), rank=(3, 3, 2), seed=2, max_epochs=30)
        path = folder / f"{name}.html"
        head = "<!doctype html><html lang=en><meta charset=utf-8><title>A result</title>"
        style = "<style>:root{color-scheme:light dark}body{font-family:sans-serif}</style>"
        path.write_text(f"{head}{style}<main><h1>A result</h1>{result._repr_html_()}</main>")
        yield f"notebook/{name}", path.as_uri(), nothing


def take(page: Page, shot: Shot, file: Path) -> list[str]:
    """Take a picture; return what is wrong with the page."""
    _, url, act = shot
    page.problems.clear()
    page.goto(url)
    act(page)
    found = clipped(page) + violations(page) + page.problems  # before Playwright adds a style
    file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=file, full_page=True)
    return found


def take_all(browsers: Browsers, name: str, shots: list[Shot], out: Path) -> int:
    """Take every shot in every view with a browser; return the number of defects."""
    defects = 0
    for view, scheme, width in VIEWS:
        with browsers.page(name, scheme, width) as page:
            for shot in shots:
                file = out / f"{shot[0]}-{view}{'' if name == 'chromium' else '-' + name}.png"
                found = take(page, shot, file)
                defects += len(found)
                for line in found:
                    print(f"{file.relative_to(out)}: {line}", flush=True)
    return defects


def picture_for_docs(browsers: Browsers, url: str) -> None:
    """Replace the picture of the playground in the documentation: the photograph, filled in."""
    with browsers.page("chromium", "light", 1280) as page:
        page.set_viewport_size({"width": 1280, "height": 880})
        page.goto(f"{url}?tab=picture")
        run(page)
        page.screenshot(path=IMAGE)


def main() -> int:
    """Take the pictures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the pictures")
    parser.add_argument("--only", choices=["site", "app", "reports", "notebook"])
    parser.add_argument("--docs", action="store_true", help="replace docs/images/app.png")
    asked = parser.parse_args()
    wanted = {asked.only} if asked.only else {"site", "app", "reports", "notebook"}
    defects = 0
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        browsers, folder = Browsers(driver), Path(made)
        shots = list(site()) if "site" in wanted else []
        shots += list(reports(folder)) if "reports" in wanted else []
        shots += list(notebook(folder)) if "notebook" in wanted else []
        defects += take_all(browsers, "chromium", shots, asked.out)
        if "app" in wanted:
            from app.served import playground as served

            with served() as server:
                if asked.docs:
                    picture_for_docs(browsers, server.url)
                for name in ("chromium", "firefox"):
                    defects += take_all(browsers, name, list(playground(server.url)), asked.out)
        browsers.close()
    print(f"{sum(1 for _ in asked.out.rglob('*.png'))} pictures in {asked.out}, {defects} defects")
    return int(defects > 0)


if __name__ == "__main__":
    raise SystemExit(main())
