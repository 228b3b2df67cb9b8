"""A missing snapshot is filled in once and whole, whoever else does it, whatever the storage answers, wherever it dies."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown, PaimonError, Refused, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.repair_job import restore_snapshot
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.storage.storage import PutOutcome, Storage
from tests.commit.commit_tables import (
    Crash,
    Fault,
    FaultyStorage,
    LyingStorage,
    data_file,
    live_names,
    make_table,
    manifest_files,
    named_manifest_files,
)
from tests.rivals import RivalStorage

UNKNOWN = PutOutcome.UNKNOWN
PATIENT = {"commit.min-retry-wait": "0 ms"}


def with_gap(folder: Path) -> TableContext:
    """A table of three commits without its second snapshot, whose metadata is gone, too."""
    context = make_table(folder)
    for name in ("a", "b", "c"):
        message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))
        Committer(context).commit([message], CommitIdentity(name))
    Path(context.layout.snapshot(2)).unlink()
    for name in manifest_files(context) - named_manifest_files(make_table(folder)):
        Path(context.layout.manifest(name)).unlink()
    return context


def opened(folder: Path, storage: Storage) -> TableContext:
    return TableContext.open(str(folder), PATIENT, storage=storage)


def check_filled(folder: Path) -> None:
    context = make_table(folder)
    assert [live_names(context, number) for number in (1, 2, 3)] == [["a@0"], ["a@0", "b@0"], ["a@0", "b@0", "c@0"]]
    assert Path(context.layout.latest_hint).read_text() == "3", "what fills a gap is not the newest snapshot"


def test_after_a_lost_race_the_other_snapshot_stands(tmp_path: Path) -> None:
    with_gap(tmp_path)
    rival = RivalStorage(lambda: restore_snapshot(make_table(tmp_path), 2))
    with pytest.raises(StorageUnavailable, match="another process created it meanwhile"):
        restore_snapshot(opened(tmp_path, rival), 2)
    check_filled(tmp_path)
    context = make_table(tmp_path)
    assert manifest_files(context) == named_manifest_files(context), "its own metadata is gone, the other's is not"


@pytest.mark.parametrize("answer", [UNKNOWN, PutOutcome.EXISTS])
def test_an_answer_that_got_lost_fills_it_once(tmp_path: Path, answer: PutOutcome) -> None:
    with_gap(tmp_path)
    storage = LyingStorage([(True, answer)])
    assert restore_snapshot(opened(tmp_path, storage), 2).id == 2 and storage.puts == 1
    check_filled(tmp_path)
    context = make_table(tmp_path)
    assert manifest_files(context) == named_manifest_files(context)


class Unread(LyingStorage):
    """A first put that takes effect without an answer, cannot be read back, and is refused when it is repeated."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if self.puts:
            raise Refused("no permission any more")
        return super().put_if_absent(path, data)

    def read_bytes(self, path: str) -> bytes:
        if self.puts and path.endswith("snapshot-2"):
            raise StorageUnavailable("the line is dead")
        return super().read_bytes(path)


@pytest.mark.parametrize("filled", [False, True])
def test_an_outcome_that_stays_unclear_deletes_nothing(tmp_path: Path, filled: bool) -> None:
    """A put that left nothing is not repeated: below newer snapshots, a number that is free may as well have expired."""
    storage = Unread([(True, UNKNOWN)]) if filled else LyingStorage([(False, UNKNOWN)])
    before = manifest_files(with_gap(tmp_path))
    with pytest.raises(CommitUnknown) as failure:
        restore_snapshot(opened(tmp_path, storage), 2)
    assert failure.value.exit_code == 11
    assert len(manifest_files(make_table(tmp_path)) - before) == 3, "two lists and a manifest, should the snapshot appear"
    assert storage.puts == 1
    if not filled:
        restore_snapshot(make_table(tmp_path), 2)
    check_filled(tmp_path)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_each_call_fails_once_and_a_repeated_repair_ends_well(tmp_path: Path, after: bool, crash: bool) -> None:
    """Also a crash right after the put, before the caller knows of it and any hint is corrected."""
    counting = FaultyStorage()
    with_gap(tmp_path / "whole")
    restore_snapshot(opened(tmp_path / "whole", counting), 2)
    assert counting.calls.count("put_if_absent") == 1 and counting.calls.count("write_new") == 3
    for call, name in enumerate(counting.calls):
        folder = tmp_path / str(call)
        whole = live_names(with_gap(folder))
        storage = FaultyStorage(Fault(call, after, crash))
        with contextlib.suppress(PaimonError, Crash):
            restore_snapshot(opened(folder, storage), 2)
        assert len(storage.calls) > call, "the fault has come"
        context = make_table(folder)
        assert live_names(context) == whole, f"call {call}: {name}"
        assert named_manifest_files(context) <= manifest_files(context), f"call {call}: {name}"
        if context.snapshots.find(2) is None:
            restore_snapshot(context, 2)
        check_filled(folder)
