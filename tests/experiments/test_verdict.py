"""The verdicts follow from the numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from lowtucker.lab.experiments.beyond import Choice
from lowtucker.lab.experiments.convergence import Run
from lowtucker.lab.experiments.report import render
from lowtucker.lab.experiments.verdict import Verdict, claims

EPOCHS = 60


def made_up(rates, seconds=1.0, video=(0.12, 0.09), many=1.0):
    """Tables with given convergence rates of StoTIHT (b = 90) and TIHT."""
    tables = {"fig1": [], "fig2": []}
    results = {}
    for name, b, rate in (("StoTIHT", 90, rates[0]), ("StoTIHT", 360, rates[1]),
                          ("TIHT", 360, rates[1])):  # fmt: skip
        for k in range(EPOCHS + 1):
            point = {"algorithm": name, "block_size": b, "cost": 1.0, "relative_error": rate**k}
            time = k * (seconds if b == 90 else 1.0)
            tables["fig1"].append(point | {"epoch": k})
            tables["fig2"].append(point | {"seconds": time})
        results[Run(b, 0.46)] = {"relative_error": np.array([[rate**k for k in range(EPOCHS + 1)]])}
    ranks = ("1-2-2", "2-2-2")
    tables["fig3"] = [
        {"algorithm": name, "rank": rank, "m": m, "success_rate": rate, "trials": 100}
        for name in ("TIHT", "StoTIHT")
        for rank, line in zip(ranks, ((0, 0.5, 1), (0, 0.2, 1)), strict=True)
        for m, rate in zip((18, 42, 60), line, strict=True)
    ]
    tables["fig4"] = [
        {"algorithm": name, "rank": "1-2-2", "m": m, "success_rate": rate, "trials": 100}
        for name, line in (("TIHT", (1.0, 0.1)), ("StoTIHT", (1.0, many)))
        for m, rate in zip((240, 440), line, strict=True)
    ]
    tables["fig7"] = [
        {"algorithm": name, "epoch": 20, "cost": 1.0, "relative_error": error}
        for name, error in zip(("TIHT", "StoTIHT"), video, strict=True)
    ]
    return tables, {"fig1": results}, {"hosvd": 0.0926, "hooi": 0.0903}


def verdicts(*given):
    return [claim.verdict for claim in claims(*given)]


def test_claims_hold_if_the_numbers_support_them():
    assert verdicts(*made_up((0.3, 0.6))) == [
        "supported", "supported", "supported, with limits", "supported, with limits",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (0, {"rates": (0.6, 0.3)}),
        (2, {"rates": (0.3, 0.6), "many": 0.97}),
        (3, {"rates": (0.3, 0.6), "video": (0.09, 0.12)}),
    ],
)
def test_claims_fail_if_the_numbers_do_not_support_them(which, change):
    found = verdicts(*made_up(**change))
    assert found[which] == "not supported in this run"
    assert found.count(Verdict.UNSUPPORTED) == 1


def test_fewer_epochs_but_more_time_is_stated():
    found = verdicts(*made_up((0.3, 0.6), seconds=50.0))
    assert found[0] == "supported in epochs, not in time"


def test_method_that_never_reaches_the_target_is_slower():
    assert verdicts(*made_up((0.3, 0.95)))[0] == "supported"
    assert verdicts(*made_up((0.95, 0.3)))[0] == "not supported in this run"


def test_more_failures_never_count_as_fewer_epochs():
    tables, results, clip = made_up((0.3, 0.6))
    tables["fig5"] = [
        {"algorithm": name, "rank": "1-2-2", "m": 320, "mean_epochs": mean, "failures": failures,
         "trials": 100}
        for name, mean, failures in (("TIHT", 5.0, 99), ("StoTIHT", 19.0, 0))
    ]  # fmt: skip
    assert "in 0 of 1 settings with m <= 360" in claims(tables, results, clip)[0].limits[-1]


def test_success_that_decreases_with_m_is_not_supported():
    tables, results, clip = made_up((0.3, 0.6))
    tables = copy.deepcopy(tables)
    for row in tables["fig3"]:
        row["success_rate"] = 1 - row["success_rate"]
    assert verdicts(tables, results, clip)[1] == "not supported in this run"


def test_claims_without_figures_are_omitted():
    tables, results, _ = made_up((0.3, 0.6))
    assert len(claims({"fig3": tables["fig3"]}, results, None)) == 1
    assert claims({}, {}, None) == []


def test_text_states_the_numbers_of_the_tables():
    (speed, success, many, video) = claims(*made_up((0.3, 0.6)))
    assert "after 12 epochs of StoTIHT" in speed.supports[0]  # 0.3^12 = 5e-7
    assert "after 28 of TIHT" in speed.supports[0]
    assert "from m = 42 (TIHT)" in success.supports[0]
    assert "1 of 2 settings" in many.supports[1]
    assert "0.0900 for StoTIHT and 0.1200 for TIHT" in video.supports[0]


def test_tuned_rows_name_the_better_method():
    tables, results, clip = made_up((0.3, 0.6))

    def tuned(tiht, stotiht):
        return [
            {"setting": "figure 1", "algorithm": name, "m": 360, "mu_over_m": 0.4,
             "quantity": "error", "value": value, "failures": 0, "choice": Choice(True, True)}
            for name, value in (("TIHT", tiht), ("StoTIHT", stotiht))
        ]  # fmt: skip

    for values, name in (((1e-4, 1e-9), "StoTIHT"), ((1e-9, 1e-4), "TIHT")):
        speed = claims(tables | {"tuned": tuned(*values)}, results, clip)[0]
        assert f"With each method tuned, {name} is ahead" in speed.limits[-1]


def test_curve_that_never_reaches_the_target_is_stated():
    tables, results, clip = made_up((0.3, 0.95))
    assert "and after none of TIHT" in claims(tables, results, clip)[0].supports[0]


def test_style_of_the_verdict():
    assert [verdict.style for verdict in Verdict] == [
        "supported", "limits", "unsupported", "unsupported",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (Choice(), ""),
        (Choice(published=True), "published"),
        (Choice(True, True), "published and best"),
        (Choice(False, True, True), "best (at the edge of the grid)"),
    ],
)
def test_text_of_a_choice(choice, text):
    assert str(choice) == text


def test_remarks_with_and_without_the_supplement():
    facts = {"small": 2e-15, "clip": 5e-6, "second_singular_value": 3e-16}
    full, bare = (
        render("points.html", {"facts": given, "clip_entries": 9000}) for given in (facts, None)
    )
    assert "N = 9000" in full
    assert "N = 9000" in bare
    for text in ("2e-15", "5e-06", "3e-16", "least squares", "tuned steps"):
        assert text in full
        assert text not in bare
    assert full.count("<dt>") == bare.count("<dt>") == 4


def test_best_step_on_the_clip_is_the_first_at_the_floor(reproduction):
    """Of two runs with nearly the same final error, the one that is there first."""
    run, _ = reproduction
    tuned = run.paper.beyond
    found = run._found(run.paper.figures())["tuned"]
    published = found[tuned.published_clip.name]["relative_error"]
    others = found[tuned.clip.name]["relative_error"]
    falling = 0.1 + 0.9 * 0.5 ** np.arange(published.shape[2])
    published[0], others[0] = falling, 0.1 + 0.9 * 0.9 ** np.arange(published.shape[2])
    published[0, :, 4:], others[0, :, -1] = 0.101, 0.1  # slower, and lower at the end
    rows = [row for row in tuned.table(found) if row["setting"] == "figure 7"]
    best = [row for row in rows if row["choice"].best]
    assert {row["algorithm"] for row in best} == {"TIHT", "StoTIHT"}
    assert all(row["choice"].published and row["value"] == 4 for row in best)
