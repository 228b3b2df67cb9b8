"""`policy`: how the tables of a warehouse are maintained, and what the next round decides."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import Given
from paimon_cli.cli.results import counted, human_size
from paimon_cli.errors import PartialSuccess
from paimon_cli.requests.policy import PolicyOf, SetPolicy

policy = group("How the tables of a warehouse are maintained: goals, budgets, windows, caps, retention, hooks.")

_SHOWN_LINES = 5
"""Lines about retention that are named, at most."""


@command(policy, "show")
def show(call: Call, *, options: Annotated[Given, PolicyOf]) -> None:
    """Show which lines of the policies are about a table, and which of them count.

    First the lines of WAREHOUSE/.paimon-cli/policy.yaml, then the lines under `policy` in your own
    configuration. Of a database, all that could be about its tables.

    paimon-cli policy show ./wh/shop.db/orders

    paimon-cli policy show --warehouse ./wh
    """
    from paimon_cli.api.policy import PolicyRow

    book = call.catalog().policy
    rows = book.show(**options)
    counts = sum(row.effect == "in force" for row in rows)
    version = {} if options.get("table") else {"version": book.version()}
    footer = f"{counted(len(rows), 'line')}, {counts} in force{''.join(f', version {text}' for text in version.values())}"
    call.show(Listing("PolicyList", None, columns_of(PolicyRow), rows, footer=footer, summary=version))


@command(policy, "set")
def replace_policy(call: Call, *, options: Annotated[Given, SetPolicy]) -> None:
    """Replace the policy of the warehouse by a file. If the policy has changed meanwhile, nothing is replaced: exit code 5.

    Unknown keys are errors. It may set goals, budgets, windows and caps, and lengthen retention; shorter retention and hooks are
    settings of your own configuration.

    paimon-cli policy set policy.yaml --warehouse ./wh

    paimon-cli policy set policy.yaml --if-version none --warehouse ./wh
    """
    done = call.catalog().policy.set(**options)
    text = f"{done.path}: {counted(done.settings, 'setting')}, version {done.version_after}, was {done.version_before}"
    if done.lengthening:
        shown = ", ".join(done.lengthening[:_SHOWN_LINES])
        more = f" and {len(done.lengthening) - _SHOWN_LINES} more" if len(done.lengthening) > _SHOWN_LINES else ""
        text += f"\n{shown}{more}: no effect on tables that keep more already, as `policy show` tells of each table"
    call.show(Item("PolicySummary", None, done), text)


@command(policy, "explain")
def explain(call: Call, *, options: Annotated[Given, PolicyOf]) -> None:
    """Show what the next round of `maintain` decides about each table, with the arithmetic, and which lines of the policy count.

    Nothing is changed. Exits with 9 if some of several tables cannot be planned; their rows say why.

    paimon-cli policy explain ./wh/shop.db/orders

    paimon-cli policy explain shop --warehouse ./wh -o json
    """
    from paimon_cli.jobs.service.next_round import RoundDecision
    from paimon_cli.jobs.service.table_round import RoundState

    rows = call.catalog().policy.explain(**options)
    buckets, size = sum(row.buckets for row in rows), sum(row.bytes_read for row in rows)
    footer = f"{counted(len(rows), 'table')}, {counted(buckets, 'bucket')} of {human_size(size)} to compact"
    call.show(Listing("PolicyDecisions", None, columns_of(RoundDecision), rows, footer=footer))
    if any(row.decision == RoundState.FAILED for row in rows):
        raise typer.Exit(PartialSuccess.exit_code)
