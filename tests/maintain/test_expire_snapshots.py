"""Expiry keeps what it must, deletes what is no longer needed, and a crash at any call leaves no dangling names."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import Conflict, DamagedFile, FilesLeft, RequestRefused, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants.check import check_table
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch
from paimon_cli.maintain.expire_snapshots import (
    _oldest_kept,
    carry_out,
    expire_snapshots,
    files_to_delete_now,
    plan_expiry,
    point_at_earliest,
)
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import changelog_entries, file_paths, metadata_paths
from paimon_cli.maintain.needed_files import NeededFiles
from paimon_cli.maintain.retention import Retention, expiring_range, overdue_resurrected, tagged_snapshots
from paimon_cli.maintain.tags import create_tag
from paimon_cli.maintain.used_names import UsedNames
from paimon_cli.metadata.data_file import EMPTY_ROW, EntryKind, ManifestEntry
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import data_file
from tests.maintain.plain_files import needed, on_disk
from tests.rivals import Meddler
from tests.simulation.conftest import _quick_metadata as _quick_metadata
from tests.tables import compact, make_table, rows, write

KEEP_ONE = Retention(at_least=1, at_most=1, millis=0, limit=None)
COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def table_of_five(folder: Path) -> TableContext:
    """Two writes, a compaction, a write that makes two files dead at the next compaction."""
    context = make_table(folder / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "a"}])
    write(context, [{"k": 2, "v": "b"}])
    compact(context)
    write(context, [{"k": 3, "v": "c"}])
    compact(context)
    return context


def files_of(context: TableContext) -> set[str]:
    """Every data file and manifest on disk."""
    root = Path(context.url)
    return {str(path) for pattern in ("bucket-*/*", "manifest/*", "index/*") for path in root.glob(pattern)}


def named_files(context: TableContext) -> set[str]:
    """Every data file and manifest that a snapshot or tag needs."""
    named: set[str] = set()
    for snapshot in (*context.snapshots.newest_first(), *tagged_snapshots(context)):
        named.update(metadata_paths(context, snapshot))
        for entry in context.manifests.live_entries(snapshot):
            named.update(file_paths(context, entry))
    return named


def test_only_the_newest_and_its_files_stay(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    before = rows(context)
    summary = expire_snapshots(context, KEEP_ONE)
    assert summary.snapshots == (1, 2, 3, 4) and summary.data_files == 4 and summary.metadata_files == 8
    assert context.snapshots.ids() == [5] and context.snapshots.earliest_id() == 5
    assert (Path(context.url) / "snapshot" / "EARLIEST").read_text() == "5"
    assert files_of(context) == named_files(context)
    assert rows(context) == before and not list(check_table(context, rows=True))


def test_a_hint_that_cannot_be_written_leaves_no_orphans(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    (Path(context.url) / "snapshot" / "EARLIEST" / "in the way").mkdir(parents=True)
    summary = expire_snapshots(context, KEEP_ONE)
    assert summary.snapshots == (1, 2, 3, 4) and summary.data_files == 4
    assert context.snapshots.ids() == [5] and context.snapshots.earliest_id() == 5
    assert files_of(context) == named_files(context)


def test_snapshots_are_deleted_oldest_first_and_not_after_a_failure(tmp_path: Path) -> None:
    """A commit is in the history if the snapshot before it exists, so a number must not expire before those below it."""

    class FailingStorage(LocalStorage):
        def delete(self, path: str) -> None:
            if path.endswith("snapshot-2"):
                raise StorageUnavailable("the delete failed", "on purpose")
            super().delete(path)

    context = table_of_five(tmp_path)
    with pytest.raises(StorageUnavailable):
        expire_snapshots(TableContext.open(context.url, storage=FailingStorage()), KEEP_ONE)
    assert context.snapshots.ids() == [2, 3, 4, 5]
    assert expire_snapshots(context, KEEP_ONE).snapshots == (2, 3, 4)


def test_upgraded_files_stay(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "v": "a"}])
    compact(context)
    assert expire_snapshots(context, KEEP_ONE).data_files == 0
    assert rows(context) == [{"k": 1, "v": "a"}]


def test_one_step_after_the_other_deletes_the_same(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for keep in (4, 3, 2, 1):
        expire_snapshots(context, Retention(keep, keep, 0, None))
        assert len(context.snapshots.ids()) == keep
        assert files_of(context) == named_files(context)
        assert not list(check_table(context, rows=True))


@pytest.mark.parametrize("tagged", [1, 2, 3, 4])
def test_tags_protect_their_files(tmp_path: Path, tagged: int) -> None:
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=tagged)
    tag = Path(context.layout.tag("kept"))
    tag.parent.mkdir()
    tag.write_bytes(Path(context.layout.snapshot(tagged)).read_bytes())
    expire_snapshots(context, KEEP_ONE)
    assert files_of(context) == named_files(context)
    Path(context.layout.snapshot(tagged)).write_bytes(tag.read_bytes())
    Path(context.layout.earliest_hint).unlink()
    assert rows(context, snapshot_id=tagged) == before


@pytest.mark.parametrize("tagged", [tags for count in (2, 3) for tags in itertools.combinations((1, 2, 3, 4), count)])
@pytest.mark.in_part(2)
def test_each_of_several_tags_protects_its_files(tmp_path: Path, tagged: tuple[int, ...]) -> None:
    """A file may die long after the oldest tag, so that only a later one has it."""
    context = table_of_five(tmp_path)
    for number in tagged:
        create_tag(context, f"at-{number}", number)
    expire_snapshots(context, KEEP_ONE)
    assert files_of(context) == named_files(context)


def test_a_resurrected_snapshot_is_removed_alone(tmp_path: Path) -> None:
    """A writer that slept while its number expired published its snapshot, and died before it withdrew it."""
    context = table_of_five(tmp_path)
    late = Path(context.layout.snapshot(2))
    content = late.read_bytes()
    expire_snapshots(context, KEEP_ONE)
    late.write_bytes(content)
    before = files_of(context)
    assert context.snapshots.resurrected_ids() == [2] and context.snapshots.ids() == [5]
    plan = plan_expiry(context, KEEP_ONE)
    assert plan is not None and [file.path for file in files_to_delete_now(context, plan)] == [str(late)]
    assert expire_snapshots(context, KEEP_ONE).snapshots == (2,)
    assert not late.exists() and files_of(context) == before
    assert expire_snapshots(context, KEEP_ONE).snapshots == ()


def test_all_resurrected_snapshots_are_removed(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    late = {path: path.read_bytes() for path in (Path(context.layout.snapshot(number)) for number in (1, 3))}
    expire_snapshots(context, KEEP_ONE)
    for path, content in late.items():
        path.write_bytes(content)
    assert expire_snapshots(context, KEEP_ONE).snapshots == (1, 3)
    assert not any(path.exists() for path in late)


def test_resurrected_snapshots_go_as_parts_of_the_history_would(tmp_path: Path) -> None:
    """With a wrong hint, good history looks like this: the newest stay, and each limit decides without the other."""
    context, forever = table_of_five(tmp_path), 10**12
    Path(context.layout.snapshot(3)).unlink()
    point_at_earliest(context, 4)
    assert context.snapshots.resurrected_ids() == [1, 2]
    limits = {"the newest": (4, 4, -1000), "number": (1, 4, forever), "age": (1, 9, -1000), "neither": (1, 9, forever)}
    overdue = {why: overdue_resurrected(context, Retention(*limit, None)) for why, limit in limits.items()}
    assert overdue == {"the newest": (1,), "number": (1,), "age": (1, 2), "neither": ()}


def test_beside_a_rollback_only_the_snapshots_up_to_its_target_are_put_back(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)

    class RolledBack(LocalStorage):
        def delete(self, path: str) -> None:
            super().delete(path)
            if path == context.layout.snapshot(4):
                super().delete(context.layout.snapshot(5))
                super().overwrite(context.layout.latest_hint, b"2")

    with pytest.raises(Conflict, match="a rollback has removed snapshot 5"):
        expire_snapshots(TableContext.open(context.url, storage=RolledBack()), KEEP_ONE)
    assert context.snapshots.ids() == [1, 2] and context.snapshots.latest_id() == 2


@pytest.mark.parametrize("target", [2, 3])
def test_snapshots_that_are_put_back_have_no_gap_up_to_the_target_if_that_is_interrupted(tmp_path: Path, target: int) -> None:
    """The target of the rollback is the newest snapshot; older ones are history."""
    context = table_of_five(tmp_path)

    class RolledBack(LocalStorage):
        def delete(self, path: str) -> None:
            super().delete(path)
            if path == context.layout.snapshot(4):
                super().delete(context.layout.snapshot(5))
                super().overwrite(context.layout.latest_hint, str(target).encode())

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if path == context.layout.snapshot(1):
                raise StorageUnavailable("the store does not answer", "on purpose")
            return super().put_if_absent(path, data)

    with pytest.raises(StorageUnavailable):
        expire_snapshots(TableContext.open(context.url, storage=RolledBack()), KEEP_ONE)
    assert context.snapshots.ids() == [*range(2, target + 1)] and context.snapshots.latest_id() == target


def test_nothing_expires_if_a_rollback_removes_all_that_was_to_stay(tmp_path: Path) -> None:
    """It comes after the ids to expire were determined, so the oldest one that is to stay is above all others."""
    context = table_of_five(tmp_path)
    Path(context.layout.snapshot(5)).unlink()
    assert _oldest_kept(context, range(1, 5)) is _oldest_kept(context, range(1, 6)) is None
    kept = _oldest_kept(context, range(1, 4))
    assert kept is not None and kept.id == 4


def test_an_expiry_that_another_one_overtakes_puts_nothing_back(tmp_path: Path) -> None:
    """The snapshot that was to stay is gone, but no rollback has removed it: later ones are there."""
    context = table_of_five(tmp_path)
    storage = Meddler("delete", "snapshot-1", lambda: expire_snapshots(context, KEEP_ONE) and None)
    slow = TableContext.open(context.url, storage=storage)
    expire_snapshots(slow, Retention(3, 3, 0, None))
    assert storage.count and [path.name for path in Path(context.url, "snapshot").glob("snapshot-*")] == ["snapshot-5"]


def test_a_missing_hint_is_written_though_nothing_expires(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    assert context.snapshots.earliest_hint() is None
    assert expire_snapshots(context, Retention(5, 5, 0, None)).snapshots == ()
    assert context.snapshots.earliest_hint() == 1


def test_a_resurrected_snapshot_is_removed_with_those_that_expire(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    late = Path(context.layout.snapshot(1))
    content = late.read_bytes()
    expire_snapshots(context, Retention(3, 3, 0, None))
    late.write_bytes(content)
    assert expire_snapshots(context, KEEP_ONE).snapshots == (1, 3, 4)
    assert context.snapshots.ids() == [5] and not context.snapshots.resurrected_ids()
    assert files_of(context) == named_files(context)


def test_a_planned_file_stays_if_it_is_no_longer_an_orphan(tmp_path: Path) -> None:
    """A rollback to a tag of the expired snapshot came in between."""
    context = table_of_five(tmp_path)
    late = Path(context.layout.snapshot(2))
    content = late.read_bytes()
    expire_snapshots(context, KEEP_ONE)
    late.write_bytes(content)
    plan = plan_expiry(context, KEEP_ONE)
    point_at_earliest(context, 2)
    assert carry_out(context, plan, delete_files(context)).data_files == 0
    assert late.exists()


def test_a_crash_at_any_call_leaves_no_dangling_name(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    class MortalStorage(LocalStorage):
        """A storage that dies at its n-th deletion or overwrite."""

        def __init__(self, calls: int) -> None:
            super().__init__()
            self.left = calls

        def _live(self) -> None:
            if self.left == 0:
                raise Crash
            self.left -= 1

        def delete(self, path: str) -> None:
            self._live()
            super().delete(path)

        def overwrite(self, path: str, data: bytes) -> None:
            self._live()
            super().overwrite(path, data)

    for calls in range(100):
        context = table_of_five(tmp_path / str(calls))
        try:
            expire_snapshots(TableContext.open(context.url, storage=MortalStorage(calls)), KEEP_ONE)
            break
        except Crash:
            assert not list(check_table(context, rows=True)), calls
            for number in context.snapshots.ids():
                rows(context, snapshot_id=number)
            expire_snapshots(context, KEEP_ONE)
            assert context.snapshots.ids() == [5] and named_files(context) <= files_of(context)
    assert calls > 15


class TestRetention:
    def test_the_newest_always_stay(self, tmp_path: Path) -> None:
        assert expiring_range(table_of_five(tmp_path), Retention(10, 2**31, 0, None)) == range(1, 1)

    def test_beyond_the_most_all_go(self, tmp_path: Path) -> None:
        assert expiring_range(table_of_five(tmp_path), Retention(1, 2, 10**12, None)) == range(1, 4)

    def test_in_between_age_decides(self, tmp_path: Path) -> None:
        context = table_of_five(tmp_path)
        assert expiring_range(context, Retention(1, 2**31, 10**12, None)) == range(1, 1)
        make_old(context, 1, 2, 3)
        assert expiring_range(context, Retention(1, 2**31, 3_600_000, None)) == range(1, 3), "3 was the present until just now"

    def test_no_more_than_the_limit(self, tmp_path: Path) -> None:
        assert expiring_range(table_of_five(tmp_path), Retention(1, 1, 0, 2)) == range(1, 3)

    def test_consumers_hold_back(self, tmp_path: Path) -> None:
        context = table_of_five(tmp_path)
        consumer = Path(context.url) / "consumer" / "consumer-me"
        consumer.parent.mkdir()
        consumer.write_text('{"nextSnapshot": 3}')
        assert expiring_range(context, KEEP_ONE) == range(1, 3)
        consumer.write_text("{}")
        with pytest.raises(DamagedFile, match="consumer-me"):
            expire_snapshots(context, KEEP_ONE)
        assert context.snapshots.ids() == [1, 2, 3, 4, 5]

    def test_options_of_the_table(self, tmp_path: Path) -> None:
        context = make_table(tmp_path / "t", COLUMNS, ["k"])
        assert Retention.of(context.options) == Retention(10, 2**31 - 1, 3_600_000, 50)

    def test_an_empty_table(self, tmp_path: Path) -> None:
        assert expire_snapshots(make_table(tmp_path / "t", COLUMNS, ["k"]), KEEP_ONE).snapshots == ()


def make_old(context: TableContext, *numbers: int) -> None:
    """Make these snapshots look as if they had been made in 2001."""
    for number in numbers:
        path = Path(context.layout.snapshot(number))
        path.write_text(json.dumps({**json.loads(path.read_text()), "timeMillis": 10**12}))


def test_changes_that_outlive_their_snapshots(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog.time-retained": "2 h"})
    write(context, [{"k": 1, "v": "a"}])
    write(context, [{"k": 2, "v": "b"}])
    compact(context)
    compact(context, strategy="full")
    written = {
        entry.file.file_name for number in (1, 2) for entry in context.manifests.delta_entries(context.snapshots.get(number))
    }
    expire_snapshots(context, KEEP_ONE)
    changelogs = ChangelogHistory(context.storage, context.layout)
    assert changelogs.ids() == [1, 2] and context.storage.read_bytes(context.layout.latest_changelog_hint) == b"2"
    assert written == {entry.file.file_name for number in changelogs.all() for entry in context.manifests.delta_entries(number)}
    assert written <= {Path(path).name for path in files_of(context)}, "without a producer the written files are the changelog"


class Locked(LocalStorage):
    """Refuses to delete files with one of these parts in their paths, as an object lock or the policy of a bucket does."""

    def __init__(self, *parts: str, error: type[StorageUnavailable] = RequestRefused) -> None:
        super().__init__()
        self.parts, self.error = parts, error

    def delete(self, path: str) -> None:
        if any(part in path for part in self.parts):
            raise self.error(f"the store refused {path}", "locked", path=path)
        super().delete(path)


def test_a_locked_file_does_not_keep_the_others(tmp_path: Path) -> None:
    """Of data files and of manifests, all but the locked ones go, and the error says what was done and what is to be done."""
    context = table_of_five(tmp_path)
    plan = plan_expiry(context, KEEP_ONE)
    assert plan is not None
    going = {file.path for file in files_to_delete_now(context, plan)}
    locked = next(path for path in sorted(going) if "/bucket-" in path), next(path for path in going if "/manifest-list-" in path)
    opened = TableContext.open(context.url, storage=Locked(*locked))
    with pytest.raises(FilesLeft) as left:
        expire_snapshots(opened, KEEP_ONE)
    assert {path for path in going if Path(path).exists()} == set(locked)
    error = left.value
    assert error.what == "10 files deleted, 2 refused" and (error.deleted, error.refused) == (10, 2)
    assert error.why == f"the store refused {locked[0]} (locked)\n  before that, 4 snapshots had been deleted: 1 to 4"
    assert error.hint.endswith(f"a day old, delete them: paimon-cli orphans rm {context.url} --apply --yes")
    assert error.exit_code == 6
    assert pickle.loads(pickle.dumps(error)).message == error.message
    assert context.snapshots.ids() == [5] and not list(check_table(context, rows=True))


@pytest.mark.parametrize(
    ("part", "error", "gone", "which"),
    [
        ("/snapshot-3", RequestRefused, [1, 2], "2 snapshots had been deleted: 1 to 2"),
        ("/snapshot-2", RequestRefused, [1], "1 snapshot had been deleted: 1"),
        ("/bucket-", StorageUnavailable, [1, 2, 3, 4], "4 snapshots had been deleted: 1 to 4"),
    ],
)
def test_what_was_done_before_a_failure_is_said(
    tmp_path: Path, part: str, error: type[StorageUnavailable], gone: list[int], which: str
) -> None:
    """Snapshots go oldest first, so that none goes after one that is refused; a store that fails is asked no further."""
    context = table_of_five(tmp_path)
    opened = TableContext.open(context.url, storage=Locked(part, error=error))
    before = files_of(context)
    with pytest.raises(error, match=which) as failure:
        expire_snapshots(opened, KEEP_ONE)
    assert f"paimon-cli orphans rm {context.url} --apply" in failure.value.hint
    assert context.snapshots.ids() == [number for number in range(1, 6) if number not in gone]
    assert files_of(context) == before


def test_before_anything_was_deleted_the_error_is_that_of_the_store(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    with pytest.raises(RequestRefused) as failure:
        expire_snapshots(TableContext.open(context.url, storage=Locked("/snapshot-1")), KEEP_ONE)
    assert failure.value.why == "locked" and failure.value.hint == ""


def test_what_a_branch_needs_outlives_the_snapshots_of_main(tmp_path: Path) -> None:
    """Its changelog files and statistics, which no manifest of main names any more."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": "input"})
    write(context, [{"k": 1, "v": "a"}])
    Table.open(context.url).analyze()
    create_branch(context, "b", snapshot_id=2)
    path = Path(context.at_branch("b").layout.snapshot(1))
    path.write_bytes(Path(context.layout.snapshot(1)).read_bytes())
    write(context, [{"k": 1, "v": "b"}])
    compact(context, strategy="full")
    write(context, [{"k": 2, "v": "c"}])
    Table.open(context.url).analyze()
    expire_snapshots(context, KEEP_ONE)
    assert context.snapshots.ids() == [context.snapshots.latest_id()]
    assert needed(Path(context.url)) <= on_disk(Path(context.url))
    branch = context.at_branch("b")
    (changelog,) = changelog_entries(branch, branch.snapshots.get(1))
    assert all(Path(file).exists() for file in file_paths(branch, changelog))
    assert Path(context.url, "statistics", branch.snapshots.get(2).statistics or "-").exists()


def test_a_branch_without_schemas_keeps_its_files(tmp_path: Path) -> None:
    """It is being made or deleted, or has lost them."""
    context = table_of_five(tmp_path)
    create_branch(context, "b", snapshot_id=2)
    kept = metadata_paths(context, context.snapshots.get(2))
    entries = context.manifests.live_entries(context.snapshots.get(2))
    shutil.rmtree(context.layout.of_branch("b").schema_directory)
    expire_snapshots(context, KEEP_ONE)
    assert all(Path(file).exists() for file in (*kept, *(path for entry in entries for path in file_paths(context, entry))))
    used = UsedNames(context)
    used.refresh()
    assert {entry.file.file_name for entry in entries} <= used.names


def test_files_that_a_compaction_wrote_stay_as_long_as_its_changelog(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog.time-retained": "2 h"})
    for value in "ab":
        write(context, [{"k": 1, "v": value}], compact="none")
        write(context, [{"k": 2, "v": value}], compact="none")
        compact(context, strategy="full")
    for number in (4, 6):
        expire_snapshots(context, Retention(at_least=7 - number, at_most=7 - number, millis=0, limit=None))
    assert ChangelogHistory(context.storage, context.layout).ids() == [1, 2, 3, 4, 5]
    assert needed(Path(context.url)) <= on_disk(Path(context.url))


def test_a_tag_of_another_history_keeps_its_files_whatever_its_number(tmp_path: Path) -> None:
    """Its snapshot is not in the history, which has gone another way since."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    for key in (1, 2):
        write(context, [{"k": key, "v": "a"}])
    create_branch(context, "b", snapshot_id=2)
    write(context, [{"k": 3, "v": "main"}])
    create_tag(context, "t")
    create_branch(context, "holder", tag="t")
    text = Path(context.layout.tag("t")).read_bytes()
    branch = context.at_branch("b")
    compact(branch, strategy="full")
    write(branch, [{"k": 3, "v": "branch"}])
    fast_forward(context, plan_fast_forward(context, "b"), delete_files(context))
    Path(context.layout.tag("t")).write_bytes(text)
    for name in ("b", "holder"):
        remove_branch(context, name)
    tagged = context.tags.get("t").snapshot
    entries = context.manifests.live_entries(tagged)
    keep = (context.snapshots.latest_id() or 0) - tagged.id + 1
    expire_snapshots(context, Retention(at_least=keep, at_most=keep, millis=0, limit=None))
    assert context.snapshots.earliest_id() == tagged.id and context.snapshots.get(tagged.id).origin != tagged.origin
    assert len(entries) == 3 and all(Path(path).exists() for entry in entries for path in file_paths(context, entry))


def test_all_files_beside_a_data_file_are_needed_with_it() -> None:
    entry = ManifestEntry(EntryKind.ADD, EMPTY_ROW, 1, 2, data_file("a", extra_files=("a.index", "a.bloom", "a.more")))
    needed_files = NeededFiles()
    needed_files._need([entry])
    assert needed_files.data == {(EMPTY_ROW, 1, name) for name in ("a", "a.index", "a.bloom", "a.more")}
