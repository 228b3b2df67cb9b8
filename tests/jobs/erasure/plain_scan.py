"""Searches a table for a text with pyarrow and fastavro alone: nothing of the package under test reads a file here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as orc
import pyarrow.parquet as pq


def files_with(root: Path, *texts: str) -> dict[str, str]:
    """The files of a table in which one of the texts stands, stored or decoded, and that text."""
    found = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        content = b"\n".join(_decoded(path))
        for text in texts:
            if text.encode() in content:
                found[str(path.relative_to(root))] = text
    return found


def _decoded(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    yield content
    yield str(path).encode()
    if path.name.endswith(".parquet"):
        file = pq.ParquetFile(path)
        yield repr(file.read().to_pylist()).encode()
        for group in range(file.metadata.num_row_groups):
            yield repr(
                [file.metadata.row_group(group).column(leaf).to_dict() for leaf in range(file.metadata.num_columns)]
            ).encode()
    elif path.name.endswith(".orc"):
        yield repr(orc.ORCFile(path).read().to_pylist()).encode()
    elif content[:3] == b"Obj":
        with path.open("rb") as source:
            for record in fastavro.reader(source):
                yield from _leaves(record)


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value if isinstance(value, bytes) else str(value).encode()
