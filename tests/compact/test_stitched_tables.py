"""Compactions of append tables that copy row groups: the same rows and metadata as if all had been decoded, and when they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.data_file_writer import CopiedFile, DataFileWriter
from paimon_cli.bucket.file_indexes import FileIndexes
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES
from tests.goldens import golden_table
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT", "t": "STRING", "f": "DOUBLE", "n": "FLOAT", "d": "DECIMAL(20, 3)", "a": "ARRAY<INT>", "ts": "TIMESTAMP(6)"}
BLOOM = {"file-index.bloom-filter.columns": "k,t", "file-index.bloom-filter.k.items": "100"}


def given(first: int) -> list[dict[str, Any]]:
    return [
        {
            "k": None if n % 5 == 0 else n,
            "t": f"text {'x' * (n % 40)}",
            "f": "NaN" if n == 107 else None if 200 <= n < 300 else n / 8,
            "n": None,
            "d": f"{n}.125",
            "a": [n, None],
            "ts": f"2020-01-01T00:00:{n % 60:02}.000001",
        }
        for n in range(first, first + 20)
    ]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row counts of the files that were copied; files of any size are copied."""
    counts: list[int] = []
    real = DataFileWriter.copy

    def watched(self: DataFileWriter, file: CopiedFile, first_sequence: int) -> None:
        counts.append(file.stored.rows)
        real(self, file, first_sequence)

    monkeypatch.setattr(DataFileWriter, "copy", watched)
    for name in ("min_group_bytes", "min_compacted_group_bytes", "min_chunk_bytes"):
        monkeypatch.setattr(PIECES, name, 0)
    return counts


def written(folder: Path, times: int = 3, options: Mapping[str, str] | None = None, bucket: int = -1) -> TableContext:
    keyed = {"bucket-key": "t"} if bucket > 0 else {}
    context = make_table(folder, COLUMNS, [], bucket=bucket, options={**keyed, **(options or {})})
    for number in range(times):
        write(context, given(100 * number))
    return context


def files(context: TableContext) -> list[DataFileMeta]:
    return [f for bucket in bucket_files(context, context.snapshots.latest()).values() for f in bucket.files]


def in_order(context: TableContext) -> list[Any]:
    found = bucket_files(context, context.snapshots.latest()).values()
    return [k for bucket in found for batch in read_bucket(context, bucket, ["d"]) for k in batch.column(0).to_pylist()]


def with_options(context: TableContext, changed: Mapping[str, str]) -> TableContext:
    return context.redefined(options=TableOptions({**context.options.raw, **changed}))


def groups(context: TableContext) -> list[int]:
    """Rows of the row groups of all live files."""
    found = [pq.read_metadata(Path(context.layout.root) / name) for name in sorted(live_files(context))]
    return [footer.row_group(group).num_rows for footer in found for group in range(footer.num_row_groups)]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("bucket", [-1, 1])
@pytest.mark.parametrize("mode", ["truncate(16)", "full", "counts", "none"])
def test_metadata_is_that_of_a_file_with_the_same_rows(
    bucket: int, mode: str, copied: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for name, least in (("copied", 0), ("decoded", 1 << 40)):
        monkeypatch.setattr(PIECES, "min_group_bytes", least)
        context = written(tmp_path / name, options={"metadata.stats-mode": mode, **BLOOM}, bucket=bucket)
        before, order = rows(context), in_order(context)
        assert compact(context).files_after == 1
        assert rows(context) == before and (bucket < 0 or in_order(context) == order)
        (file,) = files(context)
        assert file.row_count == pq.read_metadata(tmp_path / name / next(iter(live_files(context)))).num_rows == 60
        filters = FileIndexes(context, b"", 0, file)
        assert all(filters.may_hold(context.schema.field("k"), [n]) == (n % 5 != 0) for n in range(100, 110))
        made.append(replace(file, file_name="", file_size=0, creation_time_millis=0, extra_files=()))
    assert made[0] == made[1] and copied == [20, 20, 20]


def test_a_table_of_small_commits_is_copied_once_and_decoded_then(
    copied: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PIECES, "min_compacted_group_bytes", 1 << 20)
    context = written(tmp_path / "t")
    compact(context)
    assert groups(context) == [20, 20, 20] and copied == [20, 20, 20]
    write(context, given(500))
    before = rows(context)
    compact(context)
    assert sorted(groups(context)) == [20, 60] and copied[3:] == [20]
    assert rows(context) == before


def test_small_row_groups_are_decoded_together(copied: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = written(tmp_path / "t")
    monkeypatch.setattr(PIECES, "min_chunk_bytes", 1 << 20)
    compact(context)
    assert groups(context) == [60] and copied == []


def test_rows_that_are_decoded_in_many_batches_are_numbered_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = written(tmp_path / "t", bucket=1)
    before = in_order(context)
    monkeypatch.setattr(PIECES, "min_group_bytes", 1 << 40)
    monkeypatch.setattr(PIECES, "batch_rows", 7)
    compact(context)
    (file,) = files(context)
    assert (file.row_count, file.min_sequence_number, file.max_sequence_number) == (60, 0, 59)
    assert in_order(context) == before


def test_files_of_an_older_schema_are_decoded(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t", 2)
    newer = replace(context.schema, id=1, fields=context.schema.fields[:-1])
    (tmp_path / "t" / "schema" / "schema-1").write_text(newer.to_json())
    context = TableContext.open(str(tmp_path / "t"))
    write(context, [{name: value for name, value in row.items() if name != "ts"} for row in given(700)])
    before = rows(context)
    compact(context)
    assert rows(context) == before and copied == [20] and files(context)[0].schema_id == 1


def test_another_codec_is_what_the_table_asks_for(copied: list[int], tmp_path: Path) -> None:
    context = with_options(written(tmp_path / "t", 2), {"file.compression": "snappy"})
    write(context, given(800))
    compact(context)
    (name,) = live_files(context)
    footer = pq.read_metadata(tmp_path / "t" / name)
    assert copied == [20] and {footer.row_group(n).column(0).compression for n in range(footer.num_row_groups)} == {"SNAPPY"}


def test_filters_that_are_missing_are_made_from_the_rows(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t", 2)
    asked = with_options(context, {"file-index.bloom-filter.columns": "t"})
    write(asked, given(900))
    compact(asked)
    (file,) = files(asked)
    filters = FileIndexes(asked, b"", 0, file)
    held = [filters.may_hold(asked.schema.field("t"), [text]) for text in ("text ", "text xx", "absent")]
    assert held == [True, True, False] and copied == [20]


def test_filters_that_are_damaged_are_made_from_the_rows(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t", options={"file-index.bloom-filter.columns": "t"})
    first, second, _ = (tmp_path / "t" / "bucket-0").glob("*.index")
    first.write_bytes(b"damaged")
    second.unlink()
    before = rows(context)
    compact(context)
    assert rows(context) == before and copied == [20]
    assert FileIndexes(context, b"", 0, files(context)[0]).may_hold(context.schema.field("t"), ["text xx"])


@pytest.mark.parametrize("rows_of_a_file", [20, 25, 30, 40, 45])
def test_new_files_have_the_rows_that_the_table_asks_for(rows_of_a_file: int, copied: list[int], tmp_path: Path) -> None:
    context = with_options(written(tmp_path / "t", 4), {"target-file-row-num": str(rows_of_a_file)})
    before = rows(context)
    compact(context)
    counts = [file.row_count for file in files(context)]
    assert sum(counts) == 80 and max(counts) <= rows_of_a_file and copied == [20] * 4 and rows(context) == before


def test_groups_with_more_rows_than_a_file_may_have_are_cut(copied: list[int], tmp_path: Path) -> None:
    context = with_options(written(tmp_path / "t", 3), {"target-file-row-num": "15"})
    compact(context)
    assert max(file.row_count for file in files(context)) == 15 and copied == []


def test_one_group_with_more_rows_than_a_file_may_have_is_cut(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t", 1)
    write(context, given(100)[:10])
    compact(context)
    assert sorted(groups(context)) == [10, 20] and len(files(context)) == 1
    context, before = with_options(context, {"target-file-row-num": "15"}), rows(context)
    write(context, given(200)[:1])
    compact(context)
    assert max(file.row_count for file in files(context)) <= 15
    assert len(rows(context)) == len(before) + 1


def test_new_files_are_of_the_size_that_the_table_asks_for(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t", 6)
    size = max(file.file_size for file in files(context))
    wide = with_options(
        context, {"target-file-size": f"{2 * size} b", "compaction.small-file-ratio": "1", "source.split.open-file-cost": "0"}
    )
    before = rows(wide)
    compact(wide)
    assert 1 < len(files(wide)) < 6 and rows(wide) == before
    assert sum(file.max_sequence_number + 1 - file.min_sequence_number for file in files(wide)) == 120
    assert len(copied) >= 4


def test_row_groups_do_not_exceed_what_readers_can_number(
    copied: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_cli.bucket.stitched_files.MAX_GROUPS", 4)
    context = written(tmp_path / "t", 7)
    before = rows(context)
    compact(context)
    counts = [file.row_count // 20 for file in files(context)]
    assert sum(counts) == 7 and max(counts) <= 4 and rows(context) == before


def foreign(context: TableContext, chosen: int) -> None:
    """Give some files the form of another writer, with the same rows and of the recorded size."""
    for name in sorted(live_files(context))[:chosen]:
        path = Path(context.layout.root) / name
        pq.write_table(pq.read_table(path), path, compression="zstd", store_schema=True)


@pytest.mark.parametrize(("chosen", "expected"), [(3, [20, 20, 20]), (2, [20]), (1, [20, 20])])
def test_files_of_another_writer_are_copied_unless_they_are_mixed(
    chosen: int, expected: list[int], copied: list[int], tmp_path: Path
) -> None:
    context = written(tmp_path / "t")
    foreign(context, chosen)
    before = rows(context)
    compact(context)
    assert rows(context) == before and copied == expected and len(files(context)) == 1


def test_other_formats_are_decoded(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t", 2)
    mixed = with_options(context, {"file.format": "orc"})
    write(mixed, given(300))
    before = rows(context)
    compact(with_options(context, {"file.format": "avro"}))
    assert rows(context) == before and copied == []
    for number in (4, 5):
        write(mixed, given(100 * number))
    compact(context)
    assert rows(context) != before and copied == [] and len(files(context)) == 1


@pytest.mark.parametrize("damage", ["cut", "gone", "other rows", "no Parquet"])
def test_damaged_files_end_the_compaction_and_leave_nothing(damage: str, copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t")
    path = tmp_path / "t" / sorted(live_files(context))[0]
    before = data_files(context)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "gone":
        path.unlink()
    elif damage == "no Parquet":
        path.write_bytes(b"x" * 2000)
    else:
        pq.write_table(pq.read_table(path).slice(1), path, compression="zstd", store_schema=False)
    with pytest.raises(DamagedFile):
        compact(context)
    assert data_files(context) == before - ({str(path.relative_to(tmp_path / "t"))} if damage == "gone" else set())


def test_a_damaged_page_is_copied_with_its_checksum_and_reported_by_the_next_read(copied: list[int], tmp_path: Path) -> None:
    context = written(tmp_path / "t")
    path = tmp_path / "t" / sorted(live_files(context))[0]
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    compact(context)
    assert len(copied) == 3
    with pytest.raises(DamagedFile, match="CRC"):
        rows(context)


def test_ten_rounds_of_writes_and_compactions_have_few_row_groups(
    copied: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PIECES, "min_compacted_group_bytes", 1 << 20)
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"compaction.min.file-num": "2"})
    for number in range(10):
        write(context, given(100 * number))
        compact(context, strategy="minor")
        assert len(groups(context)) <= 3
    assert sum(groups(context)) == 200 and len(rows(context)) == 200


@pytest.mark.parametrize(
    ("writer", "name", "expected"),
    [
        ("java-0.9", "append_fixed", 6),
        ("java-0.9", "append_unaware", 3),
        ("java-1.4", "append", 15),
        ("pypaimon-2.1", "append", 2),
        ("rust-0.4", "append", 2),
    ],
)
def test_tables_of_others_are_put_together_without_decoding(
    writer: str, name: str, expected: int, copied: list[int], tmp_path: Path
) -> None:
    context = TableContext.open(str(golden_table(writer, name, tmp_path)))
    before, count = rows(context), len(live_files(context))
    compact(context)
    assert rows(TableContext.open(context.url)) == before and len(live_files(context)) < count
    assert len(copied) == expected
