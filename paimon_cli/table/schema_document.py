"""Paimon's schema JSON (`fields, partitionKeys, primaryKeys, options, comment`) as a definition (FORMAT.md, section 2.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from paimon_cli.datatypes.field_types import field_from_json
from paimon_cli.errors import UsageError
from paimon_cli.table.table_definition import TableDefinition


def parse_schema_document(text: str, what: str) -> TableDefinition:
    """A schema file, or the same without bookkeeping. Ids may be missing, key columns may lack NOT NULL: creation gives them."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{what} is not JSON", str(error)) from error
    fields = _member(document, "fields", list, what) if isinstance(document, dict) else None
    if not fields:
        raise UsageError(
            f"{what} has no fields",
            hint='a schema looks like {"fields": [{"name": "id", "type": "BIGINT"}], "primaryKeys": ["id"]}',
        )
    ids = count()
    comment = _member(document, "comment", str, what)
    return TableDefinition(
        fields=tuple(field_from_json(column, ids) for column in fields),
        primary_keys=_names(document, "primaryKeys", what),
        partition_keys=_names(document, "partitionKeys", what),
        options={str(key): _option_text(value) for key, value in (_member(document, "options", dict, what) or {}).items()},
        comment=comment or None,
    )


def _names(document: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
    names = _member(document, key, list, what) or []
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"{key} of {what} must be a list of column names")
    return tuple(names)


def _member(document: Mapping[str, Any], key: str, kind: type, what: str) -> Any:
    value = document.get(key)
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{key} of {what} is not a {kind.__name__}", json.dumps(value))
    return value


def _option_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
