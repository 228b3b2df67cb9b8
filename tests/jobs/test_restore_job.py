"""Restores of a backup: to any version, with the history, into a table that exists, and of copies that others have changed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.commit.commit_records import all_records
from paimon_cli.errors import DamagedFile, NotFound, PaimonError, Refused, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.clone_job import clone_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.restore_job import Restored, restore_table
from paimon_cli.maintain import restore_as_new
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention, consumers, remove_consumer
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import BucketId, IndexFileMeta, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.requests.backup import RestoreOptions
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import Storage
from tests.commit.commit_tables import SteppingClock
from tests.goldens import golden_table
from tests.invariants.damaged_tables import Bench, keyed_table
from tests.jobs.backups import Dying, Killed, Recording, backup, branches_of, check_same, check_whole, opened
from tests.jobs.test_backup_job import ShiftedClock, fill, new_table, rich_table
from tests.tables import data_files, make_table, named_files, rows, write


def restore(copy: Path, target: Path, **options: Any) -> Restored:
    place = TableLocation(str(target), target.name)
    return restore_table(opened(copy), place, RestoreOptions(**options), LocalEngine(), NoProgress())


@pytest.fixture
def copied(tmp_path: Path) -> TableContext:
    """A table whose copy is `copy`."""
    table = rich_table(tmp_path)
    backup(table, tmp_path / "copy")
    return table


def test_half_of_the_files_are_lost(tmp_path: Path, copied: TableContext) -> None:
    """The drill: what a table has lost is in its backup, at each snapshot, tag and branch."""
    expected = {n: rows(copied, snapshot_id=n) for n in copied.snapshots.ids()}
    for file in [path for path in Path(copied.url).rglob("*") if path.is_file()][::2]:
        file.unlink()
    done = restore(tmp_path / "copy", tmp_path / "new", history=True)
    new = opened(tmp_path / "new")
    assert {n: rows(new, snapshot_id=n) for n in new.snapshots.ids()} == expected
    check_same(opened(tmp_path / "copy"), new)
    assert [consumer.name for consumer in consumers(new)] == ["reader"]
    assert done.is_new and done.snapshot == max(expected)
    write(new, [{"k": 1, "v": "goes on"}])
    check_whole(new)


@pytest.mark.parametrize("made_from", ["tag", "branch"])
def test_histories_that_share_files(tmp_path: Path, made_from: str) -> None:
    """A rollback sets the undone snapshots of the copy aside as a branch; a tag or another branch names their files, too."""
    table = Table.open(make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"]).url)
    for number in (1, 2, 3):
        write(table.context, [{"k": number, "v": "first"}])
    table.tags.create("kept", snapshot=2)
    if made_from == "branch":
        table.branches.create("try", tag="kept")
        write(table.context.seen_from("try"), [{"k": 9, "v": "on the branch"}])
    backup(table.context, tmp_path / "copy")
    table.rollback(1)
    write(opened(tmp_path / "t"), [{"k": 77, "v": "later"}])
    backup(opened(tmp_path / "t"), tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new", history=True)
    check_same(opened(tmp_path / "copy"), opened(tmp_path / "new"))
    check_whole(opened(tmp_path / "new"))


def test_a_restore_that_fails_leaves_no_directory(tmp_path: Path, copied: TableContext) -> None:
    newest = max((tmp_path / "copy").glob("bucket-*/*"), key=lambda path: path.stat().st_mtime_ns)
    content = newest.read_bytes()
    newest.unlink()
    with pytest.raises(PaimonError):
        restore(tmp_path / "copy", tmp_path / "new", history=True)
    assert not (tmp_path / "new").exists()
    newest.write_bytes(content)
    restore(tmp_path / "copy", tmp_path / "new", history=True)


def test_one_version(tmp_path: Path, copied: TableContext) -> None:
    first = copied.snapshots.ids()[0]
    moment = str(copied.snapshots.get(first).time_millis)
    of_old = {"tag": "old"}, {"snapshot": "old"}
    versions: list[dict[str, Any]] = [{"snapshot": first}, *of_old, {"as_of": moment}, {"snapshot": moment}, {}]
    for number, version in enumerate(versions):
        name = f"restored_{number}"
        done = restore(tmp_path / "copy", tmp_path / name, **version)
        new = opened(tmp_path / name)
        wanted = copied.tags.get("old").snapshot.id if version in of_old else done.restored
        assert new.snapshots.ids() == [wanted] and done.restored == wanted
        if version not in of_old:
            assert rows(new) == rows(copied, snapshot_id=wanted)
        check_whole(new)
    with pytest.raises(NotFound):
        restore(tmp_path / "copy", tmp_path / "none", snapshot=999)
    with pytest.raises(UsageError):
        RestoreOptions(snapshot=1, tag="old")
    assert not (tmp_path / "none").exists()


def test_the_history_up_to_a_version(tmp_path: Path, copied: TableContext) -> None:
    """Of branches what is no younger: their numbers say nothing about that."""
    numbers = copied.snapshots.ids()
    create_branch(copied, "late", None, numbers[0])
    write(copied.at_branch("late"), [{"k": 1, "v": "younger, with a lower number than the version"}])
    backup(copied, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "of-branches", history=True, snapshot=numbers[-2])
    assert opened(tmp_path / "of-branches").at_branch("late").snapshots.ids() == numbers[:1]
    restore(tmp_path / "copy", tmp_path / "new", history=True, snapshot=numbers[1])
    new = opened(tmp_path / "new")
    assert new.snapshots.ids() == numbers[:2]
    for number in numbers[:2]:
        assert rows(new, snapshot_id=number) == rows(copied, snapshot_id=number)
    check_whole(new)


def test_the_history_up_to_a_point_in_time(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    clock = SteppingClock()
    table = replace(table, clock=clock)
    for number in range(4):
        write(table, [{"k": number}])
        clock.sleep(60)
    at = table.snapshots.get(2).time_millis
    assert at < table.snapshots.get(3).time_millis
    backup(table, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new", history=True, as_of=str(at))
    assert opened(tmp_path / "new").snapshots.ids() == [1, 2]


def test_a_branch_that_begins_at_the_version_is_part_of_its_history(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    fill(table, 4)
    create_branch(table, "try", None, 3)
    write(table.at_branch("try"), [{"k": 1, "v": "later"}])
    backup(table, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new", history=True, snapshot=3)
    new = opened(tmp_path / "new")
    assert new.snapshots.ids() == [1, 2, 3] and new.at_branch("try").snapshots.ids() == [3]
    assert rows(new.at_branch("try")) == rows(table, snapshot_id=3)


def test_what_was_committed_after_the_version_can_be_committed_again(tmp_path: Path) -> None:
    """Its snapshots are not in the new table, so their records must not be, either: a job repeats what it lost."""
    table = new_table(tmp_path)
    for number in range(1, 5):
        write(table, [{"k": number, "v": "a"}], commit_user="job", commit_id=number)
    backup(table, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new", history=True, snapshot=2)
    found = all_records(opened(tmp_path / "new"))
    assert sorted((record.identifier, record.snapshot) for record in found) == [(1, 1), (2, 2)]
    for number in range(1, 5):
        write(opened(tmp_path / "new"), [{"k": number, "v": "b"}], commit_user="job", commit_id=number)
    assert [row["v"] for row in rows(opened(tmp_path / "new"))] == ["a", "a", "b", "b"]


def test_vectors_of_files_that_are_gone_are_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java leaves them in its index files; a commit whose vectors have no files would be refused by other writers."""
    options = {"deletion-vectors.enabled": "true", "bucket-key": "k"}
    table = make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, [], [], 1, options)
    write(table, [{"k": k, "v": "a"} for k in range(8)])
    Table.open(table.url).delete(where="k = 3")
    indexes = restore_as_new._indexes

    def with_another(context: TableContext, snapshot: Snapshot) -> dict[BucketId, dict[str, IndexFileMeta]]:
        found = indexes(context, snapshot)
        for named in found.values():
            for name, file in named.items():
                ranges = file.deletion_vector_ranges or ()
                named[name] = replace(
                    file, deletion_vector_ranges=(*ranges, replace(ranges[0], data_file_name="data-gone.parquet"))
                )
        return found

    monkeypatch.setattr(restore_as_new, "_indexes", with_another)
    table = opened(tmp_path / "t")
    latest = table.snapshots.latest()
    assert latest is not None
    (found,) = restore_as_new.whole_difference(table, latest, table, latest)
    (index,) = found.missing_indexes
    assert [vector.data_file_name for vector in index.deletion_vector_ranges or ()] == [found.missing[0].file_name]


def test_into_a_table_that_exists(tmp_path: Path, copied: TableContext) -> None:
    """Its files may be the lost ones, so all are copied, and its own history stays."""
    first = copied.snapshots.ids()[0]
    expected = rows(copied, snapshot_id=first)
    before = {path: path.read_bytes() for path in Path(copied.url).rglob("*") if path.is_file() and path.suffix == ".parquet"}
    history = copied.snapshots.ids()
    done = restore(tmp_path / "copy", Path(copied.url), snapshot=first)
    table = TableContext.open(copied.url)
    assert not done.is_new and done.snapshot == history[-1] + 1
    assert rows(table) == expected and table.snapshots.ids() == [*history, done.snapshot]
    assert all(path.read_bytes() == content for path, content in before.items())
    check_whole(table)
    assert not (before.keys() & {Path(p) for p in _paths(table)})
    with pytest.raises(UsageError, match="never replaced"):
        restore(tmp_path / "copy", Path(copied.url), history=True)


def _paths(table: TableContext) -> list[str]:
    entries = table.manifests.live_entries(table.snapshots.get(table.snapshots.latest_id() or 0))
    return [table.data_file_path(entry.partition, entry.bucket, entry.file) for entry in entries]


def test_lost_data_comes_back_into_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    fill(table, 3)
    backup(table, tmp_path / "copy")
    expected = rows(table)
    for file in Path(table.url).glob("bucket-*/*"):
        file.unlink()
    restore(tmp_path / "copy", Path(table.url))
    assert rows(TableContext.open(table.url)) == expected


def test_vectors_come_along(tmp_path: Path) -> None:
    table = TableContext.open(str(golden_table("java-0.9", "dv_dedup", tmp_path)))
    backup(table, tmp_path / "copy")
    restore(tmp_path / "copy", Path(table.url), snapshot=table.snapshots.ids()[-1])
    assert rows(TableContext.open(table.url)) == rows(opened(tmp_path / "copy"))
    check_whole(TableContext.open(table.url))


def test_a_table_with_other_schemas_is_refused(tmp_path: Path, copied: TableContext) -> None:
    other = make_table(tmp_path / "other", {"k": "INT NOT NULL", "v": "STRING", "x": "INT"}, ["k"])
    write(other, [{"k": 1, "v": "mine", "x": 1}])
    with pytest.raises(Refused, match="schema 0"):
        restore(tmp_path / "copy", tmp_path / "other")
    assert rows(other) == [{"k": 1, "v": "mine", "x": 1}]


@pytest.mark.parametrize("number", [0, 1])
def test_each_schema_of_the_backup_must_be_that_of_the_table(tmp_path: Path, number: int) -> None:
    """Files of all ages refer to them."""
    table = new_table(tmp_path)
    fill(table, 1)
    Table.open(table.url).alter.set({"write-only": "true"})
    fill(opened(tmp_path / "t"), 1)
    backup(opened(tmp_path / "t"), tmp_path / "copy")
    schema = Path(table.url) / f"schema/schema-{number}"
    schema.write_text(schema.read_text().replace('"v"', '"w"', 1))
    with pytest.raises(Refused, match=f"schema {number}"):
        restore(tmp_path / "copy", tmp_path / "t")


@pytest.mark.parametrize("by", ["backup", "rollback"])
def test_a_state_with_other_partitions_buckets_vectors_and_indexes(tmp_path: Path, by: str) -> None:
    """Each is a source of the difference: what only the state has, and what only the table has by now."""
    options = {
        "deletion-vectors.enabled": "true",
        "bucket-key": "k",
        "file-index.bloom-filter.columns": "v",
        "file-index.in-manifest-threshold": "1 b",  # beside the data files
    }
    made = make_table(tmp_path / "t", {"p": "STRING", "k": "INT", "v": "STRING"}, [], ["p"], 2, options)
    table = Table.open(made.url)
    write(made, [{"p": p, "k": k, "v": f"{p}{k}"} for p in "ab" for k in range(8)])
    table.delete(where="k = 3")
    then, target = rows(opened(tmp_path / "t")), table.snapshot_ids()[-1]
    old = {entry.bucket_id: entry.total_buckets for entry in _live(opened(tmp_path / "t"))}
    assert any(entry.index_file.deletion_vector_ranges for entry in _indexes(opened(tmp_path / "t"))), "rows are marked"
    assert all(entry.file.extra_files for entry in _live(opened(tmp_path / "t")))
    backup(opened(tmp_path / "t"), tmp_path / "copy")
    table.delete(where="p = 'a'")
    write(opened(tmp_path / "t"), [{"p": "c", "k": 1, "v": "c1"}])
    table.compact(strategy="full")
    table.rescale(3)
    Table.open(made.url).delete(where="k = 5")
    assert opened(tmp_path / "t").options.bucket == 3 and _indexes(opened(tmp_path / "t"))
    if by == "backup":
        restore(tmp_path / "copy", tmp_path / "t", snapshot=target)
    else:
        Table.open(made.url).rollback(target, as_new=True)
    now = opened(tmp_path / "t")
    assert rows(now) == then
    assert {entry.bucket_id: entry.total_buckets for entry in _live(now)} == old
    assert named_files(now) <= data_files(now), "with the files of indexes"
    check_whole(now)


def _live(table: TableContext) -> list[ManifestEntry]:
    return list(table.manifests.live_entries(table.snapshots.get(table.snapshots.latest_id() or 0)))


def _indexes(table: TableContext) -> list[IndexManifestEntry]:
    return list(table.manifests.index_entries(table.snapshots.get(table.snapshots.latest_id() or 0)))


@pytest.mark.parametrize("history", [True, False])
def test_a_version_whose_schema_is_missing(tmp_path: Path, copied: TableContext, history: bool) -> None:
    """It could be copied, but not be read."""
    newest = tmp_path / f"copy/snapshot/snapshot-{copied.snapshots.latest_id()}"
    newest.write_text(re.sub(r'("schemaId" *: *)0', r"\g<1>99", newest.read_text()))
    with pytest.raises(DamagedFile, match="schema-99"):
        restore(tmp_path / "copy", tmp_path / "new", history=history)
    assert not (tmp_path / "new").exists()


def test_what_is_not_empty_is_refused(tmp_path: Path, copied: TableContext) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    for place in (tmp_path / "full", tmp_path / "copy/below"):
        with pytest.raises(UsageError):
            restore(tmp_path / "copy", place)


def test_nothing_is_restored_into_a_backup(tmp_path: Path, copied: TableContext) -> None:
    """Into itself, or into another backup: the next run would find snapshots there that it has not copied."""
    backup(copied, tmp_path / "second")
    held = opened(tmp_path / "copy").snapshots.ids()
    with pytest.raises(UsageError, match="both the source and the target"):
        restore(tmp_path / "copy", tmp_path / "copy")
    with pytest.raises(UsageError, match="is a backup"):
        restore(tmp_path / "copy", tmp_path / "second")
    for name in ("copy", "second"):
        assert opened(tmp_path / name).snapshots.ids() == held
    with pytest.raises(UsageError, match="both the source and the target"):
        backup(copied, Path(copied.url))


class TestHostileCopies:
    """Others may write to where a backup lies: nothing is read outside of it, and nothing is written outside of the new table."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        (tmp_path / "canary").mkdir()
        (tmp_path / "canary/secret").write_text("secret")
        return Bench(keyed_table(tmp_path))

    @pytest.mark.in_part(2)
    @pytest.mark.parametrize("history", [True, False])
    @pytest.mark.parametrize(
        "harm",
        [
            lambda bench: bench.lie(bench.live(level=0)[-1], file_name="../../canary/secret"),
            lambda bench: bench.lie(bench.live(level=0)[-1], extra_files=("/etc/passwd",)),
            lambda bench: bench.lie(bench.live(level=0)[-1], external_path="/etc/passwd"),
            lambda bench: bench.lie(bench.live(level=0)[-1], file_size=1 << 50),
            lambda bench: bench.edit_json("snapshot/snapshot-4", baseManifestList="../../canary/secret"),
            lambda bench: _link(bench),
            lambda bench: _pipe(bench),
            lambda bench: _grow(bench),
        ],
        ids=["name", "extra", "external", "size", "list", "link", "pipe", "grown"],
    )
    def test_are_refused(self, tmp_path: Path, bench: Bench, harm: Callable[[Bench], object], history: bool) -> None:
        harm(bench)
        with pytest.raises(PaimonError) as refused:
            restore(Path(bench.root), tmp_path / "new", history=history)
        assert refused.value.exit_code in (8, 10)
        assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()], "the copy is undone"
        assert "secret" not in str(refused.value).replace("canary/secret", "")

    def test_a_snapshot_with_the_id_of_another_one(self, tmp_path: Path, bench: Bench) -> None:
        bench.edit_json("snapshot/snapshot-3", id=7)
        with pytest.raises(DamagedFile, match="snapshot-3 is damaged"):
            restore(Path(bench.root), tmp_path / "new", history=True)
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("content", ["", "{", '{"nextSnapshot": "rm"}'])
    def test_consumers_that_cannot_be_read(self, tmp_path: Path, bench: Bench, content: str) -> None:
        (Path(bench.root) / "consumer/consumer-c").write_text(content)
        with pytest.raises(DamagedFile, match="consumer-c"):
            restore(Path(bench.root), tmp_path / "new", history=True)
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("option", ["../outside", "a/../../outside"])
    def test_directories_that_lead_out(self, tmp_path: Path, option: str) -> None:
        table = new_table(tmp_path)
        fill(table, 1)
        backup(table, tmp_path / "copy")
        schema = tmp_path / "copy/schema/schema-0"
        schema.write_text(schema.read_text().replace('"bucket"', f'"data-file.path-directory":"{option}","bucket"', 1))
        with pytest.raises((DamagedFile, UsageError, NotFound)):
            restore(tmp_path / "copy", tmp_path / "new")
        assert not (tmp_path / "outside").exists()


def _a_file(bench: Bench) -> Path:
    name = bench.live(level=0)[-1].file.file_name
    return next(Path(bench.root).rglob(name))


def _link(bench: Bench) -> None:
    file = _a_file(bench)
    file.unlink()
    file.symlink_to(Path(bench.root).parent / "canary/secret")


def _pipe(bench: Bench) -> None:
    file = _a_file(bench)
    file.unlink()
    os.mkfifo(file)


def _grow(bench: Bench) -> None:
    with _a_file(bench).open("ab") as file:
        file.write(b"more")


@dataclass(frozen=True)
class At(TableLocation):
    """A table in a storage of the test."""

    storage: Storage = field(default_factory=LocalStorage)

    def open_storage(self) -> tuple[Storage, str]:
        return self.storage, self.url


class TestKilled:
    """A restore that was killed is finished by the next one; nothing but its own work is ever taken for that."""

    @pytest.fixture
    def copied(self, tmp_path: Path) -> TableContext:
        """A table with two schemas, a tag and a branch, and its copy."""
        table = Table.open(new_table(tmp_path).url)
        table.write([{"k": 1, "v": "a"}])
        table.alter.add_column("w INT")
        table = Table.open(table.url)
        table.write([{"k": 2, "v": "b", "w": 1}])
        table.tags.create("first", snapshot=1)
        table.branches.create("try", tag="first")
        backup(opened(tmp_path / "t"), tmp_path / "copy")
        return opened(tmp_path / "t")

    @staticmethod
    def killed(copy: Path, target: Path, at_change: int, **options: Any) -> Restored | None:
        """What a restore has done; None if it died at this change."""
        place = At(str(target), target.name, storage=Dying(ConfinedStorage(str(target)), at_change))
        try:
            backup = replace(opened(copy), clock=ShiftedClock())
            return restore_table(backup, place, RestoreOptions(**options), LocalEngine(), NoProgress())
        except Killed:
            return None

    @staticmethod
    def again(copy: Path, target: Path, **options: Any) -> Restored:
        backup = replace(opened(copy), clock=ShiftedClock())  # the lease of the dead one expires after a while
        return restore_table(backup, TableLocation(str(target), "new"), RestoreOptions(**options), LocalEngine(), NoProgress())

    @pytest.mark.in_part(2)
    @pytest.mark.parametrize("options", [{"history": True}, {"history": True, "snapshot": 2}, {}, {"snapshot": 1}])
    def test_at_each_change(self, tmp_path: Path, copied: TableContext, options: dict[str, Any]) -> None:
        copy, continued = tmp_path / "copy", 0
        for at_change in range(200):
            target = tmp_path / f"new{at_change}"
            if self.killed(copy, target, at_change, **options) is not None:
                break
            is_whole = not (target / "backup/unfinished-copy").exists() and (target / "schema/schema-0").exists()
            if not is_whole:
                if at_change % 3 == 2:
                    self.killed(copy, target, 2, **options)
                if target.exists():
                    (target / "backup").mkdir(exist_ok=True)
                    (target / "backup/.unfinished-copy.0.tmp").write_text("it was killed while it wrote")
                done = self.again(copy, target, **options)
                continued += done.is_continued
                assert done.snapshots == sum(len(branch.snapshots.ids()) for branch in branches_of(opened(target)))
            new = opened(target)
            assert rows(new) == rows(copied, snapshot_id=options.get("snapshot", 2))
            if options == {"history": True}:
                check_same(copied, new)
            check_whole(new)
            assert is_whole or not ((target / "backup").exists() or (target / "lease").exists())
            shutil.rmtree(target)
        assert 9 < at_change < 199 and continued > at_change - 4

    def test_a_table_is_not_seen_before_it_is_whole(self, tmp_path: Path, copied: TableContext) -> None:
        """With its newest schema first: a writer that took an old one for the latest would add another one of the same number."""
        for at_change in range(200):
            target = tmp_path / f"new{at_change}"
            if self.killed(tmp_path / "copy", target, at_change, history=True) is not None:
                break
            if (target / "schema/schema-0").exists() or (target / "schema/schema-1").exists():
                assert (target / "schema/schema-1").exists() and opened(target).snapshots.ids() == [1, 2]
            shutil.rmtree(target, ignore_errors=True)

    def test_no_command_finds_a_table_before_it_is_whole(self, tmp_path: Path, copied: TableContext) -> None:
        """Also when its snapshots, a branch, or the first of its schemas are there: files are not lost, but on their way."""
        catalog = Catalog(str(tmp_path / "wh"), runtime=Runtime(engine="local"))
        (tmp_path / "wh/shop.db").mkdir(parents=True)
        steps = set[str]()
        for at_change in range(200):
            target = tmp_path / f"wh/shop.db/new{at_change}"
            if self.killed(tmp_path / "copy", target, at_change, history=True) is not None:
                break
            if (target / "backup/unfinished-copy").exists() and not (target / "schema/schema-0").exists():
                steps |= {name for name in ("snapshot", "branch", "schema") if any((target / name).rglob("*-*"))}
                opens: list[Callable[[Path], object]] = [
                    lambda at: Table.open(at),
                    lambda at: Table.open(at, branch="try"),
                    lambda at: Table.open(at).verify(),
                    lambda at: Table.at(TableLocation(str(at), "new"), {}, catalog.runtime, may_be_damaged=True).repair(),
                    lambda at: catalog.drop_table(str(at)),
                ]
                for run in opens:
                    with pytest.raises(NotFound, match="is running, or was killed"):
                        run(target)
                assert target.name not in str(catalog.tables())
            shutil.rmtree(target, ignore_errors=True)
        assert steps == {"snapshot", "branch", "schema"}

    def test_a_table_that_is_whole_beside_a_claim_is_one(self, tmp_path: Path, copied: TableContext) -> None:
        """The restore was killed right before it gave up its claim, which goes with the table."""
        target = tmp_path / "new"
        restore(tmp_path / "copy", target, history=True)
        (target / "backup").mkdir()
        (target / "backup/unfinished-copy").write_text("{}")
        assert Table.open(target).context.snapshots.ids() and Table.open(target, branch="try").context.snapshots.ids()
        Catalog(str(tmp_path), runtime=Runtime(engine="local")).drop_table(str(target))
        assert not target.exists()

    @pytest.mark.parametrize("other", [{}, {"snapshot": 1}, {"history": True, "snapshot": 1}])
    def test_another_restore_does_not_continue_it(self, tmp_path: Path, copied: TableContext, other: dict[str, Any]) -> None:
        target = tmp_path / "new"
        assert self.killed(tmp_path / "copy", target, 9, history=True) is None
        left = sorted(target.rglob("*"))
        with pytest.raises(UsageError, match="a restore with its whole history"):
            self.again(tmp_path / "copy", target, **other)
        with pytest.raises(UsageError, match="restore"):
            backup(copied, target)
        with pytest.raises(UsageError, match="restore"):
            Table.create(target, columns=["k INT"])
        assert sorted(target.rglob("*")) == left
        self.again(tmp_path / "copy", target, history=True)
        check_same(copied, opened(target))

    @pytest.mark.parametrize("claim", ["", "{}", "[" * 9000, '{"history": 1, "snapshot": "rm -rf"}', None])
    def test_what_is_not_its_own_is_left_alone(self, tmp_path: Path, copied: TableContext, claim: str | None) -> None:
        target = tmp_path / "new"
        (target / "backup").mkdir(parents=True)
        (target / "mine").write_text("mine")
        if claim is not None:
            (target / "backup/unfinished-copy").write_text(claim)
        with pytest.raises(UsageError, match="not empty"):
            self.again(tmp_path / "copy", target, history=True)
        assert (target / "mine").read_text() == "mine"

    def test_the_backup_has_gone_on(self, tmp_path: Path, copied: TableContext) -> None:
        target = tmp_path / "new"
        assert self.killed(tmp_path / "copy", target, 20, history=True) is None
        write(copied, [{"k": 9, "v": "later", "w": 2}])
        backup(opened(tmp_path / "t"), tmp_path / "copy")
        assert self.again(tmp_path / "copy", target, history=True).is_continued
        check_same(opened(tmp_path / "t"), opened(target))

    def test_the_table_was_rolled_back(self, tmp_path: Path, copied: TableContext) -> None:
        target = tmp_path / "new"
        for at_change in range(200):
            assert self.killed(tmp_path / "copy", target, at_change, history=True) is None
            if (target / "snapshot/snapshot-2").exists():
                break
            shutil.rmtree(target, ignore_errors=True)
        Table.open(copied.url).rollback(1)
        write(opened(tmp_path / "t"), [{"k": 9, "v": "other", "w": 2}])
        backup(opened(tmp_path / "t"), tmp_path / "copy")
        with pytest.raises(Refused, match="another history"):
            self.again(tmp_path / "copy", target, history=True)

    def test_one_that_was_suspended_takes_nothing_from_its_successor(self, tmp_path: Path, copied: TableContext) -> None:
        """Its lease was taken over: it must not delete what the other one counts on."""
        target = tmp_path / "new"
        successor: list[Restored] = []

        def suspended(call: str, path: str) -> None:
            if path.endswith("snapshot-1") and call == "put_if_absent" and not successor:
                successor.append(self.again(tmp_path / "copy", target, history=True))

        monkeypatched = At(str(target), "new", storage=Recording(ConfinedStorage(str(target)), suspended))
        first = replace(opened(tmp_path / "copy"), clock=SteppingClock())
        with pytest.raises(PaimonError):
            restore_table(first, monkeypatched, RestoreOptions(history=True), LocalEngine(), NoProgress())
        assert successor and successor[0].is_continued
        check_same(copied, opened(target))


def test_two_clones_into_one_directory(tmp_path: Path) -> None:
    """The slower one fails, and deletes nothing of the other."""
    table = new_table(tmp_path)
    fill(table, 2)
    target = tmp_path / "new"
    inner: list[object] = []

    def between(call: str, path: str) -> None:
        if call == "open_output" and "/bucket-" in path and not inner:
            with pytest.raises(UsageError, match="not empty") as refused:
                clone_table(table, "t", TableLocation(str(target), "new"))
            inner.append(refused.value)

    storage = Recording(ConfinedStorage(str(target)), between)
    clone_table(table, "t", At(str(target), "new", storage=storage))
    assert inner and rows(opened(target)) == rows(table)
    assert not (target / "backup").exists()


@pytest.mark.parametrize("is_gap", [True, False])
def test_history_up_to_a_tag_whose_snapshot_has_expired(tmp_path: Path, is_gap: bool) -> None:
    """The new table shows the rows of the tag, not those of an older snapshot, and has a snapshot at all."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 2)
    if is_gap:
        backup(table, copy)
        for consumer in consumers(table):
            remove_consumer(table, consumer.name)
    fill(table, 2, 10)
    create_tag(table, "four", 4)
    expected = rows(table)
    create_branch(table, "b", None, 4)
    create_tag(table.at_branch("b"), "of b", 4)
    fill(table.at_branch("b"), 2, 30)
    fill(table, 2, 20)
    for history in (table, table.at_branch("b")):
        expire_snapshots(history, Retention(1, 1, 0, None))
    backup(table, copy)
    done = restore(copy, tmp_path / "new", tag="four", history=True)
    new = opened(tmp_path / "new")
    assert (done.restored, done.snapshot, done.snapshots) == (4, 4, len(new.snapshots.ids()) + 1)
    assert new.snapshots.ids() == ([1, 2, 4] if is_gap else [4])
    assert rows(new) == rows(new.at_branch("b")) == expected
    if not is_gap:  # which the backup has as well
        check_whole(new)


def test_a_branch_has_the_newest_state_that_its_tags_have_kept(tmp_path: Path) -> None:
    """Its snapshots of that time have expired, and a later one is not asked for."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 1)
    create_branch(table, "b", None, 1)
    branch = table.at_branch("b")
    for number in (2, 3):
        fill(branch, 1, 10 * number)
        create_tag(branch, f"t{number}", number)
    expected = rows(branch)
    fill(table, 1, 50)
    create_tag(table, "main", 2)
    time.sleep(0.002)
    fill(branch, 1, 90)
    expire_snapshots(branch, Retention(1, 1, 0, None))
    backup(table, copy)
    restore(copy, tmp_path / "new", tag="main", history=True)
    assert rows(opened(tmp_path / "new").at_branch("b")) == expected
