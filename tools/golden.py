"""Golden results: the bits of some hundred calls, before and after a change that should keep them.

    python tools/golden.py write golden.json      # before the change
    python tools/golden.py compare golden.json    # after it: lists every difference, exits with 1

Bits differ between CPUs and versions of BLAS: the file is for one machine, and is not committed.
The calls are those of ``tests/runs.py`` (every solver, stacks, Huber's loss, a rank that is not
known, completion), each also cut short and resumed from a checkpoint, and one recovery by every
operator of ``tests/cases.py``.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import cases
import lowtucker as lt
import runs


def calls() -> Iterator[tuple[str, Callable[[], lt.Result]]]:
    """Names, and what to call."""
    for name, make in runs.CALLS.items():
        yield name, make()
        yield f"{name}, resumed", lambda make=make: _resumed(make())
    for name, make in cases.OPERATORS.items():
        yield f"operator {name}", lambda make=make: _recovered(make())


def _resumed(call: Callable[..., lt.Result]) -> lt.Result:
    """Result of a call that was stopped after two epochs and made again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.ckpt")
        call(checkpoint=path, callbacks=[lambda progress: progress.epoch >= 2])
        return call(checkpoint=path)


def _recovered(A: lt.MeasurementOperator) -> lt.Result:
    """Result of a recovery of rank one by an operator, or by each of a stack."""
    rank = (1,) * len(A.shape)
    X = lt.random_tucker(A.shape, rank, seed=7).full().astype(A.dtype)
    return lt.recover(A, A.forward(X), rank, max_epochs=30)


def bits(call: Callable[[], lt.Result]) -> dict[str, Any]:
    """What must stay: tensors by their hash, numbers to the last digit, texts; or the error."""
    try:
        result = call()
    except (ValueError, TypeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    X = hashlib.sha256()
    for part in result.X.parts().values():
        X.update(np.ascontiguousarray(part).tobytes())
    plain = ("residual", "epochs", "passes", "error_estimate", "held_out", "rank", "solver")
    texts = [note for note in result.notes if "resumes from here" not in note]
    return {
        "X": X.hexdigest()[:16],
        "status": [status.name for status in np.atleast_1d(result.status)],
        **{name: repr(np.asarray(getattr(result, name)).tolist()) for name in plain},
        "notes": texts,
        "borderline": list(result.borderline),
    }


def measured() -> dict[str, Any]:
    """Bits of all calls."""
    found = {}
    with threadpoolctl.threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in calls():
            found[name] = bits(call)
    return found


def main() -> int:
    """Write, or compare."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "compare"):
        sys.exit(__doc__)
    path = Path(sys.argv[2])
    now = measured()
    if sys.argv[1] == "write":
        path.write_text(json.dumps(now, indent=1))
        print(f"{len(now)} calls written to {path}")
        return 0
    then = json.loads(path.read_text())
    different = 0
    for name in sorted({*then, *now}):
        a, b = then.get(name, {}), now.get(name, {})
        lines = [f"  {key}: {a.get(key)} -> {b.get(key)}" for key in {**a, **b}
                 if a.get(key) != b.get(key)]  # fmt: skip
        if lines:
            different += 1
            print(name, *lines, sep="\n")
    print(f"{different} of {len(now)} calls differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
