"""Streams: their settings, and blocks that do not fit."""

from __future__ import annotations

import numpy as np

import lowtucker as lt
from bad_calls.setting import BATCH, NAN, RANK, SHAPE, A, X, bad, y


def online(**change):
    return lt.Online(**({"shape": SHAPE, "rank": RANK} | change))


def update(A_block=A, y_block=y, weights=None, begun=True):
    stream = online()
    if begun:
        stream.update(A.restrict(slice(0, 5)), y[:5])
    stream.update(A_block, y_block, weights)


def update_entries(indices, values):
    online().update_entries(indices, values)


def closed():
    stream = online()
    stream.close()
    stream.update(A, y)


ROWS = [
    (lambda: online(shape=12), TypeError, "shape must have one entry per mode"),
    (lambda: online(shape=(4, 0, 3)), ValueError, "shape must be a tuple of positive integers"),
    (lambda: online(rank=2), TypeError, "rank must have one entry per mode"),
    (lambda: online(rank=(5, 2, 2)), ValueError, "rank[0] = 5 must be between 1 and 4"),
    (lambda: online(rank="auto"), TypeError, "rank must be"),
    (lambda: online(memory=5), ValueError, "memory must be at least 16 ... Try memory=32"),
    (lambda: online(memory=-1), ValueError, "memory must be positive"),
    (lambda: online(memory=NAN), ValueError, "memory must be positive"),
    (lambda: online(memory="long"), TypeError, "memory must be a real number"),
    (lambda: online(tol=-1), ValueError, "tol must be a finite number"),
    (lambda: online(seed=-1), ValueError, "seed must not be negative"),
    (lambda: online().X, ValueError, "the stream has no measurements yet"),
    (lambda: online().result(), ValueError, "the stream has no measurements yet"),
    (closed, ValueError, "the stream is closed"),
    (lambda: update(BATCH), ValueError, "A_block must be one operator, got a batch"),
    (lambda: update(lt.gaussian((3, 3, 3), 60)), ValueError, "A_block measures tensors of shape"),
    (lambda: update(np.ones((60, 4, 3, 4))), ValueError, "A_block measures tensors of shape"),
    (lambda: update(np.ones((60, 35))), ValueError, "matrix has rows of 35 entries"),
    (lambda: update(bad(A.matrix)), ValueError, "A_block has NaN ... the first in row 3"),
    (lambda: update(y_block=bad(y)), ValueError, "y_block has NaN ... the first at 3"),
    (lambda: update(y_block=y[:-1]), ValueError, "y_block must have one entry for each of"),
    (lambda: update(y_block=np.ones((2, 60))), ValueError, "y_block must have shape (60,)"),
    (lambda: update(y_block="y"), TypeError, "y_block must be an array of numbers"),
    (lambda: update(y_block=1j * y), ValueError, "y is complex, but A gives real measurements"),
    (lambda: update(X.full(), y), ValueError, "A_block is one row ... Give one number with it"),
    (lambda: update(y_block=1e200 * y), ValueError, "y_block has the norm ... in other units"),
    (lambda: update(weights=-np.ones(60)), ValueError, "weights must be real, not negative"),
    (lambda: update(1j * A.matrix, y), TypeError, "the block measures tensors of dtype complex"),
    (lambda: update(A.forward), TypeError, "A must be an operator or an array, got a function"),
    (lambda: update(None), TypeError, "A must be an array of numbers"),
    (lambda: update_entries([[0, 0, 9]], [1.0]), ValueError, "indices[0, 2] = 9 must be between"),
    (lambda: update_entries([[0, 0]], [1.0]), ValueError, "indices must have one row for each"),
    (lambda: update_entries([[0, 0, 0]], [NAN]), ValueError, "values has NaN ... the first at 0"),
    (lambda: update_entries([[0.5, 0, 0]], [1.0]), TypeError, "indices must be integers"),
    (lambda: lt.Online.load("none.npz"), FileNotFoundError, "none.npz does not exist"),
    (lambda: lt.Online.load("two.npz"), lt.FileFormatError, "two.npz is not a stream"),
    (lambda: lt.Online.load("two.npz", example=3), TypeError, "example must be an array, got int"),
]
