"""A partition as people name it: `dt=2026-11-21/hour=7`, values in canonical form whatever the directory is called."""

from __future__ import annotations

from typing import Any

from paimon_cli.datatypes.canonical_json import canonical_json
from paimon_cli.history.table_context import TableContext


def partition_text(context: TableContext, partition: bytes) -> str:
    """'' for a table without partitions; null is the table's default partition name."""
    keys = context.schema.partition_keys
    types = context.schema.types_of(keys)
    default = context.options.partition_default_name
    values = context.partition_values(partition)
    texts = [default if v is None else _text(canonical_json(v, t)) for v, t in zip(values, types, strict=True)]
    return "/".join(f"{key}={text}" for key, text in zip(keys, texts, strict=True))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
