"""Rolling back: nothing of the target is lost, nothing of later versions is left, and a commit in between stops it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.commit.snapshot_publish import publish_again
from paimon_cli.errors import Conflict, NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.metadata_jobs import RolledBack, find_target, run_restore, run_rollback
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.named_files import measured
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import _put_back, files_removed_by_rollback, plan_rollback, roll_back
from paimon_cli.maintain.tags import create_tag, text_within_tag
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.commit.commit_tables import SteppingClock
from tests.goldens import expected_rows, golden, golden_table
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.rivals import RivalStorage
from tests.tables import compact, live_files, make_table, rows, write


def back(context: TableContext, to: str) -> RolledBack:
    return run_rollback(context, plan_rollback(context, find_target(context, to)), NoProgress())


@pytest.mark.parametrize("target", [1, 2, 3, 4, 5])
def test_to_each_snapshot(tmp_path: Path, target: int) -> None:
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=target)
    create_tag(context, "newest", 5)
    plan = plan_rollback(context, find_target(context, str(target)))
    planned = {file.path for file in measured(context, files_removed_by_rollback(context, plan))}
    here = {str(path) for path in Path(context.url).glob("**/*") if path.is_file()}
    back(context, str(target))
    gone = here - {str(path) for path in Path(context.url).glob("**/*") if path.is_file()}
    assert gone == planned, "the dry run said exactly that"
    assert context.snapshots.ids() == list(range(1, target + 1)) and rows(context) == before
    assert context.tags.names() == (["newest"] if target == 5 else [])
    assert Path(context.layout.latest_hint).read_text() == str(target)
    assert files_on_disk(context) == named_files(context)
    write(context, [{"k": 1, "v": "on"}])
    assert context.snapshots.latest_id() == target + 1
    check_versions(context)


def test_an_unknown_name_may_be_a_tag_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no snapshot, tag or time 'nightly' of"):
        back(table_of_five(tmp_path), "nightly")


def test_to_a_tag_whose_snapshot_has_expired(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=2)
    create_tag(context, "two", 2, 10**9)
    expire_snapshots(context, KEEP_ONE)
    back(context, "two")
    assert context.snapshots.ids() == [2] and rows(context) == before
    assert (context.snapshots.earliest_id(), context.snapshots.latest_id()) == (2, 2)
    assert files_on_disk(context) == named_files(context)
    check_versions(context)


def test_a_rollback_to_an_expired_snapshot_that_died_is_repeated(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2, 10**9)
    held = context.tags.content("two")
    expire_snapshots(context, KEEP_ONE)
    assert held and publish_again(context, 2, text_within_tag(context, held)), "it died before it had set the hint"
    back(context, "two")
    assert (context.snapshots.earliest_hint(), context.snapshots.latest_id()) == (2, 2)
    check_versions(context)


@pytest.mark.parametrize("is_same", [True, False])
def test_to_a_tag_whose_number_another_process_takes_first(tmp_path: Path, is_same: bool) -> None:
    """The same snapshot in other words is the target; another commit of its number is not, and stays."""
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=2)
    create_tag(context, "two", 2, 10**9)
    expire_snapshots(context, KEEP_ONE)
    other = context.tags.all()["two"].snapshot
    if not is_same:
        other = replace(other, commit_user="somebody else")
    path = Path(context.layout.snapshot(2))
    theirs = " ".join(other.to_json().split()).encode()
    rival = RivalStorage(lambda: path.write_bytes(theirs))
    beside = TableContext.open(context.url, storage=rival)
    if is_same:
        back(beside, "two")
        assert context.snapshots.ids() == [2] and rows(context) == before
        assert files_on_disk(context) == named_files(context)
        return
    files = files_on_disk(context)
    with pytest.raises(Conflict, match=r"snapshot 2 .* could not be restored: another one has its number now"):
        back(beside, "two")
    assert path.read_bytes() == theirs and context.snapshots.latest_id() == 5 and files <= files_on_disk(context)
    assert rows(context, snapshot_id=5) == rows(table_of_five(tmp_path / "again"))


@pytest.mark.parametrize("restore", ["rollback", "branch"])
def test_a_tag_whose_snapshot_has_expired_is_restored_without_its_changelog(tmp_path: Path, restore: str) -> None:
    """Expiry deletes the changelog of a snapshot, whoever tagged it; the restored one must not name it."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"changelog-producer": "input"})
    for value in ("a", "b", "c"):
        write(context, [{"k": 1, "v": value}])
    create_tag(context, "two", 2)
    expire_snapshots(context, KEEP_ONE)
    if restore == "rollback":
        back(context, "two")
        restored = context
    else:
        create_branch(context, "b", tag="two")
        restored = context.at_branch("b")
    snapshot = restored.snapshots.get(2)
    assert snapshot.changelog_manifest_list is None and snapshot.changelog_has_expired
    assert rows(restored) == [{"k": 1, "v": "b"}]
    with pytest.raises(NotFound, match="the changes of snapshot 2 have expired"):
        Table.open(context.url, branch=restored.branch).changelog(2).to_arrow()
    assert not [str(violation) for violation in check_table(restored, rows=True)]


@pytest.mark.parametrize("producer", ["input", "none"])
@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed before its files"])
def test_changelogs_of_expired_snapshots_go_with_their_files(tmp_path: Path, producer: str, killed: bool) -> None:
    options = {"changelog-producer": producer, "changelog.num-retained.max": "9", "changelog.time-retained": "1 d"}
    options |= {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "changelog.num-retained.min": "9"}
    options |= {"snapshot.time-retained": "1 ms", "write-only": "true"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    write(context, [{"k": 1, "v": "a"}])
    create_tag(context, "one", 1)
    for value in "bcdefg":
        write(context, [{"k": 1, "v": value}])
    expire_snapshots(context, KEEP_ONE)
    assert len(list(Path(context.layout.changelog_directory).glob("changelog-*"))) == 6
    plan = plan_rollback(context, find_target(context, "one"))
    planned = {file.path for file in measured(context, files_removed_by_rollback(context, plan))}
    assert planned == {file.path for file in files_removed_by_rollback(context, plan)}, "the dry run names no file that is gone"
    here = {str(path) for path in Path(context.url).glob("**/*") if path.is_file()}
    if killed:
        with pytest.raises(KeyboardInterrupt):
            roll_back(context, plan, _killed)
    back(context, "one")
    gone = here - {str(path) for path in Path(context.url).glob("**/*") if path.is_file()}
    hints = {context.layout.earliest_changelog_hint, context.layout.latest_changelog_hint, context.layout.snapshot(1)}
    assert planned - gone <= hints and gone - planned <= hints
    assert not Table.open(context.url).plan_orphans(older_than="0s", force=True).plan.files
    assert rows(context) == [{"k": 1, "v": "a"}] and context.snapshots.ids() == [1]


def _killed(paths: Iterable[str]) -> int:
    raise KeyboardInterrupt


def test_branches_keep_what_they_began_with(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_branch(context, "b", snapshot_id=5)
    before = rows(context)
    back(context, "1")
    assert rows(context.at_branch("b")) == before
    check_versions(context)


@pytest.mark.parametrize(("removed", "left"), [(5, 6), (4, 5), (3, 4), (2, 3)])
def test_a_commit_in_between_stays_in_a_sound_history(tmp_path: Path, removed: int, left: int) -> None:
    """A writer commits when the snapshots above `removed` have been removed."""
    context = table_of_five(tmp_path)

    class Rival(LocalStorage):
        acts = True

        def list_directory(self, path: str) -> list[FileStatus]:
            gone = not (tmp_path / "t" / "snapshot" / f"snapshot-{removed + 1}").exists()
            if self.acts and removed < 5 and gone:
                self.act()
            return super().list_directory(path)

        def delete(self, path: str) -> None:
            if self.acts and path.endswith(f"snapshot-{removed}"):
                self.act()
            super().delete(path)

        def act(self) -> None:
            self.acts = False
            write(context, [{"k": 77, "v": "rival"}])

    with pytest.raises(Conflict, match="not rolled back") as refusal:
        back(replace(context, storage=Rival()), "2")
    expected = "the history is unchanged" if removed == 5 else f"it follows snapshot {removed}, since later ones had been removed"
    assert refusal.value.why == f"snapshot {left} was committed meanwhile; {expected}"
    assert context.snapshots.ids() == [*range(1, left + 1)] and {"k": 77, "v": "rival"} in rows(context)
    check_versions(context)


def test_as_a_new_snapshot(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for target in (1, 4, 3, 6):
        before = rows(context, snapshot_id=target)
        done = run_restore(context, find_target(context, str(target)).snapshot, LocalEngine(), NoProgress())
        assert done.snapshot == context.snapshots.latest_id() and rows(context) == before
    assert context.snapshots.ids() == list(range(1, 10))
    check_versions(context)
    assert run_restore(context, find_target(context, "9").snapshot, LocalEngine(), NoProgress()).snapshot == 9, "it is so already"
    for keep in range(8, 0, -1):
        expire_snapshots(context, Retention(keep, keep, 0, None))
        check_versions(context)
        assert files_on_disk(context) == named_files(context)
    write(context, [{"k": 1, "v": "on"}])
    compact(context)
    check_versions(context)


@pytest.mark.parametrize("compaction", [None, "none"])
def test_as_new_compacts_what_a_write_would(compaction: str | None, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"num-sorted-run.compaction-trigger": "2"})
    for number in range(4):
        write(context, [{"k": number}], compact="none")
    compact(context)
    done = run_restore(context, find_target(context, "4").snapshot, LocalEngine(), NoProgress(), compaction)
    files = len(live_files(context))
    assert (done.compacted, files < 4, len(rows(context))) == ((1, True, 4) if compaction is None else (0, False, 4))
    assert done.snapshot == context.snapshots.latest_id()
    check_versions(context)


def test_as_new_to_rows_that_were_only_marked_since(tmp_path: Path) -> None:
    """No file comes or goes, only a deletion vector; streams must not take this for an append without rows."""
    context = make_table(tmp_path / "t", {"k": "INT"}, [], [], -1, {"deletion-vectors.enabled": "true"})
    write(context, [{"k": k} for k in range(5)])
    run_update(context, UpdateRequest("k < 2"), LocalEngine(), NoProgress())
    assert [row["k"] for row in rows(context)] == [2, 3, 4]
    done = run_restore(context, find_target(context, "1").snapshot, LocalEngine(), NoProgress())
    assert len(rows(context)) == 5
    assert context.snapshots.get(done.snapshot).commit_kind == "OVERWRITE"
    check_versions(context)


def test_as_new_to_rows_that_were_only_removed_since(tmp_path: Path) -> None:
    """Streams must not read the rows that come back as new ones; no changelog shows them."""
    options = {"write-only": "true", "merge-engine": "first-row", "changelog-producer": "lookup"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options=options)
    write(context, [{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    compact(context)
    Table.open(context.url).truncate()
    done = run_restore(context, find_target(context, "2").snapshot, LocalEngine(), NoProgress())
    assert len(rows(context)) == 2
    assert context.snapshots.get(done.snapshot).commit_kind == "OVERWRITE"
    assert not list(check_table(context, rows=True))


def test_as_new_to_another_number_of_buckets(tmp_path: Path) -> None:
    """All files of the partition are replaced, so no two counts mix; writers then require the option to agree."""
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", "k": "INT NOT NULL"}, ["p", "k"], ["p"], 3)
    write(context, [{"p": p, "k": k} for p in (1, 2) for k in range(9)])
    before = rows(context)
    fewer = TableContext.open(context.url, {"bucket": "2"})
    write(fewer, [{"p": 1, "k": 5}], overwrite=True)
    done = run_restore(fewer, find_target(fewer, "1").snapshot, LocalEngine(), NoProgress())
    assert done.snapshot == 3 and rows(context) == before
    check_versions(context)
    with pytest.raises(UsageError, match="p=1 was written with 3 buckets, but the table's option says 2"):
        write(fewer, [{"p": 1, "k": 5}])
    write(context, [{"p": 1, "k": 5}])
    write(fewer, [{"p": 7, "k": 5}])
    check_versions(context)


@pytest.mark.parametrize("as_new", [False, True])
@pytest.mark.parametrize(("before", "fitting"), [(2, 2), (-1, 4)])
def test_behind_a_rescale(before: int, fitting: int, as_new: bool, tmp_path: Path, run: Run) -> None:  # noqa: F811
    """The option stays, so writers refuse the files: the command that is named makes both agree, as `buckets plan` says."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=before)
    write(context, [{"k": k, "v": "old"} for k in range(20)])
    expected = rows(context)
    Table.open(context.url).rescale(buckets=4)
    how = ("--as-new",) if as_new else ()
    done = run("rollback", context.url, "--to", "1", "--yes", *how, "-o", "json")
    command = f"paimon-cli rescale {context.url} --buckets {fitting} --yes"
    assert done.json["item"]["fitting_buckets"] == fitting
    assert done.err.endswith(f"than the option, bucket=4, so writers refuse them; run: {command}\n")
    (row,) = Table.open(context.url).bucket_plan()
    assert (row.action, row.new_buckets, row.buckets) == ("rescale", 4, before) and "writers refuse" in row.reason
    assert row.bucket_size_after > 0
    with pytest.raises(UsageError, match="but the table's option says 4") as refusal:
        write(TableContext.open(context.url), [{"k": 1, "v": "new"}])
    assert "--buckets -1" not in refusal.value.hint
    run(*shlex.split(command)[1:])
    after = TableContext.open(context.url)
    assert after.options.bucket == fitting and rows(after) == expected
    write(after, [{"k": 1, "v": "new"}])
    assert Table.open(context.url).rollback("1").fitting_buckets == (None if before > 0 else fitting)
    check_versions(after)


def test_to_a_state_with_several_bucket_counts(tmp_path: Path) -> None:
    """No count is that of all files, so the partitions get that of the option."""
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", "k": "INT NOT NULL"}, ["p", "k"], ["p"], 2)
    write(context, [{"p": p, "k": k} for p in (1, 2) for k in range(9)])
    table = Table.open(context.url)
    table.rescale(buckets=4, partition=[{"p": 1}])
    write(TableContext.open(context.url), [{"p": 2, "k": 1}])
    assert Table.open(context.url).rollback("2").fitting_buckets == 2


def test_as_new_beside_compactions_and_writes_tries_again(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"write-only": "true"})
    for value in "abc":
        write(context, [{"k": 1, "v": value}, {"k": 2, "v": value}])
    target = context.snapshots.get(1)
    clock = SteppingClock()
    acts = [lambda: compact(context), lambda: write(context, [{"k": 3, "v": "x"}]), lambda: compact(context)]
    beside = replace(TableContext.open(context.url, storage=RivalStorage(*acts)), clock=clock)
    done = run_restore(beside, target, LocalEngine(), NoProgress())
    assert done.snapshot == 7 and rows(context) == rows(context, snapshot_id=1)
    assert len(clock.sleeps) >= 3, "it waits before it tries again"
    assert files_on_disk(context) == named_files(context)


def test_as_new_beside_a_write_to_a_partition_that_stays_as_it_is(tmp_path: Path) -> None:
    """Its rows are not those of the target, whichever partition they are in."""
    options = {"write-only": "true"}
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", "k": "INT NOT NULL"}, ["p", "k"], ["p"], options=options)
    for k in (1, 2):
        write(context, [{"p": 1, "k": k}])
    beside = TableContext.open(context.url, storage=RivalStorage(lambda: write(context, [{"p": 2, "k": 3}])))
    done = run_restore(replace(beside, clock=SteppingClock()), context.snapshots.get(1), LocalEngine(), NoProgress())
    assert done.snapshot == 4 and rows(context) == [{"p": 1, "k": 1}]


def test_as_new_to_a_target_that_expires_meanwhile(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"write-only": "true"})
    for value in "ab":
        write(context, [{"k": 1, "v": value}])
    compact(context)
    target = context.snapshots.get(1)
    expire_snapshots(context, Retention(at_least=1, at_most=1, millis=0, limit=None))
    before = files_on_disk(context)
    with pytest.raises(NotFound, match=r"snapshot 1 of .* has expired in the meantime") as failure:
        run_restore(context, target, LocalEngine(), NoProgress())
    assert failure.value.exit_code == 3 and files_on_disk(context) == before


def test_targets(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    moment = context.snapshots.get(3).time_millis
    newest = max(n for n in context.snapshots.ids() if context.snapshots.get(n).time_millis <= moment)  # of one millisecond
    assert find_target(context, "two").snapshot.id == 2 and find_target(context, str(moment)).snapshot.id == newest
    for nowhere in ("9", "1999-01-01"):
        with pytest.raises(NotFound):
            find_target(context, nowhere)


def test_a_table_that_java_rolled_back_and_tagged_is_read_and_continued(tmp_path: Path) -> None:
    for name in ("rollback", "tags_and_expire"):
        table = golden("java-0.9", name)
        context = TableContext.open(str(golden_table("java-0.9", name, tmp_path)))
        for tag in context.tags.names():
            back_again = TableContext.open(str(golden_table("java-0.9", name, tmp_path / tag)))
            back(back_again, tag)
            assert sorted(map(str, rows(back_again))) == sorted(map(str, expected_rows(table, f"tag-{tag}")))
            check_versions(back_again)
        expire_snapshots(context, KEEP_ONE)
        check_versions(context)
        assert sorted(map(str, rows(context))) == sorted(map(str, expected_rows(table)))


def test_of_removed_snapshots_all_come_back_that_have_not_expired_meanwhile(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    paths = {number: Path(context.layout.snapshot(number)) for number in (3, 4, 5)}
    removed = [(number, paths[number].read_bytes()) for number in (5, 4, 3)]
    for path in paths.values():
        path.unlink()
    Path(context.layout.earliest_hint).write_text("4")
    _put_back(context, removed)
    assert {number for number, path in paths.items() if path.exists()} == {4, 5}
