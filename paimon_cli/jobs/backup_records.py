"""What a backup says of itself, in the directory `backup` of the copy: who it is, what each run has copied, and whether one was
not finished. Others may write to where a copy lies, so these files are read as data that nobody vouches for.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from paimon_cli.errors import DamagedFile, StorageUnavailable
from paimon_cli.metadata.table_layout import TableLayout, parse_numbered
from paimon_cli.storage.injected import RandomSource
from paimon_cli.storage.storage import Storage, put_and_verify
from paimon_cli.storage.threads import in_parallel

RUN_PREFIX, IDENTITY, UNFINISHED = "run-", "identity", "unfinished"
_VERSION = 1
_AT_ONCE = 8
_MAX_SHOWN = 200
"""Characters of the name of the source that are shown."""


@dataclass(frozen=True)
class BackupRun:
    """What one run has copied: versions, files, and their bytes. `time` and `started`: epoch millis.

    `first_snapshot`, `last_snapshot`: of all that the copy of the main branch holds after the run. `gaps`: the ids between them
    that are missing, as pairs of first and last. `expired`: snapshots that were removed from the copy because of `--keep`.
    `heads`: for each branch its newest snapshot in the copy; what is above it later was not copied by this run.
    """

    number: int
    source: str
    started: int
    time: int
    first_snapshot: int | None
    last_snapshot: int | None
    snapshots: int
    tags: int
    branches: int
    files: int
    size: int
    expired: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    heads: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> str:
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=2)

    @staticmethod
    def from_json(content: bytes, path: str) -> BackupRun:
        """Parse a record. Raises `DamagedFile` for anything that no run would write."""
        try:
            found = json.loads(content)
            if found["version"] != _VERSION:
                raise ValueError(f"version {str(found['version'])[:20]} of the record is not known")
            numbers = {name: _number(found[name]) for name in _NUMBERS}
            first, last = (None if found[name] is None else _number(found[name]) for name in ("first_snapshot", "last_snapshot"))
            gaps = tuple((_number(begin), _number(end)) for begin, end in found["gaps"])
            heads = tuple((str(branch), _number(head)) for branch, head in found.get("heads", ()))  # older records have none
            source = str(found["source"])[:_MAX_SHOWN]
            return BackupRun(source=source, first_snapshot=first, last_snapshot=last, gaps=gaps, heads=heads, **numbers)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            hint = "delete it if it is of no use: it only says what was copied when"
            raise DamagedFile(f"cannot read {path}", "it is not what a backup writes", hint, path=path) from error


_NUMBERS = ("number", "started", "time", "snapshots", "tags", "branches", "files", "size", "expired")


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
        raise ValueError(f"{str(found)[:40]!r} is not a whole number")
    return found


@dataclass(frozen=True)
class BackupRecords:
    """The directory `backup` of a copy."""

    storage: Storage
    layout: TableLayout

    def exist(self) -> bool:
        """Whether the directory holds a backup, finished or not."""
        return self.storage.exists(self._path(IDENTITY))

    def identity(self, random: RandomSource) -> str:
        """The id of the backup, which its first run chooses: by it the table knows whom it keeps snapshots for."""
        path = self._path(IDENTITY)
        try:
            return self._known_identity(path)
        except FileNotFoundError:
            put_and_verify(self.storage, path, random.uuid().encode())
        try:
            return self._known_identity(path)
        except FileNotFoundError:
            raise StorageUnavailable(f"{path} could not be written", "the storage gave no clear answer", "try again") from None

    def _known_identity(self, path: str) -> str:
        text = self.storage.read_bytes(path).decode(errors="replace")
        if len(text) != 36 or not set(text) <= set("0123456789abcdef-"):
            raise DamagedFile(f"cannot read {path}", "it holds no UUID", "back up into a new directory", path=path)
        return text

    def numbers(self) -> list[int]:
        """The numbers of all runs, ascending."""
        entries = self.storage.list_directory(self.layout.backup_directory)
        found = (parse_numbered(RUN_PREFIX, entry.name) for entry in entries)
        return sorted(number for number in found if number is not None)

    def runs(self) -> list[BackupRun]:
        """What all runs have recorded, oldest first."""
        return [run for run in in_parallel(self._find, self.numbers(), _AT_ONCE) if run is not None]

    def heads(self, number: int) -> dict[str, int]:
        """The newest snapshot of each branch in the copy after this run; empty if no record says so, or it cannot be read."""
        with suppress(DamagedFile):
            run = self._find(number)
            return {} if run is None else dict(run.heads)
        return {}

    def _find(self, number: int) -> BackupRun | None:
        path = self._path(f"{RUN_PREFIX}{number}")
        try:
            return BackupRun.from_json(self.storage.read_bytes(path), path)
        except FileNotFoundError:
            return None

    def is_unfinished(self) -> bool:
        """Whether a run is at work, or was killed."""
        return self.storage.exists(self._path(UNFINISHED))

    def begin(self) -> bool:
        """Mark a run as begun; returns whether an earlier one was not finished."""
        was_killed = self.is_unfinished()
        if not was_killed:
            self.storage.overwrite(self._path(UNFINISHED), b"")
        return was_killed

    def end(self, run: BackupRun) -> None:
        """Record a run, and that it is finished."""
        self.storage.overwrite(self._path(f"{RUN_PREFIX}{run.number}"), run.to_json().encode())
        self.storage.delete(self._path(UNFINISHED))

    def forget(self, before_millis: int) -> None:
        """Delete the records of runs that ended before, except the newest one. What cannot be read stays."""
        for number in self.numbers()[:-1]:
            with suppress(DamagedFile):
                run = self._find(number)
                if run is not None and run.time < before_millis:
                    self.storage.delete(self._path(f"{RUN_PREFIX}{number}"))

    def _path(self, name: str) -> str:
        return f"{self.layout.backup_directory}/{name}"
