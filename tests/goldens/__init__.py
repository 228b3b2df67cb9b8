"""Tables that real Paimon implementations wrote (Java 0.9 and 1.4, pypaimon 2.1, paimon-rust 0.4), with the rows they must give.

One archive per writer holds NAME/table/ (a table directory), NAME/params.json (schema and steps that made it) and
NAME/expected*.jsonl (its rows in canonical form, now, at snapshots, at tags, and its changelog). `java-0.9-extra` holds
tables made for bugs that the others do not show.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Golden:
    """One golden table: who wrote it, its name, and params.json."""

    writer: str
    name: str
    params: dict[str, Any] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.writer}/{self.name}"

    @property
    def schema(self) -> dict[str, Any]:
        """`fields`, `partitionKeys`, `primaryKeys`, `options` as the table was created."""
        return self.params["schema"]

    @property
    def options(self) -> dict[str, str]:
        return self.schema["options"]

    @property
    def unordered_columns(self) -> tuple[str, ...]:
        """Columns to compare as sets."""
        return tuple(self.params.get("unordered_columns", ()))

    @property
    def moments(self) -> tuple[str, ...]:
        """What `expected_rows` knows: 'now', 'snapshot-N', 'tag-T', and 'changelog' where there is one."""
        prefix = f"{self.name}/expected"
        names = (path.removeprefix(prefix).removesuffix(".jsonl") for path in _members(self.writer) if path.startswith(prefix))
        return tuple(sorted(name.removeprefix(".") or "now" for name in names))


def golden(writer: str, name: str) -> Golden:
    return Golden(writer, name, json.loads(_members(writer)[f"{name}/params.json"]))


def golden_table(writer: str, name: str, folder: Path) -> Path:
    """Lay out that table below `folder` and return its directory; every call with a new folder gives a fresh copy."""
    table = folder / name
    prefix = f"{name}/table/"
    members = {path: data for path, data in _members(writer).items() if path.startswith(prefix)}
    if not members:
        raise KeyError(f"{writer}/{name}")
    for path, data in members.items():
        target = table / path.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return table


def expected_rows(table: Golden, moment: str = "now") -> list[dict[str, Any]]:
    """Canonical rows at 'now', 'snapshot-N' or 'tag-T' (or the 'changelog'), sorted as the writer's README says."""
    suffix = "" if moment == "now" else f".{moment}"
    lines = _members(table.writer)[f"{table.name}/expected{suffix}.jsonl"].decode().split("\n")
    return [json.loads(line) for line in lines if line]


@cache
def _members(writer: str) -> dict[str, bytes]:
    with tarfile.open(_FOLDER / f"{writer}.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def _all_goldens() -> list[Golden]:
    writers = sorted(path.name.removesuffix(".tar.xz") for path in _FOLDER.glob("*.tar.xz"))
    files = ((writer, path) for writer in writers for path in _members(writer))
    return [golden(writer, path.split("/")[0]) for writer, path in files if path.endswith("/params.json")]


GOLDENS: list[Golden] = _all_goldens()
