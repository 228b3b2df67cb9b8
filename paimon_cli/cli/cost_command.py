"""`cost`: the bytes of tables by what keeps them, and what each removal would free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Listing, records
from paimon_cli.cli.parameters import Given
from paimon_cli.cli.results import counted, human_size, say
from paimon_cli.errors import PartialSuccess
from paimon_cli.requests.integrity import CostOfTables

if TYPE_CHECKING:
    from paimon_cli.inspect.daily_growth import GrowthRow
    from paimon_cli.inspect.operation_cost import OperationCost
    from paimon_cli.jobs.table_cost import Saving, TableCost

SHOWN_SAVINGS = 5
"""The most savings of a table that are shown; JSON has all."""
SHOWN_DAYS = 7
"""The newest days whose growth is shown; JSON has all."""

_CALLED = {
    "read": "a read of all rows",
    "write": "a write",
    "compaction": "the due compaction",
    "idle hour": "an idle hour of a service",
}

commands = top_level()


@command(commands, "cost")
def cost(call: Call, *, options: Annotated[Given, CostOfTables]) -> None:
    """Show what tables store, by what keeps it: the latest snapshot, older ones, a tag, a branch, a consumer, or nothing.

    Each file counts once, so the rows add up to the bytes in the table's directory. Below them stands what an expiry, or the
    removal of a tag, branch, consumer or of orphans, would free, and what it leaves for another command to delete; what the
    compaction that is due replaces, how the table has grown by day (UTC), and what requests a read, a write, that compaction and
    an idle hour of a service take. Exits with 9 if the cost of a table cannot be told.

    paimon-cli cost ./wh/shop.db/orders

    paimon-cli cost ./wh/shop.db/orders --prices aws-s3

    paimon-cli cost --database shop --warehouse ./wh -o json
    """
    from paimon_cli.inspect.stored_bytes import CostRow

    catalog = replace(call, changes_tables=False).catalog(False)
    costs = catalog.cost(**options, argument=call.pasted)
    tables = options.get("tables", ())
    rows = [row for table in costs for row in table.rows]
    savings = [saving for table in costs for saving in table.savings]
    name = tables[0] if len(tables) == 1 else None
    columns = columns_of(CostRow)[0 if name is None or not call.is_for_people else 1 :]
    known = [table for table in costs if table.problem is None]
    total = {"files": sum(table.files for table in known), "bytes": sum(table.bytes for table in known)}
    footer = f"{counted(total['files'], 'file')}, {human_size(total['bytes'])}"
    if len(costs) != 1:
        footer = f"{counted(len(costs), 'table')}, {footer}"
    due = [table.due for table in costs if table.due is not None]
    growth = [row for table in costs for row in table.growth]
    operations = [row for table in costs for row in table.operations]
    currency = next((table.currency for table in costs if table.currency is not None), None)
    month = None if currency is None else sum(table.month or 0 for table in known)
    if month is not None:
        footer += f", {month:,.2f} {currency} a month" if month >= 1 else f", {month:.6f} {currency} a month"
    money = {"month": month, "currency": currency}
    parts: dict[str, Sequence[Any]] = {"savings": savings, "due": due, "growth": growth, "operations": operations}
    summary: dict[str, Any] = {"total": {**total, **money}}
    summary |= {name: records(rows) for name, rows in parts.items()}
    call.show(Listing("CostList", name, columns, rows, footer=footer, summary=summary))
    if call.is_for_people:
        _say_savings(savings)
        for each in due[:SHOWN_SAVINGS]:
            say(
                f"{human_size(each.freed_later)} later, once snapshots expire, in {counted(each.files, 'file')} that the due "
                f"compaction replaces by about {human_size(each.write_bytes)} at most: {each.command}"
            )
        _say_growth(growth)
        if len(costs) == 1:
            _say_operations(operations, currency)
    _end(costs)


def _say_savings(savings: Sequence[Saving]) -> None:
    """The largest savings. What is lost stands beside each, because the commands discard something."""
    found = sorted(savings, key=lambda saving: -saving.all_bytes)
    for saving in found[:SHOWN_SAVINGS]:
        say(f"{human_size(saving.bytes)} in {saving.what}; loses {saving.loses}: {saving.command}")
        if saving.bytes_written:
            say(f"  beyond the {human_size(saving.bytes_written)} of changelogs that it writes in place of the snapshots")
        if saving.freed_later:
            say(f"  then {human_size(saving.freed_later)} more, {saving.later_when}: {saving.later_command}")
    if len(found) > SHOWN_SAVINGS:
        say(f"{counted(len(found) - SHOWN_SAVINGS, 'smaller saving')}: -o json shows all")


def _say_growth(growth: Sequence[GrowthRow]) -> None:
    """The newest days of all tables together."""
    days = sorted({row.day for row in growth})[-SHOWN_DAYS:]
    for day in days:
        rows = [row for row in growth if row.day == day]
        added, removed = sum(row.added_bytes for row in rows), sum(row.removed_bytes for row in rows)
        rewritten = sum(row.rewritten_bytes for row in rows)
        by_compactions = f"{human_size(rewritten)} by compactions"
        say(f"{day}: {human_size(added)} added ({by_compactions}), {human_size(removed)} replaced or deleted")


def _say_operations(operations: Sequence[OperationCost], currency: str | None) -> None:
    """One line for each operation on a table."""
    for each in operations:
        moved = f"{human_size(each.bytes_read)} read, {human_size(each.bytes_written)} written"
        money = "" if each.money is None else f", {each.money:.6f} {currency}"
        say(f"{_CALLED[each.operation]}: {counted(each.requests, 'request')} to an object store, {moved}{money}")


def _end(costs: Sequence[TableCost]) -> None:
    failed = [table for table in costs if table.problem is not None]
    problem = failed[0].problem if failed else None
    if problem is None:
        return
    if len(costs) == 1:
        raise problem
    what = f"the cost of {counted(len(failed), 'table')} of {len(costs)} cannot be told"
    raise PartialSuccess(what, f"{failed[0].table}: {problem.message}", problem.hint) from problem
