"""The reports, in a real browser."""

from __future__ import annotations

import numpy as np
import pytest

from lowtucker.experiments.clip import Clip
from lowtucker.experiments.flame import synthetic_flame
from lowtucker.experiments.report import render
from lowtucker.experiments.video import VideoRecovery


def open_page(browser, path):
    """Texts of the console, requests, and what the page shows."""
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


def test_report_shows_every_picture_without_an_error_or_a_request(reproduction, browser):
    run, _ = reproduction
    console, requests, pictures, text = open_page(browser, run.out / "report.html")
    assert console == []
    outside = [url for url in requests if not url.startswith(("data:", run.out.as_uri()))]
    assert outside == []
    assert len(pictures) == 8
    for complete, width, height, alt in pictures:
        assert complete
        assert min(width, height) > 100
        assert alt
    for figure in range(1, 8):
        assert f"Figure {figure}:" in text
    assert "synthetic flame" in text


def test_report_states_the_claims_and_the_points_of_an_honest_reader(reproduction, browser):
    run, claims = reproduction
    *_, text = open_page(browser, run.out / "report.html")
    assert len(claims) == 4
    for claim in claims:
        assert claim.title in text
        for sentence in (*claim.supports, *claim.limits):
            assert sentence in text
    for point in ("Over-determined", "The step size", "Rank (1,1,2) is not a rank", "as 0 epochs"):
        assert point in text


def test_report_states_its_provenance(reproduction, browser):
    run, _ = reproduction
    *_, text = open_page(browser, run.out / "report.html")
    provenance = text.split("Provenance")[-1]
    for fact in ("lowtucker", "NumPy", "seed", "trials", "processor", "cores", "written", "UTC"):
        assert fact in provenance
    assert "block_sizes=(90, 360)" in provenance  # the settings that were run
    computed = provenance.split("computed")[1]
    assert "jobs in" in computed
    # a later call that computes nothing leaves what is known of the computation
    run.run(run.pending())
    *_, text = open_page(browser, run.out / "report.html")
    assert (
        text.split("Provenance")[-1].split("computed")[1].split("Figure")[0]
        == (computed.split("Figure")[0])
    )


def test_report_of_a_video_opens(tmp_path, browser):
    clip = Clip(synthetic_flame((14, 15, 5)), "<i>clip</i>.npy", False)
    setting = VideoRecovery(clip, (3, 3, 2), 500, max_epochs=10)
    setting.write(tmp_path, setting.run())
    console, requests, pictures, text = open_page(browser, tmp_path / "report.html")
    assert console == []
    assert all(url.startswith(("data:", tmp_path.as_uri())) for url in requests)
    assert len(pictures) == 3
    assert all(complete and width for complete, width, *_ in pictures)
    assert "<i>clip</i>.npy" in text  # escaped, not italic


def test_template_that_lacks_a_value_is_an_error_not_a_gap():
    with pytest.raises(Exception, match="undefined"):
        render("reproduce.html", {"title": "x"})


def test_report_of_some_figures_says_which_are_missing(tmp_path):
    from dataclasses import replace

    from lowtucker.experiments.reproduce import Reproduction
    from small_paper import small_paper

    run = Reproduction(("fig1",), tmp_path, trials=2, paper=small_paper())
    assert run.run(run.pending())[0].title.startswith("StoTIHT needs fewer epochs")
    text = (tmp_path / "report.html").read_text()
    assert "Not in this report" in text
    assert "Figure 7" in text.split("Not in this report")[1][:200]
    assert (tmp_path / "fig2.csv").exists()  # of the same runs, and in the report
    assert not (tmp_path / "fig3.csv").exists()
    assert "2 trials: a first impression" in text
    # what is asked for later joins the report
    more = replace(run, names=("fig3",))
    more.run(more.pending())
    text = (tmp_path / "report.html").read_text()
    assert 'id="fig1"' in text
    assert 'id="fig3"' in text


def test_pictures_of_equal_tables_are_equal_bytes(reproduction):
    run, _ = reproduction
    before = (run.out / "fig3.png").read_bytes()
    run.write()
    assert np.frombuffer((run.out / "fig3.png").read_bytes(), np.uint8).tobytes() == before
