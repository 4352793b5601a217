"""The tangent design: the measurements restricted to a tangent space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowtucker._array import Array, adjoint, conj, is_complex, like, namespace, size
from lowtucker._array.clock import check_time
from lowtucker._array.readings import at_least, reading
from lowtucker.tensor.tangent import TangentSpace

if TYPE_CHECKING:
    from lowtucker.operators.base import MeasurementOperator

__all__ = ["DenseDesign", "DesignOfEach", "NormalEquations", "TangentDesign"]

# Methods of a design that read its rows
PRODUCTS = ("matvec", "measured", "rmatvec", "misfit", "dense", "normal_equations")


class NormalEquations(NamedTuple):
    """Normal equations of a Gauss-Newton step, and the residual.

    Attributes
    ----------
    gram : array, shape (*batch, dof, dof)
        D^* W D.
    gradient : array, shape (*batch, dof)
        D^* W r, the steepest descent in coordinates.
    residual : array, shape (*batch, m)
        r = y - A(X).
    """

    gram: Array
    gradient: Array
    residual: Array

    def map(self, function: Callable[..., Array], *others: NormalEquations) -> NormalEquations:
        """Apply a function to each array, together with those of others."""
        return NormalEquations(*(function(*arrays) for arrays in zip(self, *others, strict=True)))


class TangentDesign:
    r"""The matrix D whose row j holds the coordinates of :math:`P_T A_j`, as an object.

    For a tangent vector of coordinates c, :math:`\mathcal{A}(\xi) = D c`; X itself is tangent at
    X, so :math:`\mathcal{A}(X) = D c(X)`. This class works for any operator, by forwards and
    adjoints; operators with access to their rows have faster ones (``_tangent``).

    A batch of tangent spaces has a batch of designs, whose vectors and matrices have a leading
    axis: of one operator, which is read once for all, or of a batch with one operator for each.

    Parameters
    ----------
    A : MeasurementOperator
    T : TangentSpace

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=40, seed=1)
    >>> T = lt.TangentSpace(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
    >>> D = A.tangent(T)
    >>> D.shape
    (40, 22)
    >>> bool(np.allclose(D.matvec(T.here), A.forward(T.X)))
    True
    """

    def __init__(self, A: MeasurementOperator, T: TangentSpace) -> None:
        self.A, self.T = A, T

    def __init_subclass__(cls) -> None:
        """Let its own products count as readings of the rows."""
        for name in PRODUCTS:
            if name in cls.__dict__:
                setattr(cls, name, reading(cls.__dict__[name]))

    @property
    def rows_read(self) -> int:
        """Rows that a product reads."""
        return self.A.rows_read

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns: (m, dof)."""
        return self.A.m, self.T.dof

    def matvec(self, c: Array) -> Array:
        """Return D c, the measurements of a tangent vector."""
        return self.A.forward(self.T.tensor(c))

    def measured(self, c: Array, weights: Array | None = None) -> Array:
        """Return D c up to its sign, for its weighted norm; see :meth:`known_norm` of A."""
        return self.A.residual(self.T.tensor(c), None, weights)

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r, the coordinates of the projected adjoint."""
        return self.T.coordinates(self.A.adjoint(r))

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual r = y - A(X) and D^* W r. One pass if the operator's misfit needs one."""
        residual, gradient = self.A.misfit(self.T.X, y, weights)
        return residual, self.T.coordinates(gradient)

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in blocks of rows, in one pass.

        Here all rows at once, by dof forwards; operators with access to their rows do better. The
        tensors are formed together where these are no more than 10^7 numbers.
        """
        xp = namespace(self.T.X.core)
        at_least(self.T.dof)
        if self.T.dof * size(self.T.X.shape) <= FORMED:
            yield slice(0, self.A.m), xp.matrix_transpose(self.A.forward(self.T.basis()))
            return
        unit = like(xp.eye(self.T.dof, dtype=self.T.X.core.dtype), self.T.X.core)
        columns = [self.matvec(unit[k, :]) for k in range(self.T.dof)]
        yield slice(0, self.A.m), xp.stack(columns, axis=1)

    @reading
    def dense(self) -> Array:
        """Return D as an array (m, dof). Memory: m dof numbers."""
        parts = [block for _, block in self.rows()]
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=-2)

    @reading
    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        """Sum D^* W D and D^* W r over blocks of rows, r = y - A(X). One pass, dof^2 numbers."""
        xp = namespace(y)
        here, real = self.T.here[..., None], not is_complex(self.T.X.core)
        gram = gradient = None
        residuals = []
        for rows, D in self.rows():
            check_time()
            r = y[..., rows] - xp.matmul(D, here)[..., 0]
            residuals.append(r)
            weighted = D if weights is None else weights[..., rows, None] * D
            left = xp.matmul(adjoint(D), weighted)
            right = xp.matmul(adjoint(weighted), r[..., None])[..., 0]
            if real and is_complex(right):  # real tensors from complex measurements
                left, right = xp.real(left), xp.real(right)
            gram = left if gram is None else gram + left
            gradient = right if gradient is None else gradient + right
        return NormalEquations(gram, gradient, xp.concat(residuals, axis=-1))


class DesignOfEach(TangentDesign):
    """Designs of the spaces of a batch, one after the other: rows are read for each.

    Parameters
    ----------
    A : MeasurementOperator
        One operator, or a batch with one for each space.
    T : TangentSpace
        A batch.
    """

    def __init__(self, A: MeasurementOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.designs = [A.trial(k)._tangent(T.take(k)) for k in range(T.batch_shape[0])]

    @property
    def rows_read(self) -> int:
        """Rows that a product reads: those of one operator for every space."""
        count = 1 if self.A.batch_shape else len(self.designs)
        return count * self.A.rows_read

    def _own(self, k: int, x: Array | None) -> Array | None:
        """Measurements, or weights, of design k: its own of a batch, without the padding."""
        if x is None:
            return None
        return (x if x.ndim < 2 else x[k, ...])[: self.designs[k].A.m]

    def _padded(self, parts: Sequence[Array]) -> Array:
        """Measurements of all designs, of equal length."""
        xp = namespace(*parts)
        missing = [like(np.zeros(self.A.m - len(x)), x, x.dtype) for x in parts]
        pairs = zip(parts, missing, strict=True)
        return xp.stack([xp.concat([x, zeros]) if len(zeros) else x for x, zeros in pairs])

    def matvec(self, c: Array) -> Array:
        """Return D c."""
        return self._padded([D.matvec(c[k, ...]) for k, D in enumerate(self.designs)])

    def measured(self, c: Array, weights: Array | None = None) -> Array:
        """Return D c up to its sign."""
        each = enumerate(self.designs)
        return self._padded([D.measured(c[k, ...], self._own(k, weights)) for k, D in each])

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r."""
        each = enumerate(self.designs)
        return namespace(r).stack([D.rmatvec(self._own(k, r)) for k, D in each])

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r."""
        each = enumerate(self.designs)
        found = [D.misfit(self._own(k, y), self._own(k, weights)) for k, D in each]
        residuals, gradients = zip(*found, strict=True)
        return self._padded(residuals), namespace(*gradients).stack(gradients)

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D, all of it."""
        every = [D.dense() for D in self.designs]
        xp = namespace(*every)
        missing = [like(np.zeros((self.A.m - len(D), self.T.dof)), D, D.dtype) for D in every]
        pairs = zip(every, missing, strict=True)
        yield slice(0, self.A.m), xp.stack([xp.concat(pair) for pair in pairs])

    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        """D^* W D, D^* W r and r."""
        each = enumerate(self.designs)
        found = [D.normal_equations(self._own(k, y), self._own(k, weights)) for k, D in each]
        grams, gradients, residuals = zip(*found, strict=True)
        xp = namespace(*grams)
        return NormalEquations(xp.stack(grams), xp.stack(gradients), self._padded(residuals))


# Numbers of tangent vectors that are formed together
FORMED = 10**7
# Bytes of a matrix that become rows of D at a time: more than that is never copied
TILE_BYTES = 1 << 24
# Rows of D that are kept together, and the fewest in a batch
CHUNK, SHORTEST = 512, 64


class DenseDesign(TangentDesign):
    """Design of a matrix in memory: coordinates of its rows, tile by tile.

    Cost of D: two products of the matrix with r columns, on tiles that stay in the cache.
    """

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in chunks of rows: shorter ones, for a large batch."""
        m, count = self.A.m, size(self.T.batch_shape)
        height = min(CHUNK, max(SHORTEST, FORMED // (count * self.T.dof)))
        for start in range(0, m, height):
            rows = slice(start, min(start + height, m))
            yield rows, self._chunk(rows)

    def _tile(self, rows: slice) -> Array:
        """Rows of the matrix or of those of a batch, in the dtype that products are computed in."""
        A: Any = self.A
        tile = A.matrix[..., rows, :]
        return tile if tile.dtype == A._wide else tile.astype(A._wide)

    def _chunk(self, rows: slice) -> Array:
        A: Any = self.A
        height = max(1, TILE_BYTES // (8 * size(A.batch_shape) * size(A.shape)))
        parts = []
        for start in range(rows.start, rows.stop, height):
            tile = self._tile(slice(start, min(start + height, rows.stop)))
            # a row of the matrix is the conjugate of A_j, and <A_j, X> that of <X, A_j>
            parts.append(conj(self.T.rows_coordinates(A._unvec(conj(tile)))))
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=-2)
