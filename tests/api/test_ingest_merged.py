"""Several tables of a source in one table: their events are applied in the order in which they were read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog
from paimon_cli.errors import BadInput, NotSupported, UsageError
from paimon_cli.pieces import PIECES
from tests.event_streams import Row


def event(database: str, kind: str, before: Row | None, after: Row | None, table: str = "t") -> dict[str, Any]:
    return {"op": kind, "before": before, "after": after, "source": {"db": database, "table": table}}


MOVED = [
    event("d0", "u", {"id": 2, "v": "a"}, {"id": 2, "v": "b"}),
    event("d1", "d", {"id": 1, "v": "a"}, None),
    event("d0", "c", None, {"id": 1, "v": "new"}),
]
NEWEST = [
    event("d0", "c", None, {"id": 1, "v": "one"}),
    event("d1", "c", None, {"id": 1, "v": "two"}),
    event("d0", "u", {"id": 1, "v": "one"}, {"id": 1, "v": "three"}),
]


def written(folder: Path, *events: Any) -> str:
    file = folder / "events.json"
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in events), "utf-8")
    return str(file)


def rows(catalog: Catalog, table: str = "shop.t") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in catalog.table(table).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(("events", "expected"), [(MOVED, [("1", "new"), ("2", "b")]), (NEWEST, [("1", "three")])])
def test_events_of_shards_keep_their_order(tmp_path: Path, events: list[Row], expected: list[Any]) -> None:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.ingest(written(tmp_path, *events), format="debezium", into="shop", primary_key="id")
    assert rows(catalog) == expected


def test_rows_of_one_event_keep_their_order(tmp_path: Path) -> None:
    """An update is two rows of one position: were the new one first, the old one would remove it."""
    catalog = Catalog(str(tmp_path / "wh"))
    options = {"changelog-producer": "input"}
    columns = ["id INT NOT NULL", "v STRING"]
    catalog.create_table("shop.t", columns=columns, primary_key="id", bucket=1, options=options)
    events = [event(f"d{n % 3}", "u", {"id": n, "v": "old"}, {"id": n, "v": "new"}) for n in range(300)]
    catalog.ingest(written(tmp_path, *events), format="debezium", into="shop")
    assert rows(catalog) == [(n, "new") for n in range(300)]


def test_a_column_that_one_shard_adds_keeps_the_order(tmp_path: Path) -> None:
    added = event("d0", "u", {"id": 1, "v": "one"}, {"id": 1, "v": "three", "n": 7})
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.ingest(written(tmp_path, *NEWEST[:2], added), format="debezium", into="shop", primary_key="id")
    assert rows(catalog) == [("1", "three", "7")]


def test_what_stops_the_table_leaves_out_later_events_of_all_shards(tmp_path: Path) -> None:
    """And none before it: the run goes on there once the event is mended."""
    good = [event(f"d{n % 2}", "c", None, {"id": n, "v": "x"}) for n in range(8)]
    bad = {**good[5], "after": None}
    catalog = Catalog(str(tmp_path / "wh"))
    options: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    sums = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
    catalog.create_table("shop.t", columns=["id INT NOT NULL", "v STRING"], primary_key="id", options=sums)
    catalog.ingest(written(tmp_path, *good[:1]), **options)
    with pytest.raises(BadInput, match="no image of the row after"):
        catalog.ingest(written(tmp_path, *good[:5], bad, *good[6:]), **options)
    assert rows(catalog) == [(n, "x") for n in range(5)]
    catalog.ingest(written(tmp_path, *good), **options)
    assert rows(catalog) == [(n, "x") for n in range(8)]


def test_a_truncation_stops_a_table_with_the_rows_of_another_shard(tmp_path: Path) -> None:
    """It is the first shard of the block, and the table meets the other one in the same block."""
    events = [
        event("d0", "c", None, {"id": 1, "v": "a"}),
        event("d1", "c", None, {"id": 2, "v": "a"}),
        event("d0", "t", None, None),
        event("d1", "c", None, {"id": 3, "v": "a"}),
    ]
    catalog = Catalog(str(tmp_path / "wh"))
    with pytest.raises(NotSupported, match="was emptied by a truncation"):
        catalog.ingest(written(tmp_path, *events), format="debezium", into="shop", primary_key="id")
    assert rows(catalog) == [("1", "a"), ("2", "a")]


def test_a_truncation_before_the_first_event_of_another_shard_is_applied(tmp_path: Path) -> None:
    """All rows are of its own shard then, wherever the block ends."""
    events = [
        event("d0", "c", None, {"id": 1, "v": "a"}),
        event("d0", "t", None, None),
        event("d1", "c", None, {"id": 2, "v": "a"}),
        event("d0", "c", None, {"id": 3, "v": "a"}),
    ]
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.ingest(written(tmp_path, *events), format="debezium", into="shop", primary_key="id")
    assert rows(catalog) == [("2", "a"), ("3", "a")]


@pytest.mark.filterwarnings("ignore:.* has stopped")
def test_a_table_does_not_remember_a_table_whose_events_it_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on without it, once that has a name of its own. The first two events are a block, and those of both another."""
    events = [event("d", "c", None, {"id": n}) for n in range(5)]
    for number, one in enumerate(events):
        one["source"]["schema"] = "other" if number == 3 else "public"
    monkeypatch.setattr(PIECES, "event_block_rows", 2)
    catalog, file = Catalog(str(tmp_path / "wh")), written(tmp_path, *events)
    options: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    with pytest.raises(UsageError, match="would be merged"):
        catalog.ingest(file, **options)
    assert rows(catalog) == [("0",), ("1",), ("2",)]
    catalog.ingest(file, table_mapping="other.t=u", **options)
    assert rows(catalog) == [("0",), ("1",), ("2",), ("4",)] and rows(catalog, "shop.u") == [("3",)]


@pytest.mark.filterwarnings("ignore:.* has stopped")
def test_an_event_without_a_row_is_not_passed_where_later_ones_stop_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table takes no updates, but the event before cannot be read: the mended file is applied from there."""
    created = [event("d0", "c", None, {"id": n}) for n in range(4)]
    bad, update = {**created[2], "after": 7}, event("d0", "u", {"id": 1}, {"id": 1})
    monkeypatch.setattr(PIECES, "event_block_rows", 2)
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.create_table("shop.t", columns=["id INT"])
    options: dict[str, Any] = {"format": "debezium", "into": "shop"}
    with pytest.raises(UsageError, match="no primary key"):
        catalog.ingest(written(tmp_path, *created[:2], bad, update), **options)
    assert rows(catalog) == [(0,), (1,)]
    catalog.ingest(written(tmp_path, *created), **options)
    assert rows(catalog) == [(n,) for n in range(4)]


def test_bad_events_are_set_apart_in_the_order_in_which_they_were_read(tmp_path: Path) -> None:
    """Whatever is wrong with them, of all shards: applied again, the newest counts."""
    catalog, letters = Catalog(str(tmp_path / "wh")), str(tmp_path / "letters.json")
    table = catalog.create_table("shop.t", columns=["id INT NOT NULL", "age INT"], primary_key="id")
    rows_of_key = [{"id": 1, "age": f"v{n}"} for n in range(6)]
    events = [event(f"d{n % 2}", "u", None, row) for n, row in enumerate(rows_of_key)]
    events[3]["op"] = "unknown"
    options: dict[str, Any] = {"format": "debezium", "into": "shop", "on_error": letters}
    catalog.ingest(written(tmp_path, *events, event("d0", "d", {"id": 2, "age": "x"}, None)), **options)
    positions = [json.loads(line)["dead_letter"]["position"] for line in Path(letters).read_text("utf-8").splitlines()]
    assert len(positions) >= 6 and positions == sorted(positions)
    table.alter.alter_column("age", "STRING")
    catalog.ingest(letters, format="debezium", into="shop", on_error=str(tmp_path / "again.json"))
    assert rows(catalog) == [(1, "v5")]
