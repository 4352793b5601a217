"""Rows that are outer products of vectors: nothing of a row's full size is ever made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from lowtucker._arrays import Array, adjoint, conj, namespace, size
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import CHUNK, TangentDesign
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["FactoredOperator", "face_splitting"]


def face_splitting(parts: list[Array]) -> Array:
    """Rows of Kronecker products: (t, q_1), ..., (t, q_k) -> (t, q_1 ... q_k)."""
    xp, product = namespace(parts[0]), parts[0]
    for part in parts[1:]:
        product = xp.reshape(product[:, :, None] * part[:, None, :], (part.shape[0], -1))
    return product


class FactoredOperator(MeasurementOperator):
    r"""Measurements by :math:`A_j = a_j^1 \circ \dots \circ a_j^d`.

    A subclass says what the vectors of mode k give with a matrix, and back; the measurements of a
    tensor given by its factors and the tangent design follow from these.
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
            return super()._forward_tucker(X)
        P = [self._mode_times(k, U) for k, U in enumerate(X.factors)]
        return contracted(X.core, P)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return FactoredDesign(self, T)


def contracted(core: Array, parts: list[Array]) -> Array:
    """Contract mode k of a core with row j of part k, for every j: (m,).

    Memory: m r_2 ... r_d numbers at first, and less with every mode.
    """
    xp = namespace(core)
    m = parts[0].shape[0]
    rest = xp.matmul(parts[0], xp.reshape(core, (core.shape[0], -1)))
    for part in parts[1:]:
        rest = xp.matmul(part[:, None, :], xp.reshape(rest, (m, part.shape[1], -1)))[:, 0, :]
    return rest[:, 0]


class FactoredDesign(TangentDesign):
    r"""Tangent design of outer products, from :math:`U_k^* a_j^k` and :math:`U_{k\perp}^* a_j^k`.

    Row j is :math:`\otimes_k U_k^T a_j^k` for the core, and
    :math:`U_{k\perp}^T a_j^k \otimes V_k^T (\otimes_{i \ne k} U_i^T a_j^i)` for arm k. Products
    with D cost O(m sum n_k r_k), its rows O(m dof).
    """

    A: FactoredOperator

    def __init__(self, A: FactoredOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.parts = [A._mode_times(k, U) for k, U in enumerate(T.X.factors)]
        xp = namespace(T.X.core)
        self.sides = []  # what all other modes give to arm k: (m, columns of V_k)
        for k, V in enumerate(T.rows):
            others = [part for i, part in enumerate(self.parts) if i != k]
            left = face_splitting(others) if others else xp.ones_like(self.parts[0][:, :1])
            self.sides.append(xp.matmul(left, conj(V)))

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in chunks of rows."""
        xp = namespace(self.T.X.core)
        for start in range(0, self.A.m, CHUNK):
            rows = slice(start, min(start + CHUNK, self.A.m))
            columns = [face_splitting([part[rows, :] for part in self.parts])]
            for k, complement in enumerate(self.T.complements):
                vectors = adjoint(self.A._mode_rows(k, rows))
                arm = adjoint(complement.coordinates(vectors))
                columns.append(face_splitting([arm, self.sides[k][rows, :]]))
            yield rows, xp.concat(columns, axis=1)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r, through the factors."""
        residual = y - contracted(self.T.X.core, self.parts)
        return residual, self.rmatvec(residual if weights is None else weights * residual)

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r through the factors."""
        xp = namespace(r)
        weighted = conj(self.parts[0]) * r[:, None]
        rest = face_splitting([conj(part) for part in self.parts[1:]]) if self.parts[1:] else None
        core = (
            xp.sum(weighted, axis=0)
            if rest is None
            else xp.matmul(xp.matrix_transpose(weighted), rest)
        )
        out = [xp.reshape(core, (size(self.T.X.rank),))]
        for k, complement in enumerate(self.T.complements):
            W = self.A._mode_adjoint(k, conj(self.sides[k]) * r[:, None])
            out.append(xp.reshape(complement.coordinates(W), (-1,)))
        return xp.concat(out)
