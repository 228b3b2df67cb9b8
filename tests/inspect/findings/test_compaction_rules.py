"""What the rules about compactions say of given buckets, commits and replays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings import compaction_rules as rules
from paimon_cli.inspect.findings.examined_table import RECENT, ExaminedTable
from paimon_cli.inspect.findings.finding import ERROR, OK, WARNING, Code, Finding, Rule
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.table_options import MB
from tests.tables import make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL"}


def examined(folder: Path, options: dict[str, str] | None = None, keys: Sequence[str] = ("id",), **facts: Any) -> ExaminedTable:
    """A table of which these facts are known."""
    bucket = -1 if not keys else 2
    table = ExaminedTable(make_table(folder / "t", {"id": "INT NOT NULL"}, list(keys), bucket=bucket, options=options), "T")
    vars(table).update(facts)
    return table


def bucket(number: int, *files: tuple[int, int, int], partition: bytes = b"") -> Any:
    """A bucket with files of these sizes, rows and levels."""
    made = tuple(SimpleNamespace(file_size=size, row_count=rows, level=level) for size, rows, level in files)
    return SimpleNamespace(bucket=number, bucket_id=(partition, number), partition=partition, files=made)


def found(rule: Rule[ExaminedTable], table: ExaminedTable) -> list[Finding]:
    return list(rule.check(table))


def decisions(*runs: int) -> dict[Any, Any]:
    return {(b"", number): SimpleNamespace(runs_before=count, reason="file-num") for number, count in enumerate(runs)}


def test_the_bucket_with_the_most_runs_is_the_figure_of_stalled_writers(tmp_path: Path) -> None:
    buckets = [bucket(number) for number in range(4)]
    needs = {(b"", 0): Code.STALLED, (b"", 1): Code.STALLED, (b"", 2): Code.DUE}
    facts: dict[str, Any] = {"due": decisions(9, 12, 30), "all_buckets": buckets, "needs": needs}
    (stalled,) = found(rules.writers_need_not_wait, examined(tmp_path, {"num-sorted-run.stop-trigger": "7"}, **facts))
    assert (stalled.code, stalled.figures) == (Code.STALLED, {"buckets": 2, "most_sorted_runs": 12, "stop_trigger": 7})
    assert stalled.message == "2 of 4 buckets have up to 12 sorted runs; writers wait from 7 on"
    assert (stalled.threshold, stalled.command) == (
        "7 sorted runs (num-sorted-run.stop-trigger)",
        "paimon-cli compact T --strategy minor",
    )


def test_nothing_is_due_is_said_only_if_nothing_else_calls_for_a_compaction(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"all_buckets": [bucket(0)], "due": {}, "decisions": decisions(4), "why_not_compactable": None}
    (well,) = found(rules.no_compaction_is_due, examined(tmp_path / "a", **facts, needs={}))
    assert (well.severity, well.message) == (OK, "no further compaction is due")
    (why,) = found(
        rules.no_compaction_is_due, examined(tmp_path / "b", **{**facts, "why_not_compactable": "it is odd"}, needs={})
    )
    assert why.message == "this version does not compact the table: it is odd"
    assert found(rules.no_compaction_is_due, examined(tmp_path / "c", **facts, needs={(b"", 0): Code.HIDDEN})) == []


@pytest.mark.parametrize(
    ("keys", "name", "trigger", "threshold"),
    [
        (("id",), "most_sorted_runs", 4, "4 sorted runs (num-sorted-run.compaction-trigger)"),
        ((), "most_files", 6, "6 files (compaction.min.file-num)"),
    ],
)
def test_what_is_due_is_measured_by_the_trigger_of_the_table(
    tmp_path: Path, keys: tuple[str, ...], name: str, trigger: int, threshold: str
) -> None:
    options = {"num-sorted-run.compaction-trigger": "4", "compaction.min.file-num": "6"}
    facts = {"all_buckets": [bucket(0), bucket(1)], "due": decisions(9), "decisions": decisions(9, 11)}
    (due,) = found(rules.no_compaction_is_due, examined(tmp_path, options, keys, needs={(b"", 0): Code.DUE}, **facts))
    assert due.figures == {"due": 1, "buckets": 2, name: 11, "trigger": trigger}
    assert (due.code, due.threshold) == (Code.DUE, threshold) and due.message.startswith(
        "due in 1 of 2 buckets, by file-num; up to"
    )


@pytest.mark.parametrize(
    ("write_only", "commits", "was_compacted", "due", "is_found"),
    [
        ("true", RECENT, False, 1, True),
        ("true", RECENT - 1, False, 1, False),
        ("true", None, False, 1, False),
        ("false", RECENT, False, 1, False),
        ("true", RECENT, True, 1, False),
        ("true", RECENT + 9, False, 0, False),
    ],
)
def test_a_compaction_job_is_missing(
    tmp_path: Path, write_only: str, commits: int | None, was_compacted: bool, due: int, is_found: bool
) -> None:
    latest = None if commits is None else SimpleNamespace(id=commits)
    facts: dict[str, Any] = {"latest": latest, "was_compacted": was_compacted, "due": decisions(*[9] * due)}
    table = examined(tmp_path, {"write-only": write_only}, **facts)
    missing = [(each.code, each.severity, each.figures["recent_commits"]) for each in found(rules.something_compacts, table)]
    assert missing == ([("PD013", ERROR, RECENT)] if is_found else [])


def commits(*users: str) -> list[Any]:
    """Snapshots, newest first, of users who compact after each write."""
    made: list[Any] = []
    for user in users:
        for kind in (APPEND, COMPACT):
            made.append(SimpleNamespace(id=len(made) + 1, commit_user=user, commit_kind=kind))
    return made[::-1]


@pytest.mark.parametrize(
    ("users", "named"),
    [
        ("aab", ""),
        ("aabb", ""),
        ("aba", "2 users compact concurrently: a, b;"),
        ("abbba", "2 users compact concurrently: a, b;"),
        ("caba", "2 users compact concurrently: a, b;"),
        ("abcdefgabcdefg", "7 users compact concurrently: a, b, c, d, e;"),
    ],
)
def test_only_users_whose_compactions_interleave_are_named(tmp_path: Path, users: str, named: str) -> None:
    told = [each.message for each in found(rules.only_one_compacts, examined(tmp_path / "a", recent=commits(*users)))]
    assert [message.startswith(named) for message in told] == ([True] if named else [])
    assert found(rules.only_one_compacts, examined(tmp_path / "b", {"write-only": "true"}, recent=commits(*users))) == []


def test_users_who_only_write_or_only_compact_do_not_count_and_no_secret_is_named(tmp_path: Path) -> None:
    interleaved = commits("a", "b", "a", "b")
    for kind in (APPEND, COMPACT):
        of_b = [each for each in interleaved if each.commit_user == "a" or each.commit_kind == kind]
        assert found(rules.only_one_compacts, examined(tmp_path / kind, recent=of_b)) == []
    (told,) = found(rules.only_one_compacts, examined(tmp_path / "c", recent=commits("a?password=hush", "b", "a?password=hush")))
    assert "hush" not in told.message and told.figures == {"recent_commits": 6, "compacting_users": 2}


def test_all_rows_that_wait_are_counted(tmp_path: Path) -> None:
    parts = [bucket(POSTPONE_BUCKET, (1, 10, 0), (1, 20, 0), partition=name) for name in (b"a", b"b")]
    needs = {part.bucket_id: Code.POSTPONED for part in parts}
    (waiting,) = found(rules.no_row_waits_for_its_bucket, examined(tmp_path / "a", all_buckets=parts, needs=needs))
    assert (waiting.code, waiting.figures) == (Code.POSTPONED, {"waiting_records": 60, "files": 4})
    assert waiting.message == "60 rows in 4 files wait for their buckets; plain reads do not show them"
    hiding = [bucket(number, (1, 10, 0), (1, 500, 5), (1, 1, 0)) for number in (0, 1)]
    needs = {each.bucket_id: Code.HIDDEN for each in hiding}
    vectors = {"deletion-vectors.enabled": "true"}
    (hidden,) = found(rules.no_flushed_row_waits, examined(tmp_path / "b", vectors, all_buckets=hiding, needs=needs))
    assert (hidden.code, hidden.figures) == (Code.HIDDEN, {"waiting_records": 22, "files": 4})
    for each in (waiting, hidden):
        assert (each.severity, each.threshold, each.command) == (WARNING, "0 records", "paimon-cli compact T")
        assert each.remedy is not None and each.remedy.strategy == "full"
    (only,) = found(
        rules.no_row_waits_for_its_bucket,
        examined(tmp_path / "c", all_buckets=parts[1:], needs={parts[1].bucket_id: Code.POSTPONED}),
    )
    assert only.figures["waiting_records"] == 30


def test_small_files_are_counted_against_a_tenth_of_the_target(tmp_path: Path) -> None:
    full, crowded = bucket(0, (100 * MB, 1, 5), (10 * MB, 1, 5)), bucket(1, *[(MB, 1, 0)] * 12, (10 * MB - 1, 1, 0))
    facts = {"all_buckets": [full, crowded], "writes": [], "crowded": [crowded]}
    options = {"target-file-size": "100 mb"}
    (small,) = found(rules.files_are_not_small, examined(tmp_path / "a", options, **facts))
    average = (132 * MB - 1) // 15
    assert small.figures == {"files": 15, "small_files": 13, "average_bytes": average, "target_bytes": 100 * MB}
    assert small.message.startswith(
        "1 of 2 buckets hold 13 files far smaller than 100 MB; 13 of 15 files are smaller than a tenth"
    )
    assert (
        small.command == "paimon-cli compact T --strategy full" and small.remedy is not None and small.remedy.strategy == "full"
    )
    (well,) = found(rules.files_are_not_small, examined(tmp_path / "b", options, **{**facts, "crowded": []}))
    assert (well.severity, well.figures, well.command) == (OK, small.figures, "")


def scenario(name: str, first: int, **options: str) -> Any:
    names = (
        "commits",
        "compactions",
        "compacted_bytes",
        "write_amplification",
        "read_amplification",
        "space_amplification",
        "stalls",
    )
    figures = {name: first + number for number, name in enumerate(names)}
    return SimpleNamespace(scenario=name, options={key.replace("_", "-"): value for key, value in options.items()}, **figures)


def test_a_replay_tells_the_figures_of_both_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_is, better = scenario("as is", 100, num_levels="5"), scenario("a wider trigger", 200, num_levels="9", bucket="7")
    judged = SimpleNamespace(as_is=as_is, better=better, tried=8, buckets=2, all_buckets=3)
    length = [rules.MIN_COMMITS]
    monkeypatch.setattr(rules, "history_workload", lambda context: SimpleNamespace(commits=[0] * length[0]))
    monkeypatch.setattr(rules, "judged_settings", lambda *given: judged)
    table = examined(tmp_path, ids=list(range(rules.MIN_COMMITS)))
    (told,) = found(rules.triggers_fit_the_commits, table)
    assert (told.code, told.command) == ("PA005", "paimon-cli alter T set num-levels=9 bucket=7")
    assert told.remedy is not None and told.remedy.options == better.options
    assert (told.figures["stalls"], told.figures["suggested_stalls"], len(told.figures)) == (106, 206, 14)
    assert told.message.startswith("replaying the last 100 commits of the 2 buckets with the most writes: compactions rewrite")
    judged.better = None
    (well,) = found(rules.triggers_fit_the_commits, table)
    assert (well.severity, well.figures["commits"], len(well.figures)) == (OK, 100, 7)
    length[0] -= 1
    (short,) = found(rules.triggers_fit_the_commits, table)
    assert f"{rules.MIN_COMMITS} snapshots, of which {rules.MIN_COMMITS - 1} add rows" in short.message and short.severity == OK
    vars(table)["ids"] = []
    (none,) = found(rules.triggers_fit_the_commits, table)
    assert "too short to replay other triggers: 0 snapshots; at least" in none.message


def test_a_commit_is_counted_by_what_it_adds(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], partition_by=["dt"], bucket=2, options={"write-only": "true"})
    write(context, [{"dt": day, "id": number} for day in "abc" for number in range(9)])
    write(context, [{"dt": "a", "id": 1}], overwrite=True)
    table = ExaminedTable(context, "T")
    assert [each.commit_kind for each in table.writes] == [OVERWRITE, APPEND]
    assert [rules._added(table, each) for each in table.writes] == [(1, 1, 1), (6, 6, 3)]
    Path(context.layout.manifest(table.writes[1].delta_manifest_list)).unlink()
    again = ExaminedTable(TableContext.open(context.url), "T")
    assert rules._added(again, table.writes[1]) is None and len(again.damage) == 1
