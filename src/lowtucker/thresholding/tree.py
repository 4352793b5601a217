"""Dimension trees: nested pairs of modes."""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral
from typing import Any, TypeAlias

__all__ = [
    "Tree",
    "as_lists",
    "as_tree",
    "attainable_in",
    "balanced",
    "degrees_of_freedom_in",
    "is_mode",
    "is_pair",
    "modes_of",
    "nodes_of",
]

# A mode, or a pair of trees
Tree: TypeAlias = Any


def as_tree(tree: Any) -> Tree:
    """Check a dimension tree, and return it as nested tuples."""
    made = _as_tuples(tree, tree)
    if is_mode(made):
        raise ValueError(
            f"tree must be a pair at least, got the mode {made}. Try ((0, 1), (2, 3))."
        )
    modes = modes_of(made)
    if sorted(modes) != list(range(len(modes))):
        raise ValueError(
            f"tree must have every mode from 0 on once, got the modes {modes}. Try "
            f"{balanced(tuple(range(len(modes))))}."
        )
    return made


def _as_tuples(node: Any, tree: Any) -> Tree:
    if isinstance(node, Integral) and not isinstance(node, bool):
        return int(node)
    if not isinstance(node, tuple | list):
        raise TypeError(
            f"tree must be nested pairs of modes, got {node!r} in {tree!r}. Try ((0, 1), (2, 3))."
        )
    if len(node) != 2:
        raise ValueError(
            f"tree must be binary, got a node of {len(node)} in {tree!r}. Try ((0, 1), (2, 3))."
        )
    return tuple(_as_tuples(child, tree) for child in node)


def as_lists(node: Tree) -> Any:
    """Return a tree as nested lists, for JSON."""
    return [as_lists(child) for child in node] if is_pair(node) else node


def is_pair(node: Tree) -> bool:
    """Whether a node has children."""
    return isinstance(node, tuple)


def is_mode(node: Tree) -> bool:
    """Whether a node is a leaf."""
    return not isinstance(node, tuple)


def balanced(modes: tuple[int, ...]) -> Tree:
    """Return the tree that halves the modes, and the halves again.

    Examples
    --------
    >>> balanced((0, 1, 2, 3, 4))
    (((0, 1), 2), (3, 4))
    """
    half = (len(modes) + 1) // 2
    return (balanced(modes[:half]), balanced(modes[half:])) if len(modes) > 1 else modes[0]


@lru_cache(maxsize=256)
def nodes_of(tree: Tree) -> tuple[Tree, ...]:
    """Nodes below the root, in the order in which they begin from left to right.

    Examples
    --------
    >>> nodes_of(((0, 1), (2, 3)))
    ((0, 1), 0, 1, (2, 3), 2, 3)
    """
    if is_mode(tree):
        return ()
    return tuple(node for child in tree for node in (child, *nodes_of(child)))


def modes_of(tree: Tree) -> tuple[int, ...]:
    """Modes from left to right."""
    return tuple(filter(is_mode, nodes_of(tree))) if is_pair(tree) else (tree,)


def attainable_in(tree: Tree, rank: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the largest rank, at most ``rank``, that a tensor of that shape has.

    No rank exceeds the product of the others where nodes meet, nor that of a mode its size.
    Generic arrays of such sizes have full rank in every direction, so that these bounds suffice.

    Examples
    --------
    >>> attainable_in(((0, 1), 2), (3, 2, 1, 9), (4, 4, 4))
    (2, 2, 1, 2)
    """
    nodes = nodes_of(tree)
    r, before = dict(zip(nodes, rank, strict=True)), None
    while r != before:  # ranks only fall
        before = dict(r)
        for k in modes_of(tree):
            r[k] = min(r[k], shape[k])
        for node in (*filter(is_pair, reversed(nodes)), tree):
            left, right = node
            above = r.get(node, 1)
            r[left] = min(r[left], r[right] * above)
            r[right] = min(r[right], r[left] * above)
            if node != tree:
                r[node] = min(above, r[left] * r[right])
    return tuple(r[node] for node in nodes)


def degrees_of_freedom_in(tree: Tree, rank: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Count the numbers of all arrays, less the changes of basis at every node below the root."""
    r = dict(zip(nodes_of(tree), rank, strict=True))
    total: int = r[tree[0]] * r[tree[1]] - sum(k * k for k in rank)
    for node in r:
        total += r[node] * (shape[node] if is_mode(node) else r[node[0]] * r[node[1]])
    return total
