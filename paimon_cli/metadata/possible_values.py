"""Which numbers the records of manifests can hold. Avro has no checksums: a number that no writer writes is damage or malice.

A reader must not go on with it: an unknown kind would hide rows, a negative count would end in arithmetic that makes no sense.
`entry_faults` takes single numbers or whole columns (FORMAT.md, sections 4.2 to 4.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import ADD, DELETE, DELETION_VECTORS, SOURCE_COMPACT
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET

MAX_LEVEL = 999
"""A generous limit: Paimon has six levels unless `num-levels` says otherwise."""
_NO_BUCKET_COUNT = -1
_NO_SEQUENCE_NUMBER = -1
"""In files whose rows wait for a bucket."""
_MAX_INT = 2**31 - 1

Faults = Mapping[str, Any]
"""Field -> whether its number is impossible: a bool, or an array of bools for a column."""


def entry_faults(
    kind: Any, bucket: Any, total: Any, level: Any, size: Any, rows: Any, low: Any, high: Any, schema: Any
) -> Faults:
    """Of a manifest entry; `total` is its number of buckets, `low` and `high` are its sequence numbers."""
    return {
        "_KIND": (kind < ADD) | (kind > DELETE),
        "_BUCKET": (bucket < POSTPONE_BUCKET) | (bucket == -1) | (bucket > _MAX_INT) | ((total > 0) & (bucket >= total)),
        "_TOTAL_BUCKETS": (
            (total < POSTPONE_BUCKET)
            | (total == 0)
            | (total > _MAX_INT)
            | ((bucket == POSTPONE_BUCKET) != (total == POSTPONE_BUCKET))
        ),
        "_LEVEL": (level < 0) | (level > MAX_LEVEL),
        "_FILE_SIZE": size < 0,
        "_ROW_COUNT": rows < 0,
        "_MIN_SEQUENCE_NUMBER": (low < _NO_SEQUENCE_NUMBER) | ((low > high) & (rows > 0)),
        "_SCHEMA_ID": schema < 0,
    }


def file_faults(file: Mapping[str, Any]) -> Faults:
    """Of the rare numbers in the record of a data file, which are null if they are unknown."""
    rows, deletes = file["_ROW_COUNT"], file["_DELETE_ROW_COUNT"]
    return {
        "_DELETE_ROW_COUNT": deletes is not None and not 0 <= deletes <= rows,
        "_FILE_SOURCE": file["_FILE_SOURCE"] is not None and not 0 <= file["_FILE_SOURCE"] <= SOURCE_COMPACT,
        "_FIRST_ROW_ID": _is_negative(file["_FIRST_ROW_ID"]),
        "_KEY_STATS": _are_no_counts(file["_KEY_STATS"].null_counts, rows),
        "_VALUE_STATS": _are_no_counts(file["_VALUE_STATS"].null_counts, rows),
    }


def manifest_faults(listed: Mapping[str, Any]) -> Faults:
    """Of a manifest in a manifest list. Its ranges are null if they are unknown."""
    return {
        **{name: listed[name] < 0 for name in ("_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES", "_SCHEMA_ID")},
        "_MIN_BUCKET": _is_no_range(listed.get("_MIN_BUCKET"), listed.get("_MAX_BUCKET"), POSTPONE_BUCKET),
        "_MIN_LEVEL": _is_no_range(listed.get("_MIN_LEVEL"), listed.get("_MAX_LEVEL"), 0),
        "_PARTITION_STATS": _are_no_counts(listed["_PARTITION_STATS"].null_counts),
    }


def index_faults(entry: Mapping[str, Any]) -> Faults:
    """Of an entry of an index manifest, which lists what exists, and never what was deleted."""
    size, ranges = entry["_FILE_SIZE"], entry["_DELETIONS_VECTORS_RANGES"]
    vectors = ranges or ()
    return {
        "_KIND": entry["_KIND"] != ADD,
        "_BUCKET": not 0 <= entry["_BUCKET"] <= _MAX_INT,
        "_FILE_SIZE": size < 0,
        "_ROW_COUNT": entry["_ROW_COUNT"] < 0 or (ranges is not None and (entry["_ROW_COUNT"] > 0) != bool(ranges)),
        "_INDEX_TYPE": (entry["_INDEX_TYPE"] == DELETION_VECTORS) != (ranges is not None),
        "_DELETIONS_VECTORS_RANGES": any(v.offset < 1 or v.length < 0 or v.offset + v.length > size for v in vectors),
        "_CARDINALITY": any(_is_negative(v.cardinality) for v in vectors),
    }


def refuse(faults: Faults, values: Mapping[str, Any], path: str, name: str) -> None:
    """Raise `DamagedFile` about the record of the file `name` in `path` if it has a fault."""
    wrong = [field for field, is_wrong in faults.items() if is_wrong]
    if wrong:
        shown = ", ".join(f"{field} {values[field]}" if isinstance(values.get(field), int) else field for field in wrong)
        raise DamagedFile(
            f"{path} is damaged",
            f"its record of {name} has an impossible {shown}",
            "restore the file, or go back to an older snapshot",
            path=path,
        )


def _is_negative(number: int | None) -> bool:
    return number is not None and number < 0


def _are_no_counts(counts: Sequence[int | None] | None, most: int | None = None) -> bool:
    known = [*filter(None, counts or ())]
    return bool(known) and (min(known) < 0 or (most is not None and max(known) > most))


def _is_no_range(least: int | None, greatest: int | None, lowest: int) -> bool:
    low = lowest if least is None else least
    high = low if greatest is None else greatest
    return not lowest <= low <= high <= _MAX_INT
