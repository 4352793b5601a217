"""Constants of Theorem 5.1 against values by hand, and the theorem against actual steps."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtucker as lt
from lowtucker.theory import comparison

fixed = settings(derandomize=True, max_examples=40, deadline=None, database=None)
few = settings(derandomize=True, max_examples=12, deadline=None, database=None)
seeds = st.integers(0, 2**16)
deltas = st.floats(0, 1)
etas = st.floats(1, 4)
steps = st.floats(1e-3, 10)
shares = st.lists(st.floats(0.05, 1), min_size=1, max_size=6)
REPAIRED = {"p": [0.25, 0.75], "n_blocks": 2, "eta": math.sqrt(2), "block_norms": [1.5, 3.0]}
PAPER = {"p": [0.25, 0.75], "n_blocks": 2, "eta": math.sqrt(2), "version": "paper"}


# ---- values by hand: delta = 1/5, p = (1/4, 3/4), eta^2 - 1 = 1, so w = (2, 2/3)


def test_constants_as_printed():
    c = lt.theory.contraction(0.2, 0.25, **PAPER)
    # rho+ = 2 (1.2) = 2.4, rho- = 0.8, alpha = 2 (2.4) = 4.8
    assert (c.rho_plus, c.rho_minus, c.alpha) == pytest.approx((2.4, 0.8, 4.8))
    # 1 - (2 - 1.2) (0.25) (0.8) = 0.84;  1 + (0.0625) (4.8) (2.4) - 2 (0.25) (0.8) = 1.32
    assert c.kappa == pytest.approx(2 * math.sqrt(0.84) + math.sqrt(1.32))
    assert (c.version, c.delta, c.step, c.n_blocks, c.lipschitz) == ("paper", 0.2, 0.25, 2, None)
    assert not c.contracts


@pytest.mark.parametrize(
    ("step", "first", "second"),
    [
        # alpha = 2.4, L = max(2 (1.5), (2/3) 3) = 3
        (0.25, 0.72, 0.75),  # 1 + (0.15 - 0.5) 0.8,   1 + (0.1875 - 0.5) 0.8
        (0.75, 0.88, 1.225),  # 1 + (1.35 - 1.5) 0.8,  mu L = 2.25 > 2: 1 + (1.6875 - 1.5) 1.2
        (1.0, 1.48, 2.2),  # mu alpha = 2.4 > 2:       1 + 0.4 (1.2),  1 + 1 (1.2)
    ],
)
def test_repaired_constants(step, first, second):
    c = lt.theory.contraction(0.2, step, **REPAIRED)
    assert (c.rho_plus, c.rho_minus) == pytest.approx((1.2, 0.8))
    assert (c.alpha, c.lipschitz) == pytest.approx((2.4, 3.0))
    assert c.kappa == pytest.approx(2 * math.sqrt(first) + math.sqrt(second))
    assert c.sigma == 0


def test_blocks_of_unequal_length_have_their_own_weights():
    # w = b_i / (m p_i) = (30/40, 10/40) / (1/2) = (1.5, 0.5): alpha = 1.8, L = max(1.5, 1.5)
    c = lt.theory.contraction(
        0.2, 0.5, n_blocks=2, eta=math.sqrt(3), block_norms=[1, 3], block_sizes=[30, 10]
    )
    assert (c.alpha, c.lipschitz) == pytest.approx((1.8, 1.5))
    # 1 + (0.45 - 1) 0.8 = 0.56;  1 + (0.375 - 1) 0.8 = 0.5
    assert c.kappa == pytest.approx(2 * math.sqrt(0.56) + math.sqrt(2) * math.sqrt(0.5))
    same = lt.theory.contraction(0.2, 0.5, n_blocks=2, block_sizes=[7, 7])
    assert same.kappa == lt.theory.contraction(0.2, 0.5, n_blocks=2).kappa


def test_sigma():
    g = np.zeros((2, 3)), np.zeros((2, 3))
    g[0][0, 1], g[1][1, 2] = 3.0, -4.0
    # sum_i p_i w_i (2 + 1) ||g_i|| = (1/2) 9 + (1/2) 12 = 10.5, times mu = 1/4
    assert lt.theory.contraction(0.2, 0.25, **REPAIRED, gradients=g).sigma == pytest.approx(2.625)
    # max_i w_i sum_i p_i 3 ||g_i|| = 2 (9/4 + 9) = 22.5, times 1/4
    assert lt.theory.contraction(0.2, 0.25, **PAPER, gradients=g).sigma == pytest.approx(5.625)


def test_rank_sharpens_sigma():
    g = np.zeros((4, 4, 5))
    g[range(4), range(4), 0] = 4, 3, 2, 1  # singular values of the first two unfoldings
    c = lt.theory.contraction(0.2, 0.5, gradients=[g], rank=(1, 1, 2))
    assert c.sigma == pytest.approx(0.5 * 2 * math.sqrt(16 + 9 + 4))
    assert lt.theory.contraction(0.2, 0.5, gradients=[g]).sigma == pytest.approx(math.sqrt(30))
    c = lt.theory.contraction(
        0.2, 0.5, eta=2.0, block_norms=[1.2], gradients=[g], rank=(1, 1, 2)
    )  # the unprojected gradient is unchanged
    assert c.sigma == pytest.approx(0.5 * (2 * math.sqrt(29) + math.sqrt(3) * math.sqrt(30)))


# ---- consequences of the constants


@given(delta=deltas, step=steps, eta=etas, weights=shares)
@fixed
def test_theorem_as_printed_guarantees_nothing(delta, step, eta, weights):
    p = np.array(weights) / sum(weights)
    c = lt.theory.contraction(delta, step, p, len(p), eta, "paper")
    assert c.kappa >= math.sqrt(2) * (1 - 1e-12)
    assert not c.contracts


@given(delta=deltas, eta=etas, weights=shares)
@fixed
def test_no_step_makes_the_printed_theorem_contract(delta, eta, weights):
    p = np.array(weights) / sum(weights)
    step = lt.theory.best_step(delta, p, len(p), eta, "paper")
    assert lt.theory.contraction(delta, step, p, len(p), eta, "paper").kappa >= 1.41421


def test_smallest_printed_kappa_is_attained():
    c = lt.theory.contraction(0.0, 0.5, version="paper")
    assert c.kappa == pytest.approx(math.sqrt(2), rel=1e-14)
    assert lt.theory.best_step(0.0, version="paper") == pytest.approx(0.5)


@given(delta=deltas, n_blocks=st.integers(1, 50))
@fixed
def test_repaired_kappa_at_one_over_alpha(delta, n_blocks):
    c = lt.theory.contraction(delta, 1 / (1 + delta), n_blocks=n_blocks)
    assert c.kappa == pytest.approx(2 * math.sqrt(2 * delta / (1 + delta)), abs=1e-7)
    assert lt.theory.best_step(delta, n_blocks=n_blocks) == pytest.approx(1 / (1 + delta))


def test_one_seventh_is_the_threshold():
    for delta, contracts in [(1 / 7 - 1e-9, True), (1 / 7 + 1e-9, False)]:
        c = lt.theory.contraction(delta, lt.theory.best_step(delta))
        assert c.contracts is contracts


@pytest.mark.parametrize("d", [3, 4, 6])
def test_threshold_of_the_norms_at_delta_zero(d):
    """kappa = 2 |1 - mu| + sqrt(d - 1) sqrt(1 + mu^2 L - 2 mu): at best below 1 for L < d/(d-1)."""
    for L, contracts in [(d / (d - 1) - 1e-6, True), (d / (d - 1) + 1e-6, False)]:
        step = lt.theory.best_step(0.0, eta=math.sqrt(d), block_norms=[L])
        c = lt.theory.contraction(0.0, step, eta=math.sqrt(d), block_norms=[L])
        assert step == pytest.approx(1, rel=1e-4)
        assert c.kappa == pytest.approx(math.sqrt((d - 1) * (L - 1)), rel=1e-4)
        assert c.contracts is contracts


@given(low=deltas, high=deltas, step=steps, eta=etas, norm=st.floats(1, 20), weights=shares)
@fixed
def test_a_larger_delta_is_never_better(low, high, step, eta, norm, weights):
    low, high = sorted((low, high))
    p, norms = np.array(weights) / sum(weights), np.full(len(weights), norm)
    kappas = [
        lt.theory.contraction(delta, step, p, len(p), eta, block_norms=norms).kappa
        for delta in (low, high)
    ]
    assert kappas[0] <= kappas[1] * (1 + 1e-9) + 1e-7


def kappa_by_hand(version, delta, mu, weight, eta, L):
    """Kappa for many steps at once, written from the paper and from docs/theory.md."""
    low, high = 1 - delta, 1 + delta
    if version == "paper":
        rho = 2 * high
        first = 1 - (2 - mu * weight * rho) * mu * low
        second = 1 + mu**2 * weight * rho**2 - 2 * mu * low
    else:
        slope, other = mu**2 * weight * high - 2 * mu, mu**2 * L - 2 * mu
        first = 1 + np.maximum(slope * low, slope * high)
        second = 1 + np.maximum(other * low, other * high)
    roots = [np.sqrt(np.maximum(radicand, 0)) for radicand in (first, second)]
    return 2 * roots[0] + math.sqrt(eta**2 - 1) * roots[1]


@pytest.mark.parametrize("version", ["paper", "repaired"])
@given(delta=deltas, eta=etas, norm=st.floats(1, 20), weights=shares)
@fixed
def test_best_step_is_that_of_a_fine_grid(version, delta, eta, norm, weights):
    p, norms = np.array(weights) / sum(weights), norm * np.linspace(1, 2, len(weights))
    w = 1 / (len(p) * p)
    arguments = (delta, p, len(p), eta, version, norms)
    best = lt.theory.best_step(*arguments)
    by_hand = (version, delta, np.linspace(1e-4, 2.5, 25000), w.max(), eta, np.max(w * norms))
    least = kappa_by_hand(*by_hand).min()
    kappa = lt.theory.contraction(delta, best, p, len(p), eta, version, norms).kappa
    # on the grid the roots are off by at most its spacing, 1e-4, times their slopes
    assert least - 0.002 * eta <= kappa <= least * (1 + 1e-9) + 1e-7


@pytest.mark.parametrize("version", ["paper", "repaired"])
@given(delta=deltas, step=steps, eta=etas, norm=st.floats(1, 20), weights=shares)
@fixed
def test_kappa_matches_the_formula(version, delta, step, eta, norm, weights):
    p, norms = np.array(weights) / sum(weights), norm * np.linspace(1, 2, len(weights))
    w = 1 / (len(p) * p)
    expected = kappa_by_hand(version, delta, step, w.max(), eta, np.max(w * norms))
    c = lt.theory.contraction(delta, step, p, len(p), eta, version, norms)
    assert c.kappa == pytest.approx(float(expected), rel=1e-9, abs=1e-7)


# ---- the recursion


def made(kappa, sigma, version="repaired"):
    """A contraction with given kappa and sigma."""
    return lt.theory.Contraction(
        version=version,
        delta=0.1,
        step=1.0,
        eta=1.0,
        n_blocks=1,
        rho_plus=1.1,
        rho_minus=0.9,
        alpha=1.1,
        lipschitz=None,
        kappa=kappa,
        sigma=sigma,
    )


@pytest.mark.parametrize("kappa", [0.0, 0.3, 0.999, 1.0, 1.7])
@pytest.mark.parametrize("sigma", [0.0, 0.25])
def test_error_bound_is_the_recursion(kappa, sigma):
    c, error, errors = made(kappa, sigma), 2.0, []
    for _ in range(30):
        errors.append(error)
        error = kappa * error + sigma
    np.testing.assert_allclose(c.error_bound(np.arange(30), 2.0), errors, rtol=1e-12)
    for t in (0, 1, 7):
        assert c.error_bound(t, 2.0) == pytest.approx(errors[t], rel=1e-12)


def test_printed_error_bound_drops_the_geometric_sum():
    c = made(0.5, 0.25, "paper")
    assert c.error_bound(3, 2.0) == pytest.approx(0.125 * 2 + 0.25)
    assert made(0.5, 0.25).error_bound(3, 2.0) == pytest.approx(0.25 + 0.25 * 1.75)


def test_overflowing_bound_is_infinite():
    assert made(2.0, 0.1).error_bound(10_000, 1.0) == math.inf
    assert made(2.0, 0.1).error_bound(10_000, 0.0) == math.inf
    assert made(2.0, 0.0).error_bound(10_000, 0.0) == 0


# ---- the theorem, on operators with known delta


@dataclass(frozen=True)
class Known:
    """Measurements in contiguous blocks, and delta for every possible rank 3r."""

    A: np.ndarray
    sizes: tuple[int, ...]
    p: np.ndarray
    shape: tuple[int, ...]
    delta: float

    @property
    def slices(self):
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - b, end) for b, end in zip(self.sizes, ends, strict=True)]

    @property
    def norms(self):
        return [np.linalg.norm(self.A[s], 2) ** 2 / (s.stop - s.start) for s in self.slices]

    @property
    def weights(self):
        return np.array(self.sizes) / (len(self.A) * self.p)


def known(factors, extra, rng, shape, delta):
    """Blocks with (1/b) A_b^T A_b = R^T R for the R of factors, b = len(R) + extra."""
    parts = []
    for R, more in zip(factors, extra, strict=True):
        b = len(R) + more
        parts.append(math.sqrt(b) * np.linalg.qr(rng.standard_normal((b, len(R))))[0] @ R)
    p = rng.dirichlet(np.full(len(parts), 8.0))
    return Known(np.concatenate(parts), tuple(map(len, parts)), p, shape, delta)


def diagonal(rng, shape):
    """Squared weights of the entries: tensors with one entry are extreme, at any rank."""
    w = rng.uniform(0.95, 1.05, (3, math.prod(shape)))
    factors, extra = [np.diag(np.sqrt(row)) for row in w], (0, 7, 3)
    share = np.array([w.shape[1] + more for more in extra])
    lowest = (share / share.sum() @ w).min()
    return known(factors, extra, rng, shape, max(1 - lowest, w.max() - 1))


def orthogonal(rng, shape):
    N = math.prod(shape)
    return known([np.eye(N)] * 3, (0, 4, 9), rng, shape, 0.0)


def traced(rng, shape, s=3, delta=0.03):
    """(1 - delta) I + (2 delta / s) t t^T, <t, X> = sum_k +-X_kk1 <= sqrt(s) ||X|| at rank s.

    So delta is exact if the first entry of 3r is s, and L = 1 - delta + 2 delta n / s.
    """
    factors = []
    for sign in (1.0, -1.0):
        t, k = np.zeros(shape), np.arange(min(shape[:2]))
        t[k, k, (0,) * (len(shape) - 2)] = np.where(k % 2, sign, 1.0)
        spread = math.sqrt(2 * delta / s) * t.reshape(1, -1)
        factors.append(np.vstack([math.sqrt(1 - delta) * np.eye(t.size), spread]))
    return known(factors, (0, 6), rng, shape, delta)


CASES = {
    "orthogonal": (orthogonal, (4, 3, 3), (2, 1, 2)),
    "diagonal": (diagonal, (4, 3, 3), (2, 1, 2)),
    "traced": (traced, (7, 7, 2), (1, 1, 1)),
    "diagonal matrices": (diagonal, (5, 6), (2, 2)),
    "diagonal of order 4": (diagonal, (3, 2, 3, 2), (1, 2, 2, 1)),
}


def low_rank(rng, shape, rank):
    return lt.random_tucker(shape, rank, seed=int(rng.integers(2**31))).full()


def iterate(rng, X_true, rank):
    """An iterate X^t: near, far from, or at the truth."""
    distance = rng.choice([0.0, 0.01, 0.3, 3.0])
    noise = rng.standard_normal(X_true.shape)
    return lt.HOSVD(rank)(X_true + distance * noise / np.linalg.norm(noise)).full()


def constants(case, rank, step, gradients, eta):
    return lt.theory.contraction(
        case.delta,
        step,
        case.p,
        len(case.sizes),
        eta,
        block_norms=case.norms,
        gradients=gradients,
        rank=rank,
        block_sizes=case.sizes,
    )


def setting(name, seed, noise):
    """Case, problem, truth and gradients at the truth."""
    make, shape, rank = CASES[name]
    rng = np.random.default_rng(seed)
    case = make(rng, shape)
    X_true = low_rank(rng, shape, rank)
    X_true = X_true / np.linalg.norm(X_true)
    y = case.A @ X_true.ravel() + noise * rng.standard_normal(len(case.A))
    problem = lt.Problem(lt.DenseOperator(case.A, shape), y)
    gradients = [problem.block(rows).gradient(X_true) for rows in case.slices]
    return case, problem, X_true, gradients, rng


def stotiht_steps(case, problem, X, rank, step):
    """X^{t+1} of Algorithm 1 for each of the blocks."""
    H = lt.HOSVD(rank)
    return [
        H(X - step * w * problem.block(rows).gradient(X)).full()
        for w, rows in zip(case.weights, case.slices, strict=True)
    ]


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("name", CASES)
@given(seed=seeds, step=st.floats(0.1, 2.5))
@few
def test_step_of_stotiht_satisfies_the_theorem(name, noise, seed, step):
    """E_i ||X^{t+1} - X*|| <= kappa ||X^t - X*|| + sigma, over all blocks."""
    case, problem, X_true, gradients, rng = setting(name, seed, noise)
    rank = CASES[name][2]
    eta = math.sqrt(len(rank)) if len(rank) > 2 else 1.0
    c = constants(case, rank, step, gradients, eta)
    assert c.sigma > 0.1 * step * noise if noise else c.sigma < 1e-12
    for _ in range(4):
        X = iterate(rng, X_true, rank)
        new = stotiht_steps(case, problem, X, rank, step)
        mean = case.p @ [np.linalg.norm(one - X_true) for one in new]
        assert mean <= c.kappa * np.linalg.norm(X - X_true) + c.sigma + 1e-9


@pytest.mark.parametrize("name", CASES)
def test_step_of_tiht_satisfies_the_theorem(name):
    """One block: the mean over blocks is the gradient of F, and p is 1."""
    for seed, step in itertools.product(range(4), (0.5, 0.97, 1.8)):
        case, problem, X_true, _, rng = setting(name, seed, 0.1)
        whole = Known(case.A, (len(case.A),), np.ones(1), case.shape, case.delta)
        rank = CASES[name][2]
        eta = math.sqrt(len(rank)) if len(rank) > 2 else 1.0
        c = constants(whole, rank, step, [problem.gradient(X_true)], eta)
        X = iterate(rng, X_true, rank)
        (new,) = stotiht_steps(whole, problem, X, rank, step)
        error = np.linalg.norm(X - X_true)
        assert np.linalg.norm(new - X_true) <= c.kappa * error + c.sigma + 1e-9


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("name", CASES)
def test_expected_error_after_t_iterations_satisfies_the_bound(name, noise):
    """E over all M^t sequences of blocks, from the start at zero."""
    case, problem, X_true, gradients, _ = setting(name, 5, noise)
    rank = CASES[name][2]
    eta = math.sqrt(len(rank)) if len(rank) > 2 else 1.0
    step = lt.theory.best_step(
        case.delta, case.p, len(case.p), eta, block_norms=case.norms, block_sizes=case.sizes
    )
    c = constants(case, rank, step, gradients, eta)
    level = [(1.0, np.zeros(case.shape))]
    for t in range(1, 5):
        level = [
            (chance * p, new)
            for chance, X in level
            for p, new in zip(case.p, stotiht_steps(case, problem, X, rank, step), strict=True)
        ]
        mean = sum(chance * np.linalg.norm(X - X_true) for chance, X in level)
        assert mean <= c.error_bound(t, 1.0) + 1e-9


# ---- constants of a problem and a solver


@functools.cache
def weighed(seed=0, noise=0.0):
    """Problem with blocks of 24, 24 and 15 rows, q_i(X) = sum_j w_ij X_j^2; w; and the truth."""
    rng = np.random.default_rng(seed)
    shape, rank = (4, 3, 2), (1, 2, 2)
    w = rng.uniform(0.8, 1.2, (3, 24))
    w[2, 15:] = 0
    blocks = []
    for row in w:
        b = np.count_nonzero(row)
        Q = np.linalg.qr(rng.standard_normal((b, b)))[0]
        blocks.append(math.sqrt(b) * Q @ np.diag(np.sqrt(row))[:b])
    A = np.concatenate(blocks)
    X_true = low_rank(rng, shape, rank)
    y = A @ X_true.ravel() + noise * rng.standard_normal(len(A))
    return lt.Problem(lt.DenseOperator(A, shape), y), w, X_true


P = (0.3, 0.45, 0.25)
SOLVER = lt.StoTIHT(sampler=lt.Partition(24, p=P), step=0.7, thresholding=lt.HOSVD((1, 2, 2)))


def test_guarantee_of_a_problem_matches_the_formula(one_search):
    """Norms are exact for weighted entries: low = min_j sum_i (b_i/m) w_ij, high = max w_ij.

    With low and high for 1 - delta and 1 + delta there is no scale to choose.
    """
    problem, w, X_true = weighed()
    share = np.array([24, 24, 15]) / 63
    low, high = (share @ w).min(), w.max()
    weights = share / P
    L = np.max(weights * w.max(axis=1))
    first = 1 + (0.49 * weights.max() * high - 1.4) * low
    second = 1 + (0.49 * L - 1.4) * low
    c = lt.theory.contraction_of(problem, X_true, SOLVER, delta="at_most")
    assert c.kappa == pytest.approx(2 * math.sqrt(first) + math.sqrt(2) * math.sqrt(second))
    assert c.delta == pytest.approx((high - low) / (high + low))
    assert (c.n_blocks, c.eta, c.step) == (3, pytest.approx(math.sqrt(3)), 0.7)
    # the certified lower bound is never larger, and here single entries attain it
    least = lt.theory.contraction_of(problem, X_true, SOLVER, delta="at_least")
    assert least.kappa == pytest.approx(c.kappa, rel=1e-3)
    assert least.kappa <= c.kappa * (1 + 1e-9)


@pytest.fixture(scope="module")
def one_search():
    """Search for extreme tensors only once for each operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "trip", functools.cache(lt.theory.trip))
        yield


@functools.cache
def multiple(c):
    problem, _, X_true = weighed(1, noise=0.1)
    A = lt.DenseOperator(c * problem.A.matrix, problem.A.shape)
    return problem, lt.Problem(A, c * problem.y), X_true


@pytest.mark.slow
@pytest.mark.parametrize("version", ["paper", "repaired"])
@pytest.mark.parametrize("delta", ["at_least", "sampled", "at_most"])
@pytest.mark.parametrize("c", [0.01, 3.0])
def test_scaling_the_measurements_rescales_the_step(version, delta, c, one_search):
    problem, other, X_true = multiple(c)
    solver = lt.StoTIHT(
        sampler=lt.Partition(24, p=P), step=0.7 / c**2, thresholding=lt.HOSVD((1, 2, 2))
    )
    expected = lt.theory.contraction_of(problem, X_true, SOLVER, delta=delta, version=version)
    found = lt.theory.contraction_of(other, X_true, solver, delta=delta, version=version)
    assert (found.kappa, found.sigma) == pytest.approx((expected.kappa, expected.sigma), rel=1e-6)
    assert found.step == pytest.approx(0.7 / c**2)


def test_sigma_of_a_problem_comes_from_its_noise():
    problem, _, X_true = weighed(2)
    assert lt.theory.contraction_of(problem, X_true, SOLVER, delta=0.3).sigma < 1e-12
    problem, _, X_true = weighed(2, noise=0.1)
    c = lt.theory.contraction_of(problem, X_true, SOLVER, delta=0.3)
    matrix, noise = problem.A.matrix, problem.y - problem.A.forward(X_true)
    # 3r exceeds the shape except in mode 1: 3 of its 4 singular values
    terms = []
    for p, rows in zip(P, (slice(0, 24), slice(24, 48), slice(48, 63)), strict=True):
        g = matrix[rows].T @ noise[rows] / len(noise[rows])
        values = np.linalg.svd(g.reshape(4, 6), compute_uv=False)[:3]
        weight = len(noise[rows]) / (63 * p)
        terms.append(p * weight * (2 * np.linalg.norm(values) + math.sqrt(2) * np.linalg.norm(g)))
    assert c.sigma == pytest.approx(0.7 * sum(terms))


@pytest.mark.slow
@pytest.mark.parametrize(("rows_per_entry", "contracts"), [(1000, False), (2500, True)])
def test_guarantee_for_gaussian_rows_needs_2000_rows_per_entry(
    rows_per_entry, contracts, monkeypatch
):
    """s = sqrt(N/m), low = (1 - s)^2, high = L = (1 + s)^2 where 3r covers the shape.

    kappa = (2 + sqrt 2) sqrt(1 - low/high) < 1 requires low/high > 1 - (2 + sqrt 2)^-2 = 0.9142,
    s < 0.0224, m > 1990 N.
    """
    few = functools.partial(lt.theory.trip, samples=10)  # irrelevant here
    monkeypatch.setattr(comparison, "trip", few)
    A = lt.gaussian((3, 3, 3), m=27 * rows_per_entry, seed=3)
    X_true = lt.random_tucker((3, 3, 3), (1, 1, 1), seed=4)
    problem, solver = lt.Problem(A, A.forward(X_true)), lt.TIHT(step=0.95)
    c = lt.theory.contraction_of(problem, X_true, solver, delta="at_most")
    assert c.contracts is contracts
    result = lt.solve(problem, solver, (1, 1, 1), X_true=X_true, stop=lt.MaxEpochs(5))
    bound = c.error_bound(result.history.epoch, 1.0)
    assert result.history.error[0] == pytest.approx(1)  # the start is zero
    assert (result.history.error <= bound + 1e-12).all()


@pytest.mark.parametrize(
    ("solver", "delta", "kind", "message"),
    [
        (lt.TIHT(step="auto"), 0.1, TypeError, "step that is a number"),
        (lt.RGN(), 0.1, TypeError, "solver must be TIHT or StoTIHT"),
        (SOLVER, "guess", ValueError, "delta must be"),
        (SOLVER, -0.1, ValueError, "delta must be"),
        (
            lt.StoTIHT(sampler=lt.RandomRows(24), step=0.5),
            0.1,
            ValueError,
            "blocks must be fixed",
        ),
    ],
)
def test_contraction_of_rejects_what_the_theorem_does_not_cover(solver, delta, kind, message):
    problem, _, X_true = weighed()
    with pytest.raises(kind, match=message):
        lt.theory.contraction_of(problem, X_true, solver, (1, 2, 2), delta=delta)


def test_contraction_of_rejects_weights():
    problem, _, X_true = weighed()
    problem = lt.Problem(problem.A, problem.y, np.full(63, 2.0))
    with pytest.raises(TypeError, match="without weights"):
        lt.theory.contraction_of(problem, X_true, SOLVER)


# ---- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": -0.1}, "delta must be a finite number, at least 0, got -0.1"),
        ({"delta": 1.1}, "delta must be between 0 and 1, got 1.1"),
        ({"delta": math.nan}, "delta must be a finite number, at least 0, got nan"),
        ({"step": 0.0}, "step must be positive, got 0"),
        ({"step": -1.0}, "step must be positive, got -1"),
        ({"step": math.inf}, "step must be a finite number, got inf"),
        ({"p": [0.5, 0.3, 0.2]}, "p must be 2 numbers"),
        ({"p": [0.5, 0.6]}, "p must sum to 1, got 1.1"),
        ({"p": [0.0, 1.0]}, "p must be positive"),
        ({"p": [-0.5, 1.5]}, "p must be positive"),
        ({"n_blocks": 0}, "n_blocks must be at least 1, got 0"),
        ({"eta": 0.5}, "eta must be a finite number, at least 1, got 0.5"),
        ({"version": "mended"}, 'version must be "paper" or "repaired", got \'mended\''),
        ({"block_norms": None}, "block_norms is needed for eta = 1.414 > 1"),
        ({"block_norms": [1.5]}, "block_norms must be 2 numbers"),
        ({"block_norms": [1.5, 0.0]}, "block_norms must be positive"),
        ({"block_norms": [1.5, math.nan]}, "block_norms must be positive"),
        ({"block_norms": [0.1, 0.2]}, "block_norms are too small for delta = 0.2"),
        ({"block_sizes": [3, 4, 5]}, "block_sizes must be 2 numbers"),
        ({"block_sizes": [3, 0]}, "block_sizes must be positive"),
        ({"gradients": [np.zeros((2, 2))]}, "gradients must be 2 arrays .* got 1"),
        ({"gradients": [np.zeros(3), np.zeros(4)]}, "gradients must be 2 arrays of one shape"),
        ({"gradients": 3}, "gradients must be 2 arrays"),
        ({"gradients": [np.full((2, 2), np.nan)] * 2}, "gradients have NaN"),
        ({"gradients": [np.zeros((2, 2))] * 2, "rank": (1, 1, 1)}, "rank must have one entry per"),
        ({"gradients": [np.zeros((2, 2))] * 2, "rank": (0, 1)}, r"rank\[0\] = 0 must be between"),
    ],
)
def test_errors_name_the_argument(change, message):
    with pytest.raises(ValueError, match=message):
        lt.theory.contraction(**{"delta": 0.2, "step": 0.5, **REPAIRED, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": "small"}, "delta must be a real number, got 'small'"),
        ({"p": ["a", "b"]}, "p must be 2 numbers"),
        ({"n_blocks": 2.5}, r"n_blocks must be an integer, got 2\.5"),
        ({"eta": None}, "eta must be a real number, got None"),
    ],
)
def test_wrong_types_name_the_argument(change, message):
    with pytest.raises(TypeError, match=message):
        lt.theory.contraction(**{"delta": 0.2, "step": 0.5, **REPAIRED, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 2.0}, "delta must be between 0 and 1"),
        ({"version": "both"}, "version must be"),
        ({"p": [0.5, 0.4]}, "p must sum to 1"),
        ({"block_norms": None}, "block_norms is needed"),
    ],
)
def test_best_step_checks_its_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        lt.theory.best_step(**{"delta": 0.2, **REPAIRED, **change})


@pytest.mark.parametrize(
    ("t", "error", "message"),
    [(-1, 1.0, "t must be"), (math.nan, 1.0, "t must be"), (3, -1.0, "error must be")],
)
def test_error_bound_checks_its_arguments(t, error, message):
    with pytest.raises(ValueError, match=message):
        made(0.5, 0.1).error_bound(t, error)
