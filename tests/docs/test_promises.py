"""The page of guarantees: every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "promises.md"
TEXT = PAGE.read_text(encoding="utf-8")
# Rows of tables, items of lists, paragraphs
PARTS = re.split(r"\n(?=[|-] )|\n\n", TEXT)
ROWS = [part for part in PARTS if part.startswith("| ")]
ROWS = [row for row in ROWS if "tested by |" not in row and not row.startswith("| ---")]


@cache
def functions_of(file):
    """Names of the functions in a file."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def named(text):
    """Pairs of a file and a test in it, None for the file itself; a test follows its file."""
    file, found = None, []
    for word in re.findall(r"`([^`]+)`", text):
        if re.fullmatch(r"[\w/]+\.py", word):
            file = word
            found.append((file, None))
        elif re.fullmatch(r"test_\w+", word):
            found.append((file, word))
    return found


def missing(text):
    """What a text names and does not exist."""
    wrong = []
    for file, test in named(text):
        if file is None or not (TESTS / file).is_file():
            wrong.append(f"{file}: {test}" if test else file)
        elif test and test not in functions_of(file):
            wrong.append(f"{file}: {test}")
    return wrong


def test_every_test_on_the_page_exists():
    assert [name for part in PARTS for name in missing(part)] == []
    assert sum(test is not None for part in PARTS for _, test in named(part)) > 100


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_every_guarantee_names_a_test(row):
    guarantee, tests = row.strip("| ").rsplit(" | ", 1)
    assert guarantee
    assert any(test for _, test in named(tests)), row


def test_a_test_that_does_not_exist_is_noticed():
    assert missing("`test_import.py`: `test_import_loads_the_package_alone`") == []
    assert missing("`test_import.py`: `test_nothing`") == ["test_import.py: test_nothing"]
    assert missing("`no/such.py`: `test_a`") == ["no/such.py", "no/such.py: test_a"]
    assert missing("`test_a`, then `test_import.py`") == ["None: test_a"]


def test_environment_variables_on_the_page_are_used():
    files = [*TESTS.rglob("*.py"), *(TESTS.parent / "src").rglob("*.py")]
    used = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for name in set(re.findall(r"LOWTUCKER_\w+", TEXT)):
        assert f'"{name}"' in used, name
