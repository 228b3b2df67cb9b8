"""Of several options that are about a table of a source, the most exact one counts."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_cli.api.ingest_places import IngestPlace, TableNames
from paimon_cli.ingest.changes.table_events import SourceTable
from paimon_cli.requests.ingesting import IngestOptions

ORDERS = SourceTable("shop", "orders", "public")
EXACT = ("shop.public.orders", "public.orders", "shop.orders", "orders")
"""The names of a table, the most exact first."""


def names(**options: Any) -> TableNames:
    return TableNames(IngestPlace("lake"), IngestOptions(format="debezium", **options))


@pytest.mark.parametrize("count", range(1, len(EXACT) + 1))
def test_the_most_exact_name_counts_in_any_order(count: int) -> None:
    given = EXACT[-count:]
    for order in (given, given[::-1]):
        keys = names(primary_key=[f"{name}=of_{number}" for number, name in enumerate(order)] + ["of_all"])
        assert keys.key(ORDERS) == (f"of_{order.index(given[0])}",)
        mapped = names(table_mapping=[f"{name}=n{number}" for number, name in enumerate(order)], table_prefix="p_")
        assert mapped.target(ORDERS) == f"lake.n{order.index(given[0])}"


def test_what_is_about_no_table_in_particular() -> None:
    options = names(primary_key=["id, day", "items=n"], table_mapping=["items=i"], table_prefix="p_")
    assert options.key(ORDERS) == ("id", "day") and options.target(ORDERS) == "lake.p_orders"
    assert names(primary_key=["items=n"]).key(ORDERS) == ()
