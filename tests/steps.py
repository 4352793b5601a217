"""Steps of a bound solver on one problem, without the leading axis that a run has."""

from __future__ import annotations


def begun(bound, start=None, seed=0):
    """First state."""
    return bound.init(start, seed).single()


def advanced(bound, state):
    """Next state."""
    return bound.advance(state.batched()).single()
