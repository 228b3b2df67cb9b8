"""Copies of files: whole, checked, throttled; within a store by the store itself."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile, StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.file_copy import Copied, FileCopy, FileToCopy, Throttle
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.object_storage import ObjectStorage
from tests.pieces import injected
from tests.storage.s3_proxy import Answer, Fate, S3Proxy
from tests.storage.s3_server import S3Server

pytestmark = pytest.mark.xdist_group("s3")

CONTENT = os.urandom(300_000)


class Waiting(SystemClock):
    """A clock that only moves when it is slept on."""

    def __init__(self) -> None:
        self.millis = 0.0

    def now_millis(self) -> int:
        return int(self.millis)

    def sleep(self, seconds: float) -> None:
        self.millis += seconds * 1000


def local(tmp_path: Path, **settings: object) -> FileCopy:
    (tmp_path / "a/below").mkdir(parents=True, exist_ok=True)
    (tmp_path / "a/below/f").write_bytes(CONTENT)
    roots = (ConfinedStorage(str(tmp_path / "a")), str(tmp_path / "a"), LocalStorage(), str(tmp_path / "b"))
    return FileCopy(*roots, **settings)  # type: ignore[arg-type]


def test_a_local_file(tmp_path: Path) -> None:
    for pieces in (None, 3):
        copy = local(tmp_path, replaces=True)
        if pieces is None:
            assert copy.copy(FileToCopy("below/f", len(CONTENT))) == len(CONTENT)
        else:
            with injected(pieces):
                assert copy.copy(FileToCopy("below/f")) == len(CONTENT)
        assert (tmp_path / "b/below/f").read_bytes() == CONTENT


def test_where_the_kernel_does_not_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    local(tmp_path).copy(FileToCopy("below/f", len(CONTENT)))
    assert (tmp_path / "b/below/f").read_bytes() == CONTENT


def test_a_file_of_another_size_is_damage(tmp_path: Path) -> None:
    copy = local(tmp_path)
    with pytest.raises(DamagedFile, match="the metadata of the table says"):
        copy.copy(FileToCopy("below/f", len(CONTENT) + 1))
    assert not (tmp_path / "b").exists()


def test_a_store_whose_file_ends_before_its_size_has_a_damaged_file(tmp_path: Path) -> None:
    class Remote(MemoryStorage):
        is_remote = True

    source = Remote("a-file-that-ends-early")
    source.write_new("a/f", b"12345")
    copy = FileCopy(source, "a", LocalStorage(), str(tmp_path / "b"))
    assert copy.copy(FileToCopy("f", 5)) == 5
    with pytest.raises(DamagedFile, match="it has 9 bytes, and ends after 5"):
        copy.copy(FileToCopy("f", 9, renamed="other"))


def test_the_beginning_of_a_copy_is_replaced_only_if_it_is_ours(tmp_path: Path) -> None:
    (tmp_path / "b/below").mkdir(parents=True)
    (tmp_path / "b/below/f").write_bytes(CONTENT[:10])
    with pytest.raises(StorageUnavailable):
        local(tmp_path).copy(FileToCopy("below/f", len(CONTENT)))
    assert (tmp_path / "b/below/f").read_bytes() == CONTENT[:10]
    local(tmp_path, replaces=True).copy(FileToCopy("below/f", len(CONTENT)))
    assert (tmp_path / "b/below/f").read_bytes() == CONTENT


def test_missing_files_are_told(tmp_path: Path) -> None:
    done = local(tmp_path).copy_all([FileToCopy("below/f"), FileToCopy("below/gone", 5)])
    assert done == Copied(1, len(CONTENT), ("below/gone",))
    assert sorted(path.name for path in (tmp_path / "b/below").iterdir()) == ["f"]


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    copy = local(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "a/below/f").unlink()
    (tmp_path / "a/below/f").symlink_to(tmp_path / "secret")
    with pytest.raises(DamagedFile, match="outside"):
        copy.copy(FileToCopy("below/f"))


def test_a_throttle_spreads_the_bytes(tmp_path: Path) -> None:
    clock = Waiting()
    throttle = Throttle(100_000, clock)
    local(tmp_path, throttle=throttle).copy(FileToCopy("below/f"))
    assert 1900 <= clock.millis <= 3000
    assert pickle.loads(pickle.dumps(Throttle(7))).piece_of(100) == 7
    assert throttle.shared_by(4).piece_of(10**9) == 25_000


class TestOnS3:
    @pytest.fixture
    def proxy(self, s3_server: S3Server) -> Iterator[S3Proxy]:
        with S3Proxy(s3_server.port) as proxy:
            yield proxy

    @pytest.fixture
    def store(self, s3_server: S3Server, proxy: S3Proxy) -> ObjectStorage:
        return s3_server.storage(proxy.endpoint)

    def test_there_and_back(self, s3_server: S3Server, store: ObjectStorage, tmp_path: Path) -> None:
        bucket = s3_server.new_bucket()
        up = local(tmp_path)
        FileCopy(up.source, up.source_root, store, f"{bucket}/a").copy(FileToCopy("below/f", len(CONTENT)))
        assert store.stored(f"{bucket}/a/below/f")[0] == len(CONTENT)
        FileCopy(store, f"{bucket}/a", LocalStorage(), str(tmp_path / "back")).copy(FileToCopy("below/f", len(CONTENT)))
        assert (tmp_path / "back/below/f").read_bytes() == CONTENT

    def test_within_a_bucket_no_byte_passes_through_here(self, s3_server: S3Server, store: ObjectStorage, proxy: S3Proxy) -> None:
        bucket, other = s3_server.new_bucket(), s3_server.new_bucket()
        store.overwrite(f"{bucket}/a/f", CONTENT)
        proxy.forget()
        FileCopy(store, f"{bucket}/a", store, f"{bucket}/b").copy(FileToCopy("f", len(CONTENT)))
        assert {served.request.method for served in proxy.served} == {"HEAD", "PUT"}
        assert store.read_bytes(f"{bucket}/b/f") == CONTENT
        FileCopy(store, f"{bucket}/a", store, f"{other}/b").copy(FileToCopy("f", len(CONTENT)))
        assert store.read_bytes(f"{other}/b/f") == CONTENT

    def test_a_store_that_does_not_copy(self, s3_server: S3Server, store: ObjectStorage, proxy: S3Proxy) -> None:
        """Or takes the request for that of an empty object, as servers do that do not know its header."""
        bucket = s3_server.new_bucket()
        store.overwrite(f"{bucket}/a/f", CONTENT)
        refused = [Answer(501, "NotImplemented")]
        proxy.rule = lambda request: refused.pop() if refused and request.method == "PUT" else Fate.PASS
        FileCopy(store, f"{bucket}/a", store, f"{bucket}/b").copy(FileToCopy("f", len(CONTENT)))
        assert store.read_bytes(f"{bucket}/b/f") == CONTENT and not refused

    def test_an_upload_that_arrived_otherwise(
        self, s3_server: S3Server, store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The size is the same, and the checksum of the store is not."""
        bucket, up = s3_server.new_bucket(), local(tmp_path)
        put = ObjectStorage.overwrite
        monkeypatch.setattr(ObjectStorage, "overwrite", lambda self, path, data: put(self, path, data[:-1] + b"?"))
        copy = FileCopy(up.source, up.source_root, store, f"{bucket}/a")
        with pytest.raises(StorageUnavailable, match="checksum"):
            copy.copy(FileToCopy("below/f", len(CONTENT)))

    def test_a_store_whose_tags_are_no_checksums(
        self, s3_server: S3Server, store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As of objects that the store encrypts: the content decides."""
        bucket, up = s3_server.new_bucket(), local(tmp_path)
        monkeypatch.setattr(ObjectStorage, "stored", lambda self, path: (len(CONTENT), "0" * 32))
        copy = FileCopy(up.source, up.source_root, store, f"{bucket}/a")
        assert copy.copy(FileToCopy("below/f", len(CONTENT))) == len(CONTENT)

    def test_large_files_go_in_parts(self, s3_server: S3Server, store: ObjectStorage, tmp_path: Path) -> None:
        bucket, up = s3_server.new_bucket(), local(tmp_path)
        content = os.urandom(PIECES.upload_part_bytes + 1000)
        (tmp_path / "a/below/f").write_bytes(content)
        FileCopy(up.source, up.source_root, store, f"{bucket}/a").copy(FileToCopy("below/f", len(content)))
        assert store.read_bytes(f"{bucket}/a/below/f") == content

    def test_what_is_gone_leaves_nothing(self, s3_server: S3Server, store: ObjectStorage, tmp_path: Path, proxy: S3Proxy) -> None:
        bucket = s3_server.new_bucket()
        proxy.rule = lambda request: Fate.PASS
        done = FileCopy(store, f"{bucket}/a", LocalStorage(), str(tmp_path / "b")).copy_all([FileToCopy("gone", 7)])
        assert done.missing == ("gone",) and not list((tmp_path / "b").glob("*"))
