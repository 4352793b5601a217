"""Rows that are outer products of vectors: no row is ever formed in full."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from lowtucker._array import Array, adjoint, conj, is_complex, like, namespace, real, size
from lowtucker._array.readings import at_least
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import CHUNK, TangentDesign
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["FactoredOperator", "contracted", "face_splitting", "row_chunks", "weighted_sum"]

# Numbers of a product of rows that are formed at a time: 2 MB, which stay in a cache
CHUNK_NUMBERS = 1 << 18


def row_chunks(m: int, width: int) -> list[slice]:
    """Sets of successive rows, of so many numbers each that products of them stay small."""
    height = max(1, CHUNK_NUMBERS // width)
    return [slice(start, min(start + height, m)) for start in range(0, m, height)]


def face_splitting(parts: list[Array]) -> Array:
    """Rows of Kronecker products: (t, q_1), ..., (t, q_k) -> (t, q_1 ... q_k)."""
    xp, product = namespace(parts[0]), parts[0]
    for part in parts[1:]:
        product = xp.reshape(product[:, :, None] * part[:, None, :], (part.shape[0], -1))
    return product


class FactoredOperator(MeasurementOperator):
    r"""Measurements by :math:`A_j = a_j^1 \circ \dots \circ a_j^d`.

    A subclass defines products of the vectors of mode k with a matrix, and their adjoint; the
    measurements of a TuckerTensor and the tangent design follow from these.
    """

    @abstractmethod
    def _mode_times(self, k: int, U: Array) -> Array:
        """Products of the vectors of mode k with the columns of U: (n_k, q) -> (m, q)."""

    @abstractmethod
    def _mode_adjoint(self, k: int, W: Array) -> Array:
        """Sum over j of conj(a_j^k) times row j of W: (m, q) -> (n_k, q)."""

    @abstractmethod
    def _mode_rows(self, k: int, rows: slice) -> Array:
        """Some of the vectors of mode k: (t, n_k)."""

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        if X.batch_shape:
            return self._forward_each(X)
        P = [self._mode_times(k, U) for k, U in enumerate(X.factors)]
        return contracted(X.core, P)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return FactoredDesign(self, T)


def contracted(core: Array, parts: list[Array]) -> Array:
    """Contract mode k of a core with row j of part k, for every j: (m,). In chunks of rows."""
    xp = namespace(core)
    flat = xp.reshape(core, (core.shape[0], -1))
    out = []
    for rows in row_chunks(parts[0].shape[0], flat.shape[1]):
        rest = xp.matmul(parts[0][rows, :], flat)
        for part in parts[1:]:
            rest = xp.reshape(rest, (rest.shape[0], part.shape[1], -1))
            rest = xp.matmul(part[rows, :][:, None, :], rest)[:, 0, :]
        out.append(rest[:, 0])
    return out[0] if len(out) == 1 else xp.concat(out)


def weighted_sum(v: Array, parts: list[Array]) -> Array:
    """Sum over j of v_j times the outer product of row j of the parts: the adjoint of contracted.

    Shape (q_1, q_2 ... q_d). In chunks of rows.
    """
    xp = namespace(v)
    first, *rest = parts
    total = None
    for rows in row_chunks(v.shape[0], size([part.shape[1] for part in rest])):
        weighted = xp.matrix_transpose(first[rows, :] * v[rows][:, None])
        right = [part[rows, :] for part in rest] or [xp.ones_like(first[rows, :1])]
        one = xp.matmul(weighted, face_splitting(right))
        total = one if total is None else total + one
    return total


class FactoredDesign(TangentDesign):
    r"""Tangent design of outer products, from :math:`U_k^* a_j^k` and :math:`U_{k\perp}^* a_j^k`.

    Row j is :math:`\otimes_k U_k^T a_j^k` for the core, and
    :math:`U_{k\perp}^T a_j^k \otimes V_k^T (\otimes_{i \ne k} U_i^T a_j^i)` for arm k. Products
    with D cost O(m prod r_k) and the products with the vectors, its rows O(m dof). Memory:
    2 m sum r_k numbers.
    """

    A: FactoredOperator

    def __init__(self, A: FactoredOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.parts = [A._mode_times(k, U) for k, U in enumerate(T.X.factors)]
        xp = namespace(T.X.core)
        self.sides = []  # what all other modes give to arm k: (m, columns of V_k)
        for k, V in enumerate(T.rows):
            others = [part for i, part in enumerate(self.parts) if i != k]
            others = others or [xp.ones_like(self.parts[0][:, :1])]
            side = [
                xp.matmul(face_splitting([part[rows, :] for part in others]), conj(V))
                for rows in row_chunks(A.m, V.shape[0])
            ]
            self.sides.append(xp.concat(side))

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in chunks of rows."""
        xp = namespace(self.T.X.core)
        for start in range(0, self.A.m, CHUNK):
            rows = slice(start, min(start + CHUNK, self.A.m))
            columns = [face_splitting([part[rows, :] for part in self.parts])]
            for k, complement in enumerate(self.T.complements):
                vectors = adjoint(like(self.A._mode_rows(k, rows), self.T.X.core))
                arm = adjoint(complement.coordinates(vectors))
                columns.append(face_splitting([arm, self.sides[k][rows, :]]))
            D = xp.concat(columns, axis=1)
            # vectors that are computed on demand may be of higher precision
            yield rows, D if D.dtype == columns[0].dtype else xp.astype(D, columns[0].dtype)

    def matvec(self, c: Array) -> Array:
        """Return D c through the factors."""
        xp = namespace(c)
        B, *arms = self.T.split(c)
        out = contracted(B, self.parts)
        for k, (complement, arm) in enumerate(zip(self.T.complements, arms, strict=True)):
            out = out + xp.sum(self.A._mode_times(k, complement.times(arm)) * self.sides[k], axis=1)
        return out

    def measured(self, c: Array, weights: Array | None = None) -> Array:
        """Return D c through the factors: the tangent vector as a tensor has 2^d times the core."""
        return self.matvec(c)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r, through the factors."""
        at_least(2)
        residual = y - contracted(self.T.X.core, self.parts)
        return residual, self.rmatvec(residual if weights is None else weights * residual)

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r through the factors."""
        xp = namespace(r)
        core = weighted_sum(r, [conj(part) for part in self.parts])
        out = [xp.reshape(core, (size(self.T.X.rank),))]
        for k, complement in enumerate(self.T.complements):
            W = self.A._mode_adjoint(k, conj(self.sides[k]) * r[:, None])
            out.append(xp.reshape(complement.coordinates(W), (-1,)))
        together = xp.concat(out)
        return together if is_complex(self.T.X.core) else real(together)
