"""What was done to a table against what Paimon's triggers would have done with the same commits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.against_triggers import AgainstTriggers, against_triggers
from paimon_cli.inspect.replayed_commits import history_workload
from tests.commit.commit_tables import SteppingClock
from tests.inspect.small_tables import small_table
from tests.tables import compact, make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}


def compared(folder: Path, commits: int, every: int, strategy: str) -> AgainstTriggers:
    """A table that is compacted after every so many commits, against its triggers after each."""
    made = make_table(folder, COLUMNS, ["id"], options={"write-only": "true", "num-sorted-run.compaction-trigger": "3"})
    context = replace(made, clock=(clock := SteppingClock()))  # the runs between two commits count by their time
    for number in range(commits):
        clock.sleep(60)
        write(context, [{"id": 1, "n": number}])
        if every and number % every == every - 1:
            compact(context, strategy=strategy)
    found = against_triggers(context, 0)
    assert found is not None
    return found


def test_a_table_whose_triggers_decide_is_what_the_replay_says(tmp_path: Path) -> None:
    found = compared(tmp_path / "t", 9, 1, "minor")
    assert found.commits == 8 and found.runs is not None and found.triggers_runs == pytest.approx(found.runs, rel=0.25)
    assert found.written > 0 and abs(found.written - found.triggers_written) <= 0.1 * found.written


def test_fewer_compactions_write_less_and_leave_more_runs(tmp_path: Path) -> None:
    none = compared(tmp_path / "a", 9, 0, "minor")
    assert none.written == 0 and none.triggers_written > 0
    assert none.runs is not None and none.runs > 4.5 and none.triggers_runs is not None and none.triggers_runs < 4
    eager = compared(tmp_path / "b", 9, 1, "full")
    assert eager.written > eager.triggers_written
    assert eager.runs is not None and eager.triggers_runs is not None and eager.runs < eager.triggers_runs


def test_the_triggers_merge_the_runs_of_the_beginning_too(tmp_path: Path) -> None:
    """No commit follows the merge of old runs: both have merged them, and nothing is known about runs after commits."""
    options = {"write-only": "true", "num-sorted-run.compaction-trigger": "3"}
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options=options)
    for number in range(5):
        write(context, [{"id": 1, "n": number}])
    compact(context, strategy="full")
    latest = context.snapshots.latest()
    assert latest is not None
    found = against_triggers(context, latest.time_millis)
    assert found is not None and (found.commits, found.runs, found.triggers_runs) == (0, None, None)
    assert found.written > 0 and abs(found.written - found.triggers_written) <= 0.1 * found.written


def test_what_cannot_be_replayed_is_none(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"])
    write(context, [{"id": 1, "n": 1}])
    assert against_triggers(context, 0) is None, "one snapshot is only a state to begin with"
    assert against_triggers(make_table(tmp_path / "appended", COLUMNS, [], options={"bucket": "-1"}), 0) is None


def test_a_compaction_of_the_write_itself_is_seen_with_its_rows(tmp_path: Path) -> None:
    """Writers merge two runs in one: readers find one or two, never the three that are there between both snapshots."""
    table = small_table(tmp_path / "t")
    found = against_triggers(table.context, 0)
    assert found is not None and found.runs is not None and found.triggers_runs is not None
    assert 1.5 < found.runs <= 2 and 1.5 < found.triggers_runs <= 2


def test_a_job_that_compacts_later_leaves_its_runs_to_readers_until_then(tmp_path: Path) -> None:
    """A full compaction 40 s after each commit, the next commit 20 s later: two runs for 40 of 60 seconds."""
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(6):
        write(context, [{"id": 1, "n": number}])
        compact(context, strategy="full")
    ids, start = context.snapshots.ids(), 1_700_000_000_000
    for number in ids:
        commit, half = divmod(number - ids[0], 2)
        _set_time(context, number, start + 60_000 * commit + 40_000 * half)
    again = TableContext.open(context.url)
    found = against_triggers(again, 0)
    assert found is not None and found.runs == pytest.approx((2 * 40 + 20) / 60, abs=0.01)
    assert history_workload(again).lag == 40_000


def _set_time(context: TableContext, number: int, millis: int) -> None:
    path = Path(context.url.removeprefix("file://")) / "snapshot" / f"snapshot-{number}"
    path.write_text(json.dumps({**json.loads(path.read_text()), "timeMillis": millis}))
