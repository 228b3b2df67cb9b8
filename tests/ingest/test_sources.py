"""Sources -> files -> splits: order, formats, and what is missing or unknown."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import paimon_cli.ingest.input_files
from paimon_cli.errors import BadInput, NotFound, UsageError
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import plan_sources
from paimon_cli.ingest.text_blocks import line_bounds
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.local_storage import LocalStorage
from tests.ingest.input_files import one_column, read_all


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("k,v\n")


def _names(folder: Path, *sources: str, format: str | None = None) -> list[str]:
    splits = plan_sources([str(folder / s) for s in sources], format)
    return [str(Path(split.path).relative_to(folder)) for split in splits]


def test_files_keep_their_order_and_globs_are_sorted(tmp_path: Path) -> None:
    _touch(tmp_path, "z.csv", "b2.csv", "b10.csv", "b1.csv", ".b0.csv", "a/x.csv", "a/y/x.csv")
    assert _names(tmp_path, "z.csv", "b*.csv") == ["z.csv", "b1.csv", "b10.csv", "b2.csv"]
    assert _names(tmp_path, "*/x.csv") == ["a/x.csv"]
    assert _names(tmp_path, "**/x.csv") == ["a/x.csv", "a/y/x.csv"]


@pytest.mark.parametrize("pattern", ["**", "**/*", "**/**", "**/**/*.csv", "[ab]*"])
def test_a_pattern_names_each_file_once(tmp_path: Path, pattern: str) -> None:
    """`**` matches a directory as well as what is in it, and two of them match a file in several ways."""
    _touch(tmp_path, "a/b/z.csv", "a/x.csv", "b.csv")
    assert _names(tmp_path, pattern) == ["a/b/z.csv", "a/x.csv", "b.csv"]
    assert _names(tmp_path, pattern, "b.csv") == ["a/b/z.csv", "a/x.csv", "b.csv", "b.csv"], "asked for twice"


@pytest.mark.parametrize("odd", range(6))
def test_rows_of_json_keep_their_order_whichever_block_is_read_line_by_line(
    tmp_path: Path, odd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By these numbers the last row of a key wins."""
    monkeypatch.setattr(PIECES, "json_block_bytes", 30)
    lines = [f'{{"k": 1, "v": "{number}"}}\n' for number in range(6)]
    lines[odd] = f" {lines[odd]}"
    (tmp_path / "r.json").write_text("".join(lines))
    found = read_all(IncomingRows(one_column("STRING")), tmp_path / "r.json")
    assert found["v"].to_pylist() == [*"012345"]
    assert (np.diff(found[SEQUENCE_NUMBER].to_numpy()) > 0).all()


def test_a_directory_stands_for_its_data_files(tmp_path: Path) -> None:
    _touch(tmp_path, "d/b.csv", "d/a.json", "d/_SUCCESS", "d/.hidden.csv", "d/notes.txt", "d/sub/c.ndjson", "d/_tmp/x.csv")
    assert _names(tmp_path, "d") == ["d/a.json", "d/b.csv", "d/sub/c.ndjson"]
    assert _names(tmp_path, "d", format="csv") == ["d/b.csv"]


def test_a_link_counts_as_its_target(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("k,v\n" + "1,x\n" * 50)
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert plan_sources([str(tmp_path / "link.csv"), str(tmp_path / "real.csv")], None)[1].order_base >= 50


def test_what_is_not_there(tmp_path: Path) -> None:
    _touch(tmp_path, "d/notes.txt")
    for source in ("missing.csv", "*.csv", "d", "missing/x.csv"):
        with pytest.raises(NotFound, match="no "):
            plan_sources([str(tmp_path / source)], None)


def test_formats_that_cannot_be_determined(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt", "a.parquet.gz")
    with pytest.raises(UsageError, match="cannot determine the format"):
        plan_sources([str(tmp_path / "a.txt")], None)
    with pytest.raises(UsageError, match="unknown input format 'xml'"):
        plan_sources([str(tmp_path / "a.txt")], "xml")
    with pytest.raises(UsageError, match="gzip"):
        plan_sources([str(tmp_path / "a.parquet.gz")], "parquet")
    assert plan_sources([str(tmp_path / "a.txt")], "CSV")[0].format == "csv"


def test_standard_input_is_spooled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"k": 1, "v": "x"}\n')

    monkeypatch.setattr("sys.stdin", Stdin)
    (split,) = plan_sources(["-"], "ndjson")
    assert split.name == "<stdin>"
    assert next(IncomingRows(one_column("STRING")).read(split, Tally())).num_rows == 1
    with pytest.raises(UsageError, match="format"):
        plan_sources(["-"], None)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """One that a directory holds may have no writer; a file that is named beside it is read as it is."""
    os.mkfifo(tmp_path / "rows.json")
    sent = subprocess.Popen(["sh", "-c", f"""echo '{{"k": 1, "v": "x"}}' > {tmp_path}/rows.json"""])
    (split,) = plan_sources([str(tmp_path / "rows.json")], None)
    assert sent.wait(60) == 0 and split.name == str(tmp_path / "rows.json")
    assert next(IncomingRows(one_column("STRING")).read(split, Tally())).num_rows == 1
    for source in (tmp_path, tmp_path / "*.json"):
        with pytest.raises(UsageError, match=r"rows\.json is a pipe"):
            plan_sources([str(source)], None)
    os.mkfifo(tmp_path / "63")
    with pytest.raises(UsageError, match="cannot determine the format"):
        plan_sources([str(tmp_path / "63")], None)


def test_a_pipe_of_a_shell_is_read_once() -> None:
    """`<(...)` is a link to a pipe, which has no second beginning."""
    reads, writes = os.pipe()
    os.write(writes, b'{"k": 1, "v": "x"}\n')
    os.close(writes)
    try:
        (split,) = plan_sources([f"/dev/fd/{reads}"], "json")
    finally:
        os.close(reads)
    assert next(IncomingRows(one_column("STRING")).read(split, Tally())).num_rows == 1


@pytest.mark.parametrize("form", ["parquet", "arrow", "orc"])
def test_standard_input_of_a_columnar_format(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    table = pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["x", "y"]})
    sink = io.BytesIO()
    if form == "arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        (pq if form == "parquet" else orc).write_table(table, sink)

    class Stdin:
        buffer = io.BytesIO(sink.getvalue())

    monkeypatch.setattr("sys.stdin", Stdin)
    (split,) = plan_sources(["-"], form)
    assert next(b for b in IncomingRows(one_column("STRING")).read(split, Tally()) if b.num_rows)["v"].to_pylist() == ["x", "y"]


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"k,v\n1,2\n")
    with pytest.raises(BadInput, match="not a readable parquet file"):
        plan_sources([str(tmp_path / "a.parquet")], None)


def test_parquet_splits_by_row_groups_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"k": pa.array(range(1000), pa.int32()), "v": ["x"] * 1000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=1000)
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0).total_byte_size
    monkeypatch.setattr(PIECES, "parquet_split_bytes", 3 * group + 10)
    splits = plan_sources([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], None)
    assert [(s.start, s.length, s.first_row, s.order_base) for s in splits] == [
        (0, 3, 0, 0),
        (3, 3, 300, 300),
        (6, 3, 600, 600),
        (9, 1, 900, 900),
        (0, 1, 0, 1000),
    ]
    rows = pa.Table.from_batches([b for s in splits for b in IncomingRows(one_column("STRING")).read(s, Tally())])
    assert rows["k"].to_pylist() == [*range(1000), *range(1000)]
    assert rows["_SEQUENCE_NUMBER"].to_pylist() == list(range(2000))


def test_json_splits_at_lines_with_exact_row_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "json_split_bytes", 200)
    lines = [json.dumps({"k": n, "v": "x" * (n % 50)}) + ("\r\n\n" if n % 7 == 0 else "\n") for n in range(60)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(lines) + '{"k": 60, "v": 5}')
    splits = plan_sources([str(path)], None)
    assert len(splits) > 5
    incoming = IncomingRows(one_column("STRING"))
    sizes = [sum(b.num_rows for b in incoming.read(s, Tally())) for s in splits[:-1]]
    assert [s.first_row for s in splits] == [0, *np.cumsum(sizes)]
    with pytest.raises(BadInput, match=r"row 61, column 'v' cannot take 5"):
        list(incoming.read(splits[-1], Tally()))
    orders = [n for s in splits[:-1] for b in incoming.read(s, Tally()) for n in b["_SEQUENCE_NUMBER"].to_pylist()]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("name", ["a.csv.gz", "a.json.gz"])
def test_gzipped_text(tmp_path: Path, name: str) -> None:
    content = "k,v\n" + "1,x\n" * 5000 if "csv" in name else '{"k": 1, "v": "x"}\n' * 5000
    (tmp_path / name).write_bytes(gzip.compress(content.encode()))
    (tmp_path / ("b" + name[1:])).write_bytes(gzip.compress(content.encode()))
    rows = read_all(IncomingRows(one_column("STRING")), tmp_path / "*.gz")
    orders = rows["_SEQUENCE_NUMBER"].to_pylist()
    assert len(orders) == 10000 and orders == sorted(set(orders))


def test_a_cut_gzip_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"k,v\n" + b"1,x\n" * 5000)[:-12])
    with pytest.raises(BadInput, match=r"a\.csv\.gz"):
        read_all(IncomingRows(one_column("STRING")), tmp_path / "a.csv.gz")


@pytest.mark.parametrize("block", [b"", b"\n\n", b"a", b"a\n", b"a\r\n\r\nbc\n\n d", b"\r", b"\na\n"])
def test_line_bounds(block: bytes) -> None:
    starts, ends = line_bounds(block)
    found = [block[s:e] for s, e in zip(starts, ends, strict=True)]
    assert found == [line.removesuffix(b"\r") for line in block.split(b"\n") if line.removesuffix(b"\r")]


def test_an_empty_directory_has_no_input(tmp_path: Path) -> None:
    (tmp_path / "nothing_today").mkdir()
    with pytest.raises(NotFound, match="no input files"):
        plan_sources([str(tmp_path / "nothing_today")], None)
    assert plan_sources([str(tmp_path / "nothing_today")], None, allow_empty=True) == []


def test_an_empty_directory_is_bad_input_not_a_damaged_table(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="cannot be read"):
        plan_sources([str(tmp_path / "empty")], "json")


def test_finding_a_file_asks_the_store_for_its_size_and_not_also_whether_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("k\n1\n")
    calls: list[str] = []

    class Counting(WrappedStorage):
        def before(self, call: str, path: str) -> None:
            calls.append(call)

    monkeypatch.setattr(paimon_cli.ingest.input_files, "storage_for_url", lambda url, options: (Counting(LocalStorage()), url))
    assert [split.size for split in plan_sources([str(tmp_path / "rows.csv")], None)] == [4]
    listings = {"list_directory", "first_entries"}  # also those that look for a table around the file
    assert [call for call in calls if call not in listings] == ["file_size", "open_input"]
    with pytest.raises(NotFound, match="no input at"):
        plan_sources([str(tmp_path / "absent.csv")], None)


def test_a_file_that_vanishes_from_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.csv").symlink_to(tmp_path / "gone.csv")
    for source in (str(tmp_path), f"{tmp_path}/*.csv"):
        with pytest.raises(NotFound, match=f"no input at {tmp_path}/b.csv"):
            plan_sources([source], None)
