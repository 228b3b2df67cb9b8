"""The join of a merge, against a dictionary."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.jobs.key_index import NO_ROW, KeyIndex

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


@pytest.mark.parametrize(
    "names", [(name,) for name in VALUES] + [("int", "string"), ("string", "date", "decimal"), ("bigint", "binary")]
)
def test_rows_are_found_by_their_values(names: tuple[str, ...]) -> None:
    chance = random.Random(str(names))
    for size in (0, 1, 12):
        own, others = ([column(chance, *VALUES[name], rows) for name in names] for rows in (size, 40))
        first: dict[tuple[Any, ...], list[int]] = {}
        for row, values in enumerate(zip(*(array.to_pylist() for array in own), strict=True)):
            if None not in values:
                first.setdefault(values, []).append(row)
        index = KeyIndex(own)
        keys = list(zip(*(array.to_pylist() for array in others), strict=True))
        found = index.rows_of(others)
        assert found.tolist() == [first.get(values, [NO_ROW])[0] for values in keys]
        assert index.is_unique == all(len(rows) == 1 for rows in first.values())
        met = found[found != NO_ROW]
        assert index.repeats(met).tolist() == [len(first[values]) > 1 for values in keys if values in first]
        if not index.is_unique:
            assert index.first_repeated() in [rows[0] for rows in first.values() if len(rows) > 1]
