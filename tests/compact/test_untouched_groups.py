"""Compactions that copy row groups which no newer run touches: the same rows and system columns as if all had been merged."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Table
from paimon_cli.bucket.file_indexes import FileIndexes
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.compact import bucket_compactor
from paimon_cli.compact.compaction_task import marked_files
from paimon_cli.compact.group_copier import GroupCopier
from paimon_cli.compact.untouched_groups import UntouchedGroup, UntouchedGroups, _bounds_ascend, _Group
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.pieces import PIECES
from tests.properties.shapes import SHAPES, Shape
from tests.tables import compact, make_table, rows, write

WRITE_ONLY = {"write-only": "true"}
MERGED = [(engine, shape) for engine in ("deduplicate", "partial-update", "aggregation") for shape in SHAPES[engine]]
KEYS: dict[str, Callable[[int], Any]] = {
    "INT NOT NULL": lambda n: n,
    "STRING NOT NULL": lambda n: f"key {n:08}",
    "DECIMAL(20, 2) NOT NULL": lambda n: f"{n}.25",
    "DATE NOT NULL": lambda n: f"{2000 + n // 300}-{n % 300 // 25 + 1:02}-{n % 25 + 1:02}",
    "TIMESTAMP(6) NOT NULL": lambda n: f"{2000 + n // 300}-{n % 300 // 25 + 1:02}-{n % 25 + 1:02} 00:00:00.000001",
}


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups each step copies; groups are small."""
    counts: list[int] = []
    real = UntouchedGroups.of

    def watched(self: UntouchedGroups, sections: tuple[tuple[SortedRun, ...], ...]) -> dict[int, list[UntouchedGroup]]:
        chosen = real(self, sections)
        counts.append(sum(map(len, chosen.values())))
        return chosen

    monkeypatch.setattr(UntouchedGroups, "of", watched)
    monkeypatch.setattr(PIECES, "row_group_bytes", 4000)
    return counts


def stored(context: TableContext) -> list[dict[str, Any]]:
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    names = ["_SEQUENCE_NUMBER", "_VALUE_KIND", *context.schema.field_names]
    return [row for batch in read_bucket(context, bucket, names) for row in batch.to_pylist()]


def value(r: random.Random, t: str) -> Any:
    return (
        None
        if r.random() < 0.2
        else f"t{r.randrange(99)}"
        if t == "STRING"
        else r.random() < 0.5
        if t == "BOOLEAN"
        else r.randrange(99)
    )


def compacted(folder: Path, seed: int, shape: Shape, engine: str, key: str = "INT NOT NULL", **options: str) -> TableContext:
    """A table after two rounds of upserts to a narrow range of keys, each compacted."""
    r, columns = random.Random(seed), {"k": key, **shape.columns}
    given = {**WRITE_ONLY, "merge-engine": engine, **shape.options, **options}
    context = make_table(folder, columns, ["k"], options=given)

    def change(number: int, kinds: tuple[str, ...]) -> dict[str, Any]:
        values = {name: value(r, t) for name, t in shape.columns.items()}
        return {"k": KEYS[key](number), **values, "_op": r.choice(kinds)}

    write(context, [change(2 * n, ("+I",)) for n in range(2000)])
    compact(context, strategy="full")
    for _ in range(2):
        for _ in range(2):
            first = r.randrange(3900)
            write(context, [change(first + n, shape.kinds) for n in range(r.randrange(1, 250))])
        compact(context, strategy="full")
    return context


def check_equal(folder: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    partial = compacted(folder / "partial", **given)
    assert max(copied) > 0
    monkeypatch.setattr(bucket_compactor, "can_copy", lambda *_: False)
    usual = compacted(folder / "usual", **given)
    assert stored(partial) == stored(usual)
    assert list(check_table(partial, rows=True)) == []
    (files, others) = ([f for b in bucket_files(t, t.snapshots.latest()).values() for f in b.files] for t in (partial, usual))
    for name in ("min_key", "max_key", "min_sequence_number", "max_sequence_number", "row_count", "value_stats", "key_stats"):
        assert [getattr(file, name) for file in files] == [getattr(file, name) for file in others], name


@pytest.mark.in_part(10)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("engine", "shape"), MERGED, ids=[f"{engine}-{shape.name}" for engine, shape in MERGED])
def test_merge_engines(
    tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch, engine: str, shape: Shape, seed: int
) -> None:
    check_equal(tmp_path, copied, monkeypatch, seed=seed, shape=shape, engine=engine)


@pytest.mark.in_part(10)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_types_of_keys(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch, key: str, codec: str) -> None:
    shape = SHAPES["deduplicate"][0]
    check_equal(tmp_path, copied, monkeypatch, seed=5, shape=shape, engine="deduplicate", key=key, **{"file.compression": codec})


def test_snapshot_ordering(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"sequence.snapshot-ordering": "true"}
    check_equal(tmp_path, copied, monkeypatch, seed=3, shape=SHAPES["deduplicate"][0], engine="deduplicate", **given)


def base(folder: Path, options: Mapping[str, str] = MappingProxyType({})) -> TableContext:
    context = make_table(folder, {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={**WRITE_ONLY, **options})
    write(context, [{"k": 2 * n, "v": "old"} for n in range(2000)])
    compact(context, strategy="full")
    return context


def test_a_group_with_one_newer_key_inside_is_merged(tmp_path: Path, copied: list[int]) -> None:
    context = base(tmp_path / "t")
    write(context, [{"k": 2001, "v": "new"}])
    compact(context, strategy="full")
    found = {row["k"]: row["v"] for row in stored(context)}
    assert copied[-1] > 0 and found == {**{2 * n: "old" for n in range(2000)}, 2001: "new"}
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert [file.row_count for file in bucket.files] == [2001]
    before = copied[-1]
    write(context, [{"k": 2002, "v": ""}], op="delete")
    compact(context, strategy="full")
    assert copied[-1] in (before - 1, before, before + 1) and 2002 not in {row["k"] for row in stored(context)}


def test_groups_of_several_files_are_copied_from_their_own(tmp_path: Path, copied: list[int]) -> None:
    context = base(tmp_path, {"target-file-row-num": "1000"})
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert len(bucket.files) == 2
    write(context, [{"k": 2, "v": "new"}, {"k": 3998, "v": "new"}])
    compact(context, strategy="full")
    assert max(copied) > 1
    found = sorted((row["k"], row["v"]) for row in rows(context))
    assert found == [(2 * n, "new" if n in (1, 1999) else "old") for n in range(2000)]


def test_scattered_keys_take_the_usual_path(tmp_path: Path, copied: list[int]) -> None:
    context = base(tmp_path / "t")
    write(context, [{"k": k, "v": "new"} for k in range(1, 4000, 41)])
    compact(context, strategy="full")
    assert copied[-1] == 0 and sum(row["v"] == "new" for row in stored(context)) == 98


LOOKUPS = {
    "vectors": {"deletion-vectors.enabled": "true"},
    "changelog": {"changelog-producer": "lookup"},
    "vectors and changelog": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "first row": {"merge-engine": "first-row"},
    "partial update": {"merge-engine": "partial-update", "changelog-producer": "lookup"},
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", LOOKUPS)
def test_tables_that_look_up_old_rows(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Groups with marked rows are merged, and lose them; no vector of a removed file is left; the changelog is the same."""

    def table(folder: Path) -> TableContext:
        options = {**WRITE_ONLY, **LOOKUPS[kind]}
        context = make_table(folder, {"k": "INT NOT NULL", "v": "STRING", "w": "INT"}, ["k"], options=options)
        write(context, [{"k": 2 * n, "v": "old", "w": n} for n in range(2000)])
        compact(context, strategy="full")
        for number, first in enumerate((3000, 3100)):
            write(context, [{"k": k, "v": f"new {number}", "w": None} for k in range(first, first + 250)])
            compact(context, strategy="minor")
        if kind not in ("first row", "partial update"):
            write(context, [{"k": k, "v": None, "w": None} for k in range(3200, 3300, 2)], op="delete")
        (bucket,) = bucket_files(context, context.snapshots.latest()).values()
        assert bool(marked_files(bucket.index_files)) == ("vectors" in kind)
        write(context, [{"k": 3401, "v": "newest", "w": 0}])
        compact(context, strategy="full")
        return context

    partial = table(tmp_path / "partial")
    assert copied[-1] > 0
    monkeypatch.setattr(bucket_compactor, "can_copy", lambda *_: False)
    usual = table(tmp_path / "usual")
    assert stored(partial) == stored(usual)
    if "changelog-producer" in LOOKUPS[kind]:
        changes = [Table.open(context.url).changelog(1).to_arrow().to_pylist() for context in (partial, usual)]
        assert changes[0] == changes[1] and len(changes[0]) > 2500
    (bucket,) = bucket_files(partial, partial.snapshots.latest()).values()
    assert not marked_files(bucket.index_files)
    assert list(check_table(partial, rows=True)) == []


def test_marked_rows_are_dropped_without_newer_files(tmp_path: Path, copied: list[int]) -> None:
    context = base(tmp_path / "t", {"deletion-vectors.enabled": "true"})
    write(context, [{"k": k, "v": ""} for k in range(3000, 3010, 2)], op="delete")
    compact(context, strategy="minor")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    marked = marked_files(bucket.index_files)
    assert marked and marked <= {file.file_name for file in bucket.files if file.level == 5}
    compact(context, strategy="full")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert copied[-1] > 0 and not marked_files(bucket.index_files)
    assert [row["k"] for row in stored(context)] == [k for k in range(0, 4000, 2) if not 3000 <= k < 3010]
    assert list(check_table(context, rows=True)) == []


def test_rows_that_expire(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with rows that expire are merged, also if their statistics do not show them."""
    columns = {"k": "INT NOT NULL", "t": "INT", "v": "STRING"}
    context = make_table(tmp_path / "t", columns, ["k"], options=WRITE_ONLY)
    now = context.clock.now_millis() // 1000
    times = {2 * n: None if n == 5 else 10 if 3000 <= 2 * n < 3010 else now for n in range(2000)}
    write(context, [{"k": k, "t": t, "v": "old"} for k, t in times.items()])
    compact(context, strategy="full")
    expiring = context.with_options({"record-level.expire-time": "1 d", "record-level.time-field": "t"})
    monkeypatch.setattr(UntouchedGroups, "_may_expire", lambda *_: False)
    compact(expiring, strategy="full")
    assert copied[-1] > 0
    assert [row["k"] for row in stored(context)] == [k for k, t in times.items() if t != 10]
    monkeypatch.undo()
    before = len(copied)
    monkeypatch.setattr(PIECES, "row_group_bytes", 4000)
    compact(expiring, strategy="full")
    assert len(copied) == before and len(stored(context)) == 1995
    assert list(check_table(context, rows=True)) == []


@pytest.mark.parametrize("size", ["1 kb", "1 mb"])
def test_file_indexes(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    """The index of the new file is that of its rows: values of replaced rows are not in it."""
    options = {
        "file-index.bloom-filter.columns": "v,w",
        "file-index.bloom-filter.v.items": "3000",
        "file-index.bloom-filter.w.items": "3000",
        "file-index.in-manifest-threshold": size,
    }

    def indexed(folder: Path) -> tuple[TableContext, bytes]:
        context = make_table(folder, {"k": "INT NOT NULL", "v": "STRING", "w": "INT"}, ["k"], options={**WRITE_ONLY, **options})
        write(context, [{"k": 2 * n, "v": f"old {n}", "w": None if n % 7 == 0 else n} for n in range(2000)])
        compact(context, strategy="full")
        write(context, [{"k": k, "v": f"new {k}", "w": k} for k in range(3000, 3300)])
        compact(context, strategy="full")
        (bucket,) = bucket_files(context, context.snapshots.latest()).values()
        (file,) = bucket.files
        assert (file.embedded_file_index is None) == (size == "1 kb")
        return context, FileIndexes(context, *bucket.bucket_id, file)._bytes()

    context, partial = indexed(tmp_path / "partial")
    assert copied[-1] > 0
    monkeypatch.setattr(bucket_compactor, "can_copy", lambda *_: False)
    assert indexed(tmp_path / "usual")[1] == partial
    assert list(check_table(context, rows=True)) == []


@pytest.mark.parametrize("width", [1, 7])
def test_keys_of_two_columns(tmp_path: Path, copied: list[int], width: int) -> None:
    """Where neighbouring groups share values of the first column, whole keys bound them."""
    columns = {"a": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "STRING"}
    context = make_table(tmp_path / "t", columns, ["a", "k"], options=WRITE_ONLY)
    rows = {(n // width, n): "old" for n in range(3000)}
    write(context, [{"a": a, "k": k, "v": v} for (a, k), v in rows.items()])
    compact(context, strategy="full")
    changed = {(n // width, n): "new" for n in (*range(2800, 3050), 1501)}
    write(context, [{"a": a, "k": k, "v": v} for (a, k), v in changed.items()])
    compact(context, strategy="full")
    assert copied[-1] > 0
    assert {(row["a"], row["k"]): row["v"] for row in stored(context)} == rows | changed
    assert list(check_table(context, rows=True)) == []


def sizes_of_groups(context: TableContext) -> list[int]:
    """The rows of each group of the only file."""
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (file,) = bucket.files
    footer = pq.read_metadata(context.data_file_path(*bucket.bucket_id, file))
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def test_groups_stay_of_a_healthy_size(tmp_path: Path, copied: list[int]) -> None:
    """Rounds of upserts to a narrow range must not leave more and smaller groups each time."""
    context, r = base(tmp_path / "t"), random.Random(2)
    before = sizes_of_groups(context)
    for number in range(40):
        first = 2 * r.randrange(1900)
        write(context, [{"k": k, "v": "new"} for k in (*range(first, first + 200, 2), 4000 + 2 * number)])
        compact(context, strategy="full")
    after = sizes_of_groups(context)
    usual = sorted(before)[len(before) // 2]
    assert sum(count > 0 for count in copied) > 30
    assert sum(after) / len(after) > usual / 2


@pytest.mark.in_part(2)
@pytest.mark.parametrize("places", [("above",), ("below",), ("inside", "above"), ("below", "inside", "above")])
def test_keys_beyond_those_of_the_base(tmp_path: Path, copied: list[int], places: tuple[str, ...]) -> None:
    """Rows outside of the key range of the base are a section of their own, and leave its groups as they are."""
    context = base(tmp_path / "t")
    usual, expected = len(sizes_of_groups(context)), {2 * n: "old" for n in range(2000)}
    copied.clear()
    for number in range(12):
        first = {"inside": 3900, "above": max(expected) + 1, "below": min(expected) - 5}[places[number % len(places)]]
        new = {k: f"new {number}" for k in range(first, first + 5)}
        write(context, [{"k": k, "v": v} for k, v in new.items()])
        compact(context, strategy="full")
        expected |= new
    assert len(copied) == 12 and min(copied) >= usual - 3
    assert len(sizes_of_groups(context)) <= usual + 2
    assert [(row["k"], row["v"]) for row in stored(context)] == sorted(expected.items())
    assert list(check_table(context, rows=True)) == []


def test_the_table_may_have_smaller_blocks(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the base has several groups is judged by the block size of the table."""
    monkeypatch.setattr(PIECES, "row_group_bytes", 1 << 20)
    context = base(tmp_path / "t", {"file.block-size": "4 kb"})
    write(context, [{"k": 3901, "v": "new"}])
    compact(context, strategy="full")
    assert copied[-1] > 0 and len(sizes_of_groups(context)) > 5
    assert list(check_table(context, rows=True)) == []


def test_a_failure_leaves_no_file(tmp_path: Path, copied: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    context = base(tmp_path / "t")
    write(context, [{"k": 3001, "v": "new"}])
    before = {path for path in tmp_path.rglob("data-*")}
    real, count = GroupCopier.copy, iter(range(100))

    def fails(self: Any, group: UntouchedGroup) -> None:
        if next(count) == 2:
            raise StorageUnavailable("the disk is gone")
        real(self, group)

    monkeypatch.setattr(GroupCopier, "copy", fails)
    with pytest.raises(StorageUnavailable):
        compact(context, strategy="full")
    assert {path for path in tmp_path.rglob("data-*")} == before


@pytest.mark.parametrize(
    ("bounds", "ascend"),
    [
        ([(0, 5, False), (6, 9, False)], True),
        ([(0, 6, True), (6, 9, False)], True),
        ([(0, 6, False), (6, 9, False)], False),
        ([(0, 7, True), (6, 9, False)], False),
        ([(0, 20, False), (6, 9, False), (10, 12, False)], False),
        ([(0, 20, False), (10, 12, False), (30, 40, False)], False),
        ([(6, 9, False), (0, 5, False)], False),
        ([(6, 6, False), (6, 9, False)], False),
        ([], False),
    ],
)
def test_only_groups_beside_each_other_are_copied(bounds: list[tuple[int, int, bool]], ascend: bool) -> None:
    """`ends_below`: the bound is the first key of the next group, which its own keys do not reach."""
    file = cast(DataFileMeta, None)

    def key(value: int) -> SortedKeys:
        return SortedKeys.of(pa.record_batch([pa.array([value], pa.int32())], ["k"]), ["k"])

    def groups(sequences: tuple[int, int] | None) -> list[_Group]:
        return [_Group(file, n, 1, 1, sequences, key(low), key(high), below) for n, (low, high, below) in enumerate(bounds)]

    assert _bounds_ascend(groups((0, 1))) == ascend
    assert not _bounds_ascend(groups(None)), "all must be merged"
