"""Operators made of operators: compositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lowtucker._array import (
    Array,
    Rows,
    as_array,
    as_shape,
    eps,
    in_precision_of,
    is_complex,
    like,
    namespace,
    real,
    size,
)
from lowtucker.operators.adapters import as_operator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.combined import (
    as_tensor,
    check_part,
    common_prototype,
    in_precision,
    is_real,
)
from lowtucker.operators.traits import Traits
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["ComposedOperator", "compose"]


class Link(NamedTuple):
    """One map of a chain: vectors to vectors."""

    map: MeasurementOperator
    # Whether its output is complex for input of its own dtype
    gives_complex: bool
    # Whether it is for real tensors and gets complex ones: it is applied to both parts
    by_parts: bool
    # Whether its output is real here, so that the adjoint takes real parts
    only_real: bool

    def forward(self, X: Array | TuckerTensor) -> Array:
        """Apply the map to (*batch, columns), or to a tensor: (*batch, rows)."""
        A = self.map
        if isinstance(X, TuckerTensor):
            return A.forward(X)
        xp = namespace(X)
        X = xp.reshape(X, (*X.shape[:-1], *A.shape))
        if self.by_parts and is_complex(X):
            return _complex(A.forward(xp.real(X)), A.forward(xp.imag(X)))
        return A.forward(X)

    def adjoint(self, v: Array) -> Array:
        """Apply the adjoint to (*batch, rows): (*batch, columns)."""
        A, xp = self.map, namespace(v)
        v = real(v) if self.only_real else v
        if not self.by_parts:
            out = A.adjoint(v)
        else:
            v = _complex(v)
            # A takes real parts: that of M^*(-i v) is the imaginary part of M^* v
            pair = (v, -1j * v) if self.gives_complex else (xp.real(v), xp.imag(v))
            out = _complex(*(A.adjoint(part) for part in pair))
        return xp.reshape(out, (*v.shape[:-1], size(A.shape)))


class ComposedOperator(MeasurementOperator):
    """One linear map after the other; see :func:`compose`.

    Parameters
    ----------
    links : sequence of Link
        The last is applied first.
    dtype : dtype or None
        Dtype of the tensors.
    """

    def __init__(self, links: Sequence[Link], dtype: Any) -> None:
        self.links, self.dtype = tuple(links), dtype
        self.shape, self.m = links[-1].map.shape, links[0].map.m
        self.prototype = common_prototype([link.map for link in links])
        # a blurred noise has structure: not isotropic; a block costs its rows of the last step
        self.traits = Traits(
            row_separable=links[0].map.traits.row_separable, isotropic=False, supports_batch=True
        )

    @property
    def rows_read(self) -> int:
        """Rows of the last step that a product reads."""
        return self.links[0].map.rows_read

    @property
    def complex_rows(self) -> bool:
        """Whether a map gives complex numbers."""
        return any(link.map.complex_rows for link in self.links)

    def _after(self, x: Array, links: Sequence[Link]) -> Array:
        for link in reversed(links):
            x = link.forward(x)
        return in_precision(x, self.dtype)

    def _forward(self, X: Array) -> Array:
        batch = X.shape[: X.ndim - len(self.shape)]
        return self._after(namespace(X).reshape(X, (*batch, size(self.shape))), self.links)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        return self._after(self.links[-1].forward(X), self.links[:-1])

    def _adjoint(self, v: Array) -> Array:
        for link in self.links:
            v = link.adjoint(v)
        return as_tensor(namespace(v).reshape(v, (*v.shape[:-1], *self.shape)), self.dtype)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        if not self.traits.row_separable:
            return super()._restrict(rows)
        first = self.links[0]._replace(map=self.links[0].map._restrict(rows))
        return ComposedOperator([first, *self.links[1:]], self.dtype)


def compose(*maps: Any, shape: tuple[int, ...] | None = None) -> MeasurementOperator:
    r"""One linear map after the other, the last one first.

    .. math:: y = \mathcal{A}_1(\mathcal{A}_2(\cdots \mathcal{A}_k(X)))

    ``compose(A, blur, shape=...)`` measures a blurred tensor, ``compose(B, A)`` mixes
    measurements.

    Parameters
    ----------
    *maps : MeasurementOperator, matrix, SciPy sparse matrix, SciPy or PyLops linear operator
        Each is applied to the output of the next. An operator reads it as its tensor, row-major.
    shape : tuple of int, optional
        Shape of X; needed unless the last map is an operator.

    Notes
    -----
    A forward costs that of every map, and so does an adjoint. A block costs its own rows of the
    first map and all rows of the others; all rows of every map if the first is not row-separable.
    There is no fast tangent design: "auto" uses :class:`lowtucker.RCG`. A TuckerTensor is passed to
    the last map as it is.

    The precision is that of the least precise map. A map for real vectors is applied to real and
    imaginary parts if its input is complex.

    Examples
    --------
    Sums of neighbours in the first mode, and random measurements of these:

    >>> import numpy as np, scipy.sparse, lowtucker as lt
    >>> sums = scipy.sparse.eye_array(8) + scipy.sparse.eye_array(8, k=1)
    >>> blur = scipy.sparse.kron(sums, scipy.sparse.eye_array(9 * 7))
    >>> A = lt.compose(lt.gaussian((8, 9, 7), m=250, seed=1), blur, shape=(8, 9, 7))
    >>> X_true = lt.random_tucker((8, 9, 7), (2, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-4
    (True, True)
    """
    if not maps:
        raise TypeError("compose needs at least one map: compose(A, blur, shape=(30, 30, 10)).")
    maps = tuple(_with_shape(given, f"maps[{k}]") for k, given in enumerate(maps))
    sizes = [_sizes(given) for given in maps]
    for k in range(len(maps) - 1):
        if sizes[k][1] != sizes[k + 1][0]:
            raise ValueError(
                f"maps[{k}] ({type(maps[k]).__name__}) takes {sizes[k][1]} numbers, but "
                f"maps[{k + 1}] ({type(maps[k + 1]).__name__}) returns {sizes[k + 1][0]}. The last "
                "map is applied first: check their order, or transpose one."
            )
    if shape is not None and size(as_shape(shape)) != sizes[-1][1]:
        raise ValueError(
            f"maps[{len(maps) - 1}] ({type(maps[-1]).__name__}) takes {sizes[-1][1]} numbers, but "
            f"tensors of shape={tuple(shape)} have {size(shape)}."
        )
    operators = [
        as_operator(given) if _has_shape(given) else as_operator(given, (columns,))
        for given, (_, columns) in zip(maps[:-1], sizes[:-1], strict=True)
    ]
    operators.append(as_operator(maps[-1], shape))
    for k, A in enumerate(operators):
        check_part(A, operators[0], "maps", k)
    return operators[0] if len(operators) == 1 else _chained(operators)


def _chained(operators: list[MeasurementOperator]) -> ComposedOperator:
    """Composition of operators whose sizes fit."""
    prototype = common_prototype(operators)
    dtypes = [A.dtype for A in reversed(operators) if A.dtype is not None]
    dtype = None
    if dtypes:
        # the first map with a dtype decides whether X is complex
        coarsest = max(dtypes, key=lambda d: eps(like(0.0, prototype, d)))
        dtype = in_precision_of(coarsest, prototype, is_complex=not is_real(dtypes[0]))
    complex_in = not is_real(dtype)
    links: list[Link] = []
    for A in reversed(operators):
        by_parts = complex_in and is_real(A.dtype)
        gives = A.complex_rows
        complex_in = complex_in or gives
        links.insert(0, Link(A, gives, by_parts, only_real=not complex_in))
    return ComposedOperator(links, dtype)


def _with_shape(given: Any, name: str) -> Any:
    """Convert an argument to something with rows and columns."""
    if isinstance(given, MeasurementOperator):
        return given
    if not hasattr(given, "shape"):
        if callable(given):
            raise TypeError(
                f"{name} must be an operator, a matrix or a linear operator, got a function. "
                "Try lowtucker.FunctionOperator(forward, adjoint, shape, m)."
            )
        given = as_array(given, name)
    if len(given.shape) < 2:
        raise ValueError(f"{name} must have one row per output, got shape {given.shape}.")
    return given


def _has_shape(given: Any) -> bool:
    """Whether a map determines the shape of its input; others take vectors."""
    return isinstance(given, MeasurementOperator) or len(given.shape) > 2


def _sizes(given: Any) -> tuple[int, int]:
    """Sizes of the output and of the input of a map."""
    if isinstance(given, MeasurementOperator):
        return given.m, size(given.shape)
    return int(given.shape[0]), size(given.shape[1:])


def _complex(x: Array, imaginary: Array | None = None) -> Array:
    """Complex array of x, and i times another."""
    wanted = in_precision_of(x.dtype, x, is_complex=True)
    x = namespace(x).astype(x, wanted)
    return x if imaginary is None else x + 1j * namespace(x).astype(imaginary, wanted)
