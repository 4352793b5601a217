"""Plans: against values by hand and new simulations, and extrapolation."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.theory import planning, search, trials
from lowtucker.theory.planning import Plan, plan
from lowtucker.theory.transition import PhaseTransition, phase_transition, wilson
from lowtucker.theory.trials import OPERATORS, RandomRecoveries, draw_operator

SHAPE, RANK, DOF = (8, 9, 10), (2, 2, 2), 8 + 12 + 14 + 16


@pytest.fixture
def outcomes(monkeypatch):
    """Replace trials by a rule (m, k) -> success; return the list of computed trials."""
    seen = []

    def set_rule(succeeds):
        def trial(self, m, seed):
            seen.append((m, seed[1]))
            return (1e-8 if succeeds(m, seed[1]) else 0.5), float(m), True

        monkeypatch.setattr(RandomRecoveries, "trial", trial)
        monkeypatch.setattr(RandomRecoveries, "batch", lambda self, cell: 1)
        return seen

    return set_rule


def same(one, two):
    assert (one.m, one.notes) == (two.m, two.notes)
    for name in ("m", "trials", "recovered", "error", "passes"):
        found = [getattr(made.transition, name) for made in (one, two)]
        np.testing.assert_array_equal(*found, err_msg=name)


# Predictions


@pytest.mark.parametrize(
    ("trials", "fresh", "operator"),
    [
        (2, 5, "gaussian"),
        *[pytest.param(4, 10, name, marks=pytest.mark.slow) for name in OPERATORS],
    ],
)
def test_planned_rate_holds_for_new_trials(operator, trials, fresh, monkeypatch):
    """With another seed, the rate is within the interval of the plan."""
    monkeypatch.setattr(
        search, "LADDER", (1.25, 2.0, 3.0, 4.0, 8.0, 12.0)
    )  # fewer levels, for speed
    shape, rank = (5, 5, 6), (1, 2, 2)
    made = plan(shape, rank, operator, trials=trials)
    assert made.dof == 22
    assert not made.scaled_down
    row = made.simulated
    twice = 2 * trials
    assert (row["m"], row["trials"], row["recovered"]) == (made.m, twice, twice)
    assert made.share == made.m / 150
    again = phase_transition(operator, shape, rank, measurements=[made.m], trials=fresh, seed=11)
    assert again.interval[0, 1] >= row["rate_low"]
    assert again.interval[0, 0] <= row["rate_high"]
    assert again.rate[0] >= 0.6
    assert 0.3 < again.passes[0] / made.passes < 3
    assert made.error < 1e-5
    smallest = made.transition.suggest()
    assert smallest < made.m
    assert (made.transition.rate[made.transition.m < smallest][-1:] < 0.95).all()
    A = draw_operator(operator, shape, made.m, 0)
    result = lt.recover(A, A.forward(lt.random_tucker(shape, rank, seed=0)), rank)
    phases = {phase.split()[0] for phase in result.history["phase"][1:]}
    assert phases <= set(made.solvers)
    assert made.solvers[0] in phases


def test_error_of_a_plan_with_noise():
    """Gaussian rows: an error of about noise sqrt(dof / m), as predicted."""
    made = plan((5, 5, 6), (1, 2, 2), noise=0.02, trials=4)
    assert 0.6 < made.error / (0.02 * np.sqrt(22 / made.m)) < 2.0
    assert made.error <= 0.02
    assert "the error is at most 0.02" in made.notes[0]


# The search


def ratios(made):
    return list(np.round(made.transition.m / made.dof, 2))


def order(seen):
    return [m for m, _ in itertools.groupby(seen, key=lambda one: one[0])]


def test_search_goes_down_until_the_rate_is_missed(outcomes):
    seen = outcomes(lambda m, k: m >= 2 * DOF)
    made = plan(SHAPE, RANK, trials=4)
    assert ratios(made) == [1.76, 2, 2.5, 3]
    assert made.transition.suggest() == 100
    assert made.m == made.passes == 125  # the level above, with new trials
    assert order(seen) == [150, 125, 100, 88, 125]
    assert seen[-4:] == [(125, k) for k in range(4, 8)]
    np.testing.assert_array_equal(made.transition.trials, [1, 4, 8, 4])


def test_search_goes_up_until_the_rate_is_reached_twice(outcomes):
    seen = outcomes(lambda m, k: m >= 5 * DOF)
    made = plan(SHAPE, RANK, trials=4)
    assert ratios(made) == [3, 4, 5, 6]
    assert made.m == 300
    assert order(seen) == [150, 200, 250, 300]
    assert seen.count((300, 7)) == 1
    assert ratios(plan(SHAPE, RANK, "dct", trials=2)) == [4, 5, 6]  # the first level
    outcomes(lambda m, k: m >= 8 * DOF)
    assert ratios(plan(SHAPE, RANK, "entries", trials=2)) == [6, 8, 10]
    assert ratios(plan(SHAPE, RANK, "rank-one", trials=2)) == [6, 8, 10]


def test_new_trials_can_reject_a_suggestion(outcomes):
    """Levels 2.5 and 3 reach the rate with the first 4 trials only by chance."""
    outcomes(lambda m, k: m >= 200 or (m >= 125 and k < 4))
    made = plan(SHAPE, RANK, trials=4)
    assert ratios(made) == [2, 2.5, 3, 4, 5]
    assert made.m == 250
    np.testing.assert_array_equal(made.transition.trials, [1, 4, 5, 4, 8])
    np.testing.assert_array_equal(made.transition.recovered, [0, 4, 4, 4, 8])


def test_m_never_exceeds_the_number_of_entries(outcomes):
    outcomes(lambda m, k: m == 720)
    for operator in OPERATORS:
        made = plan(SHAPE, RANK, operator, trials=3)
        assert made.transition.m[-1] == made.m == 720
        assert made.share == 1
        assert "as many measurements as entries: measure every entry, or solve by" in made.notes[-1]


def test_plan_if_the_rate_is_never_reached(outcomes):
    outcomes(lambda m, k: False)
    made = plan(SHAPE, RANK, trials=3)
    assert made.m is made.share is made.simulated is made.passes is made.error is None
    assert list(made.transition.m) == [
        150,
        200,
        250,
        300,
        400,
        500,
        600,
        720,
    ]  # all entries only once
    assert made.notes[-1] == "Try a smaller rank, or another operator."
    assert re.search(r"measurements +none up to 14.4 dof reached a rate of 0.95", str(made))


def test_plan_if_the_rate_is_always_reached(outcomes):
    outcomes(lambda m, k: True)
    made = plan(SHAPE, RANK, trials=3)
    assert made.m == 63  # the level above 1.1 dof, the smallest
    made = plan((6, 6, 6), (5, 5, 5), "entries", trials=3)
    assert list(made.transition.m) == [154, 175, 210, 216]
    assert "as many measurements as" not in str(made)


@pytest.mark.parametrize(
    ("trials", "rate", "allowed"),
    [(20, 0.95, 1), (4, 0.95, 0), (6, 0.8, 1), (10, 0.7, 3), (3, 1, 0)],
)
def test_level_ends_as_soon_as_the_rate_is_impossible(outcomes, trials, rate, allowed):
    """Every second trial fails at 2.5 dof, and the allowed number above."""
    failing = [k for k in range(trials) if k % 2][:allowed]
    seen = outcomes(lambda m, k: k not in failing if m > 125 else k % 2 == 0)
    made = plan(SHAPE, RANK, rate=rate, trials=trials)
    last = 2 * allowed + 1  # one failure too many
    assert made.m == 200
    assert [k for m, k in seen if m == 125] == list(range(last + 1))
    np.testing.assert_array_equal(made.transition.trials, [last + 1, trials, 2 * trials])
    np.testing.assert_array_equal(
        made.transition.recovered, [allowed + 1, trials - allowed, 2 * trials - allowed]
    )


def test_stored_trials_are_reused(outcomes, tmp_path):
    seen = outcomes(lambda m, k: m >= 125 and k != 3)
    settings = {"rate": 0.8, "folder": tmp_path}
    first = plan(SHAPE, RANK, trials=6, **settings)
    assert len(seen) == len(set(seen)) == 3 * 6 + 2
    same(plan(SHAPE, RANK, trials=6, **settings), first)
    assert len(seen) == 20
    more = plan(SHAPE, RANK, trials=8, **settings)
    assert sorted(seen[20:]) == [(125, 6), (125, 7), *((150, k) for k in range(12, 16))]
    same(more, plan(SHAPE, RANK, trials=8, rate=0.8))
    # more trials are stored than needed: only the first ones count
    same(plan(SHAPE, RANK, trials=6, **settings), first)
    # a file is missing
    lost = next(path for path in tmp_path.rglob("5-6.npz") if "m125" in str(path))
    lost.unlink()
    seen.clear()
    same(plan(SHAPE, RANK, trials=6, **settings), first)
    assert seen == [(125, 5)]
    plan(SHAPE, RANK, trials=6, seed=1, **settings)
    assert len(seen) == 21


@pytest.mark.parametrize("after", [0, 3, 11])
def test_plan_resumes_after_an_interrupt(outcomes, tmp_path, after):
    seen = outcomes(lambda m, k: m >= 125)
    expected = plan(SHAPE, RANK, trials=6)
    seen.clear()
    heard = []

    def interrupt(*news):
        heard.append(news)
        if len(heard) > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(SHAPE, RANK, trials=6, folder=tmp_path, progress=interrupt)
    same(plan(SHAPE, RANK, trials=6, folder=tmp_path), expected)
    assert len(seen) == len(set(seen)) == 19


def test_progress_is_reported(outcomes):
    """Reports totals, which are estimates at first, and levels; it never decreases."""
    outcomes(lambda m, k: m >= 125)
    heard = []
    plan(SHAPE, RANK, trials=2, progress=lambda *news: heard.append(news))
    assert heard == [
        (1, 10, "m = 150: 1 of 2"),
        (2, 10, "m = 150: 2 of 2"),
        (3, 10, "m = 125: 1 of 2"),
        (4, 10, "m = 125: 2 of 2"),
        (5, 10, "m = 100: 1 of 2"),
        (7, 10, "m = 150: 3 of 4"),
        (8, 10, "m = 150: 4 of 4"),
        (10, 10, "done"),
    ]
    heard.clear()
    outcomes(lambda m, k: m >= 500)
    plan(SHAPE, RANK, trials=2, progress=lambda *news: heard.append(news))
    assert [done for done, _, _ in heard] == sorted(done for done, _, _ in heard)
    assert all(done <= total for done, total, _ in heard)
    assert heard[-1] == (16, 16, "done")  # seven levels, one of them with twice the trials


@pytest.mark.slow
def test_plan_does_not_depend_on_the_number_of_workers(monkeypatch, tmp_path):
    monkeypatch.setattr(search, "SMALL", 0)  # use processes even for small problems
    monkeypatch.setattr(search, "LADDER", (1.1, 8.0))
    monkeypatch.setattr(RandomRecoveries, "stack", 2)  # several batches for a level
    settings = {"trials": 6, "rate": 0.8}
    made = plan((5, 5, 6), (1, 2, 2), "entries", **settings, workers=2, folder=tmp_path)
    same(made, plan((5, 5, 6), (1, 2, 2), "entries", **settings))
    assert len(made.transition.m) == 2
    assert made.transition.trials.min() < 6  # one of the levels ended early


def test_slow_convergence_counts_as_failure(monkeypatch):
    given = []
    before = trials.Fit.__call__

    def remember(self, problem, rank):
        given.append(self.max_epochs)
        return before(self, problem, rank)

    monkeypatch.setattr(trials.Fit, "__call__", remember)
    made = plan((5, 5, 6), (1, 2, 2), trials=2)
    assert set(given) == {60}
    assert "within 60 epochs: slow convergence counts as failure" in made.notes[0]


def test_slow_trials_are_fewer_by_default(outcomes):
    """20 trials of 60 epochs if a trial takes up to a second; 5 of 30 if it takes several."""
    outcomes(lambda m, k: 125 <= m < 1000 or m >= 9000)
    quick, slow = plan(SHAPE, RANK), plan((100, 100, 100), (5, 5, 5), "entries")
    assert quick.simulated["trials"] == 40
    assert not slow.scaled_down
    assert (slow.simulated["trials"], slow.simulated["recovered"]) == (10, 10)
    low, high = wilson(10, 10)
    assert f"10 of 10 simulated; the rate is between {low:.0%} and {high:.0%}" in str(slow)
    assert "within 30 epochs" in slow.notes[0]
    more = plan((100, 100, 100), (5, 5, 5), "entries", trials=8)  # an explicit number is used
    assert more.simulated["trials"] == 16


def test_recoveries_not_reported_as_success_are_counted(monkeypatch):
    def trial(self, m, seed):
        return (1e-8 if m >= 125 else 0.5), 3.0, seed[1] % 4 > 0

    monkeypatch.setattr(RandomRecoveries, "trial", trial)
    monkeypatch.setattr(RandomRecoveries, "batch", lambda self, cell: 1)
    made = plan(SHAPE, RANK, trials=4)
    assert made.simulated["called_success"] == 6
    assert "Of the 8 recovered tensors, 6 were reported as success (result.success)" in str(made)
    doubts = replace(made.transition, called_success=made.transition.recovered - 1)
    assert planning._notes_on_verdicts(replace(made, transition=doubts).simulated) == ()


# Tensors too large to simulate


@pytest.mark.parametrize(
    ("operator", "shape", "rank"),
    [
        ("gaussian", (30, 30, 30), (3, 3, 3)),
        ("gaussian", (5, 5, 6), (1, 2, 2)),
        ("gaussian", (9,) * 4, (1,) * 4),
        ("entries", (60, 60, 60), (4, 4, 4)),
        ("entries", (100, 100, 100), (5, 5, 5)),
        ("entries", (300, 400, 500), (12, 4, 3)),
        ("rank-one", (60, 60, 60), (4, 4, 4)),
        ("dct", (100, 100, 100), (5, 5, 5)),
    ],
)
def test_fast_problems_are_simulated_at_their_true_shape(operator, shape, rank):
    assert planning._affordable(operator, shape, rank) == (shape, rank)


@pytest.mark.parametrize(
    ("operator", "shape", "rank"),
    [
        ("gaussian", (60, 60, 60), (4, 4, 4)),
        ("gaussian", (300, 400, 500), (3, 4, 3)),
        ("gaussian", (1000, 1000), (2, 2)),
        ("gaussian", (1000, 4, 1000), (2, 2, 2)),
        ("gaussian", (40,) * 4, (2,) * 4),
        ("entries", (200, 200, 200), (5, 5, 5)),
        ("entries", (10**6,) * 3, (2, 2, 2)),
        ("rank-one", (1000, 1000, 1000), (5, 5, 5)),
        ("dct", (300, 300, 300), (3, 3, 3)),
    ],
)
def test_smaller_tensor_has_the_same_rank_and_order(operator, shape, rank):
    small, ranks = planning._affordable(operator, shape, rank)
    assert ranks == rank
    assert small != shape
    assert all(min(n, 4 * r) <= s <= n for s, n, r in zip(small, shape, rank, strict=True))
    dof = lt.degrees_of_freedom(small, rank)
    if operator == "gaussian":
        assert 24 * dof * np.prod(small) <= 1.8e8  # bytes of three rows per degree of freedom
        larger = tuple(min(n, round(s / 0.9)) for s, n in zip(small, shape, strict=True))
        grown = 24 * lt.degrees_of_freedom(larger, rank) * np.prod(larger)
        tight = all(s == min(n, 4 * r) for s, n, r in zip(small, shape, rank, strict=True))
        assert tight or grown > 1.8e8  # not smaller than necessary
    else:
        assert min(small) > 90


@pytest.mark.parametrize(
    ("operator", "shape", "rank"),
    [("gaussian", (100,) * 3, (20,) * 3), ("entries", (300, 400, 500), (30, 9, 4))],
)
def test_large_rank_is_reduced_as_well(operator, shape, rank):
    small, ranks = planning._affordable(operator, shape, rank)
    assert len(small) == len(ranks) == 3
    assert all(1 <= r < n for n, r in zip(small, ranks, strict=True))
    assert all(r <= given for r, given in zip(ranks, rank, strict=True))
    assert lt.degrees_of_freedom(small, ranks) <= 1600
    assert lt.attainable_rank(ranks) == ranks


def test_extrapolation_is_reported(outcomes):
    """From n to N: sqrt(N^3 / n^3) over the ratio of dof, times 1.25."""
    outcomes(lambda m, k: True)
    made = plan((1000, 1000, 1000), (5, 5, 5), trials=3)
    assert made.scaled_down
    t = made.transition
    n = t.shape[0]
    assert t.rank == (5, 5, 5)
    assert made.dof == 125 + 3 * 5 * 995
    small = 125 + 15 * (n - 5)
    growth = 1.25 * (1000 / n) ** 1.5 / (15050 / small)
    assert growth > 4
    assert abs(made.m - np.ceil(1.25 * small) / small * growth * 15050) <= 1
    text = " ".join(str(made).split())
    assert f"recovered not simulated: m is extrapolated from shape {t.shape}" in text
    assert "confidence" not in text  # it would be that of another tensor
    assert "(median of the smaller tensor)" in text
    simulated = f"The simulation is of shape {t.shape}, rank (5, 5, 5), with {small} degrees of"
    assert f"extrapolation: the true shape takes too long to simulate. {simulated}" in text
    assert f"m / dof is {growth:.2f} times as large here" in text
    assert "lowtucker.seeded_gaussian generates them on the fly" in text
    assert made.operator_bytes == 8 * made.m * 10**9


def test_only_the_margin_is_added_where_sqrt_n_grows_as_dof(outcomes):
    outcomes(lambda m, k: True)
    made = plan((1000, 1000), (2, 2), trials=3)
    t = made.transition
    assert made.scaled_down
    assert np.isclose(made.m / made.dof, 1.25 * t.m[1] / t.dof, rtol=0.02)


def test_different_solvers_at_the_true_shape_are_noted(outcomes):
    outcomes(lambda m, k: m >= 12 * 1500)
    made = plan((300, 300, 300), (8, 8, 8), "rank-one", trials=3)
    assert made.scaled_down
    assert made.solvers == ("RGN",)  # no blocks: dof^2 numbers would be too many
    assert any("The smaller tensor was recovered by RSGD, then RGN" in note for note in made.notes)
    made = plan((200, 200, 200), (5, 5, 5), "rank-one", trials=3)
    assert made.scaled_down
    assert not any("The smaller tensor" in note for note in made.notes)


def test_every_slice_of_the_true_shape_is_sampled(outcomes):
    """With 2 dof = 4 n samples, e^-4 of the slices are empty; with 8 ln n per slice, none."""
    outcomes(lambda m, k: True)
    shape, rank = (20000, 20000), (1, 1)
    made = plan(shape, rank, "entries", trials=5)
    assert made.scaled_down
    assert made.m > 4 * made.dof
    assert any("some slices of the true shape have too few samples" in note for note in made.notes)
    expected_empty = 2 * 20000 * np.exp(-made.m / 20000)
    assert expected_empty < 0.5
    assert made.m < 20000 * (np.log(2 * 20000) + 6)  # and not many more
    index = np.random.default_rng(0).integers(20000, size=(made.m, 2))
    assert all(len(np.unique(index[:, k])) == 20000 for k in range(2))
    # Gaussian rows measure every slice
    assert plan(shape, rank, trials=5).m < 2 * made.dof


# Memory, by hand


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("gaussian", 8 * 125 * 720),
        ("rank-one", 8 * 125 * 27),
        ("entries", 8 * 125 * 3),
        ("dct", 8 * 125 + 720),  # positions, and a sign for each entry
    ],
)
def test_memory_of_the_operator(outcomes, operator, expected):
    outcomes(lambda m, k: m >= 100)
    made = plan(SHAPE, RANK, operator, trials=3)
    assert made.m == 125
    assert made.operator_bytes == expected
    A = draw_operator(operator, SHAPE, 125, 0)
    arrays = {
        "gaussian": lambda: [A.matrix],
        "rank-one": lambda: A.factors,
        "entries": lambda: [A.indices],
        "dct": lambda: [A.at, A.signs],
    }
    assert sum(x.nbytes for x in arrays[operator]()) == expected


def by_hand(operator, shape, rank, m, solvers=("RGN",)):
    dof = lt.degrees_of_freedom(shape, rank)
    table = PhaseTransition(
        shape, rank, dof, *(np.array([one]) for one in (m, 20, 20, 1e-8, 4.5, 20))
    )
    return Plan(shape, rank, operator, 0.0, 0.95, dof, m, table, solvers, 10**6, 2 * 10**9, ("a",))


@pytest.mark.parametrize(
    ("operator", "shape", "rank", "m", "numbers"),
    [
        # vectors, Gram matrices of 270^2, full tensors if the operator forms them
        ("entries", (30,) * 3, (3,) * 3, 1080, 20 * (1080 + 270) + 6 * 270**2),
        ("rank-one", (30,) * 3, (3,) * 3, 1080, 20 * (1080 + 270) + 6 * 270**2 + 4 * 27000),
        ("gaussian", (30,) * 3, (3,) * 3, 1080, 20 * (1080 + 270) + 6 * 270**2 + 4 * 27000),
        # few measurements: TIHT steps, which form full tensors, prepare the starts
        ("rank-one", (30,) * 3, (3,) * 3, 540, 20 * (540 + 270) + 6 * 270**2 + 4 * 27000),
        # no Gram matrix above 300 degrees of freedom for transforms, nor where entries are many
        ("dct", (30,) * 3, (3,) * 3, 1080, 20 * (1080 + 270) + 6 * 270**2 + 4 * 27000),
        ("dct", (40,) * 3, (3,) * 3, 1440, 20 * (1440 + 360) + 4 * 64000),
        ("entries", (1000,) * 3, (5,) * 3, 10**5, 20 * (10**5 + 15050)),
    ],
)
def test_working_memory(operator, shape, rank, m, numbers):
    assert planning._solvers(operator, shape, rank, m)[1] == 8 * numbers


# str


def test_str():
    lines = str(by_hand("entries", SHAPE, RANK, 200, ("RSGD", "RGN"))).splitlines()
    low, high = wilson(20, 20)
    assert lines == [
        "Plan: shape (8, 9, 10), rank (2, 2, 2), operator entries, no noise",
        "  degrees of freedom  50",
        "  measurements        200: 4.00 dof, 0.278 per entry of X",
        f"  recovered           20 of 20 simulated; the rate is between {low:.0%} and {high:.0%} "
        "(95 % confidence)",
        "  solver              auto: RSGD, then RGN",
        "  passes over A       4.5 (median)",
        "  error               1.0e-08 (median)",
        "  memory of A         1 MB",
        "  working memory      about 2 GB",
        "  Note: a",
    ]


BAD = [
    (((5, 0), (1, 1)), {}, ValueError, "shape must be a tuple of positive integers"),
    ((SHAPE, (2, 2)), {}, ValueError, "rank must have one entry per mode"),
    ((SHAPE, (2, 2, 11)), {}, ValueError, r"rank\[2\] = 11 must be between 1 and 10"),
    (
        (SHAPE, RANK, "fourier"),
        {},
        ValueError,
        "operator must be one of gaussian, .* got 'fourier'",
    ),
    ((SHAPE, RANK, lt.gaussian(SHAPE, 9)), {}, ValueError, "use lowtucker.theory.phase_transition"),
    ((SHAPE, RANK), {"noise": 1.5}, ValueError, "noise must be below 1"),
    (
        (SHAPE, RANK),
        {"rate": 95},
        ValueError,
        r"rate must be at most 1, got 95\. Write 95 % as rate=0.95",
    ),
    ((SHAPE, RANK), {"rate": 0}, ValueError, "rate must be positive"),
    ((SHAPE, RANK), {"trials": 0}, ValueError, "trials must be between 1 and 1000000"),
    ((SHAPE, RANK), {"workers": 1.5}, TypeError, "workers must be an integer"),
    ((SHAPE, RANK), {"seed": -1}, ValueError, "seed must not be negative"),
    (((2,) * 40, (1,) * 40), {}, ValueError, "too many modes, 40, to simulate even a small tensor"),
    ((SHAPE, RANK), {"progress": "yes"}, TypeError, "progress must be a callable"),
]


@pytest.mark.parametrize(("arguments", "settings", "error", "message"), BAD)
def test_invalid_arguments_raise(arguments, settings, error, message, monkeypatch):
    monkeypatch.setattr(RandomRecoveries, "compute", None)
    with pytest.raises(error, match=message):
        plan(*arguments, **settings)


def test_unattainable_rank_warns_once(outcomes):
    outcomes(lambda m, k: True)
    with pytest.warns(lt.RankWarning) as caught:
        made = plan((5, 5, 6), (1, 1, 2), trials=2)
    assert len(caught) == 1
    assert made.rank == (1, 1, 1)
    assert not made.scaled_down


# Looks, batches, precision


def test_a_first_look_suffices_on_the_way_down(outcomes):
    """Five trials at 3 and 2.5 dof; at 2 dof the way up completes them, and decides."""
    seen = outcomes(lambda m, k: m >= 125 or (m == 100 and k != 7))
    made = plan(SHAPE, RANK, trials=20)
    assert order(seen) == [150, 125, 100, 88, 100, 125]
    assert ratios(made) == [1.76, 2, 2.5, 3]
    np.testing.assert_array_equal(made.transition.trials, [2, 20, 40, 5])
    assert len(seen) == len(set(seen))
    assert made.m == 125


def test_a_look_that_misses_the_rate_is_completed(outcomes):
    """One failure in five trials misses a rate of 95 %, one in twenty does not."""
    seen = outcomes(lambda m, k: m >= 150 or (m == 125 and k != 2))
    made = plan(SHAPE, RANK, trials=20)
    assert [k for m, k in seen if m == 125] == list(range(20))
    np.testing.assert_array_equal(made.transition.trials, [2, 20, 40])
    assert made.m == 150


def test_progress_ends_at_its_total(outcomes):
    outcomes(lambda m, k: m >= 60)
    heard = []
    plan(SHAPE, RANK, trials=7, progress=lambda *news: heard.append(news))
    done = [news[0] for news in heard]
    assert done == sorted(done)
    assert heard[-1] == (done[-1], done[-1], "done")


def test_plan_by_batches_is_that_of_single_trials(monkeypatch):
    settings = {"shape": (5, 5, 6), "rank": (1, 2, 2), "trials": 6}
    made = plan(**settings)
    monkeypatch.setattr(RandomRecoveries, "batch", lambda self, cell: 1)
    single = plan(**settings)
    assert (made.m, made.notes) == (single.m, single.notes)
    np.testing.assert_array_equal(made.transition.m, single.transition.m)
    np.testing.assert_array_equal(made.transition.recovered, single.transition.recovered)


def test_large_matrices_are_drawn_in_single_precision():
    assert planning._dtype("gaussian", (30,) * 3, (3,) * 3) == "float32"
    assert planning._dtype("gaussian", (10,) * 3, (2,) * 3) == "float64"
    assert planning._dtype("entries", (30,) * 3, (3,) * 3) == "float64"
    large = RandomRecoveries("gaussian", (), (12,) * 3, (2,) * 3, "auto", 0.0, 1e-5, 60, "float32")
    A = draw_operator("gaussian", (12,) * 3, 170, (0, 0), large.dtype)
    assert A.dtype == np.float32
    error, _, success = large.trial(170, (0, 0))
    assert error < 1e-5
    assert success
