"""Which writer won, if responses are lost, late or false."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.snapshot_publish import rewrite_snapshot
from paimon_cli.errors import CommitUnknown, Refused, StorageUnavailable
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import LyingStorage, data_file, live_names, make_table, manifest_files, named_manifest_files

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
ME = CommitIdentity("me")


def message(name: str) -> CommitMessage:
    return CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))


@pytest.mark.parametrize("answer", [EXISTS, UNKNOWN])
def test_a_put_that_succeeds_but_reports_otherwise_is_committed_once(tmp_path: Path, answer: PutOutcome) -> None:
    context = make_table(tmp_path / "t", storage=LyingStorage([(True, answer)]))
    result = Committer(context).commit([message("a")], ME)
    assert (result.attempts, [s.id for s in result.snapshots]) == (1, [1])
    assert context.snapshots.ids() == [1]


def test_an_unclear_put_without_effect_is_repeated_with_the_same_content(tmp_path: Path) -> None:
    storage = LyingStorage([(False, UNKNOWN), (False, UNKNOWN)])
    context = make_table(tmp_path / "t", storage=storage)
    result = Committer(context).commit([message("a")], ME)
    assert (result.attempts, storage.puts) == (1, 3)
    assert live_names(context) == ["a@0"]
    assert manifest_files(context) == named_manifest_files(context)


def test_an_outcome_that_stays_unclear_deletes_nothing(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", storage=LyingStorage([(False, UNKNOWN)] * 99))
    with pytest.raises(CommitUnknown) as failure:
        Committer(context).commit([message("a")], ME)
    assert failure.value.exit_code == 11 and failure.value.details["snapshot_id"] == 1
    assert len(manifest_files(context)) == 3, "base list, delta list and manifest are still there, should the snapshot appear"


def test_a_snapshot_of_another_job_after_an_unclear_answer_is_a_lost_race(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t")

    class Storage(LyingStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if self.puts == 0:
                Committer(rival).commit([message("theirs")], CommitIdentity("rival"))
            return super().put_if_absent(path, data)

    context = make_table(tmp_path / "t", storage=Storage([(False, UNKNOWN)]))
    result = Committer(context).commit([message("mine")], ME)
    assert (result.attempts, result.snapshots[0].id) == (2, 2)
    assert live_names(context) == ["mine@0", "theirs@0"]


def test_a_number_that_others_used_and_expired_is_not_revived(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t")

    class SlowStorage(LocalStorage):
        """A storage on which others, between the check and the put, publish three snapshots and expire the first two."""

        slept = False

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if not self.slept:
                self.slept = True
                for number in range(3):
                    Committer(rival).commit([message(f"theirs-{number}")], CommitIdentity("rival"))
                for number in (1, 2):
                    (tmp_path / "t" / "snapshot" / f"snapshot-{number}").unlink()
            return super().put_if_absent(path, data)

    context = make_table(tmp_path / "t", storage=SlowStorage())
    result = Committer(context).commit([message("mine")], ME)
    assert (result.attempts, result.snapshots[0].id) == (2, 4)
    assert context.snapshots.ids() == [3, 4]
    assert live_names(context) == ["mine@0", "theirs-0@0", "theirs-1@0", "theirs-2@0"]


def test_a_snapshot_followed_and_expired_around_at_once_still_counts(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t")
    Committer(rival).commit([message("before")], CommitIdentity("rival"))

    class FastRivals(LocalStorage):
        """Right after our put, another job commits on top of it and expires its predecessor."""

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            outcome = super().put_if_absent(path, data)
            Committer(rival).commit([message("after")], CommitIdentity("rival"))
            (tmp_path / "t" / "snapshot" / "snapshot-1").unlink()
            return outcome

    context = make_table(tmp_path / "t", storage=FastRivals())
    result = Committer(context).commit([message("mine")], ME)
    assert (result.attempts, result.snapshots[0].id) == (1, 2)
    assert live_names(context) == ["after@0", "before@0", "mine@0"]


def test_a_failing_hint_does_not_fail_the_commit(tmp_path: Path) -> None:
    class NoHints(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            raise StorageUnavailable("no hint today")

    context = make_table(tmp_path / "t", storage=NoHints())
    assert Committer(context).commit([message("a")], ME).snapshots[0].id == 1
    assert Committer(context).commit([message("b")], ME).snapshots[0].id == 2
    assert not (tmp_path / "t" / "snapshot" / "LATEST").exists()


def test_a_storage_without_safe_commits_is_left_as_it_was(tmp_path: Path) -> None:
    class Unsafe(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            raise Refused("no safe commit here")

    context = make_table(tmp_path / "t", storage=Unsafe())
    with pytest.raises(Refused):
        Committer(context).commit([message("a")], ME)
    assert manifest_files(context) == set()


class Failing(LyingStorage):
    """A scripted storage that becomes unavailable at the call with this name about snapshots, from the second put on."""

    def __init__(self, script: list[tuple[bool, PutOutcome]], call: str, puts: int) -> None:
        super().__init__(script)
        self.call, self.allowed = call, puts

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if self.call == "put" and self.puts == self.allowed:
            raise StorageUnavailable("the line is dead")
        return super().put_if_absent(path, data)

    def read_bytes(self, path: str) -> bytes:
        if self.call == "read" and self.puts > self.allowed and "/snapshot-" in path:
            raise StorageUnavailable("the line is dead")
        return super().read_bytes(path)


def test_a_storage_that_fails_before_an_answer_was_unclear_has_published_nothing(tmp_path: Path) -> None:
    make_table(tmp_path / "t")
    context = make_table(tmp_path / "t", storage=Failing([], "put", 0))
    with pytest.raises(StorageUnavailable, match="the line is dead"):
        Committer(context).commit([message("a")], ME)
    assert manifest_files(context) == set(), "so what was written for it is gone"


def test_a_storage_that_fails_after_an_unclear_answer_may_have_published(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", storage=Failing([(False, UNKNOWN)], "put", 1))
    with pytest.raises(CommitUnknown) as failure:
        Committer(context).commit([message("a")], ME)
    assert failure.value.why == "after a put without a clear answer the storage failed: the line is dead"
    assert len(manifest_files(context)) == 3


def test_a_storage_that_fails_while_the_history_is_read(tmp_path: Path) -> None:
    Committer(make_table(tmp_path / "t")).commit([message("before")], ME)
    context = make_table(tmp_path / "t", storage=Failing([], "read", 0))
    with pytest.raises(CommitUnknown) as failure:
        Committer(context).commit([message("a")], ME)
    assert failure.value.why == "it was published, but then the storage failed: the line is dead"
    assert live_names(make_table(tmp_path / "t")) == ["a@0", "before@0"], "here it was"


def test_a_number_that_expired_after_an_unclear_answer_may_have_been_ours(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t")

    class Late(LyingStorage):
        """Before the second put, others publish three snapshots and expire the first two."""

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if self.puts == 1:
                for number in range(3):
                    Committer(rival).commit([message(f"theirs-{number}")], CommitIdentity("rival"))
                for number in (1, 2):
                    (tmp_path / "t" / "snapshot" / f"snapshot-{number}").unlink()
            return super().put_if_absent(path, data)

    context = make_table(tmp_path / "t", storage=Late([(False, UNKNOWN)]))
    with pytest.raises(CommitUnknown, match=r"its number has expired since the first attempt\nhint: "):
        Committer(context).commit([message("mine")], ME)


class RefusedLater(LyingStorage):
    """The first put takes effect without an answer and cannot be read back; a second one is refused."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if self.puts:
            raise Refused("no permission any more")
        return super().put_if_absent(path, data)

    def read_bytes(self, path: str) -> bytes:
        if self.puts and "/snapshot-" in path:
            raise StorageUnavailable("the line is dead")
        return super().read_bytes(path)


def test_a_refusal_after_an_unanswered_put_deletes_nothing(tmp_path: Path) -> None:
    """The refusal is that of the second put: the first one has published the snapshot, whose manifests must stay."""
    context = make_table(tmp_path / "t", storage=RefusedLater([(True, UNKNOWN)]))
    with pytest.raises(CommitUnknown) as failure:
        Committer(context).commit([message("a")], ME)
    assert failure.value.why == "after a put without a clear answer the storage failed: no permission any more"
    assert live_names(make_table(tmp_path / "t")) == ["a@0"]


def test_a_history_that_cannot_be_read_after_the_put_is_no_refusal(tmp_path: Path) -> None:
    """Another job has built on the snapshot, and the predecessor has expired: the successor tells what became of it, if it is
    readable."""
    rival = make_table(tmp_path / "t")
    Committer(rival).commit([message("before")], CommitIdentity("rival"))
    newer = tmp_path / "t" / "snapshot" / "snapshot-3"

    class Damaging(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            outcome = super().put_if_absent(path, data)
            Committer(rival).commit([message("after")], CommitIdentity("rival"))
            (tmp_path / "t" / "snapshot" / "snapshot-1").unlink()
            self.sound = newer.read_bytes()
            newer.write_bytes(b"{")
            return outcome

    storage = Damaging()
    with pytest.raises(CommitUnknown, match="it was published, but then the history could not be read"):
        Committer(make_table(tmp_path / "t", storage=storage)).commit([message("mine")], ME)
    newer.write_bytes(storage.sound)
    assert live_names(make_table(tmp_path / "t")) == ["after@0", "before@0", "mine@0"]


def test_a_snapshot_is_rewritten_only_as_it_was_read_and_below_another(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    for name in ("a", "b"):
        Committer(context).commit([message(name)], ME)
    path = Path(context.layout.snapshot(1))
    before = path.read_bytes()
    rewritten = partial(rewrite_snapshot, context.storage, context.layout, 1)
    assert not rewritten(b"what another job has replaced", b"new") and path.read_bytes() == before
    assert rewritten(before, b"new") and path.read_bytes() == b"new"
    Path(context.layout.snapshot(2)).unlink()
    assert not rewritten(b"new", b"newer") and not path.exists(), "both had expired"
    assert not rewritten(b"new", b"newer")
