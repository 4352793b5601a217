"""Traits: what an operator declares about itself, so that solvers can choose."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Traits"]


@dataclass(frozen=True)
class Traits:
    """Properties that an operator declares, and that solvers and diagnosis rely on.

    A class attribute ``traits``, or one of the instance where it depends on the instance. The
    defaults are those of an operator with the two required hooks. ``tests/contracts`` compares the
    declarations of this package with the hooks.

    Parameters
    ----------
    row_separable : bool
        A block of rows costs its own rows only (``_restrict``).
    has_fast_tangent : bool
        The tangent design costs about one pass over the rows (``_tangent``).
    isotropic : bool
        Rows may be treated as drawn i.i.d. from one isotropic distribution, as Gaussian rows are:
        noise has then no structure in the adjoint, and some rows represent all.
    forms_full_tensor : bool
        A Riemannian run forms tensors of the full size, in its start (``_spectral_start``) or in
        the tangent design. The memory guard counts them.
    supports_batch : bool
        The hooks accept leading axes; otherwise the base class loops over them.
    has_fast_row_norms : bool
        Norms of the rows cost at most a pass; otherwise an adjoint each.
    has_batch_tangent : bool
        ``_tangent`` accepts a batch of tangent spaces, and its design reads the rows once for all
        of them; otherwise there is one design for each.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.entries((4, 4), [[0, 1], [2, 3]])
    >>> A.traits.row_separable, A.traits.isotropic
    (True, False)
    >>> lt.stack([A, lt.gaussian((4, 4), m=3)]).traits.isotropic
    False
    """

    row_separable: bool = False
    has_fast_tangent: bool = False
    isotropic: bool = True
    forms_full_tensor: bool = True
    supports_batch: bool = False
    has_fast_row_norms: bool = False
    has_batch_tangent: bool = False
