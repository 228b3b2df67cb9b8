"""Tables with options that this version supports in part, or leaves to other engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.api.runtime import Runtime
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.option_values import check_options_of_call
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.commit.committer import Committer
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.lsm_report import lsm_rows
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.hash_indexes import hash_index_holds_every_key
from paimon_cli.invariants.version import Version
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.sql.predicate import parse_predicate
from tests.goldens import golden_table
from tests.tables import compact, data_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def test_postponed_rows_form_no_tree(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-1.4", "postpone", tmp_path)))
    rows = [row for row in lsm_rows(context, context.snapshots.latest()) if row.bucket == -2]
    assert rows and all(row.runs == () and row.output_level is None for row in rows)
    assert {row.read_amplification for row in rows} == {0}


@pytest.mark.parametrize(
    "key", ["scan.bucket", "scan.fallback-branch", "scan.file-creation-time-millis", "incremental-to-auto-tag"]
)
def test_no_rows_where_an_option_asks_for_others(key: str, tmp_path: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["k"])
    asked = open_table(locate_table(str(tmp_path / "t")), {key: "1"})
    with pytest.raises(NotSupported, match=key):
        plan_rows(asked, ReadRequest())
    assert plan_rows(open_table(locate_table(str(tmp_path / "t")), {key: ""}), ReadRequest()).count() == 0


@pytest.mark.parametrize("key", ["metadata.iceberg.storage", "commit.callbacks"])
def test_no_commit_that_others_would_miss(key: str, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={key: "process-time"})
    for work in (lambda: write(context, [{"k": 1, "v": "a"}]), lambda: compact(context), lambda: Committer(context)):
        with pytest.raises(NotSupported, match=key):
            work()
    assert context.snapshots.latest() is None and data_files(context) == set()


@pytest.mark.parametrize("modifiable", ["false", "true"])
def test_deletion_vectors_are_not_switched_off_for_one_write(modifiable: str, tmp_path: Path) -> None:
    """Not even where `alter` may do it, after a look at all files."""
    table = golden_table("java-1.4", "deletion_vectors", tmp_path)
    schema = TableContext.open(str(table)).schema
    schema = replace(schema, options={**schema.options, "deletion-vectors.modifiable": modifiable})
    with pytest.raises(UsageError, match=r"deletion-vectors\.enabled"):
        check_options_of_call(schema, {"deletion-vectors.enabled": "false"}, True)


AGGREGATED = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "nested_update",
    "fields.n.nested-key": "id",
    "fields.c.aggregate-function": "collect",
}
COLLECTED = {**COLUMNS, "n": "ARRAY<ROW<id INT, w INT>>", "c": "ARRAY<INT>"}
PARTIAL = {"merge-engine": "partial-update", "fields.v.sequence-group": "c"}


@pytest.mark.parametrize(
    ("own", "option", "value"),
    [
        ({}, "ignore-delete", "true"),
        ({}, "deduplicate.ignore-delete", "true"),
        ({}, "sequence.field", "v"),
        ({}, "sequence.field.sort-order", "descending"),
        (AGGREGATED, "fields.v.aggregate-function", "max"),
        (AGGREGATED, "fields.default-aggregate-function", "max"),
        (AGGREGATED, "fields.c.distinct", "true"),
        (AGGREGATED, "fields.c.ignore-retract", "true"),
        (AGGREGATED, "fields.n.count-limit", "1"),
        (AGGREGATED, "fields.n.nested-key-null-strategy", "ignore"),
        (PARTIAL, "fields.v.sequence-group", "c,n"),
        ({"merge-engine": "first-row"}, "ignore-delete", "true"),
        ({"merge-engine": "first-row"}, "sequence.field", "v"),
    ],
)
def test_one_call_does_not_merge_in_its_own_way(tmp_path: Path, own: dict[str, str], option: str, value: str) -> None:
    """Deleted rows would come back for good, or older ones, and a key that has moved would be in two partitions."""
    context = make_table(tmp_path / "t", COLLECTED, ["k"], options=own)
    table = Table(context.with_options({option: value}), Runtime())
    table.check_call()
    write(context, [{"k": 1, "v": "a"}])
    for others in ({}, {"target-file-size": "1 mb"}):
        with pytest.raises(UsageError, match=f"{option} cannot be {value} for one call"):
            Table(context.with_options({**others, option: value}), Runtime()).check_call()
    Table(context.with_options({"target-file-size": "1 mb"}), Runtime()).check_call()
    assert table.scan().to_arrow().num_rows == 1, "a read may"
    same = make_table(tmp_path / "same", COLLECTED, ["k"], options={**own, option: value})
    write(same, [{"k": 1, "v": "a"}])
    Table(same.with_options({option: value}), Runtime()).check_call()


def test_an_option_without_effect_on_merges_is_taken(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "v": "a"}])
    Table(context.with_options({"fields.v.aggregate-function": "max"}), Runtime()).check_call()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("ignore-delete", "maybe", "cannot be 'maybe'"), ("sequence.field", "nope", "no column 'nope'")],
)
def test_a_value_that_cannot_be_is_told_as_such(tmp_path: Path, option: str, value: str, message: str) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "v": "a"}])
    with pytest.raises(UsageError, match=message):
        Table(context.with_options({option: value}), Runtime()).check_call()


def test_two_options_that_need_each_other_are_one_change(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLLECTED, ["k"], options={"merge-engine": "partial-update"})
    write(context, [{"k": 1, "v": "a"}])
    given = {"fields.c.aggregate-function": "collect", "fields.v.sequence-group": "c"}
    with pytest.raises(UsageError, match="for one call"):
        Table(context.with_options(given), Runtime()).check_call()


@pytest.mark.parametrize("own", ["input", "full-compaction"])
def test_one_call_leaves_no_changes_out_of_the_changelog(tmp_path: Path, own: str) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": own})
    write(context, [{"k": 1, "v": "a"}])
    for value in {"none", "input", "full-compaction"} - {own}:
        with pytest.raises(UsageError, match="streams read the changes of the table's own producer"):
            Table(context.with_options({"changelog-producer": value}), Runtime()).check_call()
    silent = make_table(tmp_path / "silent", COLUMNS, ["k"])
    write(silent, [{"k": 1, "v": "a"}])
    told = Table(silent.with_options({"changelog-producer": own}), Runtime())
    told.check_call()
    write(told.context, [{"k": 1, "v": "b"}])
    assert [row["v"] for row in Table.open(silent.url).changelog(1).to_arrow().to_pylist()] == ["a", "b"]


def test_one_call_may_ignore_deletes_where_nothing_is_merged(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    write(context, [{"k": 1, "v": "a"}])
    Table(context.with_options({"ignore-delete": "true"}), Runtime()).check_call()


def test_options_of_one_call_that_mean_the_same_are_taken(tmp_path: Path) -> None:
    options = {"merge-engine": "partial-update", "fields.v.list-agg-delimiter": ",", "changelog-producer": "INPUT"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=options)
    write(context, [{"k": 1, "v": "a"}])
    taken: list[dict[str, str]] = [
        {"fields.v.ignore-retract": "false"},
        {"fields.v.list-agg-delimiter": ","},
        {"changelog-producer": "input"},
    ]
    for given in taken:
        Table(context.with_options(given), Runtime()).check_call()
    for write_only in ("true", "false"):  # a dedicated compaction merges the rows of write-only tables
        given = {"sequence.field": "v", "write-only": write_only}
        with pytest.raises(UsageError, match="would merge the rows of all calls"):
            Table(context.with_options(given), Runtime()).compact()
    read = Table(context.with_options({"ignore-delete": "true", "changelog-producer": "none", "bucket": "1"}), Runtime())
    assert read.scan().count() == 1


def test_tables_with_a_separate_data_directory_are_read_only(tmp_path: Path) -> None:
    """What Java writes under data-file.path-directory is the same table one directory deeper."""
    columns = {"k": "INT NOT NULL", "dt": "STRING NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["k", "dt"], ["dt"])
    write(context, [{"k": n, "dt": "ab"[n % 2]} for n in range(9)])
    expected = rows(context)
    (tmp_path / "t" / "data").mkdir()
    for partition in (tmp_path / "t").glob("dt=*"):
        partition.rename(tmp_path / "t" / "data" / partition.name)
    moved = TableContext.open(str(tmp_path / "t"), {"data-file.path-directory": "/data/"})
    assert rows(moved) == expected and len(expected) == 9
    for work in (lambda: write(moved, [{"k": 1, "dt": "a"}]), lambda: compact(moved, strategy="full")):
        with pytest.raises(NotSupported, match=r"data-file\.path-directory"):
            work()


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(("function", "found"), [("default", {0: 1, 1: 1, 4: 2}), ("mod", {0: 1, 2: 3}), ("hive", {0: 2, 2: 2})])
def test_bucket_functions(tmp_path: Path, function: str, found: dict[int, int], keyed: bool) -> None:
    """Buckets of Java's BucketFunction; a condition on the key reads only its bucket, and `verify` knows where rows belong."""
    key, options = ["k"] if keyed else [], {"bucket-function.type": function, "bucket-key": "k"}
    context = make_table(tmp_path / "t", COLUMNS, key, bucket=5, options=options)
    write(context, [{"k": key, "v": "a"} for key in (17, -3, 5, 2)])
    buckets = bucket_files(context, context.snapshots.latest()).values()
    assert {bucket.bucket: sum(file.row_count for file in bucket.files) for bucket in buckets} == found
    for number in (17, -3, 5, 2):
        where = parse_predicate(f"k = {number}", context.schema)
        (chosen,) = where.buckets(5) or frozenset({-1})
        assert plan_scan(context, context.snapshots.latest(), where).row_count <= found[chosen]
    assert not list(check_table(context, rows=True))
    other = "default" if function != "default" else "mod"
    misread = TableContext.open(str(tmp_path / "t"), {"bucket-function.type": other})
    assert "PV035" in {violation.code for violation in check_table(misread, rows=True)}


def test_keys_without_a_hive_bucket(tmp_path: Path) -> None:
    columns = {"k": "TIMESTAMP(3) NOT NULL", "v": "STRING"}
    context = make_table(tmp_path / "t", columns, ["k"], bucket=5, options={"bucket-function.type": "hive"})
    assert parse_predicate("k = TIMESTAMP '2026-01-01 00:00:00'", context.schema).buckets(5) is None
    with pytest.raises(NotSupported, match=r"a TIMESTAMP\(3\) has no hash"):
        write(context, [{"k": "2026-01-01T00:00:00", "v": "a"}])


def test_cross_partition_tables_need_no_hash_index(tmp_path: Path) -> None:
    """Their writers search for a key in all partitions, and Java has no hash index for them."""
    columns = {"k": "INT NOT NULL", "dt": "STRING"}
    context = make_table(tmp_path / "t", columns, ["k"], ["dt"], bucket=4)
    write(context, [{"k": 1, "dt": "a"}])
    dynamic = TableContext.open(str(tmp_path / "t"), {"bucket": "-1"})
    latest = dynamic.snapshots.latest()
    assert latest is not None
    version = Version(dynamic, latest)
    (place,) = version.changed_buckets
    assert list(hash_index_holds_every_key(version, place)) == []
    inside = make_table(tmp_path / "u", {"k": "INT NOT NULL"}, ["k"])
    write(inside, [{"k": 1}])
    indexless = TableContext.open(str(tmp_path / "u"), {"bucket": "-1"})
    latest = indexless.snapshots.latest()
    assert latest is not None
    version = Version(indexless, latest)
    (place,) = version.changed_buckets
    assert [found.code for found in hash_index_holds_every_key(version, place)] == ["PV041"]
