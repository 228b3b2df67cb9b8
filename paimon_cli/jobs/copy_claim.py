"""Claims a directory that a copy makes into a table: one job works there at a time, and a restore knows its own unfinished work.

    TABLE/backup/unfinished-copy    what is copied (JSON); there before the first file, until the table is whole
    TABLE/lease/backup-N            the lease of the job that is at work: another one takes over when it has died

Without the claim, a second copy of the same versions would take files of the first one for its own, and delete them if it fails.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paimon_cli.catalog.table_site import check_output_path
from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.guarded_storage import PROBE_PREFIX
from paimon_cli.storage.injected import Clock, RandomSource
from paimon_cli.storage.storage import Storage, Verified, put_and_verify

LEASE = "backup"
LEASE_MILLIS = 60_000
_WAITS_MILLIS = 2 * LEASE_MILLIS
_LOOKS_SECONDS = 1.0
_VERSION = 1
_HOLDER = "holder"
_NAME = "unfinished-copy"


def new_lease(random: RandomSource, clock: Clock) -> Leases:
    """The lease of one job that copies into a directory."""
    return Leases(LEASE, random.uuid(), LEASE_MILLIS, clock)


def check_apart(source: TableContext, name: str, root: str) -> None:
    """Raise `UsageError` if the directory of a copy is that of its source, or one of them is within the other."""
    there, here = f"{root}/", f"{source.layout.root}/"
    if there == here:
        raise UsageError(f"{name} is both the source and the target", "a copy is a table of its own", "choose another directory")
    if there.startswith(here) or here.startswith(there):
        what, why = f"{name} and {source.name} lie in each other", "files of one table in another are orphans"
        raise UsageError(what, why, "choose another directory")


@contextmanager
def lease_of(leases: Leases, storage: Storage, layout: TableLayout, what: str = "another backup into") -> Iterator[None]:
    """Hold the lease of a directory. Waits for the job that has it, or until its lease has expired if it died."""
    waited_from = leases.clock.now_millis()
    while not leases.acquire(storage, layout.lease_directory):
        if leases.clock.now_millis() - waited_from >= _WAITS_MILLIS:
            raise StorageUnavailable(
                f"{what} {layout.root} is running",
                f"it has renewed its lease for {_WAITS_MILLIS // 1000} s",
                "run this one when it has ended",
            )
        leases.clock.sleep(_LOOKS_SECONDS)
    with leases.renewed():
        yield


def what_is_copied(source: TableContext, history: bool, version: Snapshot | None) -> dict[str, Any]:
    """What a restore copies, as it is recorded: from which table, whose schemas never change, and up to which version."""
    numbers = source.schemas.ids()
    schema = source.storage.read_bytes(source.layout.schema(numbers[0])) if numbers else b""
    content = None if version is None else hashlib.sha256(version.to_json().encode()).hexdigest()
    found = {"version": _VERSION, "source": hashlib.sha256(schema).hexdigest(), "history": history}
    return {**found, "snapshot": None if version is None else version.id, "content": content}


@dataclass
class CopyClaim:
    """The claim of one job on the directory of a new table. `content`: what it copies, by which another job recognises the same
    work; None for a copy that is not continued. `is_continued`: whether a job that was killed has left its claim.

    The claim names its holder. A lease alone does not tell a job that was suspended that another one took over.
    """

    storage: Storage
    layout: TableLayout
    content: dict[str, Any] | None
    leases: Leases
    is_continued: bool = False

    def look(self) -> None:
        """Find out whether there is unfinished work. Raises `UsageError` if that is another one than this job's."""
        found = read_claim(self.storage, self.layout)
        if found is None:
            return
        if self.content is None or _content(found) != self.content:
            raise UsageError(
                f"{self.layout.root} is not empty",
                f"a copy into it is running, or was killed: {_described(found)}",
                "run that one again to finish it, or choose another name; if it is of no use, delete the directory",
            )
        check_output_path(self.storage, self.layout.root.rpartition("/")[0] + "/unfinished-copy")
        self.is_continued = True

    def take(self) -> None:
        """Claim the directory, which must be empty. Raises `UsageError` if another job was faster."""
        if put_and_verify(self.storage, self.layout.unfinished_copy, self._bytes()) is not Verified.OURS:
            raise UsageError(f"{self.layout.root} is not empty", "another job is writing to it", "choose another name")

    def check_empty(self) -> None:
        """Raise `UsageError` if another job has made a table between the look at the directory and the claim."""
        names = {entry.name for entry in self.storage.list_directory(self.layout.root)}
        if any(not name.startswith(PROBE_PREFIX) for name in names - {"backup", "lease"}):
            raise UsageError(f"{self.layout.root} is not empty", "another job has written to it", "choose another name")

    def _bytes(self) -> bytes:
        return json.dumps({**(self.content or {"version": _VERSION}), _HOLDER: self.leases.holder}).encode()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Work under the lease, if another job can continue this copy. Raises `UsageError` if one has finished it."""
        if self.content is None:
            yield
            return
        with lease_of(self.leases, self.storage, self.layout, "another restore into"):
            found = read_claim(self.storage, self.layout)
            if found is None or _content(found) != self.content:
                why = "another job has just finished this restore, or given it up"
                raise UsageError(f"{self.layout.root} is not what it was", why, "look at it")
            self.storage.overwrite(self.layout.unfinished_copy, self._bytes())
            yield

    def check(self) -> None:
        """Raise `StorageUnavailable` once another job has taken over."""
        if not self.is_held:
            why = "this one was suspended for too long, or the storage did not answer"
            raise StorageUnavailable(f"another restore into {self.layout.root} has begun", why, "run it again")

    @property
    def is_held(self) -> bool:
        """Whether what this job has written is still its own."""
        return read_claim(self.storage, self.layout) == self._bytes()

    def release(self) -> None:
        """Give the directory up: the table is whole, or all that was written is deleted."""
        for entry in self.storage.list_directory(self.layout.backup_directory):
            if entry.is_temporary(f"{_NAME}."):  # a job was killed while it wrote the claim
                self.storage.delete(entry.path)
        self.storage.delete(self.layout.unfinished_copy)
        remove_empty_directory(self.storage, self.layout.backup_directory)


def read_claim(storage: Storage, layout: TableLayout) -> bytes | None:
    """The claim of a directory; None if no copy into it is unfinished."""
    try:
        return storage.read_bytes(layout.unfinished_copy)
    except FileNotFoundError:
        return None


def _content(claim: bytes) -> dict[str, Any]:
    """What is copied, without the holder; empty if a claim is none. Others may have written it."""
    try:
        found = json.loads(claim)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in found.items() if key != _HOLDER} if isinstance(found, dict) else {}


def _described(claim: bytes) -> str:
    """What an unfinished copy is of, in words."""
    found = _content(claim)
    if "history" not in found:
        return "it is not a restore"
    history, snapshot = found["history"], found.get("snapshot")
    if isinstance(snapshot, int) and not isinstance(snapshot, bool):
        return f"a restore of snapshot {snapshot}{' with history' if history else ''}"
    return "a restore with its whole history" if history else "a restore of a table without rows"
