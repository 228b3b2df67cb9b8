"""Keys that two sets of files share, held against plain sets."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.bucket import shared_keys
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.shared_keys import first_shared_key
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, DataFileMeta
from tests.tables import make_table, write

PLACES: defaultdict[str, BucketId] = defaultdict(lambda: BucketId(EMPTY_ROW, 0))

Keys = set[tuple[int, str]]


def table_of(folder: Path, file_format: str = "parquet") -> TableContext:
    columns = {"id": "INT NOT NULL", "name": "STRING NOT NULL", "v": "STRING"}
    options = {"write-only": "true", "file.format": file_format, "target-file-row-num": "40"}
    return make_table(folder, columns, ["id", "name"], options=options)


def written(context: TableContext, keys: Keys) -> list[DataFileMeta]:
    """The files of one commit with these keys."""
    write(context, [{"id": number, "name": name, "v": "x" * 20} for number, name in keys])
    latest = context.snapshots.latest()
    assert latest is not None
    return [entry.file for entry in context.manifests.delta_entries(latest)]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_shared_keys_agree_with_plain_sets(tmp_path: Path, file_format: str) -> None:
    chance = random.Random(7)
    context = table_of(tmp_path / "t", file_format)
    everything = [(number, name) for number in range(60) for name in ("a", "ä", "b")]
    sets: list[Keys] = [set(chance.sample(everything, chance.choice([1, 3, 20, 90]))) for _ in range(10)]
    files = [written(context, keys) for keys in sets]
    clashes = 0
    for _ in range(60):
        mine, others = chance.sample(range(10), chance.choice([1, 2])), chance.sample(range(10), chance.choice([1, 3]))
        if set(mine) & set(others):
            continue
        theirs = [file for number in others for file in files[number]]
        shared = {key for n in mine for key in sets[n]} & {key for n in others for key in sets[n]}
        found = first_shared_key(context, PLACES, [file for number in mine for file in files[number]], theirs)
        clashes += bool(shared)
        assert (found is None) == (not shared)
        if found is not None:
            holder = next(number for number in others if found.file_name in {file.file_name for file in files[number]})
            assert found.key in {f"id={number}, name={name}" for number, name in shared & sets[holder]}
    assert 10 < clashes < 50


def test_in_passes_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_of(tmp_path / "t")
    files = [written(context, {(2 * number + 20 * other, "a") for number in range(10)} | {(500, "z")}) for other in range(6)]
    mine = written(context, {(2 * number + 1, "a") for number in range(60)})
    monkeypatch.setattr(shared_keys, "max_merged_runs", lambda context, memory: 2)
    theirs = [file for group in files for file in group]
    assert first_shared_key(context, PLACES, mine, theirs) is None
    found = first_shared_key(context, PLACES, [*mine, *written(context, {(38, "a")})], theirs)
    assert found is not None and (found.key, found.file_name) == ("id=38, name=a", files[1][0].file_name)


def test_files_whose_ranges_do_not_overlap_are_not_opened(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t")
    low, high = written(context, {(1, "a"), (5, "a")}), written(context, {(6, "a"), (9, "a")})
    between = written(context, {(4, "a")})
    for file in (tmp_path / "t" / "bucket-0").iterdir():
        file.unlink()
    assert first_shared_key(context, PLACES, low, high) is None
    with pytest.raises(DamagedFile, match="missing"):
        first_shared_key(context, PLACES, low, between)


def test_key_columns_alone_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_of(tmp_path / "t")
    asked: list[Sequence[str]] = []

    def watched(
        context: TableContext, bucket_id: BucketId, file: DataFileMeta, columns: Sequence[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        asked.append(columns)
        return read_data_file(context, bucket_id, file, columns, batch_rows)

    monkeypatch.setattr(shared_keys, "read_data_file", watched)
    first_shared_key(context, PLACES, written(context, {(1, "a"), (5, "a")}), written(context, {(2, "a")}))
    assert asked and set(map(tuple, asked)) == {("id", "name")}
