"""The join of a merge, against a dictionary."""

import datetime as dt
import pickle
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.datatypes.arrow_types import type_from_arrow
from paimon_cli.jobs import source_rows
from paimon_cli.jobs.key_index import NO_ROW, KeyIndex, RowIndex
from paimon_cli.jobs.source_rows import SpilledIndex, StoredRows, _written
from paimon_cli.pieces import PIECES

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 1, 1), dt.date(9999, 1, 1)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2024, 1, 1)]),
    "instant": (pa.timestamp("ms", "UTC"), [dt.datetime(2024, 1, day, tzinfo=dt.timezone.utc) for day in range(1, 5)]),
    "time": (pa.time32("ms"), [dt.time(1), dt.time(2, 30)]),
    "string": (pa.string(), ["", "a", "b", "ä", "z", "\U0001f600", "\uffff"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff", b"a"]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("1.50"), Decimal("99.99")]),
}


def column(chance: random.Random, t: pa.DataType, values: list[Any], rows: int) -> pa.Array:
    return pa.array([chance.choice([*values, None]) for _ in range(rows)], t)


@pytest.fixture
def spill() -> Iterator[SpillDirectory]:
    with SpillDirectory() as directory:
        yield directory


def spilled(columns: list[pa.Array], names: tuple[str, ...], spill: SpillDirectory) -> RowIndex:
    """The index of a task in another process: what is pickled names files."""
    rows = pa.RecordBatch.from_arrays(columns, names=list(names))
    stored = StoredRows.mapped(_written(rows.schema, [rows], spill))
    index = SpilledIndex.of(stored, names, tuple([type_from_arrow(column.type) for column in columns]), spill)
    copy: RowIndex = pickle.loads(pickle.dumps(index))
    return copy


@pytest.mark.parametrize(
    "names", [(name,) for name in VALUES] + [("int", "string"), ("string", "date", "decimal"), ("bigint", "binary")]
)
@pytest.mark.parametrize("spills", [False, True], ids=["in memory", "on disk"])
def test_rows_are_found_by_their_values(
    names: tuple[str, ...], spills: bool, spill: SpillDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "indexed_rows", 7)
    monkeypatch.setattr(PIECES, "batch_rows", 3)
    chance = random.Random(str(names))
    for size in (1, 12, 60) if spills else (0, 1, 12):
        own, others = ([column(chance, *VALUES[name], rows) for name in names] for rows in (size, 40))
        first: dict[tuple[Any, ...], list[int]] = {}
        for row, values in enumerate(zip(*(array.to_pylist() for array in own), strict=True)):
            if None not in values:
                first.setdefault(values, []).append(row)
        index = spilled(own, names, spill) if spills else KeyIndex(own)
        keys = list(zip(*(array.to_pylist() for array in others), strict=True))
        found = index.rows_of(others)
        assert found.tolist() == [first.get(values, [NO_ROW])[0] for values in keys]
        assert index.is_unique == all(len(rows) == 1 for rows in first.values())
        met = found[found != NO_ROW]
        assert index.repeats(met).tolist() == [len(first[values]) > 1 for values in keys if values in first]
        some = np.unique(met)[:3]
        like = {row for rows in first.values() if rows[0] in some for row in rows}
        assert set(index.all_like(some).tolist()) == like
        if not index.is_unique:
            assert index.first_repeated() in [rows[0] for rows in first.values() if len(rows) > 1]


def test_rows_of_different_values_with_one_hash_are_told_apart(spill: SpillDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "hash_rows", lambda columns, types: np.zeros(len(columns[0]), np.int32))
    own = [pa.array([5, 3, None, 3, 4], pa.int32())]
    index = spilled(own, ("int",), spill)
    assert index.rows_of([pa.array([3, 4, 5, 6, None], pa.int32())]).tolist() == [1, 4, 0, NO_ROW, NO_ROW]
    assert index.repeats(np.array([0, 1, 4])).tolist() == [False, True, False] and index.first_repeated() == 1


def test_rows_are_taken_from_several_batches() -> None:
    batches = [pa.RecordBatch.from_pylist([{"a": number, "b": str(number)}]) for number in range(5)]
    rows = StoredRows(batches[0].schema, batches)
    assert rows.take(np.array([4, NO_ROW, 0, 4])).to_pylist() == [
        {"a": 4, "b": "4"},
        {"a": None, "b": None},
        *({"a": number, "b": str(number)} for number in (0, 4)),
    ]
    assert rows.take(np.array([NO_ROW]), ["b"]).to_pylist() == [{"b": None}] and rows.take(np.array([], int)).num_rows == 0
