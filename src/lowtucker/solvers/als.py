"""ALS: alternating least squares, for sampled entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from lowtucker._array import all_finite, eps, real_dtype
from lowtucker._array.clock import check_time
from lowtucker._array.linalg import qr, solve
from lowtucker._array.readings import read, side_by_side
from lowtucker.operators.factored import face_splitting, row_chunks
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.costs import ITERATIONS, LARGE_CORE
from lowtucker.solvers.escape import Patient, after_steps
from lowtucker.solvers.manifold import Manifold, blown_up
from lowtucker.tensor.products import product
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import unfolded

__all__ = ["ALS"]

NumPyArray = np.ndarray[Any, Any]
# Damping of the rows' equations, times the square of the relative residual
DAMPING = 0.3


@dataclass(frozen=True)
class Sweep(Patient):
    """Relative residual before the last step of the core, 0 if not known; and when to escape."""

    level: Any


@dataclass(frozen=True, repr=False, kw_only=True)
class ALS(Manifold):
    r"""Alternating least squares for sampled entries: factor after factor, then the core.

    With all factors but :math:`U_k` fixed, sample s of slice i is a product of row i with a known
    vector,

    .. math:: X_{i_1 \dots i_d} = \langle u_i, z_s \rangle, \quad
        z_s = S_{(k)} \bigotimes_{j \ne k} U_j[i_j, :]

    so that every row of :math:`U_k` has normal equations of its own, of size :math:`r_k`:
    :math:`\sum_s w_s \bar z_s z_s^T u_i = \sum_s w_s y_s \bar z_s` over the samples of its slice.
    A QR decomposition makes the factor orthonormal; what it takes out goes into the core. After
    all modes the core is fitted to all samples. The residual never grows.

    Rows are held back to where they were by :math:`0.3 \rho^2 s \|u_i - u_i^{old}\|^2`, with s the
    mean of the diagonals and :math:`\rho` the relative residual: slices with few samples must not
    run away while the other factors are poor. With 4 samples per degree of freedom, 19 of 30
    tensors were found so that without it were 11.

    Where a sweep lowers the residual by less than 10 %, a step along the gradient follows, which
    finds the directions that a saddle point misses (``lowtucker.solvers.escape``).

    It needs far less than a good start: where samples are few and the ranks unequal, Gauss-Newton
    steps from the same start end in local minima. Near the end it is linear, not quadratic.

    Notes
    -----
    A step is a sweep over all modes and the core: d + 1 passes, O(m prod r_k) flops each, and
    O(m (prod r_k)^2) for the core; an attempt to leave a plateau takes 4 or 18 more. Memory:
    d m integers to sort the samples by, and :math:`\sum n_k r_k^2` numbers. Neither the tensor nor
    dof x dof numbers are made.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((40, 30, 20), (4, 2, 2), seed=0)
    >>> known = np.argwhere(np.random.default_rng(0).random((40, 30, 20)) < 0.05)
    >>> A = lt.entries((40, 30, 20), known)
    >>> lt.recover(A, X_true.entries(known), (4, 2, 2), solver="als").success
    True
    """

    _memory: ClassVar[type[Memory]] = Sweep

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Settle the rank; refuse what is not sampled entries, possibly scaled or stacked."""
        if problem.A.trial(0).entry_samples() is None:
            raise TypeError(
                f"ALS is for sampled entries, lowtucker.entries(shape, indices), got a "
                f'{type(problem.A).__name__}. Try solver="auto", or "rcg".'
            )
        return super().bind(problem, rank)

    def memory_estimate(self, problem: Problem, rank: tuple[int, ...]) -> int:
        """Count what every solver has, the orders of the samples, and the rows' equations."""
        rows = sum(n * r**2 for n, r in zip(problem.shape, rank, strict=True))
        return super().memory_estimate(problem, rank) + len(rank) * problem.m + rows

    def is_stuck(self, state: State) -> Any:
        """Whether it is at a minimum whose residual is not zero, for every problem."""
        return state.memory.stuck if isinstance(state.memory, Patient) else False

    def _first_memory(self, X: TuckerTensor, levels: Any) -> Memory:
        level = np.asarray(levels, dtype=real_dtype(X.core))
        return Sweep(**vars(Patient.of(len(levels))), level=level)

    def advance(self, bound: Bound, state: State) -> State:
        """One sweep: the samples are read once for every mode and the core.

        The problems of a batch one after the other.
        """
        problem, count = bound.problem, len(state.trials)
        before, now = np.asarray(state.memory.level), np.zeros(count)
        swept, broken = [], np.zeros(count, dtype=bool)
        for k in side_by_side(range(count)):
            samples = problem.trial(k).as_entries
            assert samples is not None  # bind refuses others
            damping = DAMPING * min(1.0, float(before[k])) ** 2
            X, now[k] = _swept(samples, state.X.trial(k), damping)
            broken[k] = X is None
            swept.append((state.X.trial(k) if X is None else X).batched())
        X = TuckerTensor.concat(swept)
        memory, escapes = after_steps(state.memory, (before, now), problem, X, going=~broken)
        memory = replace(memory, level=np.where(broken, before, now).astype(before.dtype))
        for k, found in enumerate(escapes):
            if found is not None:
                X = X.put([k], found.batched())
        after = replace(state, X=X, t=state.t + 1, memory=memory)
        return blown_up(replace(after, t=state.t), broken) if broken.any() else after


def _swept(samples: Problem, X: TuckerTensor, damping: float) -> tuple[TuckerTensor | None, float]:
    """Tensor after a sweep, None where it is not finite; and its residual before the core's step.

    That residual is relative.
    """
    core, factors = X.core, list(X.factors)
    for k in range(len(factors)):
        rows = _rows_of_factor(samples, core, factors, k, damping)
        if not all_finite(rows):
            return None, 0.0
        factors[k], R = qr(rows)
        core = product(core[None, ...], R, k, 1)[0]
    step, left = _step_of_core(samples, core, factors)
    core = core + step
    if not all_finite(core):
        return None, 0.0
    return TuckerTensor.trusted(core, factors), left / (float(samples.y_norm) or 1.0)


def _rows_of_factor(
    problem: Problem, core: NumPyArray, factors: list[NumPyArray], k: int, damping: float
) -> NumPyArray:
    """Factor k that fits the samples best while the others stay: (n_k, r_k).

    Rows without samples are left as they were; the start has zeros there.
    """
    A: Any = problem.A
    n, r = factors[k].shape
    mixing = unfolded(core, k, 0).T
    order = A.sorted_by(k)
    gram = np.zeros((n, r, r), dtype=core.dtype)
    right = np.zeros((n, r), dtype=core.dtype)
    read(problem.m)
    for part in row_chunks(problem.m, core.size):
        check_time()
        some = order[part]
        index = A.indices[some]
        others = [U[index[:, j]] for j, U in enumerate(factors) if j != k]
        Z = face_splitting(others) @ mixing if others else np.repeat(mixing, len(some), axis=0)
        weighted = Z.conj()
        if problem.weights is not None:
            weighted = weighted * problem.weights[some, None]
        products = (weighted[:, :, None] * Z[:, None, :]).reshape(len(some), r * r)
        slices = index[:, k]  # in order: every slice is a run
        runs = np.flatnonzero(np.r_[True, slices[1:] != slices[:-1]])
        where = slices[runs]
        gram[where] += np.add.reduceat(products, runs, axis=0).reshape(-1, r, r)
        right[where] += np.add.reduceat(weighted * problem.y[some, None], runs, axis=0)
    diagonal = np.einsum("irr->ir", gram)  # a view
    # a core of zeros sees nothing: the rows stay
    held = max(damping, 100 * eps(problem.y)) * float(diagonal.real.mean()) or 1.0
    diagonal += held
    right += held * factors[k]
    solution: NumPyArray = solve(gram, right[:, :, None])[:, :, 0]
    return solution


def _step_of_core(
    problem: Problem, core: NumPyArray, factors: list[NumPyArray]
) -> tuple[NumPyArray, float]:
    """Least-squares correction of the core, and the norm of the residual before it."""
    A: Any = problem.A

    def chunks() -> Any:
        read(problem.m)
        for part in row_chunks(problem.m, core.size):
            check_time()
            F = face_splitting([U[A.indices[part, j]] for j, U in enumerate(factors)])
            yield part, F, F if problem.weights is None else problem.weights[part, None] * F

    flat, by_gram = core.reshape(-1), core.size <= LARGE_CORE
    gram = np.zeros((core.size, core.size) if by_gram else (0, 0), dtype=core.dtype)
    right = np.zeros_like(flat)
    residual = np.empty_like(problem.y)
    for part, F, weighted in chunks():
        if by_gram:
            gram += F.conj().T @ weighted
        residual[part] = problem.y[part] - F @ flat
        right += weighted.conj().T @ residual[part]
    left = float(problem.weighted_norm(residual))
    if by_gram:
        unit = 100 * eps(problem.y) * float(np.trace(gram).real / core.size) or 1.0
        step = solve(gram + unit * np.eye(core.size), right)
        return step.reshape(core.shape), left
    from scipy.sparse.linalg import LinearOperator, cg

    def times(c: NumPyArray) -> NumPyArray:
        return np.asarray(sum(weighted.conj().T @ (F @ c) for _, F, weighted in chunks()))

    operator = LinearOperator((core.size, core.size), matvec=times, dtype=core.dtype)
    step = np.asarray(cg(operator, right, rtol=1e-3, maxiter=ITERATIONS)[0])
    return step.reshape(core.shape), left
