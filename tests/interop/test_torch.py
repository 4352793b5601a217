"""torch tensors: on their device, in their precision, and without a record of gradients."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

torch = pytest.importorskip("torch", reason="torch is not installed: .ci/run installs it")

SHAPE, RANK, M = (6, 5, 4), (2, 2, 1), 100
X_TRUE = lt.random_tucker(SHAPE, RANK, seed=0)
SOLVERS = ["auto", "tiht", "stotiht", "rsgd", "rgn", "rcg"]
DTYPES = ["float32", "complex128"]


def measured(dtype="float64"):
    """Rows and measurements as torch tensors."""
    A = lt.gaussian(SHAPE, M, seed=1)
    rows, y = A.matrix.reshape(M, *SHAPE), A.forward(X_TRUE)
    if dtype[0] == "c":
        rows, y = (1 + 1j) * rows, (1 + 1j) * y
    return torch.asarray(rows.astype(dtype)), torch.asarray(y.astype(dtype))


@pytest.fixture
def elsewhere():
    """Make the default device one that holds no numbers.

    Arrays that are not created on the device of the input cannot be used: a stand-in for a machine
    with a GPU, where the default device is not the one of the tensors.
    """
    with torch.device("meta"):
        assert torch.zeros(1).is_meta
        assert torch.asarray(np.zeros(1)).is_meta
        yield


@pytest.mark.parametrize(
    ("solver", "dtype"), [*((name, "float64") for name in SOLVERS), *(("auto", d) for d in DTYPES)]
)
def test_recover_works_on_the_device_of_its_input(elsewhere, solver, dtype):
    with torch.device("cpu"):
        rows, y = measured(dtype)
    result = lt.recover(rows, y, RANK, solver=solver, tol=1e-4)
    assert result.success
    for part in (result.X.core, *result.X.factors, result.X.full()):
        assert part.device.type == "cpu"
        assert part.dtype == rows.dtype
    assert lt.metrics.relative_error(result.X.full().cpu().numpy(), X_TRUE) < 1e-2


OPTIONS = {
    "weights": lambda: {"weights": torch.ones(M, dtype=torch.float64)},
    "huber": lambda: {"loss": "huber"},
    "noise": lambda: {"noise_std": 1e-3},
    "rank": lambda: {"rank": "auto"},
    "matrix": lambda: {"shape": SHAPE},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_recover_works_on_the_device_with_every_option(elsewhere, name):
    with torch.device("cpu"):
        rows, y = measured()
        options = {"rank": RANK} | OPTIONS[name]()
    rows = rows.reshape(M, -1) if name == "matrix" else rows
    result = lt.recover(rows, y, **options)
    assert result.success
    assert result.X.core.device.type == "cpu"


def vectors(*lengths):
    rng = np.random.default_rng(2)
    return [torch.asarray(rng.standard_normal((60, n)), device="cpu") for n in lengths]


OPERATORS = {
    "rank one": lambda: lt.rank_one(vectors(*SHAPE)),
    "kronecker": lambda: lt.kronecker([F[:7] for F in vectors(*SHAPE)]),
    "stack": lambda: lt.stack([lt.as_operator(measured()[0]), lt.rank_one(vectors(*SHAPE))]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_structure_stay_on_their_device(elsewhere, name):
    with torch.device("cpu"):
        A = OPERATORS[name]()
        X = lt.hosvd(torch.asarray(X_TRUE.full()), RANK)
    assert A.row_norms().device.type == "cpu"
    result = lt.recover(A, A.forward(X), RANK)
    assert result.X.core.device.type == "cpu"
    assert lt.metrics.relative_error(result.X, X) < 1e-4


def test_a_start_with_fewer_rows_than_its_rank_stays_on_its_device(elsewhere):
    A = lt.kronecker([F[:1] for F in vectors(*SHAPE)])
    start = A.spectral_start(torch.ones(1, dtype=torch.float64, device="cpu"), RANK)
    assert start.rank == RANK
    assert start.core.device.type == "cpu"
    assert float(start.norm()) > 0


ALGEBRA = {
    "hosvd": lambda X: lt.hosvd(X, (6, 3, 2)).full(),
    "sthosvd": lambda X: lt.sthosvd(X, RANK).full(),
    "hooi": lambda X: lt.hooi(X, RANK).full(),
    "sum": lambda X: (lt.hosvd(X, RANK) + 2 * lt.hosvd(X, RANK)).full(),
    "compress": lambda X: lt.hosvd(X, (3, 3, 3)).compress().full(),
    "entries": lambda X: lt.hosvd(X, RANK).entries([[0, 1, 2], [3, 2, 1]]),
    "tangent": lambda X: lt.TangentSpace(lt.hosvd(X, RANK)).coordinates(X),
    "from_tensorly": lambda X: lt.TuckerTensor.from_tensorly((X, [
        torch.eye(n, dtype=X.dtype, device=X.device) for n in SHAPE])).full(),
}  # fmt: skip


@pytest.mark.parametrize("name", ALGEBRA)
def test_the_algebra_of_tensors_stays_on_the_device(elsewhere, name):
    X = torch.asarray(X_TRUE.full(), device="cpu")
    made = ALGEBRA[name](X)
    assert made.device.type == "cpu"
    assert bool(torch.isfinite(made).all())


def test_a_batch_of_problems_stays_on_its_device(elsewhere):
    with torch.device("cpu"):
        rows, y = measured()
        A = lt.DenseOperator(torch.stack([rows, 2 * rows]).reshape(2, M, -1), SHAPE)
        problem = lt.Problem(A, torch.stack([y, y]))
    result = lt.solve(problem, lt.TIHT(), RANK)
    assert list(result.success) == [True, True]
    assert result.X.core.device.type == "cpu"


def test_the_stand_in_detects_arrays_on_another_device(elsewhere):
    with torch.device("cpu"):
        rows, _ = measured()
    with pytest.raises((RuntimeError, NotImplementedError)):
        float(torch.sum(rows) + torch.ones(1)[0])


@pytest.mark.parametrize(
    ("solver", "which"), [*((name, "rows") for name in SOLVERS), ("auto", "y"), ("tiht", "y")]
)
def test_a_run_records_no_gradients(solver, which):
    rows, y = measured()
    expected = lt.recover(rows, y, RANK, solver=solver)
    tracked = {"rows": rows.clone(), "y": y.clone()}
    tracked[which].requires_grad_()
    result = lt.recover(tracked["rows"], tracked["y"], RANK, solver=solver)
    for part, wanted in zip(
        (result.X.core, *result.X.factors), (expected.X.core, *expected.X.factors), strict=True
    ):
        assert not part.requires_grad
        assert torch.equal(part, wanted)
    assert tracked[which].requires_grad
    assert tracked[which].grad is None
    assert torch.is_grad_enabled()


def test_a_failed_run_leaves_gradients_enabled():
    rows, y = measured()

    def broken(progress):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        lt.recover(rows, y, RANK, callbacks=[broken])
    assert torch.is_grad_enabled()


def test_a_measurement_can_be_differentiated():
    """Gradients are disabled during runs only: d/dX of |A(X)|^2 / 2 is A*(A(X))."""
    rows, _ = measured()
    A = lt.as_operator(rows)
    X = torch.asarray(X_TRUE.full()).requires_grad_()
    (0.5 * torch.sum(A.forward(X) ** 2)).backward()
    with torch.no_grad():
        torch.testing.assert_close(X.grad, A.adjoint(A.forward(X)))
    assert lt.unfold(X, 1).requires_grad


BAD = {
    "meta": (
        lambda rows, y: (rows.to("meta"), y),
        r"A must hold numbers.*meta.*cpu or cuda",
    ),
    "meta y": (lambda rows, y: (rows, y.to("meta")), "y must hold numbers"),
    "sparse": (lambda rows, y: (rows.to_sparse(), y), r"A must be a dense.*sparse_coo.*to_dense"),
    "numpy y": (
        lambda rows, y: (rows, y.numpy()),
        r"y is a NumPy array.*holds torch on cpu",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_tensors_are_refused(name):
    change, message = BAD[name]
    with pytest.raises(TypeError, match=message):
        lt.recover(*change(*measured()), RANK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_completion_of_a_tensor(dtype):
    holes = np.random.default_rng(0).random(X_TRUE.shape) < 0.3
    given = torch.asarray(np.where(holes, np.nan, X_TRUE.full())).to(dtype)
    result = lt.complete(given, RANK)
    assert {x.dtype for x in result.X.parts().values()} == {dtype}
    filled = result.filled()
    assert isinstance(filled, torch.Tensor)
    assert (filled.dtype, filled.device) == (dtype, given.device)
    hidden = torch.asarray(holes)
    assert torch.equal(filled[~hidden], given[~hidden])
    assert torch.equal(filled[hidden], result.X.full()[hidden])
    expected = lt.complete(given.numpy(), RANK)
    for name, part in expected.X.parts().items():  # torch rounds the product of these otherwise
        np.testing.assert_array_equal(result.X.parts()[name].numpy(), part)
    assert torch.isnan(given).sum() == holes.sum()  # unchanged
    ends = result.interval([[0, 0, 0]], level=0.8)
    assert all(isinstance(end, np.ndarray) for end in ends)
    assert ends[0].real < ends[1].real


def test_completion_of_tensors_that_are_not_plain():
    integers = torch.arange(20).reshape(4, 5) + 1
    assert lt.complete(integers, (2, 2)).filled().dtype == torch.float64
    tracked = torch.ones(3, 3, requires_grad=True)
    assert not lt.complete(tracked, 1).filled().requires_grad
    with pytest.raises(TypeError, match="values must be a dense torch tensor"):
        lt.complete(torch.eye(3).to_sparse(), 1)
