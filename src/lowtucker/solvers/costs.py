"""What solvers cost where rows are outer products, and how many steps they take.

The model behind ``solver="auto"``: seconds of a step are a sum of a few terms, with coefficients
that ``lowtucker bench costs`` measures. Machines differ by factors, which are much the same for
all solvers; it is the ratios that decide.
"""

from __future__ import annotations

from lowtucker._array import size
from lowtucker.problem import Problem
from lowtucker.tensor.rank import degrees_of_freedom

__all__ = [
    "COEFFICIENTS",
    "expected",
    "gram_pays",
    "has_outer_products",
    "seconds",
    "steps",
    "terms",
]

# Seconds per unit of each of the terms, measured by `lowtucker bench costs` on sampled entries (one
# thread of a shared 2.6 GHz server core, NumPy 2 with OpenBLAS)
COEFFICIENTS: dict[str, tuple[float, ...]] = {
    "ALS": (4.4e-4, 5.7e-7, 1.2e-8, 1.6e-11),
    "RCG": (2.3e-3, 4.8e-7, 1.4e-9),
    "products": (2.0e-4, 1.3e-7, 3.3e-10),
    "gram": (2.9e-3, 5.9e-11),
}
# Steps to a residual of 1e-6: a + b / (samples per degree of freedom). Measured on exact tensors of
# shapes 20^3 to 50^3, 5 to 80 samples per degree of freedom: ALS 45 to 5 sweeps, RCG 45 to 8 steps,
# RGN 8 to 4 steps, of 200 to 56 passes in all by products
STEPS: dict[str, tuple[float, float]] = {
    "ALS": (4, 120),
    "RCG": (6, 160),
    "products": (50, 800),
    "gram": (4, 20),
}
# Seconds of a pass over a sparse matrix, per stored element and per entry of the tensor
ELEMENT, ENTRY = 1.5e-9, 2e-8
# Normal equations are preferred up to this multiple of the cheapest cost: they give an estimate of
# the error, and blocks of rows take fewer passes than the model says
ADVANTAGE = 2.0
# Numbers of a core above which ALS fits it by conjugate gradients, and their iterations
LARGE_CORE, ITERATIONS = 500, 20


def terms(solver: str, m: int, shape: tuple[int, ...], rank: tuple[int, ...]) -> tuple[float, ...]:
    """Terms of the cost of a sweep of ALS, a step of RCG or RGN ("gram"), or a pass ("products").

    One per call, then what grows with the samples: ALS with 1, the numbers of the core, and the
    square of these for its normal equations; RCG and products with 1 and the core; the gram
    matrix with dof^2, its factorisation included.
    """
    core = float(size(rank))
    if solver == "gram":
        return 1.0, m * float(degrees_of_freedom(shape, rank)) ** 2
    if solver == "ALS":
        equations = core**2 if core <= LARGE_CORE else ITERATIONS * core
        return 1.0, m, m * core, m * equations
    return 1.0, m, m * core


def seconds(solver: str, m: int, shape: tuple[int, ...], rank: tuple[int, ...]) -> float:
    """Predicted seconds of a sweep, step or pass."""
    each = terms(solver, m, shape, rank)
    return sum(c * term for c, term in zip(COEFFICIENTS[solver], each, strict=True))


def steps(solver: str, per_dof: float) -> float:
    """Expected sweeps, steps or passes with so many samples per degree of freedom."""
    a, b = STEPS[solver]
    return a + b / per_dof


def expected(solver: str, problem: Problem, rank: tuple[int, ...]) -> float:
    """Predicted seconds of a whole run."""
    m = problem.fewest_equations
    per_dof = m / degrees_of_freedom(problem.shape, rank)
    return steps(solver, per_dof) * seconds(solver, m, problem.shape, rank)


def has_outer_products(problem: Problem) -> bool:
    """Whether rows are outer products, which the model is of: a product with D forms no tensor."""
    traits = problem.A.traits
    factored = traits.has_fast_tangent and traits.row_separable and not traits.forms_full_tensor
    return factored or problem.A.entry_samples() is not None


def gram_pays(problem: Problem, rank: tuple[int, ...], other: str = "products") -> bool:
    """Whether normal equations should not take much longer than another way.

    For a sparse matrix the other way is RCG, whose pass reads the stored elements and forms a
    tensor. True for all other rows that are not outer products: their pass costs about as much as
    the gram matrix.
    """
    if has_outer_products(problem):
        return expected("gram", problem, rank) <= ADVANTAGE * expected(other, problem, rank)
    elements = problem.A.stored_elements
    if elements is None:
        return True
    m, dof = problem.fewest_equations, degrees_of_freedom(problem.shape, rank)
    a_pass = ELEMENT * elements + ENTRY * size(problem.shape)
    by_gram = steps("gram", m / dof) * (seconds("gram", m, problem.shape, rank) + 3 * a_pass)
    by_passes = steps("RCG", m / dof) * (COEFFICIENTS["RCG"][0] + 2 * a_pass)
    return by_gram <= ADVANTAGE * by_passes
