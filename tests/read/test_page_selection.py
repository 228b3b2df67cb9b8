"""Conditions read only the pages that may match, of our files and of others; a damaged page index gives no other answer."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket import page_selection
from paimon_cli.bucket.parquet_chunks import read_footer, read_ranges
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.compact_thrift import I32, decode, encode, number
from paimon_cli.metadata.data_file_schema import read_schema
from paimon_cli.metadata.parquet_footer import TAIL, PageLocations, ending
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.sql.predicate import parse_predicate
from tests.tables import compact, data_files, make_table, scan_to_arrow, write

COLUMNS = {
    "k": "INT NOT NULL",
    "near": "INT",
    "text": "STRING",
    "price": "DECIMAL(9, 2)",
    "wide": "DECIMAL(30, 2)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "x": "DOUBLE",
    "far": "BIGINT",
    "tags": "ARRAY<STRING>",
}
ROWS, PAGE = 4000, 100


def row(chance: random.Random, key: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.05 or 1200 <= key < 1400 else value

    return {
        "k": key,
        "near": maybe(key // 10 - 200),
        "text": maybe(f"t{key // 100:03d}é"),
        "price": maybe(f"{key // 7 - 200}.25"),
        "wide": maybe(f"{key // 7 - 200}.25"),
        "day": maybe(f"2024-01-{1 + key * 28 // ROWS:02d}"),
        "at": maybe(f"2024-01-01T{key // 200:02d}:00:00.000{key % 1000:03d}"),
        "x": maybe(float("nan") if key % 500 == 0 else -0.0 if key % 7 == 0 else key / 4),
        "far": maybe(chance.randrange(1000)),
        "tags": maybe([f"a{key}"] * chance.randrange(3)),
    }


def table(folder: Path, kind: str) -> TableContext:
    """A compacted table. `marked`: with deletion vectors; `append`: without a key."""
    options = {"parquet.page.row.count.limit": str(PAGE)}
    if kind == "marked":
        options |= {"deletion-vectors.enabled": "true"}
    keys = [] if kind == "append" else ["k"]
    context = make_table(folder / "t", COLUMNS, keys, options=options if keys else {**options, "bucket": "-1"})
    chance = random.Random(5)
    write(context, [row(chance, key) for key in range(ROWS)])
    if keys:
        compact(context)
    if kind == "marked":
        write(context, [{**row(chance, key), "_op": "-D"} for key in range(0, ROWS, 9)])
    return context


def scan(context: TableContext, condition: str | None = None, columns: list[str] | None = None) -> list[dict[str, Any]]:
    predicate = None if condition is None else parse_predicate(condition, context.schema)
    splits = plan_scan(context, context.snapshots.latest(), predicate).splits
    return scan_to_arrow(context, splits, columns or list(COLUMNS), predicate).to_pylist()


ABSENT = "near = 150 AND k < 1000"
CONDITIONS = (
    "near = 7",
    "near < -150 OR near >= 190",
    "NOT (near > -150)",
    "near IS NULL AND k BETWEEN 1000 AND 1500",
    "text = 't011é'",
    "text LIKE 't03%'",
    "text > 't038é'",
    "price = 3.25",
    "wide BETWEEN -190 AND -180",
    "day = DATE '2024-01-09'",
    "at < TIMESTAMP '2024-01-01 01:00:00.0005'",
    "x = 0 AND near < 0",
    "isnan(x) AND near < -100",
    "k >= 3990",
    "k IN (1, 1999, 3998)",
    "k = 77 AND tags IS NOT NULL",
    ABSENT,
)


@pytest.fixture(scope="module", params=["keyed", "marked", "append"])
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TableContext:
    return table(tmp_path_factory.mktemp(request.param), request.param)


def selections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that are read instead of row groups."""
    found: list[int] = []
    select = page_selection.selected_rows

    def watched(*parts: Any) -> Any:
        rows = select(*parts)
        if rows is not None:
            found.append(rows.row_count)
        return rows

    monkeypatch.setattr("paimon_cli.bucket.data_file_reader.selected_rows", watched)
    return found


def check_conditions(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every condition selects pages, and finds what it finds among all rows."""
    everything = scan(context)
    whole = pa.Table.from_pylist(everything, read_schema(context.schema, list(COLUMNS))).combine_chunks().to_batches()[0]
    used = selections(monkeypatch)
    for text in CONDITIONS:
        used.clear()
        expected = parse_predicate(text, context.schema).filtered(whole).to_pylist()
        assert repr(scan(context, text)) == repr(expected), text
        assert used and max(used) < ROWS, text
        assert len(scan(context, text, ["far"])) == len(expected)
        assert bool(expected) == (text != ABSENT)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("portion", [1 << 14, 1 << 23])
def test_conditions_find_what_a_filter_of_all_rows_finds(
    context: TableContext, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_selection, "PIECES", replace(PIECES, page_portion_bytes=portion))
    check_conditions(context, monkeypatch)


@pytest.mark.parametrize("settings", [{"data_page_size": 900}, {"data_page_version": "2.0", "data_page_size": 1000}])
def test_pages_of_other_writers_need_not_start_at_the_same_rows(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pq.ParquetWriter

    def other(*parts: Any, **own: Any) -> pq.ParquetWriter:
        kept = {name: value for name, value in own.items() if name not in ("max_rows_per_page", "use_dictionary")}
        return whole(*parts, **{**kept, "write_batch_size": 64, "write_page_index": True, **settings})

    with monkeypatch.context() as patched:
        patched.setattr("paimon_cli.bucket.file_encoders.pq.ParquetWriter", other)
        context = table(tmp_path, "keyed")
    with data_file(context).open("rb") as source:
        footer = read_footer(source)
        pages = {len(page_locations(source, footer.chunk(0, leaf)).offsets) for leaf in range(4)}
    assert len(pages) > 1
    check_conditions(context, monkeypatch)


def data_file(context: TableContext) -> Path:
    """The largest data file."""
    return max((Path(context.layout.root) / name for name in data_files(context)), key=lambda path: path.stat().st_size)


def page_locations(source: BinaryIO, entry: Any) -> PageLocations:
    source.seek(entry.required(4))
    return PageLocations.decode(source.read(entry.required(5)))


@pytest.mark.parametrize("kind", ["keyed", "append"])
def test_only_pages_that_match_are_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, kind)
    monkeypatch.setattr(page_selection, "PIECES", replace(PIECES, page_gap_bytes=0))
    asked: list[tuple[int, int]] = []

    def watched(source: BinaryIO, extents: Any, gap: int) -> list[bytes]:
        ranges = list(extents)
        asked.extend(ranges)
        return read_ranges(source, ranges, gap)

    monkeypatch.setattr("paimon_cli.bucket.page_selection.read_ranges", watched)
    columns = ["k", "near", "far"]
    found = scan(context, "near = 7", columns)
    assert len(found) > 5
    matching = {row["k"] // PAGE for row in found}
    with data_file(context).open("rb") as source:
        footer = read_footer(source)
        chunks = [footer.chunk(0, footer.columns[name].first_leaf) for name in columns]
        sizes = [page_locations(source, chunk).sizes[page] for chunk in chunks for page in matching]
        index = chunks[1].required(7)
    assert 0 < sum(size for _, size in asked) - index <= 1.2 * sum(sizes)


def test_files_without_matching_pages_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, "keyed")
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    assert scan(context, "text = 't012zz'") == []


def index_regions(path: Path) -> list[tuple[int, int]]:
    """Where the page indexes of the columns lie in the file."""
    with path.open("rb") as source:
        footer = read_footer(source)
    chunks = [footer.chunk(0, leaf) for leaf in range(len(footer.groups[0].elements(1)))]
    places = [(chunk.value(at, 0), chunk.value(at + 1, 0)) for chunk in chunks for at in (4, 6)]
    return [(begin, begin + size) for begin, size in places]


def test_a_damaged_page_index_is_reported(tmp_path: Path) -> None:
    """A page that a lie leaves out is all that may be missing: nothing is added, and bounds of pages that are read must hold."""
    context = table(tmp_path, "keyed")
    path, chance = data_file(context), random.Random(3)
    sound = path.read_bytes()
    conditions = ("near = 7", "price > 350", "at < TIMESTAMP '2024-01-01 01:00:00'", "text LIKE 't01%'")
    truth = {text: repr(scan(context, text)) for text in conditions}
    outcomes = {"right": 0, "damaged": 0, "missing": 0}
    places = [at for begin, end in index_regions(path) for at in range(begin, end)]
    for at in chance.sample(places, 60):
        spoilt = bytearray(sound)
        spoilt[at] ^= 1 << chance.randrange(8)
        path.write_bytes(spoilt)
        for text in conditions:
            try:
                rows = repr(scan(context, text))
            except DamagedFile:
                outcomes["damaged"] += 1
                continue
            outcomes["right" if rows == truth[text] else "missing"] += 1
            assert len(rows) <= len(truth[text])
    assert outcomes["damaged"] > 20 < outcomes["right"]
    assert outcomes["missing"] <= 4


@pytest.mark.parametrize("before", [b"\x16", b"\x19\x1c\x16"], ids=["a number for the pages", "a number of a page"])
def test_a_number_without_an_end_is_damage(tmp_path: Path, before: bytes) -> None:
    """And no reason to compute for hours: each of its bytes would cost as much as all before it."""
    context = table(tmp_path, "keyed")
    path = data_file(context)
    content = path.read_bytes()
    footer = content[-TAIL - int.from_bytes(content[-TAIL:-4], "little") : -TAIL]
    fields, index = decode(footer), before + b"\xff" * 4_000_000 + b"\x01" + b"\x16\x02" * 2 + bytes(2)
    for chunk in fields.elements(4)[0].elements(1):
        chunk |= {4: number(len(content) - TAIL - len(footer)), 5: number(len(index), I32)}
    changed = encode(fields)
    path.write_bytes(content[: -TAIL - len(footer)] + index + changed + ending(changed))
    with pytest.raises(DamagedFile):
        scan(context, "near = 7")
