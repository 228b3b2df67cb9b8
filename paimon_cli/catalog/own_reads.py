"""Counts of this process's own reads, for the goals of a warehouse, where the user's own policy asks for them (`count-reads`).

    WAREHOUSE/.paimon-cli/reads/reads-2026-11-29-UUID.ndjson     the reads of one process on one day (UTC), as in `reads.ndjson`

Of the reads, only the given share is counted, chosen by chance, and not scaled up: only proportions count, and a sample must look
as uncertain as it is. An object is written once, if absent, when the day or the process ends. Nothing depends on it but the order
of merges, so that a process that is killed loses nothing else, and a failure is a warning.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone

from paimon_cli.catalog.metastore.configuration_files import user_file_of
from paimon_cli.catalog.metastore.settings import PROFILE_VARIABLE
from paimon_cli.catalog.warehouse_policy import PolicyFile, name_of_place, own_rules, policy_of_place
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.history.table_place import TablePlace
from paimon_cli.maintain.policy import Policy, PolicyKey, TablePolicy
from paimon_cli.maintain.read_rates import LONGEST_READS_NAME, MOST_READS_OBJECTS, day_of
from paimon_cli.storage.injected import Clock, RandomSource, SystemClock, SystemRandom

MOST_COUNTED, MOST_PARTITIONS = 2_000, 100
"""Of how many partitions a process counts reads in a day; a read of more partitions than the second is one of the whole table."""
KEPT_DAYS = 7
"""How long objects are kept."""


@dataclass
class _Counted:
    """What was read in one warehouse: its place, who is warned, and the counts by table and path of the partition."""

    place: PolicyFile
    warn: Callable[[str], None]
    counts: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class OwnReads:
    """The reads of a process that are not written yet. Safe for threads."""

    clock: Clock = field(default_factory=SystemClock)
    random: RandomSource = field(default_factory=SystemRandom)
    _day: date | None = None
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(
        self, location: TablePlace, share: float, partitions: Callable[[], Sequence[str]], warn: Callable[[str], None]
    ) -> None:
        """Count a read with the probability `share`. `partitions`: their paths, empty for the whole table.

        Tables outside of a warehouse, and tables of a server, are not counted.
        """
        if self.random.jitter() >= share:
            return
        place, name = policy_of_place(location), ".".join(name_of_place(location))
        if place is None or len(name) > LONGEST_READS_NAME:
            return
        paths = partitions()
        read = paths if len(paths) <= MOST_PARTITIONS and all(len(path) <= LONGEST_READS_NAME for path in paths) else [""]
        with self._lock:
            today, before, past = self._today(), self._day, list[_Counted]()
            if before != today:
                past, self._day, self._counted = [*self._counted.values()], today, {}
            counted = self._counted.setdefault(place.path, _Counted(place, warn))
            size = sum(len(each.counts) for each in self._counted.values())
            for partition in read:
                key = name, partition
                if key in counted.counts or size < MOST_COUNTED:
                    size += key not in counted.counts
                    counted.counts[key] = counted.counts.get(key, 0) + 1
        self._write(past, before)

    def _today(self) -> date:
        return datetime.fromtimestamp(self.clock.now_millis() / 1000, timezone.utc).date()

    def write(self) -> None:
        """Write what was counted, and forget it."""
        with self._lock:
            past, self._counted = [*self._counted.values()], {}
        self._write(past, self._day)

    def _write(self, past: Iterable[_Counted], day: date | None) -> None:
        for counted in past:
            try:
                self._put(counted.place, counted.counts, day or self._today())
            except (PaimonError, OSError, RuntimeError) as error:  # a store may not work any more when the process ends
                counted.warn(f"the reads of this process were not counted: {error}")

    def _put(self, place: PolicyFile, counts: Mapping[tuple[str, str], int], day: date) -> None:
        names = place.counted_names()
        for name in names:
            made = day_of(name)
            if made is not None and (day - made).days > KEPT_DAYS:
                place.storage.delete(f"{place.counted_directory}/{name}")
        if not counts or len(names) >= MOST_READS_OBJECTS:
            return
        lines = (
            json.dumps({"table": table, **({"partition": partition} if partition else {}), "reads": reads})
            for (table, partition), reads in sorted(counts.items())
        )
        content = "".join(f"{line}\n" for line in lines).encode()
        place.storage.put_if_absent(f"{place.counted_directory}/reads-{day}-{self.random.uuid()}.ndjson", content)


@functools.cache
def _of_process() -> OwnReads:
    """The reads of this process, which are written when it ends."""
    reads = OwnReads()
    atexit.register(reads.write)
    return reads


def count_read(
    location: TablePlace, profile: str | None, partitions: Callable[[], Sequence[str]], warn: Callable[[str], None]
) -> None:
    """Count a read of a table, if the user's own configuration asks for it. A mistake in its policy is a warning: reads go on."""
    path = user_file_of(os.environ)
    try:
        found = os.stat(path)
    except OSError:
        return
    chosen = profile or os.environ.get(PROFILE_VARIABLE) or None
    try:
        rules = _rules(path, found.st_mtime_ns, found.st_size, os.getcwd(), chosen)
    except UsageError as error:
        warn(f"reads are not counted: {error.message}")
        return
    share = TablePolicy(tuple(rules.about(*name_of_place(location)).settings)).value(PolicyKey.COUNT_READS)
    if share is not None:
        _of_process().count(location, share, partitions, warn)


@functools.lru_cache(maxsize=16)
def _rules(path: str, changed: int, size: int, directory: str, profile: str | None) -> Policy:
    """The rules of the user's own file, which was changed then: a program may read many thousand times."""
    return own_rules(profile)
