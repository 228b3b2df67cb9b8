"""Every storage call of a commit fails once, before or after its effect, as an error or as a crash: whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.commit.commit_messages import delete_created_files
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown, PaimonError
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from tests.commit.commit_tables import Crash, Fault, FaultyStorage, data_file, live_names, make_table

BEFORE = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("before"),)))
MINE = CommitMessage(
    EMPTY_ROW,
    0,
    2,
    append=FileChanges(added=(data_file("mine"),)),
    compact=FileChanges(removed=(data_file("before"),), added=(data_file("merged", level=5),)),
)
DONE = ["merged@5", "mine@0"]


def commit(folder: Path, fault: Fault | None) -> tuple[FaultyStorage, BaseException | None]:
    """Commit MINE as (job, 1) on top of one snapshot, with a fault."""
    Committer(make_table(folder)).commit([BEFORE], CommitIdentity("other"))
    storage = FaultyStorage()
    context = make_table(folder, storage=storage)
    storage.calls.clear()
    storage.fault = fault
    try:
        Committer(context).commit([MINE], CommitIdentity("job", 1))
    except (PaimonError, Crash) as error:
        return storage, error
    return storage, None


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_each_call_fails_once(tmp_path: Path, after: bool, crash: bool) -> None:
    storage, _ = commit(tmp_path / "whole", None)
    count = len(storage.calls)
    assert storage.calls.count("put_if_absent") == 2 and count > 20
    for call in range(count):
        folder = tmp_path / str(call)
        _, error = commit(folder, Fault(call, after, crash))
        place = f"call {call}: {storage.calls[call]}"
        context = make_table(folder)
        live = live_names(context)
        assert context.snapshots.ids() == list(range(1, len(context.snapshots.ids()) + 1)), place
        assert live in (["before@0"], ["before@0", "mine@0"], DONE), place
        if error is None:
            assert live == DONE, place
        for snapshot in context.snapshots.newest_first():
            counted = sum(entry.file.row_count for entry in context.manifests.live_entries(snapshot))
            assert counted == snapshot.total_record_count, place
        Committer(context).commit(
            [CommitMessage(EMPTY_ROW, 1, 2, append=FileChanges(added=(data_file("next"),)))], CommitIdentity("job", 2)
        )
        assert live_names(context) == sorted([*live, "next@0"]), place


@pytest.mark.parametrize("after", [False, True])
def test_a_repeated_job_ends_with_its_rows_once(tmp_path: Path, after: bool) -> None:
    storage, _ = commit(tmp_path / "whole", None)
    for call in range(len(storage.calls)):
        folder = tmp_path / str(call)
        commit(folder, Fault(call, after, crash=True))
        context = make_table(folder)
        Committer(context).commit(
            [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("mine"),)))], CommitIdentity("job", 1)
        )
        names = [
            entry.file.file_name for entry in context.manifests.live_entries(context.snapshots.get(context.snapshots.ids()[-1]))
        ]
        assert names.count("mine") == 1


def test_an_abort_after_any_error_never_deletes_what_a_snapshot_names(tmp_path: Path) -> None:
    storage, _ = commit(tmp_path / "whole", None)
    for call in range(len(storage.calls)):
        folder = tmp_path / str(call)
        directory = folder / "bucket-0"
        directory.mkdir(parents=True)
        for name in ("before", "mine", "merged"):
            (directory / name).write_text("rows")
        _, error = commit(folder, Fault(call, after=False, crash=False))
        context = make_table(folder)
        if error is not None and not isinstance(error, CommitUnknown):
            delete_created_files(context, [MINE])
        on_disk = {path.name for path in directory.iterdir()}
        assert {name.partition("@")[0] for name in live_names(context)} <= on_disk, storage.calls[call]
        assert "before" in on_disk, "other people's files stay"
