"""Small pieces: a table of twenty rows then has many batches, row groups, pages, portions and tasks (`paimon_cli.pieces`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

from paimon_cli.pieces import PIECES, Pieces

VARIABLE = "TEST_PIECES"
"""The variable by which processes that a test starts get the sizes of their pieces (`startup/sitecustomize`)."""
BYTES = 64
"""About the bytes of a row: `small(n)` gives a piece counted in bytes this many times n."""
LEAST = {
    "upload_part_bytes": PIECES.upload_part_bytes,  # object stores refuse smaller parts
    "csv_block_bytes": 4096,  # also the longest row of a CSV file
    "json_block_bytes": 4096,
    "min_merged_runs": 2,  # a merge of one run merges nothing
    "max_merged_runs": 2,
    "least_process_bytes": PIECES.least_process_bytes,  # each process takes half a second to start
}

RUN_TWICE = frozenset(
    {
        "compact/test_continued_vectors.py",
        "compact/test_exact_runs.py",
        "jobs/test_row_tracking.py",
        "bucket/test_combined_columns.py",
    }
)
"""Modules whose tests run a second time in `make test`, with small pieces."""
AT_NIGHT = RUN_TWICE | {
    "jobs/test_cross_partition.py",
    "jobs/test_dynamic_buckets.py",
    "jobs/test_rescale_job.py",
    "jobs/test_update_job.py",
    "read/test_goldens_read.py",
}
"""Modules that `make nightly` runs with pieces of several sizes. Tests that count pieces, or have large tables, are left out."""


def small(pieces: int) -> Mapping[str, int]:
    """All sizes, for pieces of so many rows, files, entries or calls."""
    sizes = {field.name: pieces * (BYTES if field.name.endswith("_bytes") else 1) for field in fields(Pieces)}
    return {name: max(size, LEAST.get(name, 0)) for name, size in sizes.items()}


@contextmanager
def injected(pieces: int) -> Iterator[None]:
    """Small pieces in this process and in those that it starts."""
    sizes = {field.name: getattr(PIECES, field.name) for field in fields(Pieces)}
    _set(small(pieces))
    os.environ[VARIABLE] = json.dumps(small(pieces))
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        _set(sizes)


def _set(sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        setattr(PIECES, name, size)
