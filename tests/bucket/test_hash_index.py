"""The packed hash index beside a dictionary, and its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paimon_cli.bucket import hash_index
from paimon_cli.bucket.hash_index import NOWHERE, HashBuckets, HashIndexes, PackedIndex, read_key_hashes, write_key_hashes
from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import HASH, BucketId, IndexFileMeta
from paimon_cli.metadata.index_files import decode_key_hashes, encode_key_hashes
from paimon_cli.pieces import PIECES
from tests.tables import make_table

EMPTY = bytes(12)


def test_a_file_holds_big_endian_hashes_and_nothing_else() -> None:
    hashes = np.array([1, -2, 2**31 - 1, -(2**31)], np.int32)
    content = encode_key_hashes(hashes)
    assert content.hex() == "00000001" + "fffffffe" + "7fffffff" + "80000000"
    assert decode_key_hashes(content, "i").tolist() == hashes.tolist()
    assert decode_key_hashes(b"", "i").tolist() == []
    with pytest.raises(DamagedFile, match="3 bytes"):
        decode_key_hashes(content[:3], "i")


def test_files_are_written_and_read(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-1)
    hashes = np.array([5, -7], np.int32)
    meta = write_key_hashes(context, BucketId(EMPTY, 3), hashes, "00112233445566aa")
    assert (meta.index_type, meta.file_size, meta.row_count) == (HASH, 8, 2)
    assert meta.file_name.startswith("index-00112233-4455-66aa-") and (tmp_path / "t/index" / meta.file_name).stat().st_size == 8
    assert read_key_hashes(context, meta).tolist() == [5, -7]
    with pytest.raises(DamagedFile, match="2 hashes, but its metadata says 3"):
        read_key_hashes(context, IndexFileMeta(HASH, meta.file_name, 8, 3))
    with pytest.raises(DamagedFile, match="is missing"):
        read_key_hashes(context, IndexFileMeta(HASH, "index-none", 8, 2))


def found(index: PackedIndex, wanted: np.ndarray) -> list[int]:
    """The buckets of ascending hashes; every portion keeps equal hashes together."""
    packed = (wanted.astype(np.uint64) << np.uint64(32)) | np.uint64(7)
    buckets: list[int] = []
    last = -1
    for begin, hashes, numbers in index.find(packed):
        assert begin == len(buckets) and int(hashes[0]) > last
        assert hashes.tolist() == wanted[begin : begin + len(hashes)].tolist()
        last = int(hashes[-1])
        packed[begin : begin + len(hashes)] = 0
        buckets += numbers.tolist()
    return buckets


@pytest.mark.parametrize("span", [1 << 32, 1 << 18, 40], ids=["uniform", "dense", "few cells"])
@pytest.mark.parametrize("batches", [1, 9])
def test_it_finds_what_a_dictionary_finds(monkeypatch: pytest.MonkeyPatch, span: int, batches: int) -> None:
    monkeypatch.setattr(hash_index, "_LINEAR_STEPS", 3)
    monkeypatch.setattr(PIECES, "hash_block_rows", 64)
    random = np.random.default_rng(span + batches)
    known: dict[int, int] = {}
    index = PackedIndex()
    for _ in range(batches):
        new = np.setdiff1d(random.integers(0, span, 300, np.uint32), np.array([*known], np.uint32))
        buckets = random.integers(0, 32_767, len(new)).astype(np.uint16)
        index.add(new, buckets)
        known |= dict(zip(new.tolist(), buckets.tolist(), strict=True))
        wanted = np.sort(np.concatenate([new, random.integers(0, span, 200, np.uint32), np.array([0, 2**32 - 1], np.uint32)]))
        assert found(index, wanted) == [known.get(key, NOWHERE) for key in wanted.tolist()]
    assert len(index) == len(known)


def test_hashes_are_found_by_laying_the_index_out(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(7)
    pieces = [(random.integers(-(2**31), 2**31, 400_000, np.int32), bucket) for bucket in range(3)]
    index = PackedIndex(pieces)
    index.add(np.array([5, 2**32 - 1], np.uint32), np.array([8, 9], np.uint16))
    every = np.concatenate([hashes for hashes, _ in pieces]).view(np.uint32)
    edges = np.array([0, 5, 5, (1 << 20) - 1, 1 << 20, 2**32 - 1], np.uint32)
    wanted = np.sort(np.concatenate([every[::5], random.integers(0, 2**32, 100_000, np.uint32), edges]))
    assert 1 << 20 <= len(index) < 16 * len(wanted)
    assert found(index, wanted) == index.look_up(wanted).tolist()
    assert sum(bucket != NOWHERE for bucket in found(index, wanted)) >= len(every) // 5
    assert index.nbytes <= 8 * len(index)


def test_a_hash_of_two_buckets_belongs_to_the_later_one() -> None:
    index = PackedIndex([(np.array([4, 5], np.int32), 2), (np.array([5, 6], np.int32), 7)])
    assert index.look_up(np.array([4, 5, 6, 7], np.uint32)).tolist() == [2, 7, 7, NOWHERE]
    assert len(index) == 3


@pytest.mark.parametrize("span", [1 << 32, 1 << 31, 1 << 18, 40], ids=["uniform", "lower half", "dense", "few"])
@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_pieces_are_merged_by_range_as_a_dictionary_would(monkeypatch: pytest.MonkeyPatch, span: int, count: int) -> None:
    monkeypatch.setattr(PIECES, "hashes_per_range", 0)
    random = np.random.default_rng(span + count)
    pieces = [(random.integers(0, span, 300, np.uint32).view(np.int32), 500 * number) for number in range(count)]
    known = {key: bucket for hashes, bucket in pieces for key in hashes.view(np.uint32).tolist()}
    (part,) = PackedIndex([*pieces, (np.array([], np.int32), 32_766)])._parts
    assert dict(zip(part.hashes.tolist(), part.buckets.tolist(), strict=True)) == known
    assert part.hashes.tolist() == sorted(known)


def test_many_pieces_are_merged_at_once() -> None:
    pieces = [(np.arange(bucket, 600_000, 3_000, dtype=np.int32), bucket) for bucket in range(3_000)]
    index = PackedIndex(pieces)
    assert len(index) == 600_000
    assert index.look_up(np.array([0, 2_999, 3_001, 600_000], np.uint32)).tolist() == [0, 2_999, 1, NOWHERE]


def test_without_hashes_there_is_no_index() -> None:
    index = PackedIndex([(np.array([], np.int32), 0)])
    assert (len(index), index.nbytes) == (0, 0)
    assert index.look_up(np.array([1], np.uint32)).tolist() == [NOWHERE]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_each_bucket_with_rows_has_an_index(tmp_path: Path, lost: int) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-1)
    files = {number: IndexFileMeta(HASH, f"index-{number}", 4, 1) for number in range(3) if number != lost}
    buckets = HashIndexes.at(context, None, {BucketId(EMPTY, number): -1 for number in range(3)}).with_rows
    with pytest.raises(DamagedFile, match=f"bucket-{lost} has rows but no hash index"):
        HashIndexes({EMPTY: files}, buckets).of(context, EMPTY)


def test_a_cell_may_span_two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "hash_block_rows", 1)
    hashes = np.sort(np.random.default_rng(3).choice(1 << 20, 200, replace=False)).astype(np.uint32) << np.uint32(12)
    index = PackedIndex([(hashes.view(np.int32).copy(), 5)])
    assert index.look_up(hashes).tolist() == [5] * 200
    assert index.look_up(hashes + np.uint32(1)).tolist() == [NOWHERE] * 200


def test_what_is_laid_out_of_one_range_is_not_found_in_the_next() -> None:
    """Of no part of the index."""
    index = PackedIndex([(np.array([7, 9], np.int32), 1)])
    index._parts.append(HashBuckets(np.array([8], np.uint32), np.array([2], np.uint16)))
    ranges = np.arange(3, dtype=np.uint64) << np.uint64(hash_index._RANGE_BITS)
    wanted = (ranges[:, None] + np.array([7, 8, 9], np.uint64)).ravel()
    found = [number for *_, buckets in index._found_in_table(wanted << np.uint64(32)) for number in buckets.tolist()]
    assert found == [1, 2, 1] + [NOWHERE] * 6
