"""What `lab check` does: it searches or replays schedules, shows what it finds, and writes it as a page."""

from __future__ import annotations

import time
from contextlib import ExitStack

from paimon_cli.cli.command import Call
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.results import counted, say
from paimon_cli.cli.terminal import progress_on_stderr
from paimon_cli.lab.interleavings import (
    CheckReport,
    CheckRequest,
    ReplayedSchedule,
    ReplayedStep,
    check_interleavings,
    replay_schedule,
    story_of,
)
from paimon_cli.lab.story_page import WrittenStories, stories_file
from paimon_cli.options.option_text import human_size


def show_search(call: Call, request: CheckRequest, replay: str | None, html: str | None, *, force: bool) -> bool:
    """Search, or replay one schedule; returns whether there are violations. `html`: where to write them."""
    written = None
    with ExitStack() as stack:
        write = None if html is None else stack.enter_context(stories_file(html, replace=force))
        if replay is None:
            report = _explored(request)
            summary, schedules, has_failed = _summary(report), [find.schedule for find in report.finds], bool(report.finds)
            _show_report(call, report, summary)
        else:
            replayed = replay_schedule(request, replay)
            summary, schedules, has_failed = "One schedule, replayed.", [replay], bool(replayed.violations)
            _show_replay(call, replayed)
        if write is not None:
            stories = [story_of(request, schedule) for schedule in schedules]
            written = write(f"lab check: {', '.join(request.actors)}", summary, stories)
    if written is not None and call.is_for_people:
        say(wrote(written))
    return has_failed


def wrote(written: WrittenStories) -> str:
    content = f"{counted(written.runs, 'run')}, {written.anomalies} with an anomaly"
    return f"wrote {written.html}: {content}, {human_size(written.size)}"


def _explored(request: CheckRequest) -> CheckReport:
    progress, end = progress_on_stderr(), time.monotonic() + (request.time_limit or 0) / 1000
    progress.start("Schedules", request.schedules)

    def may_continue() -> bool:
        progress.advance()
        return time.monotonic() < end

    try:
        return check_interleavings(request, may_continue)
    finally:
        progress.finish()


def _summary(report: CheckReport) -> str:
    expected = "no finds are expected" if report.is_safe else "this configuration is unsafe: finds are expected"
    return f"{counted(len(report.finds), 'find') if report.finds else 'nothing found'}; {expected}"


def _show_report(call: Call, report: CheckReport, summary: str) -> None:
    if not call.is_for_people:
        call.show(Item("LabCheck", None, report))
        return
    say(f"{', '.join(report.actors)}   store: {report.store}   data conflict check: {report.data_conflict_check}")
    extent = "every order of calls" if report.is_complete else "not all orders of calls"
    states = f", {counted(report.states, 'state')}" if report.states else ""
    say(f"{extent}: {counted(report.schedules, 'schedule')}{states}, {counted(report.storage_calls, 'storage call')}")
    for find in report.finds:
        numbered = [f"{number:>4}  {line}" for number, line in enumerate(find.story, 1)]
        say("\n".join(["", *numbered, *find.violations[:4], f"replay: {find.replay}"]))
    say(f"\n{summary}")


def _show_replay(call: Call, replayed: ReplayedSchedule) -> None:
    if not call.is_for_people:
        call.show(Item("LabReplay", None, replayed))
        return
    footer = "\n".join([f"VIOLATION {violation}" for violation in replayed.violations] or ["no violations"])
    call.show(Listing("LabReplay", None, ReplayedStep, replayed.steps, "", footer))
