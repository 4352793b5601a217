"""What an operator declares about itself, so that solvers can choose."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Traits"]


@dataclass(frozen=True)
class Traits:
    """Properties of an operator that solvers and diagnosis rely on.

    Parameters
    ----------
    row_separable : bool
        A block of rows costs its own rows only.
    has_fast_tangent : bool
        The tangent design costs about one pass over the rows.
    isotropic : bool
        Rows are drawn i.i.d. from one isotropic distribution, as Gaussian rows are: noise has then
        no structure in the adjoint.
    forms_full_tensor : bool
        Tensors of the full size are formed, as for the start of a run.
    supports_batch : bool
        The hooks accept leading axes; otherwise the base class loops over them.
    """

    row_separable: bool = False
    has_fast_tangent: bool = False
    isotropic: bool = True
    forms_full_tensor: bool = True
    supports_batch: bool = False
