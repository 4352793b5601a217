"""Files to read and to write: those that a row names are in its folder, or are not."""

from __future__ import annotations

import numpy as np

import lowtucker as lt
from bad_calls.setting import NAN, SHAPE
from lowtucker import FileFormatError
from lowtucker.lab.video import load_video, save_gif


class BytesPath:
    def __fspath__(self):
        return b"A.npy"


ROWS = [
    (lambda: lt.io.load_array(BytesPath()), TypeError, "path must be a path such as"),
    (lambda: lt.io.load_array(None), TypeError, "path must be a path such as"),
    (lambda: lt.io.load_array(""), ValueError, "path must be a path such as"),
    (
        lambda: lt.io.load_array("none.npy"),
        FileNotFoundError,
        "none.npy does not exist; check the path",
    ),
    (lambda: lt.io.load_array("."), FileFormatError, ". is a directory ... check the path"),
    (lambda: lt.io.load_array("s.csv"), FileFormatError, "s.csv has ... supported: .npy, .npz"),
    (lambda: lt.io.load_array("two.npz"), ValueError, "two.npz holds ... give the name of one"),
    (
        lambda: lt.io.load_array("two.npz", "c"),
        ValueError,
        "two.npz holds no array 'c'; give the name of one",
    ),
    (
        lambda: lt.io.load_array("sparse.npz"),
        FileFormatError,
        "sparse.npz holds ... read it with load_sparse",
    ),
    (lambda: lt.io.load_array("A.npy", mmap="no"), TypeError, "mmap must ... Try mmap=False"),
    (
        lambda: lt.io.load_array("two.npz", "a", mmap=True),
        ValueError,
        "two.npz: ... use mmap=False or",
    ),
    (
        lambda: lt.io.load_array("A.npy", max_bytes="x"),
        TypeError,
        "max_bytes must ... Try int(...)",
    ),
    (
        lambda: lt.io.load_array("A.npy", max_bytes=10),
        FileFormatError,
        "A.npy needs 17280 bytes of memory; ... export a smaller part",
    ),
    (lambda: lt.io.load_array("A.npy", max_bytes=-1), ValueError, "max_bytes must be at least 0"),
    (lambda: lt.io.load_operator(None), TypeError, "path must be a path such as"),
    (
        lambda: lt.io.load_operator("A.npy"),
        ValueError,
        "A.npy: shape is ... Try shape=(30, 30, 10)",
    ),
    (
        lambda: lt.io.load_operator("A.npy", (5, 5)),
        ValueError,
        "A.npy: matrix has ... Check shape, or",
    ),
    (lambda: lt.io.load_operator("sparse.npz"), ValueError, "shape is ... Try shape=(30, 30, 10)"),
    (lambda: lt.io.load_operator("a.mat", SHAPE), ValueError, 'order is needed for a.mat: "F"'),
    (lambda: lt.io.load_sparse(5), TypeError, "path must be a path such as"),
    (
        lambda: lt.io.load_sparse("A.npy"),
        FileFormatError,
        "A.npy holds ... read it with load_array",
    ),
    (lambda: lt.io.load_samples("s.csv", "x"), TypeError, "order must ... Try int(...)"),
    (lambda: lt.io.load_samples("s.csv", 2), FileFormatError, "s.csv has ... check --shape"),
    (lambda: lt.io.load_samples("A.npy"), FileFormatError, "A.npy is ... expected text with the"),
    (lambda: lt.io.load_samples("."), FileFormatError, ". is a directory ... check the path"),
    (lambda: load_video(None), TypeError, "path must be a path such as"),
    (lambda: load_video("s.csv"), ValueError, "s.csv has ... convert it"),
    (lambda: load_video("A.npy"), ValueError, "A.npy has ... reshape it"),
    (lambda: load_video("A.npy", rows=(0, 5)), ValueError, "rows= ... or None for all"),
    (lambda: lt.load(None), TypeError, "path must be a path such as"),
    (lambda: lt.load("two.npz"), FileFormatError, "two.npz is ... Try lowtucker.io.load_array"),
    (lambda: lt.io.save_arrays(None, {"a": 1}), TypeError, "path must be a path such as"),
    (lambda: lt.io.save_arrays("n.npz", [1, 2]), TypeError, "arrays must ... pass a dict"),
    (
        lambda: lt.io.save_arrays("n.npz", {}),
        ValueError,
        "no arrays given for n.npz; expected at least one",
    ),
    (
        lambda: lt.io.save_arrays("n.npz", {"": 1}),
        ValueError,
        "array name '': expected a non-empty",
    ),
    (lambda: lt.io.save_arrays("n.npz", {5: 1}), ValueError, "array name 5: expected a non-empty"),
    (
        lambda: lt.io.save_arrays("n.npz", {"a": "x"}),
        TypeError,
        "array 'a' has ... convert it, for example",
    ),
    (
        lambda: lt.io.save_arrays("n.npz", {"a": [[1], [1, 2]]}),
        ValueError,
        "array 'a' has ... pad them",
    ),
    (lambda: lt.io.save_arrays("n.npy", {"a": 1}), ValueError, "cannot write n.npy; ... rename it"),
    (
        lambda: lt.io.save_arrays("old.npz", {"a": 1}),
        FileExistsError,
        "old.npz exists; pass overwrite=True or",
    ),
    (
        lambda: lt.io.save_arrays("old.npz", {"a": 1}, overwrite="no"),
        TypeError,
        "overwrite must ... Try overwrite=False",
    ),
    (
        lambda: lt.io.save_arrays("no/n.npz", {"a": 1}),
        FileNotFoundError,
        "no/n.npz cannot ... create the folder ... or give another one",
    ),
    (
        lambda: lt.io.save_samples("old.csv", [[0]], [1.0]),
        FileExistsError,
        "old.csv exists; pass overwrite=True or",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [0], [1.0]),
        ValueError,
        "indices must ... Try numpy.argwhere(...)",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [[0]], [1.0, 2.0]),
        ValueError,
        "indices must ... Try numpy.argwhere(...)",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [[0]], [1j]),
        TypeError,
        "values must ... Try result.save(path)",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [[0.5]], [1.0]),
        ValueError,
        "indices must ... Try numpy.argwhere(...)",
    ),
    (
        lambda: save_gif("n.png", np.ones((2, 2, 2))),
        ValueError,
        "cannot write n.png; ... rename it",
    ),
    (lambda: save_gif("n.gif", np.ones((2, 2))), ValueError, "clip has ... expected (rows"),
    (
        lambda: save_gif("n.gif", np.full((2, 2, 2), NAN)),
        ValueError,
        "clip has ... divide integers by",
    ),
    (
        lambda: save_gif("n.gif", np.ones((2, 2, 2)), magnify=0),
        ValueError,
        "magnify= ... expected a whole number",
    ),
    (
        lambda: save_gif("n.gif", np.ones((2, 2, 2)), frames_per_second=0),
        ValueError,
        "frames_per_second=0; expected 0.01 to 50",
    ),
    (lambda: lt.stored("none.npy"), FileNotFoundError, "none.npy does not exist; check the path"),
    (lambda: lt.stored("A.npy"), ValueError, "A.npy: ... Try shape=(30, 30, 10)"),
    (lambda: lt.stored("A.npy", (5, 5)), ValueError, "A.npy: ... Check shape, or transpose"),
    (lambda: lt.stored("s.csv"), FileFormatError, "s.csv has ... Try lowtucker.io.load_operator"),
    (
        lambda: lt.stored("A.npy", SHAPE, order="X"),
        ValueError,
        'A.npy: order must be "C" (row-major) or "F"',
    ),
]
