"""Build the wheel and the sdist, and use both as somebody who has nothing else.

    python tools/check_distribution.py          # builds into dist/

The wheel is installed without extras into an empty environment, where the command and the demo run;
time and size of that installation are printed. The README's first example then runs with the extra
that its data need. The sdist is unpacked, and its tests are collected from there with this
interpreter.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the repository; return its output."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def build() -> tuple[Path, Path]:
    """Return the new sdist, and the wheel that was made from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    code = "import hatchling.build as b, sys; print(b.build_sdist(sys.argv[1]))"
    call(sys.executable, "-c", code, DIST, cwd=ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    call(*pip, "--wheel-dir", DIST, sdist, cwd=DIST)
    (wheel,) = DIST.glob("*.whl")
    return sdist, wheel


def size(folder: Path) -> float:
    """Return the megabytes of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def use_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel and its dependencies alone, and use it."""
    venv.create(folder / "venv", with_pip=True)
    binaries, before = folder / "venv" / "bin", size(folder / "venv")
    start = time.monotonic()
    call(binaries / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    took = time.monotonic() - start
    print(f"install: {took:.0f} s, {size(folder / 'venv') - before:.0f} MB with dependencies;"
          f" the wheel alone has {wheel.stat().st_size / 1e6:.1f} MB")  # fmt: skip
    print(call(binaries / "python", "-m", "lowtucker", "--version", cwd=folder).strip())
    call(binaries / "lowtucker", "demo", cwd=folder)
    first = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    if first is None:
        raise SystemExit("README.md has no example in a ```python block")
    lines = [line[4:] for line in first[1].splitlines() if line.startswith((">>> ", "... "))]
    call(binaries / "python", "-m", "pip", "install", "--quiet", f"{wheel}[bench]", cwd=folder)
    (folder / "example.py").write_text("\n".join(lines) if lines else first[1], encoding="utf-8")
    call(binaries / "python", "example.py", cwd=folder)


def use_sdist(sdist: Path, folder: Path) -> None:
    """Collect the tests of the unpacked sdist."""
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    (root,) = [path for path in folder.iterdir() if path.name.startswith("lowtucker-")]
    options = ["--collect-only", "--quiet", "--override-ini", "pythonpath=src tests"]
    found = call(sys.executable, "-m", "pytest", *options, cwd=root)
    print(f"sdist: {sdist.stat().st_size / 1e6:.1f} MB, {found.splitlines()[-1]}")


def main() -> None:
    """Build, and use both."""
    sdist, wheel = build()
    for use, what in ((use_wheel, wheel), (use_sdist, sdist)):
        with tempfile.TemporaryDirectory() as folder:
            use(what, Path(folder))


if __name__ == "__main__":
    main()
