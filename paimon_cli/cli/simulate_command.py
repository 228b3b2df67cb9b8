"""`simulate`: try compaction options on a table's history or a described workload, without touching data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import split_pairs
from paimon_cli.cli.results import COUNT, ID, JSON, SIZE, Column, Listing, counted
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.jobs.engine import Progress
    from paimon_cli.lsm.compaction_simulation import OnCommit, SimulatedWorkload
    from paimon_cli.options.table_options import TableOptions

WORKLOAD_PANEL = "Workload instead of a history"

COLUMNS = (
    Column("scenario", "Options"),
    Column("options", None, JSON),
    Column("commits", "Commits", COUNT),
    Column("compactions", "Compactions", COUNT),
    Column("full_compactions", "Full", COUNT),
    Column("flushed_bytes", "Flushed", SIZE),
    Column("compacted_bytes", "Compacted", SIZE),
    Column("write_amplification", "Write amp", ID),
    Column("read_amplification", "Read amp", ID),
    Column("most_runs", "Most runs", COUNT),
    Column("space_amplification", "Space amp", ID),
    Column("space_amplification_at_end", "At end", ID),
    Column("stalls", "Stalls", COUNT),
    Column("reasons", None, JSON),
)

TableToReplay = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="Table whose snapshots are replayed and whose options are the baseline.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Table option to try; repeatable, all together form one scenario."),
]
Compare = Annotated[bool, typer.Option("--compare", help="Also try other triggers, size ratios and amplification limits.")]
RoundsEvery = Annotated[
    int, typer.Option("--compact-every", metavar="N", min=1, help="Commits between two compaction rounds; 1 means after each.")
]
WorkloadFile = Annotated[
    Path | None,
    typer.Option(
        "--workload",
        metavar="FILE",
        help="JSON object with commits, rows, row_bytes, update_ratio, skew, buckets, commit_interval (ms), seed; all optional.",
        rich_help_panel=WORKLOAD_PANEL,
    ),
]


def _number(flag: str, help_text: str) -> Any:
    return typer.Option(flag, help=help_text, rich_help_panel=WORKLOAD_PANEL, show_default=False)


Commits = Annotated[int | None, _number("--commits", "Number of commits.")]
Rows = Annotated[int | None, _number("--rows", "Rows per commit.")]
RowBytes = Annotated[int | None, _number("--row-bytes", "Bytes of a stored row.")]
UpdateRatio = Annotated[float | None, _number("--update-ratio", "Share of a commit's rows whose keys exist already.")]
Skew = Annotated[float | None, _number("--skew", "0: updates hit all keys evenly; the greater, the fewer keys they hit.")]
BucketCount = Annotated[int | None, _number("--buckets", "Buckets that the keys spread over.")]


def register(app: typer.Typer, panel: str) -> None:
    command(app, "simulate", rich_help_panel=panel)(simulate)


def simulate(
    call: Call,
    table: TableToReplay = None,
    changes: Changes = None,
    compare: Compare = False,
    compact_every: RoundsEvery = 1,
    workload: WorkloadFile = None,
    commits: Commits = None,
    rows: Rows = None,
    row_bytes: RowBytes = None,
    update_ratio: UpdateRatio = None,
    skew: Skew = None,
    buckets: BucketCount = None,
) -> None:
    """Compare compaction options by simulation: write, read and space amplification, stalls.

    paimon-cli simulate ./wh/shop.db/orders --set num-sorted-run.compaction-trigger=10 --compare
    """
    from paimon_cli.cli.terminal import progress_on_stderr
    from paimon_cli.inspect.compaction_scenarios import scenarios

    typed = {"commits": commits, "rows": rows, "row_bytes": row_bytes}
    typed_more = {"update_ratio": update_ratio, "skew": skew, "buckets": buckets}
    shape = {name: value for name, value in {**typed, **typed_more}.items() if value is not None}
    progress = progress_on_stderr()
    replayed, options, what = _workload(call, table, workload, shape, progress)

    def begin(number: int, count: int) -> OnCommit:
        progress.start(f"Simulating, {number} of {count}", len(replayed.commits))
        return progress.advance

    try:
        found = scenarios(replayed, options, split_pairs(changes, "--set"), compare, compact_every, begin)
    finally:
        progress.finish()
    heading = f"Simulated compaction of {what}, a round every {compact_every} commits; nothing was changed"
    if compact_every == 1:
        heading = f"Simulated compaction of {what}, a round after each commit; nothing was changed"
    call.show(Listing("CompactionSimulation", table, COLUMNS, found, heading))


def _workload(
    call: Call, table: str | None, file: Path | None, shape: dict[str, Any], progress: Progress
) -> tuple[SimulatedWorkload[Any], TableOptions, str]:
    """A workload if one is described, else the table's history; the options are the table's, if there is one, with `--option`."""
    from paimon_cli.inspect.compaction_scenarios import history_workload, workload_shape
    from paimon_cli.lsm.compaction_simulation import synthetic_workload
    from paimon_cli.options.table_options import TableOptions

    context = None if table is None else call.open(table).context
    options = TableOptions(call.options) if context is None else context.options
    if file is not None or shape:
        described = workload_shape({**({} if file is None else _document(file)), **shape})
        what = f"{described.commits:,} commits of {counted(described.rows, 'row')}, {described.update_ratio:.0%} updates"
        progress.start("Generating commits", described.commits)
        try:
            return synthetic_workload(described, progress.advance), options, what
        finally:
            progress.finish()
    if context is None:
        hint = "paimon-cli simulate --commits 200 --rows 10000 --update-ratio 0.5"
        raise UsageError("nothing to simulate", "name a table, or describe a workload", hint)
    return history_workload(context), options, f"the history of {table}"


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the workload {file}", str(error)) from error
    if not isinstance(document, dict):
        raise UsageError(f"{file} is not a workload", "it must be a JSON object")
    return document
