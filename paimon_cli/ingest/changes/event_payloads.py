"""Events that come with their schema, as Kafka Connect's JSON converter writes them: `{"schema": ..., "payload": ...}`."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.debezium_types import declared_columns
from paimon_cli.ingest.changes.event_formats import EventFormat
from paimon_cli.ingest.changes.event_lines import EventLines, bounds_of, pieces_of
from paimon_cli.ingest.changes.text_search import BlockSearch

Codes = npt.NDArray[np.integer[Any]]
_PAYLOAD = b',"payload":'
_WRAPPED = b'{"schema":'
_MAYBE_WRAPPED = r'^\{\s*"(schema|payload)"\s*:'
_PARTS = frozenset(("schema", "payload"))
_KEY, _COMMA, _DECODER = re.compile(r'\s*"(\w+)"\s*:\s*'), re.compile(r"\s*,"), json.JSONDecoder()


def payloads_of(lines: EventLines, format: EventFormat) -> tuple[EventLines, list[bytes], Codes]:
    """The payloads of events that come with their schema, the schemas, and which one each event has (-1: none).

    The schema part is the same text for most events of a table, so that only distinct ones are parsed.
    """
    wrapped = pc.starts_with(lines.texts, _WRAPPED).to_numpy(zero_copy_only=False)
    candidates, order = wrapped, format.order
    if order is None or not (wrapped | pc.starts_with(lines.texts, order.opening).to_numpy(zero_copy_only=False)).all():
        candidates = pc.match_substring_regex(lines.texts, _MAYBE_WRAPPED).to_numpy(zero_copy_only=False)
    if not candidates.any():
        return lines, [], np.full(len(lines), -1)
    block, starts, ends = bounds_of(lines.texts)
    found = BlockSearch(block).first(_PAYLOAD, starts, ends)
    if (candidates != wrapped).any() or not (found[wrapped] > 0).all():
        return _unwrapped_one_by_one(lines, format, candidates)
    cut = np.where(wrapped, found, starts)
    heads = pieces_of(block, np.where(wrapped, starts + len(_WRAPPED), starts), cut)
    texts = pieces_of(block, np.where(wrapped, cut + len(_PAYLOAD), starts), np.where(wrapped, ends - 1, ends))
    encoded = pc.dictionary_encode(heads)
    schemas = [one.as_py() for one in encoded.dictionary]
    if any(schema and declared_columns(schema) is None for schema in schemas):
        return _unwrapped_one_by_one(lines, format, candidates)
    return lines.payloads(texts), schemas, np.where(wrapped, encoded.indices.to_numpy(), -1)


def _unwrapped_one_by_one(
    lines: EventLines, format: EventFormat, candidates: npt.NDArray[np.bool_]
) -> tuple[EventLines, list[bytes], Codes]:
    """The same for events that write it in another way, have no schema, or one that is not of rows."""
    none = np.full(len(lines), -1)
    texts, schemas = lines.texts.to_pylist(), dict[bytes, int]()
    signs = {path[0] for path in (format.operation, *format.marks) if path}
    for index in np.flatnonzero(candidates):
        if (found := _parts_of(texts[index], signs)) is None:
            continue
        schema, texts[index] = found
        if schema and declared_columns(schema) is not None:
            none[index] = schemas.setdefault(schema, len(schemas))
    return lines.payloads(pa.array(texts, pa.large_binary())), list(schemas), none


def _parts_of(event: bytes, signs: Set[str]) -> tuple[bytes, bytes] | None:
    """The texts of the schema and of the payload of an event; None if it has other parts.

    A payload may come without a schema, which is empty then, if it has one of the keys of an envelope: `signs`.
    """
    parts = dict[str, bytes]()
    payload: object = None
    try:
        text = event.decode()
        at = end = 1
        while (match := _KEY.match(text, at)) is not None and len(parts) < len(_PARTS):
            begin = match.end()
            value, end = _DECODER.raw_decode(text, begin)
            payload = value if match[1] == "payload" else payload
            parts[match[1]] = text[begin:end].encode()
            comma = _COMMA.match(text, end)
            if comma is None:
                break
            at = comma.end()
        is_whole = text[end:].strip() == "}"
    except (ValueError, RecursionError):
        return None
    if not is_whole or not parts.keys() <= _PARTS or "payload" not in parts:
        return None
    is_envelope = isinstance(payload, dict) and not signs.isdisjoint(payload)
    return (parts.get("schema", b""), parts["payload"]) if "schema" in parts or is_envelope else None


def names_in_key(keys: pa.Array | None, format: EventFormat) -> tuple[str, ...]:
    """The columns of the primary key, as the key of the last message that has one names them; none if it does not.

    Debezium writes `{"id": 1}`, perhaps with its schema, Maxwell `{"database": ..., "table": ..., "pk.id": 1}`.
    """
    given = pc.drop_null(keys) if keys is not None else ()
    if not len(given):
        return ()
    try:
        parsed = json.loads(given[len(given) - 1].as_py())
    except (ValueError, RecursionError):
        return ()
    if isinstance(parsed, dict) and parsed.keys() <= _PARTS and isinstance(parsed.get("payload"), dict):
        parsed = parsed["payload"]
    if not isinstance(parsed, dict):
        return ()
    if prefix := format.key_prefix:
        return tuple(name.removeprefix(prefix) for name in parsed if name.startswith(prefix))
    return tuple(parsed)
