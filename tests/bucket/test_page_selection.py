"""Single pages of small Parquet files: what is known of each block of rows, and what is refused as a lie of the page index."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.page_selection import BlockBounds, SelectedRows, selected_rows
from paimon_cli.bucket.parquet_chunks import Rows, footer_bytes, read_footer
from paimon_cli.bucket.parquet_pages import Flags
from paimon_cli.metadata.compact_thrift import BINARY, FALSE, I32, I64, TRUE, Struct, decode, encode, number
from paimon_cli.metadata.parquet_footer import PageLocations, closed
from paimon_cli.pieces import PIECES

PAGE = 10
NULL_PAGES, LOWS, HIGHS, NULLS = 1, 2, 3, 5
"""Fields of a `ColumnIndex`."""
ORDERS, STATISTICS = 7, 12


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "least_block_rows", 1)


@dataclass
class Keeps:
    """Keeps blocks of these numbers, and remembers what was known of all."""

    blocks: Sequence[int]
    columns: Sequence[str] = ("k", "v")
    bounds: Mapping[str, BlockBounds] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def kept(self, bounds: Mapping[str, BlockBounds], rows: Rows) -> Flags:
        self.bounds, self.sizes = bounds, rows.tolist()
        return np.isin(np.arange(len(rows)), self.blocks)


def rows(count: int = 40) -> pa.Table:
    """`k` counts; `v` is null in all of page 1, and in every third row of page 2."""
    values = [None if PAGE <= n < 2 * PAGE or (2 * PAGE <= n < 3 * PAGE and n % 3 == 0) else n for n in range(count)]
    return pa.table({"k": pa.array(range(count), pa.int64()), "v": pa.array(values, pa.int64())})


def stored(table: pa.Table, **settings: Any) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        **{"write_page_index": True, "max_rows_per_page": PAGE, "write_batch_size": 5, "use_dictionary": False, **settings},
    )
    return sink


Change = Callable[[Struct], None]


def changed(file: io.BytesIO, leaf: int, index: Change, footer: Change = lambda fields: None) -> io.BytesIO:
    """The file with another column index of a leaf, and another footer."""
    content, encoded = file.getvalue(), footer_bytes(file)
    fields = decode(encoded)
    entry = fields.elements(4)[0].elements(1)[leaf]
    place = entry.required(6)
    pages = decode(content[place : place + entry.required(7)])
    index(pages)
    begin, written = len(content) - len(encoded) - 8, encode(pages)
    entry |= {6: number(begin), 7: number(len(written), I32)}
    footer(fields)
    return io.BytesIO(closed([content[4:begin], written], encode(fields)))


def selected(file: io.BytesIO, keeps: Keeps, names: Sequence[str] = ("k", "v")) -> SelectedRows | None:
    return selected_rows(file, read_footer(file), 0, names, keeps)


def read(file: io.BytesIO, *blocks: int) -> list[int]:
    """The values of `k` in these blocks."""
    found = selected(file, Keeps(blocks))
    assert found is not None
    return [value for _, batch in found.batches(file, 7) for value in batch["k"].to_pylist()]


def little(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def element(at: int, listed: int, value: Any) -> Change:
    """Sets one element of a list of a column index."""

    def change(pages: Struct) -> None:
        pages.required(listed)[1][at] = value

    return change


def without_statistics(fields: Struct) -> None:
    for chunk in fields.elements(4)[0].elements(1):
        chunk.required(3).pop(STATISTICS)


def statistics(leaf: int, **values: Any) -> Change:
    """Sets statistics of a leaf in the footer."""

    def change(fields: Struct) -> None:
        found = fields.elements(4)[0].elements(1)[leaf].required(3).required(STATISTICS)
        for name, value in values.items():
            number_of = {"high": 5, "low": 6, "nulls": 3}[name]
            found[number_of] = (BINARY, value) if isinstance(value, bytes) else (I64, value)

    return change


def unchanged(fields: Struct) -> None:
    pass


def test_what_is_known_of_each_block() -> None:
    keeps = Keeps([1, 3])
    found = selected(stored(rows(35)), keeps)
    assert found is not None and keeps.sizes == [10, 10, 10, 5]
    k, v = keeps.bounds["k"], keeps.bounds["v"]
    assert (k.lows.to_pylist(), k.highs.to_pylist(), k.nulls.tolist()) == ([0, 10, 20, 30], [9, 19, 29, 34], [0, 0, 0, 0])
    assert (v.lows.to_pylist(), v.highs.to_pylist()) == ([0, None, 20, 30], [9, None, 29, 34])
    assert v.nulls.tolist() == [0, 10, -1, 0], "all are null, some are, or none"
    assert (found.begins.tolist(), found.ends.tolist(), found.row_count) == ([10, 30], [20, 35], 15)


@pytest.mark.parametrize("portion", [1, 1 << 23])
def test_ranges_between_pages_that_are_not_read(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "page_portion_bytes", portion)
    file = stored(rows())
    assert read(file, 0, 2) == [*range(10), *range(20, 30)]
    assert read(file, 1) == [*range(10, 20)]
    found = selected(file, Keeps([1, 3]))
    assert found is not None
    batches = list(found.batches(file, 7))
    assert all(batch["k"].to_pylist() == list(range(first, first + batch.num_rows)) for first, batch in batches)
    assert sum(batch.num_rows for _, batch in batches) == 20 and max(batch.num_rows for _, batch in batches) <= 7


@pytest.mark.parametrize("block", [0, 2, 3])
@pytest.mark.parametrize(
    "lie",
    [
        pytest.param((0, LOWS, lambda page: little(page * PAGE + 1)), id="a greater low"),
        pytest.param((0, HIGHS, lambda page: little(page * PAGE + 8)), id="a smaller high"),
        pytest.param((1, LOWS, lambda page: little(page * PAGE + 2)), id="a greater low beside nulls"),
        pytest.param((1, HIGHS, lambda page: little(page * PAGE + 7)), id="a smaller high beside nulls"),
    ],
)
def test_pages_that_are_read_must_be_within_their_bounds(lie: tuple[int, int, Callable[[int], bytes]], block: int) -> None:
    """Of each page in each range, whatever was read before."""
    leaf, listed, value = lie
    file = changed(stored(rows()), leaf, element(block, listed, value(block)), without_statistics)
    for read_too in range(4):
        if read_too == block:
            continue
        with pytest.raises(ValueError, match="holds values that its page index rules out"):
            read(file, read_too, block)
        others = [other for other in range(4) if other not in (read_too, block)]
        assert len(read(file, *others)) == 2 * PAGE, "other pages do not matter"


def some_are_null(pages: Struct) -> None:
    pages.required(NULLS)[1][2] = 0


def all_are_null(pages: Struct) -> None:
    pages.required(NULL_PAGES)[1][3] = TRUE
    pages.required(NULLS)[1][3] = PAGE


def none_is_null(pages: Struct) -> None:
    pages.required(NULL_PAGES)[1][1] = FALSE
    pages.required(NULLS)[1][1] = 0
    for listed in (LOWS, HIGHS):
        pages.required(listed)[1][1] = little(15)


@pytest.mark.parametrize(("lie", "page"), [(some_are_null, 2), (all_are_null, 3), (none_is_null, 1)])
def test_pages_that_are_read_must_hold_nulls_as_their_index_says(lie: Change, page: int) -> None:
    file = changed(stored(rows()), 1, lie, without_statistics)
    for blocks in ([page], [0, page]):
        with pytest.raises(ValueError, match="column v holds values that its page index rules out"):
            read(file, *blocks)
    assert read(file, 0) == [*range(10)]


def test_nulls_that_an_index_does_not_count_may_be_anywhere() -> None:
    """Also in pages of nothing else, as older writers describe them."""
    file = changed(stored(rows()), 1, lambda pages: [pages.pop(NULLS)], without_statistics)  # type: ignore[arg-type]
    keeps = Keeps([1])
    assert selected(file, keeps) is not None and keeps.bounds["v"].nulls.tolist() == [-1] * 4
    assert read(file, 1, 2) == [*range(10, 30)]


def longer(pages: Struct) -> None:
    for listed in (NULL_PAGES, LOWS, HIGHS, NULLS):
        elements = pages.required(listed)[1]
        elements.append(elements[-1])


def too_many_nulls(pages: Struct) -> None:
    all_are_null(pages)
    pages.required(NULLS)[1][3] = PAGE + 1


@pytest.mark.parametrize(
    ("index", "footer", "said"),
    [
        (longer, unchanged, "different numbers of pages"),
        (element(2, NULLS, -1), without_statistics, "numbers of nulls"),
        (too_many_nulls, without_statistics, "numbers of nulls"),
        (element(2, NULLS, PAGE), without_statistics, "numbers of nulls"),
        (element(1, NULLS, PAGE - 1), without_statistics, "numbers of nulls"),
        (unchanged, statistics(1, nulls=12), "numbers of nulls"),
        (element(0, LOWS, little(1)), unchanged, "the bounds in its page index"),
        (element(3, HIGHS, little(38)), unchanged, "the bounds in its page index"),
        (unchanged, statistics(1, low=little(-1)), "the bounds in its page index"),
        (unchanged, statistics(1, high=little(40)), "the bounds in its page index"),
        (element(0, LOWS, bytes(4)), without_statistics, "another width"),
        (element(0, HIGHS, bytes(16)), without_statistics, "another width"),
    ],
)
def test_an_index_that_contradicts_the_footer_is_refused(index: Change, footer: Change, said: str) -> None:
    file = changed(stored(rows()), 1, index, footer)
    with pytest.raises(ValueError, match=said):
        selected(file, Keeps([0]))


@pytest.mark.parametrize("leaf", [0, 1])
def test_bounds_in_no_known_order_rule_nothing_out(leaf: int) -> None:
    """Each leaf has an order of its own."""

    def without_order(fields: Struct) -> None:
        fields.required(ORDERS)[1][leaf] = Struct()

    names = ["k", "v"]
    keeps = Keeps([0])
    assert selected(changed(stored(rows()), 0, unchanged, without_order), keeps) is not None
    assert list(keeps.bounds) == [names[1 - leaf]]
    none = changed(stored(rows()), 0, unchanged, lambda fields: [fields.pop(ORDERS)])  # type: ignore[arg-type]
    assert selected(none, Keeps([0])) is None


def test_int96_at_any_depth_is_read_as_a_whole() -> None:
    times = pa.array(range(40), pa.timestamp("ns"))
    nested = pa.StructArray.from_arrays([pa.array(range(40)), times], ["n", "t"])
    file = stored(rows().append_column("r", nested), use_deprecated_int96_timestamps=True)
    assert selected(file, Keeps([0]), ["k", "v", "r"]) is None
    assert selected(file, Keeps([0]), ["k", "v"]) is not None


def test_texts_that_are_cut_within_a_character_are_no_bounds() -> None:
    texts = pa.table({"k": pa.array(range(40)), "v": [f"é{n:02d}" for n in range(40)]})
    file = changed(stored(texts), 1, element(2, HIGHS, b"\xc3"), without_statistics)
    keeps = Keeps([2])
    assert selected(file, keeps) is not None
    assert keeps.bounds["v"].highs.to_pylist() == ["é09", "é19", None, "é39"]
    assert read(file, 2) == [*range(20, 30)]


def test_pages_of_columns_that_start_at_different_rows() -> None:
    """Blocks begin where a page of either column begins."""
    texts = ["x" * 40 + f"{n:02d}" for n in range(40)]
    table = pa.table({"k": pa.array(range(40)), "v": texts})
    file = stored(table, max_rows_per_page=20_000, data_page_size=200, data_page_version="2.0")
    footer = read_footer(file)
    first_rows = []
    for leaf in (0, 1):
        entry = footer.chunk(0, leaf)
        begin = entry.required(4)
        found = PageLocations.decode(file.getvalue()[begin : begin + entry.required(5)])
        first_rows.append(found.first_rows.tolist())
    assert first_rows[0] != first_rows[1]
    keeps = Keeps([1])
    assert selected(file, keeps) is not None
    starts = sorted({*first_rows[0], *first_rows[1]})
    assert np.cumsum([0, *keeps.sizes]).tolist() == [*starts, 40]
    lasts = [max(first for first in first_rows[0] if first <= start) for start in starts]
    assert keeps.bounds["k"].lows.to_pylist() == lasts
    for block, (begin, end) in enumerate(zip(starts, [*starts[1:], 40], strict=True)):
        assert read(file, block) == list(range(begin, end))
