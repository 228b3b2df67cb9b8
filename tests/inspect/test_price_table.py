"""Prices: by name, or from a file that may come from anybody."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import UsageError
from paimon_cli.inspect.operation_cost import OperationCost
from paimon_cli.inspect.price_table import MAX_PRICE_FILE, PriceTable, parse_prices, price_table


def test_money_is_that_of_requests_and_transfer() -> None:
    cost = OperationCost("t", "read", reads=2000, writes=1000, checks=500, bytes_read=2**31, bytes_written=2**40)
    assert PriceTable("EUR", 0.5, 5, 1, 7, 0.25).priced(cost).money == 1 + 5 + 0.5 + 0.5
    assert price_table("aws-s3").of_month(2**40) == pytest.approx(0.023 * 1024)


@pytest.mark.parametrize("content", (b"currency: EUR\nreads: 0.5\nstored: 3", b'{"currency": "EUR", "reads": 0.5, "stored": 3}'))
def test_a_file_is_yaml_or_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prices"
    path.write_bytes(content)
    assert price_table(str(path)) == PriceTable("EUR", reads=0.5, stored=3)


@pytest.mark.parametrize(
    "content",
    (
        b"",
        b"[]",
        b"reeds: 1",
        b"reads: -1",
        b"reads: .nan",
        b"reads: .inf",
        b"reads: true",
        b"reads: '1'",
        b"reads: [1]",
        b"currency: 5",
        b"currency: '\x1b[2J'",
        b"reads: &a 1\nwrites: *a",
        b"reads: !!float 1",
        b"reads: !!python/object/apply:os.system ['true']",
        b"? [1]\n: 2",
        b"{" * 60_000,
        b"- " * 30_000,
        b"? " * 30_000,
        b"reads: {a: 1}",
        b"reads: 1 #" + b"x" * MAX_PRICE_FILE,
        b"\xff\xfe",
        b"reads: 1" + b"0" * 5000,
    ),
    ids=itertools.count(),
)
def test_what_is_no_table_of_prices_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError):
        parse_prices(content, "prices")


@pytest.mark.parametrize(
    "content",
    (
        b"reads: 1\nreads: 0",
        b'{"reads": 1, "stored": 3, "reads": 0}',
        b"? reads\n: 1\n? 'reads'\n: 1",
        b'{reads: 1, "\\u0072eads": 2}',
    ),
    ids=itertools.count(),
)
def test_a_key_that_is_there_twice_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match="'reads' is there twice in prices"):
        parse_prices(content, "prices")


def test_a_price_that_is_neither_a_name_nor_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no prices 'gcs'"):
        price_table("gcs")
    with pytest.raises(UsageError):
        price_table(str(tmp_path))


def test_a_cost_tells_the_money_of_a_month(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["id BIGINT NOT NULL"], primary_key=["id"], options={"bucket": "1"})
    assert table.cost().month is None
    assert table.cost(prices="aws-s3").operations == []
    table.write([{"id": 1}], compact="none")
    cost = table.cost(prices="aws-s3")
    assert cost.currency == "USD" and cost.month is not None
    assert {operation.operation for operation in cost.operations} == {"read", "write", "idle hour"}
    assert all(operation.money for operation in cost.operations)
