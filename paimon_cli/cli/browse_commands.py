"""`tui` and `watch`: show tables live, while they change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import OutputFormat, csv_line, envelope
from paimon_cli.cli.parameters import TableName
from paimon_cli.cli.results import TIME, counted, human_size, printable
from paimon_cli.errors import NotFound, PaimonError, UsageError, importing
from paimon_cli.options.option_text import json_text, parse_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from paimon_cli.api.table import Table
    from paimon_cli.cli.browser import Browser, Level
    from paimon_cli.inspect.report_figures import BucketLevels, TableState

commands = top_level()

LEVEL_STYLES = ("red", "yellow", "green", "cyan", "blue", "magenta")
_MAX_BUCKETS, _MAX_SNAPSHOTS = 12, 6
BAR = 22

Interval = Annotated[str, typer.Option("--interval", metavar="TIME", help="Pause between refreshes.")]


@command(commands, "tui")
def tui(
    call: Call,
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE|WAREHOUSE]", help="A table, a database or a directory of tables.", show_default=False),
    ] = None,
    interval: Interval = "2 s",
) -> None:
    """Browse tables in the terminal: snapshots, buckets, sorted runs, files, row groups and rows, live.

    Enter opens, escape goes back, / filters, v shows all values of a row, and ? all keys. Needs `pip install
    'paimon-cli[tui]'`.

    paimon-cli tui ./wh/shop.db/orders

    paimon-cli tui ./wh
    """
    if not call.is_for_people or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("tui needs a terminal", "it is interactive and prints no data", _printed_instead(call, table))
    browser = _browser(call, table, _seconds(interval))
    browser.run()


def _printed_instead(call: Call, place: str | None) -> str:
    """The command that prints what the browser would show first."""
    if place is None:
        return "paimon-cli ls"
    try:
        return f"paimon-cli watch {call.pasted(call.open(place).name)}"
    except PaimonError:
        return f"paimon-cli ls {call.pasted(place)}"


def _browser(call: Call, place: str | None, seconds: float) -> Browser:
    with importing("the terminal browser needs Textual", "tui"):
        from paimon_cli.cli.browser import Browser

    return Browser(_first_level(call, place), seconds)


def _first_level(call: Call, place: str | None) -> Level:
    """The snapshots of a table if `place` names one, else the tables of the warehouse, database or directory."""
    from paimon_cli.cli.browser import snapshots_level, tables_level

    if place is not None:
        try:
            return snapshots_level(call.open(place))
        except (NotFound, UsageError) as no_table:
            if call.branch is not None:
                raise
            try:
                call.catalog().tables(place)
            except NotFound:
                raise no_table from None
    return tables_level(call.catalog(), place)


@command(commands, "watch")
def watch(
    call: Call,
    table: TableName,
    interval: Interval = "2 s",
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="N", min=1, help="Stop after N refreshes.")] = None,
) -> None:
    """Watch a table on one screen: its latest commits, its sorted runs, and what a compaction would do.

    On a terminal the screen is redrawn until Ctrl-C; elsewhere, and with other formats, each refresh is a line.

    paimon-cli watch ./wh/shop.db/orders

    paimon-cli watch ./wh/shop.db/orders --interval 1s --rounds 3 -o ndjson
    """
    seconds, opened = _seconds(interval), call.open(table)
    states = _states(opened, seconds, rounds)
    if call.is_for_people and sys.stdout.isatty():
        _draw(states, opened.name)
    else:
        _print(call, states, opened.name)


def _seconds(interval: str) -> float:
    seconds = parse_duration(interval) / 1000
    if seconds <= 0:
        raise UsageError(f"--interval {interval}", "the interval must be longer than 0", "such as --interval 2s")
    return seconds


def _states(table: Table, seconds: float, rounds: int | None) -> Iterator[TableState]:
    number = 0
    while True:
        table.refresh()
        yield table.state()
        number += 1
        if number == rounds:
            return
        table.context.clock.sleep(seconds)


def _print(call: Call, states: Iterator[TableState], name: str) -> None:
    """Print one line per refresh: text, JSON lines, CSV, or (with `-o json`) an envelope."""
    from paimon_cli.inspect.report_figures import TableState

    columns = columns_of(TableState)
    names = [column.name for column in columns if not call.fields or column.name in call.fields]
    if unknown := [field for field in call.fields if field not in names]:
        raise UsageError(f"no field {unknown[0]}", f"the fields are {', '.join(column.name for column in columns)}")
    if call.output is OutputFormat.CSV:
        sys.stdout.write(csv_line(names))
    for state in states:
        item = {column.name: column.kind.json(getattr(state, column.name)) for column in columns if column.name in names}
        if call.output is OutputFormat.CSV:
            sys.stdout.write(csv_line(item.values()))
        elif call.output is OutputFormat.NDJSON:
            print(json_text(item))
        elif call.output is OutputFormat.JSON:
            print(json_text(envelope("TableState", name, item=item)))
        else:
            print(_line(state))
        sys.stdout.flush()


def _line(state: TableState) -> str:
    runs = "" if state.most_runs is None else f", at most {counted(state.most_runs, 'sorted run')}"
    due = f", {counted(state.due, 'bucket')} to compact" if state.due else ""
    files = f"{counted(state.files, 'file')} of {human_size(state.size)} in {counted(state.buckets, 'bucket')}"
    return f"{TIME.text(state.time)} snapshot {state.snapshot_id or '-'}: {files}{runs}{due}"


def _draw(states: Iterator[TableState], name: str) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        before: TableState | None = None
        for state in states:
            live.update(_screen(state, before, name), refresh=True)
            before = state


def _screen(state: TableState, before: TableState | None, name: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    head = Text(f"{printable(name)}   {_line(state)}", style="bold")
    commits = Grid("Snapshot", "Kind", "Time (UTC)", "User", box=None, pad_edge=False)
    for commit in state.commits:
        is_new = before is not None and (before.snapshot_id or 0) < commit.id
        user = printable(commit.commit_user)[:36]
        commits.add_row(f"{commit.id}", commit.kind, TIME.text(commit.time), Text(user), style="bold green" if is_new else "")
    buckets = Grid("Bucket", "Runs", "Files", "Size", "Levels", box=None, pad_edge=False)
    most = max((bucket.size for bucket in state.levels), default=0)
    old = {bucket.bucket: bucket for bucket in before.levels} if before is not None else {}
    for bucket in state.levels[:_MAX_BUCKETS]:
        runs = _runs(bucket, old.get(bucket.bucket))
        buckets.add_row(
            Text(printable(bucket.bucket), no_wrap=True, overflow="ellipsis"),
            runs,
            f"{bucket.files}",
            human_size(bucket.size),
            _bar(bucket, most),
        )
    left = state.buckets - min(len(state.levels), _MAX_BUCKETS)
    more = [Text(f"and {counted(left, 'bucket')} with less to merge", style="dim")] if left else []
    return Group(head, Text(), commits, Text(), buckets, *more, Text("Ctrl-C stops", style="dim"))


def _runs(bucket: BucketLevels, before: BucketLevels | None) -> str:
    """The number of sorted runs, preceded by the previous number if it has changed."""
    if bucket.runs is None:
        return "-"
    changed = before is not None and before.runs != bucket.runs
    return f"{before.runs} -> {bucket.runs}" if changed and before is not None else f"{bucket.runs}"


def _bar(bucket: BucketLevels, most: int) -> RenderableType:
    from rich.text import Text

    bar = Text()
    for level, size in sorted(bucket.size_by_level.items()):
        width = max(1, round(size / most * BAR)) if most else 0
        bar.append("█" * width, style=LEVEL_STYLES[min(level, len(LEVEL_STYLES) - 1)])
    levels = " ".join(f"L{level}:{files}" for level, files in sorted(bucket.files_by_level.items()))
    return bar.append(f" {levels}")
