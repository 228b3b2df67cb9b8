"""The walk reports of every snapshot what reading it alone would report, however manifests were merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.snapshot_checks import base_is_what_lived_before
from paimon_cli.invariants.version import FileFacts, Version
from tests import tables
from tests.goldens import GOLDENS, Golden, golden_table
from tests.invariants.damaged_tables import Bench

OPTIONS = {"manifest.merge-min-count": "3", "num-sorted-run.compaction-trigger": "3"}


def busy_table(folder: Path, **options: str) -> Bench:
    """Commits, compactions, an overwrite; manifests are merged every third time."""
    context = tables.make_table(
        folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=2, options={**OPTIONS, **options}
    )
    for number in range(8):
        tables.write(context, [{"k": key, "v": f"{number}"} for key in range(number, number + 6)])
        if number % 4 == 3:
            tables.compact(context)
    tables.write(context, [{"k": 1, "v": "over"}], overwrite=True)
    tables.write(context, [{"k": 2, "v": "last"}])
    return Bench(Path(context.url))


def compared_walk(bench: Bench) -> list[WalkedVersion]:
    """Compare every version of the walk with the same version read alone."""
    context, seen = bench.context, []
    for version in walk(context, context.snapshots.ids()):
        assert isinstance(version, WalkedVersion)
        alone = Version(context, version.snapshot)
        assert {e.identity for e in version.whole().live} == {e.identity for e in alone.live}
        assert version.row_count == alone.row_count and version.delta == alone.delta
        if version.before is not None:
            before = Version(context, context.snapshots.get(version.snapshot.id - 1))
            for place in version.changed_buckets:
                assert {e.identity for e in version.before.at(place)} == {e.identity for e in before.at(place)}
                assert version.before.highest_sequence(place) >= before.highest_sequence(place)
            assert all(version.before.holds(e) == before.holds(e) for e in (*alone.live, *alone.delta))
        seen.append(version)
    return seen


def test_merged_manifests_change_nothing(tmp_path: Path) -> None:
    seen = compared_walk(busy_table(tmp_path))
    assert sum(not version.missing_from_base and not version.unexpected_in_base for version in seen) == len(seen) > 2


def test_a_merged_manifest_with_a_lie(tmp_path: Path) -> None:
    bench = busy_table(tmp_path)
    bench.reforge(base=lambda entries: entries[:-1])
    *_, last = walk(bench.context, bench.context.snapshots.ids())
    assert isinstance(last, WalkedVersion) and len(last.missing_from_base) == 1 and not last.unexpected_in_base


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"row_count": 77}, "rows 77 instead of"),
        ({"file_size": 77}, "size 77 instead of"),
        ({"min_key": b"\0" * 12}, "another least key"),
        ({"max_key": b"\0" * 12}, "another greatest key"),
        ({"min_sequence_number": 7, "max_sequence_number": 7}, "least sequence number 7 instead of"),
        ({"max_sequence_number": 777}, "greatest sequence number 777 instead of"),
        ({"schema_id": 7}, "schema 7 instead of 0"),
        ({"delete_row_count": 1}, "retractions 1 instead of 0"),
    ],
)
def test_a_merged_manifest_with_other_facts_of_a_file(tmp_path: Path, change: dict[str, Any], shown: str) -> None:
    bench = busy_table(tmp_path)
    bench.reforge(base=lambda entries: [*entries[:-1], replace(entries[-1], file=replace(entries[-1].file, **change))])
    *_, before, last = walk(bench.context, bench.context.snapshots.ids())
    assert isinstance(last, WalkedVersion) and isinstance(before, WalkedVersion)
    assert not last.missing_from_base and not last.unexpected_in_base
    ((was, now),) = last.changed_entries
    assert was.identity == now.identity and now in last.fresh and now.bucket_id in last.changed_buckets
    (found,) = base_is_what_lived_before(before, last)
    assert found.code == "PV010" and was.file.file_name in found.message and shown in found.message
    alone = Version(bench.context, last.snapshot)
    assert alone.changed_in_base(Version(bench.context, before.snapshot)) == [(was, now)]
    assert last.row_count == alone.row_count and set(last.at(now.bucket_id)) == set(alone.at(now.bucket_id))


def test_a_merged_manifest_with_another_bucket_count(tmp_path: Path) -> None:
    bench = busy_table(tmp_path)
    bench.reforge(base=lambda entries: [*entries[:-1], replace(entries[-1], total_buckets=7)])
    *_, last = walk(bench.context, bench.context.snapshots.ids())
    assert isinstance(last, WalkedVersion)
    ((was, now),) = last.changed_entries
    assert FileFacts.of(was).differences(FileFacts.of(now)) == "buckets 7 instead of 2"
    assert last.bucket_counts()[now.partition] == {2, 7}


@pytest.mark.parametrize(
    "golden", [g for g in GOLDENS if g.name in ("sixty_commits", "rollback", "overwrite_drop_partition")], ids=str
)
def test_other_writers(tmp_path: Path, golden: Golden) -> None:
    compared_walk(Bench(golden_table(golden.writer, golden.name, tmp_path)))
