"""Small pieces: a table of twenty rows then has many batches, row groups, pages, portions and tasks (`paimon_cli.pieces`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

from paimon_cli.pieces import PIECES, Pieces

VARIABLE = "TEST_PIECES"
"""The variable by which the processes of a test (`startup/sitecustomize`) know how small their pieces are."""
BYTES = 64
"""About the bytes of a row: `small(n)` gives a piece counted in bytes this many times n."""
LEAST = {
    "upload_part_bytes": PIECES.upload_part_bytes,  # object stores refuse smaller parts
    "csv_block_bytes": 4096,  # also the longest row of a CSV file
    "json_block_bytes": 4096,
}


def small(pieces: int) -> Mapping[str, int]:
    """All sizes, for pieces of so many rows, files, entries or calls."""
    sizes = {field.name: pieces * (BYTES if field.name.endswith("_bytes") else 1) for field in fields(Pieces)}
    return {name: max(size, LEAST.get(name, 0)) for name, size in sizes.items()}


def make_small(pieces: int) -> None:
    for name, size in small(pieces).items():
        setattr(PIECES, name, size)


@contextmanager
def injected(pieces: int) -> Iterator[None]:
    """Small pieces in this process and in those that it starts."""
    sizes = {field.name: getattr(PIECES, field.name) for field in fields(Pieces)}
    make_small(pieces)
    os.environ[VARIABLE] = str(pieces)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        for name, size in sizes.items():
            setattr(PIECES, name, size)
