"""Parts of data files: the numbers of their rows, and damage that is seen whatever part is read."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.data_file_reader import WHOLE, FilePart, _only_value, read_data_file, read_part
from paimon_cli.bucket.parquet_chunks import footer_bytes
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.compact_thrift import decode, encode
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.parquet_footer import closed
from tests.tables import make_table, write

ROWS = 10


def stored(folder: Path, keys: tuple[str, ...] = ("k",), **options: str) -> tuple[TableContext, BucketId, DataFileMeta, Path]:
    """A table of `ROWS` rows, its file, and where that is."""
    texts = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    context = make_table(folder / "t", {"k": "BIGINT NOT NULL", "v": "STRING"}, keys, (), 1 if keys else -1, texts)
    write(context, [{"k": 1_000_000 + number, "v": f"v{number}"} for number in range(ROWS)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (file,) = bucket.files
    return context, bucket.bucket_id, file, Path(context.data_file_path(*bucket.bucket_id, file))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("batch_rows", [3, 100])
def test_rows_have_the_ids_of_their_positions_in_the_file(tmp_path: Path, file_format: str, batch_rows: int) -> None:
    context, bucket_id, file, path = stored(tmp_path, (), row_tracking__enabled="true", file__format=file_format)
    if file_format == "parquet":
        pq.write_table(pq.read_table(path), path, row_group_size=4)
    numbered = replace(file, first_row_id=50)
    batches = list(read_data_file(context, bucket_id, numbered, ["k", "_ROW_ID"], batch_rows))
    found = pa.Table.from_batches(batches).to_pydict()
    assert found == {"k": [1_000_000 + n for n in range(ROWS)], "_ROW_ID": [50 + n for n in range(ROWS)]}
    if file_format == "parquet":
        part = FilePart(keeps=lambda _, group: group != 1)
        later = [
            row for _, batch in read_part(context, bucket_id, numbered, ["_ROW_ID"], batch_rows, part) for row in batch["_ROW_ID"]
        ]
        assert [row.as_py() for row in later] == [50, 51, 52, 53, 58, 59]


@pytest.mark.parametrize("said", [(1, ROWS - 1), (0, ROWS - 2), (4, 5), (ROWS, 2 * ROWS)])
def test_sequence_numbers_of_each_row_group_are_within_the_recorded_ones(tmp_path: Path, said: tuple[int, int]) -> None:
    """As footers say, where they are not read."""
    context, bucket_id, file, path = stored(tmp_path)
    pq.write_table(pq.read_table(path), path, row_group_size=3)
    right = FilePart(sequences=(0, ROWS - 1))
    assert sum(batch.num_rows for _, batch in read_part(context, bucket_id, file, ["k"], 100, right)) == ROWS
    with pytest.raises(DamagedFile, match="sequence numbers"):
        list(read_part(context, bucket_id, file, ["k"], 100, FilePart(sequences=said)))


@pytest.mark.parametrize("part", [WHOLE, FilePart(is_alone=True), FilePart(keeps=lambda _, group: group == 0)])
def test_a_page_with_another_checksum_is_damage_in_every_part(tmp_path: Path, part: FilePart) -> None:
    context, bucket_id, file, path = stored(tmp_path, file__compression="none")
    assert sum(batch.num_rows for _, batch in read_part(context, bucket_id, file, ["k"], 100, part)) == ROWS
    content = bytearray(path.read_bytes())
    at = content.rindex((1_000_004).to_bytes(8, "little") + (1_000_005).to_bytes(8, "little"))
    content[at] += 1  # of column k, which is after the copy of it that is its key
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"[Cc]hecksum|CRC"):
        list(read_part(context, bucket_id, file, ["k"], 100, part))


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_keys_that_a_file_does_not_repeat_come_from_its_columns(tmp_path: Path, file_format: str) -> None:
    context, bucket_id, file, path = stored(tmp_path, file__format=file_format)
    if file_format == "parquet":
        pq.write_table(pq.read_table(path).drop("_KEY_k"), path)
    else:
        orc.write_table(orc.read_table(path).drop("_KEY_k"), path)
    numbers = [1_000_000 + number for number in range(ROWS)]
    found = pa.Table.from_batches(
        read_data_file(context, bucket_id, replace(file, file_size=path.stat().st_size), ["_KEY_k", "k"], 4)
    )
    assert found.to_pydict() == {"_KEY_k": numbers, "k": numbers}


@pytest.mark.parametrize(
    ("values", "value"), [([2, 2], 2), ([0, 0], 0), ([0, 1], None), ([2, None], None), ([None, None], None), ([], None)]
)
def test_the_only_value_of_a_chunk_is_known_if_its_statistics_show_that_there_is_no_other(
    values: list[int | None], value: int | None
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"kind": pa.array(values, pa.int8())}), sink)
    if values:
        assert _only_value(pq.read_metadata(sink).row_group(0).column(0).statistics) == value
        fields = decode(footer_bytes(sink))
        fields.elements(4)[0].elements(1)[0].required(3).required(12).pop(3)
        uncounted = io.BytesIO(closed([], encode(fields)))
        assert _only_value(pq.read_metadata(uncounted).row_group(0).column(0).statistics) is None
    assert _only_value(None) is None
