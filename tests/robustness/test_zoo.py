"""Every argument of every public function, replaced by every value of a zoo of bad ones.

Whatever is refused is so by an error that the package raises itself, with a message of its own: no
message of NumPy, SciPy or Python, no error of another kind.
"""

from __future__ import annotations

import inspect
import linecache
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import lowtucker as lt
from bad_calls import zoo

PACKAGE = str(Path(lt.__file__).parent)
# Refused by others, and why that is right
ALLOWED = {
    ("check_adjoint", "rtol", "zero"): "the check fails: no operator is exact",
    ("check_restriction", "rtol", "zero"): "the check fails: no operator is exact",
    ("phase_transition", "operator", "a format"): "the user's function raises",
    ("phase_transition", "progress", "class"): "the user's function raises",
    ("phase_transition", "progress", "a format"): "the user's function raises",
}
# What scikit-learn refuses in its own words, which its checks of estimators ask for; but not these
WORDED_BY_SKLEARN = {("TuckerRegressor", "X"), ("TuckerRegressor", "y"), ("TuckerImputer", "X")}
OURS = {"text", "texts", "text array", "dates"}


def refused_by_others(function, arguments):
    """Error of a call that is not one of the package; None if it is, or if nothing is raised."""
    try:
        function(**arguments)
    except (ValueError, TypeError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = linecache.getline(last.filename, last.lineno or 0).strip()
        own = last.filename.startswith(PACKAGE) and line.startswith("raise")
        return None if own and len(str(error)) > 20 else error
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3))])
@pytest.mark.parametrize("name", zoo.GOOD)
def test_bad_values_are_refused_by_messages_of_the_package(name, part, tmp_path, monkeypatch):
    """All values in four parts: other ones for each argument."""
    monkeypatch.chdir(tmp_path)  # "text" is the name of a checkpoint
    function, good = zoo.GOOD[name]
    wrong = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        function(**good)
        for k, argument in enumerate(good):
            for label, make in list(zoo.VALUES.items())[(part + k) % 4 :: 4]:
                error = refused_by_others(function, good | {argument: make()})
                if (name, argument) in WORDED_BY_SKLEARN and label not in OURS:
                    continue
                if error is not None and (name, argument, label) not in ALLOWED:
                    wrong.append(f"{argument} = {label}: {error!r:.200}")
    assert not wrong, "\n".join(wrong)


def test_the_zoo_has_every_public_function():
    """Those that are not in it take no argument of a user, or are tested by files."""
    others = {
        "load", "stored", "from_dask", "compare",  # files, clusters
        "quasi_optimality",
    }  # fmt: skip
    functions = {name for name in lt.__all__ if inspect.isfunction(getattr(lt, name))}
    assert functions - others <= set(zoo.GOOD)
    assert len(zoo.VALUES) > 50
