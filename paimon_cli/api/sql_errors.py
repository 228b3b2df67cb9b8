"""Errors of DuckDB as ours: what the user wrote is wrong, a table is missing, or the query would open files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from paimon_cli.api.scan import installed
from paimon_cli.errors import NotFound, PaimonError, Refused, UsageError
from paimon_cli.options.option_text import did_you_mean

EXTRA = "sql"
"""The extra that installs DuckDB."""


class ReadTable(Protocol):
    """A table that a query reads. `failure`: the error of its scan, which DuckDB would wrap in its own."""

    failure: PaimonError | None

    @property
    def schema(self) -> pa.Schema: ...


_QUOTED = re.compile(r'"([^"]+)"')
_BARE_PATH = re.compile(r"\b(?:from|join)\s+([\w.-]*/[^\s'\";,)]+)", re.IGNORECASE)
"""A path without quotes where a table is named."""
_KIND_OF_ERROR = re.compile(r"^[A-Z][\w ]* Error: ")


@contextlib.contextmanager
def translated_errors(datasets: Sequence[ReadTable], missing: Sequence[NotFound] = (), query: str = "") -> Iterator[None]:
    """Raise the error of a scan that failed; otherwise report an error of DuckDB as an error in the query.

    `missing`: the errors about tables that could not be opened, which may say what was meant.
    """
    duckdb = installed("duckdb", EXTRA)
    try:
        yield
    except RecursionError:  # its tree is read as JSON
        why = "each operator of a chain such as a + b + c is a level"
        raise UsageError("the query is nested too deeply", why, "compute parts of it in WITH queries") from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        failure = next((dataset.failure for dataset in datasets if dataset.failure is not None), None)
        if failure is not None:
            raise failure from None
        what, _, lines = str(error).strip().partition("\n")
        why = "\n".join(line.rstrip() for line in lines.splitlines() if line.strip())  # a caret points into the line above
        if isinstance(error, duckdb.CatalogException) and "does not exist" in what:
            hint = "name tables as db.table with --warehouse, or by their path in double quotes"
            hint = next((error.hint for error in missing if error.is_about_a_name), hint)
            raise NotFound(_KIND_OF_ERROR.sub("", what), "there is no such table or function", hint) from error
        if isinstance(error, duckdb.PermissionException):
            why = "a query reads tables only, unless the call allows it files"
            hint = "if you trust the query, add --allow-files; or name a table as db.table, or by its path in double quotes"
            raise Refused(_KIND_OF_ERROR.sub("", what), why, hint) from error
        hint = ""
        if isinstance(error, duckdb.BinderException):
            hint = _meant_column(what, datasets) or "write strings in single quotes: 'tea'"
        if isinstance(error, duckdb.ParserException) and (path := _BARE_PATH.search(query)) is not None:
            hint = f"a path in a query is in quotes: FROM '{path[1]}'"
        raise UsageError(_KIND_OF_ERROR.sub("", what), why, hint) from error


def _meant_column(what: str, datasets: Sequence[ReadTable]) -> str:
    """A hint that names a column which is similar to the unknown name that the error quotes; empty if there is none."""
    columns = {name for dataset in datasets for name in dataset.schema.names}
    unknown = (name for name in _QUOTED.findall(what) if name not in columns)
    return next(filter(None, (did_you_mean(name, columns).strip() for name in unknown)), "")
