"""The way of a call: how much of the package one has to read to follow it.

    python tools/trace_calls.py                   # a table of all calls
    python tools/trace_calls.py recover fit       # of some of them
    python tools/trace_calls.py --returns         # also lists the last two columns

A call is easy to follow if it visits few modules, each of them once. This prints the number of

- modules in which a function ran, or that the call imported;
- functions, by module and qualified name. Comprehensions count, which Python 3.12 and later mostly
  run in place: compare numbers of one version only;
- cross-module calls, each time. Code outside of the package in between (contextlib, NumPy) is
  skipped; to resume a generator is a call;
- hallway: those of them between two modules of the hallway, which are all modules but tensors,
  operators and arrays;
- returns: such calls into a module that is on the stack already, as in A -> B -> A; "2 pairs, 9
  calls" are nine of them by two pairs of a module and its caller;
- shared modules: those that more than one other module calls.

The last two look at the hallway only: anybody may call tensors, operators and arrays. Properties,
special methods, lambdas and nested functions do not count there: they are what one module hands to
another. Generated code, such as the ``__init__`` of a dataclass, counts nowhere. Every call is made
in a process of its own, with one BLAS thread, so that its numbers do not depend on the calls before
it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import multiprocessing
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import threadpoolctl

import lowtucker as lt

HOME = str(Path(lt.__file__).parent / "_")[:-1]
FOUNDATION = {"tensor", "operators", "_array", "_arrays", "_linalg", "_random", "_errors"}


@dataclass
class Trace:
    """What a call has visited; a function for ``sys.setprofile``."""

    modules: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    crossings: int = 0
    callers: dict[str, set[str]] = field(default_factory=dict)  # of modules of the hallway
    hallway: int = 0  # crossings between two modules above the foundation
    returns: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (caller, module)

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """Count a call."""
        if event != "call" or (module := _module(frame)) is None:
            return
        code = frame.f_code
        self.modules.add(module)
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or of a class
            return
        self.functions.add((module, code.co_qualname))
        below = _below(frame)
        caller = next(below, module)
        if caller != module:
            self.crossings += 1
            self.hallway += not {module.split(".")[0], caller.split(".")[0]} & FOUNDATION
            if module.split(".")[0] not in FOUNDATION and not _handed_over(code, module):
                self.callers.setdefault(module, set()).add(caller)
                self.returns[caller, module] += module in below

    def summary(self) -> tuple[object, ...]:
        """Columns of the table."""
        pairs, shared = len(+self.returns), sum(len(c) > 1 for c in self.callers.values())
        returns = f"{pairs} pairs, {self.returns.total()} calls"
        return len(self.modules), len(self.functions), self.crossings, self.hallway, returns, shared

    def details(self) -> Iterator[str]:
        """Returns and shared modules."""
        for (caller, module), count in (+self.returns).most_common():
            yield f"{caller} returns to {module}: {count} calls"
        for module, callers in sorted(self.callers.items()):
            if len(callers) > 1:
                yield f"{module} is called by {', '.join(sorted(callers))}"


def _module(frame: FrameType) -> str | None:
    """Name without "lowtucker."; None for code of others, generated code and templates."""
    file = frame.f_code.co_filename
    if not (file.startswith(HOME) and file.endswith(".py")):
        return None
    return str(frame.f_globals["__name__"]).removeprefix("lowtucker.")


def _below(frame: FrameType) -> Iterator[str]:
    """Modules on the stack below a frame, the nearest first."""
    caller = frame.f_back
    while caller is not None:
        if (module := _module(caller)) is not None:
            yield module
        caller = caller.f_back


@functools.cache
def _handed_over(code: CodeType, module: str) -> bool:
    """Whether this is a property, a special method, a lambda or a nested function."""
    if "<" in code.co_qualname or (code.co_name[:2] == "__" == code.co_name[-2:]):
        return True
    found: Any = sys.modules.get(f"lowtucker.{module}")
    for part in code.co_qualname.split("."):
        found = inspect.getattr_static(found, part, None)
    return isinstance(found, property | functools.cached_property)


def _recover(m: int, trials: int | None = None, **settings: Any) -> Callable[[], object]:
    X = lt.random_tucker((10, 10, 5), (2, 2, 2), seed=0, trials=trials)
    A = lt.gaussian((10, 10, 5), m, seed=1, trials=trials)
    return functools.partial(lt.recover, A, A.forward(X), (2, 2, 2), **settings)


def _complete() -> Callable[[], object]:
    X = lt.random_tucker((15, 15, 15), (2, 2, 2), seed=0).full()
    holes = np.random.default_rng(0).random(X.shape) < 0.7
    return functools.partial(lt.complete, np.where(holes, np.nan, X), "auto")


def _fit(rank: Any) -> Callable[[], object]:
    from lowtucker.estimators import TuckerRegressor

    rng = np.random.default_rng(0)
    truth = lt.random_tucker((10, 10, 5), (2, 2, 2), seed=0).full()
    X = rng.standard_normal((300, 10, 10, 5))
    y = 5 + np.tensordot(X, truth, 3) + 0.1 * rng.standard_normal(300)
    return functools.partial(TuckerRegressor(rank).fit, X, y)


def _fig3() -> None:
    """One trial of one cell, four epochs, and the report; imports are a part of it."""
    try:
        lab = importlib.import_module("lowtucker.lab.experiments.reproduce")
    except ImportError:
        lab = importlib.import_module("lowtucker.experiments.reproduce")
    paper = lab.Paper()
    few = replace(paper.few, measurements=(60, 102), ranks=((1, 2, 2),), epochs=4)
    names = [f"{solver}_{what}" for solver in ("TIHT", "StoTIHT") for what in ("error", "epochs")]
    with tempfile.TemporaryDirectory() as folder:
        run = lab.Reproduction(("fig3",), Path(folder), 1, paper=replace(paper, few=few))
        # the report needs two cells: one is there already
        run.store.put(few, few.cells()[0], 0, 0, {name: np.ones(1) for name in names})
        run.run(run.pending())


CALLS: dict[str, tuple[str, Callable[[], Callable[[], object]]]] = {
    "recover": ("recover, dense, auto", lambda: _recover(300)),
    "stack": ("StoTIHT on a stack", lambda: _recover(400, 10, solver="stotiht")),
    "complete": ('complete(rank="auto")', _complete),
    "fit": ("TuckerRegressor.fit, rank given", lambda: _fit((2, 2, 2))),
    "fit-auto": ('TuckerRegressor.fit, rank "auto"', lambda: _fit("auto")),
    "fig3": ("one cell of reproduce fig3", lambda: _fig3),
}


def traced(name: str) -> Trace:
    """Way of one of the calls; what it is called with is made before."""
    trace = Trace()
    with threadpoolctl.threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = CALLS[name][1]()
        sys.setprofile(trace)
        try:
            call()
        finally:
            sys.setprofile(None)
    return trace


def main() -> None:
    """Print the table, and the details if they are asked for."""
    parser = argparse.ArgumentParser(description="Count what typical calls visit.")
    parser.add_argument("calls", nargs="*", metavar="CALL", help=f"any of {', '.join(CALLS)}")
    parser.add_argument("--returns", action="store_true", help="list returns and shared modules")
    arguments = parser.parse_args()
    names = arguments.calls or list(CALLS)
    if not set(names) <= set(CALLS):
        parser.error(f"CALL is any of {', '.join(CALLS)}.")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        traces = dict(zip(names, pool.map(traced, names), strict=True))
    row = "{:32} | {:>7} | {:>9} | {:>18} | {:>7} | {:19} | {:>6}"
    titles = ("modules", "functions", "cross-module calls", "hallway", "returns", "shared")
    print(row.format("call", *titles))
    for name, trace in traces.items():
        print(row.format(CALLS[name][0], *trace.summary()))
    for name, trace in traces.items() if arguments.returns else ():
        print(f"\n{CALLS[name][0]}", *trace.details(), sep="\n  ")


if __name__ == "__main__":
    main()
