"""Entries of one partition in their two forms, which numbers of buckets are alive by samples, and where files lie."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paimon_cli.commit.metadata_writer import MetadataWriter
from paimon_cli.history import partition_entries
from paimon_cli.history.live_columns import placed_columns
from paimon_cli.history.live_places import _DeadByBucket, _live_totals
from paimon_cli.history.partition_entries import BucketEntries, FewEntries, ManyEntries
from paimon_cli.metadata.data_file import ADD, DELETE, EMPTY_ROW, ManifestEntry
from tests.commit.commit_tables import data_file, make_table, partition


def some_entries(dice: random.Random, count: int) -> list[ManifestEntry]:
    return [
        ManifestEntry(
            dice.choice([ADD, ADD, DELETE]),
            EMPTY_ROW,
            dice.randrange(3),
            dice.choice([2, 4]),
            data_file(f"f{dice.randrange(40)}"),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("most_made", [0, 3, 5000])
@pytest.mark.parametrize("seed", range(25))
def test_columns_of_a_partition_say_what_its_entries_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most_made: int
) -> None:
    dice = random.Random(seed)
    most = dice.choice([1, 2, 3, 16])
    monkeypatch.setattr(partition_entries, "_SAMPLE", most)
    monkeypatch.setattr(partition_entries, "_MOST_MADE", most_made)
    context = make_table(tmp_path)
    entries = some_entries(dice, dice.randint(1, 14))
    metas = MetadataWriter(context).manifests(entries)
    (columns,) = placed_columns(context.manifests.columns(metas), None).by_partition().values()
    few, many = FewEntries(entries), ManyEntries(columns)
    assert set(few.totals) == set(many.totals) == {entry.total_buckets for entry in entries if entry.kind == ADD}
    added = [entry for entry in entries if entry.kind == ADD]
    assert few.newest_total == many.newest_total == (added[-1].total_buckets if added else None)
    for _ in range(2):
        for bucket in dice.sample(range(4), 4):
            here = [entry for entry in entries if entry.bucket == bucket]
            gone = frozenset(entry.identity for entry in here if entry.kind == DELETE)
            for form in (few, many):
                found = form.in_bucket(bucket)
                assert (list(found.added), found.deleted) == ([entry for entry in here if entry.kind == ADD], gone)
        for total in {entry.total_buckets for entry in added}:
            all_of_it = [entry for entry in added if entry.total_buckets == total]
            assert few.sample(total) == (all_of_it, True)
            sample, is_all = many.sample(total)
            assert is_all == (len(all_of_it) <= most) == (len(sample) == len(all_of_it))
            assert 0 < len(sample) <= most and [entry for entry in all_of_it if entry in sample] == list(sample)
            assert sample[0] == all_of_it[0]
    made = sum(len(known.added) + len(known.deleted) for known in many._made.values())
    assert made <= most_made + len(entries) and (most_made < 5000 or set(many._made) == {0, 1, 2, 3})


@dataclass
class Part:
    """A part of a partition whose samples are cut short."""

    entries: Sequence[ManifestEntry]
    shown: int

    def in_bucket(self, bucket: int) -> BucketEntries:
        return BucketEntries.of(entry for entry in self.entries if entry.bucket == bucket)

    @property
    def totals(self) -> set[int]:
        return {entry.total_buckets for entry in self.entries if entry.kind == ADD}

    def sample(self, total: int) -> tuple[Sequence[ManifestEntry], bool]:
        found = [entry for entry in self.entries if entry.kind == ADD and entry.total_buckets == total]
        return found[: self.shown], len(found) <= self.shown

    @property
    def newest_total(self) -> int | None:
        raise AssertionError("nobody asks")


@pytest.mark.parametrize("seed", range(120))
def test_samples_tell_what_lives_or_say_that_they_do_not(seed: int) -> None:
    dice = random.Random(seed)
    parts = [Part(some_entries(dice, dice.randint(0, 6)), dice.choice([1, 2, 9])) for _ in range(dice.randint(0, 3))]
    gone = {entry.identity for part in parts for entry in part.entries if entry.kind == DELETE}
    alive = {entry.total_buckets for part in parts for entry in part.entries if entry.kind == ADD and entry.identity not in gone}
    seen, hidden = set(), set()
    for part in parts:
        for total in part.totals:
            sample, is_all = part.sample(total)
            if any(entry.identity not in gone for entry in sample):
                seen.add(total)
            elif not is_all:
                hidden.add(total)
    found = _live_totals(parts, _DeadByBucket(parts))
    assert found == (seen if hidden <= seen else None)
    assert found is None or found == alive


@pytest.mark.parametrize(
    ("given", "directory"),
    [(None, ""), ("", ""), ("/", ""), ("data", "data/"), ("/data/", "data/"), ("//a/b//", "a/b/"), (" x ", " x /")],
)
def test_where_files_lie(tmp_path: Path, given: str | None, directory: str) -> None:
    context = make_table(tmp_path / "t", partitioned=True)
    if given is not None:
        context = replace(context, options=context.options.with_overrides({"data-file.path-directory": given}))
    day = partition("2024-01-01")
    assert context.bucket_directory(day, 3) == f"{context.url}/{directory}dt=2024-01-01/bucket-3"
    assert context.data_file_path_of(day, 3, "f") == f"{context.url}/{directory}dt=2024-01-01/bucket-3/f"
    assert context.data_file_path(day, -2, data_file("g")) == f"{context.url}/{directory}dt=2024-01-01/bucket-postpone/g"
    assert context.bucket_path(day, 3) == "dt=2024-01-01/bucket-3"
