"""The walk reports of every snapshot what reading it alone would report, however manifests were merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.snapshot_checks import base_is_what_lived_before
from paimon_cli.invariants.version import FileFacts, Version
from paimon_cli.metadata.data_file import BucketId, EntryKind, ManifestEntry
from tests import tables
from tests.commit.commit_tables import data_file, make_table
from tests.goldens import GOLDENS, Golden, golden_table
from tests.invariants.damaged_tables import Bench
from tests.invariants.forged_tables import entry, forge

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
    """Compare every version of the walk with the same version read alone, and what is known of buckets with all since a gap."""
    context, seen = bench.context, list[WalkedVersion]()
    tops, before = dict[BucketId, int](), dict[BucketId, set[tuple[object, int]]]()
    index: tuple[str | None, dict[BucketId, set[str]]] = (None, {})
    for version in walk(context, context.snapshots.ids()):
        assert isinstance(version, WalkedVersion)
        follows = bool(seen) and seen[-1].snapshot.id == version.snapshot.id - 1
        assert (version.before is not None) == follows
        if not follows:
            tops, before, index = {}, {}, (None, {})
        if version.before is not None:
            assert {place: version.before.highest_sequence(place) for place in version.changed_buckets} == {
                place: tops.get(place, -1) for place in version.changed_buckets
            }
        live = {place: set(map(_identity, found)) for place, found in Version(context, version.snapshot).buckets.items()}
        tops = {
            place: max(tops.get(place, -1) if found & before.get(place, set()) else -1, *(top for _, top in found))
            for place, found in live.items()
            if found
        }
        before = live
        files = dict[BucketId, set[str]]()
        for each in version.index_entries:
            files.setdefault(each.bucket_id, set()).add(each.index_file.file_name)
        assert version.index_changed == (not follows or version.snapshot.index_manifest != index[0])
        assert {p for p in {*files, *index[1]} if files.get(p) != index[1].get(p)} <= set(version.changed_buckets)
        index = version.snapshot.index_manifest, files
        alone = Version(context, version.snapshot)
        assert {e.identity for e in version.whole().live} == {e.identity for e in alone.live}
        assert version.row_count == alone.row_count and version.delta == alone.delta
        if version.before is not None:
            former = Version(context, context.snapshots.get(version.snapshot.id - 1))
            for place in version.changed_buckets:
                assert {e.identity for e in version.before.at(place)} == {e.identity for e in former.at(place)}
                assert version.before.highest_sequence(place) >= former.highest_sequence(place)
            assert all(version.before.holds(e) == former.holds(e) for e in (*alone.live, *alone.delta))
        seen.append(version)
    return seen


def _identity(entry: ManifestEntry) -> tuple[object, int]:
    return entry.identity, entry.file.max_sequence_number


def test_merged_manifests_change_nothing(tmp_path: Path) -> None:
    seen = compared_walk(busy_table(tmp_path))
    assert sum(not version.missing_from_base and not version.unexpected_in_base for version in seen) == len(seen) > 2


@pytest.mark.in_part(2)
@pytest.mark.parametrize("gone", [{1}, {5}, {2, 3, 7}])
@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["levels", "vectors"])
def test_after_a_gap_the_walk_begins_anew(options: dict[str, str], gone: set[int], tmp_path: Path) -> None:
    bench = busy_table(tmp_path, **options)
    for number in gone:
        Path(bench.context.layout.snapshot(number)).unlink()
    assert len(compared_walk(bench)) == len(bench.context.snapshots.ids())


def test_what_a_bucket_had_written_counts_until_it_is_empty(tmp_path: Path) -> None:
    """Also of a file with lower numbers that comes later, and of one that is gone; an emptied bucket begins at 0."""
    context = make_table(tmp_path / "t")
    high, low, new, last = (data_file(name, rows=rows) for name, rows in (("high", 20), ("low", 5), ("new", 3), ("last", 9)))
    forge(context, 1, [], [entry(high)])
    forge(context, 2, [entry(high)], [entry(low)])
    forge(context, 3, [entry(high), entry(low)], [entry(high, EntryKind.DELETE)])
    forge(context, 4, [entry(low)], [entry(low, EntryKind.DELETE)])
    forge(context, 5, [], [entry(new)])
    forge(context, 6, [entry(new)], [entry(last)])
    forge(context, 7, [entry(new), entry(last)], [entry(data_file("beside", rows=1), bucket=1)])
    found = list[int]()
    for version in walk(context, context.snapshots.ids()):
        assert isinstance(version, WalkedVersion)
        if version.before is not None:
            found.append(version.before.highest_sequence(entry(high).bucket_id))
    assert found[:-1] == [19, 19, 19, -1, 2] and found[-1] == -1, "nothing is asked of a bucket that has not changed"
    Path(context.layout.snapshot(4)).unlink()
    Path(context.layout.snapshot(3)).unlink()
    after_gap = [version.before for version in walk(context, [1, 2, 5, 6]) if isinstance(version, WalkedVersion)]
    assert [each and each.highest_sequence(entry(high).bucket_id) for each in after_gap] == [None, 19, None, 2]


def test_a_bucket_whose_index_is_gone_has_changed(tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": "true", "bucket-key": "k"}
    made = tables.make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, [], bucket=2, options=options)
    tables.write(made, [{"k": k, "v": "a"} for k in range(9)])
    Table.open(made.url).delete("k = 3")
    bench = Bench(Path(made.url))
    (marked,) = {each.bucket_id for each in bench.context.manifests.index_entries(bench.newest)}
    touched = {marked}
    for k in range(9):
        if marked in touched:
            tables.write(bench.context, [{"k": k, "v": "in the other bucket"}])
            touched = {each.bucket_id for each in bench.context.manifests.delta_entries(bench.newest)}
    bench.publish(replace(bench.newest, index_manifest=None))
    *_, last = walk(bench.context, bench.context.snapshots.ids())
    assert isinstance(last, WalkedVersion) and set(last.changed_buckets) == touched | {marked} and last.index_changed


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
