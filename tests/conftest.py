"""Array kinds that the tests run over, and other fixtures."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from browsers import Browsers
from cpu import CPUSeconds

# Problems are small: more BLAS threads would wait for each other more than they compute
threadpoolctl.threadpool_limits(int(os.environ.get("OPENBLAS_NUM_THREADS", "1")), user_api="blas")

# JAX compiles every operation for every shape, and runs it once or twice: nothing to optimise for
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

# A shell without job control starts background commands with SIGINT ignored, and so would be the
# commands that the tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--cpu", action="store_true", help="sum up CPU seconds per folder and test")


def pytest_configure(config):
    if config.getoption("--cpu"):
        config.pluginmanager.register(CPUSeconds())


def pytest_runtest_setup():
    """Torch has threads of its own; for small tensors two of them cost ten times what one does.

    The environment would have to say so before torch is imported, and then lowtucker would leave
    the threads of BLAS alone too.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_report_header():
    """Say which BLAS kernel rounds: OPENBLAS_CORETYPE and OPENBLAS_NUM_THREADS choose others."""
    blas = [f"{p['internal_api']} {p.get('architecture')}, {p['num_threads']} threads"
            for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]  # fmt: skip
    return f"BLAS: {'; '.join(dict.fromkeys(blas))}"


class Ticks:
    """A clock by which every step of a run takes a second, and nothing else takes any time."""

    def __init__(self) -> None:
        self.readings = 0

    def perf_counter(self) -> float:
        """Read before and after every step."""
        self.readings += 1
        return self.monotonic()

    def monotonic(self) -> float:
        return float(self.readings // 2)

    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self.readings += 2 * seconds


@pytest.fixture
def ticks(monkeypatch):
    """Fake clock of runs and of calls: a second a step."""
    made = Ticks()
    monkeypatch.setattr("lowtucker.run.loop.time", made)
    monkeypatch.setattr("lowtucker._array.clock.time", made)
    return made


KINDS = ["numpy", "readonly", "strict", "torch", "jax"]


@dataclass(frozen=True)
class Kind:
    """One kind of array: makes them, and recognises them."""

    name: str
    module: Any

    def __call__(self, value: Any, dtype: Any = None) -> Any:
        array = np.array(value, dtype=dtype)
        if self.name == "numpy":
            return array
        if self.name == "readonly":
            array.flags.writeable = False
            return array
        return self.module.asarray(array)

    def owns(self, array: Any) -> bool:
        return type(array) is type(self(np.zeros(1)))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    name = request.param
    modules = {"strict": "array_api_strict", "torch": "torch", "jax": "jax.numpy"}
    if name not in modules:
        return Kind(name, np)
    try:
        module = importlib.import_module(modules[name])
    except ImportError:
        pytest.skip(f"{name} is not installed: .ci/run installs it")
    if name == "jax":
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    return Kind(name, module)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


@pytest.fixture(scope="session")
def browsers():
    """Chromium and Firefox, started when asked for: ``browsers.page("firefox", "dark")``."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        made = Browsers(driver)
        yield made
        made.close()


@pytest.fixture(scope="session")
def browser(browsers):
    """Debian's Chromium, without network of its own."""
    return browsers("chromium")
