"""Files that an index rules out are not read; embedded or beside the file, after compaction and renaming too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.bucket.file_indexes import FileIndexes
from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import RenameColumn
from paimon_cli.errors import DamagedFile, NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.index_files import BloomFilter, Bodies, decode_file_index, encode_file_index
from paimon_cli.read.pruning import ScanCounts
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import count_split
from paimon_cli.sql.predicate import parse_predicate
from paimon_cli.storage.storage_for_url import storage_for_url
from tests.goldens import golden_table
from tests.tables import compact, data_files, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT", "t": "TIMESTAMP(6)"}
SMALL = {
    "file-index.bloom-filter.columns": "v, n,t",
    "file-index.bloom-filter.v.items": "50",
    "file-index.bloom-filter.n.items": "50",
    "file-index.bloom-filter.t.items": "50",
    "file-index.bloom-filter.v.fpp": "0.001",
    "file-index.bloom-filter.n.fpp": "0.001",
    "file-index.bloom-filter.t.fpp": "0.001",
    "write-only": "true",
}
BESIDE = {**SMALL, "file-index.in-manifest-threshold": "10 b"}
ABSENT = ("v = 'v21'", "n IN (21, 23)", "t = TIMESTAMP '2024-01-01 00:00:21'", "v = 'v21' AND k > 0", "v = 'v21' OR n = 21")
PRESENT = ("v = 'v04'", "n IN (1, 10)", "v != 'v21'", "v = 'v21' OR k = 2", "n > 1", "v IS NULL")


def table(path: Path, options: dict[str, str]) -> TableContext:
    """Two files with keys apart; values 0, 4, 8, ... and 2, 6, 10, ..."""
    context = make_table(path, COLUMNS, ["k"], options=options)
    for first in (0, 2):
        write(context, [row(1000 * first, i) for i in range(first, 40, 4)])
    return context


def row(base: int, i: int) -> dict[str, object]:
    return {"k": base + i, "v": None if i == 12 else f"v{i:02}", "n": i, "t": f"2024-01-01T00:00:{i:02}"}


def counts(context: TableContext, sql: str) -> tuple[int, ScanCounts]:
    predicate = parse_predicate(sql, context.schema)
    plan = plan_scan(context, context.snapshots.latest(), predicate)
    return sum(count_split(context, split, predicate) for split in plan.splits), plan.counts


def check(context: TableContext, files: int) -> None:
    for sql in ABSENT:
        assert counts(context, sql)[0] == 0
        assert counts(context, sql)[1].files_skipped_by_index == files, sql
    blind = TableContext.open(context.url, {"file-index.read.enabled": "false"})
    for sql in (*PRESENT, *ABSENT):
        assert counts(context, sql)[0] == counts(blind, sql)[0], sql
        assert counts(blind, sql)[1].files_skipped_by_index == 0


@pytest.mark.parametrize("options", [SMALL, BESIDE], ids=["embedded", "beside"])
@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_pruning(options: dict[str, str], file_format: str, tmp_path: Path) -> None:
    context = table(tmp_path / "t", {**options, "file.format": file_format})
    assert sum(name.endswith(".index") for name in data_files(context)) == (2 if options is BESIDE else 0)
    check(context, 2)
    assert counts(context, "v = 'v04'")[1].files_skipped_by_index == 1
    compact(context, strategy="full")
    check(context, 1)


def test_renamed_columns_are_found_by_their_old_name(tmp_path: Path) -> None:
    table(tmp_path / "t", SMALL)
    storage, root = storage_for_url(str(tmp_path / "t"))
    alter_table(TableContext(TablePlace(root, "t"), storage), [RenameColumn(("n",), "m")])
    context = TableContext.open(str(tmp_path / "t"))
    assert counts(context, "m = 21")[1].files_skipped_by_index == 2
    assert counts(context, "m = 4")[0] == 1


def test_index_files_go_with_a_failed_job_and_stay_with_kept_files(tmp_path: Path) -> None:
    context = table(tmp_path / "t", BESIDE)
    before = data_files(context)
    name = next(path for path in before if path.endswith(".parquet")).removeprefix("bucket-0/")
    stamp = name.removeprefix("data-")[:18].replace("-", "")
    assert delete_stamped_files(context, stamp, keep=[name]) == 0
    assert delete_stamped_files(context, stamp) == 2
    assert len(data_files(context)) == len(before) - 2


def test_a_missing_or_damaged_index_is_named(tmp_path: Path) -> None:
    context = table(tmp_path / "t", BESIDE)
    (first, *_) = sorted(path for path in data_files(context) if path.endswith(".index"))
    for damage in (b"", None):
        path = tmp_path / "t" / first
        path.unlink() if damage is None else path.write_bytes(damage)
        with pytest.raises(DamagedFile, match=path.name):
            counts(context, ABSENT[0])


def test_what_cannot_be_indexed_is_refused(tmp_path: Path) -> None:
    for number, (columns, error) in enumerate((("nope", UsageError), ("b", NotSupported))):
        options = {"file-index.bloom-filter.columns": columns}
        context = make_table(tmp_path / str(number), {"k": "INT NOT NULL", "b": "BOOLEAN"}, ["k"], options=options)
        with pytest.raises(error):
            write(context, [{"k": 1, "b": True}])


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("fpp", "0"),
        ("fpp", "1"),
        ("fpp", "-0.1"),
        ("fpp", "1.5"),
        ("fpp", "few"),
        ("items", "0"),
        ("items", "-1"),
        ("items", "x"),
    ],
)
def test_a_filter_that_no_size_could_give_is_refused_and_named(option: str, text: str, tmp_path: Path) -> None:
    key = f"file-index.bloom-filter.v.{option}"
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"file-index.bloom-filter.columns": "v", key: text})
    with pytest.raises(UsageError, match=f"{key}.*{text}"):
        write(context, [row(0, 1)])
    assert not data_files(context)


@pytest.mark.parametrize(
    ("items", "share", "sized"),
    [("10", "0.001", (10, 0.001)), (None, "0.5", (1_000_000, 0.5)), ("700", None, (700, 0.1)), (None, None, (1_000_000, 0.1))],
)
def test_a_filter_has_the_size_that_its_own_column_asks_for(
    items: str | None, share: str | None, sized: tuple[int, float], tmp_path: Path
) -> None:
    asked = {"v.items": items, "v.fpp": share, "n.items": "3", "n.fpp": "0.01"}
    options = {f"file-index.bloom-filter.{key}": text for key, text in asked.items() if text is not None}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"file-index.bloom-filter.columns": "v,n", **options})
    write(context, [row(0, 1)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (file,) = bucket.files
    stored = file.embedded_file_index or (tmp_path / "t" / "bucket-0" / file.extra_files[0]).read_bytes()
    found = {column: len(indexes["bloom-filter"] or b"") for column, indexes in decode_file_index(stored).items()}
    assert found == {"v": len(BloomFilter.sized(*sized).to_bytes()), "n": len(BloomFilter.sized(3, 0.01).to_bytes())}


def test_an_index_as_large_as_the_threshold_goes_into_the_manifest(tmp_path: Path) -> None:
    size = len(embedded_index(tmp_path / "first", "1 mb"))
    assert len(embedded_index(tmp_path / "as large", f"{size} b")) == size
    assert embedded_index(tmp_path / "larger", f"{size - 1} b") == b""


def embedded_index(path: Path, threshold: str) -> bytes:
    """The index in the manifest entry of a new file with filters; empty if the index is a file of its own."""
    context = make_table(path, COLUMNS, ["k"], options={**SMALL, "file-index.in-manifest-threshold": threshold})
    write(context, [row(0, 1)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (file,) = bucket.files
    assert file.extra_files == (() if file.embedded_file_index else (f"{file.file_name}.index",))
    return file.embedded_file_index or b""


def test_an_embedded_index_that_is_damaged_is_named_by_its_data_file(tmp_path: Path) -> None:
    context = table(tmp_path / "t", SMALL)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (column,) = [field for field in context.schema.fields if field.name == "v"]
    good = bucket.files[0].embedded_file_index
    assert good is not None
    bodies = decode_file_index(good)
    for damaged in (b"", good[:-1], encode_file_index({**bodies, "v": {"bloom-filter": b"x"}})):
        file = replace(bucket.files[0], embedded_file_index=damaged)
        with pytest.raises(DamagedFile, match=f"file index of {file.file_name} is damaged") as refused:
            FileIndexes(context, *bucket.bucket_id, file).may_hold(column, ["x"])
        assert refused.value.why and refused.value.hint == "read with --option file-index.read.enabled=false"


def test_a_column_without_a_body_is_never_ruled_out(tmp_path: Path) -> None:
    context = table(tmp_path / "t", SMALL)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (column,) = [field for field in context.schema.fields if field.name == "v"]
    without: list[Bodies] = [{}, {"v": {}}, {"v": {"bloom-filter": None}}, {"v": {"bsi": b"x"}}]
    for columns in without:
        file = replace(bucket.files[0], embedded_file_index=encode_file_index(columns))
        assert FileIndexes.has_any(file) and FileIndexes(context, *bucket.bucket_id, file).may_hold(column, ["nowhere"])
    assert not FileIndexes.has_any(replace(bucket.files[0], embedded_file_index=None, extra_files=("changelog-1.orc",)))


def test_what_java_wrote(tmp_path: Path) -> None:
    """Its rows are compared with the other goldens; here its index, where it wrote one."""
    context = TableContext.open(str(golden_table("java-0.9", "file_index_bloom", tmp_path)))
    rows, found = counts(context, "v = 'kn3j_charlie'")
    assert (rows, found.files_skipped_by_index) == (1, 0)


@pytest.mark.parametrize(("kind", "columns"), [("bsi", "n,t"), ("range-bitmap", "v,n,t")])
@pytest.mark.parametrize("threshold", ["500 b", "1 b"])
def test_indexes_of_numbers_rule_values_and_ranges_out(kind: str, columns: str, threshold: str, tmp_path: Path) -> None:
    """Statistics are off, so the indexes alone know the least and the greatest value."""
    options = {
        f"file-index.{kind}.columns": columns,
        "file-index.in-manifest-threshold": threshold,
        "metadata.stats-mode": "none",
    }
    context = table(tmp_path / "t", {**options, "write-only": "true"})
    absent: tuple[str, ...] = (
        "n IN (21, 23)",
        "t = TIMESTAMP '2024-01-01 00:00:21'",
        "n > 38",
        "n < 0",
        "t > TIMESTAMP '2024-01-01 00:00:38'",
    )
    present = ("n IN (1, 10)", "n > 36", "n <= 0", "n != 4", "t >= TIMESTAMP '2024-01-01 00:00:38'", "v = 'v04'", "v IS NULL")
    if kind == "range-bitmap":
        absent += ("v = 'v21'", "v > 'v38'", "v < 'v00'", "v LIKE 'w%'")
    blind = TableContext.open(context.url, {"file-index.read.enabled": "false"})
    for files in (2, 1):
        for sql in absent:
            found, seen = counts(context, sql)
            assert found == 0 and seen.files_skipped_by_index == files, sql
            assert counts(blind, sql)[1].files_skipped_by_index == 0
        for sql in present:
            assert counts(context, sql)[0] == counts(blind, sql)[0] > 0, sql
        assert not list(check_table(context, rows=True))
        compact(context, strategy="full")
    assert counts(blind, "n > 36")[0] == 1
