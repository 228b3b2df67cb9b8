"""`lab check`: explore the interleavings of concurrent actors on one table. Exit code 4 if one breaks something."""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.messages import say
from paimon_cli.cli.parameters import ConflictGranularity
from paimon_cli.cli.progress_bar import progress_on_stderr
from paimon_cli.cli.results import Column, Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, FLAG, NAMES, counted, records
from paimon_cli.errors import UsageError
from paimon_cli.options.size_and_duration import parse_duration

if TYPE_CHECKING:
    from paimon_cli.lab.interleavings import CheckReport, CheckRequest, Replay

FINDINGS_EXIT_CODE = 4

REPORT_COLUMNS = (
    Column("actors", "Actors", NAMES),
    Column("store", "Store"),
    Column("data_conflict_check", "Data conflict check"),
    Column("is_safe", "Should be safe", FLAG),
    Column("is_complete", "Complete", FLAG),
    Column("schedules", "Schedules", COUNT),
    Column("states", "States", COUNT),
    Column("storage_calls", "Storage calls", COUNT),
    Column("finds", None, records("schedule", "violations", "replay")),
)
STEP_COLUMNS = (
    Column("step", "Step"),
    Column("actor", "Actor"),
    Column("call", "Call"),
    Column("befalls", "Fault"),
    Column("own_calls", "Own calls", COUNT),
)
REPLAY_COLUMNS = (
    Column("violations", None, NAMES),
    Column("steps", None, records("step", "actor", "call", "befalls", "own_calls")),
)


class Store(str, enum.Enum):
    """Choices of `--store`."""

    PUT_IF_ABSENT = "put-if-absent"
    LOCK = "lock"
    UNSAFE = "unsafe"


def register(lab: typer.Typer) -> None:
    command(lab, "check")(check_lab)


def check_lab(
    call: Call,
    actors: Annotated[
        str,
        typer.Option(
            metavar="KIND[,...]",
            help="Concurrent actors, up to six of: writer, rival (shares a key), counter (read-modify-write), twin (repeats a "
            "commit), overwriter, compactor, expirer, tagger, cleaner (of orphans).",
        ),
    ] = "writer,writer,compactor",
    store: Annotated[Store, typer.Option(help="How commits are kept apart; unsafe: not at all.")] = Store.PUT_IF_ABSENT,
    data_conflict_check: Annotated[
        ConflictGranularity, typer.Option("--data-conflict-check", help="Granularity of the data conflict check.")
    ] = ConflictGranularity.OFF,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, max=20, help="Commits of each writer, rival, counter and twin.")] = 1,
    faults: Annotated[
        int, typer.Option(metavar="N", min=0, max=4, help="Also inject crashes and lost answers, at most N per schedule.")
    ] = 0,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Interrupt actors in the middle of their work at most N times; default no limit."),
    ] = None,
    schedules: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N schedules; default 1000 with --seed, otherwise all.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Draw random schedules with this seed instead of trying all.")
    ] = None,
    finds: Annotated[int, typer.Option(metavar="N", min=1, help="Stop after N failing schedules.")] = 1,
    time_limit: Annotated[str, typer.Option("--time-limit", metavar="DURATION", help="Stop after this time.")] = "1 min",
    replay: Annotated[
        str | None, typer.Option(metavar="SCHEDULE", help="Run this one schedule and show its steps.", show_default=False)
    ] = None,
) -> None:
    """Explore the interleavings of concurrent actors on one table, with the shipped commit code on a simulated store.

    Every storage call visible to other actors is a step; orders that lead to the same state are followed once. With
    put-if-absent or the lock, no finds are expected, unless actors share rows (rival, counter, overwriter) and the data
    conflict check is off. Each find is printed with the command that replays it. A find always ends in exit code 4, also in an
    unsafe configuration, where it is expected.

    paimon-cli lab check --actors writer,writer --store unsafe
    """
    from paimon_cli.lab.interleavings import CheckRequest, replay_schedule

    if call.catalog_options:
        raise UsageError(
            f"--option {next(iter(call.catalog_options))} is not supported here", "the simulated table has no catalog"
        )
    if depth is not None and seed is not None:
        raise UsageError("--depth and --seed together", "random schedules are interrupted anywhere", "leave one out")
    kinds = tuple(kind.strip() for kind in actors.split(",") if kind.strip())
    request = CheckRequest(
        kinds, rounds, store.value, data_conflict_check.value, faults, depth, schedules, seed, finds, call.options
    )
    if replay is not None:
        _show_replay(call, replay_schedule(request, replay))
    else:
        _show_report(call, _explored(request, parse_duration(time_limit) / 1000))


def _explored(request: CheckRequest, seconds: float) -> CheckReport:
    from paimon_cli.lab.interleavings import check_interleavings

    progress, end = progress_on_stderr(), time.monotonic() + seconds
    progress.start("Schedules", request.schedules)

    def go_on() -> bool:
        progress.advance()
        return time.monotonic() < end

    try:
        return check_interleavings(request, go_on)
    finally:
        progress.finish()


def _show_report(call: Call, report: CheckReport) -> None:
    if call.output is not OutputFormat.TABLE:
        call.show(Item("LabCheck", None, REPORT_COLUMNS, report))
    else:
        say(f"{', '.join(report.actors)}   store: {report.store}   data conflict check: {report.data_conflict_check}")
        extent = "every order of calls" if report.is_complete else "not all orders of calls"
        states = f", {counted(report.states, 'state')}" if report.states else ""
        say(f"{extent}: {counted(report.schedules, 'schedule')}{states}, {counted(report.storage_calls, 'storage call')}")
        for find in report.finds:
            say("\n".join(["", *find.violations[:4], f"replay: {find.replay}"]))
        expected = "no finds are expected" if report.is_safe else "this configuration is unsafe: finds are expected"
        say(f"\n{counted(len(report.finds), 'find') if report.finds else 'nothing found'}; {expected}")
    if report.finds:
        raise typer.Exit(FINDINGS_EXIT_CODE)


def _show_replay(call: Call, replayed: Replay) -> None:
    if call.output is not OutputFormat.TABLE:
        call.show(Item("LabReplay", None, REPLAY_COLUMNS, replayed))
    else:
        footer = "\n".join([f"VIOLATION {violation}" for violation in replayed.violations] or ["nothing was violated"])
        call.show(Listing("LabReplay", None, STEP_COLUMNS, replayed.steps, "", footer))
    if replayed.violations:
        raise typer.Exit(FINDINGS_EXIT_CODE)
