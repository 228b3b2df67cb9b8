"""Errors of DuckDB as ours: what the user wrote is wrong, a table is missing, or the query would open files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from paimon_cli.api.scan import installed
from paimon_cli.errors import NotFound, PaimonError, Refused, UsageError
from paimon_cli.options.option_text import MAX_QUOTED, did_you_mean, shortened

EXTRA = "sql"
"""The extra that installs DuckDB."""


class CalledByQuery(Protocol):
    """Functions that DuckDB calls while a query runs."""

    def failure_in(self, text: str) -> PaimonError | None:
        """The error of a function that this error of DuckDB names; None if it names none."""


class ReadTable(Protocol):
    """A table that a query reads. `failure`: the error of its scan, which DuckDB would wrap in its own."""

    failure: PaimonError | None

    @property
    def schema(self) -> pa.Schema: ...


_QUOTED = re.compile(r'"([^"]+)"')
_VALUE = re.compile(rf"'.{{{MAX_QUOTED},}}'", re.DOTALL)
"""A long text that DuckDB quotes: it may be a value of the table."""
_BARE_PATH = re.compile(r"\b(?:from|join)\s+([\w.-]*/[^\s'\";,)]+)", re.IGNORECASE)
"""A path without quotes where a table is named."""
_CITED = re.compile(r"(LINE \d+: )(?:\.\.\.)?(.*?)(?:\.\.\.)?$")
"""A line of the query, below which a caret points to the error."""
_CAST_COLUMN = re.compile(r" when casting from source column (?:__)?\w+$")
_INTERNAL = re.compile(r"__(?:table|computed|new|part)_\d")
"""Names that stand for tables and values in the queries that we make."""
_FUNCTION = re.compile(r"(?:\w+ )*Function with name ")
_UNKNOWN_NAME = re.compile(r"Referenced column .* not found")
_KIND_OF_ERROR = re.compile(r"^[A-Z][\w ]* Error: ")


def _cut(found: re.Match[str]) -> str:
    return f"'{shortened(found[0][1:-1])}'"


@contextlib.contextmanager
def translated_errors(
    datasets: Sequence[ReadTable],
    missing: Sequence[NotFound] = (),
    written: str = "",
    functions: Sequence[CalledByQuery] = (),
) -> Iterator[None]:
    """Raise the error of a scan, or of one of our `functions`, that failed; else report DuckDB's error as one in the query.

    `missing`: the errors about tables that could not be opened, which may say what was meant. `written`: the statement of the
    user; what DuckDB cites from its own query is shown only if it is in there.
    """
    duckdb = installed("duckdb", EXTRA)
    try:
        yield
    except RecursionError:  # its tree is read as JSON
        why = "each operator of a chain such as a + b + c is a level"
        raise UsageError("the query is nested too deeply", why, "compute parts of it in WITH queries") from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        failures = (*(dataset.failure for dataset in datasets), *(called.failure_in(str(error)) for called in functions))
        failure = next(filter(None, failures), None)
        if failure is not None:
            raise failure from None
        what, _, lines = _KIND_OF_ERROR.sub("", str(error).strip()).partition("\n")
        what, why = _VALUE.sub(_cut, _CAST_COLUMN.sub("", what)), "\n".join(_shown_lines(lines.splitlines(), written))
        if isinstance(error, duckdb.CatalogException) and "does not exist" in what:
            if _FUNCTION.match(what):
                raise NotFound(what, why or "DuckDB has no such function") from error
            hint = "name tables as db.table with --warehouse, or by their path in double quotes"
            hint = next((error.hint for error in missing if error.is_about_a_name), hint)
            raise NotFound(what, "there is no such table", hint) from error
        if isinstance(error, duckdb.PermissionException):
            why = "a query reads tables only, unless the call allows it files"
            hint = "if you trust the query, add --allow-files; or name a table as db.table, or by its path in double quotes"
            raise Refused(what, why, hint) from error
        hint = ""
        if isinstance(error, duckdb.BinderException):
            hint = _meant_column(what, datasets) or (
                "write strings in single quotes: 'tea'" if _UNKNOWN_NAME.search(what) else ""
            )
        if "Cannot combine types" in what:
            hint = "give the values of a column one type: CAST(5 AS VARCHAR)"
        if isinstance(error, duckdb.ParserException) and (path := _BARE_PATH.search(written)) is not None:
            hint = f"a path in a query is in quotes: FROM '{path[1]}'"
        raise UsageError(what, why, hint) from error


def _shown_lines(lines: Sequence[str], written: str) -> Iterator[str]:
    """The lines below an error, without those that cite SQL which the user has not written, and name what is within it."""
    is_cited = True
    for line in lines:
        if (cited := _CITED.match(line)) is not None:
            is_cited = (text := cited[2].strip()) in written
            if is_cited:  # the line is that of the statement; the caret stays below its character
                number = f"LINE {written.count(chr(10), 0, written.index(text)) + 1}: "
                yield f"{number}{line[len(cited[1]) :]}".rstrip()
        elif line.strip() and (is_cited or line.strip(" ^~")) and not _INTERNAL.search(line):
            yield line.rstrip()


def _meant_column(what: str, datasets: Sequence[ReadTable]) -> str:
    """A hint that names a column which is similar to the unknown name that the error quotes; empty if there is none."""
    columns = {name for dataset in datasets for name in dataset.schema.names}
    unknown = (name for name in _QUOTED.findall(what) if name not in columns)
    return next(filter(None, (did_you_mean(name, columns).strip() for name in unknown)), "")
