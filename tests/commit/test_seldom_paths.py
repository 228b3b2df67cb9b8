"""Rare paths of commits: storages that delete nothing, indexes of tables without buckets, hints and identities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.commit_messages import (
    CommitKind,
    SnapshotChanges,
    apply_index_changes,
    meets_distributed_rows,
    postpones_buckets,
)
from paimon_cli.commit.committer import Committer, discarded_on
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.errors import Conflict, DamagedFile, DataConflict, FilesConflict, Refused, StorageUnavailable
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, EntryKind, FileChanges, IndexFileMeta, IndexManifestEntry
from paimon_cli.storage.injected import Step, StepTrace
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import data_file, make_table, manifest_files, partition

ME = CommitIdentity("me")


class Stubborn(LocalStorage):
    """Deletes no file, and records which ones should have been deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def delete(self, path: str) -> None:
        self.asked.append(path)
        raise StorageUnavailable("it stays")


def test_files_that_cannot_be_discarded_do_not_stop_the_others(tmp_path: Path) -> None:
    storage, steps = Stubborn(), list[Step]()
    context = make_table(tmp_path / "t", storage=storage)
    context = replace(context, trace=StepTrace(context.clock, steps.append))
    MetadataWriter(context).discard(["/a/b", "/c"])
    assert [path[-2:] for path in storage.asked] == ["/b", "/c"]
    assert [(step.name, step.facts["file"]) for step in steps] == [("discard", "b"), ("discard", "c")]


@pytest.mark.parametrize(("failure", "is_discarded"), [(Refused("r"), True), (Conflict("c"), True), (OSError("o"), False)])
def test_only_failures_that_leave_no_snapshot_discard(tmp_path: Path, failure: Exception, is_discarded: bool) -> None:
    context = make_table(tmp_path / "t")
    writer = MetadataWriter(context)
    with pytest.raises(type(failure)), discarded_on(writer, Refused, Conflict):
        writer.manifest_list([], "base")
        assert len(manifest_files(context)) == 1
        raise failure
    assert len(manifest_files(context)) == (0 if is_discarded else 1)
    with discarded_on(writer, Refused):
        name, size = writer.manifest_list([], "delta")
    assert name.endswith("-1") and name[-3] != "-" and context.storage.file_size(context.layout.manifest(name)) == size


def index(
    kind: int, name: str, index_type: str = "DELETION_VECTORS", bucket: int = 0, day: bytes = EMPTY_ROW
) -> IndexManifestEntry:
    return IndexManifestEntry(kind, day, bucket, IndexFileMeta(index_type, name, 1, 1))


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("bucket", ["-1", "2"])
@pytest.mark.parametrize("index_type", ["DELETION_VECTORS", "HASH"])
def test_a_bucket_has_one_index_of_a_type_or_many_vectors_where_there_are_no_buckets(
    tmp_path: Path, keys: bool, bucket: str, index_type: str
) -> None:
    context = make_table(tmp_path / "t", primary_key=keys)
    context = context.with_options({"bucket": bucket})
    many = not keys and bucket == "-1" and index_type == "DELETION_VECTORS"
    others = [
        index(EntryKind.ADD, "other", "OTHER"),
        index(EntryKind.ADD, "elsewhere", index_type, 1),
        index(EntryKind.ADD, "day", index_type, 0, partition("x")),
    ]
    previous = [index(EntryKind.ADD, "old", index_type), *others]
    new = SnapshotChanges("APPEND", (), new_indexes=(index(EntryKind.ADD, "new", index_type),))
    added = [index(EntryKind.ADD, "new", index_type)]
    if index_type == "HASH":
        assert apply_index_changes(context, previous, new) == [*added, *others]
    elif many:
        assert apply_index_changes(context, previous, new) == [*previous, *added]
    else:  # the vectors of the other file would be lost
        with pytest.raises(FilesConflict, match="index file old of bucket-0"):
            apply_index_changes(context, previous, new)
    gone = replace(new, deleted_indexes=(index(EntryKind.DELETE, "old", index_type),))
    assert sorted(e.index_file.file_name for e in apply_index_changes(context, previous, gone)) == [
        "day",
        "elsewhere",
        "new",
        "other",
    ]
    for name, there in (("stranger", previous), ("old", others)):
        with pytest.raises(FilesConflict, match=f"index file {name} of bucket-0"):
            apply_index_changes(context, there, replace(new, deleted_indexes=(index(EntryKind.DELETE, name, index_type),)))


def test_conflicts_name_the_file_and_the_reason(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(removed=(data_file("never"),)), read_snapshot_id=1)
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))], ME)
    with pytest.raises(FilesConflict, match="data file never of bucket-0 is no longer in the table") as conflict:
        Committer(context).commit([message], ME)
    assert conflict.value.why == "a snapshot that has expired removed it"
    assert conflict.value.details["published_snapshots"] == []
    with pytest.raises(FilesConflict, match="data file a of bucket-0 is already in the table"):
        Committer(context).commit(
            [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))], ME, CommitKind.REPAIR
        )
    with pytest.raises(FilesConflict, match="data file a of bucket-0 occurs twice in this commit"):
        Committer(context).commit(
            [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),), removed=(data_file("a"),)))], ME
        )


def test_the_hint_is_reported_with_its_snapshot(tmp_path: Path) -> None:
    steps: list[Step] = []
    context = make_table(tmp_path / "t")
    context = replace(context, trace=StepTrace(context.clock, steps.append))
    for name in ("a", "b"):
        Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))], ME)
        assert Path(context.layout.latest_hint).read_text() == ("1" if name == "a" else "2")
    assert [step.facts for step in steps if step.name == "hint"] == [{"file": "LATEST", "snapshot": n} for n in (1, 2)]
    assert [step.facts["file"] for step in steps if step.name == "snapshot"] == ["snapshot-1", "snapshot-2"]


def test_identities(tmp_path: Path) -> None:
    assert CommitIdentity("me") == CommitIdentity("me", BATCH_IDENTIFIER, 0, False) and not CommitIdentity("me").is_repeatable
    assert CommitIdentity("me", 0).is_repeatable and BATCH_IDENTIFIER == 2**63 - 1
    context = make_table(tmp_path / "t")
    assert fresh_identity(context).user != fresh_identity(context).user and not fresh_identity(context).is_repeatable
    assert not Committer(context).is_committed(CommitIdentity("me", 0))
    Committer(context).commit(
        [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))], CommitIdentity("me", 3)
    )
    assert [Committer(context).is_committed(CommitIdentity("me", number)) for number in (2, 3, 4)] == [True, True, False]


def test_one_bucket_and_two_do_not_go_together(tmp_path: Path) -> None:
    """Unless the change removes all files of the other count."""
    context = make_table(tmp_path / "t")
    old, other = data_file("old"), data_file("other", 20, 29)
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 1, append=FileChanges(added=(old, other)))], ME)
    for gone, fits in (((old,), False), ((old, other), True)):
        removal = CommitMessage(EMPTY_ROW, 0, 1, append=FileChanges(removed=gone))
        change = [removal, CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("new", 40, 49),)))]
        if fits:
            assert Committer(context).commit(change, ME).snapshots[0].id == 2
        else:
            with pytest.raises(FilesConflict, match="the bucket count of"):
                Committer(context).commit(change, ME)


@pytest.mark.parametrize("is_there", [True, False])
def test_files_whose_keys_cannot_be_read_are_damaged_or_expired(tmp_path: Path, is_there: bool) -> None:
    context = make_table(tmp_path / "t")
    for name in ("first.parquet", "theirs.parquet"):
        Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))], ME)
    (tmp_path / "t" / "bucket-0").mkdir()
    for name in ("ours.parquet", "theirs.parquet") if is_there else ():
        (tmp_path / "t" / "bucket-0" / name).write_bytes(b"no parquet")
    by_key = context.with_options({"commit.data-conflict-check": "key"})
    ours = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("ours.parquet"),)), read_snapshot_id=1)
    with pytest.raises(DamagedFile if is_there else DataConflict, match="theirs" if is_there else "has expired"):
        Committer(by_key).commit([ours], ME)
    assert context.snapshots.latest_id() == 2


@pytest.mark.parametrize(("stored", "asked"), [("-2", None), ("-2", "4"), ("4", "-2"), ("4", None), ("4", "2"), ("-1", "4")])
def test_buckets_are_postponed_if_the_table_or_the_job_says_so(tmp_path: Path, stored: str, asked: str | None) -> None:
    """A job that rewrites partitions overrides the option; compactions of others still bring rows into its buckets."""
    context = make_table(tmp_path / "t", {"bucket": stored})
    if asked is not None:
        context = context.with_options({"bucket": asked})
    message = CommitMessage(EMPTY_ROW, 0, 4, append=FileChanges(added=(data_file("mine"),)))
    assert postpones_buckets(context) == meets_distributed_rows(context, [message]) == ("-2" in (stored, asked))
    assert not meets_distributed_rows(context, [replace(message, bucket=-2), replace(message, append=FileChanges())])
