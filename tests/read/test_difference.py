"""Increments in mode diff: how the rows of two snapshots differ, whatever happened between them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_partitions import drop_partitions
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.read.difference import ADDED, REMOVED, file_changes, plan_difference, row_changes
from paimon_cli.read.increments import AUTO, DELTA, DIFF, IncrementRange, increment_by_option
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.predicate import parse_predicate
from tests.goldens import golden_table
from tests.read.test_increments import changes
from tests.tables import compact, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
GOLDENS = [
    "dv_dedup",
    "first_row",
    "aggregation_many",
    "partial_update_sequence_group",
    "append_unaware",
    "sequence_field",
    "schema_evolution",
    "types_orc",
]


def test_only_what_differs_in_the_end(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": k, "v": "a"} for k in range(4)])
    write(context, [{"k": 0, "v": "b"}, {"k": 1, "v": "a"}, {"k": 9, "v": "here and gone"}])
    compact(context, strategy="full")
    write(context, [{"k": 2, "v": "x", "_op": "-D"}, {"k": 9, "v": "", "_op": "-D"}, {"k": 5, "v": "c", "_op": "+I"}])
    found = changes(context, "1", "4", mode="diff")
    assert found == [("+I", {"k": 0, "v": "b"}), ("-D", {"k": 2, "v": "a"}), ("+I", {"k": 5, "v": "c"})]
    assert changes(context, "2", "3", mode="diff") == [] == changes(context, "4", mode="diff")
    assert [row["k"] for _, row in changes(context, "0", "1", mode="diff")] == [0, 1, 2, 3]
    compact(context, strategy="full")
    assert changes(context, "1", mode="diff") == found


def test_rows_that_are_only_marked_differ_without_a_key(tmp_path: Path) -> None:
    """Both sides have the same files, and one has a vector."""
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    write(context, [{"k": k, "v": "a"} for k in range(4)])
    Table.open(context.url).delete("k = 1")
    assert changes(context, "1", "2", mode="diff") == [("-D", {"k": 1, "v": "a"})]


def test_a_file_that_changes_its_level_is_removed_and_added(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": "a"}])
    compact(context, strategy="full")
    write(context, [{"k": 2, "v": "b"}])
    one, two, three = (context.snapshots.get(number) for number in (1, 2, 3))
    removed, added = file_changes(context, one, two)
    assert (removed.change, removed.level, added.change, added.level) == (REMOVED, 0, ADDED, 5)
    assert removed.file == added.file and file_changes(context, two, one) == [
        replace(added, change=REMOVED),
        replace(removed, change=ADDED),
    ]
    (new,) = file_changes(context, two, three)
    assert (new.change, new.level, new.rows) == (ADDED, 0, 1) and file_changes(context, three, three) == []


def test_two_tags_are_compared_even_when_their_snapshots_have_expired(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "a"}])
    create_tag(context, "jan-1", 1)
    write(context, [{"k": 1, "v": "b"}])
    write(context, [{"k": 1, "v": "a"}, {"k": 3, "v": "c"}])
    create_tag(context, "jan-3", 3)
    write(context, [{"k": 4, "v": "d"}])
    for begin, end in (("jan-1", "3"), ("1", "jan-3")):
        assert IncrementRange.of(context, begin, end).mode(context, AUTO) == DELTA, "one tag is like the id of its snapshot"
    expire_snapshots(context, Retention(1, 1, 0, None))
    assert changes(context, "jan-1", "jan-3") == [("+I", {"k": 3, "v": "c"})]
    asked = context.options.with_overrides({"incremental-between": "jan-1,jan-3", "incremental-between-scan-mode": "delta"})
    table = TableContext.open(context.url, asked.raw)
    given = increment_by_option(table)
    assert given is not None and IncrementRange.of(table, *given[:2]).mode(table, given[2]) == DIFF
    for ends in ("jan-1,4", "3,jan-3"):
        one_tag = TableContext.open(context.url, {**asked.raw, "incremental-between": ends})
        assert increment_by_option(one_tag) == (*ends.split(","), DELTA), "only two tags imply the mode"
    table = TableContext.open(context.url, {**asked.raw, "incremental-between-tag-to-snapshot": "true"})
    given = increment_by_option(table)
    assert given is not None and IncrementRange.of(table, *given[:2]).mode(table, given[2]) == DELTA


def test_engines_that_mix_versions_are_compared_merged(tmp_path: Path) -> None:
    """Java merges the new files alone here, and so shows a row that no read gives: v null."""
    columns = {"k": "INT NOT NULL", "v": "STRING", "w": "STRING"}
    context = make_table(tmp_path / "t", columns, ["k"], options={"write-only": "true", "merge-engine": "partial-update"})
    write(context, [{"k": 1, "v": "a", "w": None}, {"k": 2, "v": "a", "w": None}])
    write(context, [{"k": 1, "v": None, "w": "b"}, {"k": 2, "v": "a", "w": None}])
    assert changes(context, "1", mode="diff") == [("+I", {"k": 1, "v": "a", "w": "b"})]


def test_files_that_cannot_differ_or_match_are_left_out(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", **COLUMNS}, ["p", "k"], ["p"], options={"write-only": "true"})
    for p in (1, 2):
        for first in (0, 10):
            write(context, [{"p": p, "k": first + k, "v": "a"} for k in range(3)])
    write(context, [{"p": 1, "k": 11, "v": "b"}, {"p": 1, "k": 12, "v": "b"}, {"p": 2, "k": 1, "v": "b"}])
    old, new = context.snapshots.get(4), context.snapshots.get(5)
    whole = plan_difference(context, old, new)
    assert [len(split.files) for split in whole.splits] == [3, 3] and whole.counts.files_skipped_as_unchanged == 2
    one = plan_difference(context, old, new, parse_predicate("p = 1 AND k < 5", context.schema))
    assert one.splits == () and one.counts.files_skipped_by_key == 2
    assert (one.counts.manifests_skipped, one.counts.partitions_skipped, one.counts.files_skipped_by_partition) == (4, 1, 1)


def test_records_that_wait_are_those_of_the_partitions_that_are_read(tmp_path: Path) -> None:
    options = {"write-only": "true", "deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", **COLUMNS}, ["p", "k"], ["p"], options=options)
    for counts in ({1: 1}, {1: 2, 2: 5}):
        write(context, [{"p": p, "k": k, "v": "a"} for p, count in counts.items() for k in range(count)])
    old, new, one = context.snapshots.get(1), context.snapshots.get(2), parse_predicate("p = 1", context.schema)
    assert [plan_difference(context, old, new, where).counts.waiting_records for where in (None, one)] == [8, 3]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (5, 3), (20, 30)])
def test_rescaled_buckets_are_compared_together(tmp_path: Path, before: int, after: int) -> None:
    columns = {"p": "INT NOT NULL", **COLUMNS}
    context = make_table(tmp_path / "t", columns, ["p", "k"], ["p"], before, {"write-only": "true"})
    rows = [{"p": p, "k": k, "v": "a"} for p in (1, 2) for k in range(60)]
    write(context, rows[:80])
    write(context, rows[40:])
    write(context, [{"p": 2, "k": 3, "v": "x"}])
    moved = TableContext.open(context.url, {"bucket": str(after)})
    new = [{**row, "v": "b" if row["k"] == 7 else "a"} for row in rows[:60] if row["k"] != 5] + [{"p": 1, "k": 99, "v": "c"}]
    write(moved, new, overwrite=True, partition={"p": "1"})
    found = changes(moved, "2", mode="diff")
    row = {"p": 1, "v": "a"}
    assert [change for change in found if change[1]["p"] == 1] == [
        ("-D", {**row, "k": 5}),
        ("+I", {**row, "k": 7, "v": "b"}),
        ("+I", {**row, "k": 99, "v": "c"}),
    ]
    assert [change for change in found if change[1]["p"] == 2] == [("+I", {"p": 2, "k": 3, "v": "x"})]
    plan = plan_difference(moved, context.snapshots.get(2), context.snapshots.get(4))
    assert [len(split.before or ()) > 1 for split in plan.splits] == [before > 1, False]
    older, newer = context.snapshots.get(2), context.snapshots.get(4)
    narrow = plan_difference(moved, older, newer, parse_predicate("p = 1 AND k > 99", context.schema))
    assert narrow.splits == () and narrow.counts.files_skipped_by_key > 0
    assert [(c.kind, c.values["v"]) for c in row_changes(moved, older, newer) if c.values["k"] == 7] == [("-U", "a"), ("+U", "b")]


@pytest.mark.parametrize("key", [["p", "k"], []], ids=["key", "append"])
def test_buckets_that_only_one_side_has(tmp_path: Path, key: list[str]) -> None:
    """Partitions that came, and those that went."""
    options = {"write-only": "true"}
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", **COLUMNS}, key, ["p"], 1 if key else -1, options)
    write(context, [{"p": p, "k": p, "v": "a"} for p in (1, 2)])
    live = context.manifests.live_entries(context.snapshots.get(1))
    drop_partitions(context, [entry.partition for entry in live if context.partition_path_of(entry.partition) == "p=1/"], 1)
    write(context, [{"p": 3, "k": 3, "v": "a"}])
    older, newer = context.snapshots.get(1), context.snapshots.get(3)
    assert sorted((c.kind, c.values["p"]) for c in row_changes(context, older, newer)) == [("+I", 3), ("-D", 1)]
    assert sorted((c.kind, c.values["p"]) for c in row_changes(context, newer, older)) == [("+I", 1), ("-D", 3)]
    assert sorted((kind, row["p"]) for kind, row in changes(context, "1", "3", mode="diff")) == [("+I", 3), ("-D", 1)]


def test_changes_have_the_columns_of_the_newer_snapshot(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    Table.open(context.url).alter.add_column("more INT")
    later = TableContext.open(context.url)
    write(later, [{"k": 2, "v": "b", "more": 5}])
    older, newer = later.snapshots.get(1), later.snapshots.get(2)
    assert [(c.kind, c.values) for c in row_changes(later, older, newer)] == [
        ("-U", {"k": 2, "v": "b", "more": None}),
        ("+U", {"k": 2, "v": "b", "more": 5}),
    ]
    assert [(c.kind, c.values) for c in row_changes(later, newer, older)] == [
        ("-U", {"k": 2, "v": "b", "more": 5}),
        ("+U", {"k": 2, "v": "b", "more": None}),
    ]


def test_changes_back_to_a_narrower_type_keep_all_digits(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": 100}])
    Table.open(context.url).alter.alter_column("v", "BIGINT")
    later = TableContext.open(context.url)
    write(later, [{"k": 1, "v": 5_000_000_000}])
    older, newer = later.snapshots.get(1), later.snapshots.get(2)
    assert [(c.kind, c.values["v"]) for c in row_changes(later, newer, older)] == [("-U", 5_000_000_000), ("+U", 100)]


def test_rows_without_a_key_in_rescaled_buckets(tmp_path: Path) -> None:
    append = make_table(tmp_path / "t", COLUMNS, [], bucket=2, options={"bucket-key": "k"})
    rows = [{"k": k, "v": "a"} for k in range(20)]
    write(append, rows)
    write(TableContext.open(append.url, {"bucket": "3"}), [*rows[1:], {"k": 50, "v": "b"}], overwrite=True)
    assert sorted(changes(append, "1", mode="diff"), key=str) == [("+I", {"k": 50, "v": "b"}), ("-D", rows[0])]


def test_a_key_in_another_dynamic_bucket_is_not_a_delete(tmp_path: Path) -> None:
    """An overwrite may move keys of dynamic buckets: the -D of the old bucket must not follow the +I of the new one."""
    columns = {"a": "INT NOT NULL", "b": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["a", "b"], bucket=4, options={"bucket-key": "a"})
    rows = [{"a": k, "b": 7 * k} for k in range(30)]
    write(context, rows)
    write(TableContext.open(context.url, {"bucket-key": "b"}), [*rows[1:], {"a": 99, "b": 0}], overwrite=True)
    assert changes(TableContext.open(context.url, {"bucket": "-1"}), "1", mode="diff") == [
        ("-D", rows[0]),
        ("+I", {"a": 99, "b": 0}),
    ]


def test_keys_of_dynamic_buckets_are_compared_together_after_a_rescale_too(tmp_path: Path) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "1"}
    table = Table.create(str(tmp_path / "t"), columns=["k INT", "v INT"], primary_key=["k"], options=options)
    table.write([{"k": k, "v": 1} for k in range(6)])
    table.truncate()
    table.write([{"k": k, "v": int(k > 3)} for k in reversed(range(6))])
    table.rescale(buckets=1)
    found = changes(TableContext.open(table.url), "1", "3", mode="diff")
    assert sorted(found, key=str) == [("+I", {"k": k, "v": 0}) for k in range(4)]


def visible(context: TableContext, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for split in plan_scan(context, context.snapshots.get(number)).splits:
        for batch in read_split(context, split, context.schema.field_names):
            found += canonical_rows(batch, context.schema.fields)
    return found


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", GOLDENS)
def test_differences_lead_from_each_snapshot_to_each_later_one(name: str, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-0.9", name, tmp_path)))
    seen = {number: visible(context, number) for number in context.snapshots.ids()[-5:]}
    for before, after in combinations(seen, 2):
        held = list(seen[before])
        keys = context.schema.primary_keys
        found: list[tuple[str, dict[str, Any]]] = changes(context, str(before), str(after), mode="diff")
        for kind, row in found:
            if kind == "-D":
                held.remove(row)
            elif keys:
                held = [old for old in held if any(old[name] != row[name] for name in keys)]
            held += [row] if kind != "-D" else []
        assert sorted(map(str, held)) == sorted(map(str, seen[after]))
