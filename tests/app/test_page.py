"""The page in a browser. Screenshots are saved in out/app."""

from __future__ import annotations

import base64
import io
import re
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image

import lowtucker as lt
from app.hostile import FILES, content
from app.served import ended as process_ended
from app.served import eventually
from lowtucker.datasets import flame
from lowtucker.lab.app.photo import photo
from lowtucker.lab.video import save_gif

pytestmark = pytest.mark.slow

PICTURES = Path(__file__).parents[2] / "out" / "app"
QUICK = "tab=synthetic&shape=10%2C10%2C6&rank=2%2C2%2C2&ratio=5&solvers=tiht%2Cauto"
TIMES = "\N{MULTIPLICATION SIGN}"
SHAPE = f"Original 10 {TIMES} 10 {TIMES} 6"
GRID = "tab=phase&shape=6%2C6%2C6&largest=6&columns=16&most=8&trials=12"


@contextmanager
def opened(browser, server, query="", refused=False, **context):
    """Page that logs no errors and contacts only its own server."""
    window = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
    page = window.new_page()
    errors, urls = [], []
    page.on("console", lambda m: m.type in ("error", "warning") and errors.append(m.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: urls.append(request.url))
    page.goto(f"{server.url}?{query}")
    page.wait_for_selector("html[data-ready=true]")
    yield page
    window.close()
    if refused:  # the browser logs every error response
        errors = [text for text in errors if "status of 422" not in text]
    assert not errors
    assert {f"{u.scheme}://{u.netloc}/" for u in map(urlsplit, urls)} == {server.url}


def picture(page, name):
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def ended(page, panel):
    page.wait_for_selector(f"#{panel} .run[data-running=false]", timeout=60_000)


def plotted(page, panel="synthetic"):
    return page.get_attribute(f"#{panel} [data-part=plot]", "aria-label")


def no_sideways(page):
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return wide == seen


def test_curves_reach_the_tolerance_and_axes_change_without_a_new_run(browser, server):
    with opened(browser, server, QUICK.replace("10%2C10%2C6", "20%2C20%2C12")) as page:
        runs = []
        page.on("request", lambda r: r.url.endswith("/api/run") and runs.append(r))
        page.evaluate("""() => {
            window.seen = new Set();
            new MutationObserver((all) => all.forEach((one) => seen.add(one.target.ariaLabel)))
                .observe(document.querySelector("#synthetic"),
                         { subtree: true, attributeFilter: ["aria-label"] });
        }""")
        page.click("#synthetic .run")
        page.wait_for_selector("#synthetic .uplot canvas")
        ended(page, "synthetic")
        texts = page.evaluate("[...seen]")
        assert len({text for text in texts if " at epochs " in text}) > 2  # it grew
        assert page.locator("#synthetic .verdict .badge.yes").all_inner_texts() == ["recovered"] * 2
        assert "The residual fell below the tolerance" in page.inner_text("#synthetic .verdicts")
        page.click("#synthetic summary")
        page.wait_for_selector("#synthetic [data-part=table] tbody tr")
        table = page.locator("#synthetic [data-part=table] tbody tr")
        assert table.first.inner_text().split() == ["TIHT", "0", "1"]  # the initial tensor is zero
        page.select_option("#synthetic [data-field=y]", "residual")
        assert eventually(lambda: plotted(page).startswith("relative residual"))
        found = re.findall(r"(TIHT|auto): (\S+) at epochs", plotted(page))
        assert {name for name, _ in found} == {"TIHT", "auto"}
        assert all(float(value) <= 1e-6 for _, value in found)
        for x, words in (("seconds", "seconds"), ("passes", "passes over the measurements")):
            page.select_option("#synthetic [data-field=x]", x)
            assert eventually(lambda words=words: f" at {words} " in plotted(page))
        assert len(runs) == 1
        assert float(table.last.inner_text().split()[-1]) <= 1e-6
        picture(page, "tested-synthetic")


def test_original_and_recovered_slices_are_shown(browser, server):
    with opened(browser, server, QUICK) as page:
        page.click("#synthetic .run")
        ended(page, "synthetic")
        captions = page.locator("#synthetic figcaption").all_inner_texts()
        assert [text.split(",")[0] for text in captions] == [
            SHAPE, "Without low rank the least-norm answer",
            "TIHT", "TIHT difference", "TIHT standard error",
            "auto", "auto difference", "auto standard error",
        ]  # fmt: skip
        pixels = """[...document.querySelectorAll('#synthetic canvas.pixels')]
            .map((c) => c.toDataURL())"""
        first = page.evaluate(pixels)
        assert first[0] == first[2] == first[5]  # the original is recovered
        assert len({first[k] for k in (0, 1, 3, 4, 6, 7)}) == 6
        page.locator("#synthetic [data-field=slice]").fill("1")
        then = page.evaluate(pixels)
        assert then[0] == then[2] != first[0]
        assert eventually(lambda: "slice=1" in page.evaluate("location.search"))


def test_words_beside_standard_errors(browser, server):
    words = "#synthetic [data-part=bars-words]"
    remarks = "#synthetic [data-part=bars-remarks]"
    with opened(browser, server, QUICK) as page:
        assert not page.is_visible(words)
        page.click("#synthetic .run")
        ended(page, "synthetic")
        assert "by a linear model" in page.inner_text(words)
        assert page.inner_text(remarks) == ""
        page.locator("#synthetic [data-field=ratio]").fill("0.8")
        page.wait_for_selector("#synthetic .story >> text=impossible")
        page.click("#synthetic .run")
        ended(page, "synthetic")
        assert not page.is_visible(words)
        said = page.locator(f"{remarks} p").all_inner_texts()
        assert said == ["TIHT, auto: The measurements do not determine any entry."]


def test_clip_is_recovered_and_downloaded(browser, server, tmp_path):
    save_gif(tmp_path / "clip.gif", flame((24, 24, 8)).values)
    with opened(browser, server, "tab=data&rows=3%3A14&columns=5%3A16&rank=3%2C3%2C2") as page:
        page.set_input_files("#data input[type=file]", tmp_path / "clip.gif")
        page.wait_for_selector("#data .run")
        assert (
            page.inner_text("#data [data-part=uploading]") == f"clip.gif: 24 {TIMES} 24 {TIMES} 8"
        )
        assert page.locator("#data [data-field=rows]").first.input_value() == "3"
        page.click("#data .run")
        page.wait_for_selector("#data figure >> nth=2")
        ended(page, "data")
        picture(page, "tested-data")
        assert page.get_attribute("#data [data-field=slice]", "max") == "8"
        page.locator("#data [data-field=slice]").fill("8")
        assert page.inner_text("#data .scrub output") == "8 of 8"
        with page.expect_download() as waiting:
            page.click("text=Result (.npz)")
        waiting.value.save_as(tmp_path / "result.npz")
        assert lt.load(tmp_path / "result.npz").X.shape == (12, 12, 8)
        with page.expect_download() as waiting:
            page.click("text=Report (.html)")
        waiting.value.save_as(tmp_path / "report.html")
        assert "clip.gif, rows 3:14" in (tmp_path / "report.html").read_text()


def test_part_is_selected_by_dragging(browser, server):
    with opened(browser, server, "tab=data") as page:
        page.click("#data [data-part=example]")
        page.wait_for_selector("#data .preview")
        box = page.locator("#data .preview").bounding_box()
        at = [(box["x"] + f * box["width"], box["y"] + f * box["height"]) for f in (0.26, 0.74)]
        page.mouse.move(*at[0])
        page.mouse.down()
        page.mouse.move(*at[1], steps=4)
        page.mouse.up()
        spans = [c.input_value() for c in page.locator("#data .spans input").all()]
        assert spans == ["13", "36", "13", "36", "1", "12"]
        assert eventually(lambda: "6,912" in page.inner_text("#data .story"))


def test_hostile_files_are_rejected_on_the_page(browser, server, tmp_path):
    with opened(browser, server, "tab=data", refused=True) as page:
        for name in ("trapped.npy", "large.npy", "page.npy", "header.mat", "bomb.npz"):
            (tmp_path / name).write_bytes(content(name))
            page.set_input_files("#data input[type=file]", tmp_path / name)
            alert = page.locator("#data [data-part=refused]", has_text=name)
            alert.wait_for()
            assert alert.get_attribute("role") == "alert"
            assert FILES[name][1] in alert.inner_text()
            assert not page.is_visible("#data .run")
        picture(page, "tested-refused")


def test_array_menu_and_the_next_file(browser, server, tmp_path):
    """Each array has its own preview and size; each file has suitable ranks."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "two.npz", small=rng.random((4, 4, 2)), large=rng.random((20, 30, 9)))
    np.save(tmp_path / "other.npy", rng.random((16, 16, 8)))
    ranks = """[...document.querySelectorAll('#data [data-field=rank]')].map((r) => r.value)"""
    line = "#data [data-part=uploading]"
    with opened(browser, server, "tab=data") as page:
        page.set_input_files("#data input[type=file]", tmp_path / "two.npz")
        page.wait_for_selector("#data .run")
        seen = page.evaluate("document.querySelector('.preview').toDataURL()")
        assert page.inner_text(line) == f"two.npz: 4 {TIMES} 4 {TIMES} 2"
        assert page.evaluate(ranks) == ["4", "4", "2"]
        page.select_option("#d-array", "large")
        assert page.inner_text(line) == f"two.npz: 20 {TIMES} 30 {TIMES} 9"
        assert page.evaluate("document.querySelector('.preview').toDataURL()") != seen
        page.select_option("#d-array", "small")
        page.set_input_files("#data input[type=file]", tmp_path / "other.npy")
        page.wait_for_selector(f"{line} >> text=other.npy")
        assert page.evaluate(ranks) == ["6", "6", "3"]


def test_data_of_approximately_low_rank_are_approximated(browser, server):
    with opened(browser, server, "tab=data&share=60") as page:
        page.click("#data [data-part=example]")
        page.wait_for_selector("#data .run:enabled")
        page.click("#data .run")
        page.wait_for_selector("#data .badge >> text=approximated", timeout=60_000)
        said = page.inner_text("#data .verdict")
        assert "the best approximation of this rank has 0.0" in said
        remark = page.locator("#data [data-part=bars-remarks] p")
        remark.wait_for()
        assert "auto: The standard error presumes that the tensor has rank" in remark.inner_text()
        assert "noise_std" not in said
        assert not page.locator("#data .badge.no").count()


def test_preset_with_too_few_measurements_of_a_file_fails(browser, server):
    with opened(browser, server, "tab=data&known=none") as page:
        page.click("#data [data-part=example]")
        page.wait_for_selector("#data .run:enabled")
        page.click("text=Too few: this fails >> visible=true")
        page.wait_for_selector("#data .outcome .badge.no", timeout=60_000)
        assert "fewer than its degrees of freedom" in page.inner_text("#data .story")
        assert "not recovered" in page.inner_text("#data .outcome")


def test_patterns_add_up_to_the_photograph(browser, server):
    """The third picture is the truncated HOSVD at the rank of the slider, to one of 256 levels."""
    images = "[...document.querySelectorAll('[data-part=why] canvas')].map((c) => c.toDataURL())"
    X = photo()
    with opened(browser, server, "patterns=5") as page:
        page.wait_for_selector("[data-part=why]")
        seen = []
        for rank in (5, 30):
            page.locator("[data-field=patterns]").fill(str(rank))
            urls = page.evaluate(images)
            png = base64.b64decode(urls[2].partition(",")[2])
            shown = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=float)
            truncated = lt.hosvd(X, (rank, rank, 3)).full()
            assert np.abs(shown - 255 * np.clip(truncated, 0, 1)).max() <= 0.51
            dof = lt.degrees_of_freedom(X.shape, (rank, rank, 3))
            words = page.inner_text("[data-part=why-words]")
            assert f"({rank}, {rank}, 3): {dof:,} degrees of freedom" in words
            error = float(lt.metrics.relative_error(truncated, X))
            assert f"relative error of {error:.3g}" in words
            seen += urls
        assert len(set(seen)) == 6
        assert eventually(lambda: "patterns=30" in page.evaluate("location.search"))
        page.focus("[data-field=patterns]")
        page.keyboard.press("ArrowRight")
        assert "(31, 31, 3)" in page.inner_text("[data-part=why-words]")


def test_files_dropped_outside_the_box_are_accepted(browser, server):
    with opened(browser, server, refused=True) as page:
        page.evaluate("""() => {
            const data = new DataTransfer();
            data.items.add(new File(["1,2"], "beside.npy"));
            const event = { dataTransfer: data, bubbles: true, cancelable: true };
            document.querySelector("footer").dispatchEvent(new DragEvent("drop", event));
        }""")
        page.wait_for_selector("#data [data-part=refused] >> text=beside.npy")
        assert page.is_visible("#data")


def test_verdict_covers_only_computed_cells(browser, server):
    """A 3x3x3 tensor has 27 entries; rank 2 has 20 degrees of freedom, rank 1 has 7."""
    query = "tab=phase&shape=3%2C3%2C3&operator=dct&most=3&columns=2&largest=2&trials=1"
    with opened(browser, server, query) as page:
        page.click("#phase .run")
        ended(page, "phase")
        said = page.inner_text("#phase .outcome")
        assert "m \N{GREATER-THAN OR EQUAL TO} 3" in said
        assert "recovered in all computed cells: at the ranks (1,1,1). 1 of 2 cells" in said
        assert "at all ranks" not in said


@pytest.mark.parametrize("tab", ["constructor", "toString"])
def test_invalid_addresses_open_the_first_tab(browser, server, tab):
    with opened(browser, server, f"tab={tab}") as page:
        assert page.is_visible("#picture")


def test_stop_button_stops_the_run(browser, server):
    with opened(browser, server, GRID) as page:
        page.click("#phase .run")
        page.wait_for_selector("#phase td[data-rate]")
        before = server.workers()
        page.click("#phase .run")
        said = page.inner_text("#phase .outcome")
        assert said == "How many measurements are enough? Stopped."
        assert page.inner_text("#phase .run") == "Run"
        assert eventually(lambda: any(map(process_ended, before)))
        filled = page.locator("#phase td[data-rate]").count()
        page.click("#phase .run")  # restart from the beginning
        page.wait_for_selector("#phase td[data-rate]")
        assert filled


def test_closing_the_page_stops_the_run(browser, server):
    with opened(browser, server, GRID) as page:
        page.click("#phase .run")
        page.wait_for_selector("#phase td[data-rate]")
        before = server.workers()
        page.close()
        assert eventually(lambda: any(map(process_ended, before)))


def test_two_runs_at_once(browser, server):
    with opened(browser, server, GRID) as page:
        page.click("#phase .run")
        page.wait_for_selector("#phase td[data-rate]")
        page.click("#tab-synthetic")
        page.uncheck("#synthetic [value=tiht]")
        page.uncheck("#synthetic [value=stotiht]")
        page.wait_for_selector("#synthetic .run:enabled")
        page.click("#synthetic .run")
        page.wait_for_selector("#synthetic .badge.yes")
        page.click("#tab-phase")
        assert page.inner_text("#phase .run") == "Stop"  # still running
        picture(page, "tested-phase")
        page.click("#phase .run")


def test_address_holds_the_settings(browser, server):
    with opened(browser, server, QUICK) as page:
        page.locator("#synthetic [data-field=noise]").fill("0.05")
        page.select_option("#synthetic [data-field=operator]", "dct")
        page.click("#synthetic .run")
        ended(page, "synthetic")
        shared = page.url
        words = {k: v[0] for k, v in parse_qs(urlsplit(shared).query).items()}
        assert words["noise"] == "0.05"
        assert words["operator"] == "dct"
        assert words["shape"] == "10,10,6"
        page.locator("#synthetic [data-field=ratio]").fill("7")
        assert eventually(lambda: page.evaluate("location.search").find("ratio=7") > 0)
        page.click("#tab-phase")
        page.go_back()
        page.wait_for_selector("#synthetic:visible")
        assert page.input_value("#synthetic [data-field=ratio]") == "7"
        page.go_back()
        assert eventually(lambda: page.input_value("#synthetic [data-field=ratio]") == "5")
        assert "ratio=5" in page.url
        page.go_forward()
        assert eventually(lambda: page.input_value("#synthetic [data-field=ratio]") == "7")
        assert "ratio=7" in page.url
    with opened(browser, server, urlsplit(shared).query) as page:
        again = {k: v[0] for k, v in parse_qs(urlsplit(page.url).query).items()}
        assert again == words
        assert page.input_value("#synthetic [data-field=noise]") == "0.05"
        assert page.input_value("#synthetic [data-field=operator]") == "dct"
        assert not page.is_checked("#synthetic [value=stotiht]")


def test_code_reproduces_the_numbers_on_the_page(browser, server):
    with opened(browser, server, QUICK) as page:
        page.click("#synthetic .run")
        ended(page, "synthetic")
        page.click("#show-code")
        page.wait_for_selector("#code[open]")
        code = page.inner_text("#code-text")
        page.screenshot(path=PICTURES / "tested-code.png")
        shown = page.locator("#synthetic .verdict dd").all_inner_texts()
    names = {}
    exec(code, names)
    for k, result in enumerate(names["results"].values()):
        error, residual, effort = shown[3 * k : 3 * k + 3]
        assert float(error) == pytest.approx(result.error, rel=0.06)  # two digits are shown
        assert float(residual) == pytest.approx(result.residual, rel=0.06)
        assert effort.startswith(f"{result.epochs} epochs")


def test_invalid_settings_are_reported_before_a_run(browser, server):
    with opened(browser, server, QUICK, refused=True) as page:
        page.fill("#s-block", "0")
        page.wait_for_selector("#synthetic [data-part=problem]:visible")
        assert "block is '0'" in page.inner_text("#synthetic [data-part=problem]")
        assert page.get_attribute("#s-block", "aria-invalid") == "true"
        assert page.is_disabled("#synthetic .run")
        page.click("#show-code")
        page.wait_for_selector("#code[open]")
        assert page.inner_text("#code-text").startswith(
            "There is no code for these settings: block"
        )
        page.click("#close-code")
        page.fill("#s-block", "auto")
        page.wait_for_selector("#synthetic .run:enabled")
        assert page.is_hidden("#synthetic [data-part=problem]")


def test_page_can_be_used_with_the_keyboard(browser, server):
    with opened(browser, server, QUICK) as page:
        page.focus("#tab-synthetic")
        page.keyboard.press("ArrowRight")
        assert page.is_visible("#data")
        page.keyboard.press("End")
        assert page.is_visible("#phase")
        page.keyboard.press("Home")
        assert page.is_visible("#picture")
        page.keyboard.press("ArrowRight")
        assert page.is_visible("#synthetic")
        focused = "document.activeElement"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(f"{focused}.className") == "run":
                break
        assert page.evaluate(f"{focused}.textContent") == "Run"
        assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.wait_for_selector("#synthetic .badge.yes >> nth=1")
        assert page.get_attribute("#synthetic .verdicts", "aria-live") == "polite"


def test_all_controls_have_accessible_names(browser, server):
    unnamed = """[...document.querySelectorAll('input, select, button, [role=img], canvas[role]')]
        .filter((e) => !e.labels?.length && !e.ariaLabel && !e.textContent.trim())
        .map((e) => e.outerHTML)"""
    with opened(browser, server, QUICK) as page:
        page.click("#synthetic .run")
        ended(page, "synthetic")
        assert page.evaluate(unnamed) == []
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))


def test_narrow_screens_need_no_horizontal_scrolling(browser, server):
    with opened(browser, server, QUICK, color_scheme="dark") as page:
        page.set_viewport_size({"width": 360, "height": 740})
        page.click("#synthetic .run")
        ended(page, "synthetic")
        assert no_sideways(page)
        picture(page, "tested-phone")
        page.click("#tab-data")
        page.click("#data [data-part=example]")
        page.wait_for_selector("#data .run")
        assert no_sideways(page)
        page.click("#tab-phase")
        page.locator("#phase input[data-field=columns]").fill("16")
        page.click("#phase .run")
        page.wait_for_selector("#phase td[data-rate]")
        assert no_sideways(page)
        page.click("#phase .run")
        page.click("#show-code")
        assert no_sideways(page)


def luminance(colour):
    parts = np.array([int(v) for v in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_dark(browser, server, scheme):
    colours = """['.story', '.hint', '.run', '.tabs button', '.alert'].map((name) => {
        const element = document.querySelector(name);
        let behind = element;
        const colour = (e) => getComputedStyle(e).backgroundColor;
        while (colour(behind) === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
        return [name, getComputedStyle(element).color, colour(behind)];
    })"""
    with opened(browser, server, QUICK, color_scheme=scheme) as page:
        dark = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.2
        assert dark == (scheme == "dark")
        for name, *pair in page.evaluate(colours):
            low, high = sorted(map(luminance, pair))
            assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_default_fills_the_holes_of_a_photograph(browser, server):
    """Before, after, the original and the difference; the answer is beside Run."""
    answer = "#picture [data-part=outcome]"
    with opened(browser, server) as page:
        page.wait_for_selector(f"{answer} >> text=Are these pixels enough?")
        page.click("#picture .run")
        ended(page, "picture")
        assert "filled in" in page.inner_text(answer)
        captions = page.locator("#picture figcaption").all_inner_texts()
        assert [text.split()[0] for text in captions[:4]] == [
            "Without",
            "Recovered",
            "Original",
            "auto",
        ]
        assert "auto: " in plotted(page, "picture")
        transparent = """(k) => {
            const c = document.querySelectorAll('#picture canvas.pixels')[k];
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return d.filter((v, i) => i % 4 === 3 && v === 0).length / (d.length / 4);
        }"""
        assert 0.5 < page.evaluate(transparent, 0) < 0.6
        assert page.evaluate(transparent, 1) == 0
        picture(page, "tested-photograph")
        page.click("text=19 of 20 missing")  # runs at once
        page.wait_for_selector(f"{answer} .badge.no", timeout=60_000)
        assert "set “Missing pixels” to a smaller share" in page.inner_text(answer)
        assert "missing=95" in page.url


def test_profile_has_error_bars_and_follows_the_keyboard(browser, server):
    with opened(browser, server, f"{QUICK}&noise=0.1") as page:
        page.click("#synthetic .run")
        ended(page, "synthetic")
        plot = page.locator("#synthetic .profile .plot")
        assert "Row 5 of 10, auto: recovered from" in plot.get_attribute("aria-label")
        page.focus("#synthetic .profile input")
        page.keyboard.press("ArrowRight")
        assert "Row 6 of 10" in plot.get_attribute("aria-label")
        page.locator("#synthetic canvas.pixels").first.hover(position={"x": 5, "y": 2})
        assert "Row 1 of 10" in plot.get_attribute("aria-label")
