"""Sections and packs by columns are those found one file after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.lsm.sorted_runs import key_sections, pack_starts, section_starts, shares
from paimon_cli.metadata.data_file import DataFileMeta, SimpleStats
from paimon_cli.pieces import PIECES

INT = [parse_type("INT")]


@pytest.mark.parametrize("seed", range(60))
def test_sections_are_those_of_the_plain_way(seed: int) -> None:
    source = random.Random(seed)
    ranges: list[tuple[int, int, int]] = []
    for _ in range(source.choice([0, 1, 2, 60])):
        low = source.randrange(source.choice([5, 200]))
        ranges.append((source.randrange(3), low, low + source.choice([0, 1, 9, 70])))
    order, starts = section_starts(*(np.array([r[i] for r in ranges], dtype=np.int64) for i in range(3)))
    found = [sorted(group.tolist()) for group in np.split(order, np.flatnonzero(starts)[1:])] if ranges else []
    expected = []
    for place in range(3):
        files = [_file(i, low, high) for i, (p, low, high) in enumerate(ranges) if p == place]
        sections = key_sections(files, lambda key: deserialize_row(key, INT))
        expected += [sorted(int(file.file_name) for run in section for file in run.files) for section in sections]
    assert found == expected


def _file(number: int, low: int, high: int) -> DataFileMeta:
    key = [serialize_row([value], INT) for value in (low, high)]
    return DataFileMeta(f"{number}", 1, 1, key[0], key[1], SimpleStats(), SimpleStats(), 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(40))
def test_packs_are_filled_greedily(seed: int) -> None:
    source = random.Random(seed)
    count, limit = source.choice([0, 1, 50]), source.choice([0, 1, 10, 100])
    weights = [source.randrange(20) for _ in range(count)]
    buckets = sorted(source.randrange(4) for _ in range(count))
    expected, filled = [], 0
    for item, (place, weight) in enumerate(zip(buckets, weights, strict=True)):
        if not item or place != buckets[item - 1] or filled + weight > limit:
            expected.append(item)
            filled = 0
        filled += weight
    assert pack_starts(np.array(buckets), np.array(weights, dtype=np.int64), limit).tolist() == expected


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ([], []),
        ([10], [1]),
        ([1] * PIECES.least_shares, [1] * PIECES.least_shares),
        ([1] * 2 * PIECES.least_shares, [2] * PIECES.least_shares),
        ([1] * 8 * PIECES.least_shares, [5] * 51 + [1]),
        ([7, 1, 1, 1, 1, 1, *[5] * 100], [1, 5, *[1] * 100]),
    ],
)
def test_items_share_up_to_the_limit_if_there_are_enough_shares(weights: list[int], sizes: list[int]) -> None:
    found = shares(weights, 0, 5)
    assert [len(share) for share in found] == sizes
    assert [index for share in found for index in share] == list(range(len(weights)))


def test_small_items_count_as_the_least_and_absurd_sizes_do_not_overflow() -> None:
    sizes = [1 << 62, *[1] * 100, 1 << 62]
    assert [len(share) for share in shares(sizes, 10, 25)] == [1, *[2] * 50, 1]
