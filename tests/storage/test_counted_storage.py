"""What `-v` counts: requests of this process by kind, and nothing while nobody counts."""

from __future__ import annotations

from pathlib import Path

from paimon_cli.storage.counted_storage import DELETIONS, LISTINGS, READS, WRITES, CountedStorage, counting_requests
from paimon_cli.storage.storage_for_url import storage_for_url


def test_requests_are_counted_by_kind(tmp_path: Path) -> None:
    with counting_requests() as counts:
        storage, root = storage_for_url(str(tmp_path))
        storage.write_new(f"{root}/a", b"1")
        storage.overwrite(f"{root}/a", b"2")
        assert storage.read_bytes(f"{root}/a") == b"2" and storage.exists(f"{root}/a")
        with storage.open_input(f"{root}/a") as stream:
            assert stream.read() == b"2"
        storage.list_directory(root)
        storage.delete(f"{root}/a")
    assert (counts[READS], counts[WRITES], counts[LISTINGS], counts[DELETIONS]) == (2, 2, 1, 1)


def test_a_storage_is_wrapped_only_while_something_counts(tmp_path: Path) -> None:
    assert not isinstance(storage_for_url(str(tmp_path))[0], CountedStorage)
    with counting_requests() as outer, counting_requests() as inner:
        storage, root = storage_for_url(str(tmp_path), confined=True)
        storage.list_directory(root)
    assert (inner[LISTINGS], outer[LISTINGS]) == (1, 1)
    storage.list_directory(root)
    assert inner[LISTINGS] == 1, "nothing counts any more"
    assert not isinstance(storage_for_url(str(tmp_path))[0], CountedStorage)
