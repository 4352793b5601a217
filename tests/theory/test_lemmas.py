"""Section 5 of the paper, lemma by lemma, on operators whose TRIP constants are known exactly.

Plain NumPy, written from the paper: ``lowtucker.theory`` is not used. Where the paper is wrong,
this file has a counterexample and the correct statement; docs/theory.md derives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

fixed = settings(derandomize=True, max_examples=15, deadline=None, database=None)
seeds = st.integers(0, 2**16)
SHAPE, RANK = (4, 3, 3), (1, 1, 1)
N = math.prod(SHAPE)
ROUNDING = 1e-10


@dataclass(frozen=True)
class Blocks:
    """Blocks A_{b_i} as matrices of b_i rows, probabilities p(i), and known constants."""

    matrices: tuple[np.ndarray, ...]
    p: np.ndarray
    shape: tuple[int, ...]
    rho_plus: float  # 1 + delta for the rank of U, or just above
    rho_minus: float  # 1 - delta, or just below

    @property
    def A(self):
        return np.concatenate(self.matrices)

    @property
    def weights(self):
        """w_i = b_i / (m p(i)): the paper's 1 / (M p(i)) if all blocks have the same length."""
        return np.array([len(B) for B in self.matrices]) / (len(self.A) * self.p)

    @property
    def norms(self):
        """L_i = ||A_{b_i}||^2 / b_i."""
        return np.array([np.linalg.norm(B, 2) ** 2 / len(B) for B in self.matrices])


def rows_of(factors, rng, extra):
    """Blocks with (1/b) A_b^T A_b = R^T R, mixed by a random rotation, b = len(R) + extra."""
    blocks = []
    for R, more in zip(factors, extra, strict=True):
        b = len(R) + more
        Q = np.linalg.qr(rng.standard_normal((b, len(R))))[0]
        blocks.append(math.sqrt(b) * Q @ R)
    return tuple(blocks)


def probabilities(rng, count):
    return rng.dirichlet(np.full(count, 4.0))


def orthogonal(seed):
    """Every block sqrt(b) times an isometry: delta = 0 and L_i = 1."""
    rng = np.random.default_rng(seed)
    blocks = rows_of([np.eye(N)] * 3, rng, (0, 5, 2))
    return Blocks(blocks, probabilities(rng, 3), SHAPE, 1.0, 1.0)


def diagonal(seed):
    """(1/b_i)||A_{b_i}(X)||^2 = sum_j w_ij X_j^2: tensors with one entry, of rank one, are extreme.

    Some weights are zero, so the blocks have fewer rows than X has entries, and unequal lengths.
    """
    rng = np.random.default_rng(seed)
    w = rng.uniform(0.7, 1.3, (3, N)) * (rng.random((3, N)) < 0.9)
    factors = [np.diag(np.sqrt(row))[row > 0] for row in w]
    blocks = rows_of(factors, rng, (0, 2, 0))
    share = np.array([len(B) for B in blocks]) / sum(len(B) for B in blocks)
    return Blocks(blocks, probabilities(rng, 3), SHAPE, w.max(), (share @ w).min())


def few_rows(seed):
    """Blocks of sqrt(b) times orthonormal rows, m < N: the upper side is 1, the lower unknown."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((N, N)))[0]
    blocks = (math.sqrt(7) * Q[:7], math.sqrt(12) * Q[7:19], math.sqrt(4) * Q[19:23])
    return Blocks(blocks, probabilities(rng, 3), SHAPE, 1.0, 0.0)


def diagonal_sum(shape):
    """t with <t, X> = sum_k X_kk1: at most sqrt(s) ||X|| for rank (s, ., .), as t_(1) = [I 0]."""
    t = np.zeros(shape)
    k = np.arange(min(shape[:2]))
    t[k, k, (0,) * (len(shape) - 2)] = 1
    return t


def traces(delta, shape, s, sign=1.0):
    """R with R^T R = (1 - delta) I + (2 delta / s) t t^T: delta exactly, at first rank s."""
    t = diagonal_sum(shape)
    if sign < 0:  # a different t of the same kind for every block
        t[0] *= -1
    return np.vstack(
        [math.sqrt(1 - delta) * np.eye(t.size), math.sqrt(2 * delta / s) * t.reshape(1, -1)]
    )


def traced(seed, shape=(8, 8, 1), s=3):
    """Large gradients: L_i = 1 - delta + 2 delta n / s is larger than 1 + delta."""
    rng = np.random.default_rng(seed)
    delta = rng.uniform(0.1, 0.6)
    factors = [traces(delta, shape, s), traces(delta, shape, s, sign=-1.0)]
    blocks = rows_of(factors, rng, (0, 9))
    return Blocks(blocks, probabilities(rng, 2), shape, 1 + delta, 1 - delta)


KINDS = {"orthogonal": orthogonal, "diagonal": diagonal, "few_rows": few_rows, "traced": traced}
every_kind = pytest.mark.parametrize("kind", KINDS)


def low_rank(rng, shape, rank=RANK):
    """A tensor of that rank: dense, or with few entries, anywhere or at (k, k, 1)."""
    core = rng.standard_normal(rank)
    style, same = rng.integers(3), rng.permutation(min(shape[:2]))
    for k, (n, r) in enumerate(zip(shape, rank, strict=True)):
        entries = rng.permutation(n) if style else (same if k < 2 else np.arange(n))
        U = np.eye(n)[:, entries[:r]] if style < 2 else rng.standard_normal((n, r))
        core = np.moveaxis(np.tensordot(U, core, axes=(1, k)), 0, k)
    return core


def span(*tensors):
    """Orthonormal basis, as columns, of the span of the tensors."""
    return np.linalg.qr(np.stack([T.ravel() for T in tensors], axis=1))[0]


def gradient(B, y, X):
    """(1/b) sum_j A_j (<A_j, X> - y_j), by a loop over measurements."""
    total = np.zeros(X.size)
    for row, value in zip(B, y, strict=True):
        total += row * (row @ X.ravel() - value)
    return total / len(B)


def instance(kind, seed):
    """Blocks; X', X and a third tensor of rank r; differences of the gradients of the blocks."""
    blocks = KINDS[kind](seed)
    rng = np.random.default_rng(seed + 1)
    X1, X0, X2 = (low_rank(rng, blocks.shape) for _ in range(3))
    differences = []
    for B in blocks.matrices:
        y = rng.standard_normal(len(B))
        differences.append(gradient(B, y, X1) - gradient(B, y, X0))
    return blocks, X1, X0, X2, differences


# ---- properties of the operators


@every_kind
@given(seed=seeds)
@fixed
def test_constants_bound_every_tensor_of_low_rank(kind, seed):
    blocks = KINDS[kind](seed)
    rng = np.random.default_rng(seed + 1)
    X = sum(low_rank(rng, blocks.shape) for _ in range(3)).ravel()
    X /= np.linalg.norm(X)
    assert np.sum((blocks.A @ X) ** 2) / len(blocks.A) >= blocks.rho_minus - ROUNDING
    for B in blocks.matrices:
        assert np.sum((B @ X) ** 2) / len(B) <= blocks.rho_plus + ROUNDING


def test_tensors_with_one_entry_attain_the_constants_of_a_diagonal_operator():
    blocks = diagonal(3)
    whole = np.sum(blocks.A**2, axis=0) / len(blocks.A)
    parts = [np.sum(B**2, axis=0) / len(B) for B in blocks.matrices]
    assert whole.min() == pytest.approx(blocks.rho_minus, abs=ROUNDING)
    assert np.max(parts) == pytest.approx(blocks.rho_plus, abs=ROUNDING)


def test_a_diagonal_of_three_entries_attains_the_constant_of_traces():
    blocks = traced(3)
    X = np.zeros(blocks.shape)
    X[(0, 1, 2), (0, 1, 2), 0] = 1 / math.sqrt(3)  # rank (3, 3, 1)
    B = blocks.matrices[0]
    assert np.sum((B @ X.ravel()) ** 2) / len(B) == pytest.approx(blocks.rho_plus)
    X = np.zeros(blocks.shape)
    X[0, 1, 0] = 1
    assert np.sum((blocks.A @ X.ravel()) ** 2) / len(blocks.A) == pytest.approx(blocks.rho_minus)
    assert (blocks.norms > 1.01 * blocks.rho_plus).all()


@every_kind
@given(seed=seeds)
@fixed
def test_weights_make_unequal_blocks_unbiased(kind, seed):
    blocks, X1, _, _, _ = instance(kind, seed)
    y = np.random.default_rng(seed).standard_normal(len(blocks.A))
    parts = np.split(y, np.cumsum([len(B) for B in blocks.matrices])[:-1])
    terms = zip(blocks.p, blocks.weights, blocks.matrices, parts, strict=True)
    mean = sum(p * w * gradient(B, part, X1) for p, w, B, part in terms)
    np.testing.assert_allclose(mean, gradient(blocks.A, y, X1), rtol=0, atol=1e-9)
    assert blocks.weights.max() >= 1  # their mean is 1, so alpha >= rho+


# ---- Lemma 5.2


@every_kind
@given(seed=seeds)
@fixed
def test_5_5_strong_convexity(kind, seed):
    blocks, X1, X0, _, differences = instance(kind, seed)
    D = (X1 - X0).ravel()
    change = sum(p * w * g for p, w, g in zip(blocks.p, blocks.weights, differences, strict=True))
    assert D @ change >= blocks.rho_minus * (D @ D) * (1 - ROUNDING) - ROUNDING


def test_5_6_as_printed_is_false():
    """One block, X' = e1 o e1 o e1, X = 0, delta = 1/2 for rank one: 4.153 > 2 (1 + delta) = 3."""
    n, delta = 16, 0.5
    R = traces(delta, (n, n, 2), 1)
    A = math.sqrt(len(R)) * R
    X = np.zeros((n, n, 2))
    X[0, 0, 0] = 1
    y = A @ X.ravel()
    change = gradient(A, y, X) - gradient(A, y, 0 * X)
    # entries: 1 + delta at (1, 1, 1), 2 delta at the other (k, k, 1)
    assert np.linalg.norm(change) == pytest.approx(math.sqrt(1.5**2 + 15))
    assert np.linalg.norm(change) > 1.38 * 2 * (1 + delta)
    # and so is (5.4), which depends on it, with rho+ = alpha = 3, rho- = 1/2, mu = 1/alpha
    mu, rho = 1 / 3, 3.0
    left = np.linalg.norm(X.ravel() - mu * change)
    assert left > 1.07 * math.sqrt(1 + mu**2 * rho * rho - 2 * mu * (1 - delta))
    # delta is as claimed, for (sum_k x_k y_k z_1)^2 <= 1
    rng = np.random.default_rng(0)
    for _ in range(200):
        Z = low_rank(rng, X.shape)
        q = np.sum((A @ Z.ravel()) ** 2) / len(A) / np.sum(Z**2)
        assert 1 - delta - ROUNDING <= q <= 1 + delta + ROUNDING
    assert np.sum((A @ X.ravel()) ** 2) / len(A) == pytest.approx(1 + delta)


@every_kind
@given(seed=seeds)
@fixed
def test_5_6_repaired(kind, seed):
    blocks, X1, X0, X2, differences = instance(kind, seed)
    distance, U = np.linalg.norm(X1 - X0), span(X1, X0, X2)
    for g, L in zip(differences, blocks.norms, strict=True):
        whole, projected = np.linalg.norm(g), np.linalg.norm(U.T @ g)
        assert whole <= math.sqrt(L * blocks.rho_plus) * distance + ROUNDING
        assert projected <= blocks.rho_plus * distance + ROUNDING


def test_5_6_repaired_is_sharp():
    """A block of the single row t: ||t|| <t, X> = sqrt(L (1 + delta)) ||X|| with 1 + delta = 1."""
    t = diagonal_sum((9, 9, 1)).reshape(1, -1)
    X = np.zeros((9, 9, 1))
    X[0, 0, 0] = 1
    assert np.linalg.norm(t, 2) ** 2 == pytest.approx(9)
    assert np.linalg.norm(gradient(t, np.zeros(1), X)) == pytest.approx(math.sqrt(9 * 1))


# ---- Lemma 5.3


@every_kind
@given(seed=seeds)
@fixed
def test_5_8_co_coercivity_with_one_plus_delta(kind, seed):
    blocks, X1, X0, X2, differences = instance(kind, seed)
    D, U = (X1 - X0).ravel(), span(X1, X0, X2)
    for g in differences:
        assert np.sum((U.T @ g) ** 2) <= blocks.rho_plus * (D @ g) + ROUNDING


@given(seed=seeds)
@fixed
def test_5_8_holds_with_the_norm_on_u_for_any_operator(seed):
    """It uses only the largest (1/b)||A_b(X)||^2 / ||X||^2 in U."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((rng.integers(1, 30), N))
    X1, X0, X2 = (low_rank(rng, SHAPE) for _ in range(3))
    D, U = (X1 - X0).ravel(), span(X1, X0, X2)
    rho = np.linalg.norm(B @ U, 2) ** 2 / len(B)
    g = B.T @ (B @ D) / len(B)
    assert np.sum((U.T @ g) ** 2) <= rho * (D @ g) * (1 + ROUNDING)


def test_5_8_is_sharp():
    """At the entry of largest weight, 1 + delta is attained."""
    blocks = diagonal(3)
    squares = [np.sum(B**2, axis=0) / len(B) for B in blocks.matrices]
    i, j = np.unravel_index(np.argmax(squares), (3, N))
    X = np.eye(N)[j].reshape(SHAPE)
    g = gradient(blocks.matrices[i], np.zeros(len(blocks.matrices[i])), X)
    assert g[j] ** 2 == pytest.approx(blocks.rho_plus * g[j])


# ---- Lemma 5.1


def radicand(mu, largest, blocks):
    """1 + (mu^2 alpha - 2 mu) q: q = rho- if the bracket is negative, otherwise rho+."""
    slope = mu**2 * largest - 2 * mu
    return 1 + slope * (blocks.rho_minus if slope <= 0 else blocks.rho_plus)


steps = st.floats(0.01, 4.0)


@every_kind
@given(seed=seeds, mu=steps)
@fixed
def test_5_3_with_the_projection(kind, seed, mu):
    """U differs from block to block, as U^t does through X^{t+1}; X' - X is in all of them."""
    blocks, X1, X0, _, differences = instance(kind, seed)
    rng = np.random.default_rng(seed + 2)
    D, squares = (X1 - X0).ravel(), []
    for w, g in zip(blocks.weights, differences, strict=True):
        U = span(X1, X0, low_rank(rng, blocks.shape))
        squares.append(np.sum((D - mu * w * U @ (U.T @ g)) ** 2))
    bound = radicand(mu, blocks.weights.max() * blocks.rho_plus, blocks) * (D @ D)
    assert blocks.p @ np.array(squares) <= bound + ROUNDING * (1 + bound)
    assert blocks.p @ np.sqrt(squares) <= math.sqrt(bound) + ROUNDING * (1 + bound)


@every_kind
@given(seed=seeds, mu=steps)
@fixed
def test_5_4_repaired_without_the_projection(kind, seed, mu):
    blocks, X1, X0, _, differences = instance(kind, seed)
    D = (X1 - X0).ravel()
    pairs = zip(blocks.weights, differences, strict=True)
    squares = [np.sum((D - mu * w * g) ** 2) for w, g in pairs]
    bound = radicand(mu, np.max(blocks.weights * blocks.norms), blocks) * (D @ D)
    assert blocks.p @ np.array(squares) <= bound + ROUNDING * (1 + bound)
    assert blocks.p @ np.sqrt(squares) <= math.sqrt(bound) + ROUNDING * (1 + bound)


@pytest.mark.parametrize("mu", [0.2, 1 / 1.25, 1.5, 1.7, 3.0])
def test_both_radicands_are_sharp(mu):
    """Blocks that measure an entry with weight 1 + delta or not at all.

    Five blocks, delta = 1/4: entry 0 is measured by three, (3/5)(5/4) = 3/4 = 1 - delta, entry 1
    by all. Entry 0 attains the bound on the mean square if mu alpha <= 2 (mu <= 1.6), else entry 1.
    """
    w = np.full((5, 2), 1.25)
    w[3:, 0] = 0
    blocks = Blocks((), np.full(5, 0.2), (2,), 1.25, 0.75)
    squares = np.mean((1 - mu * w) ** 2, axis=0)
    assert squares[0 if mu * 1.25 <= 2 else 1] == pytest.approx(radicand(mu, 1.25, blocks))
    assert squares.max() <= radicand(mu, 1.25, blocks) + ROUNDING


# ---- the chain of inequalities in the proof of the theorem


@given(u=st.floats(0, 1e3), v=st.floats(0, 1e3), x=st.floats(0, 1e4))
@fixed
def test_quadratic_inequality(u, v, x):
    root = u + math.sqrt(u * u + v)  # the largest x with x^2 - 2 u x - v <= 0
    assert root <= 2 * u + math.sqrt(v) + ROUNDING * (1 + u + v)
    if x * x - 2 * u * x - v <= 0:
        assert x <= root * (1 + ROUNDING) + ROUNDING


def hosvd(Z, rank):
    """Truncated HOSVD by plain singular value decompositions."""
    X = Z
    for k, r in enumerate(rank):
        unfolding = np.moveaxis(Z, k, 0).reshape(Z.shape[k], -1)
        U = np.linalg.svd(unfolding, full_matrices=False)[0][:, :r]
        X = np.moveaxis(np.tensordot(U @ U.T, X, axes=(1, k)), 0, k)
    return X


@pytest.mark.parametrize("shape", [(4, 3, 3), (5, 6), (3, 2, 3, 2)])
@given(seed=seeds, noise=st.floats(0.0, 3.0))
@fixed
def test_chain_from_3_6_to_the_error_of_a_step(shape, seed, noise):
    """(3.6) with eta = sqrt(d), and 1 for matrices, then both displays after it."""
    rng = np.random.default_rng(seed)
    rank = tuple(min(2, n) for n in shape)
    X_true = low_rank(rng, shape, rank)
    Z = X_true + noise * rng.standard_normal(shape)
    X = hosvd(Z, rank)
    square = len(shape) if len(shape) > 2 else 1  # eta^2
    x, u = np.linalg.norm(X - X_true), np.linalg.norm(Z - X_true)
    assert np.linalg.norm(X - Z) <= math.sqrt(square) * u + ROUNDING
    inner = np.sum((X - X_true) * (Z - X_true))
    assert x**2 <= 2 * inner + (square - 1) * u**2 + ROUNDING
    U = span(X, X_true, low_rank(rng, shape, rank))
    projected = np.linalg.norm(U.T @ (Z - X_true).ravel())
    assert x**2 <= 2 * x * projected + (square - 1) * u**2 + ROUNDING
    assert x <= 2 * projected + math.sqrt(square - 1) * u + ROUNDING


@given(seed=seeds)
@fixed
def test_projections_of_the_noise_are_bounded_for_any_subspace(seed):
    """||P_U g||^2 is at most the energy of the 3 r_k largest singular values of g_(k), each k."""
    rng = np.random.default_rng(seed)
    shape, rank = (7, 5, 6), (2, 1, 1)
    g = rng.standard_normal(shape)
    # three tensors close to g: its truncation, and truncations of the remainder
    first = hosvd(g, rank)
    second = hosvd(g - first, rank)
    U = span(first, second, hosvd(g - first - second, rank))
    projected = np.linalg.norm(U.T @ g.ravel())
    for k, r in enumerate(rank):
        unfolding = np.moveaxis(g, k, 0).reshape(shape[k], -1)
        values = np.linalg.svd(unfolding, compute_uv=False)[: 3 * r]
        assert projected <= np.linalg.norm(values) + ROUNDING
