"""Tables into which Fluss moves rows: what must not be taken out of them (docs/fluss-and-flink.md)."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.errors import Refused
from paimon_cli.history.table_context import TableContext

_MARKS = ("lakestream.enabled", "fluss.table.datalake.enabled")
"""Options that are true while Fluss moves rows into a table: since its version 1.0, and before."""


def expect_not_tiered(context: TableContext, work: str) -> None:
    """Raise `Refused` if Fluss moves rows into the table. `work`: what would remove rows or snapshots, worded for `cannot ...`.

    The option of a call counts, so that a user can say that Fluss does not use the table any more.
    """
    why = "Fluss knows which offsets of its log are in which snapshot, and does not see that rows or snapshots are gone"
    if (key := _mark(context.options.raw)) is not None:
        raise _refused(context, key, work, why, "remove the rows in Fluss; ")


def expect_own_buckets(context: TableContext, options: Mapping[str, str]) -> None:
    """Raise `Refused` if Fluss moves rows into the table, which then has the buckets of a table of Fluss. `options`: as they are
    to be, with those of the call.
    """
    if (key := _mark(options)) is not None:
        why = "Fluss writes the rows of each bucket of its own table into the same bucket here"
        raise _refused(context, key, "change the buckets of", why)


def _mark(options: Mapping[str, str]) -> str | None:
    return next((key for key in _MARKS if options.get(key, "").strip().lower() == "true"), None)


def _refused(context: TableContext, key: str, work: str, why: str, instead: str = "") -> Refused:
    what = f"cannot {work} {context.name}: Fluss moves rows into it ({key}=true)"
    return Refused(what, why, f"{instead}if Fluss does not use the table any more, add --option {key}=false", option=key)
