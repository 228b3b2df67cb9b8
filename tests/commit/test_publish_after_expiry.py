"""A writer that sleeps right after its put, while others commit on top of it and expire its snapshot: it committed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import data_file, live_names, make_table


def message(name: str) -> CommitMessage:
    return CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))


class SleepyStorage(LocalStorage):
    """Lets others work after its put of snapshot 2, and again before it searches for a snapshot for the first time after that."""

    def __init__(self, after_put: Callable[[], None], later: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._after_put = after_put
        self._later: Callable[[], None] | None = None
        self._at_next_look = later

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = super().put_if_absent(path, data)
        if path.endswith("snapshot-2"):
            self._after_put()
            self._later = self._at_next_look
        return outcome

    def read_bytes(self, path: str) -> bytes:
        content = super().read_bytes(path)
        if path.endswith("snapshot-3") and self._later is not None:
            later, self._later = self._later, None
            later()
        return content


def commit_as_others(folder: Path, *names: str) -> None:
    for name in names:
        Committer(make_table(folder)).commit([message(name)], CommitIdentity("others"))


def expire(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / "snapshot" / f"snapshot-{number}").unlink()


def test_all_of_it_expired_before_the_writer_looks(tmp_path: Path) -> None:
    commit_as_others(tmp_path, "before")

    def others() -> None:
        commit_as_others(tmp_path, "after-1", "after-2")
        expire(tmp_path, 1, 2, 3)

    context = make_table(tmp_path, storage=SleepyStorage(others))
    result = Committer(context).commit([message("mine")], CommitIdentity("me"))
    assert [snapshot.id for snapshot in result.snapshots] == [2]
    assert live_names(context) == ["after-1@0", "after-2@0", "before@0", "mine@0"]


@pytest.mark.parametrize("kept", [3, 4])
def test_an_expired_snapshot_whose_put_had_no_clear_answer_is_not_published_again(tmp_path: Path, kept: int) -> None:
    """A second put would succeed, with or without its successor: the writer could not tell whether the first one had."""
    commit_as_others(tmp_path, "before")

    class Unclear(SleepyStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            outcome = super().put_if_absent(path, data)
            return PutOutcome.UNKNOWN if path.endswith("snapshot-2") else outcome

    def others() -> None:
        commit_as_others(tmp_path, "after-1", "after-2")
        retention = Retention(5 - kept, 5 - kept, 0, None)
        assert expire_snapshots(make_table(tmp_path), retention).snapshots == tuple(range(1, kept))

    storage = Unclear(others)
    result = Committer(make_table(tmp_path, storage=storage)).commit([message("mine")], CommitIdentity("me"))
    assert (result.attempts, [snapshot.id for snapshot in result.snapshots]) == (1, [2])
    table = make_table(tmp_path)
    assert sorted(path.name for path in (tmp_path / "snapshot").glob("snapshot-*")) == [f"snapshot-{n}" for n in range(kept, 5)]
    assert live_names(table) == ["after-1@0", "after-2@0", "before@0", "mine@0"]


@pytest.mark.parametrize("expired", [(1, 2, 3), (1,)])
def test_what_is_left_may_hold_nothing_but_our_own_files(tmp_path: Path, expired: tuple[int, ...]) -> None:
    def commit_nothing() -> None:
        forced = make_table(tmp_path, {"commit.force-create-snapshot": "true"})
        Committer(forced).commit([], CommitIdentity("others"))

    def others() -> None:
        commit_nothing()
        commit_nothing()
        expire(tmp_path, *expired)

    commit_nothing()
    context = make_table(tmp_path, {"commit.force-create-snapshot": "true"}, storage=SleepyStorage(others))
    result = Committer(context).commit([message("mine")], CommitIdentity("me"))
    assert [snapshot.id for snapshot in result.snapshots] == [2] and live_names(context) == ["mine@0"]


@pytest.mark.parametrize("own_list_stays", [True, False])
def test_the_successor_expires_while_the_writer_reads_it(tmp_path: Path, own_list_stays: bool) -> None:
    """What remains shows that it was built on ours; the writer still knows its own manifests, even if their list is gone."""
    commit_as_others(tmp_path, "before")
    own: list[str] = []

    def others() -> None:
        own.extend(snapshot.delta_manifest_list for snapshot in make_table(tmp_path).snapshots.newest_first(1))
        commit_as_others(tmp_path, "after-1", "after-2")
        expire(tmp_path, 1)

    def later() -> None:
        newest = make_table(tmp_path).snapshots.get(4)
        expire(tmp_path, 2, 3)
        needed = {newest.base_manifest_list, newest.delta_manifest_list, *(own if own_list_stays else ())}
        for path in (tmp_path / "manifest").glob("manifest-list-*"):
            if path.name not in needed:
                path.unlink()

    context = make_table(tmp_path, storage=SleepyStorage(others, later))
    result = Committer(context).commit([message("mine")], CommitIdentity("me"))
    assert [snapshot.id for snapshot in result.snapshots] == [2]


def test_a_late_snapshot_that_an_expiry_has_removed_is_not_a_success(tmp_path: Path) -> None:
    """Others had used the number, and it had expired, when we put our snapshot; an expiry removed ours before we read it."""
    commit_as_others(tmp_path, "before")

    class LateStorage(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if not path.endswith("snapshot-2"):
                return super().put_if_absent(path, data)
            commit_as_others(tmp_path, "after-1", "after-2", "after-3")
            expire_snapshots(make_table(tmp_path), Retention(1, 1, 0, None))
            outcome = super().put_if_absent(path, data)
            expire_snapshots(make_table(tmp_path), Retention(1, 1, 0, None))
            assert not self.exists(path)
            return outcome

    why = "it no longer exists, expired or removed as dead, and the remaining snapshots do not show its changes"
    with pytest.raises(CommitUnknown, match=f": {why}\nhint: "):
        Committer(make_table(tmp_path, storage=LateStorage())).commit([message("mine")], CommitIdentity("me"))
    assert live_names(make_table(tmp_path)) == ["after-1@0", "after-2@0", "after-3@0", "before@0"]


def test_a_successor_that_does_not_show_our_changes_decides_nothing(tmp_path: Path) -> None:
    """It may have been built on another snapshot with our number, or have rewritten our manifests: the outcome is unknown."""
    commit_as_others(tmp_path, "before")
    ours = tmp_path / "snapshot" / "snapshot-2"

    def others() -> None:
        content = ours.read_bytes()
        ours.unlink()
        commit_as_others(tmp_path, "theirs-2", "theirs-3")
        ours.write_bytes(content)
        expire(tmp_path, 1)

    context = make_table(tmp_path, storage=SleepyStorage(others))
    with pytest.raises(CommitUnknown) as failure:
        Committer(context).commit([message("mine")], CommitIdentity("me", 7))
    error = failure.value
    assert error.what == f"snapshot 2 of {context.url} may or may not have been committed"
    assert error.why == "snapshot 3 was published meanwhile, and whether it contains this commit is not visible"
    assert error.hint.endswith("--user me") and error.details == {
        "snapshot_id": 2,
        "commit_user": "me",
        "commit_identifier": "7",
        "published_snapshots": [],
    }
    assert ours.exists() and len(context.manifests.delta_entries(context.snapshots.get(2))) == 1, "nothing was deleted"


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_successor_whose_manifests_cannot_be_read_decides_nothing(tmp_path: Path, is_damaged: bool) -> None:
    commit_as_others(tmp_path, "before")

    def others() -> None:
        commit_as_others(tmp_path, "after")
        expire(tmp_path, 1)
        base = tmp_path / "manifest" / make_table(tmp_path).snapshots.get(3).base_manifest_list
        if is_damaged:
            base.write_bytes(b"nonsense")
        else:
            base.unlink()

    context = make_table(tmp_path, storage=SleepyStorage(others))
    with pytest.raises(CommitUnknown, match=r"2 of .*: its manifests or the manifests of snapshot 3 cannot be read\nhint: "):
        Committer(context).commit([message("mine")], CommitIdentity("me"))
    assert (tmp_path / "snapshot" / "snapshot-2").exists()
