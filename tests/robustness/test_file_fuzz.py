"""A fuzzer of files: mutated files of every format, read in children with limits.

file_fuzz.py says what passes. LOWTUCKER_FILE_FUZZ=5000 tries that many; 300 otherwise, and 30 among
the fast tests. Formats with a checksum (zip archives, checkpoints, compressed MATLAB files, PNG)
never give another array for damaged bytes; .npy, plain MATLAB files, HDF5, Zarr, text and videos
have none that covers all of their bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for module in ("av", "h5py", "PIL", "zarr"):
    pytest.importorskip(module)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
CASES = int(os.environ.get("LOWTUCKER_FILE_FUZZ", "300"))


def fuzz(cases: int, seed: int) -> dict[str, int]:
    """Outcomes of mutated files; fails with those that are wrong."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            Path(__file__).with_name("file_fuzz.py"),
            str(cases),
            str(seed),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *wrong, last = map(json.loads, done.stdout.splitlines())
    assert not wrong, "\n".join(map(str, wrong))
    counts: dict[str, int] = last["counts"]
    return counts


def test_mutated_files_are_refused_or_read_as_they_were():
    counts = fuzz(30, seed=0)
    assert sum(counts.values()) == 30


@pytest.mark.slow
def test_many_mutated_files():
    counts = fuzz(CASES, seed=1)
    assert sum(counts.values()) == CASES
    # the mutations are not so mild that nothing is refused, nor so wild that all are
    refused = sum(n for name, n in counts.items() if name.endswith("refused"))
    assert 0.3 * CASES < refused < 0.95 * CASES
