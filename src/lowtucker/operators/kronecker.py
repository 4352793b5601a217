"""Mode-wise measurements: small matrices that act on the modes of the tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    Rows,
    adjoint,
    as_float,
    as_shape,
    conj,
    eps,
    is_complex,
    like,
    namespace,
    real,
    same_kind,
    size,
)
from lowtucker._array.linalg import qr, solve
from lowtucker._array.readings import at_least
from lowtucker.operators.arguments import check_matrices, check_matrix, of_one_dtype
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import CHUNK, NormalEquations, TangentDesign
from lowtucker.operators.rank_one import RankOneOperator
from lowtucker.operators.traits import Traits
from lowtucker.tensor.decompose import hosvd, leading_left
from lowtucker.tensor.products import multi_mode_product, norm, product, shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import unfolded

__all__ = ["KroneckerOperator", "ModewiseOperator", "kronecker", "sketch_start"]


class KroneckerOperator(MeasurementOperator):
    r"""Measurements :math:`y = \mathrm{vec}(X \times_1 A_1 \cdots \times_d A_d)`.

    See :func:`kronecker`.

    Parameters
    ----------
    matrices : sequence of arrays, shapes (m_k, n_k)
    """

    # not row-separable: gathered rows cost more than all of them by mode products
    traits = Traits(
        has_fast_tangent=True, forms_full_tensor=False, supports_batch=True, has_fast_row_norms=True
    )

    def __init__(self, matrices: Sequence[Any]) -> None:
        self._set(check_matrices(matrices, "matrices", "(m_k, n_k)"))

    def _set(self, factors: list[Array]) -> None:
        self.factors = factors
        self.sizes = tuple(int(A.shape[0]) for A in factors)
        self.shape = tuple(int(A.shape[1]) for A in factors)
        self.m = size(self.sizes)
        self.prototype, self.dtype = factors[0], factors[0].dtype

    def _forward(self, X: Array) -> Array:
        batch = X.shape[: X.ndim - len(self.shape)]
        return namespace(X).reshape(multi_mode_product(X, self.factors), (*batch, self.m))

    def _adjoint(self, v: Array) -> Array:
        V = namespace(v).reshape(v, (*v.shape[:-1], *self.sizes))
        return multi_mode_product(V, self.factors, transpose=True)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        xp = namespace(X.core)
        parts = [xp.matmul(A, U) for A, U in zip(self.factors, X.factors, strict=True)]
        return xp.reshape(multi_mode_product(X.core, parts), (*X.batch_shape, self.m))

    def in_units(self, power: int) -> MeasurementOperator:
        """Operator times 2**power: a Kronecker product, which keeps its design in closed form."""
        if not power:
            return self
        other = object.__new__(KroneckerOperator)
        other._set([shifted(self.factors[0], power), *self.factors[1:]])
        return other

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        """Each row is an outer product of rows of the matrices, which are gathered."""
        index = np.unravel_index(np.arange(self.m)[rows], self.sizes)
        xp = namespace(self.prototype)
        block = object.__new__(RankOneOperator)
        block._set(
            [xp.take(A, like(i, A), axis=0) for A, i in zip(self.factors, index, strict=True)]
        )
        return block

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return KroneckerDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """Truncated adjoint, which is a Tucker tensor with the core v and the factors A_k^*."""
        if v.ndim > 1:
            return super()._spectral_start(v, rank)
        core, factors = namespace(v).reshape(v, self.sizes), []
        for k, (A, r) in enumerate(zip(self.factors, rank, strict=True)):
            # rows of zeros: a core with fewer than r entries in a mode would be formed in full
            missing = max(0, r - A.shape[0])
            factors.append(adjoint(_lengthened(A, 0, missing)))
            core = _lengthened(core, k, missing)
        return hosvd(TuckerTensor.from_factors(core, factors), rank, warn=False)

    def _row_norms(self) -> Array:
        return _outer([norm(A, batch_ndim=1)[:, None] for A in self.factors])[:, 0]


class KroneckerDesign(TangentDesign):
    r"""Tangent design of :math:`A_1 \otimes \dots \otimes A_d`, by small matrix products.

    Products with D cost those of a TuckerTensor with the operator, O(m sum r_k) and smaller
    terms. Nothing with m rows is formed, except by :meth:`rows`.
    """

    A: KroneckerOperator

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r: the adjoint is a Tucker tensor with the core r and the factors A_k^*."""
        core = namespace(r).reshape(r, self.A.sizes)
        Z = TuckerTensor.trusted(core, [adjoint(A) for A in self.A.factors])
        return self._in_field(self.T.coordinates(Z))

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r, through the factors."""
        at_least(2)
        residual = y - self.A.forward(self.T.X)
        return residual, self.rmatvec(residual if weights is None else weights * residual)

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in chunks of rows, those of outer products."""
        for start in range(0, self.A.m, CHUNK):
            rows = slice(start, min(start + CHUNK, self.A.m))
            yield rows, self.A._restrict(rows)._tangent(self.T).dense()

    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        r"""D^* D in closed form and D^* r; with weights the sum over the rows.

        Cost without weights: O(max r_k dof^2) flops, where the sum has 2 m dof^2; dof^2 numbers.
        """
        if weights is not None:
            return super().normal_equations(y, weights)
        residual, gradient = self.misfit(y)
        return NormalEquations(self._in_field(self._gram()), gradient, residual)

    def _in_field(self, x: Array) -> Array:
        """Real part for real tensors."""
        return x if is_complex(self.T.X.core) else real(x)

    def _gram(self) -> Array:
        r"""D^* D, block by block.

        Coordinate (a, b) of arm k is the tensor with column a of :math:`U_{k\perp}` in mode k and
        column b of :math:`\bar V_k`, times the factors, in the others. With
        :math:`G_k = A_k^* A_k`, :math:`g_k = U_k^* G_k U_k` and
        :math:`h_k = U_{k\perp}^* G_k U_k` the blocks are

        - core and core: :math:`g_1 \otimes \dots \otimes g_d`;
        - arm k and core: :math:`h_k` in mode k, and in the others the conjugate transpose of
          :math:`W_k = (\otimes_{j \ne k} g_j) \bar V_k`;
        - arm k and arm k: :math:`U_{k\perp}^* G_k U_{k\perp} \otimes V_k^T W_k`;
        - arm k and arm i: :math:`h_k` in mode k, :math:`h_i^*` in mode i, and between them
          :math:`V_k^T (\otimes_{j \ne k, i} g_j) \bar V_i`.
        """
        T, d = self.T, len(self.A.shape)
        xp = namespace(T.X.core)
        inner = [xp.matmul(A, U) for A, U in zip(self.A.factors, T.X.factors, strict=True)]
        outer = [
            adjoint(complement.coordinates(adjoint(A)))
            for A, complement in zip(self.A.factors, T.complements, strict=True)
        ]
        g = [xp.matmul(adjoint(B), B) for B in inner]
        h = [xp.matmul(adjoint(C), B) for B, C in zip(inner, outer, strict=True)]
        # V_k as a tensor with an axis for every mode, of length 1 for mode k, and one for b
        V = [
            xp.reshape(V, (*T.X.rank[:k], 1, *T.X.rank[k + 1 :], V.shape[1]))
            for k, V in enumerate(T.rows)
        ]
        blocks: list[list[Array]] = [[None] * (d + 1) for _ in range(d + 1)]
        blocks[0][0] = _outer(g)
        for k in range(d):
            arm = size(T.blocks[k + 1])
            W = _times(conj(V[k]), g, (k,))
            column = xp.reshape(h[k], (-1, 1, *(1,) * k, T.X.rank[k], *(1,) * (d - k - 1)))
            with_core = xp.reshape(column * conj(xp.moveaxis(W, -1, 0)), (arm, size(T.X.rank)))
            blocks[k + 1][0], blocks[0][k + 1] = with_core, adjoint(with_core)
            b = V[k].shape[-1]
            side = xp.matmul(xp.matrix_transpose(T.rows[k]), xp.reshape(W, (-1, b)))
            blocks[k + 1][k + 1] = _outer([xp.matmul(adjoint(outer[k]), outer[k]), side])
            for i in range(k + 1, d):
                with_arm = self._between(V, g, h, k, i)
                blocks[k + 1][i + 1], blocks[i + 1][k + 1] = with_arm, adjoint(with_arm)
        return xp.concat([xp.concat(line, axis=1) for line in blocks], axis=0)

    def _between(self, V: list[Array], g: list[Array], h: list[Array], k: int, i: int) -> Array:
        """Block of arms k < i in D^* D."""
        xp = namespace(h[k])
        W = _times(conj(V[i]), g, (k, i))
        b, c, r, q = V[k].shape[-1], V[i].shape[-1], self.T.X.rank[k], self.T.X.rank[i]
        # summed over all modes but k and i: (i, b; others) times (others; k, c)
        left = xp.reshape(xp.moveaxis(xp.moveaxis(V[k], -1, 0), i + 1, 0), (q * b, -1))
        right = xp.reshape(xp.moveaxis(W, k, -2), (-1, r * c))
        middle = xp.reshape(xp.matmul(left, right), (q, b, r, c))
        middle = xp.reshape(xp.permute_dims(middle, (2, 1, 0, 3)), (r, b * q * c))
        middle = xp.reshape(xp.matmul(h[k], middle), (-1, b, q, c))
        block = xp.matmul(conj(h[i]), middle)  # (n_k - r_k, b, n_i - r_i, c)
        return xp.reshape(block, (size(self.T.blocks[k + 1]), size(self.T.blocks[i + 1])))


class ModewiseOperator(MeasurementOperator):
    """Matrices that act on groups of modes, and a last matrix; see :func:`kronecker`.

    Parameters
    ----------
    first : KroneckerOperator
        The first step, on tensors with one mode for each group.
    shape : tuple of int
    final : array, shape (m, first.m), optional
    """

    traits = Traits(row_separable=True, has_fast_row_norms=True)

    def __init__(self, first: KroneckerOperator, shape: tuple[int, ...], final: Any = None) -> None:
        self.shape = as_shape(shape)
        self.groups = _groups(first.shape, self.shape)
        if final is not None:
            final = as_float(final, "final")
            same_kind(final, first.prototype, "final", "matrices[0]")
            check_matrix(final, "final")
            if final.shape[1] != first.m:
                raise ValueError(
                    f"final must have {first.m} columns, one for each output of the "
                    f"matrices, {first.sizes}, got shape {tuple(final.shape)}. Transpose it?"
                )
            *factors, final = of_one_dtype([*first.factors, final])
            first = object.__new__(KroneckerOperator)
            first._set(factors)
        self._set(first, final)

    def _set(self, first: KroneckerOperator | RankOneOperator, final: Array | None) -> None:
        self.first, self.final = first, final
        self.m = first.m if final is None else int(final.shape[0])
        self.prototype, self.dtype = first.prototype, first.dtype

    def _finished(self, z: Array) -> Array:
        return z if self.final is None else namespace(z).matmul(self.final, z)

    def _forward(self, X: Array) -> Array:
        return self._finished(self.first._forward(namespace(X).reshape(X, self.first.shape)))

    def _adjoint(self, v: Array) -> Array:
        xp = namespace(v)
        if self.final is not None:
            v = conj(xp.matmul(conj(v), self.final))  # conjugates the small vector
        return xp.reshape(self.first._adjoint(v), self.shape)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        """Mode by mode: the first step's matrices times the factors measure the core."""
        if X.batch_shape:
            return self._forward_each(X)
        xp, parts = namespace(X.core), []
        for A, group in zip(self.first.factors, self.groups, strict=True):
            part = xp.reshape(A, (A.shape[0], *(self.shape[k] for k in group)))
            for j, k in enumerate(group):
                part = product(part, xp.matrix_transpose(X.factors[k]), j, 1)
            parts.append(xp.reshape(part, (A.shape[0], -1)))
        small = object.__new__(type(self.first))
        small._set(parts)
        return self._finished(small._forward(xp.reshape(X.core, small.shape)))

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        block = object.__new__(ModewiseOperator)
        block.shape, block.groups = self.shape, self.groups
        first: Any = self.first
        F = self.final
        if F is None:
            first = first._restrict(rows)
        elif isinstance(rows, slice):
            F = F[rows, :]
        else:
            F = namespace(F).take(F, like(rows, F), axis=0)
        block._set(first, F)
        return block

    def _row_norms(self) -> Array:
        if self.final is None:
            return self.first._row_norms()
        # A_g = R^* Q^* has the row norms of R^*: no row of N entries is made
        xp = namespace(self.final)
        F = xp.reshape(self.final, (self.m, *(A.shape[0] for A in self.first.factors)))
        for g, A in enumerate(self.first.factors):
            F = product(F, conj(qr(adjoint(A))[1]), g, 1)
        return norm(F, batch_ndim=1)


def sketch_start(
    parts: Sequence[KroneckerOperator], pieces: Sequence[Array], rank: tuple[int, ...]
) -> TuckerTensor | None:
    r"""Tensor of rank r from several mode-wise sketches of it, in one pass; None where that fails.

    :math:`Y = X \times_1 A_1 \cdots \times_d A_d` has the unfolding
    :math:`Y_{(k)} = A_k X_{(k)} (\dots)`: where :math:`A_k` has full column rank, the leading left
    singular vectors of :math:`A_k^+ Y_{(k)}` are the factor :math:`U_k`. Every mode takes the
    sketch whose unfolding has the most columns. The core is
    :math:`Y \times_k (A_k U_k)^+`, from the sketch with the most rows. Exact where X has rank r and
    every sketch keeps it.

    Fails where no sketch has an :math:`A_k` of full column rank, or has fewer rows than r_k.
    """
    shaped = [namespace(v).reshape(v, part.sizes) for part, v in zip(parts, pieces, strict=True)]
    factors = []
    for k, r in enumerate(rank):
        widest = sorted(zip(parts, shaped, strict=True), key=lambda pair: -_columns(pair[0], k))
        found = (
            _solved(part.factors[k], unfolded(Y, k, 0))
            for part, Y in widest
            if _columns(part, k) >= r
        )
        range_of_mode = next((Z for Z in found if Z is not None), None)
        if range_of_mode is None:
            return None
        factors.append(leading_left(range_of_mode, r))
    place = int(np.argmax([part.m for part in parts]))
    core = shaped[place]
    for k, (A, U) in enumerate(zip(parts[place].factors, factors, strict=True)):
        B = namespace(A).matmul(A, U)
        inverse = _solved(B, like(np.eye(B.shape[0]), B, B.dtype))
        if inverse is None:
            return None
        core = product(core, inverse, k, 0)
    return TuckerTensor.trusted(core, factors)


def _columns(part: KroneckerOperator, k: int) -> int:
    """Columns of the unfolding of a sketch in mode k."""
    return part.m // part.sizes[k]


def _solved(A: Array, Y: Array) -> Array | None:
    """Least-squares solution A^+ Y, or None where A has less than full column rank."""
    if A.shape[0] < A.shape[1]:
        return None
    xp = namespace(A)
    Q, R = qr(A)
    diagonal = xp.abs(xp.linalg.diagonal(R))
    if not float(xp.min(diagonal)) > eps(diagonal) ** 0.5 * float(xp.max(diagonal)):
        return None
    return solve(R, xp.matmul(adjoint(Q), Y))


def _outer(matrices: list[Array]) -> Array:
    """Kronecker product of matrices."""
    xp, K = namespace(matrices[0]), matrices[0]
    for B in matrices[1:]:
        shape = (K.shape[0] * B.shape[0], K.shape[1] * B.shape[1])
        K = xp.reshape(K[:, None, :, None] * B[None, :, None, :], shape)
    return K


def _times(V: Array, g: list[Array], skip: tuple[int, ...]) -> Array:
    """Products of V with g_j in mode j, for all modes but some."""
    for j, matrix in enumerate(g):
        V = V if j in skip else product(V, matrix, j, 0)
    return V


def _lengthened(x: Array, axis: int, count: int) -> Array:
    """Append zeros."""
    if not count:
        return x
    xp = namespace(x)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return xp.concat([x, like(np.zeros(shape), x, x.dtype)], axis=axis)


def _groups(columns: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Successive modes that each matrix acts on."""
    groups, end = [], 0
    for g, n in enumerate(columns):
        products = list(accumulate(shape[end:], mul))
        if n not in products:
            found = (
                f"the modes from {end} on give {', '.join(map(str, products))}"
                if products
                else "no modes are left for it"
            )
            raise ValueError(
                f"matrices[{g}] has {n} columns, which must be the size of a mode of shape "
                f"{shape}, or the product of the sizes of several in a row: {found}. "
                "Check shape, or transpose the matrix."
            )
        start, end = end, end + products.index(n) + 1
        groups.append(tuple(range(start, end)))
    if size(shape[end:]) > 1:
        raise ValueError(
            f"matrices act on the first {end} modes of shape {shape} only. Give one for the "
            "others too: numpy.eye(n) leaves a mode unchanged."
        )
    return (*groups[:-1], tuple(range(groups[-1][0], len(shape))))


def kronecker(
    matrices: Sequence[Any], shape: tuple[int, ...] | None = None, final: Any = None
) -> KroneckerOperator | ModewiseOperator:
    r"""Mode-wise measurements: :math:`y = \mathrm{vec}(X \times_1 A_1 \cdots \times_d A_d)`.

    The matrix of the operator is :math:`A_1 \otimes \dots \otimes A_d`, with a row for each of
    the :math:`m = \prod m_k` entries of the result, in row-major order.

    Parameters
    ----------
    matrices : sequence of arrays, shapes (m_k, n_k)
        One for each mode. With ``shape`` there may be fewer: a matrix then acts on several
        successive modes, vectorised, whose sizes multiply to its number of columns.
    shape : tuple of int, optional
        Shape of the tensors; :math:`(n_1, \dots, n_d)` by default.
    final : array, shape (m, prod m_k), optional
        A second step: :math:`y = F \, \mathrm{vec}(\dots)`. Nothing is scaled.

    Returns
    -------
    KroneckerOperator, or ModewiseOperator if modes are grouped or ``final`` is given

    Notes
    -----
    A matrix on one mode with fewer rows than columns leaves that mode undetermined, at any rank
    and any m: :math:`U_k` may change by anything in the null space of :math:`A_k`. So either
    :math:`m_k \ge n_k`, and one keeps some of the rows (``A.restrict(rows)``, see the example), or
    wide matrices act on groups of modes, where low rank helps.

    Memory: :math:`\sum m_k n_k` numbers, where a dense matrix has m N. With one matrix a mode and
    no ``final``, measuring a TuckerTensor and products with the tangent design cost
    :math:`O(m \sum r_k)` and smaller terms, and :math:`D^* D` is known in closed form; no full
    tensor is formed. A block of b rows holds :math:`b \sum n_k` numbers: its rows are rank-one.

    With groups or ``final`` (the two-step measurements of Iwen, Needell, Perlmutter and Rebrova,
    Modewise operators, the tensor restricted isometry property, and low-rank tensor recovery) the
    memory is :math:`\sum m_g n_g + m \prod m_g`. Measuring a TuckerTensor forms no full tensor,
    the adjoint does. There is no fast tangent design, and a block of the rows of ``final`` still
    costs the whole first step.

    Examples
    --------
    500 of the 8000 products of rows of three matrices:

    >>> import numpy as np, lowtucker as lt
    >>> rng = np.random.default_rng(0)
    >>> A = lt.kronecker([rng.standard_normal((20, 20)) for _ in range(3)])
    >>> A
    KroneckerOperator: 8000 measurements of tensors of shape (20, 20, 20) (1 per entry)
    >>> A = A.restrict(rng.choice(8000, 500, replace=False))
    >>> X_true = lt.random_tucker((20, 20, 20), (2, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)

    Two steps: a matrix for modes 0 and 1 together and one for mode 2, then one for all.

    >>> first = [rng.standard_normal((80, 400)), rng.standard_normal((20, 20))]
    >>> lt.kronecker(first, (20, 20, 20), final=rng.standard_normal((350, 1600)))
    ModewiseOperator: 350 measurements of tensors of shape (20, 20, 20) (0.044 per entry)
    """
    A = KroneckerOperator(matrices)
    shape = A.shape if shape is None else as_shape(shape)
    if final is None and shape == A.shape:
        return A
    return ModewiseOperator(A, shape, final)
