"""`read --output`, `--order-by`, fields and NULLs: getting rows out of a table."""

from __future__ import annotations

import gzip
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from paimon_cli.cli.row_output import _with_a_sample
from paimon_cli.cli.text_view import WIDTH_SAMPLE_ROWS
from paimon_cli.jobs import export_job
from tests.cli.calling import Run
from tests.cli.test_data_commands import LOCAL, jsonl


@pytest.fixture
def table(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "t"
    columns = ("-C", "k INT NOT NULL", "-C", "s STRING", "-C", "r ROW<x INT, y STRING>", "-C", "`odd.name` DOUBLE")
    run("create", path, *columns, "--primary-key", "k", "--bucket", 2)
    rows: list[dict[str, object]] = [
        {"k": k, "s": s, "r": {"x": 9 - k, "y": s}, "odd.name": 1.0} for k, s in enumerate(["NULL", None, 'a "b",c', '"NULL"'])
    ]
    run("write", path, jsonl(tmp_path, *rows), *LOCAL)
    return path


def test_columns_are_as_wide_as_the_rows_of_all_buckets_need(run: Run, tmp_path: Path) -> None:
    run("create", tmp_path / "wide", "-C", "k INT NOT NULL", "-C", "s STRING", "--primary-key", "k", "--bucket", 5)
    run("write", tmp_path / "wide", jsonl(tmp_path, *({"k": k, "s": "x" * k} for k in range(1, 12))), *LOCAL)
    head, *lines = run("read", tmp_path / "wide", "-s", "s,k").out.splitlines()
    assert len(head) == 11 + len("   k") and {len(line) for line in lines[:-1]} == {len(head)}


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.ndjson", "o.jsonl.zst", "o.json"])
def test_a_text_file_holds_what_is_printed(run: Run, table: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    form = "csv" if "csv" in name else "ndjson"
    summary = run("read", table, "--output", target, "-o", "json").json["item"]
    assert (summary["rows"], summary["size"], len(summary["files"])) == (4, target.stat().st_size, 1)
    with pa.input_stream(str(target), compression="detect" if name.endswith((".gz", ".zst")) else None) as stream:
        assert stream.read().decode() == run("read", table, "-o", form).out
    assert not list(tmp_path.glob(".*.tmp"))


def test_arrow_and_parquet_files(run: Run, table: Path, tmp_path: Path) -> None:
    run("read", table, "-s", "k,r.x", "--row-kind", "--order-by", "r.x", "--output", tmp_path / "o.arrow")
    rows = pa.ipc.open_file(tmp_path / "o.arrow").read_all()
    assert rows.column_names == ["rowkind", "k", "r.x"] and rows["k"].to_pylist() == [3, 2, 1, 0]
    run("read", table, "-w", "k > 1", "--output", tmp_path / "noname", "--format", "parquet")
    assert sorted(pq.read_table(tmp_path / "noname")["k"].to_pylist()) == [2, 3]
    run("read", table, "-w", "FALSE", "--output", tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").schema.names == ["k", "s", "r", "odd.name"]


@pytest.mark.parametrize("name", ["o.arrow", "o.feather", "o.parquet", "o.ndjson.zst"])
def test_write_accepts_what_read_writes(run: Run, table: Path, tmp_path: Path, name: str) -> None:
    run("read", table, "--output", tmp_path / name)
    run("create", tmp_path / "again", "--from-file", tmp_path / name, "--primary-key", "k", "--bucket", 2)
    run("write", tmp_path / "again", tmp_path / name, "--engine", "local")
    assert run("read", tmp_path / "again", "-o", "ndjson").out == run("read", table, "-o", "ndjson").out


def test_a_limit_beyond_every_index_means_all(run: Run, table: Path) -> None:
    huge = "9" * 20
    assert run("read", table, "-l", huge, "-o", "ndjson").out == run("read", table, "-o", "ndjson").out
    assert len(run("read", table, "-l", huge, "--order-by", "k", "-o", "ndjson").lines) == 4
    assert run("read", table, "-l", huge, "--count").out == "4\n"
    assert len(run("snapshots", "ls", table, "-l", huge, "-o", "json").json["items"]) == 1
    assert run("files", "ls", table, "-l", huge, "-o", "json").json["items"]


def test_existing_files_are_kept_without_force(run: Run, table: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "o.csv", tmp_path / "link.csv"
    target.write_text("precious")
    link.symlink_to(target)
    assert run("read", table, "--output", target, code=2).err.splitlines()[-1] == "hint: --force replaces it"
    assert target.read_text() == "precious"
    run("read", table, "--output", link, "--force", "-s", "k")
    assert link.is_symlink() and target.read_text().startswith("k\n")
    assert "not a regular file" in run("read", table, "--output", "/dev/null", "--format", "csv", "--force", code=2).err
    assert "cannot write" in run("read", table, "--output", tmp_path / "missing" / "o.csv", code=2).err


def test_nothing_stays_of_an_output_that_fails(run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out" / "o.csv"
    target.parent.mkdir()
    run("read", table, "--order-by", "1 / k", "--output", target, code=2)
    assert not list(target.parent.iterdir())
    target.write_text("precious")
    run("read", table, "--order-by", "1 / k", "--output", target, "--force", code=2)
    assert [path.name for path in target.parent.iterdir()] == ["o.csv"] and target.read_text() == "precious"


def test_a_directory_of_files_with_a_size(run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_job, "MIN_FILE_SIZE", 1)
    target = tmp_path / "out"
    summary = run("read", table, "--output", f"{target}/", "--file-size", "1 b", "--format", "csv", "-o", "json").json["item"]
    assert sum(file["rows"] for file in summary["files"]) == 4 and len(summary["files"]) == len(list(target.iterdir())) == 2
    read = [pa.csv.read_csv(path)["k"].to_pylist() for path in sorted(target.iterdir())]
    assert sorted(k for keys in read for k in keys) == [0, 1, 2, 3]
    assert "is not empty" in run("read", table, "--output", target, code=2).err
    assert "is a single file" in run("read", table, "--output", tmp_path / "o.csv", "--file-size", "1 mb", code=2).err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--output", "rows"), "cannot tell the format of rows"),
        (("--output", "o.parquet.gz"), "not compressed as a whole"),
        (("--force",), "they apply only to output files"),
        (("--count", "--output", "o.csv"), "choose one of"),
        (("--order-by", "k", "--count"), "cannot be combined with --count"),
        (("--order-by", "k", "--output-path", "d"), "cannot be combined with --output-path"),
        (("--output", "d/", "--file-size", "1 b"), "the minimum is 64.0 kB"),
        (("-n", "3"), "-l N shows at most N rows"),
    ],
)
def test_contradictions(run: Run, table: Path, options: tuple[str, ...], reason: str) -> None:
    assert reason in run("read", table, *options, code=2).err


def test_fields_are_selected_compared_and_ordered(run: Run, table: Path, tmp_path: Path) -> None:
    found = run("read", table, "-s", "r.x,`odd.name`,r.y", "-w", "r.x + 1 > 7", "--order-by", "r.x", "-o", "ndjson").lines
    assert [tuple(row.items()) for row in found[:1]] == [(("r.x", 7), ("odd.name", 1.0), ("r.y", 'a "b",c'))]
    assert [row["r.x"] for row in found] == [7, 8, 9]
    run("read", table, "-s", "r.y", "--output-path", tmp_path / "d", *LOCAL)
    assert pq.read_table(tmp_path / "d").column_names == ["r.y"]
    assert "no field 'z' in r" in run("read", table, "-s", "r.z", code=2).err
    assert "selected twice" in run("read", table, "-s", "r.x,k,r.x", code=2).err


def test_null_and_the_text_null_differ_in_tables(run: Run, table: Path) -> None:
    shown = run("read", table, "-s", "s", "--order-by", "k").out.splitlines()
    assert shown == ["s", '"NULL"', "NULL", 'a "b",c', '""NULL""', "4 rows"]
    assert run("read", table, "-s", "s,k", "--order-by", "k", "-l", 1, "--vertical").out.splitlines() == [
        "-- 1 --",
        's  "NULL"',
        "k  0",
        "1 row",
    ]


def test_limits_of_listings(run: Run, table: Path) -> None:
    assert len(run("files", "ls", table, "-l", 1, "-o", "json").json["items"]) == 1
    assert run("files", "ls", table, "--limit", 1).out.splitlines()[-1].startswith("the first 1 of 2 files")
    assert len(run("snapshots", "ls", table, "-l", 1, "-o", "json").json["items"]) == 1


def test_gz_is_what_others_read(run: Run, table: Path, tmp_path: Path) -> None:
    run("read", table, "-s", "k", "--output", tmp_path / "o.csv.gz")
    assert gzip.decompress((tmp_path / "o.csv.gz").read_bytes()).startswith(b"k\n")


def test_nothing_is_written_into_a_table(run: Run, table: Path, tmp_path: Path) -> None:
    before = sorted(path for path in table.rglob("*"))
    snapshot = (table / "snapshot" / "snapshot-1").read_bytes()
    for arguments in (
        ("--output", table / "snapshot" / "snapshot-1", "--format", "csv", "--force"),
        ("--output", f"{table}/mine/", "--format", "csv"),
        ("--output-path", table / "bucket-0" / "mine"),
    ):
        assert f"is inside the table {table}" in run("read", table, *arguments, code=2).err
    assert sorted(path for path in table.rglob("*")) == before
    assert (table / "snapshot" / "snapshot-1").read_bytes() == snapshot


@pytest.mark.in_part(2)
@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "ndjson"])
def test_rows_go_to_standard_output_in_any_format(table: Path, tmp_path: Path, form: str) -> None:
    call = [sys.executable, "-m", "paimon_cli", "read", str(table), "-s", "k,s", "--order-by", "k", "--output", "-"]
    printed = subprocess.run([*call, "--format", form], capture_output=True, check=True, cwd=tmp_path)
    readers = {
        "parquet": lambda source: pq.read_table(source),
        "arrow": lambda source: pa.ipc.open_file(source).read_all(),
        "csv": lambda source: pa.csv.read_csv(source),
        "ndjson": lambda source: pa.json.read_json(source),
    }
    assert readers[form](pa.BufferReader(printed.stdout))["k"].to_pylist() == [0, 1, 2, 3]
    assert printed.stderr == b"" and not (tmp_path / "-").exists()


def test_standard_output_needs_a_format(run: Run, table: Path) -> None:
    assert run("read", table, "--output", "-", code=2).err.splitlines()[-1] == "hint: add --format csv, or another"


def test_reads_that_do_not_run_on_spark_report_it(run: Run, table: Path) -> None:
    for arguments in (("--engine", "spark"), ("--master", "local[1]"), ("--spark-conf", "spark.a=b")):
        shown = run("read", table, "--count", *arguments)
        assert shown.out == "4\n" and shown.err.startswith("warning: only `read --output-path` runs on Spark")
    assert run("read", table, "--count", "--engine", "local").err == ""


@pytest.mark.parametrize("sizes", [[], [1], [WIDTH_SAMPLE_ROWS, 1], [1, WIDTH_SAMPLE_ROWS, 2, 3], [2, 3]])
def test_what_follows_the_sample_is_shown_too(sizes: list[int]) -> None:
    """Column widths are chosen by the first rows: these are one batch, and the others follow as they came."""
    numbers = iter(range(sum(sizes)))
    batches = [pa.record_batch({"n": pa.array(islice(numbers, size), pa.int64())}) for size in sizes]
    shown = list(_with_a_sample(iter(batches)))
    assert [number for batch in shown for number in batch.column("n").to_pylist()] == list(range(sum(sizes)))
    if len(sizes) > 1:
        assert shown[0].num_rows == min(sum(sizes), WIDTH_SAMPLE_ROWS + (sizes[0] if sizes[0] < WIDTH_SAMPLE_ROWS else 0))
