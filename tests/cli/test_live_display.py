"""The table of a service on the terminal: totals over all rounds, and nothing that controls the terminal."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from paimon_cli.cli.live_display import LiveDisplay, TableLine
from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.service_log import RoundLines
from paimon_cli.errors import StorageUnavailable
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.round_plan import BucketFigures
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, TableRound
from paimon_cli.storage.redaction import hiding_secrets_of_command


class Screen(LiveDisplay):
    """A display whose terminal keeps what is printed."""

    def __init__(self, output: OutputFormat = OutputFormat.TABLE) -> None:
        self.printed = io.StringIO()
        super().__init__(RoundLines(output), Console(file=self.printed, force_terminal=True, width=160))

    def drawn(self) -> list[str]:
        text = io.StringIO()
        Console(file=text, width=160).print(self.picture())
        return [line.rstrip() for line in text.getvalue().splitlines()]


def compacted(table: str = "a.t", snapshots: tuple[int, ...] = (), runs: int = 2, **more: Any) -> TableRound:
    summary: Any = CompactSummary(
        buckets=1,
        files_before=5,
        files_after=2,
        bytes_read=3 << 20,
        bytes_written=1 << 20,
        conflicts=1,
        snapshots=tuple(SimpleNamespace(id=one) for one in snapshots),  # type: ignore[misc]
    )
    return TableRound(table, RoundState.COMPACTED, summary, figures=BucketFigures(most_runs=runs), **more)


def test_a_line_is_the_total_of_all_rounds() -> None:
    line = TableLine()
    line.add(compacted(snapshots=(3, 4), runs=9))
    line.add(compacted(runs=1))
    assert line == TableLine(
        state="compacted",
        runs=1,
        buckets=2,
        files_before=10,
        files_after=4,
        bytes_read=6 << 20,
        bytes_written=2 << 20,
        conflicts=2,
        snapshot=4,
    )
    line.add(TableRound("a.t", RoundState.GONE))
    assert (line.state, line.runs, line.snapshot, line.buckets) == ("gone", 0, 4, 2)


def test_the_picture_shows_each_table_and_what_its_compaction_does() -> None:
    screen = Screen()
    with screen:
        screen.table_begins(1, "a.t")
        screen.table_done(compacted(snapshots=(1234567,)))
        progress = screen.table_begins(2, "a.t")
        assert screen.drawn()[1:] == [
            "a.t    planning     2        1  5 -> 2  3.0 MB   1.0 MB          1   1234567",
            "round 2",
        ]
        progress.start("compacting", 3)
        progress.advance()
        screen.table_done(TableRound("b.[bold]\x1b[2J", RoundState.HELD))
        titles, first, second, _ = screen.drawn()
        assert titles.split() == ["Table", "State", "Runs", "Buckets", "Files", "Read", "Written", "Conflicts", "Snapshot"]
        assert "compacting 1 of 3 buckets" in first
        assert second.startswith("b.[bold]\\x1b[2J  held by another service") and second.endswith(" -")
        progress.finish()
        assert "committing" in screen.drawn()[1]
    assert "\x1b[2J" not in screen.printed.getvalue() and "round 2" in screen.printed.getvalue()


def test_a_failure_stays_above_the_picture_without_secrets() -> None:
    screen = Screen()
    with hiding_secrets_of_command(["--option", "s3.secret-key=hunter2"]):
        screen.table_done(TableRound("a.t", RoundState.FAILED, error=StorageUnavailable("no \x1b[2J hunter2")))
        screen.table_done(compacted())
    assert screen.printed.getvalue() == "a.t: failed: no \\x1b[2J ***\n"


@pytest.mark.parametrize(("pause", "then"), [(None, ""), (0.0, " · next in 0 s"), (2.5, " · next in 2.5 s")])
def test_rounds_are_printed_for_programs_too(capsys: pytest.CaptureFixture[str], pause: float | None, then: str) -> None:
    screen = Screen(OutputFormat.NDJSON)
    screen.round_done(ServiceRound(7, 0, 1.25, (compacted(), compacted("b.t"))), pause)
    assert screen.drawn()[-1] == f"round 7 of 2 tables in 1.2 s{then} · Ctrl-C to stop"
    screen.round_done(ServiceRound(8, 0, 1.25, ()), pause)
    assert [json.loads(line)["round"] for line in capsys.readouterr().out.splitlines()] == [7, 8]
