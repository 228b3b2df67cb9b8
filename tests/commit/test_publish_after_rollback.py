"""A writer that sleeps right before its put, while others roll back what it was built on: its snapshot does not stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown, Refused
from paimon_cli.invariants.check import check_table
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import live_names, make_table, manifest_files
from tests.commit.test_publish_after_expiry import commit_as_others, expire, message


class LateStorage(LocalStorage):
    """Lets others work before its first put of snapshot 4, and after it."""

    def __init__(self, before_put: Callable[[], None], after_put: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._works = [before_put, after_put]

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if not path.endswith("snapshot-4") or not self._works:
            return super().put_if_absent(path, data)
        before, after = self._works
        self._works = []
        before()
        outcome = super().put_if_absent(path, data)
        after()
        return outcome


def back_to_1(folder: Path) -> None:
    context = make_table(folder)
    roll_back(context, plan_rollback(context, rollback_target(context, 1)), delete_files(context))


def commit_late(folder: Path, before_put: Callable[[], None], after_put: Callable[[], None] = lambda: None) -> list[int]:
    """Commit late. Returns the snapshots that the commit made."""
    context = make_table(folder, storage=LateStorage(before_put, after_put))
    return [s.id for s in Committer(context).commit([message("mine")], CommitIdentity("me")).snapshots]


def test_its_predecessor_is_gone(tmp_path: Path) -> None:
    commit_as_others(tmp_path, "one", "two", "three")
    assert commit_late(tmp_path, lambda: back_to_1(tmp_path)) == [2]
    context = make_table(tmp_path)
    assert context.snapshots.ids() == [1, 2] and live_names(context) == ["mine@0", "one@0"]
    assert {v.code for v in check_table(context)} <= {"PV012", "PV023"}, "the data files of these commits are made up"


def test_its_predecessor_is_another_one_now(tmp_path: Path) -> None:
    commit_as_others(tmp_path, "one", "two", "three")

    def others() -> None:
        back_to_1(tmp_path)
        commit_as_others(tmp_path, "other-two", "other-three")

    assert commit_late(tmp_path, others) == [4]
    assert live_names(make_table(tmp_path)) == ["mine@0", "one@0", "other-three@0", "other-two@0"]


def test_another_commit_has_already_built_on_it(tmp_path: Path) -> None:
    commit_as_others(tmp_path, "one", "two", "three")

    def others() -> None:
        back_to_1(tmp_path)
        commit_as_others(tmp_path, "other-two", "other-three")

    why = "the history was rolled back meanwhile, and another commit already builds on this one"
    with pytest.raises(CommitUnknown, match=f": {why}\nhint: "):
        commit_late(tmp_path, others, lambda: commit_as_others(tmp_path, "other-five"))
    assert make_table(tmp_path).snapshots.latest_id() == 5


def test_an_expiry_is_not_a_rollback(tmp_path: Path) -> None:
    commit_as_others(tmp_path, "one", "two", "three")
    assert commit_late(tmp_path, lambda: None, lambda: expire(tmp_path, 1, 2, 3)) == [4]
    assert make_table(tmp_path).snapshots.ids() == [4]


def bring_back(folder: Path, number: int) -> None:
    """Put the snapshot of a slow writer whose number has been used and has expired."""
    content = (folder / "snapshot" / "snapshot-4").read_text().replace('"id" : 4', f'"id" : {number}').replace('"me"', '"slow"')
    (folder / "snapshot" / f"snapshot-{number}").write_text(content)


@pytest.mark.parametrize("expired", [(1, 2, 3), (1, 2)])
def test_an_expired_number_that_a_slow_writer_brings_back_is_not_a_rollback(tmp_path: Path, expired: tuple[int, ...]) -> None:
    """Found by the simulation: the newest snapshot was deleted because the one before it had become another."""
    commit_as_others(tmp_path, "one", "two", "three")

    def expire_and_bring_back() -> None:
        expire(tmp_path, *expired)
        bring_back(tmp_path, 3)
        (tmp_path / "snapshot" / "EARLIEST").write_text(str(expired[-1] + 1))

    if 3 in expired:
        assert commit_late(tmp_path, lambda: None, expire_and_bring_back) == [4]
    else:
        why = "another commit now has number 3, after a rollback or in place of an expired snapshot"
        with pytest.raises(CommitUnknown, match=f": {why}\nhint: "):
            commit_late(tmp_path, lambda: None, expire_and_bring_back)
    assert live_names(make_table(tmp_path)) == ["mine@0", "one@0", "three@0", "two@0"]


def test_an_old_hint_on_a_resurrected_number_is_not_a_rollback(tmp_path: Path) -> None:
    commit_as_others(tmp_path, "one", "two", "three")

    def expire_and_bring_back() -> None:
        expire(tmp_path, 1, 2, 3)
        bring_back(tmp_path, 2)
        (tmp_path / "snapshot" / "EARLIEST").write_text("4")
        (tmp_path / "snapshot" / "LATEST").write_text("2")

    assert commit_late(tmp_path, lambda: None, expire_and_bring_back) == [4]
    assert live_names(make_table(tmp_path)) == ["mine@0", "one@0", "three@0", "two@0"]


def test_a_snapshot_that_may_not_be_deleted_again_keeps_its_manifests(tmp_path: Path) -> None:
    """Its base was rolled back, so that it must go; if the storage refuses that, it is still there: no refusal of the commit."""
    commit_as_others(tmp_path, "one", "two", "three")

    class NoDeletes(LateStorage):
        def delete(self, path: str) -> None:
            if path.endswith("snapshot-4"):
                raise Refused("no permission to delete")
            super().delete(path)

    context = make_table(tmp_path, storage=NoDeletes(lambda: back_to_1(tmp_path)))
    with pytest.raises(CommitUnknown, match="it was published, but then the history could not be read"):
        Committer(context).commit([message("mine")], CommitIdentity("me"))
    left = make_table(tmp_path).snapshots.find(4)
    assert left is not None and left.delta_manifest_list in manifest_files(context)
