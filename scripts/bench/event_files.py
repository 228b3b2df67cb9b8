"""Events of change streams for benchmarks, as their connectors write them: two fifths inserts, half updates, a tenth deletes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TYPES = ("int64", "int64", "string", "double", "boolean", "int64", "string", "string", "int32")
NAMES = ("id", "customer", "name", "price", "active", "created", "note", "city", "quantity")
WITH_SCHEMA = "debezium with schema"
Row = dict[str, Any]


def row(number: int, chance: random.Random, names: tuple[str, ...]) -> Row:
    values = (number, chance.randrange(10**6), f"name {number}", chance.random() * 100, True, 1_700_000_000_000_000 + number)
    return dict(zip(names, (*values, None, "Berlin", chance.randrange(100)), strict=True))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def events(format: str, count: int, tables: int, *, first: int = 0, own_columns: bool = False) -> Iterator[str]:
    """`count` events of these tables, with keys from `first` on. `own_columns`: no table has columns of another, but the key."""
    chance = random.Random(1)
    for number in range(first, first + count):
        op, table = chance.choices("cud", (4, 5, 1))[0], number % tables
        names = ("id", *(f"{name}_{table}" for name in NAMES[1:])) if own_columns else NAMES
        old, new = row(number, chance, names), row(number, chance, names)
        write = {"canal": _canal, "maxwell": _maxwell}.get(format, _debezium)
        text = write(f"t{table}", op, number, old, new)
        yield text if format != WITH_SCHEMA else f'{{"schema":{_schema(names)},"payload":{text}}}'


def write_events(path: Path, format: str, count: int, tables: int, *, first: int = 0) -> Path:
    with path.open("w") as file:
        file.writelines(event + "\n" for event in events(format, count, tables, first=first))
    return path


def _debezium(table: str, op: str, number: int, old: Row, new: Row) -> str:
    images = {"before": None if op == "c" else old, "after": None if op == "d" else new}
    source = {"version": "3.0", "connector": "mysql", "name": "server", "ts_ms": 1_700_000_000_000 + number, "db": "shop"}
    source |= {"table": table, "file": "binlog.000001", "pos": number, "row": 0}
    return compact({**images, "source": source, "op": op, "ts_ms": number})


def _schema(names: tuple[str, ...]) -> str:
    image = [{"type": kind, "optional": True, "field": name} for name, kind in zip(names, TYPES, strict=True)]
    images = [{"type": "struct", "fields": image, "optional": True, "field": name} for name in ("before", "after")]
    return compact({"type": "struct", "fields": images, "optional": False, "name": "server.shop.Envelope"})


def _maxwell(table: str, op: str, number: int, old: Row, new: Row) -> str:
    kind = {"c": "insert", "u": "update", "d": "delete"}[op]
    event: Row = {"database": "shop", "table": table, "type": kind, "ts": number, "xid": number, "commit": True, "data": new}
    price = next(name for name in new if name.startswith("price"))
    return compact(event | ({"old": {price: old[price]}} if op == "u" else {}))


def _canal(table: str, op: str, number: int, old: Row, new: Row) -> str:
    """Its keys are in the order of the alphabet, and all its values texts."""
    texts = {name: None if value is None else str(value) for name, value in new.items()}
    price = next(name for name in new if name.startswith("price"))
    event = {
        "data": [texts],
        "database": "shop",
        "es": number,
        "id": number,
        "isDdl": False,
        "mysqlType": dict.fromkeys(new, "varchar(50)"),
        "old": [{price: str(old[price])}] if op == "u" else None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": dict.fromkeys(new, 12),
        "table": table,
        "ts": number,
        "type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op],
    }
    return compact(event)
