"""What a transaction keeps in memory, and which stored files it takes for its own."""

from __future__ import annotations

from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.pending_versions import PendingVersions
from paimon_cli.storage.storage import PutOutcome


def test_a_file_of_another_job_is_not_taken_for_ours() -> None:
    """What it has created is deleted if the transaction fails."""
    store = MemoryStorage("pending")
    store.write_new("t/theirs", b"theirs")
    view = PendingVersions(store, lambda path: path.startswith("t/snapshot/"))
    assert view.put_if_absent("t/theirs", b"ours") is PutOutcome.EXISTS
    assert view.put_if_absent("t/ours", b"ours") is PutOutcome.CREATED
    assert view.put_if_absent("t/snapshot/snapshot-1", b"ours") is PutOutcome.CREATED
    assert view.created == ["t/ours"] and not store.exists("t/snapshot/snapshot-1")


def test_what_others_have_stored_there_meanwhile_is_not_shown() -> None:
    store = MemoryStorage("pending")
    store.write_new("t/snapshot/snapshot-1", b"theirs")
    store.write_new("t/bucket-0/data", b"rows")
    view = PendingVersions(store, lambda path: path.startswith("t/snapshot/"))
    assert view.list_directory("t/snapshot") == [] == view.first_entries("t/snapshot", 9)
    assert [entry.name for entry in view.list_directory("t/bucket-0")] == ["data"]
    view.overwrite("t/snapshot/LATEST", b"2")
    assert [(entry.name, entry.size) for entry in view.list_directory("t/snapshot/")] == [("LATEST", 1)]
    assert [entry.name for entry in store.list_directory("t/snapshot")] == ["snapshot-1"]
