"""The reports: their content, and their display in a real browser."""

from __future__ import annotations

import re
import warnings
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser

import jinja2
import numpy as np
import pytest

import lowtucker as lt
from browsers import clipped, violations
from lowtucker.datasets import flame
from lowtucker.lab.experiments.clip import Clip
from lowtucker.lab.experiments.report import render
from lowtucker.lab.experiments.reproduce import Reproduction
from lowtucker.lab.experiments.video import VideoRecovery
from small_paper import small_paper


class Page(HTMLParser):
    """Text, images and addresses of a page."""

    def __init__(self, html):
        super().__init__()
        self.pieces, self.pictures, self.addresses, self.ids = [], [], [], set()
        self.feed(html)
        self.text = plain(" ".join(self.pieces))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        self.ids.add(found.get("id"))
        if tag == "img":
            self.pictures.append(found)

    def handle_data(self, data):
        self.pieces.append(data)


def plain(text):
    """Normalise white space, including that left by tags."""
    return re.sub(r" (?=[.,:;)])", "", " ".join(text.split()))


def assert_stands_alone(page, pictures):
    """Every image is embedded, and nothing is fetched from elsewhere."""
    assert len(page.pictures) == pictures
    for picture in page.pictures:
        kind, _, data = picture["src"].partition(";base64,")
        assert kind in ("data:image/png", "data:image/gif")
        assert b64decode(data)[:4] in (b"\x89PNG", b"GIF8")
        assert picture["alt"]
    assert all(address.startswith(("data:", "#")) for address in page.addresses)


@pytest.fixture(scope="module")
def report(reproduction):
    run, _ = reproduction
    return Page((run.out / "report.html").read_text())


def test_report_embeds_every_image(report):
    assert_stands_alone(report, pictures=9)
    for figure in range(1, 8):
        assert f"Figure {figure}:" in report.text
    assert "synthetic flame" in report.text
    assert "Beside Figure 7: Ours, not the paper's" in report.text


def test_report_states_the_claims_and_the_remarks(reproduction, report):
    _, claims = reproduction
    assert len(claims) == 4
    for claim in claims:
        assert claim.title in report.text
        for sentence in (*claim.supports, *claim.limits):
            assert plain(sentence) in report.text
    for point in ("Overdetermined", "The step size", "is not a Tucker rank", "as 0 epochs"):
        assert point in report.text


def test_report_states_its_provenance(report):
    provenance = report.text.split("Provenance")[-1]
    for fact in ("lowtucker", "NumPy", "seed", "trials", "processor", "cores", "written", "UTC"):
        assert fact in provenance
    assert "block_sizes=(90, 360)" in provenance  # the settings that were run
    assert "jobs in" in provenance.split("computed")[1]


def open_page(browser, path):
    """Console messages, requests and content of a page."""
    page = browser.new_page()
    console, requests = [], []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    pictures = page.eval_on_selector_all(
        "img", "all => all.map(i => [i.complete, i.naturalWidth, i.naturalHeight, i.alt])"
    )
    text = page.inner_text("body")
    page.close()
    return console, requests, pictures, text


@pytest.mark.slow
def test_browser_shows_every_image_without_errors_or_requests(reproduction, browser):
    run, claims = reproduction
    console, requests, pictures, text = open_page(browser, run.out / "report.html")
    assert console == []
    outside = [url for url in requests if not url.startswith(("data:", run.out.as_uri()))]
    assert outside == []
    assert len(pictures) == 9
    for complete, width, height, alt in pictures:
        assert complete
        assert min(width, height) > 100
        assert alt
    for claim in claims:
        assert claim.title in text


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Folder of the report of a video."""
    folder = tmp_path_factory.mktemp("video")
    clip = Clip(flame((14, 15, 5)).values, "<i>clip</i>.npy", False)
    setting = VideoRecovery(clip, (3, 3, 2), 500, max_epochs=10)
    setting.write(folder, setting.run())
    return folder


def test_report_of_a_video_escapes_the_name_of_the_file(video):
    page = Page((video / "report.html").read_text())
    assert_stands_alone(page, pictures=5)
    assert "<i>clip</i>.npy" in page.text  # as text: escaped, not italic


def test_report_of_a_video_has_error_bars_where_they_are_quick(video, monkeypatch, recwarn):
    page = Page((video / "report.html").read_text())
    assert {"Standard errors", "Intervals"} <= {picture["alt"] for picture in page.pictures}
    assert (video / "slice.png").read_bytes() != (video / "pixel.png").read_bytes()
    clip = Clip(flame((14, 15, 5)).values, "clip.npy", False)
    setting = VideoRecovery(clip, (3, 3, 2), 500, max_epochs=10, first_frame=4)
    result = setting.run()
    made = setting._draw_bars(result)
    (axes,) = made["pixel"].axes
    true = next(line for line in axes.lines if line.get_label() == "truth")
    assert true.get_xdata().tolist() == [4, 5, 6, 7, 8]
    places = np.argwhere((clip.pixels == true.get_ydata()).all(axis=2))
    i, j = places[0]
    assert np.ptp(clip.pixels[i, j]) == np.ptp(clip.pixels, axis=2).max()
    index = [[i, j, 2] for i in range(14) for j in range(15)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.ModelWarning)
        error = result.standard_error(index).reshape(14, 15)
    np.testing.assert_array_equal(made["slice"].axes[1].images[0].get_array(), error)
    assert not [w for w in recwarn if issubclass(w.category, lt.ModelWarning)]
    monkeypatch.setattr("lowtucker.lab.experiments.bars.FLOPS", 1e6)
    assert list(setting.pictures(result)) == ["strip", "curves"]
    assert "would take too long here" in setting._why_no_bars(result)


@pytest.mark.slow
def test_report_of_a_video_opens_in_a_browser(video, browser):
    console, requests, pictures, text = open_page(browser, video / "report.html")
    assert console == []
    assert requests
    assert all(url.startswith(("data:", video.as_uri())) for url in requests)
    assert len(pictures) == 5
    assert all(complete and width for complete, width, *_ in pictures)
    assert "<i>clip</i>.npy" in text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scheme", "width"),
                         [("chromium", "light", 1280), ("firefox", "dark", 390)])  # fmt: skip
def test_axe_finds_nothing_in_the_reports(reproduction, video, browsers, name, scheme, width):
    for folder in (reproduction[0].out, video):
        with browsers.page(name, scheme, width) as page:
            page.goto((folder / "report.html").as_uri())
            assert violations(page) + clipped(page) == []
            assert page.problems == []


def test_missing_template_value_raises_an_error():
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        render("reproduce.html", {"title": "x"})


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """Folder and pages: of Figure 1, with Figure 3 added, and after a run without jobs."""
    out = tmp_path_factory.mktemp("later")
    first = Reproduction(("fig1",), out, trials=2, paper=small_paper())
    pages, pictures = [], []
    for run in (first, replace(first, names=("fig3",)), first):
        claims = run.run(run.pending())
        pages.append(Page((out / "report.html").read_text()))
        pictures.append({path.name: path.read_bytes() for path in out.glob("*.png")})
        assert claims[0].title.startswith("StoTIHT needs fewer epochs")
    return pages, pictures


@pytest.mark.slow
def test_report_lists_missing_figures(later):
    (page, *_), (pictures, *_) = later
    assert "Figure 7" in page.text.split("Not in this report")[1][:200]
    assert set(pictures) == {"fig1.png", "fig2.png"}  # Figure 2 uses the same runs
    assert "2 trials: a preview" in page.text


def test_figures_computed_later_are_added_to_the_report(later):
    (page, then, _), _ = later
    assert "fig3" not in page.ids
    assert {"fig1", "fig3"} <= then.ids


def test_run_without_jobs_keeps_the_log(later):
    (_, then, again), _ = later
    known, still = (
        page.text.split("Provenance")[-1].split("computed")[1].split("Figure")[0]
        for page in (then, again)
    )
    assert known.count("jobs in") == 2
    assert still == known


def test_plots_of_equal_tables_are_equal_bytes(later):
    _, (_, then, again) = later
    assert set(again) == {"fig1.png", "fig2.png", "fig3.png"}
    assert again == then


def test_recovered_picture_comes_before_the_verdicts(reproduction):
    run, _ = reproduction
    html = (run.out / "report.html").read_text(encoding="utf-8")
    places = [html.index(f'id="{name}"') for name in ("fig6", "verdict", "fig1", "remarks")]
    assert places == sorted(places)
    assert html.index("<img") < places[1]
    assert "from 600 random measurements" in html
