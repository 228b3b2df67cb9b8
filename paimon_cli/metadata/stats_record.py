"""The Avro form of column statistics, which manifests and manifest lists share (FORMAT.md, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paimon_cli.metadata.avro_schema import AvroSchema, array, nullable, record
from paimon_cli.metadata.data_file import SimpleStats

UNKNOWN_STATS = SimpleStats()
"""What a file without statistics gets: rows of arity 0."""


def stats_schema(name: str) -> AvroSchema:
    return record(name, [("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", nullable(array(nullable("long"))))])


def stats_record(stats: SimpleStats) -> dict[str, Any]:
    counts = None if stats.null_counts is None else list(stats.null_counts)
    return {"_MIN_VALUES": stats.min_values, "_MAX_VALUES": stats.max_values, "_NULL_COUNTS": counts}


def stats_from_record(content: Mapping[str, Any] | None) -> SimpleStats:
    if content is None:
        return UNKNOWN_STATS
    counts = content.get("_NULL_COUNTS")
    return SimpleStats(content["_MIN_VALUES"], content["_MAX_VALUES"], None if counts is None else tuple(counts))
