"""Streams of change events for tests, and the tables that a plain replay of them makes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from paimon_cli import Table

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TYPES = {
    "id": {"type": "int32", "optional": False},
    "name": {"type": "string", "optional": True},
    "amount": {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    },
    "day": {"type": "int32", "optional": True, "name": "io.debezium.time.Date"},
    "at": {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    "extra": {"type": "boolean", "optional": True},
}


def base64_number(number: int) -> str:
    """A whole number as Kafka Connect writes the unscaled value of a Decimal."""
    size = (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def in_json(row: Row) -> Row:
    """A row as Debezium writes it, with the types of `TYPES`."""
    written = dict(row)
    if row.get("amount") is not None:
        written["amount"] = base64_number(int(row["amount"].scaleb(2)))
    if row.get("day") is not None:
        written["day"] = (row["day"] - date(1970, 1, 1)).days
    if row.get("at") is not None:
        written["at"] = (row["at"].replace(tzinfo=timezone.utc) - EPOCH) // timedelta(microseconds=1)
    return written


def schema_part(columns: Mapping[str, Any], types: Mapping[str, Any] = TYPES) -> Row:
    image = [{**types[name], "field": name} for name in columns]
    images = [{"type": "struct", "optional": True, "field": name, "fields": image} for name in ("before", "after")]
    return {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}], "name": "server.shop.Envelope"}


def debezium(table: str, op: str, before: Row | None, after: Row | None) -> Row:
    return {
        "before": before,
        "after": after,
        "source": {"connector": "mysql", "db": "shop", "table": table, "ts_ms": 1_700_000_000_000, "file": "bin.1", "pos": 4},
        "op": op,
        "ts_ms": 1_700_000_000_001,
    }


def with_schema(event: Row, types: Mapping[str, Any] = TYPES) -> Row:
    return {"schema": schema_part(event["after"] or event["before"], types), "payload": event}


def maxwell(table: str, op: str, before: Row | None, after: Row | None) -> Row:
    kind = {"c": "insert", "u": "update", "d": "delete"}[op]
    event = {"database": "shop", "table": table, "type": kind, "ts": 1, "xid": 1, "commit": True}
    event |= {"data": before if op == "d" else after, "primary_key_columns": ["id"]}
    if op == "u":
        assert before is not None and after is not None
        event["old"] = {name: before.get(name) for name in after if name in before and before[name] != after[name]}
    return event


def canal(table: str, op: str, before: Row | None, after: Row | None) -> Row:
    event = maxwell(table, op, before, after)
    texts = {name: None if value is None else str(value) for name, value in event["data"].items()}
    old = {name: None if value is None else str(value) for name, value in event.get("old", {}).items()}
    types = {"id": "int", "name": "varchar(20)", "extra": "varchar(30)"}
    return {
        "data": [texts],
        "old": [old] if op == "u" else None,
        "database": "shop",
        "table": table,
        "pkNames": ["id"],
        "mysqlType": {name: types.get(name, "varchar(9)") for name in texts},
        "sqlType": dict.fromkeys(texts, 12),
        "isDdl": False,
        "type": event["type"].upper(),
        "es": 1,
        "ts": 2,
        "id": 3,
        "sql": "",
    }


def flat(table: str, op: str, before: Row | None, after: Row | None) -> Row:
    row = before if op == "d" else after
    assert row is not None
    return {**row, "__op": op, "__deleted": "true" if op == "d" else "false", "__table": table, "__db": "shop"}


@dataclass
class Stream:
    """Random changes of some tables as lines of events. `state`: what the tables then hold, by key."""

    seed: int
    tables: int = 3
    envelope: Callable[[str, str, Row | None, Row | None], Row] = debezium
    moves_keys: bool = True
    is_typed: bool = False
    truncates: bool = False
    state: dict[str, dict[int, Row]] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._wide = set[str]()

    def add(self, events: int) -> Stream:
        """Add events: new rows, changes, changes of keys, deletions with tombstones, and at some time a new column."""
        for _ in range(events):
            table = f"t{self._random.randrange(self.tables)}"
            rows = self.state.setdefault(table, {})
            if len(self.lines) > 40 and self._random.random() < 0.02:
                self._wide.add(table)
            choice = self._random.random()
            if self.truncates and choice < 0.01:
                rows.clear()
                self.lines.append(json.dumps(self.envelope(table, "t", None, None)).encode())
                continue
            if not rows or choice < 0.4:
                row = self._row(table, self._random.randrange(1000))
                self._emit(table, "u" if row["id"] in rows else "c", rows.get(row["id"]), row)
            elif choice < 0.85:
                old = rows[self._random.choice(list(rows))]
                key = self._random.randrange(1000) if self.moves_keys and self._random.random() < 0.2 else old["id"]
                if key != old["id"] and key in rows:
                    continue
                self._emit(table, "u", old, self._row(table, key))
            else:
                self._emit(table, "d", rows[self._random.choice(list(rows))], None)
                if self._random.random() < 0.5 and self.envelope is debezium:
                    self.lines.append(b"null")
        return self

    def text(self, begin: int = 0, end: int | None = None) -> bytes:
        return b"".join(line + b"\n" for line in self.lines[begin:end])

    def _row(self, table: str, key: int) -> Row:
        number = self._random.randrange(10_000)
        row: Row = {"id": key, "name": None if number % 7 == 0 else f"näme {number}"}
        if self.is_typed:
            row["amount"] = Decimal(number - 5000).scaleb(-2)
            row["day"] = date(2020, 1, 1) + timedelta(days=number)
            row["at"] = datetime(2024, 5, 6, 7, 8, 9) + timedelta(microseconds=number)
        if table in self._wide:
            row["extra"] = number % 2 == 0 if self.is_typed else f"e{number}"
        return row

    def _emit(self, table: str, op: str, before: Row | None, after: Row | None) -> None:
        rows = self.state[table]
        if before is not None:
            del rows[before["id"]]
        if after is not None:
            rows[after["id"]] = after
        old, new = (None if row is None else in_json(row) for row in (before, after))
        event = self.envelope(table, op, old, new)
        if self.is_typed:
            event = with_schema(event)
        self.lines.append(json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode())


def written(path: Path, *events: Row | bytes | None) -> str:
    """A file of these events."""
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def rows_of(path: Path, table: str) -> dict[Any, Row]:
    """The rows of a table of the database `shop`, by key."""
    rows = Table.open(str(path / f"shop.db/{table}")).scan().to_arrow().to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found
