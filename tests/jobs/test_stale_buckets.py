"""Commits with an older bucket count after a rescale, as those of Java: they are seen, and their rows are moved."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from paimon_cli import Table
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.cli.compact_view import summary_line
from paimon_cli.commit import files_conflict
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import NotSupported, Refused
from paimon_cli.history.stale_buckets import mixed_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.repair_plan import plan_repair
from paimon_cli.invariants.repair_steps import RepairKind, RepairPlan
from paimon_cli.jobs import rescale_job, write_job
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactionAccount
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.repair_job import apply_repair
from paimon_cli.jobs.rescale_job import RescaleSummary, plan_rescale, run_rescale
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.maintenance import AT_ONCE, REQUEST
from paimon_cli.jobs.service.service_turn import BUCKET_COUNTS, Turn, look
from paimon_cli.jobs.service.shared_budgets import share_out
from paimon_cli.jobs.service.turn_steps import TurnDone, take
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.requests.compaction import Upkeep
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.requests.upkeep import Allowance
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.jobs.test_leases import HandClock
from tests.maintain.test_tags import KEEP_ONE
from tests.tables import Row, compact, data_files, make_table, named_files, rows, write

KEYS = 40
COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING", "n": "INT"}
Commit = Callable[[], None]


def made(folder: Path, options: Mapping[str, str] | None = None, *, keyed: bool = True) -> TableContext:
    own = {"write-only": "true", **({} if keyed else {"bucket-key": "k"}), **(options or {})}
    context = make_table(folder / "t", COLUMNS, ["p", "k"] if keyed else [], ["p"], 2, own)
    write(context, [row(k, "old", p) for k in range(KEYS) for p in "ab"])
    return context


def row(k: int, v: str, p: str = "a", n: int | None = 1, op: str | None = None) -> Row:
    return {"p": p, "k": k, "v": v, "n": n} | ({"_op": op} if op else {})


def prepared(context: TableContext, given: Sequence[Row]) -> Commit:
    """A commit that a writer has prepared, and that it makes later without looking at the bucket count."""
    held: list[list[CommitMessage]] = []
    real = write_job.write_input

    def hold(*arguments: Any, **named: Any) -> Any:
        written, _ = real(*arguments, **named)
        held.append(list(written.messages))
        raise _Held

    if any("_op" in one for one in given):
        given = [{"_op": "+I", **one} for one in given]
    with patch.object(write_job, "write_input", hold), pytest.raises(_Held):
        write(context, given)
    (messages,) = held
    assert {message.total_buckets for message in messages} == {context.options.bucket}

    def commit() -> None:
        with counts_unchecked():
            Committer(context).commit(messages, fresh_identity(context))

    return commit


@contextmanager
def counts_unchecked() -> Iterator[None]:
    """Commits are accepted whatever their bucket count is, as those of Java are."""
    with patch.object(files_conflict, "check_bucket_counts", lambda *_: None):
        yield


class _Held(BaseException):
    """The writer stops before its commit, and leaves its files."""


def rescale(context: TableContext, buckets: int = 4, **more: Any) -> RescaleSummary:
    table = open_table(locate_table(context.url))
    return run_rescale(table, plan_rescale(table, RescaleOptions(buckets, **more)), LocalEngine(), NoProgress())


def mended(context: TableContext) -> TableContext:
    """The table after a repair, of which every check passes."""
    now = TableContext.open(context.url)
    plan = plan_repair(now)
    assert {step.kind for step in plan.steps} == {RepairKind.STALE_BUCKETS} and not any(step.loss for step in plan.steps)
    apply_repair(now, plan)
    latest = now.snapshots.latest()
    assert latest is not None and latest.commit_kind == "COMPACT"
    assert not mixed_partitions(now.manifests.live_files(latest).bucket_counts())
    assert {v.code for v in check_table(now, rows=True)} <= {"PV022", "PV023"}, "of older snapshots"
    assert data_files(now) == named_files(now)
    assert plan_repair(now).steps == []
    write(now, [row(1000, "on")])
    return now


def found(context: TableContext) -> list[tuple[str, int, str]]:
    return sorted((r["p"], r["k"], r["v"]) for r in rows(context) if r["k"] < 1000)


def expected(changes: Mapping[int, str | None]) -> list[tuple[str, int, str]]:
    a: dict[int, str | None] = dict.fromkeys(range(KEYS), "old")
    a.update(changes)
    return sorted([("b", k, "old") for k in range(KEYS)] + [("a", k, v) for k, v in a.items() if v is not None])


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.in_part(2)
def test_the_rows_of_a_stale_commit_are_newer_than_the_rescale(tmp_path: Path, vectors: bool, twice: bool) -> None:
    more = {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"} if vectors else {}
    context = made(tmp_path, more)
    late = prepared(context, [row(k, "late") for k in range(10, 50)] + [row(k, "", op="-D") for k in range(5)])
    later = prepared(context, [row(k, "later") for k in range(20, 30)]) if twice else None
    rescale(context)
    late()
    if later is not None:
        later()
    assert len(found(context)) > 2 * KEYS, "keys are read twice"
    values: dict[int, str | None] = {k: "late" for k in range(10, 50)} | dict.fromkeys(range(5))
    values |= {k: "later" for k in range(20, 30)} if twice else {}
    now = mended(context)
    assert found(now) == expected(values)
    compact(now, strategy="full")
    assert found(now) == expected(values)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_was_written_after_the_stale_commit_stays_newer(tmp_path: Path, is_compacted: bool) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    rescale(context)
    now = TableContext.open(context.url)
    write_unchecked(now, [row(k, "before") for k in range(12, 16)])
    late()
    write_unchecked(now, [row(k, "after") for k in range(14, 22)] + [row(k, "", op="-D") for k in (30, 31)])
    if is_compacted:
        with counts_unchecked():
            compact(now, bucket=(2, 3), strategy="full")
    values: dict[int, str | None] = {k: "late" for k in range(10, 50)}
    values |= {k: "after" for k in range(14, 22)}
    assert found(mended(context)) == expected(values | {30: None, 31: None})


def test_stale_commits_are_moved_in_the_order_of_their_snapshots(tmp_path: Path) -> None:
    """Their writers read the same snapshot, so the numbers of the later ones may be lower."""
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    later = [prepared(context, [row(k, "later")]) for k in range(20, 26)]
    rescale(context)
    for commit in (late, *later):
        commit()
    values: dict[int, str | None] = {k: "later" if 20 <= k < 26 else "late" for k in range(10, 50)}
    assert found(mended(context)) == expected(values)


def test_keys_that_were_written_since_to_another_partition_are_others(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 20)])
    rescale(context)
    late()
    write_unchecked(TableContext.open(context.url), [row(k, "after", "b") for k in range(10, 15)])
    now = expected({k: "late" for k in range(10, 20)})
    assert found(mended(context)) == [(p, k, "after" if p == "b" and 10 <= k < 15 else v) for p, k, v in now]


def write_unchecked(context: TableContext, given: Sequence[Row]) -> None:
    """A writer that knows the new count; ours would refuse the partition once a stale file is in it."""
    prepared(context, given)()


def test_what_was_written_between_two_stale_commits_is_newer_than_the_first_alone(tmp_path: Path) -> None:
    context = made(tmp_path)
    first, second = (prepared(context, [row(k, text) for k in keys]) for text, keys in (("1", range(10)), ("2", range(5, 15))))
    rescale(context)
    first()
    write_unchecked(TableContext.open(context.url), [row(k, "between") for k in range(3, 12)])
    second()
    mended(context)
    assert found(context) == expected({k: "1" if k < 3 else "between" if k < 5 else "2" for k in range(15)})


def test_rows_of_an_append_table_are_moved_without_those_that_are_marked(tmp_path: Path) -> None:
    context = made(tmp_path, {"deletion-vectors.enabled": "true"}, keyed=False)
    late = prepared(context, [row(k, "late") for k in range(100, 120)])
    rescale(context)
    late()
    now = TableContext.open(context.url)
    with counts_unchecked():
        Table.open(context.url).delete("k in (3, 101, 102)")
    before = found(now)
    assert found(mended(context)) == before


def test_engines_that_need_all_rows_in_order(tmp_path: Path) -> None:
    context = made(tmp_path, {"merge-engine": "partial-update"})
    commits = [prepared(context, [row(k, value, n=None) for k in range(10, 20)]) for value in ("late", "later")]
    rescale(context)
    for commit in commits:
        commit()
    assert found(mended(context)) == expected({k: "later" for k in range(10, 20)})


def test_rows_that_cannot_be_put_in_order_stay_where_they_are(tmp_path: Path) -> None:
    context = made(tmp_path, {"merge-engine": "partial-update"})
    late = prepared(context, [row(k, "late", n=None) for k in range(10, 20)])
    rescale(context)
    late()
    now = TableContext.open(context.url)
    write_unchecked(now, [row(12, "after")])
    before = found(now), data_files(now)
    with pytest.raises(NotSupported, match="cannot be put in order"):
        apply_repair(now, plan_repair(now))
    assert (found(now), data_files(now)) == before


def test_without_a_history_the_user_decides(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    rescale(context)
    late()
    expire_snapshots(context, KEEP_ONE)
    plan: RepairPlan = plan_repair(TableContext.open(context.url))
    assert [step.kind for step in plan.steps] == [RepairKind.BY_HAND] and plan.changes == 0


@pytest.mark.parametrize(("buckets", "publishes"), [(3, "overwrite"), (4, "commit")])
def test_a_rescale_reports_what_came_before_it_ended(buckets: int, publishes: str, tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    table = open_table(locate_table(context.url))
    plan = plan_rescale(table, RescaleOptions(buckets))
    real = getattr(Committer, publishes)

    def beside(self: Committer, *arguments: Any, **named: Any) -> Any:
        done = real(self, *arguments, **named)
        with patch.object(Committer, publishes, real):
            late()
        return done

    with patch.object(Committer, publishes, beside):
        done = run_rescale(table, plan, LocalEngine(), NoProgress())
    assert (done.stale_files, done.option_changed) == (2, True)
    assert found(mended(context)) == expected({k: "late" for k in range(10, 50)})


def test_an_online_rescale_beside_another_engine_says_how_it_ends(tmp_path: Path, run: Run) -> None:  # noqa: F811
    """The other engine commits right after the first commit of the rescale: exit 7, and a round of maintain ends it."""
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    real = Committer.commit

    def beside(self: Committer, *arguments: Any, **named: Any) -> Any:
        done = real(self, *arguments, **named)
        with patch.object(Committer, "commit", real):
            late()
        path = max(Path(context.url, "snapshot").glob("snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        path.write_text(json.dumps({**json.loads(path.read_text()), "properties": {}}))
        return done

    with patch.object(Committer, "commit", beside), pytest.raises(Refused, match="committed by another engine") as refusal:
        rescale(context, online=True)
    command = f"paimon-cli maintain {context.url} --yes"
    assert refusal.value.hint.endswith(f": {command}")
    done = run(*shlex.split(command)[1:])
    assert "rescale to 4 buckets" in done.out
    now = TableContext.open(context.url)
    assert now.options.bucket == 4 and found(now) == expected({k: "late" for k in range(10, 50)})
    write(now, [row(1000, "on")])


def test_a_mixed_partition_is_not_rescaled_before_it_is_mended(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    rescale(context)
    late()
    with pytest.raises(Refused, match="p=a holds files of several bucket counts"):
        rescale(context, 3)
    mended(context)
    assert rescale(context, 3).stale_files == 0


def test_commands(run: Run, tmp_path: Path) -> None:  # noqa: F811
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    assert "stop other engines' writers first" in run("rescale", context.url, "--buckets", "4", "--dry-run").out
    run("rescale", context.url, "--buckets", "4", "--yes", "--engine", "local")
    late()
    out = run("health", context.url, code=4).out
    assert "PD026" in out and "PD024" not in out
    assert "stale-buckets" in run("repair", context.url).out
    run("repair", context.url, "--apply", "--yes")
    assert "PD026" not in run("health", context.url, code=None).out
    assert found(context) == expected({k: "late" for k in range(10, 50)})


@pytest.mark.parametrize("buckets", [3, 4])
def test_a_service_moves_what_came_late(buckets: int, tmp_path: Path) -> None:
    """Within one round, and beside another table's work; it says so."""
    context = made(tmp_path, {"write-only": "false"})
    late = prepared(context, [row(k, "late", p) for k in range(10, 50) for p in "ab"])
    rescale(context, buckets)
    late()
    now = TableContext.open(context.url)
    summary = run_compact(now, REQUEST, LocalEngine(), NoProgress())
    assert summary.stale_files == 4 and summary.has_changed
    assert "4 files with an old bucket count moved" in summary_line("t", summary)
    assert not mixed_partitions(now.manifests.live_files(now.snapshots.get(summary.snapshots[-1].id)).bucket_counts())
    assert found(now) == sorted((p, k, "late" if k >= 10 else "old") for k in range(50) for p in "ab")
    assert data_files(now) == named_files(now)
    assert run_compact(now, REQUEST, LocalEngine(), NoProgress()).stale_files == 0
    write(TableContext.open(context.url), [row(7, "after")])


def test_what_is_moved_is_paid_from_the_budget_first_and_left_if_it_does_not_suffice(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    rescale(context)
    late()
    now = TableContext.open(context.url)
    live = now.manifests.live_entries(now.snapshots.latest_to_plan() or pytest.fail("no snapshot"))
    stale = sum(entry.file.file_size for entry in live if entry.total_buckets == 2)
    (wanted,) = (turn := look("t", lambda: now, REQUEST, {}, AT_ONCE, False)).wanted
    assert (wanted.size, wanted.must_be, turn.need.size) == (stale, True, stale)

    def with_budget(size: int) -> tuple[TurnDone, Turn, Budget]:
        budget = Budget.of(Allowance(size=size), HandClock())
        turn = look("t", lambda: TableContext.open(context.url), REQUEST, {}, Upkeep(), False)
        share_out([turn], budget, is_by_goal=False)
        done = take(turn, REQUEST, LocalEngine(), NoProgress(), {}, contextlib.nullcontext, math.inf)
        budget.settle(turn.granted, turn.used)
        return done, turn, budget

    done, turn, budget = with_budget(stale - 1)
    assert done.left.steps == (BUCKET_COUNTS,) and not done.summary.stale_files and (turn.used, budget.left) == (0, stale - 1)
    assert (
        turn.beyond_budget
        == f"1 bucket is larger than the whole budget; the mending of its bucket counts needs --budget {stale}b"
    )
    assert found(context) != expected(dict.fromkeys(range(10, 50), "late"))
    done, turn, budget = with_budget(stale + 1)
    assert done.summary.stale_files == 2 and done.summary.bytes_read == stale == turn.used and budget.left == 1
    assert done.summary.bytes_written > 0 and not done.left.steps
    assert found(context) == expected(dict.fromkeys(range(10, 50), "late"))


def test_only_what_is_moved_is_paid_where_a_partition_has_a_count_of_its_own(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(10, "late")])
    rescale(context, partition=[{"p": "a"}])
    late()
    now, account = TableContext.open(context.url), CompactionAccount()
    live = now.manifests.live_entries(now.snapshots.latest_to_plan() or pytest.fail("no snapshot"))
    stale = sum(e.file.file_size for e in live if e.total_buckets == 2 and now.partition_values(e.partition) == ("a",))
    assert plan_compaction(now, REQUEST).size_to_move == stale
    run_compact(now, replace(REQUEST, budget_bytes=stale), LocalEngine(), NoProgress(), account=account)
    assert account.bytes_read == stale and account.summary.stale_files == 1
    assert found(context) == expected({10: "late"})


def test_what_is_left_to_the_user_takes_nothing_from_a_budget(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10, 50)])
    rescale(context)
    late()
    expire_snapshots(context, KEEP_ONE)
    turn = look("t", lambda: TableContext.open(context.url), REQUEST, {}, Upkeep(), False)
    assert (turn.wanted, turn.need.size, turn.steps) == ((), 0, ())


def test_a_rescale_that_is_finished_is_paid_from_the_budget(tmp_path: Path) -> None:
    context = made(tmp_path)
    with patch.object(rescale_job, "alter_table", lambda *_, **__: 1 / 0), pytest.raises(ZeroDivisionError):
        rescale(context)
    with patch.object(files_conflict, "check_bucket_counts", lambda *_: None):
        write(TableContext.open(context.url), [row(1, "x", "c")])
    now = TableContext.open(context.url)
    plan = plan_compaction(now, REQUEST)
    assert plan.unfinished is not None and plan.size_to_move > 0
    account = CompactionAccount()
    run_compact(now, replace(REQUEST, budget_bytes=plan.size_to_move - 1), LocalEngine(), NoProgress(), account=account)
    assert account.bytes_read == 0 and account.summary.rescaled_to is None
    run_compact(now, replace(REQUEST, budget_bytes=plan.size_to_move), LocalEngine(), NoProgress(), account=account)
    assert account.bytes_read == plan.size_to_move and account.summary.rescaled_to == 4


def test_a_service_leaves_what_it_cannot_order_and_says_why(tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    context = made(tmp_path, options)
    late = prepared(context, [row(k, "late") for k in range(10)])
    rescale(context)
    newer = prepared(TableContext.open(context.url), [row(k, "newer") for k in range(10)])
    late()
    newer()
    before = rows(context)
    with pytest.raises(NotSupported, match="cannot be put in order"):
        run_compact(TableContext.open(context.url), REQUEST, LocalEngine(), NoProgress())
    assert rows(context) == before


def test_a_single_compaction_moves_nothing(tmp_path: Path) -> None:
    context = made(tmp_path)
    late = prepared(context, [row(k, "late") for k in range(10)])
    rescale(context)
    late()
    assert not plan_compaction(TableContext.open(context.url), CompactRequest("minor")).mixed
    assert plan_compaction(TableContext.open(context.url), REQUEST).mixed


@pytest.mark.parametrize("buckets", [4, 3])
def test_a_rescale_ends_beside_a_writer_of_another_engine_and_counts_its_files(
    tmp_path: Path, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer commits with the old count right after the rescale, before the option changes: it must not stop that."""
    context = made(tmp_path)
    commit, real = prepared(context, [row(1, "late"), row(2, "late")]), rescale_job._expect_nothing_left

    def after_a_commit(*given: Any) -> None:
        commit()
        real(*given)

    monkeypatch.setattr(rescale_job, "_expect_nothing_left", after_a_commit)
    done = rescale(context, buckets)
    after = context.manifests.live_entries(context.snapshots.get(done.snapshots[-1].id + 1))
    stale = [entry for entry in after if entry.total_buckets == 2]
    assert done.option_changed and done.stale_files == len(stale) > 0
    with pytest.raises(Refused, match="several bucket counts"):
        rescale(context, 5)
    assert rescale(context, 5, partition=[{"p": "b"}]).partitions == 1
