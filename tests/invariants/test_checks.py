"""Every check finds what it is for, says where, and finds nothing in tables that are right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type, type_to_json
from paimon_cli.errors import NotSupported, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import violation as violations
from paimon_cli.invariants.check import INVARIANTS, check_rows, check_table
from paimon_cli.invariants.file_checks import StoredFiles, _file_violations
from paimon_cli.invariants.repair_plan import plan_repair
from paimon_cli.invariants.repair_steps import RepairKind
from paimon_cli.invariants.row_checks import ColumnRanges
from paimon_cli.invariants.scopes import OF_STEP, OF_VERSION
from paimon_cli.invariants.snapshot_checks import hints_are_not_ahead
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import ERROR, META, WARNING, Invariant, Violation, declare, next_code
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import plan_expiry
from paimon_cli.maintain.needed_files import all_ids
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.used_names import UsedNames
from paimon_cli.metadata.data_file import (
    EMPTY_ROW,
    DeletionVectorRange,
    EntryKind,
    IndexFileMeta,
    IndexManifestEntry,
    SimpleStats,
)
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.storage.local_storage import LocalStorage
from tests import tables
from tests.commit.commit_tables import data_file, make_table
from tests.goldens import golden_table
from tests.invariants.damaged_tables import Bench
from tests.invariants.forged_tables import codes, entry, forge, store

A = replace(data_file("a", low=0, high=9), max_sequence_number=9)
B = replace(data_file("b", low=0, high=9), min_sequence_number=10, max_sequence_number=19)
MERGED = replace(data_file("m", low=0, high=9, level=5), max_sequence_number=19)


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Two appends."""
    made = make_table(tmp_path / "t")
    store(made, A, B, MERGED)
    forge(made, 1, [], [entry(A)])
    forge(made, 2, [entry(A)], [entry(B)])
    return made


def test_a_right_table(context: TableContext) -> None:
    forge(
        context,
        3,
        [entry(A), entry(B)],
        [entry(A, EntryKind.DELETE), entry(B, EntryKind.DELETE), entry(MERGED)],
        commit_kind=COMPACT,
    )
    assert codes(context) == []


def test_an_empty_table(tmp_path: Path) -> None:
    assert codes(make_table(tmp_path)) == []


def test_a_branch_without_commits_has_lost_nothing(tmp_path: Path) -> None:
    """The manifests beside it are those of main."""
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    tables.write(context, [{"k": 1}])
    create_branch(context, "empty")
    assert list(check_table(context.seen_from("empty"))) == []


def test_a_gap(context: TableContext) -> None:
    forge(context, 4, [entry(A), entry(B)], [])
    assert [v.path[-10:] for v in check_table(context)] == ["snapshot-3"] and codes(context) == ["PV001"]


def test_a_file_that_is_not_a_snapshot(context: TableContext) -> None:
    Path(context.layout.snapshot(2)).write_text("{")
    assert codes(context) == ["PV002"]


@pytest.mark.parametrize(("name", "text"), [("LATEST", "3"), ("LATEST", "many"), ("EARLIEST", "2")])
def test_hints(context: TableContext, name: str, text: str) -> None:
    (Path(context.layout.snapshot_directory) / name).write_text(text)
    assert codes(context) == ["PV003"]


def test_a_hint_that_the_store_does_not_give_is_no_wrong_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, read = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"]), LocalStorage.read_bytes
    tables.write(context, [{"k": 1}])

    def refusing(storage: LocalStorage, path: str, *more: Any) -> bytes:
        if path == context.layout.latest_hint:
            raise StorageUnavailable(f"the file system refused {path}", "Input/output error", path=path)
        return read(storage, path, *more)

    monkeypatch.setattr(LocalStorage, "read_bytes", refusing)
    with pytest.raises(StorageUnavailable):
        list(hints_are_not_ahead(context))


def test_hints_may_lag(context: TableContext) -> None:
    Path(context.layout.latest_hint).write_text("1")
    assert codes(context) == []


def test_time(context: TableContext) -> None:
    forge(context, 3, [entry(A), entry(B)], [], time_millis=1)
    assert codes(context) == ["PV004"]


def test_a_missing_manifest(context: TableContext) -> None:
    for path in Path(context.layout.manifest_directory).glob("manifest-*-0"):
        if "list" not in path.name:
            path.unlink()
    assert codes(context) == ["PV005"]


def test_a_missing_schema(context: TableContext) -> None:
    forge(context, 3, [entry(A), entry(B)], [], schema_id=7)
    assert codes(context) == ["PV006"]


def test_something_lost_on_the_way(context: TableContext) -> None:
    forge(context, 3, [entry(A)], [])
    assert codes(context) == ["PV010", "PV014"], "the count goes down, too"


def test_something_smuggled_in(context: TableContext) -> None:
    forge(context, 3, [entry(A), entry(B), entry(MERGED)], [])
    assert codes(context) == ["PV010", "PV014"]


@pytest.mark.parametrize(
    "delta",
    [
        [entry(MERGED, EntryKind.DELETE)],
        [entry(A)],
        [entry(MERGED), entry(B, EntryKind.DELETE), entry(MERGED)],  # with another file in between
    ],
)
def test_a_delta_that_does_not_fit(context: TableContext, delta: list[object]) -> None:
    forge(context, 3, [entry(A), entry(B)], delta)  # type: ignore[arg-type]
    assert "PV011" in codes(context)


def test_a_missing_file(context: TableContext) -> None:
    Path(context.data_file_path(EMPTY_ROW, 0, A)).unlink()
    found = [violation for violation in check_table(context) if violation.code == "PV012"]
    assert len(found) == 1 and found[0].path.endswith("bucket-0/a"), "once, although it lives in both snapshots"


def test_a_file_cut_off(context: TableContext) -> None:
    Path(context.data_file_path(EMPTY_ROW, 0, B)).write_bytes(b"short")
    assert codes(context) == ["PV013"]


def test_a_missing_extra_file(context: TableContext) -> None:
    indexed = replace(MERGED, extra_files=("m.index",))
    forge(context, 3, [entry(A), entry(B)], [entry(indexed)])
    assert "PV012" in codes(context)


@pytest.mark.parametrize("changes", [{"total_record_count": 99}, {"delta_record_count": 1}])
def test_counts(context: TableContext, changes: dict[str, int]) -> None:
    forge(context, 3, [entry(A), entry(B)], [], (), **changes)
    assert codes(context) == ["PV014"]


@pytest.mark.parametrize("between", [(), ("b",)])
def test_a_file_that_two_index_files_mark(tmp_path: Path, between: tuple[str, ...]) -> None:
    """Where a bucket has several index files; whatever else the first one marks."""
    made = tables.make_table(tmp_path / "t", {"v": "INT"}, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    names = [("a", *between), ("a",)]
    ranges = [tuple(DeletionVectorRange(name, 1 + 2 * at, 2, 1) for at, name in enumerate(each)) for each in names]
    metas = [IndexFileMeta("DELETION_VECTORS", f"index-{n}", 10, len(each), each) for n, each in enumerate(ranges)]
    forge(
        made,
        1,
        [],
        [entry(A, total_buckets=-1), entry(B, total_buckets=-1)],
        [IndexManifestEntry(0, EMPTY_ROW, 0, m) for m in metas],
    )
    assert "PV039" in codes(made)


def test_index_files(context: TableContext) -> None:
    vectors = (DeletionVectorRange("a", 1, 2, 1), DeletionVectorRange("gone", 3, 2, 1))
    index = IndexManifestEntry(0, EMPTY_ROW, 0, IndexFileMeta("DELETION_VECTORS", "index-1", 10, 2, vectors))
    forge(context, 3, [entry(A), entry(B)], [], [index])
    assert codes(context) == ["PV015", "PV016", "PV065"]
    found = [violation.message for violation in check_table(context) if violation.code == "PV016"]
    assert len(found) == 1 and "gone" in found[0]


def test_the_vector_of_a_file_that_its_own_commit_replaced_is_a_warning(context: TableContext) -> None:
    """Java up to 1.4.2 keeps it in a rewrite of a single file; it does not come from a commit that came too late."""
    vectors = (DeletionVectorRange("a", 1, 2, 1),)
    index = IndexManifestEntry(0, EMPTY_ROW, 0, IndexFileMeta("DELETION_VECTORS", "index-1", 10, 1, vectors))
    Path(context.layout.index_directory).mkdir()
    (Path(context.layout.index_directory) / "index-1").write_bytes(bytes(10))
    forge(context, 3, [entry(A), entry(B)], [], [index])
    assert codes(context) == []
    forge(
        context,
        4,
        [entry(A), entry(B)],
        [entry(A, EntryKind.DELETE), entry(B, EntryKind.DELETE), entry(MERGED)],
        [index],
        commit_kind=COMPACT,
    )
    forge(context, 5, [entry(MERGED)], [], [index])
    assert {(v.code, v.severity) for v in check_table(context)} == {("PV016", WARNING)}


def test_levels(context: TableContext) -> None:
    other = replace(data_file("n", low=9, high=12, level=5), min_sequence_number=20, max_sequence_number=30)
    store(context, other)
    forge(context, 3, [entry(A), entry(B)], [entry(MERGED), entry(other)])
    assert codes(context) == ["PV020"]


def test_an_invalid_range(context: TableContext) -> None:
    odd = replace(data_file("odd", low=30, high=20, level=4), min_sequence_number=20, max_sequence_number=30)
    store(context, odd)
    forge(context, 3, [entry(A), entry(B)], [entry(odd)])
    assert codes(context) == ["PV021"]


def test_bucket_counts(context: TableContext) -> None:
    other = replace(data_file("n", low=30, high=31), min_sequence_number=20, max_sequence_number=30)
    store(context, other, bucket=1)
    forge(context, 3, [entry(A), entry(B)], [entry(other, bucket=1, total_buckets=3)])
    assert codes(context) == ["PV022"]


def test_merge_disorder_is_a_warning(context: TableContext) -> None:
    late = replace(data_file("late", low=5, high=6), min_sequence_number=15, max_sequence_number=16)
    apart = replace(data_file("apart", low=50, high=60), min_sequence_number=0, max_sequence_number=16)
    store(context, late, apart)
    forge(context, 3, [entry(A), entry(B)], [entry(late), entry(apart)])
    (found,) = check_table(context)
    assert (found.code, found.severity) == ("PV023", WARNING)
    assert found.path.endswith("late") and "user-3" in found.message and "b had reached 19" in found.message


def test_merge_disorder_is_reported_while_it_matters(context: TableContext) -> None:
    """`verify` does not report it if a sequence field orders the rows, or once a compaction has merged the file."""
    late = replace(data_file("late", low=5, high=6), min_sequence_number=15, max_sequence_number=16)
    store(context, late)
    forge(context, 3, [entry(A), entry(B)], [entry(late)])
    request = VerifyRequest("meta")

    def codes_of(table: TableContext) -> list[str]:
        return [v.code for v in run_verify(table, request, LocalEngine(), NoProgress()).violations]

    assert codes_of(context) == ["PV023"]
    assert codes_of(TableContext.open(context.url, {"sequence.field": context.schema.field_names[-1]})) == []
    gone = [entry(A, EntryKind.DELETE), entry(B, EntryKind.DELETE), entry(late, EntryKind.DELETE), entry(MERGED)]
    forge(context, 4, [entry(A), entry(B), entry(late)], gone, commit_kind=COMPACT)
    assert codes_of(context) == []


@pytest.mark.parametrize(
    ("stored", "declared"), [("BYTES", "BLOB"), ("ROW<`__field_mapping` ARRAY<INT>, `__col_0` INT>", "MAP<STRING, INT>")]
)
@pytest.mark.parametrize("keys", [["k"], []])
def test_what_is_not_supported_is_no_damage(tmp_path: Path, stored: str, declared: str, keys: list[str]) -> None:
    """Types and layouts of newer versions: neither a finding of `verify`, nor anything that `repair` would leave out."""
    table = Table.create(
        str(tmp_path / "t"), columns=["k INT NOT NULL", f"v {stored}"], primary_key=keys, bucket=1 if keys else -1
    )
    for _ in range(2):
        table.write(pa.table({"k": pa.array([1], pa.int32())}))
    schema = tmp_path / "t/schema/schema-0"
    text = json.loads(schema.read_text())
    text["fields"][1]["type"] = type_to_json(parse_sql_type(declared))
    schema.write_text(json.dumps(text))
    found = Table.open(str(tmp_path / "t"))
    assert not found.verify("files").errors
    for call in (lambda: found.verify("full"), lambda: found.scan().to_arrow(), lambda: found.compact("full")):
        with pytest.raises(NotSupported):
            call()
    assert plan_repair(found.context).steps == []
    with pytest.raises(NotSupported):
        Catalog().sql(f'SELECT * FROM "{found.url}"').to_arrow()


class TestRows:
    @pytest.fixture
    def written(self, tmp_path: Path) -> TableContext:
        context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
        tables.write(context, [{"k": key, "v": "x"} for key in range(5)])
        tables.write(context, [{"k": 2, "v": "x", "_op": "-D"}, {"k": 7, "v": "y", "_op": "+I"}])
        return context

    def test_right(self, written: TableContext) -> None:
        assert codes(written, rows=True) == []

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"row_count": 3}, "PV031"),
            ({"delete_row_count": 4}, "PV034"),
            ({"min_sequence_number": 6}, "PV032"),
            ({"max_sequence_number": 5}, "PV032"),
            ({"max_key": data_file("x", high=6).max_key}, "PV032"),
            ({"min_key": data_file("x", low=3).min_key}, "PV032"),
        ],
    )
    def test_false_metadata(self, written: TableContext, changes: dict[str, object], code: str) -> None:
        version = Version(written, written.snapshots.get(2))
        lying = [replace(e, file=replace(e.file, **changes)) for e in version.delta]  # type: ignore[arg-type]
        version.__dict__["live"] = lying
        assert {violation.code for violation in check_rows(version)} == {code}

    def test_rows_out_of_order(self, written: TableContext) -> None:
        """A file in the order of another key, checked with that key as the primary key."""
        version = Version(written, written.snapshots.get(1))
        schema = replace(written.schema, primary_keys=("v",))
        swapped = Version(written.redefined(schema=schema), version.snapshot)
        assert "PV030" in {violation.code for violation in check_rows(swapped)}


@pytest.mark.parametrize("name", ["dv_dedup", "dv_partitioned"])
def test_deletion_vectors_of_java(tmp_path: Path, name: str) -> None:
    """With its vectors a table shows each key once, without them it does not."""
    context = TableContext.open(str(golden_table("java-0.9", name, tmp_path)))
    assert codes(context, rows=True) == []
    latest = context.snapshots.latest()
    assert latest is not None
    version = Version(context, latest)
    version.__dict__["index_entries"] = []
    assert {violation.code for violation in check_rows(version)} == {"PV033"}


def test_a_code_is_never_used_twice() -> None:
    """A new invariant takes the next code, which the error names."""
    with pytest.raises(ValueError, match=f"the code PV012 is taken; the next one is {next_code()}"):
        declare(Invariant("PV012", "files", META, "something else"))


def test_an_invariant_is_declared_at_its_check(monkeypatch: pytest.MonkeyPatch, context: TableContext) -> None:
    monkeypatch.setattr(violations, "BY_CODE", dict(violations.BY_CODE))

    @OF_VERSION.check(Invariant("PV999", "files", META, "no table has a single file", severity=WARNING))
    def files_are_many(version: Version) -> Iterator[Violation]:
        yield Violation("PV999", version.path, "has files")

    module = ModuleType("new_checks")
    module.files_are_many = files_are_many  # type: ignore[attr-defined]
    assert OF_VERSION.checks_in([module]) == (files_are_many,) and not OF_STEP.checks_in([module])
    latest = context.snapshots.latest()
    assert latest is not None
    assert [found.severity for found in files_are_many(Version(context, latest))] == [WARNING]


def test_codes_have_meanings() -> None:
    assert all(invariant.code.startswith("PV") and invariant.meaning for invariant in INVARIANTS)
    violation = Violation("PV012", "/t/bucket-0/f", "is missing")
    assert (violation.severity, violation.meaning) == (ERROR, "every live data file exists")
    assert str(violation) == "PV012 /t/bucket-0/f: is missing"


def test_many_findings_are_counted_not_kept(tmp_path: Path) -> None:
    from paimon_cli.jobs import verify_job

    report = verify_job.VerifyReport("meta")
    verify_job._keep(report, (Violation("PV012", f"f{number}", "is missing") for number in range(1500)))
    verify_job._keep(report, [Violation("PV012", "f7", "is missing"), Violation("PV013", "f7", "has 1 byte")])
    assert len(report.violations) == 1001 and report.omitted == {"PV012": 500}


def test_a_stray_snapshot_number_is_one_finding(tmp_path: Path) -> None:
    """Neither `verify` nor `repair`, expiry or orphans count up to it."""
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"write-only": "true"})
    for number in (1, 2, 3):
        tables.write(context, [{"k": number}])
    stray = Path(context.layout.snapshot(9_000_000_000_000_000_000))
    newest = Path(context.layout.snapshot(3)).read_text()
    stray.write_text(newest.replace('"id" : 3', '"id" : 9000000000000000000'))
    (finding,) = [violation for violation in check_table(context) if violation.code == "PV001"]
    assert finding.message == "and 8,999,999,999,999,999,995 after it are missing between snapshots 3 and 9000000000000000000"
    plan = plan_repair(context)
    assert [(step.kind, step.path) for step in plan.steps if step.kind == RepairKind.BY_HAND] == [
        (RepairKind.BY_HAND, str(stray))
    ]
    assert not plan.missing_snapshots
    Path(context.layout.latest_hint).unlink()
    assert all_ids(context) == [1, 2, 3, 9_000_000_000_000_000_000]
    assert plan_expiry(context, Retention(1, 1, 0, None)) is not None
    assert UsedNames(context).refresh() == 4


@pytest.mark.parametrize("write_only", ["true", "false"])
def test_new_rows_of_first_row_tables_keep_their_kind_in_the_changelog(tmp_path: Path, write_only: str) -> None:
    options = {"merge-engine": "first-row", "changelog-producer": "lookup", "write-only": write_only}
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options=options)
    for key in (1, 2, 1):
        tables.write(context, [{"_op": "+U", "k": key, "v": key}])
    tables.compact(context)
    assert not list(check_table(context, rows=True))


def test_the_changelog_of_a_tagged_snapshot_expires_with_the_snapshot(tmp_path: Path) -> None:
    table = Table.open(tables.make_table(tmp_path / "t", {"k": "INT"}, ["k"], options={"changelog-producer": "input"}).url)
    for key in range(3):
        tables.write(table.context, [{"k": key}])
    table.tags.create("first", snapshot=1)
    assert table.expire(retain_max=1, retain_min=1).removed == ("1", "2")
    assert table.verify(level="full").violations == []
    assert table.scan(tag="first").count() == 1


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize(
    ("values", "low", "high", "found"),
    [
        ([0.0, -0.0], 0.0, 0.0, []),
        ([0.0, -0.0], -0.0, -0.0, []),
        ([-0.0, 1.5], 0.0, 1.5, []),
        ([-1.0, 0.0], 0.0, 0.0, ["PV037"]),
        ([-0.0, 1.5], 0.0, 0.0, ["PV037"]),
    ],
)
def test_a_bound_of_zero_covers_both_zeros(kind: str, values: list[float], low: float, high: float, found: list[str]) -> None:
    """Java orders them; pypaimon, like Parquet's own statistics, does not."""
    field = DataField(0, "f", parse_sql_type(kind))
    ranges = ColumnRanges([field])
    ranges.add(pa.RecordBatch.from_arrays([pa.array(values, arrow_type(field.type))], names=["f"]))
    stats = SimpleStats(serialize_row([low], [field.type]), serialize_row([high], [field.type]), (0,))
    file = replace(data_file("f", rows=len(values)), value_stats=stats)
    assert [code for code, _ in ranges.differences(file, ())] == found


def test_each_extra_file_is_looked_for(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    tables.write(context, [{"n": 1}])
    version = Version(context, context.snapshots.get(1))
    (live,) = version.fresh
    (Path(version.file_path(live)).parent / "one.index").write_bytes(b"x")
    two = replace(live, file=replace(live.file, extra_files=("one.index", "other.index")))
    (found,) = _file_violations(version, two, StoredFiles(context), "PV012", "PV013")
    assert found.code == "PV012" and "other.index is missing" in found.message


@pytest.mark.parametrize("code", ["PV035", "PV036"])
def test_rows_of_append_tables_are_where_they_belong(tmp_path: Path, code: str) -> None:
    context = tables.make_table(tmp_path / "t", {"p": "STRING", "k": "INT"}, [], ["p"], 2, {"bucket-key": "k"})
    tables.write(context, [{"p": p, "k": k} for p in "ab" for k in range(8)])
    bench = Bench(tmp_path / "t")
    assert not list(Table.open(context.url).verify(level="full").violations)
    moved = bench.live()[-1]
    elsewhere = next(e.partition for e in bench.live() if e.partition != moved.partition)
    other = replace(moved, bucket=1 - moved.bucket) if code == "PV035" else replace(moved, partition=elsewhere)
    bench.path(moved).rename(bench.path(other))
    bench.reforge(lambda e: other if e.identity == moved.identity else e)
    assert code in {violation.code for violation in Table.open(context.url).verify(level="full").violations}
