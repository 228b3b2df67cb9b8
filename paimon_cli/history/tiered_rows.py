"""Tables into which Fluss moves rows: what must not be taken out of them (docs/fluss-and-flink.md)."""

from __future__ import annotations

from paimon_cli.errors import Refused
from paimon_cli.history.table_context import TableContext

_MARKS = ("lakestream.enabled", "fluss.table.datalake.enabled")
"""Options that are true while Fluss moves rows into a table: since its version 1.0, and before."""


def expect_not_tiered(context: TableContext, work: str) -> None:
    """Raise `Refused` if Fluss moves rows into the table. `work`: what would remove rows or snapshots, worded for `cannot ...`.

    The option of a call counts, so that a user can say that Fluss does not use the table any more.
    """
    for key in _MARKS:
        if context.options.raw.get(key, "").strip().lower() == "true":
            raise Refused(
                f"cannot {work} {context.name}: Fluss moves rows into it ({key}=true)",
                "Fluss knows which offsets of its log are in which snapshot, and does not see that rows or snapshots are gone",
                f"remove the rows in Fluss; if Fluss does not use the table any more, add --option {key}=false",
                option=key,
            )
