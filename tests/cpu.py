"""CPU seconds of the tests, per folder and per test: ``pytest --cpu``.

Unlike seconds on the clock they hardly depend on what else the machine does. Child processes count
once they have ended.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

MOST = 40


def _now() -> float:
    return sum(os.times()[:4])


class CPUSeconds:
    """Attach CPU seconds to every report, and sum them up at the end."""

    def __init__(self) -> None:
        self.last = _now()

    def pytest_runtest_logstart(self) -> None:
        self.last = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = _now()
        report.cpu, self.last = now - self.last, now  # xdist sends the attributes of a report
        return report

    def pytest_terminal_summary(self, terminalreporter) -> None:
        folders, tests = Counter(), Counter()
        for report in (r for some in terminalreporter.stats.values() for r in some):
            if hasattr(report, "cpu"):
                path, _, name = report.nodeid.partition("::")
                folders["/".join(path.split("/")[:2])] += report.cpu
                tests[f"{path}::{name.partition('[')[0]}"] += report.cpu
        terminalreporter.section(f"CPU seconds: {folders.total():.0f}")
        for name, seconds in [*folders.most_common(), *tests.most_common(MOST)]:
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
