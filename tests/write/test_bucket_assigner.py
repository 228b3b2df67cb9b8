"""Buckets of new keys: as Java's classes choose them, whatever the slices, the tasks and the order of files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paimon_cli.errors import UsageError
from paimon_cli.pieces import PIECES
from paimon_cli.write import bucket_assigner
from paimon_cli.write.bucket_assigner import Assigners, Limits, OpenBuckets, PartitionAssigner, Share, assigner_of
from tests.vectors import load

LINES = load("dynamic_bucket") + load("dynamic_bucket_head")
UNLIMITED = Limits(3, None)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def assigned(given: dict[str, Any]) -> list[int]:
    limits = Limits(given["target_row_num"], None if given["max_buckets"] == -1 else given["max_buckets"])
    files: dict[int, list[int]] = {}
    for key_hash, bucket in given.get("existing", ()):
        files.setdefault(bucket, []).append(key_hash)
    assigner = PartitionAssigner({bucket: ints(*hashes) for bucket, hashes in files.items()}, limits)
    counts = {bucket: len(files[bucket]) for bucket in bucket_assigner._in_order_of_java(files)}
    assigner._open = {0: OpenBuckets(counts, limits, Share(given["assign_id"], given["num_assigners"]))}
    return assigner.assign(ints(*given["hashes"])).tolist()


@pytest.mark.parametrize("slice_rows", [1 << 22, 7])
def test_vectors(monkeypatch: pytest.MonkeyPatch, slice_rows: int) -> None:
    """Beyond `max-buckets` Java draws a bucket, so that only the rows before can be equal, and those of keys that came before."""
    monkeypatch.setattr(PIECES, "assigned_rows", slice_rows)
    equal = drawn = 0
    for line in LINES:
        given, out = line["in"], line["out"]
        if given["what"] == "computeAssigner":
            numbers = (given["num_channels"], given["num_assigners"])
            assert assigner_of(given["partition_hash"], ints(given["key_hash"]), *numbers).tolist() == [out]
            continue
        found = assigned(given)
        if found == out:
            equal += 1
            continue
        assert given["max_buckets"] > 0
        drawn += 1
        owned = {bucket for _, bucket in given.get("existing", ())} | set(out)
        first = next(row for row, pair in enumerate(zip(found, out, strict=True)) if pair[0] != pair[1])
        assert found[:first] == out[:first] and set(found) <= owned
        by_key = dict(zip(given["hashes"], found, strict=True))
        assert found == [by_key[key] for key in given["hashes"]]
    assert (equal, drawn) == (167, 11)


def test_new_keys_fill_what_has_room_and_then_the_lowest_free_number() -> None:
    buckets = OpenBuckets({4: 2, 0: 3, 1: 1}, UNLIMITED)
    assert buckets.choose(ints(*range(9))).tolist() == [4, 1, 1, 2, 2, 2, 3, 3, 3]
    assert buckets.choose(ints(9)).tolist() == [5]
    assert buckets.counts == {4: 3, 0: 3, 1: 3, 2: 3, 3: 3, 5: 1}


def test_assigners_open_buckets_of_their_own() -> None:
    own = [OpenBuckets({0: 1, 1: 1, 5: 3}, UNLIMITED, Share(number, 3)) for number in range(3)]
    found = [buckets.choose(ints(*range(7))).tolist() for buckets in own]
    assert found == [[0, 0, 3, 3, 3, 6, 6], [1, 1, 4, 4, 4, 7, 7], [2, 2, 2, 8, 8, 8, 11]]


def test_several_assigners_in_one_process_do_what_tasks_of_their_own_do() -> None:
    random = np.random.default_rng(3)
    first, second = (random.integers(-500, 500, 600).astype(np.int32) for _ in range(2))
    files = {0: np.unique(first)[:50], 7: np.unique(first)[50:60]}
    limits = Limits(20, 12)
    together = PartitionAssigner(files, limits, Assigners(5, -123))
    batches = [together.assign(first), together.assign(second)]
    made = {bucket: sorted(hashes.tolist()) for bucket, hashes in together.added()}
    for number in range(5):
        alone = PartitionAssigner(files, limits, Assigners(5, -123, number))
        for batch, wanted in zip((first, second), batches, strict=True):
            own = Assigners(5, -123).of(batch) == number
            assert alone.assign(batch[own]).tolist() == wanted[own].tolist()
        for bucket, hashes in alone.added():
            assert sorted(hashes.tolist()) == made.pop(bucket)
    assert made == {}
    assert max(int(batch.max()) for batch in batches) == 11


def test_a_full_partition_takes_new_keys_evenly_and_the_same_each_time() -> None:
    random = np.random.default_rng(5)
    hashes = np.unique(random.integers(-(2**31), 2**31, 30_000).astype(np.int32))
    found = OpenBuckets({}, Limits(10, 3)).choose(hashes)
    again = OpenBuckets({0: 10, 1: 10, 2: 10}, Limits(10, 3)).choose(hashes[30:])
    assert found[30:].tolist() == again.tolist()
    counts = np.bincount(found)
    assert len(counts) == 3 and counts.min() > 0.9 * counts.max()


def test_numbers_of_buckets_end_where_those_of_java_do() -> None:
    buckets = OpenBuckets({}, Limits(1, None))
    assert buckets.choose(np.arange(32_767, dtype=np.int32)).tolist() == [*range(32_767)]
    with pytest.raises(UsageError, match="more than 32,767 buckets"):
        buckets.choose(ints(32_767))


def test_a_key_that_comes_twice_in_a_batch_is_new_once() -> None:
    assigner = PartitionAssigner({}, Limits(2, None))
    assert assigner.assign(ints(9, 5, 9, 9, 7, 5, 1)).tolist() == [0, 0, 0, 0, 1, 0, 1]
    assert assigner.assign(ints(1, 9, 2)).tolist() == [1, 0, 2]
    assert {bucket: hashes.tolist() for bucket, hashes in assigner.added()} == {0: [9, 5], 1: [7, 1], 2: [2]}
    assert assigner.assign(ints()).tolist() == []
