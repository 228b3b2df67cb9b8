"""Keys looked up in files of several levels, beside plain dictionaries."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from paimon_cli.bucket import key_lookup
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import NO_VECTORS, BucketVectors
from paimon_cli.bucket.key_lookup import ABSENT, find_keys, rows_at
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, DataFileMeta
from paimon_cli.metadata.index_files import DeletionVector
from tests.bucket.canonical_values import values
from tests.tables import make_table, write

BUCKET = BucketId(EMPTY_ROW, 0)
KEYS: dict[str, tuple[str, ...]] = {
    "bigint": ("BIGINT",),
    "string": ("STRING",),
    "narrow": ("TINYINT", "BOOLEAN", "SMALLINT"),
    "times": ("DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    "decimals": ("DECIMAL(5, 2)", "DECIMAL(18, 0)", "DECIMAL(30, 4)"),
    "floats": ("FLOAT", "DOUBLE"),
    "bytes": ("BYTES", "CHAR(3)", "BINARY(4)"),
    "tenant": ("INT", "STRING", "BIGINT"),
}
BEFORE_1970 = re.compile(r"(0\d|1[0-8]|19[0-6])\d*-\d\d-")
"""Times that ORC holds in whole milliseconds only."""
FORMATS = ("parquet", "orc", "avro")
QUICK = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
"""Shrinking would take minutes: an example writes a table."""


def table_of(folder: Path, types: Sequence[str], file_format: str = "parquet", **options: str) -> TableContext:
    columns = {f"k{number}": f"{text} NOT NULL" for number, text in enumerate(types)}
    wanted = {"write-only": "true", "file.format": file_format, **options}
    return make_table(folder, {**columns, "v": "STRING"}, list(columns), options=wanted)


def written(context: TableContext, rows: Sequence[dict[str, Any]], level: int) -> list[DataFileMeta]:
    """The files of one commit with these rows, as if they had been compacted to the level."""
    write(context, rows)
    latest = context.snapshots.latest()
    assert latest is not None
    return [entry.file.upgraded(level) for entry in context.manifests.delta_entries(latest)]


def read(context: TableContext, file: DataFileMeta, columns: Sequence[str]) -> pa.Table:
    return pa.Table.from_batches(read_data_file(context, BUCKET, file, columns, 1000))


def key_texts(context: TableContext, table: pa.Table) -> list[str]:
    fields = context.schema.fields_of(context.schema.trimmed_primary_keys)
    return [json.dumps(row) for batch in table.to_batches() for row in canonical_rows(batch, fields)]


def asked_for(context: TableContext, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The keys of these rows in key order, each once."""
    names = context.schema.trimmed_primary_keys
    return pa.concat_tables([read(context, file, names) for file in written(context, rows, 1)])


def places(
    context: TableContext, files: Sequence[DataFileMeta], keys: pa.Table, vectors: BucketVectors = NO_VECTORS
) -> dict[str, tuple[int, int]]:
    """What `find_keys` finds, by key."""
    found = find_keys(context, BUCKET, files, keys, vectors)
    texts = key_texts(context, keys)
    assert len(found.file) == len(found.position) == len(texts)
    there = zip(texts, found.file.tolist(), found.position.tolist(), strict=True)
    return {text: (file, position) for text, file, position in there if file != ABSENT}


def expected(
    context: TableContext, files: Sequence[DataFileMeta], keys: pa.Table, vectors: BucketVectors = NO_VECTORS
) -> dict[str, tuple[int, int]]:
    """The same with a dictionary of every row."""
    holders: dict[str, tuple[int, int]] = {}
    for number in sorted(range(len(files)), key=lambda number: -files[number].level):
        marked = vectors.of(files[number].file_name)
        for position, text in enumerate(key_texts(context, read(context, files[number], context.schema.trimmed_primary_keys))):
            if marked is None or position not in marked.positions:
                holders[text] = (number, position)
    return {text: holders[text] for text in key_texts(context, keys) if text in holders}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("types", KEYS.values(), ids=KEYS)
@QUICK
@given(data=st.data())
def test_the_same_as_a_dictionary(types: tuple[str, ...], file_format: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = table_of(Path(folder) / "t", types, file_format, **{"target-file-row-num": "7"})
        key = {field.name: values(field.type) for field in context.schema.fields if field.name != "v"}
        unique = partial(json.dumps, sort_keys=True)
        keys = data.draw(st.lists(st.fixed_dictionaries(key), min_size=2, max_size=40, unique_by=unique))
        if file_format == "orc":
            keys = [row for row in keys if not any(BEFORE_1970.match(str(value)) for value in row.values())]
        chance = random.Random(len(keys))
        files: list[DataFileMeta] = []
        for level in (1, 3, 5):
            chosen = chance.sample(keys, chance.randint(0, len(keys)))
            files += written(context, [{**row, "v": f"level {level}"} for row in chosen], level) if chosen else []
        if not keys or not files:
            return
        wanted = asked_for(context, chance.sample(keys, chance.randint(1, len(keys))))
        kind = chance.choice([BitMap, BitMap64])
        vectors = BucketVectors(
            {
                file.file_name: DeletionVector(kind(chance.sample(range(file.row_count), chance.randint(0, file.row_count))))
                for file in files
                if chance.random() < 0.5
            }
        )
        assert places(context, files, wanted) == expected(context, files, wanted)
        assert places(context, files, wanted, vectors) == expected(context, files, wanted, vectors)
        assert places(context, [], wanted) == {}
        assert places(context, files, wanted.slice(0, 0)) == {}


def numbers(context: TableContext, count: int, step: int = 2, level: int = 5) -> list[DataFileMeta]:
    return written(context, [{"k0": step * number, "v": f"row {number}"} for number in range(count)], level)


def keys_of(*wanted: int) -> pa.Table:
    return pa.table({"k0": pa.array(wanted, pa.int64())})


def test_a_lower_level_shadows_a_higher_one_unless_its_row_is_marked(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"])
    files = [*numbers(context, 10, level=5), *numbers(context, 3, step=6, level=2)]
    assert places(context, files, keys_of(5, 6, 8)) == {'{"k0": 6}': (1, 1), '{"k0": 8}': (0, 4)}
    marked = BucketVectors({files[1].file_name: DeletionVector(BitMap([1]))})
    assert places(context, files, keys_of(6), marked) == {'{"k0": 6}': (0, 3)}


def test_files_without_a_key_in_their_range_are_not_opened(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"], **{"target-file-row-num": "10"})
    files = numbers(context, 30)
    (tmp_path / "t" / "bucket-0" / files[1].file_name).unlink()
    assert places(context, files, keys_of(4, 50)) == {'{"k0": 4}': (0, 2), '{"k0": 50}': (2, 5)}
    with pytest.raises(DamagedFile, match="missing"):
        places(context, files, keys_of(4, 31, 50))


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_at_positions(tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "BATCH_ROWS", 16)
    context = table_of(tmp_path / "t", ["BIGINT"], file_format)
    (file,) = numbers(context, 100)
    wanted = np.array([0, 1, 15, 16, 63, 99])
    found = rows_at(context, BUCKET, file, wanted, ["v", "_SEQUENCE_NUMBER", "k0"])
    whole = read(context, file, ["v", "_SEQUENCE_NUMBER", "k0"])
    assert found.to_pylist() == whole.take(wanted).to_pylist()
    assert rows_at(context, BUCKET, file, wanted[:0], ["v"]).num_rows == 0
    with pytest.raises(DamagedFile, match="no such row"):
        rows_at(context, BUCKET, file, np.array([5, 100]), ["v"])


def test_a_null_key_is_refused(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"])
    with pytest.raises(ValueError, match="null"):
        find_keys(context, BUCKET, numbers(context, 3), pa.table({"k0": pa.array([1, None], pa.int64())}), NO_VECTORS)
