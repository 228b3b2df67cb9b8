"""An abort deletes the files of a failed job and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.commit.commit_messages import compact_changes, delete_created_files, removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown, FilesConflict, Refused, Unpublished
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges, IndexFileMeta
from tests.commit.commit_tables import data_file, make_table

ME = CommitIdentity("me")


def lay_down(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rows")


def left(folder: Path) -> set[str]:
    return {path.name for place in ("bucket-0", "index") for path in (folder / place).glob("*")}


def test_all_files_of_the_messages_are_deleted(tmp_path: Path) -> None:
    context = make_table(tmp_path)
    old = data_file("old")
    message = CommitMessage(
        EMPTY_ROW,
        0,
        2,
        append=FileChanges(
            added=(data_file("new", extra_files=("new.index",)),),
            changelog=(data_file("changelog"),),
            added_indexes=(IndexFileMeta("HASH", "index-1", 4, 1),),
        ),
        compact=FileChanges(removed=(old,), added=(data_file("merged", level=5), old.upgraded(5))),
    )
    lay_down(tmp_path / "bucket-0", "new", "new.index", "changelog", "old", "merged", "stranger")
    lay_down(tmp_path / "index", "index-1", "index-2")
    assert delete_created_files(context, [message]) == 5
    assert left(tmp_path) == {"old", "stranger", "index-2"}


@pytest.mark.parametrize("read_snapshot_id", [None, 1])
def test_a_half_that_was_published_stays(tmp_path: Path, read_snapshot_id: int | None) -> None:
    context = make_table(tmp_path)
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("first"),)))], ME)
    message = CommitMessage(
        EMPTY_ROW,
        0,
        2,
        append=FileChanges(added=(data_file("new"),)),
        compact=FileChanges(removed=(data_file("gone"),), added=(data_file("merged", level=5),)),
        read_snapshot_id=read_snapshot_id,
    )
    lay_down(tmp_path / "bucket-0", "first", "new", "merged")
    with pytest.raises(FilesConflict):
        Committer(context).commit([message], ME)
    delete_created_files(context, [message])
    assert left(tmp_path) == {"first", "new"}


def test_a_published_file_stays_when_its_snapshot_has_expired(tmp_path: Path) -> None:
    context = make_table(tmp_path)
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("new"),)), read_snapshot_id=1)
    for content in (CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("first"),))), message):
        Committer(context).commit([content], ME)
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("last"),)))], ME)
    for number in (1, 2):
        (tmp_path / "snapshot" / f"snapshot-{number}").unlink()
    lay_down(tmp_path / "bucket-0", "first", "new", "last")
    assert delete_created_files(context, [message]) == 0
    assert left(tmp_path) == {"first", "new", "last"}


@pytest.mark.parametrize("expired", [1, 2, 3])
def test_a_file_of_an_expired_snapshot_stays_as_long_as_the_oldest_one_left_has_it(tmp_path: Path, expired: int) -> None:
    context = make_table(tmp_path)
    names = ("a", "b", "c", "d")
    messages = [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),))) for name in names]
    for message in messages:
        Committer(context).commit([message], ME)
    for number in range(1, expired + 1):
        (tmp_path / "snapshot" / f"snapshot-{number}").unlink()
    lay_down(tmp_path / "bucket-0", *names, "never")
    unpublished = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("never"),)))
    assert delete_created_files(context, [*messages, unpublished]) == 1
    assert left(tmp_path) == set(names)


@pytest.mark.parametrize(
    ("failure", "stay"),
    [
        (Refused("no"), False),
        (Unpublished(), False),
        (CommitUnknown("who knows"), True),
        (KeyboardInterrupt(), True),
        (OSError("anything else"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_files_go_only_if_no_snapshot_can_name_them(tmp_path: Path, failure: BaseException, stay: bool) -> None:
    """Also after an interrupt before the publication; not if a snapshot might still appear."""
    context = make_table(tmp_path)
    lay_down(tmp_path / "bucket-0", "new")
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("new"),)))
    with pytest.raises(type(failure)), removed_on_refusal(context, [message]):
        raise failure
    assert left(tmp_path) == ({"new"} if stay else set())


def test_a_compaction_says_what_it_has_read_even_if_that_was_nothing() -> None:
    """Vectors or files that come meanwhile are a conflict for one that has found none, but not for one that looked for none."""
    messages = [
        CommitMessage(EMPTY_ROW, 0, 4, read_index_files=(), read_upper_files=()),
        CommitMessage(EMPTY_ROW, 1, 4),
        CommitMessage(EMPTY_ROW, 2, 4, read_index_files=("v",), read_upper_files=("a", "b")),
    ]
    changes = compact_changes(messages)
    assert changes.read_vectors == (((EMPTY_ROW, 0), ()), ((EMPTY_ROW, 2), ("v",)))
    assert changes.read_upper_files == (((EMPTY_ROW, 0), ()), ((EMPTY_ROW, 2), ("a", "b")))
