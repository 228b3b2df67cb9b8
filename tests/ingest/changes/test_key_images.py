"""Rows before that hold only their key never reach a table that takes their values back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.errors import BadInput, PartialSuccess
from tests.event_streams import Row, canal, debezium, flat, maxwell, rows_of, written

SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
RETRACTING = [
    SUMS,
    {"merge-engine": "partial-update", "fields.g.sequence-group": "n", "fields.n.aggregate-function": "sum"},
    {"changelog-producer": "input"},
    {"sequence.field": "n"},
    {"merge-engine": "partial-update", "fields.g.sequence-group": "n,note"},
]


def of_postgres(event: Row) -> Row:
    return {**event, "source": {**event["source"], "connector": "postgresql"}}


def key_only(row: Row, is_null: bool) -> Row:
    """The image of a row under REPLICA IDENTITY DEFAULT, with columns that may be null, or may not."""
    fillers = {name: None if is_null else "" if isinstance(value, str) else 0 for name, value in row.items()}
    return {**fillers, "id": row["id"]}


@pytest.mark.parametrize("options", RETRACTING, ids=["sums", "partial update", "input", "ordered", "ordered group"])
def test_the_key_alone_is_no_row_to_take_back(tmp_path: Path, options: dict[str, str]) -> None:
    """A deletion that takes nulls back would leave the amount of its row in the sum, without a word."""
    catalog = Catalog(str(tmp_path))
    row = {"id": 1, "g": 1, "n": 5, "note": "a"}
    images = [{"id": 1}, key_only(row, True), key_only(row, False)]
    events = [of_postgres(debezium(f"t{n}", "c", None, row)) for n in range(4)]
    events += [of_postgres(debezium(f"t{n}", "d", image, None)) for n, image in enumerate([*images, row])]
    events += [of_postgres(debezium(f"t{n}", "c", None, {**row, "id": 2})) for n in range(4)]
    for n in range(4):
        columns = ["id INT NOT NULL", "g INT", "n INT", "note STRING"]
        catalog.create_table(f"shop.t{n}", columns=columns, primary_key="id", options=options, bucket=1)
    file = written(tmp_path / "e.json", *events)
    letters = tmp_path / "letters.json"
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(PartialSuccess, match=r"3 tables of 4 stopped: .*REPLICA"):
        catalog.ingest(file, format="debezium", into="shop")
    assert [sorted(rows_of(tmp_path, f"t{n}")) for n in range(3)] == [[1]] * 3
    assert 2 in rows_of(tmp_path, "t3")
    catalog.ingest(file, format="debezium", into="shop", on_error=str(letters))
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [json.loads(one["event"])["source"]["table"] for one in found] == ["t0", "t1", "t2"]
    assert [sorted(rows_of(tmp_path, f"t{n}")) for n in range(3)] == [[1, 2]] * 3
    assert all(rows_of(tmp_path, f"t{n}")[1] == row for n in range(3))


@pytest.mark.parametrize(
    "options", [{"sequence.field": "op_ts"}, {"merge-engine": "partial-update", "fields.op_ts.sequence-group": "n"}]
)
def test_a_deletion_is_ordered_by_its_own_time(tmp_path: Path, options: dict[str, str]) -> None:
    catalog = Catalog(str(tmp_path))
    columns = ["id INT NOT NULL", "n INT", "op_ts TIMESTAMP_LTZ(3)"]
    catalog.create_table("shop.t", columns=columns, primary_key="id", options=options, bucket=1)
    events = [debezium("t", "c", None, {"id": 1, "n": 5}), debezium("t", "d", {"id": 1, "n": None}, None)]
    file = written(tmp_path / "e.json", *map(of_postgres, events))
    catalog.ingest(file, format="debezium", into="shop", metadata_column="op_ts")
    assert [row["n"] for row in rows_of(tmp_path, "t").values() if row["n"] is not None] == []


def test_a_key_that_changes_takes_a_whole_row_back(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("shop.t", columns=["id INT NOT NULL", "n INT"], primary_key="id", options=SUMS, bucket=1)
    events = [debezium("t", "c", None, {"id": 1, "n": 5}), debezium("t", "u", {"id": 1, "n": None}, {"id": 2, "n": 6})]
    file = written(tmp_path / "e.json", *map(of_postgres, events))
    with pytest.warns(UserWarning), pytest.raises(BadInput, match=r"REPLICA IDENTITY FULL .*keeps the newest row"):
        catalog.ingest(file, format="debezium", into="shop")
    assert rows_of(tmp_path, "t") == {1: {"id": 1, "n": 5}}


@pytest.mark.parametrize("connector", ["mysql", "postgresql"])
@pytest.mark.parametrize("seed", range(3))
def test_sums_equal_those_of_whole_rows(tmp_path: Path, connector: str, seed: int) -> None:
    """Whole rows of nulls and zeros are taken back; the oracle adds up the rows that live."""
    catalog, chance = Catalog(str(tmp_path)), random.Random(seed)
    catalog.create_table("shop.t", columns=["id INT NOT NULL", "n INT"], primary_key="id", options=SUMS, bucket=1)
    events = [debezium("t", "c", None, {"id": 0, "n": 1}), debezium("t", "u", {"id": 0, "n": 1}, {"id": 0, "n": 2})]
    state: dict[int, Row] = {0: {"id": 0, "n": 2}}
    for _ in range(300):
        key = chance.randrange(20)
        new: Row = {"id": chance.randrange(20), "n": chance.choice([None, 0, 3, 7])}
        old = state.pop(key, None)
        if old is None:
            state[key] = new = {**new, "id": key}
            events.append(debezium("t", "c", None, new))
        elif chance.random() < 0.3:
            events.append(debezium("t", "d", old, None))
        else:
            new = {**new, "id": key if new["id"] in state else new["id"]}
            state[new["id"]] = new
            events.append(debezium("t", "u", old, new))
    for event in events:
        event["source"]["connector"] = connector
    catalog.ingest(written(tmp_path / "e.json", *events), format="debezium", into="shop", memory=16 * 4000)
    found = {key: row["n"] or 0 for key, row in rows_of(tmp_path, "t").items()}
    assert {key: n for key, n in found.items() if n} == {key: row["n"] for key, row in state.items() if row["n"]}


def test_sources_of_whole_rows_may_delete_nulls(tmp_path: Path) -> None:
    """Canal, Maxwell, and Debezium for MySQL send whole rows, unless they name the key alone."""
    catalog = Catalog(str(tmp_path))
    formats: list[tuple[Any, Any]] = [("debezium", debezium), ("maxwell", maxwell), ("canal", canal)]
    whole, bare = {"id": 1, "name": None}, {"id": 1}
    for name, envelope in formats:
        columns = ["id INT NOT NULL", "name INT"]
        options = {"merge-engine": "aggregation", "fields.name.aggregate-function": "sum"}
        catalog.create_table(f"{name}.t", columns=columns, primary_key="id", options=options, bucket=1)
        events = [envelope("t", "c", None, {"id": 1, "name": 5}), envelope("t", "d", whole, None)]
        if name == "canal":
            for event in events:
                event["mysqlType"]["name"] = "int"
        [done] = catalog.ingest(written(tmp_path / f"{name}.json", *events), format=name, into=name)
        assert (done.inserts, done.deletes) == (1, 1)
        last = written(tmp_path / f"{name}2.json", envelope("t", "d", bare, None))
        with pytest.warns(UserWarning), pytest.raises(BadInput, match="no other value"):
            catalog.ingest(last, format=name, into=name)


def test_an_identity_that_was_made_full_later_does_not_vouch_for_events_before(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("shop.t", columns=["id INT NOT NULL", "n INT"], primary_key="id", options=SUMS, bucket=1)
    events = [debezium("t", "c", None, {"id": 1, "n": 5}), debezium("t", "d", {"id": 1, "n": 0}, None)]
    events += [debezium("t", "c", None, {"id": 2, "n": 5}), debezium("t", "u", {"id": 2, "n": 5}, {"id": 2, "n": 0})]
    events += [debezium("t", "d", {"id": 2, "n": 0}, None)]
    letters = tmp_path / "letters.json"
    file = written(tmp_path / "e.json", *map(of_postgres, events))
    [done] = catalog.ingest(file, format="debezium", into="shop", on_error=str(letters))
    assert (done.bad_events, done.deletes) == (1, 1)
    assert json.loads(json.loads(letters.read_text())["event"])["before"] == {"id": 1, "n": 0}


@pytest.mark.parametrize("source", [{}, {"n": 3}])
def test_a_row_before_that_is_not_whole_is_not_taken_back(tmp_path: Path, source: Row) -> None:
    """A column that is missing, or a large value that the log lacks; a null that is written is a value like others."""
    catalog = Catalog(str(tmp_path))
    columns = ["id INT NOT NULL", "n INT", "note STRING"]
    catalog.create_table("shop.t", columns=columns, primary_key="id", options=SUMS, bucket=1)
    row = {"id": 1, "n": 5, "note": "a"}
    large = {**row, "note": "__debezium_unavailable_value"}
    events = [debezium("t", "c", None, row), debezium("t", "u", {"id": 1, "note": "a"}, {**row, "n": 6})]
    events += [debezium("t", "u", large, {**row, "n": 7}), debezium("t", "d", large, None)]
    events += [debezium("t", "u", row, {**row, "n": None}), debezium("t", "u", {**row, "n": None}, {**row, "n": 8})]
    for event in events:
        event["source"] |= source
    letters = tmp_path / "letters.json"
    file = written(tmp_path / "e.json", *events)
    [done] = catalog.ingest(file, format="debezium", into="shop", on_error=str(letters))
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [json.loads(one["event"]) for one in found] == events[1:4]
    assert "lacks a column" in found[0]["dead_letter"]["reason"]
    assert (done.updates, done.deletes, rows_of(tmp_path, "t")) == (2, 0, {1: {**row, "n": 8}})


@pytest.mark.parametrize("engine", ["partial-update", "first-row"])
def test_what_a_table_refuses_is_a_bad_event(tmp_path: Path, engine: str) -> None:
    """Updates go in as new rows, and a deletion stops the table at its place, or is set apart."""
    catalog = Catalog(str(tmp_path))
    columns = ["id INT NOT NULL", "n INT"]
    catalog.create_table("shop.t", columns=columns, primary_key="id", options={"merge-engine": engine}, bucket=1)
    rows = [{"id": 1, "n": 5}, {"id": 1, "n": 6}, {"id": 2, "n": 7}]
    events = [debezium("t", "c", None, rows[0]), debezium("t", "u", rows[0], rows[1])]
    events += [debezium("t", "d", rows[1], None), debezium("t", "c", None, rows[2])]
    file, letters = written(tmp_path / "e.json", *events), tmp_path / "letters.json"
    kept = rows[1] if engine == "partial-update" else rows[0]
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(BadInput, match="does not accept rows of kind -D"):
        catalog.ingest(file, format="debezium", into="shop")
    assert rows_of(tmp_path, "t") == {1: kept}
    catalog.ingest(file, format="debezium", into="shop", on_error=str(letters))
    assert [json.loads(json.loads(line)["event"])["op"] for line in letters.read_text().splitlines()] == ["d"]
    assert rows_of(tmp_path, "t") == {1: kept, 2: rows[2]}


@pytest.mark.parametrize("name", ["n", "ts_ms"])
def test_a_name_that_stands_elsewhere_is_no_column_of_the_row_before(tmp_path: Path, name: str) -> None:
    """Keys of the event, and those within a value, may have the name of a column that the row before lacks."""
    catalog = Catalog(str(tmp_path))
    options = {"merge-engine": "aggregation", f"fields.{name}.aggregate-function": "sum"}
    columns = ["id INT NOT NULL", f"{name} INT", "doc STRING"]
    catalog.create_table("shop.t", columns=columns, primary_key="id", options=options, bucket=1)
    row: Row = {"id": 1, name: 5, "doc": {"n": 1} if name == "n" else None}
    lacking = {key: value for key, value in row.items() if key != name}
    events = [debezium("t", "c", None, row), debezium("t", "u", lacking, {**row, name: 6})]
    events.append(debezium("t", "u", {**row, name: None}, {**row, name: 8}))
    letters = tmp_path / "letters.json"
    [done] = catalog.ingest(written(tmp_path / "e.json", *events), format="debezium", into="shop", on_error=str(letters))
    [found] = [json.loads(line) for line in letters.read_text().splitlines()]
    assert json.loads(found["event"]) == events[1] and "lacks a column" in found["dead_letter"]["reason"]
    assert (done.updates, rows_of(tmp_path, "t")[1][name]) == (1, 13)


def made(op: str, before: Row | None, after: Row | None) -> Row:
    return of_postgres(debezium("t", op, before, after))


ROW = {"id": 1, "g": 7, "created": "20200506", "n": 1}
NEXT = {**ROW, "g": 8, "created": "20210506"}
COMPUTED: Row = {"computed": "dt = substring(created, 0, 4)", "primary_key": "dt,id"}
FILLED = {"id": 1, "g": 0, "created": "", "n": 0}
NO_KEY: Row = {"pkNames": None}


@pytest.mark.parametrize(
    "format, event, given, partition",
    [
        ("debezium", made("u", None, NEXT), COMPUTED, "dt"),
        ("debezium", made("u", {"id": 1}, NEXT), COMPUTED, "dt"),
        ("debezium", made("u", FILLED, NEXT), COMPUTED, "dt"),
        ("debezium", made("d", {"id": 1}, None), COMPUTED, "dt"),
        ("debezium", made("d", FILLED, None), COMPUTED, "dt"),
        ("debezium", made("u", None, NEXT), {"primary_key": "id,g"}, "g"),
        ("debezium-flat", flat("t", "u", None, NEXT), {"primary_key": "id,g"}, "g"),
        ("debezium-flat", flat("t", "u", None, NEXT), COMPUTED, "dt"),
        ("canal", {**canal("t", "u", ROW, NEXT), "old": None}, {"primary_key": "id,g"}, None),
        ("canal", {**canal("t", "u", ROW, NEXT), "old": None, **NO_KEY}, {"primary_key": "id,g"}, "g"),
    ],
)
def test_a_row_whose_key_is_not_that_of_the_source_is_not_left_behind(
    tmp_path: Path, format: Any, event: Row, given: Row, partition: str | None
) -> None:
    """The source's key is `id`: the rest of the table's key changes without it, and only an image before tells its old value."""
    envelope = {"debezium": lambda *facts: made(*facts[1:]), "debezium-flat": flat, "canal": canal}[format]
    catalog = Catalog(str(tmp_path), {} if partition is None else {"partition": partition})
    file, letters = written(tmp_path / "e.json", envelope("t", "c", None, ROW), event), tmp_path / "letters.json"
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(BadInput, match="of the table's primary key"):
        catalog.ingest(file, format=format, into="shop", **given)
    catalog.ingest(file, format=format, into="shop", on_error=str(letters), **given)
    assert len(letters.read_text().splitlines()) == 1
    assert len(rows_of(tmp_path, "t")) == 1
    if format == "debezium":
        rest = [made(event["op"], ROW, event["after"])]
        catalog.ingest(written(tmp_path / "whole.json", *rest), format=format, into="shop", **given)
        found = Table.open(str(tmp_path / "shop.db/t")).scan().to_arrow().to_pylist()
        assert [row["created"] for row in found] == ([] if event["op"] == "d" else ["20210506"])


@pytest.mark.parametrize(
    "given, partition",
    [
        ({"primary_key": "id,g"}, None),
        ({"primary_key": "t,id", "computed": "t = truncate(id, 1)"}, "t"),
        ({"primary_key": "t,id", "metadata_column": "t=table"}, "t"),
    ],
)
def test_an_update_without_the_row_before_keeps_the_key_of_the_source(tmp_path: Path, given: Row, partition: str | None) -> None:
    events = [made("c", None, ROW), made("u", None, {**ROW, "n": 2})]
    catalog = Catalog(str(tmp_path), {} if partition is None else {"partition": partition})
    with pytest.warns(UserWarning, match="1 update came without the row before"):
        catalog.ingest(written(tmp_path / "e.json", *events), format="debezium", into="shop", **given)
    assert [row["n"] for row in rows_of(tmp_path, "t").values()] == ["2"]
