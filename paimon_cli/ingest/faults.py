"""Faults of the input: cells that a conversion refuses, and how they are counted, reported and written to a file of rejects."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.errors import BadInput, UsageError
from paimon_cli.ingest.number_form import USUAL_FORMS, flags_of
from paimon_cli.ingest.text_form import null_value_flag
from paimon_cli.options.option_text import counted, printable

SHOWN_LENGTH = 60


class BadCell(NamedTuple):
    """A value that its column cannot hold; `row` counts from 0 within the array that was converted."""

    row: int
    value: object
    why: str


class BadCells(Exception):
    """The cells that one step of a conversion refuses, in ascending order of rows. Later steps may refuse more."""

    def __init__(self, cells: Sequence[BadCell]) -> None:
        super().__init__(cells)
        self.cells = cells

    @property
    def first(self) -> BadCell:
        return self.cells[0]


class WrongType(Exception):
    """The type of a whole column does not convert. `found`: its Arrow type as text; `why`: the reason, if that is not enough.

    `row`, `cells`: where `converted` raises it, the first row with a value of that type, and cells that are bad in themselves.
    """

    def __init__(self, found: str, why: str = "") -> None:
        super().__init__(found, why)
        self.found = found
        self.why = why
        self.row = 0
        self.cells: list[BadCell] = []


def shown(value: object) -> str:
    """The value for a message, shortened and in one line; text is quoted, so that blanks are visible."""
    text = plain_text(value)
    if len(text) > SHOWN_LENGTH:
        text = text[: SHOWN_LENGTH - 1] + "…"
    text = printable(text)
    return f"'{text}'" if isinstance(value, str) else text


def in_one_line(text: str) -> str:
    """The text with visible line ends."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def plain_text(value: object) -> str:
    """The value as text for any output format; bytes as hex."""
    text = "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    return text.encode(errors="backslashreplace").decode()


def bad_cells(array: pa.Array, rows: Sequence[int] | np.ndarray, why: str) -> BadCells:
    """The error for these rows of the array, counted from 0."""
    return BadCells([BadCell(int(row), python_value(array[int(row)]), why) for row in rows])


def python_value(scalar: pa.Scalar) -> Any:
    """The value as a Python object, or as Arrow's text if Python has none (nanoseconds, years outside of its calendar)."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.string()))


def require(array: pa.Array, passes: pa.Array | np.ndarray, why: str) -> None:
    """Raise `BadCells` for the rows where `passes` is false. Where it is null the row passes: nulls are checked elsewhere."""
    mask = passes if isinstance(passes, np.ndarray) else pc.fill_null(passes, True).to_numpy(zero_copy_only=False)
    if not mask.all():
        raise bad_cells(array, np.flatnonzero(~mask), why)


def attempt(array: pa.Array, convert: Callable[[pa.Array], pa.Array], why: str) -> pa.Array:
    """Return `convert(array)`. If Arrow refuses it, raise `BadCells` for all refused rows, found by halving."""
    try:
        return convert(array)
    except pa.ArrowInvalid as problem:
        raise bad_cells(array, _refused(array, 0, convert), why) from problem


def _refused(array: pa.Array, first: int, convert: Callable[[pa.Array], pa.Array]) -> list[int]:
    """The rows, counted from `first`, whose values do not convert."""
    try:
        convert(array)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return [first]
        half = len(array) // 2
        return _refused(array.slice(0, half), first, convert) + _refused(array.slice(half), first + half, convert)
    return []


def converted(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, list[BadCell]]:
    """The result of `convert(array)` with null for refused cells, and these cells in ascending order of rows.

    Raises `WrongType`.
    """
    cells: list[BadCell] = []
    while True:
        try:
            return convert(array), sorted(cells, key=lambda cell: cell.row)
        except WrongType as wrong:
            wrong.row = int(np.argmax(array.is_valid().to_numpy(zero_copy_only=False))) if len(array) else 0
            wrong.cells = cells
            raise
        except BadCells as refused:
            cells += refused.cells
            array = _null_at(array, [cell.row for cell in refused.cells])


def _null_at(array: pa.Array, rows: Sequence[int]) -> pa.Array:
    """The array with null in these rows."""
    indices = np.arange(len(array))
    return array.take(pa.array(indices, mask=np.isin(indices, rows)))


MAX_SHOWN_FAULTS = 20
MAX_VALUE_LENGTH = 4096
"""Characters of a value in the file of rejects: enough to find it in the source."""
NEEDS_ZONE = "a TIMESTAMP WITH LOCAL TIME ZONE needs Z or an offset such as +02:00, or --timezone"
TAKES_NO_ZONE = "a TIMESTAMP without time zone takes no Z and no offset without --timezone, such as --timezone UTC"
NOT_UTF_8 = "it is not valid UTF-8; --encoding selects another encoding"
NO_NUMBERS = NOT_A_NUMBER, NOT_WHOLE = "it is not a number", "it is not a whole number"
AFTER_QUOTE = "after the quote that closes a cell, only a delimiter or the end of the line may follow"
NOT_JSON, NO_OBJECT, KEY_IS_MISSING = "it is not JSON: ", "it is not a JSON object but ", " is missing"
TOO_DEEP = "its values are nested too deeply to be read"
KEYS_OF_EVENTS: dict[str, tuple[frozenset[str], ...]] = {
    "debezium": (frozenset(("before", "after")), frozenset(("payload", "schema"))),
    "debezium-flat": (frozenset(("__op",)), frozenset(("__deleted",))),
    "canal": (frozenset(("data", "database", "table", "type", "isDdl")),),
    "maxwell": (frozenset(("data", "database", "table", "type")),),
}
"""For each format of change streams, keys by which its events are recognised."""
USUAL_NULLS = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "nil", r"\n", "-", "--", "?", "."})


class Fault(NamedTuple):
    """Why a row is rejected. `row` counts data rows of the source from 1; `column` is None if the row could not be parsed.

    `is_parsed`: whether the value is text of a file that options such as `--null-value` can give another meaning.
    """

    source: str
    row: int
    column: str | None
    value: object
    why: str
    is_parsed: bool = True

    @property
    def what(self) -> str:
        cell = "" if self.column is None else f", column '{self.column}' cannot take {shown(self.value)}"
        return f"{self.source}: row {self.row}{cell}"

    def record(self) -> dict[str, object]:
        """The fault as it is written to the file of rejects and to JSON output."""
        value = None if self.value is None else plain_text(self.value)[:MAX_VALUE_LENGTH]
        return {"source": self.source, "row": self.row, "column": self.column, "value": value, "reason": self.why}


@dataclass
class Tally:
    """Counts of rows and faults in one split or, merged in the order of the splits, in the whole input; and the first faults.

    `rows`: valid rows. `missing_columns`: columns that some rows lack, where they become null. `other_bucket_rows`: valid rows
    that were left out, because another writer owns their buckets. `unordered_deletes`: deletions without a value of the
    first sequence field, which remove no row that has one.
    """

    rows: int = 0
    bad_rows: int = 0
    bad_cells: int = 0
    first: list[Fault] = field(default_factory=list)
    missing_columns: set[str] = field(default_factory=set)
    other_bucket_rows: int = 0
    unordered_deletes: int = 0

    def note(self, faults: Sequence[Fault]) -> None:
        """Record the faults of some rows, in ascending order of rows."""
        self.bad_rows += len({fault.row for fault in faults})
        self.bad_cells += len(faults)
        self.first += faults[: MAX_SHOWN_FAULTS - len(self.first)]

    @staticmethod
    def of(parts: Iterable[Tally]) -> Tally:
        total = Tally()
        for part in parts:
            total.rows += part.rows
            total.bad_rows += part.bad_rows
            total.bad_cells += part.bad_cells
            total.first += part.first[: MAX_SHOWN_FAULTS - len(total.first)]
            total.missing_columns |= part.missing_columns
            total.other_bucket_rows += part.other_bucket_rows
            total.unordered_deletes += part.unordered_deletes
        return total

    def error(self) -> BadInput:
        """One error for all faults: the first one as its headline, up to `MAX_SHOWN_FAULTS` listed, and a hint."""
        first = self.first[0]
        advice = suggested_options(self.first) or f"correct the input and run again{self._leaving_out}"
        hint = f"nothing was committed; {advice}"
        details = {**first.record(), "bad_rows": self.bad_rows, "bad_cells": self.bad_cells}
        details = {key: value for key, value in details.items() if key != "reason" and value is not None}
        if self.bad_cells == 1:
            return BadInput(first.what, first.why, hint, **details, faults=[first.record()])
        lines = [f"  {fault.what}: {fault.why}" for fault in self.first]
        if self.bad_cells > len(lines):
            lines.append(f"  and {self.bad_cells - len(lines):,} more (all of them: --on-error FILE)")
        what = f"{first.what}, and {self.bad_cells - 1:,} more in {self.bad_rows:,} {'row' if self.bad_rows == 1 else 'rows'}"
        return BadInput(what, "\n".join([first.why, *lines]), hint, **details, faults=[fault.record() for fault in self.first])

    @property
    def _leaving_out(self) -> str:
        """How to write the other rows, with what is lost then; empty if there are none, or they were not counted."""
        if not self.rows:
            return ""
        return f", or lose {counted(self.bad_rows, 'row')} of {self.rows + self.bad_rows:,}: --on-error skip"


def change_event(format: str) -> str:
    """Why a row is rejected that is an event of this format."""
    return f"it is an event of a stream of changes ({format}), and not a row"


def format_of_event(keys: Set[str]) -> str | None:
    """The format of the change stream whose events have these keys, None for rows."""
    return next((name for name, of_format in KEYS_OF_EVENTS.items() if any(one <= keys for one in of_format)), None)


def suggested_options(faults: Sequence[Fault]) -> str:
    """Options of the command line with which the first of these faults may not occur, for a hint; '' if there are none."""
    texts = Counter(fault.value for fault in faults if isinstance(fault.value, str) and fault.is_parsed)
    nulls = [text for text, _ in texts.most_common() if isinstance(text, str) and text.lower() in USUAL_NULLS]
    of_nulls = f"if {shown(nulls[0])} may become null: {null_value_flag(nulls[0])}" if nulls else ""
    of_text = [advice for advice in (of_nulls, _flags_of_numbers(faults)) if advice]
    if of_text:
        return "; ".join(of_text)
    if any(fault.why in (NEEDS_ZONE, TAKES_NO_ZONE) for fault in faults):
        return "give the zone, such as --timezone UTC"
    if any(fault.why.endswith(AFTER_QUOTE) for fault in faults):
        return "write a quote within a quoted cell twice, or, if these quotes are ordinary characters: --quote none"
    if any(fault.why == NOT_UTF_8 for fault in faults):
        return "name the encoding of the file, such as --encoding latin1"
    if (events := next((one for one in KEYS_OF_EVENTS if faults[0].why == change_event(one)), None)) is not None:
        return f"`ingest` applies such events to tables, with --format {events}"
    if faults[0].row == 1 and faults[0].why.startswith((NOT_JSON, NO_OBJECT)):
        return "rows are objects, each on a line of its own or all in one array; jq -c . FILE turns other JSON into lines"
    if faults[0].why.endswith(KEY_IS_MISSING):
        return "--missing-columns null makes missing keys null"
    return ""


def _flags_of_numbers(faults: Sequence[Fault]) -> str:
    """Options with which more than half of the refused texts are the numbers that they should be; '' without such options."""
    refused = [fault.value for fault in faults if fault.why in NO_NUMBERS and isinstance(fault.value, str)]
    amounts = pa.array([text for text in refused if text.lower() not in USUAL_NULLS], pa.string())
    fits = {form: form.matches(amounts) for form in USUAL_FORMS}
    counts = {form: pc.sum(matches).as_py() or 0 for form, matches in fits.items()}
    most = max(counts.values())
    if 2 * most <= len(amounts):
        return ""
    best = [form for form, count in counts.items() if count == most]
    return f"if {shown(amounts.filter(fits[best[0]])[0].as_py())} is a number: {' or '.join(flags_of(best))}"


class RejectFile:
    """A local file of faults, CSV if its extension says so, else ndjson. It appears under its name only once it is complete."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._partial = f"{path}.{os.getpid()}.partial"
        self._as_csv = path.lower().endswith(".csv")
        self._file: TextIO | None = None

    def check(self, sources: Iterable[str]) -> None:
        """Raise `UsageError`, before any work, if the file cannot be written or is one of the sources."""
        directory = os.path.dirname(self.path) or "."
        if "://" in self.path:
            raise UsageError(f"--on-error {self.path}", "bad cells are written to a local file", "name a local file")
        if os.path.isdir(self.path) or not os.path.isdir(directory) or not os.access(directory, os.W_OK):
            why = "it is a directory" if os.path.isdir(self.path) else f"{directory} is not a writable directory"
            raise UsageError(f"--on-error {self.path}", why, "name a file for the bad cells in another directory")
        if any(os.path.exists(source) and os.path.realpath(source) == os.path.realpath(self.path) for source in sources):
            raise UsageError(f"--on-error {self.path} is one of the sources", "it would be overwritten", "name another file")

    def __enter__(self) -> RejectFile:
        self._file = open(self._partial, "w", encoding="utf-8", newline="")
        if self._as_csv:
            csv.writer(self._file, lineterminator="\n").writerow((*Fault._fields[:4], "reason"))
        return self

    def add(self, faults: Sequence[Fault]) -> None:
        assert self._file is not None
        if self._as_csv:
            csv.writer(self._file, lineterminator="\n").writerows(fault.record().values() for fault in faults)
        else:
            self._file.writelines(json.dumps(fault.record(), ensure_ascii=False) + "\n" for fault in faults)

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._file is not None
        try:
            if error_type is None:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()
            if error_type is None:
                os.replace(self._partial, self.path)
        finally:
            if os.path.exists(self._partial):
                os.remove(self._partial)


@dataclass
class RejectingTally(Tally):
    """A tally that also writes every fault to a file."""

    file: RejectFile | None = None

    def note(self, faults: Sequence[Fault]) -> None:
        super().note(faults)
        if self.file is not None:
            self.file.add(faults)
