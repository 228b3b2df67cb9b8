"""Geometries of databases (WKB) as GeoJSON, in the form of Java's CDC: `{"coordinates":[1,1],"type":"Point","srid":0}`."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from paimon_cli.ingest.faults import BadCell, BadCells

_KINDS = {1: "Point", 2: "LineString", 3: "Polygon", 4: "MultiPoint", 5: "MultiLineString", 6: "MultiPolygon"}
_COLLECTION = 7
_WITH_Z, _WITH_M, _WITH_SRID = 1 << 31, 1 << 30, 1 << 29
_MAX_DEPTH = 8
_OF_DIMENSION = 1000
"""ISO writes 1001 for a point with z, 2001 with m, 3001 with both."""


def geometry_texts(cells: pa.Array) -> pa.Array:
    """Texts of `{"wkb": base64, "srid": number}`, as Debezium writes them, as GeoJSON. Raises `BadCells`."""
    return _texts(cells, _of_debezium)


def mysql_geometry_texts(cells: pa.Array) -> pa.Array:
    """Texts whose characters are the bytes that MySQL stores, as Canal writes them, as GeoJSON. Raises `BadCells`."""
    return _texts(cells, _of_mysql)


def _texts(cells: pa.Array, geojson: Callable[[str], str]) -> pa.Array:
    texts, bad = list[str | None](), list[BadCell]()
    for row, cell in enumerate(cells.to_pylist()):  # no columns: each has a form of its own
        try:
            texts.append(None if cell is None else geojson(cell))
        except (ValueError, TypeError, LookupError, struct.error, RecursionError):
            texts.append(None)
            bad.append(BadCell(row, cell, "it is not a geometry"))
    if bad:
        raise BadCells(bad)
    return pa.array(texts, pa.string())


def _of_debezium(cell: str) -> str:
    value = json.loads(cell)
    return _geojson(base64.b64decode(value["wkb"], validate=True), value.get("srid") or 0)


def _of_mysql(cell: str) -> str:
    """Four bytes for the number of the reference system, then WKB."""
    stored = cell.encode("latin-1")
    return _geojson(stored[4:], int.from_bytes(stored[:4], "little"))


def _geojson(wkb: bytes, srid: Any) -> str:
    found, _ = _geometry(wkb, 0, 0)
    return json.dumps({**found, "srid": srid}, separators=(",", ":"), allow_nan=False)


def _geometry(wkb: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    """The geometry that begins at a place, and where it ends."""
    if depth > _MAX_DEPTH or wkb[at] > 1:
        raise ValueError("no geometry")
    order = "<" if wkb[at] else ">"
    (code,) = struct.unpack_from(f"{order}I", wkb, at + 1)
    at += 9 if code & _WITH_SRID else 5
    plain = code & ~(_WITH_Z | _WITH_M | _WITH_SRID)
    size = 2 + bool(code & _WITH_Z) + bool(code & _WITH_M) + (0, 1, 1, 2)[plain // _OF_DIMENSION]
    kind = plain % _OF_DIMENSION
    if kind == 1:
        point = struct.unpack_from(f"{order}{size}d", wkb, at)
        is_empty = all(math.isnan(one) for one in point)
        return _named(kind, [] if is_empty else [_number(one) for one in point]), at + 8 * size
    if kind == 2:
        points, at = _points(wkb, at, order, size)
        return _named(kind, points), at
    (count,) = struct.unpack_from(f"{order}I", wkb, at)
    at += 4
    parts = list[Any]()
    for _ in range(_bounded(count, wkb)):
        if kind == 3:
            part, at = _points(wkb, at, order, size)
            parts.append(part)
        else:
            inner, at = _geometry(wkb, at, depth + 1)
            parts.append(inner if kind == _COLLECTION else inner["coordinates"])
    if kind == _COLLECTION:
        return {"geometries": parts, "type": "GeometryCollection"}, at
    return _named(kind, parts), at


def _named(kind: int, coordinates: list[Any]) -> dict[str, Any]:
    return {"coordinates": coordinates, "type": _KINDS[kind]}


def _points(wkb: bytes, at: int, order: str, size: int) -> tuple[list[list[int | float]], int]:
    (count,) = struct.unpack_from(f"{order}I", wkb, at)
    at += 4
    points = []
    for _ in range(_bounded(count, wkb)):
        points.append([_number(one) for one in struct.unpack_from(f"{order}{size}d", wkb, at)])
        at += 8 * size
    return points, at


def _bounded(count: int, wkb: bytes) -> int:
    """The count, which cannot exceed the bytes that are there."""
    if count > len(wkb):
        raise ValueError("more parts than bytes")
    return count


def _number(value: float) -> int | float:
    """As GeoJSON of Java: 1 rather than 1.0."""
    return int(value) if value.is_integer() else value
