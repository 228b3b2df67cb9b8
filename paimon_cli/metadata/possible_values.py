"""Which numbers the records of manifests can hold. Avro has no checksums: a number that no writer writes is damage or malice.

A reader must not go on with it: an unknown kind would hide rows, a negative count would end in arithmetic that makes no sense.
`entry_faults` takes single numbers or whole columns (FORMAT.md, sections 4.2 to 4.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import DELETION_VECTORS, SOURCE_COMPACT, EntryKind
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET

MAX_LEVEL = 999
"""A generous limit: Paimon has six levels unless `num-levels` says otherwise."""
_NO_SEQUENCE_NUMBER = -1
"""In files whose rows wait for a bucket."""
_MAX_INT = 2**31 - 1
_RANGES = "_DELETIONS_VECTORS_RANGES"

Faults = Mapping[str | tuple[str, str], Any]
"""Field -> whether its number is impossible, two fields -> whether they contradict each other: a bool, or an array of bools."""


def entry_faults(
    kind: Any, bucket: Any, total: Any, level: Any, size: Any, rows: Any, low: Any, high: Any, schema: Any
) -> Faults:
    """Of a manifest entry; `total` is its number of buckets, `low` and `high` are its sequence numbers."""
    return {
        "_KIND": (kind < EntryKind.ADD) | (kind > EntryKind.DELETE),
        "_BUCKET": (bucket < POSTPONE_BUCKET) | (bucket == -1) | (bucket > _MAX_INT),
        "_TOTAL_BUCKETS": (total < POSTPONE_BUCKET) | (total == 0) | (total > _MAX_INT),
        ("_BUCKET", "_TOTAL_BUCKETS"): (
            ((total > 0) & (bucket >= total)) | ((bucket == POSTPONE_BUCKET) != (total == POSTPONE_BUCKET))
        ),
        "_LEVEL": (level < 0) | (level > MAX_LEVEL),
        "_FILE_SIZE": size < 0,
        "_ROW_COUNT": rows < 0,
        "_MIN_SEQUENCE_NUMBER": low < _NO_SEQUENCE_NUMBER,
        ("_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER"): (low > high) & (rows > 0),
        "_SCHEMA_ID": schema < 0,
    }


def file_faults(file: Mapping[str, Any]) -> Faults:
    """Of the rare numbers in the record of a data file, which are null if they are unknown."""
    rows, deletes = file["_ROW_COUNT"], file["_DELETE_ROW_COUNT"]
    keys, values = file["_KEY_STATS"].null_counts, file["_VALUE_STATS"].null_counts
    return {
        "_DELETE_ROW_COUNT": _is_negative(deletes),
        ("_DELETE_ROW_COUNT", "_ROW_COUNT"): deletes is not None and deletes > rows,
        "_FILE_SOURCE": file["_FILE_SOURCE"] is not None and not 0 <= file["_FILE_SOURCE"] <= SOURCE_COMPACT,
        "_FIRST_ROW_ID": _is_negative(file["_FIRST_ROW_ID"]),
        "_KEY_STATS": _has_negative(keys),
        ("_KEY_STATS", "_ROW_COUNT"): _has_more(keys, rows),
        "_VALUE_STATS": _has_negative(values),
        ("_VALUE_STATS", "_ROW_COUNT"): _has_more(values, rows),
    }


def manifest_faults(listed: Mapping[str, Any]) -> Faults:
    """Of a manifest in a manifest list. Its ranges are null if they are unknown."""
    faults: dict[str | tuple[str, str], Any] = {
        name: listed[name] < 0 for name in ("_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES", "_SCHEMA_ID")
    }
    for name, lowest in (("BUCKET", POSTPONE_BUCKET), ("LEVEL", 0)):
        least, greatest = f"_MIN_{name}", f"_MAX_{name}"
        low, high = listed.get(least), listed.get(greatest)
        faults[least] = low is not None and not lowest <= low <= _MAX_INT
        faults[greatest] = high is not None and not lowest <= high <= _MAX_INT
        faults[least, greatest] = low is not None and high is not None and low > high
    return {**faults, "_PARTITION_STATS": _has_negative(listed["_PARTITION_STATS"].null_counts)}


def index_faults(entry: Mapping[str, Any]) -> Faults:
    """Of an entry of an index manifest, which lists what exists, and never what was deleted."""
    size, rows, ranges = entry["_FILE_SIZE"], entry["_ROW_COUNT"], entry["_DELETIONS_VECTORS_RANGES"]
    vectors = ranges or ()
    return {
        "_KIND": entry["_KIND"] != EntryKind.ADD,
        "_BUCKET": not 0 <= entry["_BUCKET"] <= _MAX_INT,
        "_FILE_SIZE": size < 0,
        "_ROW_COUNT": rows < 0,
        ("_ROW_COUNT", _RANGES): ranges is not None and (rows > 0) != bool(ranges),
        ("_INDEX_TYPE", _RANGES): (entry["_INDEX_TYPE"] == DELETION_VECTORS) != (ranges is not None),
        _RANGES: any(v.offset < 1 or v.length < 0 for v in vectors),
        (_RANGES, "_FILE_SIZE"): any(v.offset + v.length > size for v in vectors),
        "_CARDINALITY": any(_is_negative(v.cardinality) for v in vectors),
    }


def refuse(faults: Faults, values: Mapping[str, Any], path: str, name: str) -> None:
    """Raise `DamagedFile` about the record of the file `name` in `path` if it has a fault.

    A contradiction is named if neither of its fields is wrong by itself: it follows from what is, and it is unknown which of two
    possible numbers is the false one.
    """
    wrong = [of for of, is_wrong in faults.items() if is_wrong]
    fields = [field for field in wrong if isinstance(field, str)]
    parts = [f"an impossible {', '.join(_shown(field, values) for field in fields)}"] if fields else []
    for pair in wrong:
        if not isinstance(pair, str) and not {*pair} & {*fields}:
            parts.append(f"a {_shown(pair[0], values)} that contradicts its {_shown(pair[1], values)}")
    if parts:
        raise DamagedFile(
            f"{path} is damaged",
            f"its record of {name} has {' and '.join(parts)}",
            path=path,
        )


def _shown(field: str, values: Mapping[str, Any]) -> str:
    value = values.get(field)
    return f"{field} {value}" if isinstance(value, int) else field


def _is_negative(number: int | None) -> bool:
    return number is not None and number < 0


def _has_negative(counts: Sequence[int | None] | None) -> bool:
    return min(filter(None, counts or ()), default=0) < 0


def _has_more(counts: Sequence[int | None] | None, most: int) -> bool:
    return max(filter(None, counts or ()), default=0) > max(most, 0)
