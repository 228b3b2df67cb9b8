"""File names that come out of metadata: they must stay inside the directory that they belong to."""

from __future__ import annotations

from paimon_cli.errors import DamagedFile


def is_plain_name(name: str) -> bool:
    """Whether the name stays in its directory."""
    return bool(name) and not any(c in name for c in "/\\\0") and name not in (".", "..")


def plain_name(name: str, path: str) -> str:
    """`name` itself; `DamagedFile` naming the metadata file `path` if it could lead to another directory."""
    if not is_plain_name(name):
        raise DamagedFile(f"{path} names a file {name!r}", "file names in metadata must not lead to another directory", path=path)
    return name
