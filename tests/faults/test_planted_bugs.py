"""A checker that finds nothing must be shown to work: the same runs fail on shipped code with a planted bug."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from paimon_cli.commit import commit_messages, committer, outcome, snapshot_publish
from paimon_cli.commit.deduplication import Deduplication
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.commit.snapshot_publish import Fate
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain import expire_snapshots, named_files, rollback, used_names
from paimon_cli.metadata.data_file import EntryKind
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.storage import PutOutcome, Storage, Verified
from paimon_cli.write.write_plan import WritePlan
from tests.faults.fault_kinds import DELETES, Fault, Kind
from tests.faults.fault_storage import FaultStorage, planned
from tests.faults.operations import OPERATIONS
from tests.faults.runs import memory_runs


class NeverRaised(BaseException):
    """Stands in for an error that the code should have treated apart."""


def hint_alone(history: SnapshotHistory) -> int | None:
    return history._hint(history.layout.latest_hint)


def put_as_a_plain_write(storage: FaultStorage, path: str, data: bytes) -> PutOutcome:
    storage.write_new(path, data)
    return PutOutcome.CREATED


def hint_is_part_of_the_commit(context: TableContext, snapshot: Snapshot) -> None:
    context.storage.overwrite(context.layout.latest_hint, str(snapshot.id).encode())


def failed_look_is_a_refusal(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> Fate:
    return Fate.CONTINUES if context.storage.exists(context.layout.snapshot(snapshot.id - 1)) else Fate.ROLLED_BACK


def created_or_theirs(storage: Storage, path: str, data: bytes, outcome: PutOutcome) -> Verified:
    return Verified.OURS if outcome is PutOutcome.CREATED else Verified.THEIRS


@contextlib.contextmanager
def ignoring_unknown_outcomes() -> Iterator[None]:
    """An unknown outcome is a refusal, and files that a snapshot names are deleted, too."""
    with (
        mock.patch.object(outcome, "CommitUnknown", NeverRaised),
        mock.patch.object(commit_messages, "files_named_since", lambda *_: set()),
    ):
        yield


def files_before_snapshots(context: TableContext, *more: object) -> None:
    """Expiry that deletes files first and snapshots last."""
    delete, snapshots = context.storage.delete, f"{context.layout.snapshot_directory}/snapshot-"
    waiting: list[str] = []
    with mock.patch.object(context.storage, "delete", lambda p: waiting.append(p) if p.startswith(snapshots) else delete(p)):
        EXPIRE(context, *more)  # type: ignore[arg-type]
    for path in waiting:
        delete(path)


EXPIRE = expire_snapshots.expire_snapshots

BUGS: dict[str, tuple[str, Callable[[], contextlib.AbstractContextManager[object]]]] = {
    "files go although the outcome is unknown": (
        "write",  # with the second guard, files that a snapshot names, out of the way
        ignoring_unknown_outcomes,
    ),
    "no check whether the commit was made before": (
        "write",
        lambda: mock.patch.multiple(Deduplication, already_committed=lambda _: False, committed_since_begin=lambda *_: False),
    ),
    "an existing snapshot is always another writer's": (
        "write", lambda: mock.patch.object(snapshot_publish, "what_became", created_or_theirs),
    ),
    "the hint is believed": ("write", lambda: mock.patch.object(SnapshotHistory, "latest_id", hint_alone)),
    "a snapshot is written in place": ("write", lambda: mock.patch.object(FaultStorage, "put_if_absent", put_as_a_plain_write)),
    "files of a refused commit stay": ("write", lambda: mock.patch.object(commit_messages, "delete_created_files", lambda *_: 0)),
    "manifests of a failed commit stay": ("write", lambda: mock.patch.object(MetadataWriter, "discard", lambda *_: None)),
    "a failing hint fails the commit": (
        "write", lambda: mock.patch.object(committer, "write_latest_hint", hint_is_part_of_the_commit),
    ),
    "a failed look at the history is a refusal": (
        "write", lambda: mock.patch.object(snapshot_publish, "_settled", failed_look_is_a_refusal),
    ),
    "sequence numbers begin at 0": ("write", lambda: mock.patch.object(WritePlan, "first_sequence", lambda *_: 0)),
    "the files of a compaction are not checked": (
        "compact-after-compaction", lambda: mock.patch.object(committer, "check_files", lambda *_: None),
    ),
    "expiry deletes files before their snapshots": (
        "expire", lambda: mock.patch("tests.faults.operations.expire_snapshots", files_before_snapshots),
    ),
    "expiry forgets what the oldest snapshot left needs": (
        "expire", lambda: mock.patch.object(expire_snapshots, "metadata_paths", forgetful_metadata_paths),
    ),
    "a roll-back deletes files before its snapshots": (
        "rollback", lambda: mock.patch.object(rollback, "remove_snapshots", after_the_files),
    ),
    "a deleted tag may come back without its files": (
        "rollback", lambda: mock.patch.object(FaultStorage, "sync_directory", lambda *_: None),
    ),
    "a cleaning knows the latest snapshot alone": (
        "orphans", lambda: mock.patch.object(used_names, "_versions", latest_version_alone),
    ),
    "expiry does not ask tags": ("expire", lambda: mock.patch.object(expire_snapshots, "tagged_snapshots", lambda _: [])),
}  # fmt: skip

TAKE_OUT, VERSIONS = rollback.remove_snapshots, used_names._versions


def after_the_files(context: TableContext, snapshots: Sequence[int], target: int) -> None:
    """What the later snapshots brought goes first."""
    for number in snapshots:
        for entry in context.manifests.delta_entries(context.snapshots.get(number)):
            if entry.kind == EntryKind.ADD:
                context.storage.delete(context.data_file_path(entry.partition, entry.bucket, entry.file))
    TAKE_OUT(context, snapshots, target)


def latest_version_alone(context: TableContext) -> Iterator[used_names.VersionFile]:
    newest = context.layout.snapshot(context.snapshots.latest_id() or 0)
    return (version for version in VERSIONS(context) if version.path == newest)


METADATA_PATHS = named_files.metadata_paths


def forgetful_metadata_paths(context: TableContext, snapshot: Snapshot) -> list[str]:
    return [] if snapshot.id == context.snapshots.ids()[-2] else METADATA_PATHS(context, snapshot)


@pytest.mark.in_part(4)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_it_is_found(bug: str, tmp_path: Path) -> None:
    name, plant = BUGS[bug]
    runs = memory_runs(OPERATIONS[name], tmp_path)
    with plant():
        for fault in reversed(list(runs.single_faults())):  # most bugs show at the end of an operation
            runs.try_fault(fault)
            if runs.figures.failures:
                return
    pytest.fail("no check noticed")


def test_a_clean_up_that_hides_the_error_is_found(tmp_path: Path) -> None:
    """A damaged file ends an update; then the first removal of a file fails, too."""

    def failures() -> list[str]:
        runs = memory_runs(OPERATIONS["update"], tmp_path)
        for fault in (fault for fault in runs.single_faults() if fault.kind is Kind.SHORT_READ):
            calls = runs.run(planned([fault]))[0].calls
            removals = [number for number, name in enumerate(calls) if number > fault.call and name in DELETES]
            if removals:
                runs.run(planned([fault, Fault(removals[0], Kind.FAIL_BEFORE)]))
                break
        return runs.figures.failures

    assert failures() == []
    bare = lambda failure=None: contextlib.nullcontext()  # noqa: E731
    with mock.patch("paimon_cli.errors.cleaning_up", bare), mock.patch("paimon_cli.commit.commit_messages.cleaning_up", bare):
        assert "DamagedFile was hidden by FilesLeft" in failures()[0]
