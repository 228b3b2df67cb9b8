"""`adopt`: make a table of files that other engines wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, Yes
from paimon_cli.cli.results import confirm, counted, human_size, note_gone
from paimon_cli.errors import UsageError
from paimon_cli.requests.adoption import AdoptOptions

if TYPE_CHECKING:
    from paimon_cli.jobs.adoption.adoption_plan import AdoptionPlan

commands = top_level()


@command(commands, "adopt", runs_jobs=True)
def adopt(
    call: Call,
    *,
    options: Annotated[Given, AdoptOptions],
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Make an append table of Parquet or ORC files, or of an Iceberg or Hive table, without rewriting them.

    Directories such as dt=2026-01-01 become partitions. All files must have the same columns. The source stays as it is, unless
    --files move is given. Delta and Hudi tables are refused, and Iceberg tables with deletes or changed columns: write the rows.
    With --primary-key the rows are written into a table with that key, here or on Spark (--engine), and duplicates are counted.

    paimon-cli adopt ./exports/orders --as shop.old_orders --warehouse ./wh --dry-run

    paimon-cli adopt ./exports/orders --as ./wh/shop.db/adopted --partition-column 'dt DATE'

    paimon-cli adopt ./exports/orders --as ./wh/shop.db/keyed --primary-key dt,id --option bucket=4
    """
    if call.names_spark and not options.get("primary_key"):
        why = "without a primary key the files become a table as they are: there is no work for Spark"
        raise UsageError("Spark is named", why, "leave it out, or add --primary-key")
    planned = call.catalog(allow_unsafe_commit).plan_adoption(**options)
    plan = planned.plan
    if dry_run:
        call.show(Item("AdoptionPlan", plan.table, plan), f"{_text(plan)}; nothing was changed (dry run)")
        return
    if plan.deletes_source:
        confirm(f"{_text(plan)}, and delete the files of {plan.source}?", yes)
    done = planned.run()
    text = f"adopted {counted(done.rows, 'row')} in {counted(done.files, 'file')} of {human_size(done.size)} as {done.table}"
    if plan.primary_keys:
        text += f", {_duplicates(done.duplicates)}"
    call.show(Item("Adopted", done.table, done), f"{text}: snapshot {done.snapshot_id}, by {done.placement}")
    note_gone(done.table)


def _duplicates(count: int | None) -> str:
    if count is None:
        return "which wait for a compaction, so that duplicates of keys are not counted yet"
    return f"{counted(count, 'row')} merged into others with the same key" if count else "no key twice"


def _text(plan: AdoptionPlan) -> str:
    parts = f" in {counted(plan.partitions, 'partition')} by {', '.join(plan.partition_keys)}" if plan.partition_keys else ""
    what = f"{counted(plan.files, 'file')} of {human_size(plan.size)} with {counted(plan.rows, 'row')}{parts}"
    keys = f" with the primary key {', '.join(plan.primary_keys)}" if plan.primary_keys else ""
    return f"{plan.placement} {what} into {plan.table}{keys}"
