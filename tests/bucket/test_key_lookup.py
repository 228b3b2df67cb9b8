"""Keys looked up in files of several levels, beside plain dictionaries."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from paimon_cli import Table
from paimon_cli.bucket import key_blocks, key_lookup
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import NO_VECTORS, BucketVectors
from paimon_cli.bucket.key_blocks import Portion
from paimon_cli.bucket.key_lookup import _all_keys, _RunLookup, _streamed_positions, _streamed_rows, find_keys, rows_at
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.parquet_pages import EncodedRows, PagedColumns, decoded_together
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import DamagedFile
from paimon_cli.history.file_cache import FileCache
from paimon_cli.history.kept_files import KeptFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT, Indices, SortedKeys
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, DataFileMeta
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES
from tests.bucket.canonical_values import values
from tests.nightly import first
from tests.tables import Row, make_table, write

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
CUTS = (
    {"target-file-row-num": "7"},
    {"parquet.page.row.count.limit": "3"},
    {"parquet.page.row.count.limit": "2", "file.block-size": "300 b", "target-file-row-num": "25"},
)
FORMATS = ("parquet", "orc", "avro")
QUICK = settings(max_examples=4, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
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
    """What a lookup must find, by a dictionary of all rows."""
    holders: dict[str, tuple[int, int]] = {}
    for number in sorted(range(len(files)), key=lambda number: -files[number].level):
        marked = vectors.of(files[number].file_name)
        for position, text in enumerate(key_texts(context, read(context, files[number], context.schema.trimmed_primary_keys))):
            if marked is None or position not in marked.positions:
                holders[text] = (number, position)
    return {text: holders[text] for text in key_texts(context, keys) if text in holders}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("types", KEYS.values(), ids=KEYS)
@QUICK
@given(data=st.data())
def test_lookups_agree_with_a_dictionary(types: tuple[str, ...], file_format: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = table_of(Path(folder) / "t", types, file_format, **data.draw(st.sampled_from(CUTS)))
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


def test_pages_of_several_files_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"], **{"target-file-row-num": "20", "parquet.page.row.count.limit": "5"})
    files = numbers(context, 60)
    later = table_with_codec(context, "snappy")
    files += written(later, [{"k0": 1000 + number, "v": "x"} for number in range(20)], 5)
    portions: list[int] = []

    def watched(rows: Sequence[EncodedRows]) -> pa.Table:
        portions.append(len(rows))
        return decoded_together(rows)

    monkeypatch.setattr(key_blocks, "decoded_together", watched)
    keys = keys_of(2, 3, 50, 98, 1007, 2000)
    wanted = expected(context, files, keys)
    assert len(wanted) == 4 and places(context, files[::-1], keys) == {k: (3 - n, row) for k, (n, row) in wanted.items()}
    assert portions == [3, 1]  # another codec, so another portion


def table_with_codec(context: TableContext, codec: str) -> TableContext:
    schema = replace(context.schema, options={**context.schema.options, "file.compression": codec})
    return context.redefined(schema=schema, options=TableOptions(schema.options))


def test_files_of_a_level_that_overlap_are_refused(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"])
    with pytest.raises(DamagedFile, match="overlap"):
        places(context, [*numbers(context, 30), *numbers(context, 3, step=6)], keys_of(2, 6))


def test_a_damaged_page_is_reported_with_its_own_file(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"], **{"target-file-row-num": "20"})
    files = numbers(context, 60)
    path = Path(context.data_file_path(*BUCKET, files[1]))
    content = bytearray(path.read_bytes())
    with open(path, "rb") as source:
        footer = read_footer(source)
        chunk = footer.chunk(0, footer.columns["k0"].first_leaf).required(3)
    content[chunk.required(9) + chunk.required(7) - 8] ^= 255
    path.write_bytes(content)
    with pytest.raises(DamagedFile) as raised:
        places(context, files, keys_of(2, 50, 98))
    assert raised.value.details["path"] == str(path)
    assert places(context, files, keys_of(2, 98)).keys() == {'{"k0": 2}', '{"k0": 98}'}


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_at_positions(tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "batch_rows", 16)
    context = table_of(tmp_path / "t", ["BIGINT"], file_format)
    (file,) = numbers(context, 100)
    wanted = np.array([0, 1, 15, 16, 63, 99])
    found = rows_at(context, BUCKET, file, wanted, ["v", "_SEQUENCE_NUMBER", "k0"])
    whole = read(context, file, ["v", "_SEQUENCE_NUMBER", "k0"])
    assert found.to_pylist() == whole.take(wanted).to_pylist()
    assert rows_at(context, BUCKET, file, wanted[:0], ["v"]).num_rows == 0
    with pytest.raises(DamagedFile, match="no such row"):
        rows_at(context, BUCKET, file, np.array([5, 100]), ["v"])


VALUES = {
    "n": "INT",
    "s": "STRING",
    "w": "DECIMAL(30, 4)",
    "t": "TIMESTAMP(6)",
    "b": "BOOLEAN",
    "a": "ARRAY<STRING>",
    "m": "MAP<STRING, INT>",
    "r": "ROW<x INT, y ARRAY<INT>>",
}


@pytest.mark.parametrize("file_format", FORMATS)
@QUICK
@given(data=st.data())
def test_rows_of_all_types_at_positions(file_format: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = {"file.format": file_format, **data.draw(st.sampled_from(CUTS[1:])), "target-file-row-num": "1000"}
        context = make_table(Path(folder) / "t", {"k0": "BIGINT NOT NULL", **VALUES}, ["k0"], options=options)
        row = st.fixed_dictionaries({name: values(context.schema.field(name).type) for name in VALUES if name != "t"})
        drawn = data.draw(st.lists(row, min_size=4, max_size=9))
        (file,) = written(context, [{"k0": n, "t": "2026-01-01T00:00:00", **drawn[n % len(drawn)]} for n in range(60)], 5)
        before = [*VALUES, "_VALUE_KIND", "k0"]
        positions = np.array(sorted(data.draw(st.sets(st.integers(0, 59), min_size=1))))
        assert (
            rows_at(context, BUCKET, file, positions, before).to_pylist()
            == read(context, file, before).take(positions).to_pylist()
        )
        later = altered(context, n="BIGINT", s=None, z="DOUBLE")
        after = ["z", *(name for name in before if name != "s")]
        assert rows_at(later, BUCKET, file, positions, after).to_pylist() == read(later, file, after).take(positions).to_pylist()
        keys = pa.table({"k0": positions})
        assert find_keys(later, BUCKET, [file], keys, NO_VECTORS).position.tolist() == positions.tolist()


def altered(context: TableContext, **changes: str | None) -> TableContext:
    """The table with other types, without columns (None) and with new ones."""
    types = {name: parse_sql_type(text) for name, text in changes.items() if text is not None}
    kept = [field for field in context.schema.fields if changes.get(field.name, "") is not None]
    fields = [replace(field, type=types.get(field.name, field.type)) for field in kept]
    new = [name for name in types if name not in {field.name for field in kept}]
    added = [DataField(100 + number, name, types[name]) for number, name in enumerate(new)]
    schema = replace(context.schema, id=1, fields=(*fields, *added))
    (Path(context.layout.root) / "schema" / "schema-1").write_text(schema.to_json())
    return TableContext.open(context.url)


def test_only_pages_near_the_keys_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"], **{"parquet.page.row.count.limit": "10"})
    (file,) = numbers(context, 1000)
    seen: list[int] = []
    whole = PagedColumns.read

    def watched(self: PagedColumns, source: BinaryIO, blocks: Indices) -> EncodedRows:
        seen.extend(blocks.tolist())
        return whole(self, source, blocks)

    monkeypatch.setattr(PagedColumns, "read", watched)
    assert len(places(context, [file], keys_of(0, 2, 3, 1000, 1998))) == 4
    assert seen == [0, 50, 99]
    seen.clear()
    assert places(context, [file], keys_of(19, 1001)) == {}  # 19 stands between two pages
    assert seen == [0, 1, 50]


@pytest.mark.parametrize("key_type", ["BIGINT", "STRING", "DECIMAL(9, 0)"])
def test_keys_all_over_a_file_are_found_without_its_page_index(
    key_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "dense_keys", 20)
    monkeypatch.setattr(PIECES, "rows_per_key", 20)
    monkeypatch.setattr(PIECES, "batch_rows", 16)
    pages: list[int] = []
    whole = PagedColumns.of

    def watched(*parts: Any) -> PagedColumns | None:
        pages.append(1)
        return whole(*parts)

    monkeypatch.setattr(PagedColumns, "of", staticmethod(watched))
    options = {"parquet.page.row.count.limit": "10", "file.block-size": "1 kb"}
    context = table_of(tmp_path / "t", [key_type], **options)
    rows: list[Row] = [{"k0": f"{n:04d}" if key_type == "STRING" else n, "v": "x"} for n in range(0, 1000, 2)]
    (file,) = written(context, rows, 5)
    path = Path(context.data_file_path(*BUCKET, file))
    assert pq.read_metadata(path).num_row_groups > 3
    spread = asked_for(context, [*rows[::6], {"k0": "0333x" if key_type == "STRING" else 333, "v": "x"}])
    together = asked_for(context, rows[100:150])
    assert places(context, [file], spread) == expected(context, [file], spread)
    assert bool(pages) == (key_type == "DECIMAL(9, 0)")  # its bounds are not looked at
    assert places(context, [file], together) == expected(context, [file], together) and len(pages) == 1
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table.slice(250), table.slice(0, 250)]), path, row_group_size=100)
    with pytest.raises(DamagedFile, match="not sorted by key"):
        places(context, [file], spread)


def test_rows_all_over_a_file_are_read_without_its_page_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "dense_keys", 20)
    monkeypatch.setattr(PIECES, "rows_per_key", 20)
    monkeypatch.setattr(PIECES, "batch_rows", 16)
    context = table_of(tmp_path / "t", ["BIGINT"], **{"parquet.page.row.count.limit": "10"})
    (file,) = numbers(context, 1000)
    names = ["v", "_SEQUENCE_NUMBER", "_VALUE_KIND"]
    whole, paged, pages_of = read(context, file, names), list[int](), PagedColumns.of

    def watched(*parts: Any) -> PagedColumns | None:
        paged.append(1)
        return pages_of(*parts)

    monkeypatch.setattr(PagedColumns, "of", staticmethod(watched))

    def uses_pages(positions: np.ndarray) -> bool:
        paged.clear()
        assert rows_at(context, BUCKET, file, positions, names).to_pylist() == whole.take(positions).to_pylist()
        return bool(paged)

    assert not uses_pages(np.arange(3, 1000, 20))
    assert not uses_pages(np.arange(0, 900))  # none in the last tenth
    assert uses_pages(np.arange(0, 880, 20))  # nor in the interval before
    assert uses_pages(np.arange(0, 500))  # many, but close together
    monkeypatch.setattr(PIECES, "dense_keys", 51)
    assert uses_pages(np.arange(3, 1000, 20))  # everywhere, but few


def test_lookups_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_of(tmp_path / "t", ["BIGINT", "STRING"], **{"parquet.page.row.count.limit": "10"})
    rows: list[Row] = [{"k0": n // 30, "k1": f"{n:05d}", "v": f"row {n}"} for n in range(1000)]
    (file,) = written(context, rows, 3)
    keys = asked_for(context, [*rows[::3], *({**row, "k1": row["k1"] + "x"} for row in rows[::7])])
    wanted = expected(context, [file], keys)
    for size in (1, 400, 4000):
        monkeypatch.setattr(PIECES, "page_portion_bytes", size)
        assert places(context, [file], keys) == wanted
        positions = np.arange(0, 1000, 3)
        assert (
            rows_at(context, BUCKET, file, positions, ["v"]).to_pylist() == read(context, file, ["v"]).take(positions).to_pylist()
        )


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_service_copies_keys_once_it_has_read_them_all(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "key_piece_bytes", 300)
    monkeypatch.setattr(PIECES, "batch_rows", 4)
    kept = KeptFiles(keeps_copies=True)
    context = replace(table_of(tmp_path / "t", ["INT", "STRING"], file_format), cache=FileCache(kept))
    rows: list[Row] = [{"k0": n // 9, "k1": f"k{n:03d}", "v": "x"} for n in range(0, 200, 2)]
    files = written(context, rows, 4)
    keys = asked_for(
        context, [*rows, {"k0": 0, "k1": "a", "v": ""}, {"k0": 3, "k1": "k033", "v": ""}, {"k0": 99, "k1": "k", "v": ""}]
    )
    wanted = expected(context, files, keys)
    assert len(wanted) == 100 and places(context, files, keys) == wanted
    assert places(context, files, keys) == wanted
    name = (context.data_file_path(*BUCKET, files[0]), context.schema.id)
    copy = kept.copies.get(name)
    assert copy.path.exists() and len(copy.pieces) > 3
    (tmp_path / "t" / "bucket-0" / files[0].file_name).unlink()
    assert places(context, files, keys) == wanted
    assert places(context, files, keys.slice(50, 2)) == {
        text: wanted[text] for text in key_texts(context, keys.slice(50, 2)) if text in wanted
    }
    assert copy.path.exists(), "it is kept as long as it is used"
    kept.copies.put("other", replace(copy, path=tmp_path / "none", size=PIECES.kept_copy_bytes))
    assert kept.copies.get(name) is None and not copy.path.exists()


def test_a_table_and_its_clone_have_copies_of_their_own(tmp_path: Path) -> None:
    """Their files have the same names, and a copy is read from its file while a service looks keys up."""
    kept = KeptFiles(keeps_copies=True)
    context = replace(table_of(tmp_path / "t", ["INT"]), cache=FileCache(kept))
    rows: list[Row] = [{"k0": number, "v": "x"} for number in range(40)]
    files, keys = written(context, rows, 1), asked_for(context, rows)
    shutil.copytree(tmp_path / "t", tmp_path / "clone")
    both = context, replace(TableContext.open(str(tmp_path / "clone")), cache=FileCache(kept))
    for each in both:
        for _ in range(3):
            assert len(places(each, files, keys)) == 40
    copies = [kept.copies.get((each.data_file_path(*BUCKET, files[0]), each.schema.id)) for each in both]
    assert len({copy.path for copy in copies}) == 2 and all(copy.path.exists() for copy in copies)


def index_regions(path: Path) -> list[tuple[int, int]]:
    """Where the page indexes of the columns lie in the file."""
    with open(path, "rb") as source:
        footer = read_footer(source)
    leaves = range(len(footer.groups[0].elements(1)))
    chunks = [footer.chunk(group, leaf) for group in range(len(footer.groups)) for leaf in leaves]
    return [(chunk.required(at), chunk.required(at) + chunk.required(at + 1)) for chunk in chunks for at in (4, 6)]


@pytest.mark.parametrize("types", first(1, [("INT", "STRING"), ("BIGINT",), ("STRING",)]))
def test_a_damaged_page_index_never_gives_another_answer(types: tuple[str, ...], tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", types, **{"parquet.page.row.count.limit": "5"})
    spelled = {"STRING": "k{:04d}", "INT": "{}", "BIGINT": "{}"}
    rows = [
        {f"k{i}": json_value(text, spelled[text].format(n // 7 if text == "INT" else n)) for i, text in enumerate(types)}
        for n in range(0, 80)
    ]
    files = written(context, rows[::2], 5)
    keys = asked_for(context, rows)
    (file,) = files
    path = tmp_path / "t" / "bucket-0" / file.file_name
    sound, truth = path.read_bytes(), expected(context, files, keys)
    names = ["v", *context.schema.trimmed_primary_keys]
    everything = read(context, file, names).take([0, 7, 33]).to_pylist()
    chance = random.Random(3)
    outcomes = {"right": 0, "damaged": 0}
    bytes_of_indexes = [at for begin, end in index_regions(path) for at in range(begin, end)]
    for at in chance.sample(bytes_of_indexes, 200):
        spoilt = bytearray(sound)
        spoilt[at] ^= 1 << chance.randrange(8)
        path.write_bytes(spoilt)
        try:
            assert places(context, files, keys) == truth
            assert rows_at(context, BUCKET, file, np.array([0, 7, 33]), names).to_pylist() == everything
            outcomes["right"] += 1
        except DamagedFile:
            outcomes["damaged"] += 1
    assert min(outcomes.values()) > 10


def json_value(text: str, spelling: str) -> Any:
    return spelling if text == "STRING" else int(spelling)


def test_a_null_key_is_not_found_among_others(tmp_path: Path) -> None:
    context = table_of(tmp_path / "t", ["BIGINT"])
    keys = pa.table({"k0": pa.array([None, 2], pa.int64())})
    assert find_keys(context, BUCKET, numbers(context, 3), keys, NO_VECTORS).file.tolist() == [-1, 0]


@pytest.mark.parametrize("copies", [False, True])
def test_what_is_known_of_files_outlives_no_new_name_of_a_key(tmp_path: Path, copies: bool) -> None:
    """A service that goes on after it looks keys up by the column that the schema has then."""
    context = replace(table_of(tmp_path / "t", ("BIGINT",)), cache=FileCache(KeptFiles(keeps_copies=copies)))
    files = written(context, [{"k0": key, "v": "x"} for key in range(0, 40, 2)], 1)
    keys = asked_for(context, [{"k0": key, "v": ""} for key in range(9)])
    before = places(context, files, keys)
    Table.open(context.url).alter.rename_column("k0", "renamed")
    renamed = context.reopened()
    assert renamed.schema.trimmed_primary_keys == ("renamed",)
    after = places(renamed, files, keys.rename_columns(["renamed"]))
    assert [*after.values()] == [*before.values()] == [(0, position) for position in range(5)]


def test_many_keys_of_a_column_that_is_named_like_a_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of the row groups are those of the key `a.b`, not those of the field b of column a."""
    monkeypatch.setattr(PIECES, "dense_keys", 4)
    columns = {"a": "ROW<b STRING>", "a.b": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["a.b"], options={"write-only": "true", "data-file.thin-mode": "true"})
    files = written(context, [{"a": {"b": f"x{n}"}, "a.b": n} for n in range(0, 20, 2)], 5)
    found = find_keys(context, BUCKET, files, pa.table({"a.b": pa.array(range(10), pa.int32())}), NO_VECTORS)
    assert found.position[found.file == 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_of_columns_that_a_file_lacks(tmp_path: Path, file_format: str) -> None:
    """There are as many as were asked for; they are null."""
    context = table_of(tmp_path / "t", ["BIGINT"], file_format)
    (file,) = numbers(context, 9)
    Table.open(context.url).alter.add_column("w INT")
    found = rows_at(context.reopened(), BUCKET, file, np.array([2, 3, 8]), ["w"])
    assert found.to_pylist() == [{"w": None}] * 3


@pytest.fixture
def in_batches(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for a table whose files hold these batches of the key `k`."""
    context: Any = SimpleNamespace(
        schema=SimpleNamespace(trimmed_primary_keys=("k",)), data_file_path=lambda partition, bucket, file: "a file"
    )

    def holding(*batches: list[int]) -> Any:
        starts = np.cumsum([0, *map(len, batches)]).tolist()
        stored = [(start, pa.record_batch({"k": batch})) for start, batch in zip(starts, batches, strict=False)]
        monkeypatch.setattr(key_lookup, "read_part", lambda *_: iter(stored))
        return context

    return holding


@pytest.mark.parametrize(
    "batches", [[[2, 1]], [[1, 2], [2, 3]], [[1, 3], [2, 4]], [[3, 4], [1, 2]], [[1, 2], [3, 4], [4, 5]], [[5], [6], [5]]]
)
def test_keys_that_do_not_ascend_are_damage(in_batches: Any, batches: list[list[int]]) -> None:
    """Within a batch or from one to the next; nobody would find them."""
    with pytest.raises(DamagedFile, match="not sorted by key"):
        list(_all_keys(in_batches(*batches), BUCKET, None))  # type: ignore[arg-type]


def test_keys_are_streamed_from_batch_to_batch(in_batches: Any) -> None:
    """The first and the last of each batch, and what stands before, between and behind them."""
    context, batches = in_batches([2, 4, 6], [8, 10], [12]), [2, 4, 6, 8, 10, 12]
    keys = SortedKeys((pa.array([1, 2, 5, 6, 7, 8, 10, 11, 12, 13]),))
    positions = _streamed_positions(context, BUCKET, None, keys).tolist()  # type: ignore[arg-type]
    assert positions == [batches.index(key) if key in batches else ABSENT for key in keys.columns[0].to_pylist()]


@pytest.mark.parametrize("positions", [[0], [2, 3], [2, 4, 5], [5], [0, 1, 2, 3, 4, 5], [3]])
def test_rows_are_streamed_from_batch_to_batch(in_batches: Any, positions: list[int]) -> None:
    context, batches = in_batches([2, 4, 6], [8, 10], [12]), [2, 4, 6, 8, 10, 12]
    found = _streamed_rows(context, BUCKET, None, np.array(positions), ["k"])  # type: ignore[arg-type]
    assert [key for batch in found for key in batch.column(0).to_pylist()] == [batches[position] for position in positions]


@pytest.mark.parametrize("large", [[], [0], [1], [2], [0, 2], [0, 1, 2]])
def test_files_with_large_pages_are_read_as_a_whole_beside_others(large: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a run of which file n holds even keys from 100 n on, at half of that."""
    first_rows = np.array([0, 50, 100, 150])

    def at(keys: SortedKeys, number: Any) -> Indices:
        values = keys.columns[0].to_numpy()
        return np.where(values % 2, ABSENT, values // 2 - first_rows[number])

    class Search:
        def __init__(self, *_: object) -> None: ...

        def rows(self, keys: SortedKeys, numbers: Indices, first: Indices, last: Indices) -> Indices:
            assert not np.isin(numbers, large).any()
            return np.where((found := at(keys, numbers)) == ABSENT, ABSENT, found + first_rows[numbers])

    monkeypatch.setattr(key_lookup, "RunSearch", Search)
    monkeypatch.setattr(key_lookup, "_streamed_positions", lambda context, bucket, file, keys: at(keys, file))
    blocks = SimpleNamespace(exceeds=lambda first, last: np.isin(first, large))
    run: Any = SimpleNamespace(
        files=(0, 1, 2), first_rows=first_rows, blocks=blocks, blocks_of=lambda keys, files: (files, files)
    )
    keys = SortedKeys((pa.array([2, 98, 99, 100, 101, 198, 199, 200, 298]),))
    positions = np.full(len(keys), -7)
    portions = [Portion(0, 0, 2), Portion(1, 3, 6), Portion(2, 7, 9)]
    _RunLookup(None, BUCKET, (), run)._search_pages(keys, portions, positions)  # type: ignore[arg-type]
    assert positions.tolist() == [1, 49, -7, 0, ABSENT, 49, -7, 0, 49], "keys that no file can hold are left alone"
