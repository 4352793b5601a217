"""Tables with labels in text files: station,day,hour,count."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lowtucker._array.errors import FileFormatError
from lowtucker.io.arrays import looks_like
from lowtucker.io.guards import (
    as_path,
    check_target,
    file_size,
    first_bytes,
    replacing,
    require_file,
    require_memory,
)
from lowtucker.io.samples import is_text

__all__ = ["Table", "load_table", "save_table"]

NumPyArray = np.ndarray[Any, Any]
# Rows that are read at a time
CHUNK = 1 << 16
MISSING = {"", "na", "n/a", "nan", "null", "none"}
INTEGER, DECIMAL = re.compile(r"-?(0|[1-9]\d{0,17})"), re.compile(r"-?\d{1,15}\.\d{1,15}")
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d.%m.%y")
TIMES = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of labels and a value, read by :func:`load_table`; ``lowtucker.complete`` takes it.

    Attributes
    ----------
    names : tuple of str
        Columns of labels.
    value : str
        Column of the values.
    codes : array of int, shape (m, d)
        Which label each row has.
    labels : tuple of arrays
        Different labels of each column, in order.
    values : array, shape (m,)
        NaN where a value is missing.
    delimiter, decimal : str
        As in the file.
    """

    names: tuple[str, ...]
    value: str
    codes: NumPyArray
    labels: tuple[NumPyArray, ...]
    values: NumPyArray
    delimiter: str = ","
    decimal: str = "."

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor that the labels span."""
        return tuple(len(one) for one in self.labels)


def load_table(
    path: str | os.PathLike[str],
    index: Sequence[str] | None = None,
    value: str | None = None,
    *,
    decimal: str | None = None,
) -> Table:
    """Read a table with a column of labels for each mode, and a column of values.

    Parameters
    ----------
    path : path-like
        Text in UTF-8, its columns separated by tabs, semicolons, commas or blanks, fields quoted by
        ``"`` where needed. The first line may have the names of the columns. Lines before it that
        are empty or begin with ``#`` are skipped.
    index : sequence of str, optional
        Columns of labels, by name, or by number from "1"; by default all but that of the values,
        where the columns have names.
    value : str, optional
        Column of the values; by default the one that is left, or the last one. Empty fields, NA
        and NaN are missing values.
    decimal : "." or ",", optional
        Decimal mark; by default a comma where columns are not separated by commas, and values have
        commas.

    Returns
    -------
    Table
        Labels that are all numbers are in numerical order, those that are dates of one form in
        that of time, where it can be told days from months; others are sorted as texts.

    Raises
    ------
    FileFormatError
        If the file is not such a table; the message names line and column.

    Notes
    -----
    About 2 s for a million lines. Memory: 8 bytes a field, and the different labels.
    """
    path = as_path(path)
    require_file(path)
    head = first_bytes(path)
    if not is_text(head):
        raise FileFormatError(f"{path} is {looks_like(head)}; expected a table as text in UTF-8")
    require_memory(path, 8 * file_size(path), None)
    if decimal not in (None, ".", ","):
        raise ValueError(f'decimal must be "." or ",", got {decimal!r:.80}.')
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _Reader(path, file, decimal).read(index, value)
    except UnicodeDecodeError:
        raise FileFormatError(
            f"{path} is not text in UTF-8; convert it: iconv -f latin1 -t utf8"
        ) from None


class _Reader:
    """Reads one file, and knows the line for messages."""

    def __init__(self, path: Path, file: Iterable[str], decimal: str | None) -> None:
        self.path, self.decimal, self._skipped = path, decimal, 0
        lines = iter(file)
        first = self._first(lines)
        self.delimiter = _delimiter(first)
        found = self._lines(first, lines)
        self._rows = csv.reader(found, delimiter=self.delimiter, strict=True, skipinitialspace=True)
        self._head = [field.strip() for field in self._next_row() or []]

    def _first(self, lines: Iterator[str]) -> str:
        for line in lines:
            if line.strip() and not line.lstrip().startswith("#"):
                return line
            self._skipped += 1
        raise FileFormatError(f"{self.path} has no rows; expected a table with columns of labels")

    def _lines(self, first: str, others: Iterator[str]) -> Iterator[str]:
        """Lines of the table; blanks at their ends are no columns."""
        yield first.strip(" ") if self.delimiter == " " else first
        for line in others:
            yield line.strip(" ") if self.delimiter == " " else line

    @property
    def line(self) -> int:
        """Number of the line that was read last."""
        return self._rows.line_num + self._skipped

    def _next_row(self) -> list[str] | None:
        """Next row that is not empty; None at the end."""
        try:
            return next((row for row in self._rows if row), None)
        except csv.Error as error:
            raise FileFormatError(
                f"{self.path}, line {self.line}: {error}; is a quote missing?"
            ) from None

    def read(self, index: Any, value: Any) -> Table:
        """Read the rows."""
        named = _is_header(self._head, value)
        names = self._head if named else [f"column_{k + 1}" for k in range(len(self._head))]
        places, at = _chosen(self.path, names, named, index, value, self.delimiter)
        seen: list[dict[str, int]] = [{} for _ in places]
        codes, values = [], []
        for rows, lines in self._chunks([] if named else [self._head]):
            columns = list(zip(*rows, strict=True))
            codes.append(np.stack([
                self._codes(columns[k], found, lines, names[k])
                for k, found in zip(places, seen, strict=True)
            ], axis=1))  # fmt: skip
            values.append(self._numbers(columns[at], lines, names[at]))
        if not values:
            raise FileFormatError(f"{self.path} has no rows below the names of its columns")
        ordered = [_ordered(list(found), self.decimal) for found in seen]
        joined = np.concatenate(codes)
        placed = np.stack([o[0][joined[:, k]] for k, o in enumerate(ordered)], axis=1)
        if index is None:
            self._check_guess([names[k] for k in places], names[at], ordered, len(joined))
        labels = tuple(o[1] for o in ordered)
        chosen = tuple(names[k] for k in places)
        return Table(chosen, names[at], placed, labels, np.concatenate(values), self.delimiter,
                     self.decimal or ".")  # fmt: skip

    def _check_guess(
        self, names: list[str], value: str, ordered: list[tuple[NumPyArray, NumPyArray]], m: int
    ) -> None:
        """Refuse a guess where a column has another label in every row, as a key has."""
        keys = [n for n, o in zip(names, ordered, strict=True) if len(o[1]) == m > 1]
        if keys and len(names) > 1:
            others = [name for name in names if name not in keys] or names
            raise FileFormatError(
                f"{self.path}: column {keys[0]!r} has another label in every row: it can be no "
                f"mode. Say which columns are the modes, such as --index {','.join(others)} "
                f"--value {value}"
            )

    def _chunks(self, first: list[list[str]]) -> Iterator[tuple[list[list[str]], list[int]]]:
        """Rows, and the number of the line that each ends in."""
        width, rows, lines = len(self._head), first, [self.line] * len(first)
        while (row := self._next_row()) is not None:
            if len(row) != width:
                self._fail(
                    self.line, f"{len(row)} columns, and {width} in the first line{self._hint()}"
                )
            rows.append(row)
            lines.append(self.line)
            if len(rows) == CHUNK:
                yield rows, lines
                rows, lines = [], []
        if rows:
            yield rows, lines

    def _hint(self) -> str:
        return '; quote fields with commas, "1,5"' if self.delimiter == "," else ""

    def _codes(
        self, column: Sequence[str], seen: dict[str, int], lines: list[int], name: str
    ) -> NumPyArray:
        """Number of each label, in the order in which they come."""
        made = [seen.setdefault(text.strip(), len(seen)) for text in column]
        if "" in seen:
            self._fail(lines[made.index(seen[""])], f"no label in column {name!r}")
        return np.array(made, dtype=np.int64)

    def _numbers(self, column: Sequence[str], lines: list[int], name: str) -> NumPyArray:
        """Values; NaN where there is none."""
        together = "".join(column)
        if self.decimal is None and "," in together and self.delimiter != ",":
            self.decimal = ","
        elif self.decimal is None and "." in together:
            self.decimal = "."
        texts: Sequence[str] = column
        if self.decimal == ",":
            if "." in together:
                row = next(k for k, text in enumerate(column) if "." in text)
                self._no_number(lines[row], name, column[row])
            texts = [text.replace(",", ".") for text in column]
        try:
            made = np.array(texts, dtype=float)
        except ValueError:
            made = np.array([
                self._number(text, lines[k], name, column[k]) for k, text in enumerate(texts)
            ])  # fmt: skip
        infinite = np.flatnonzero(np.isinf(made))
        if len(infinite):
            self._fail(
                lines[infinite[0]], f"the value in column {name!r} is infinite; leave it empty"
            )
        return made

    def _number(self, text: str, line: int, name: str, given: str) -> float:
        if text.strip().lower() in MISSING:
            return np.nan
        try:
            return float(text)
        except ValueError:
            return self._no_number(line, name, given)

    def _no_number(self, line: int, name: str, text: str) -> NoReturn:
        hint = ""
        if re.search(r"\d[.,]\d", text):
            hint = (
                f"; the decimal mark is {self.decimal or '.'!r} here (--decimal), and there may be "
                "no marks between thousands"
            )
        self._fail(line, f"{text[:40]!r} in column {name!r} is not a number{hint}")

    def _fail(self, line: int, what: str) -> NoReturn:
        raise FileFormatError(f"{self.path}, line {line}: {what}")


def save_table(
    path: str | os.PathLike[str],
    columns: Mapping[str, Any],
    *,
    delimiter: str = ",",
    decimal: str = ".",
    overwrite: bool = False,
) -> None:
    """Write columns as a table that :func:`load_table` reads; NaN as an empty field.

    Parameters
    ----------
    path : path-like
    columns : mapping of str to arrays of one length
    delimiter, decimal : str
        Separators of columns and decimals.
    overwrite : bool
    """
    path = as_path(path)
    check_target(path, overwrite)
    texts = [_texts(np.asarray(column), decimal) for column in columns.values()]
    if len({len(one) for one in texts}) > 1:
        raise ValueError(
            f"columns must be of one length, got {[len(one) for one in texts]} for {list(columns)}."
        )
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(columns)
        rows = zip(*texts, strict=True)
        while some := list(islice(rows, CHUNK)):
            writer.writerows(some)
        text.flush()
        text.detach()


def _texts(column: NumPyArray, decimal: str) -> list[str]:
    if column.dtype.kind == "b":
        return ["true" if one else "false" for one in column.tolist()]
    if column.dtype.kind != "f":
        return list(map(str, column.tolist()))
    made = ["" if one != one else repr(one) for one in column.tolist()]
    return made if decimal == "." else [text.replace(".", decimal) for text in made]


def _delimiter(line: str) -> str:
    """What separates columns: a tab, a semicolon or a comma that is not quoted, or blanks."""
    bare = re.sub(r'"[^"]*"', "", line)
    return next((mark for mark in "\t;," if mark in bare), " ")


def _is_header(first: list[str], value: str | None) -> bool:
    """Whether a row has the names of the columns: that of the values is then no number."""
    if value is not None and value in first:
        return True
    place = int(value) - 1 if value is not None and value.isdecimal() else -1
    text = first[place] if -1 <= place < len(first) else first[-1]
    return text.lower() not in MISSING and not re.fullmatch(r"[-+]?[\d.,]+([eE][-+]?\d+)?", text)


def _chosen(
    path: Path, names: list[str], named: bool, index: Any, value: Any, delimiter: str
) -> tuple[list[int], int]:
    """Places of the columns of labels, and of that of the values."""
    if len(names) < 2:
        raise FileFormatError(
            f"{path} has one column, {names[0]!r:.60}; expected columns of labels and one of "
            "values, separated by commas, semicolons or tabs"
        )
    if not named and index is None:
        numbers = ",".join(str(k + 1) for k in range(len(names) - 1))
        raise FileFormatError(
            f"{path} has no names of columns. Give --shape if its columns are indices from 0, or "
            f"say which columns hold labels: --index {numbers} --value {len(names)}"
        )
    at = None if value is None else _place(path, names, named, value)
    if index is None:
        at = len(names) - 1 if at is None else at
        return [k for k in range(len(names)) if k != at], at
    places = [_place(path, names, named, name) for name in index]
    if at is None:
        others = [k for k in range(len(names)) if k not in places]
        if len(others) != 1:
            listed = ", ".join(names[k] for k in others) or "none is left"
            raise FileFormatError(f"{path}: say which column has the values, --value: {listed}")
        at = others[0]
    if len({*places, at}) <= len(places):
        raise FileFormatError(f"{path}: a column is given twice in --index and --value")
    return places, at


def _place(path: Path, names: list[str], named: bool, column: str) -> int:
    """Place of a column by its name, or its number where columns have no names."""
    if names.count(column) == 1 and named:
        return names.index(column)
    if names.count(column) > 1:
        raise FileFormatError(f"{path} has several columns {column!r}; rename them")
    number = int(column) if column.isdecimal() else 0
    if 1 <= number <= len(names):
        return number - 1
    listed = ", ".join(names) if named else f"1 to {len(names)}"
    raise FileFormatError(f"{path} has no column {column!r}; its columns are {listed}")


def _ordered(texts: list[str], decimal: str | None) -> tuple[NumPyArray, NumPyArray]:
    """Place of each label in their order, and the labels in that order; equal numbers are one."""
    labels, places = np.unique(_numeric(texts, decimal), return_inverse=True)
    dates = _dates(texts) if labels.dtype.kind == "U" else None
    if dates is None:
        return places.reshape(-1), labels
    order = sorted(range(len(texts)), key=dates.__getitem__)
    placed = np.empty(len(texts), dtype=np.int64)
    placed[order] = np.arange(len(texts))
    return placed, np.array(texts)[order]


def _numeric(texts: list[str], decimal: str | None) -> NumPyArray:
    """Labels as numbers, where all are; numbers such as 007 are texts."""
    if all(map(INTEGER.fullmatch, texts)):
        return np.array(texts, dtype=np.int64)
    points = texts if decimal != "," else [text.replace(",", ".") for text in texts]
    if all(DECIMAL.fullmatch(text) or INTEGER.fullmatch(text) for text in points):
        return np.array(points, dtype=float)
    return np.array(texts)


def _dates(texts: list[str]) -> list[datetime] | None:
    """Dates of one form; None where they are none, or days cannot be told from months."""
    if not all(text[:1].isdecimal() for text in texts):
        return None
    try:
        found = [datetime.fromisoformat(text) for text in texts]
        return found if len({one.tzinfo is None for one in found}) == 1 else None
    except ValueError:
        pass
    forms = [date + time for date, time in product(DATES, TIMES)]
    made = [dates for form in forms if (dates := _parsed(texts, form)) is not None]
    return made[0] if len(made) == 1 else None


def _parsed(texts: list[str], form: str) -> list[datetime] | None:
    try:
        return [datetime.strptime(text, form) for text in texts]
    except ValueError:
        return None
