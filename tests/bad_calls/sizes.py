"""Calls with absurd sizes, by name: every public function that takes one.

Each must be refused at once, by a message of the package, before memory is taken: in
tests/robustness/test_memory.py, in a process with little memory. Those of FINE need little.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array

import lowtucker as lt
from lowtucker import theory
from lowtucker.estimators import TuckerImputer, TuckerRegressor

SHAPE, ONE = (2, 2, 2), (1, 1, 1)
HUGE = 10**12
LONG, WIDE, CUBE = (HUGE, 2, 2), (10**5,) * 3, (2**31,) * 3
CORNERS = [[0, 0, 0], [1, 1, 1]]
A = lt.gaussian(SHAPE, 30, seed=1)
X = lt.random_tucker(SHAPE, ONE, seed=0)
Y = A.forward(X)
WIDE_X = lt.random_tucker(WIDE, ONE)
WIDE_A = lt.entries(WIDE, CORNERS)
FUNCTION = lt.FunctionOperator(lambda X: np.ones(3), lambda v: v, WIDE, 3)
FORMATS = [
    lt.HOSVD(ONE), lt.TensorTrain((1, 1)), lt.HierarchicalTucker(1), lt.Tubal(1), lt.Sparse(2),
    lt.RowSparse(2),
]  # fmt: skip


def complete(shape, rank=ONE):
    return lt.complete([1.0, 2.0], rank, indices=CORNERS, shape=shape)


def drawn(H, **sizes):
    return lambda: lt.random_tensor(H, **sizes)


def of_format(H):
    """A format's tensor of so wide a shape, without the full one."""
    ones = [np.ones((1, n, 1)) for n in WIDE]
    if isinstance(H, lt.TensorTrain):
        return lt.TTTensor(tuple(ones[:-1]), ones[-1])
    return lt.SparseTensor(np.ones(2), np.array([0, 1]), WIDE)


REFUSED = {
    "complete, cube": lambda: complete(CUBE),
    "complete, long": lambda: complete(LONG),
    "complete, long, no rank": lambda: complete(LONG, None),
    "complete, 2^28": lambda: complete((2**28, 2**20, 2)),
    "complete, a format": lambda: complete(WIDE, lt.TensorTrain((2, 2))),
    "entries": lambda: lt.entries(CUBE, CORNERS),
    "entries, long": lambda: lt.entries(LONG, CORNERS),
    "gaussian, m": lambda: lt.gaussian(SHAPE, HUGE),
    "gaussian, shape": lambda: lt.gaussian(LONG, 3),
    "gaussian, trials": lambda: lt.gaussian(SHAPE, 3, trials=HUGE),
    "gaussian, complex": lambda: lt.gaussian(SHAPE, 30, trials=10**8, dtype=np.complex64),
    "seeded_gaussian, m": lambda: lt.seeded_gaussian(SHAPE, HUGE).forward(X),
    "seeded_gaussian, wide": lambda: lt.seeded_gaussian(WIDE, 3).forward(WIDE_X),
    "seeded_gaussian, cube": lambda: lt.seeded_gaussian(CUBE, 3),
    "random_tucker, shape": lambda: lt.random_tucker(LONG, ONE),
    "random_tucker, rank": lambda: lt.random_tucker(WIDE, WIDE),
    "random_tucker, trials": lambda: lt.random_tucker(SHAPE, ONE, trials=HUGE),
    "random_tucker, many": lambda: lt.random_tucker(SHAPE, ONE, trials=10**8),
    "random_tucker, modes": lambda: lt.random_tucker((1,) * 70, (1,) * 70),
    **{f"random_tensor, {H!r}": drawn(H, shape=LONG) for H in FORMATS},
    **{f"random_tensor, {H!r}, trials": drawn(H, shape=SHAPE, trials=HUGE) for H in FORMATS},
    "transform, m": lambda: lt.subsampled_transform(SHAPE, HUGE),
    "transform, m of many": lambda: lt.subsampled_transform((10**4,) * 3, 10**11, signs=False),
    "transform, shape": lambda: lt.subsampled_transform(LONG, 3),
    "transform, fft": lambda: lt.subsampled_transform(WIDE, 3, "fft"),
    "kronecker": lambda: lt.kronecker([np.ones((10**4, 2))] * 3).forward(X),
    "full": WIDE_X.full,
    "full, train": lambda: of_format(lt.TensorTrain(1)).full(),
    "full, sparse": lambda: of_format(lt.Sparse(2)).full(),
    "adjoint": lambda: WIDE_A.adjoint(np.ones(2)),
    "adjoint, rank-one": lambda: lt.rank_one([np.ones((3, 10**5))] * 3).adjoint(np.ones(3)),
    "check_adjoint": lambda: lt.check_adjoint(WIDE_A),
    "check_restriction": lambda: lt.check_restriction(WIDE_A),
    "operator_norm": lambda: lt.operator_norm(WIDE_A),
    "recover": lambda: lt.recover(FUNCTION, np.ones(3), ONE),
    "recover, no rank": lambda: lt.recover(FUNCTION, np.ones(3)),
    "recover, tiht": lambda: lt.recover(WIDE_A, np.ones(2), ONE, solver="tiht"),
    "recover, shape": lambda: lt.recover(A.matrix, Y, ONE, shape=LONG),
    "recover, blocks": lambda: lt.recover(A, Y, ONE, solver=lt.StoTIHT(block_size=HUGE)),
    "recover, search": lambda: lt.recover(A, Y, lt.RankSearch(max=(HUGE,) * 3)),
    "recover, long": lambda: lt.recover(lt.seeded_gaussian(LONG, 3), np.ones(3), ONE),
    "compose": lambda: lt.compose(A, lt.seeded_gaussian(LONG, 8)),
    "to_scipy": lambda: lt.to_scipy(WIDE_A),
    "iterate": lambda: next(lt.iterate(lt.Problem(WIDE_A, np.ones(2)), "tiht", ONE)),
    "Online": lambda: lt.Online(LONG, ONE),
    "Online, wide": lambda: lt.Online(WIDE, ONE),
    "fold": lambda: lt.fold(np.ones((2, 2)), 0, LONG),
    "SparseOperator": lambda: lt.as_operator(coo_array((HUGE, 8)), SHAPE),
    "DenseOperator": lambda: lt.DenseOperator(np.ones((2, 8)), LONG),
    "trip, starts": lambda: theory.trip(A, ONE, starts=HUGE),
    "trip, samples": lambda: theory.trip(A, ONE, samples=HUGE),
    "trip, wide": lambda: theory.trip(FUNCTION, ONE),
    "eta": lambda: theory.eta(lt.HOSVD(ONE), np.ones(SHAPE), starts=HUGE),
    "phase_transition, trials": lambda: theory.phase_transition("gaussian", SHAPE, ONE,
                                                                trials=HUGE),
    "phase_transition, m": lambda: theory.phase_transition("gaussian", SHAPE, ONE,
                                                           measurements=[HUGE]),
    "phase_transition, shape": lambda: theory.phase_transition("gaussian", LONG, ONE,
                                                               measurements=[9]),
    "plan": lambda: theory.plan(SHAPE, ONE, trials=HUGE),
    "plan, workers": lambda: theory.plan(SHAPE, ONE, trials=1, workers=HUGE),
    "TuckerRegressor": lambda: TuckerRegressor(rank=ONE, tensor_shape=LONG).fit(
        np.ones((5, 8)), np.ones(5)
    ),
    "TuckerImputer": lambda: TuckerImputer(rank=ONE, tensor_shape=LONG).fit(np.ones((5, 8))),
}  # fmt: skip
FINE = {
    "recover, epochs": lambda: lt.recover(A, Y, ONE, max_epochs=HUGE),
    "recover, starts": lambda: lt.recover(A, Y, ONE, solver=lt.RGN(starts=HUGE)),
    "RandomRows": lambda: lt.RandomRows(block_size=HUGE),
    "degrees_of_freedom": lambda: lt.degrees_of_freedom(LONG, ONE),
    "seeded_gaussian": lambda: lt.seeded_gaussian(LONG, HUGE),
    "transform": lambda: lt.subsampled_transform(WIDE, 3, signs=False),
    "sample_complexity": lambda: theory.sample_complexity(LONG, ONE, 0.1),
    "spectra": lambda: lt.spectra(WIDE_X),
    "entries of a tensor": lambda: WIDE_X.entries(CORNERS),
}
