"""File names that come out of metadata: they must stay inside the directory that they belong to."""

from __future__ import annotations

from paimon_cli.errors import DamagedFile


def plain_name(name: str, path: str) -> str:
    """`name` itself; `DamagedFile` naming the metadata file `path` if it could lead to another directory."""
    if not name or "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise DamagedFile(f"{path} names a file {name!r}", "names in metadata must not lead to another directory", path=path)
    return name
