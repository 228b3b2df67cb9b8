"""Another bucket count for a fixed table while our writers go on: nobody is refused, and no row is lost or doubled."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.compact.bucket_regrouper import regroup_buckets
from paimon_cli.errors import Conflict, CountConflict, NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import moved_rows, online_rescale, rescale_job, write_job
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.rescale_job import RescaleSummary, plan_rescale, run_rescale
from paimon_cli.requests.maintenance import RescaleOptions
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.goldens import golden_table
from tests.nightly import at_night
from tests.rivals import Killed, Mortal, beside
from tests.tables import compact, data_files, make_table, named_files, rows, write

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def made(folder: Path, buckets: int = 2, options: Mapping[str, str] | None = None) -> TableContext:
    context = make_table(
        folder, COLUMNS, ["p", "k"], ["p"], buckets, {"num-sorted-run.compaction-trigger": "3", **(options or {})}
    )
    put(context, range(40), "old", "ab")
    return context


def put(context: TableContext, keys: Sequence[int], value: str, partitions: str = "a", **request: Any) -> None:
    write(context, [{"p": p, "k": key, "v": value} for p in partitions for key in keys], **request)


def values(context: TableContext) -> dict[tuple[str, int], str]:
    found = [((row["p"], row["k"]), row["v"]) for row in rows(TableContext.open(context.url))]
    assert len(found) == len(dict(found)), "no key is read twice"
    return dict(found)


def online(context: TableContext, buckets: int = 4) -> RescaleSummary:
    table = replace(open_table(locate_table(context.url)), storage=context.storage)
    return run_rescale(table, plan_rescale(table, RescaleOptions(buckets, online=True)), LocalEngine(2), NoProgress())


def counts(context: TableContext) -> set[int]:
    now = TableContext.open(context.url)
    latest = now.snapshots.latest()
    return {entry.total_buckets for entry in now.manifests.live_entries(latest)} if latest else set()


def live_buckets(context: TableContext) -> list[BucketFiles]:
    now = TableContext.open(context.url)
    return list(bucket_files(now, now.snapshots.latest()).values())


def sound(context: TableContext) -> bool:
    now = TableContext.open(context.url)
    assert {violation.code for violation in check_table(now, rows=True)} <= {"PV023"}, "writers that did not see each other"
    return data_files(now) == named_files(now)


@contextmanager
def before_commit(act: Callable[[], object]) -> Iterator[None]:
    """Act between the write phase and the commit of a write."""
    real = write_job.commit_rows

    def late(*given: Any) -> Any:
        with patch.object(write_job, "commit_rows", real):
            act()
        return real(*given)

    with patch.object(write_job, "commit_rows", late):
        yield


@pytest.mark.parametrize(("buckets", "new"), [(2, 4), (2, 8), (4, 2)])
def test_a_writer_that_planned_before_moves_its_rows(buckets: int, new: int, tmp_path: Path) -> None:
    context = made(tmp_path / "t", buckets)
    with before_commit(lambda: online(context, new)):
        put(context, range(20, 60), "new", "abc")
    assert counts(context) == {new} and sound(context)
    expected = {(p, k): "new" if k >= 20 else "old" for p in "ab" for k in range(60)} | {("c", k): "new" for k in range(20, 60)}
    assert values(context) == expected
    put(TableContext.open(context.url), [1], "after")
    assert values(context) == expected | {("a", 1): "after"}


def test_a_writer_that_planned_before_begins_a_partition(tmp_path: Path) -> None:
    """No file of the partition shows that the bucket count has changed, only the option."""
    context = made(tmp_path / "t")
    with before_commit(lambda: online(context, 4)):
        put(context, range(10), "new", "c")
    assert counts(context) == {4} and sound(context)
    put(TableContext.open(context.url), [1], "after", "c")
    assert values(context)["c", 1] == "after" and len(values(context)) == 90


def test_a_count_that_changes_twice(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    changes = iter([8])

    def again() -> None:
        for new in changes:
            online(context, new)

    real = regroup_buckets

    def overtaken(*given: Any) -> Any:
        done = real(*given)
        again()
        return done

    with before_commit(lambda: online(context, 4)), patch.object(moved_rows, "regroup_buckets", overtaken):
        put(context, range(20, 60), "new")
    assert counts(context) == {8} and sound(context)
    assert values(context) == {("b", k): "old" for k in range(40)} | {("a", k): "new" if k >= 20 else "old" for k in range(60)}


def test_writers_that_commit_meanwhile(tmp_path: Path) -> None:
    """Each round splits what they have added, and a bucket that was compacted again."""
    context = made(tmp_path / "t")
    number = itertools.count()
    expected = values(context)

    def writer(keys: Sequence[int], **request: Any) -> Callable[[], None]:
        def act() -> None:
            value = f"w{next(number)}"
            put(TableContext.open(context.url), keys, value, **request)
            expected.update({("a", key): value for key in keys})

        return act

    rivals = [writer([1, 100], compact="none"), writer([1, 2], compact="none"), lambda: compact(context, strategy="full")]
    summary = online(beside(context, *rivals, writer([3])))
    assert summary.partitions == 2 and summary.option_changed and counts(context) == {4}
    assert values(context) == expected and sound(context)


@pytest.mark.parametrize("options", [{"changelog-producer": "full-compaction"}, {"sequence.field": "v"}, {"write-only": "true"}])
def test_other_kinds_of_tables(options: dict[str, str], tmp_path: Path) -> None:
    context = made(tmp_path / "t", options=options)
    with before_commit(lambda: online(context)):
        put(context, range(20, 60), "pnew")
    assert counts(context) == {4} and sound(context)
    assert values(context)["a", 59] == "pnew"


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "input"},
        {"merge-engine": "first-row"},
    ],
)
def test_kinds_whose_writers_cannot_move_their_rows(options: dict[str, str], tmp_path: Path) -> None:
    context = made(tmp_path / "t", options=options)
    with pytest.raises(NotSupported, match=r"in their buckets|by bucket"):
        online(context)
    before = values(context)

    def offline() -> None:
        table = open_table(locate_table(context.url))
        run_rescale(table, plan_rescale(table, RescaleOptions(4)), LocalEngine(), NoProgress())

    with before_commit(offline), pytest.raises(Conflict) as refused:
        put(context, range(20, 60), "new")
    assert refused.value.exit_code == 5 and values(context) == before and data_files(context) == named_files(context)


def test_a_count_that_is_no_multiple_refuses_the_writer(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    with pytest.raises(UsageError, match="from 2 to 3 buckets"):
        online(context, 3)

    def offline() -> None:
        table = open_table(locate_table(context.url))
        run_rescale(table, plan_rescale(table, RescaleOptions(3)), LocalEngine(), NoProgress())

    with before_commit(offline), pytest.raises(CountConflict):
        put(context, range(60), "new")
    assert set(values(context).values()) == {"old"} and data_files(context) == named_files(context)


def test_a_partition_with_another_count_than_the_option(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    table = open_table(locate_table(context.url))
    run_rescale(table, plan_rescale(table, RescaleOptions(3, partition=[{"p": "a"}])), LocalEngine(), NoProgress())
    before = values(context)
    with pytest.raises(UsageError, match="from 3 to 4 buckets in p=a") as refused:
        online(context, 4)
    assert "choose 6" in str(refused.value.hint)
    online(context, 6)
    assert counts(context) == {6} and values(context) == before and sound(context)


def test_tables_of_other_engines_are_refused(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context = TableContext.open(str(golden_table("java-0.9", "dedup_partitioned", tmp_path)))
    count = context.options.bucket
    with pytest.raises(Refused, match="was committed by another engine") as refused:
        plan_rescale(context, RescaleOptions(2 * count, online=True))
    assert refused.value.exit_code == 7
    assert "another engine" in run("rescale", context.url, "--buckets", 2 * count, "--online", "--yes", code=7).err


def test_a_compaction_of_some_files_of_a_bucket_is_followed(tmp_path: Path) -> None:
    """What was made of the others is of no use: it would remove files that are gone."""
    context = made(tmp_path / "t", options={"compaction.max-size-amplification-percent": "100000"})
    put(context, range(5000), str(list(range(50))))
    compact(context, strategy="full")
    for n in range(3):
        put(context, range(n, n + 9), f"v{n}", compact="none")
    before, seen = values(context), list[tuple[int, ...]]()

    def merge() -> None:
        of_one = {file.file_name for bucket in live_buckets(context) for file in bucket.files}
        compact(context, strategy="minor")
        left = {file.file_name for bucket in live_buckets(context) for file in bucket.files}
        seen.append((len(of_one - left), len(of_one & left)))

    done = online(beside(context, merge))
    assert done.option_changed and counts(context) == {4} and sound(context) and values(context) == before
    assert seen and all(gone and stayed for gone, stayed in seen)


def test_an_engine_that_commits_after_the_plan_is_seen(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    table = open_table(locate_table(context.url))
    plan = plan_rescale(table, RescaleOptions(4, online=True))
    put(context, [1], "beside")
    path = tmp_path / f"t/snapshot/snapshot-{context.snapshots.latest_id()}"
    path.write_text(json.dumps({**json.loads(path.read_text()), "properties": {}}))
    with pytest.raises(Refused, match="another engine"):
        run_rescale(table, plan, LocalEngine(), NoProgress())
    assert counts(context) == {2}


def test_an_engine_that_comes_meanwhile_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = made(tmp_path / "t")
    before = values(context)
    real = online_rescale.refuse_foreign
    seen: list[int] = []

    def foreign(table: TableContext, after: int) -> None:
        seen.append(after)
        real(table, after)
        if len(seen) == 3:
            raise Refused("a commit of another engine", "its writer may be running")

    monkeypatch.setattr(online_rescale, "refuse_foreign", foreign)
    with pytest.raises(Refused):
        online(beside(context, lambda: put(context, [1], "beside")))
    assert counts(context) == {2} and data_files(context) == named_files(context)
    assert values(context) == before | {("a", 1): "beside"} and TableContext.open(context.url).options.bucket == 2


def test_it_gives_up_when_others_are_always_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = made(tmp_path / "t")
    monkeypatch.setattr(online_rescale, "MOST_ROUNDS", 2)
    rivals = [lambda: put(TableContext.open(context.url), [1], "beside", compact="none")] * 3
    with pytest.raises(StorageUnavailable, match="was not changed"):
        online(beside(context, *rivals))
    assert counts(context) == {2} and data_files(context) == named_files(context)


@pytest.mark.parametrize("fails", ["_partitions_to_move", "_expect_nothing_left", "alter_table", "_stale_files"])
def test_an_error_after_the_commit_names_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    context, before = made(tmp_path / "t"), TableContext.open(str(tmp_path / "t")).snapshots.latest_id()
    real = getattr(rescale_job, fails)

    def failing(*given: Any, **named: Any) -> Any:
        if TableContext.open(context.url).snapshots.latest_id() == before:
            return real(*given, **named)
        raise StorageUnavailable("the store is gone", "it does not answer")

    monkeypatch.setattr(rescale_job, fails, failing)
    with pytest.raises(StorageUnavailable, match="the store is gone") as caught:
        online(context)
    assert [snapshot.id for snapshot in caught.value.committed] == [TableContext.open(context.url).snapshots.latest_id()]


@pytest.mark.parametrize("step", [4, at_night(1)])
def test_a_run_that_is_killed_is_finished_by_the_next(step: int, tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    before, kills = values(context), 0
    for number in range(0, 1000, step):
        copy = TableContext.open(str(shutil.copytree(tmp_path / "t", tmp_path / str(number))))
        mortal = Mortal(number)
        try:
            online(replace(copy, storage=mortal))
        except Killed:
            kills += 1
        assert values(copy) == before and counts(copy) in ({2}, {4})
        online(copy)
        assert values(copy) == before and counts(copy) == {4}
        assert TableContext.open(copy.url).options.bucket == 4
        put(TableContext.open(copy.url), [1], "after")
        if mortal.left >= 0:
            break
        shutil.rmtree(copy.url)
    else:
        raise AssertionError("the run never ends")
    assert kills >= 12 // step


def test_commands(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context = made(tmp_path / "t")
    assert "writers of paimon-cli go on" in run("rescale", context.url, "--buckets", 4, "--online", "--dry-run").out
    refusal = run("rescale", context.url, "--buckets", 4, "--online", code=7).err
    assert "keys are read twice until maintain or compact --watch" in refusal
    assert "--partition" in run("rescale", context.url, "--buckets", 4, "--online", "--partition", "p=a", code=2).err
    with patch.object(rescale_job, "alter_table", side_effect=Killed), pytest.raises(Killed):
        online(context)
    assert "it becomes bucket=4" in run("rescale", context.url, "--buckets", 4, "--online", "--dry-run").out
    assert "option is now bucket=4" in run("rescale", context.url, "--buckets", 4, "--online", "--yes").out
    assert counts(context) == {4} and sound(context)
    postponed = make_table(tmp_path / "u", COLUMNS, ["p", "k"], ["p"], -2)
    assert "no fixed bucket count" in run("rescale", postponed.url, "--buckets", 4, "--online", "--yes", code=2).err


def test_partitions_that_writers_begin_meanwhile(tmp_path: Path) -> None:
    """A new partition has no other files to compare its bucket count with, so the command looks again."""
    context = made(tmp_path / "t")
    real = online_rescale.OnlineRescale.run
    names = iter("xyz")

    def then_one_more(self: online_rescale.OnlineRescale) -> Any:
        done = real(self)
        if (name := next(names, None)) is not None:
            put(context, range(10), "begun", name)
        return done

    with patch.object(online_rescale.OnlineRescale, "run", then_one_more):
        summary = online(context)
    assert counts(context) == {4} and sound(context) and summary.partitions == 5
    assert len(values(context)) == 80 + 30


def test_it_says_so_if_writers_begin_partitions_in_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = made(tmp_path / "t")
    real, names = online_rescale.OnlineRescale.run, iter("wxyz")
    monkeypatch.setattr(rescale_job, "MOST_ROUNDS", 2)

    def then_one_more(self: online_rescale.OnlineRescale) -> Any:
        done = real(self)
        put(context, range(10), "begun", next(names))
        return done

    monkeypatch.setattr(online_rescale.OnlineRescale, "run", then_one_more)
    with pytest.raises(StorageUnavailable, match="still has files of other bucket counts") as caught:
        online(context)
    monkeypatch.undo()
    assert len(caught.value.committed) == 2 and counts(context) == {2, 4}
    assert TableContext.open(context.url).options.bucket == 2, "the option stays until all files have the new count"
    assert online(context).option_changed and counts(context) == {4} and len(values(context)) == 80 + 20
