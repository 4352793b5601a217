"""Checks of a stream that was read from a file: nothing in it is taken on trust."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from lowtucker._array import all_finite, as_integer, as_number, is_array, to_numpy
from lowtucker.status import Finding, Status
from lowtucker.streams.averages import Averages
from lowtucker.streams.blocks import Block
from lowtucker.streams.recursion import Recent, Recursion, Tally
from lowtucker.streams.state import FirstFit, Past, Settings, State
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["check_intact"]


def check_intact(state: State) -> None:
    """Raise TypeError or ValueError for a state that no stream can be in."""
    _expect(state.settings, Settings, "settings")
    if state.settings.checked() != state.settings:
        raise ValueError("the settings are not those of a stream")
    for name in ("m", "equations", "tried"):
        as_integer(getattr(state, name), name, 0)
    if state.m:
        _check_array(state.example, (0,), "example")
    _expect(state.kept, tuple, "kept")
    for block in state.kept:
        _check_block(block, state.settings.shape)
    if state.filter is None and sum(block.y.shape[0] for block in state.kept) != state.m:
        raise ValueError(f"the blocks that are kept are not of m = {state.m} rows")
    if state.filter is not None:
        _check_filter(state, state.filter)
    if state.start is not None or state.filter is not None:
        _check_start(state.start)
    _expect(state.past, tuple, "past")
    for one in state.past:
        _expect(one, Past, "past")
        as_integer(one.m, "past.m", 0, state.m)
        _check_tensor(one.X, state)


def _check_block(block: Block, shape: tuple[int, ...]) -> None:
    _expect(block, Block, "kept")
    _expect(block.isotropic, bool, "isotropic")
    m = block.y.shape[0]
    _check_array(block.y, (m,), "y")
    if block.weights is not None:
        _check_array(block.weights, (m,), "weights")
        if np.min(to_numpy(block.weights)) < 0:
            raise ValueError("weights are negative")
    if (block.indices is None) == (block.rows is None):
        raise ValueError("a block has neither rows nor indices, or both")
    if block.rows is not None:
        _check_array(block.rows, (m, *shape), "rows")
    if block.indices is not None:
        _check_array(block.indices, (m, len(shape)), "indices", kinds="iu")
        index = np.asarray(block.indices)
        if np.any(index < 0) or np.any(index >= shape):
            raise ValueError(f"indices are not within {shape}")


def _check_filter(state: State, now: Recursion | Averages) -> None:
    """Check what is known of the past."""
    if isinstance(now, Averages):
        _check_tensor(now.X, state)
        as_number(now.information, "information", 0.0)
        as_integer(now.dof, "dof", state.settings.dof, state.settings.dof)
    else:
        _expect(now, Recursion, "filter")
        dof = state.settings.dof
        _check_tensor(now.T.X, state)
        _check_array(now.gram, (dof, dof), "gram")
        _check_array(now.gradient, (dof,), "gradient")
        if np.min(np.diagonal(to_numpy(now.gram)).real) < 0:
            raise ValueError("gram has negative entries on its diagonal")
        if not now.gram.dtype == now.gradient.dtype == now.T.X.core.dtype:
            raise TypeError("gram, gradient and tensor have different dtypes")
        as_integer(now.rows, "rows", 0)
    as_number(now.squares, "squares", 0.0)
    for sums, kind in ((now.tally, Tally), (now.recent, Recent)):
        _expect(sums, kind, kind.__name__)
        for f in fields(kind):
            as_number(getattr(sums, f.name), f.name, 0.0)


def _check_start(start: FirstFit | None) -> None:
    _expect(start, FirstFit, "start")
    assert start is not None
    _expect(start.status, Status, "status")
    _expect(start.findings, tuple, "findings")
    for finding in start.findings:
        _expect(finding, Finding, "findings")
    as_integer(start.m, "start.m", 0)
    as_number(start.sigma, "sigma", 0.0)


def _check_tensor(X: Any, state: State) -> None:
    _expect(X, TuckerTensor, "X")
    X.validated()
    if (X.shape, X.rank) != (state.settings.shape, state.settings.rank):
        raise ValueError(f"{X!r} is not of the stream's shape and rank")
    if state.example is None or X.core.dtype != state.example.dtype:
        raise TypeError(f"X is not of the stream's dtype but of {X.core.dtype}")


def _check_array(x: Any, shape: tuple[int, ...], name: str, kinds: str = "fc") -> None:
    if not is_array(x) or tuple(x.shape) != shape:
        raise ValueError(f"{name} is not an array of shape {shape}")
    if to_numpy(x).dtype.kind not in kinds:
        raise TypeError(f"{name} has the dtype {x.dtype}")
    if kinds == "fc" and not all_finite(x):
        raise ValueError(f"{name} has NaN or infinite entries")


def _expect(value: Any, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}, expected {kind.__name__}")
