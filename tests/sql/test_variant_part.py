"""`variant_get` in conditions and assignments."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import UsageError

DOCUMENTS = ['{"a": {"b": 5}, "s": "x"}', '{"a": {"b": 7.25}}', "[1]", None]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT", "n INT"], primary_key=["k"], bucket=1)
    found.write(pa.table({"k": pa.array(range(4), pa.int32()), "v": DOCUMENTS}))
    return found


def keys(table: Table, where: str) -> list[int]:
    return sorted(table.scan(where=where).to_arrow()["k"].to_pylist())


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("variant_get(v, '$.a.b', 'INT') >= 7", [1]),
        ("VARIANT_GET(v, '$.a.b', 'DOUBLE') > 5.5", [1]),
        ("variant_get(v, '$.s') = 'x' OR variant_get(v, '$[0]', 'BIGINT') IN (1, 2)", [0, 2]),
        ("variant_get(v, '$.s') IS NULL", [1, 2, 3]),
        ("NOT variant_get(v, '$.s') LIKE 'y%'", [0]),
        ("variant_get(v, '$.a.b', 'INT') + 1 = 6", [0]),
        ("try_variant_get(v, '$.a', 'INT') IS NULL", [0, 1, 2, 3]),
        ("try_variant_get(v, '$.s', 'INT') = 1 OR Try_Variant_Get(v, '$.a.b', 'INT') = 5", [0]),
        ("try_variant_get(v, '$.s') = 'x'", [0]),
    ],
)
def test_conditions(table: Table, where: str, found: list[int]) -> None:
    assert keys(table, where) == found


def test_assignments(table: Table) -> None:
    table.update(["n = variant_get(v, '$.a.b', 'INT') * 2"], where="variant_get(v, '$.s') = 'x'")
    assert [row["n"] for row in table.scan(where="k = 0").to_arrow().to_pylist()] == [10]


@pytest.mark.parametrize("where", ["v = '1'", "v > 1", "v IN ('1', '2')"])
def test_a_whole_variant_is_not_compared(table: Table, where: str) -> None:
    with pytest.raises(UsageError) as refusal:
        keys(table, where)
    assert "v is a VARIANT" in refusal.value.message
    assert keys(table, refusal.value.hint.partition("such as ")[2].replace("$.name", "$.s")) == [0]


@pytest.mark.parametrize(
    "where",
    [
        "variant_get(n, '$.a', 'INT') = 1",
        "variant_get(v) = 1",
        "variant_get() = 1",
        "variant_get(v, k) = 1",
        "variant_get(v, '$.a', 'INT', 'INT') = 1",
        "variant_get(v, '$.a', 'NOPE') = 1",
        "variant_get(v, 'a') = 1",
        "try_variant_get(v, 'a') = 1",
        "try_variant_get(v, '$.a', 'ARRAY<INT>') = 1",
        "variant_get(v, '$.s', 'INT') = 1",
        "v.value = 1",
    ],
)
def test_other_calls_are_refused(table: Table, where: str) -> None:
    with pytest.raises(UsageError):
        keys(table, where)
