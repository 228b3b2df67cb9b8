"""Names, orders and sizes, exactly: what is copied under which name, what is deleted before what, how a file is called."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch, rename_branch
from paimon_cli.maintain.drop_table import drop_table, plan_table_drop
from paimon_cli.maintain.expire_changelogs import expire_changelogs, files_removed_with_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.restore_as_new import differences, restore_as_new
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag, replace_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, DataFileMeta, DeletionVectorRange, FileChanges, IndexFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit import commit_tables
from tests.maintain.plain_files import kind_of, needed, on_disk
from tests.maintain.test_drop_table import partitioned, put
from tests.maintain.test_tags import KEEP_ONE
from tests.maintain.versions import check_versions
from tests.tables import compact, make_table, rows, write


@dataclass
class Noted(LocalStorage):
    """Records what is overwritten and deleted below a directory, in order."""

    below: str
    overwritten: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def overwrite(self, path: str, data: bytes) -> None:
        self.overwritten.append(path.removeprefix(self.below))
        super().overwrite(path, data)

    def delete_directory(self, path: str) -> None:
        self.deleted.append(path.removeprefix(self.below))
        super().delete_directory(path)


# ---- going back as a new snapshot ---------------------------------------------------------------------------------------


@dataclass
class Replaced:
    """A table of two data files, with what belongs to them and deletion vectors, that a second commit has replaced by one.

    One vector is of a file that is gone, as Java leaves some.
    """

    context: TableContext
    first: Snapshot
    latest: Snapshot
    contents: dict[str, bytes]


@pytest.fixture
def replaced(tmp_path: Path) -> Replaced:
    context = replace(commit_tables.make_table(tmp_path / "t"), read_threads=1)
    dice = random.Random(1)
    contents = {
        name: dice.randbytes(dice.randint(1, 300)) for name in ("a.parquet", "b.zstd.parquet", "bare", "vectors", "keys", "later")
    }
    extras = ("a.parquet.index", "bloom.of-a", "x-a.parquet", "a.parquet.a.parquet")
    contents |= {name: dice.randbytes(7 + place) for place, name in enumerate(extras)}

    def file(name: str, *extra: str) -> DataFileMeta:
        return replace(commit_tables.data_file(name, extra_files=extra), file_size=len(contents[name]))

    bucket, index = Path(context.url) / "bucket-1", Path(context.url) / "index"
    bucket.mkdir()
    index.mkdir()
    for name, content in contents.items():
        ((index if name in ("vectors", "keys", "later") else bucket) / name).write_bytes(content)
    old = (file("a.parquet", *extras), file("b.zstd.parquet"), file("bare"))
    ranges = (DeletionVectorRange("a.parquet", 1, 2, 3), DeletionVectorRange("elsewhere", 3, 2, 6))
    vectors = IndexFileMeta("DELETION_VECTORS", "vectors", len(contents["vectors"]), 2, ranges)
    keys = IndexFileMeta("HASH", "keys", len(contents["keys"]), 1)
    later = IndexFileMeta("DELETION_VECTORS", "later", len(contents["later"]), 0, ())
    committer = Committer(context)
    with mock.patch("paimon_cli.commit.committer.check_files"):
        committer.commit(
            [CommitMessage(EMPTY_ROW, 1, 2, append=FileChanges(added=old, added_indexes=(vectors, keys)))], CommitIdentity("me")
        )
    first = context.snapshots.get(1)
    new = (commit_tables.data_file("c.parquet"),)
    committer.commit(
        [
            CommitMessage(
                EMPTY_ROW,
                1,
                2,
                append=FileChanges(added=(*new,), removed=old, added_indexes=(later,), removed_indexes=(vectors, keys)),
            )
        ],
        CommitIdentity("you"),
    )
    latest = context.snapshots.latest()
    assert latest is not None and latest.id >= 2
    return Replaced(context, first, latest, contents)


def test_copies_have_names_of_their_own_and_the_same_bytes(replaced: Replaced) -> None:
    context, contents = replaced.context, replaced.contents
    (found,) = differences(context, replaced.latest, replaced.first)
    assert [file.file_name for file in found.removed] == ["c.parquet"]
    assert [file.file_name for file in found.removed_indexes] == ["later"]
    assert sorted(file.file_name for file in found.missing_indexes) == ["keys", "vectors"]
    names = ("a.parquet", "b.zstd.parquet", "bare", "vectors", "keys")
    assert found.copied_bytes == sum(len(contents[name]) for name in names)
    assert (found.bucket_id, found.total_buckets) == ((EMPTY_ROW, 1), 2)
    result = restore_as_new(context, replaced.latest, replaced.first, [found])
    restored = result.snapshots[-1]
    assert not differences(context, restored, restored)
    files = {entry.file.file_size: entry.file for entry in context.manifests.live_entries(restored)}
    bucket, index = Path(context.url) / "bucket-1", Path(context.url) / "index"
    assert len(files) == 3
    for old in found.missing:
        new = files[old.file_size]
        assert new.file_name.startswith("data-") and new.file_name not in contents
        assert new.file_name[41:].partition("-")[2].partition(".")[2] == old.file_name.partition(".")[2], "format and codec"
        assert (bucket / new.file_name).read_bytes() == contents[old.file_name]
        assert replace(new, file_name=old.file_name, extra_files=old.extra_files) == old
        if old.file_name == "a.parquet":
            name = new.file_name
            ends = (f"{name}.index", f"{name}.bloom.of-a", f"{name}.x-a.parquet", f"{name}.a.parquet")
            assert new.extra_files == ends
            for extra, copy in zip(old.extra_files, new.extra_files, strict=True):
                assert (bucket / copy).read_bytes() == contents[extra]
    indexes = {entry.index_file.index_type: entry.index_file for entry in context.manifests.index_entries(restored)}
    assert [indexes[kind].row_count for kind in ("HASH", "DELETION_VECTORS")] == [1, 1]  # a vector is of a file that is gone
    for kind, name in (("HASH", "keys"), ("DELETION_VECTORS", "vectors")):
        copy = indexes[kind].file_name
        assert copy.startswith("index-") and (index / copy).read_bytes() == contents[name]
    (of_a,) = [file.file_name for file in files.values() if file.extra_files]
    assert indexes["DELETION_VECTORS"].deletion_vector_ranges == (DeletionVectorRange(of_a, 1, 2, 3),)


@pytest.mark.parametrize("place", ["bucket-1/a.parquet", "bucket-1/b.zstd.parquet", "index/vectors"])
@pytest.mark.parametrize("change", ["shorter", "longer"])
def test_what_is_not_as_long_as_it_was_is_not_copied(replaced: Replaced, place: str, change: str) -> None:
    context = replaced.context
    path = Path(context.url) / place
    content = path.read_bytes()
    path.write_bytes(content[:-1] if change == "shorter" else content + b"x")
    before = {path for path in Path(context.url).rglob("*") if path.is_file()}
    with pytest.raises(DamagedFile, match="is damaged"):
        restore_as_new(context, replaced.latest, replaced.first, differences(context, replaced.latest, replaced.first))
    assert {path for path in Path(context.url).rglob("*") if path.is_file()} == before
    assert context.snapshots.latest_id() == replaced.latest.id


def test_large_files_are_copied_in_blocks(replaced: Replaced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "copied_bytes", 16)
    test_copies_have_names_of_their_own_and_the_same_bytes(replaced)


def test_buckets_that_only_one_of_the_two_states_has_differ_wholly(tmp_path: Path) -> None:
    """Their files, and their indexes, on either side; what both have alike does not differ."""
    context = replace(commit_tables.make_table(tmp_path / "t", partitioned=True), read_threads=1)
    same, old, new = (commit_tables.partition(name) for name in ("same", "old", "new"))
    indexes = {
        name: IndexFileMeta("HASH", name, 10 + place, 1) for place, name in enumerate(("same", "old", "new", "swap", "by"))
    }

    def added(partition: bytes, bucket: int, name: str, *index: str) -> CommitMessage:
        files = (replace(commit_tables.data_file(name), file_size=len(name)),)
        return CommitMessage(
            partition, bucket, 2, append=FileChanges(added=files, added_indexes=tuple(indexes[one] for one in index))
        )

    committer = Committer(context)
    committer.commit(
        [added(same, 0, "a", "same"), added(same, 1, "bb", "swap"), added(old, 1, "ccc", "old")], CommitIdentity("me")
    )
    first = context.snapshots.get(1)
    removed = CommitMessage(
        old,
        1,
        2,
        append=FileChanges(removed=(replace(commit_tables.data_file("ccc"), file_size=3),), removed_indexes=(indexes["old"],)),
    )
    swapped = CommitMessage(same, 1, 2, append=FileChanges(added_indexes=(indexes["by"],), removed_indexes=(indexes["swap"],)))
    committer.commit([removed, swapped, added(new, 0, "dddd", "new")], CommitIdentity("you"))
    latest = context.snapshots.latest()
    assert latest is not None

    def files_of(now: Snapshot, then: Snapshot) -> dict[str, tuple[list[str], ...]]:
        return {
            str(context.partition_values(one.bucket_id[0])[0]): (
                [file.file_name for file in one.removed],
                [file.file_name for file in one.missing],
                [file.file_name for file in one.removed_indexes],
                [file.file_name for file in one.missing_indexes],
            )
            for one in differences(context, now, then)
        }

    assert files_of(latest, first) == {
        "new": (["dddd"], [], ["new"], []),
        "old": ([], ["ccc"], [], ["old"]),
        "same": ([], [], ["by"], ["swap"]),
    }
    assert files_of(first, latest) == {
        "new": ([], ["dddd"], [], ["new"]),
        "old": (["ccc"], [], ["old"], []),
        "same": ([], [], ["swap"], ["by"]),
    }
    assert files_of(first, first) == {}
    assert {one.total_buckets for one in differences(context, latest, first)} == {2}
    assert sorted(one.copied_bytes for one in differences(context, latest, first)) == [0, 13, 3 + 11]


def test_an_index_without_any_file_beside_it_has_the_tables_number_of_buckets(tmp_path: Path) -> None:
    context = replace(commit_tables.make_table(tmp_path / "t", {"bucket": "5"}), read_threads=1)
    index = IndexFileMeta("HASH", "lonely", 10, 1)
    Committer(context).commit(
        [CommitMessage(EMPTY_ROW, 3, 5, append=FileChanges(added=(commit_tables.data_file("a"),)))], CommitIdentity("me")
    )
    Committer(context).commit([CommitMessage(EMPTY_ROW, 4, 5, append=FileChanges(added_indexes=(index,)))], CommitIdentity("me"))
    (found,) = differences(context, context.snapshots.get(2), context.snapshots.get(1))
    assert (found.total_buckets, found.removed, found.removed_indexes) == (5, (), (index,))
    (back,) = differences(context, context.snapshots.get(1), context.snapshots.get(2))
    assert (back.total_buckets, back.removed_indexes, back.missing_indexes) == (5, (), (index,))


# ---- dropping a table ---------------------------------------------------------------------------------------------------


def test_versions_go_before_what_they_name_and_the_schema_last(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    put(context, "changelog/changelog-1", "index/index-1", "consumer/consumer-c")
    storage = Noted(context.url)
    plan = plan_table_drop(storage, context.layout, context.schema)
    kinds = {file.path.removeprefix(f"{context.url}/").partition("/")[0]: file.kind for file in plan.files}
    assert {kinds[name] for name in kinds if name.startswith("dt=")} == {"data"}
    drop_table(storage, context.layout, context.schema)
    first, rest, last = storage.deleted[:4], storage.deleted[4:-2], storage.deleted[-2:]
    assert first == ["/branch/branch-try/schema", "/branch", "/tag", "/changelog"]
    assert set(rest) == {"/consumer", "/dt=a", "/dt=b c", "/index", "/manifest"} and last == ["/schema", "/snapshot"]
    assert not Path(context.url).exists()


def test_directories_that_became_empty_go_beside_those_that_did_not(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    (foreign,) = put(context, "dt=a/bucket-0/inner/f")
    put(context, "dt=a/bucket-1/data-0f0e0d0c-0b0a-0908-0706-050403020100-2.parquet", "dt=a/bucket-2/.t/part-0")
    drop_table(LocalStorage(), context.layout, context.schema)
    left = sorted(str(path.relative_to(context.url)) for path in Path(context.url).rglob("*"))
    assert left == ["dt=a", "dt=a/bucket-0", "dt=a/bucket-0/inner", "dt=a/bucket-0/inner/f"] and Path(foreign).exists()


def test_the_root_is_removed_once_it_is_empty(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    put(context, "notes.txt")
    storage = Noted(context.url)
    drop_table(storage, context.layout, context.schema)
    assert [path.name for path in Path(context.url).iterdir()] == ["notes.txt"] and "" not in storage.deleted


# ---- branches and tags --------------------------------------------------------------------------------------------------


def test_a_renamed_branch_gets_its_schemas_first_and_its_snapshots_last(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    old = context.layout.of_branch("try")
    branch = context.at_branch("try")
    write(branch, [{"k": 3, "dt": "z"}])
    for path in ("changelog/changelog-1", "consumer/consumer-1", "other/f", "schema/schema-1"):
        (Path(old.version_root) / path).parent.mkdir(exist_ok=True)
        (Path(old.version_root) / path).write_text("{}")
    storage = Noted(context.layout.of_branch("new").version_root)
    before = {str(path.relative_to(old.version_root)) for path in Path(old.version_root).rglob("*") if path.is_file()}
    rename_branch(replace(context, storage=storage), "try", "new")
    order = [path.split("/")[1] for path in storage.overwritten if not path.startswith(old.version_root)]
    assert list(dict.fromkeys(order)) == ["schema", "tag", "changelog", "consumer", "snapshot", "other"]
    assert {path[1:] for path in storage.overwritten} == before and not Path(old.version_root).exists()
    for name in set(order):
        named = [path for path in storage.overwritten if path.startswith(f"/{name}/")]
        assert named == sorted(named)


def test_a_replaced_tag_is_of_another_snapshot(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    for number in (1, 2):
        write(context, [{"k": number}])
    create_tag(context, "a", 1)
    create_tag(context, "b", 1)
    replace_tag(context, "a", 2)
    assert {name: tag.snapshot.id for name, tag in context.tags.all().items()} == {"a": 2, "b": 1}


# ---- changelogs ---------------------------------------------------------------------------------------------------------


def history(folder: Path, **options: str) -> TableContext:
    """Changelogs 1 to 5 of a table with one snapshot left, and a tag on the third."""
    context = make_table(
        folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"changelog.time-retained": "2 h", **options}
    )
    for number in (1, 2, 3):
        write(context, [{"k": 1, "v": str(number)}, {"k": number, "v": "a"}])
    create_tag(context, "three", 3)
    create_branch(context, "early", snapshot_id=2)
    compact(context)
    write(context, [{"k": 1, "v": "b"}])
    compact(context)
    expire_snapshots(context, KEEP_ONE)
    return context


def test_changelogs_leave_what_tags_and_branches_need(tmp_path: Path) -> None:
    context = history(tmp_path)
    before = rows(context.at_branch("early"))
    for keep in (3, 2, 1):
        plan = plan_changelogs(context, Retention(keep, keep, 0, None))
        if plan is None:
            continue
        files = files_removed_with_changelogs(context, plan)
        assert {file.path: file.kind for file in files} == {file.path: kind_of(file.path) for file in files}
        expire_changelogs(context, plan, delete_files(context))
        assert needed(Path(context.url)) <= on_disk(Path(context.url))
    check_versions(context)
    assert rows(context.at_branch("early")) == before
    create_branch(context, "of-tag", tag="three")
    assert rows(context.at_branch("of-tag")) == [{"k": 1, "v": "3"}, {"k": 2, "v": "a"}, {"k": 3, "v": "a"}]
