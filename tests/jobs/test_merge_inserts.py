"""The rows that a merge inserts: each row of the source that has met none, once, whatever portions it is read in."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.errors import BadInput, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ArrowRows
from paimon_cli.jobs import merge_inserts
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.merge_edit import Clause, source_schema
from paimon_cli.jobs.merge_inserts import NewRows, check_new_keys
from paimon_cli.jobs.merge_source import KnownValues, MemorySource, MergeSource
from paimon_cli.jobs.row_change import ChangedBucket
from paimon_cli.pieces import PIECES
from paimon_cli.sql.clauses import parse_set_clause
from paimon_cli.sql.predicate import parse_predicate
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL", "Name": "STRING", "name": "STRING", "n": "INT"}
COUNT = 30
ALL = ("id = source.id", "n = source.n", "Name = `Name`", "name = source.name")


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Two of its columns differ only in case."""
    return make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2)


@dataclass(frozen=True)
class Portions(MergeSource):
    """Rows that are read in portions, as those in files."""

    whole: MemorySource
    ends: tuple[int, ...]
    is_indexed = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", self.whole.fields)
        object.__setattr__(self, "on", self.whole.on)

    @property
    def row_count(self) -> int:
        return self.whole.row_count

    @property
    def batch(self) -> pa.RecordBatch:
        return self.whole.batch

    @property
    def known(self) -> Mapping[str, KnownValues]:
        return self.whole.known

    @property
    def portions(self) -> Sequence[range]:
        return [range(begin, end) for begin, end in zip((0, *self.ends), (*self.ends, self.row_count), strict=True)]

    def read(self, portion: range) -> pa.RecordBatch:
        return self.batch.slice(portion.start, len(portion))


def memory(context: TableContext, on: Sequence[str] = ("id",), ids: Sequence[int | None] = range(COUNT)) -> MemorySource:
    count = len(ids)
    columns = {"id": pa.array(ids, pa.int32()), "n": pa.array(range(100, 100 + count), pa.int32())}
    texts = {"Name": pa.array([f"N{at}" for at in range(count)]), "name": pa.array([f"n{at}" for at in range(count)])}
    return MemorySource.of(pa.table({**columns, **texts}), context.schema, on, None)


def clause(context: TableContext, source: MergeSource, *texts: str, when: str = "") -> Clause:
    own = source_schema(context.schema, source)
    return Clause(parse_predicate(when, own, {}) if when else None, parse_set_clause(texts, own, {}) if texts else None)


def new_rows(context: TableContext, source: MergeSource, *clauses: Clause, met: Sequence[Sequence[int] | None] = ()) -> NewRows:
    changed = [ChangedBucket(0, None, sources=None if rows is None else np.array(rows, np.int64)) for rows in met]
    return NewRows.of(source, clauses or (clause(context, source, *ALL),), context.schema, changed)


def made(rows: Any) -> list[dict[str, Any]]:
    """All rows that tasks make of the splits, each with the number of its row in its split."""
    found = []
    for split in rows.plan():
        of_split = [(part.batch, part.rows) for part in rows.raw_rows(split, (), Needed())]
        numbers = np.concatenate([numbers for _, numbers in of_split])
        assert numbers.min() >= 0 and numbers.max() < split.length and len(set(numbers.tolist())) == len(numbers)
        found += [(split.start + int(n), row) for batch, at in of_split for n, row in zip(at, batch.to_pylist(), strict=True)]
    return [{"at": at, **row} for at, row in sorted(found, key=lambda one: one[0])]


CUTS = [(), (1,), (8,), (7, 9), (3, 3, 16, 17, 29), tuple(range(1, COUNT)), (COUNT,)]


@pytest.mark.parametrize("cuts", CUTS)
def test_each_row_that_has_met_none_is_inserted_once_whatever_the_portions(context: TableContext, cuts: tuple[int, ...]) -> None:
    source = Portions(memory(context), cuts)
    met: list[list[int] | None] = [[3, 9, 10], None, [0, 29], [], [16]]
    rows = new_rows(context, source, met=met)
    left = sorted(set(range(COUNT)) - {0, 3, 9, 10, 16, 29})
    expected = [{"at": at, "id": at, "n": 100 + at, "Name": f"N{at}", "name": f"n{at}"} for at in left]
    assert made(rows) == expected
    moved = pa.table({"id": pa.array([7, 8], pa.int32()), "Name": ["M", "m"]})
    both = rows.with_moved(moved)
    assert made(both)[: len(left)] == expected
    assert made(both)[len(left) :] == [{"at": COUNT, "id": 7, "Name": "M"}, {"at": COUNT + 1, "id": 8, "Name": "m"}]
    every = new_rows(context, source, met=[range(COUNT)])
    assert not every.portions and not every.plan() and len(made(every.with_moved(moved))) == 2


def test_the_first_clause_that_holds_makes_a_row_and_one_without_values_none(context: TableContext) -> None:
    source = Portions(memory(context), (11,))
    clauses = (
        clause(context, source, when="source.id < 5"),
        clause(context, source, "id = source.id", "n = -1", when="n % 2 = 0 OR source.id = 3"),
        clause(context, source, "id = source.id + 1000", "name = source.name", when="id <> 7"),
    )
    rows = new_rows(context, source, *clauses, met=[[20]])
    even: list[dict[str, Any]] = [{"at": at, "id": at, "n": -1} for at in range(6, COUNT, 2) if at != 20]
    odd: list[dict[str, Any]] = [{"at": at, "id": 1000 + at, "name": f"n{at}"} for at in range(5, COUNT, 2) if at != 7]
    assert made(rows) == sorted([*even, *odd], key=lambda row: row["at"])
    nothing = new_rows(context, source, clause(context, source, when="source.id < 5"))
    assert not nothing.portions and not nothing.plan()


def test_moved_rows_whose_texts_are_too_long_for_one_batch_are_all_there(context: TableContext) -> None:
    """More than 2 GiB together, which are no memory as long as nobody looks at them."""
    size = (1 << 30) + 1
    text = pa.py_buffer(mmap.mmap(-1, size))
    texts = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, size], np.int32)), text)
    moved = pa.table({"id": pa.array([7, 8], pa.int32()), "name": pa.chunked_array([texts, texts])})
    rows = new_rows(context, Portions(memory(context), (11,)), met=[range(COUNT)]).with_moved(moved)
    (split,) = rows.plan()
    parts = list(rows.raw_rows(split, (), Needed()))
    assert [number for part in parts for number in part.rows.tolist()] == [0, 1]
    assert [number for part in parts for number in part.batch.column("id").to_pylist()] == [7, 8]


def test_rows_of_a_source_in_memory_are_made_at_once_with_the_moved_ones(context: TableContext) -> None:
    source = memory(context)
    clauses = (
        clause(context, source, "id = source.id", "n = 5", when="source.id = 1"),
        clause(context, source, "id = source.id", "name = source.name", when="source.id > 27"),
    )
    rows, moved = new_rows(context, source, *clauses), pa.table({"id": pa.array([7], pa.int32()), "n": pa.array([8], pa.int32())})
    given = rows.with_moved(moved)
    assert isinstance(given, ArrowRows)
    wanted = [(1, 5, None), (28, None, "n28"), (29, None, "n29")]
    assert [(row["id"], row["n"], row["name"]) for row in given.table.to_pylist()] == [*wanted, (7, 8, None)]
    alone = rows.with_moved(pa.table({}))
    assert isinstance(alone, ArrowRows) and alone.table.num_rows == 3
    none = new_rows(context, source, *clauses, met=[range(COUNT)])
    only = none.with_moved(moved)
    assert isinstance(only, ArrowRows) and only.table.to_pylist() == moved.to_pylist()
    assert not none.with_moved(pa.table({})).plan()


def test_when_keys_are_known_to_be_new(context: TableContext, tmp_path: Path) -> None:
    source = memory(context)

    def known(source: MergeSource, *texts: str, keys: Sequence[str] = ("id",)) -> bool:
        return new_rows(context, source, clause(context, source, *texts)).keeps_known_keys(keys)

    assert known(source, "id = source.id") and known(source, "id = id") and known(source, *ALL, keys=("id", "n"))
    assert not known(source, "id = source.id + 0") and not known(source, "id = source.n") and not known(source, "n = source.n")
    assert not known(source, "id = source.id", keys=("id", "n")), "the other half of the key is not given"
    assert not known(memory(context, on=("n",)), *ALL), "the merge is not on the key"
    assert not known(memory(context, on=("id", "n")), *ALL)
    assert known(memory(context, on=("id", "n")), *ALL, keys=("id", "n"))
    assert not known(memory(context, ids=[1, 2, 1]), "id = source.id"), "twice in the source"
    assert not known(Portions(source, (5,)), "id = source.id"), "its rows are not in this process"
    first, second = (clause(context, source, f"id = source.{name}", when="n > 105") for name in ("id", "n"))
    assert not new_rows(context, source, first, second).keeps_known_keys(("id",))
    assert new_rows(context, source, Clause(), first).keeps_known_keys(("id",))
    options = {"primary-key.nullable": "true"}
    nullable = make_table(tmp_path / "n", {**COLUMNS, "id": "INT"}, ["id", "n"], options=options)
    for ids, is_known in (([1, 2, None], False), ([1, 2, 3], True)):
        for on in (("id", "n"), ("n", "id")):
            given = memory(nullable, on=on, ids=ids)
            assert new_rows(nullable, given).keeps_known_keys(("id", "n")) == is_known


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("share", [1, 4, 29, 30, 1000])
def test_a_key_that_two_rows_have_is_found_in_every_share(
    context: TableContext, in_memory: bool, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "inserted_keys", share)
    shares, check = list[int](), merge_inserts._check_share

    def counted(*given: Any) -> None:
        shares.append(given[-1])
        check(*given)

    monkeypatch.setattr(merge_inserts, "_check_share", counted)

    def look(ids: Sequence[int | None], *texts: str) -> None:
        whole = memory(context, on=("n",), ids=ids)
        source = whole if in_memory else Portions(whole, (7, 9))
        check_new_keys(
            context, None, new_rows(context, source, clause(context, source, *texts or ALL)), LocalEngine(), NoProgress()
        )

    look(range(COUNT))
    assert sorted(shares) == list(range(-(-COUNT // share)))
    for at in (0, 8, 28):
        with pytest.raises(BadInput, match=rf"two rows to insert have id = {at}\b"):
            look([*range(COUNT - 1), at])
    with pytest.raises(UsageError, match="key column 'id' is not set"):
        look(range(COUNT), "n = source.n")


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true", "write-only": "true"}])
def test_a_key_that_the_table_has_is_found_where_readers_do_not_look(
    tmp_path: Path, in_memory: bool, options: dict[str, str]
) -> None:
    """Unless the merge is on the key: such a row would have met one of the source."""
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2, options=options)
    write(context, [{"id": number, "n": 0} for number in (5, 99)])
    snapshot = context.snapshots.latest()

    def look(on: str, ids: Sequence[int], *texts: tuple[str, str]) -> None:
        whole = memory(context, on=(on,), ids=ids)
        source = whole if in_memory else Portions(whole, (1, 2))
        rows = new_rows(context, source, *(clause(context, source, text, when=when) for text, when in texts))
        check_new_keys(context, snapshot, rows, LocalEngine(), NoProgress())

    look("n", [1, 2, 3, 4, 98], ("id = source.id", ""))
    for ids in ([1, 2, 3, 5], [99, 2, 3]):
        with pytest.raises(BadInput, match="a row to insert has the key of a row of the table: id = "):
            look("n", ids, ("id = source.id", ""))
    look("id", [1, 2, 5, 6], ("id = source.id", ""))
    for both in (
        [("id = source.id + 3", "n < 102"), ("id = source.id", "")],
        [("id = source.id", "n > 101"), ("id = source.id + 3", "")],
    ):
        with pytest.raises(BadInput, match="id = 5"):
            look("id", [2, 20, 30, 40], *both)


def test_without_a_key_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    monkeypatch.setattr(merge_inserts, "_check_share", None)
    source = memory(context, ids=[1, 1])
    check_new_keys(context, None, new_rows(context, source), LocalEngine(), NoProgress())
    assert len(new_rows(context, source).plan()) == 1
