"""Searches files for texts with pyarrow and fastavro alone: nothing of the package under test reads a file here."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as orc
import pyarrow.parquet as pq


def files_with(root: Path, *texts: str) -> dict[str, str]:
    """The files below a directory in which one of the texts stands, stored or decoded, and that text."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return texts_in(((str(path.relative_to(root)), path.read_bytes()) for path in paths), *texts)


def texts_in(files: Iterable[tuple[str, bytes]], *texts: str) -> dict[str, str]:
    """The names of the files in which one of the texts stands, and that text."""
    found = {}
    for name, content in files:
        decoded = b"\n".join((name.encode(), content, *_decoded(name, content)))
        if stands := [text for text in texts if text.encode() in decoded]:
            found[name] = stands[0]
    return found


def _decoded(name: str, content: bytes) -> Iterator[bytes]:
    if name.endswith(".parquet"):
        file = pq.ParquetFile(io.BytesIO(content))
        yield repr(file.read().to_pylist()).encode()
        yield repr(file.metadata.to_dict()).encode()
    elif name.endswith(".orc"):
        yield repr(orc.ORCFile(io.BytesIO(content)).read().to_pylist()).encode()
    elif content[:3] == b"Obj":
        for record in fastavro.reader(io.BytesIO(content)):
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
