"""Files of deletion vectors, byte for byte as Java writes them."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import DeletionVectorRange
from paimon_cli.metadata.index_files import DeletionVector, decode_deletion_vector, encode_deletion_vectors
from tests.vectors import load


def vector_of(given: list[Any], *, bitmap64: bool) -> DeletionVector:
    """A vector of numbers and [from, to) pairs."""
    parts = [np.arange(*one) if isinstance(one, list) else np.array([one]) for one in given]
    return DeletionVector.marking(np.unique(np.concatenate([np.empty(0, np.int64), *parts])), bitmap64=bitmap64)


def entry_of(vector: DeletionVector) -> tuple[bytes, DeletionVectorRange]:
    ((content, (listed,)),) = encode_deletion_vectors({"data-0.parquet": vector})
    assert content[:1] == b"\x01" and listed.offset == 1
    return content[1:], listed


@pytest.mark.parametrize("name", ["deletion_vector", "deletion_vector_head"])
def test_vectors_are_encoded_as_java_does(name: str) -> None:
    seen = 0
    for line in load(name):
        asked, out = line["in"], line["out"]
        if "positions" not in asked:
            continue
        entry, listed = entry_of(vector_of(asked["positions"], bitmap64=asked["bitmap64"]))
        assert listed.cardinality == out["cardinality"]
        if "vector" in out:
            assert entry[4:-4].hex() == out["vector"]
        else:
            assert (entry.hex(), listed.length) == (out["entry"], out["length"])
        seen += 1
    assert seen > 20


def test_index_files_roll_where_java_rolls_them() -> None:
    rolled = 0
    for line in load("deletion_vector"):
        asked, out = line["in"], line["out"]
        if "vectors" not in asked:
            continue
        named = {name: vector_of(given, bitmap64=asked["bitmap64"]) for name, given in asked["vectors"]}
        found = [
            {"file": content.hex(), "ranges": [[r.data_file_name, r.offset, r.length] for r in ranges]}
            for content, ranges in encode_deletion_vectors(named, asked.get("target_size"))
        ]
        assert found == [{"file": one["file"], "ranges": one["ranges"]} for one in out["files"]]
        rolled += len(found) > 1
    assert rolled


@pytest.mark.parametrize("bitmap64", [False, True])
def test_what_is_encoded_is_decoded_again(bitmap64: bool) -> None:
    chance = np.random.default_rng(5)
    named = {
        f"data-{number}.parquet": vector_of(np.unique(chance.integers(0, 1 << 20, 1 << number)).tolist(), bitmap64=bitmap64)
        for number in range(12)
    }
    ((content, ranges),) = encode_deletion_vectors(named)
    for listed in ranges:
        found = decode_deletion_vector(content, listed.offset, listed.length, "index-1")
        assert found == named[listed.data_file_name] and len(found.positions) == listed.cardinality


def test_gaps_between_upper_halves_get_empty_bitmaps() -> None:
    """Java's form counts the bitmaps from 0 on."""
    far = DeletionVector.marking(np.array([7, 3 << 32], dtype=np.uint64), bitmap64=True)
    entry, listed = entry_of(far)
    assert int.from_bytes(entry[8:16], "little") == 4
    assert decode_deletion_vector(b"\x01" + entry, 1, listed.length, "index-1") == far


@pytest.mark.parametrize("kind", [BitMap, BitMap64])
def test_a_vector_of_many_positions_in_few_bytes_takes_no_more_memory_than_the_rows_asked_for(kind: Any) -> None:
    vector = DeletionVector(kind(range(7, 1 << 27)))
    tracemalloc.start()
    live = vector.live_rows(100, 0)
    later = vector.live_rows(100, (1 << 27) - 50)
    marked = vector.marks(np.array([-1, 1 << 40, 6, 7, (1 << 27) - 1, 1 << 27, 7]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert live.tolist() == [True] * 7 + [False] * 93 and later.tolist() == [False] * 50 + [True] * 50
    assert marked.tolist() == [False, False, False, True, True, False, True]
    assert peak < 1 << 20


@pytest.mark.parametrize("bitmap64", [False, True])
def test_a_bitmap_that_is_cut_anywhere_is_damage_even_if_its_length_and_checksum_are_right(bitmap64: bool) -> None:
    entry, _ = entry_of(vector_of([1, 2, 3, 70_000], bitmap64=bitmap64))
    magic, whole = entry[4:8], entry[8:-4]
    for length in range(len(whole)):
        body = magic + whole[:length]
        cut = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        with pytest.raises(DamagedFile, match="the bitmap at byte 1 cannot be read"):
            decode_deletion_vector(b"\x01" + cut, 1, len(body) + (8 if bitmap64 else 0), "index-1")


@pytest.mark.parametrize("bitmap64", [False, True])
@pytest.mark.parametrize("more", [-1, 1, 1000])
def test_a_vector_of_another_length_than_its_manifest_says_is_damage(bitmap64: bool, more: int) -> None:
    ((content, (listed,)),) = encode_deletion_vectors({"a": DeletionVector.marking(np.arange(5), bitmap64=bitmap64)})
    assert decode_deletion_vector(content, listed.offset, listed.length, "index-1").positions == listed_positions(bitmap64)
    with pytest.raises(DamagedFile, match=f"instead of {listed.length + more}, or is cut off"):
        decode_deletion_vector(content, listed.offset, listed.length + more, "index-1")


def listed_positions(bitmap64: bool) -> Any:
    return DeletionVector.marking(np.arange(5), bitmap64=bitmap64).positions
