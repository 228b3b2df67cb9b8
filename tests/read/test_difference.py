"""Increments in mode diff: how the rows of two snapshots differ, whatever lies between them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.read.difference_plan import plan_difference
from paimon_cli.read.increment_range import DELTA, DIFF, IncrementRange, asked_increment
from paimon_cli.read.predicate import parse_predicate
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
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


def test_two_tags_are_compared_even_when_their_snapshots_have_expired(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "a"}])
    create_tag(context, "jan-1", 1)
    write(context, [{"k": 1, "v": "b"}])
    write(context, [{"k": 1, "v": "a"}, {"k": 3, "v": "c"}])
    create_tag(context, "jan-3", 3)
    write(context, [{"k": 4, "v": "d"}])
    expire_snapshots(context, Retention(1, 1, 0, None))
    assert changes(context, "jan-1", "jan-3") == [("+I", {"k": 3, "v": "c"})]
    asked = context.options.with_overrides({"incremental-between": "jan-1,jan-3", "incremental-between-scan-mode": "delta"})
    table = TableContext.open(context.url, asked.raw)
    told = asked_increment(table)
    assert told is not None and IncrementRange.of(table, *told[:2]).mode(table, told[2]) == DIFF
    table = TableContext.open(context.url, {**asked.raw, "incremental-between-tag-to-snapshot": "true"})
    told = asked_increment(table)
    assert told is not None and IncrementRange.of(table, *told[:2]).mode(table, told[2]) == DELTA


def test_engines_that_mix_versions_are_compared_merged(tmp_path: Path) -> None:
    """Java merges the new files alone here, and so shows a row that nobody reads: v null."""
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


def test_buckets_that_were_cut_anew_are_refused(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "v": "a"}])
    other = TableContext.open(context.url, {"bucket": "2"})
    write(other, [{"k": 1, "v": "a"}], overwrite=True)
    with pytest.raises(NotSupported, match="difference of two snapshots"):
        changes(other, "1", mode="diff")


def visible(context: TableContext, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for split in plan_scan(context, context.snapshots.get(number)).splits:
        for batch in read_split(context, split, context.schema.field_names):
            found += canonical_rows(batch, context.schema.fields)
    return found


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
