"""`ledger`: what the services of a warehouse did, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.output import Listing
from paimon_cli.cli.parameters import Given
from paimon_cli.cli.results import counted, human_size
from paimon_cli.requests.policy import LedgerOptions

if TYPE_CHECKING:
    from paimon_cli.api.ledger import LedgerTotal

ledger = group("What the services of a warehouse did, and what that cost.")


@command(ledger, "ls")
def list_rounds(call: Call, *, options: Annotated[Given, LedgerOptions]) -> None:
    """List what `maintain --watch` did to tables, round by round, oldest first: bytes, requests, runs, and why.

    paimon-cli ledger ls --warehouse ./wh

    paimon-cli ledger ls --since 1d --warehouse ./wh -o json
    """
    from paimon_cli.api.ledger import LedgerRow

    rows = call.catalog().ledger.ls(**options)
    spent = sum(row.bytes_read + row.bytes_written for row in rows)
    requests = counted(sum({(row.service, row.round, row.time): row.round_requests for row in rows}.values()), "request")
    footer = f"{counted(len(rows), 'step')}, {human_size(spent)} read and written, {requests}"
    call.show(Listing("LedgerList", None, LedgerRow, rows, footer=footer))


@command(ledger, "show")
def show_totals(call: Call, *, options: Annotated[Given, LedgerOptions]) -> None:
    """Show what the services spent on each table, and what that brought, with the reasons of the last step.

    The commits since the first step that the history still has are replayed: what Paimon's triggers would have written, and how
    many sorted runs a bucket would have had.

    paimon-cli ledger show --warehouse ./wh

    paimon-cli ledger show --since 7d --warehouse ./wh -o json
    """
    from paimon_cli.api.ledger import LedgerTotal

    rows = call.catalog().ledger.show(**options)
    spent = sum(row.bytes_read + row.bytes_written for row in rows)
    runs = counted(sum(row.runs_removed for row in rows), "sorted run")
    footer = f"{counted(len(rows), 'table')}, {human_size(spent)} read and written, {runs} merged away{_against(rows)}"
    call.show(Listing("LedgerTotals", None, columns_of(LedgerTotal), rows, footer=footer))


def _against(rows: Sequence[LedgerTotal]) -> str:
    """All tables together against Paimon's triggers; empty if none could be replayed."""
    found = [row for row in rows if row.triggers_written is not None]
    if not found:
        return ""
    written, by_triggers = (sum(getattr(row, name) or 0 for row in found) for name in ("history_written", "triggers_written"))
    runs, runs_by_triggers = (
        [getattr(row, name) for row in found if getattr(row, name) is not None] for name in ("history_runs", "triggers_runs")
    )
    has_runs = bool(runs and runs_by_triggers)
    for_runs = f" for {sum(runs) / len(runs):.2f} runs a bucket" if has_runs else ""
    for_theirs = f" for {sum(runs_by_triggers) / len(runs_by_triggers):.2f}" if has_runs else ""
    return (
        f"; {human_size(written)} written by compactions{for_runs}, Paimon's triggers would have written "
        f"{human_size(by_triggers)}{for_theirs} ({counted(len(found), 'table')} replayed)"
    )
