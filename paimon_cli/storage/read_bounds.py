"""The largest files that are read whole. A larger one is refused before it is in memory, by every reader.

No file is read whole for a look at a table that was given up (`time_bounds`).
"""

from __future__ import annotations

from paimon_cli.errors import DamagedFile
from paimon_cli.storage.time_bounds import check_time

_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30

BOUNDS = {
    "schema-": 64 * _MB,
    "snapshot-": 8 * _MB,
    "tag-": 8 * _MB,
    "changelog-": 8 * _MB,
    "LATEST": 64 * _KB,
    "EARLIEST": 64 * _KB,
    "consumer-": 64 * _KB,
    "_SUCCESS": 64 * _KB,
    "policy.yaml": _MB,
    "reads.ndjson": 32 * _MB,
    "reads-": 16 * _MB,
    "removal-": 128 * _MB,
    "manifest-": 512 * _MB,
    "index-manifest-": 512 * _MB,
    "index-": _GB,
}
"""Beginning of a file's name -> bytes: schemas, snapshots, tags, long-lived changelogs, hints, consumers, marks of finished
partitions, policies, counts of reads, records of removals, manifests and their lists, index manifests, and index files (deletion
vectors, hash indexes).
"""
_LEASES, _BOUND_OF_LEASE = "lease", 64 * _KB
"""The directory of leases, whose names begin with what they are for."""
_BEGINNINGS = tuple(BOUNDS)
OTHERS = _GB
"""Bytes of any other file that is read whole, such as the file indexes of a data file."""


def bound_of(path: str) -> int:
    """The most bytes that may be read of the file at `path` as a whole."""
    directory, _, name = path.rpartition("/")
    if directory.rpartition("/")[2] == _LEASES:
        return _BOUND_OF_LEASE
    if not name.startswith(_BEGINNINGS):
        return OTHERS
    return max((len(prefix), bound) for prefix, bound in [("", OTHERS), *BOUNDS.items()] if name.startswith(prefix))[1]


def check_size(path: str, size: int) -> None:
    """Raise `DamagedFile` if the file is too large to be read whole. Ends a look that has no time left to read it."""
    check_time()
    bound = bound_of(path)
    if size > bound:
        why = f"it has {size:,} bytes, and such files are read up to {bound:,} bytes"
        raise DamagedFile(f"{path} is too large", why, "restore the file; no known writer makes one of this size", path=path)
