"""How often tables and partitions are read: the file `reads.ndjson` beside the policy of a warehouse (FORMAT.md, section 13.11).

    {"table": "shop.orders", "partition": "dt=2026-11-29", "reads": 412}

Only the proportions count: on average, what is listed is read as often as where nothing is known. Counts are samples, so they are
shrunk to their mean, the more the less they differ from what chance alone would make of it (a gamma prior over Poisson counts, by
the moments of the sample). What the file does not name counts as not read in its time.
Beside it, the directory `reads` has objects of the same form, each with the reads that one process counted on one day.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from paimon_cli.errors import UsageError
from paimon_cli.maintain.policy_text import at

READS_FILE = "reads.ndjson"
MAX_READS_FILE, MAX_READS_LINES, LONGEST_READS_NAME = 32 << 20, 200_000, 2000
"""Bounds of the file (bytes), of its lines, and of a name in it (characters)."""
READS_DIRECTORY, MOST_READS_OBJECTS = "reads", 500
"""The directory of what processes counted, and how many objects it has at most: beyond that none is added, and none is read."""
_OBJECT = re.compile(r"reads-([0-9]{4}-[0-9]{2}-[0-9]{2})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.ndjson")
_MOST_READS = 1e15
_SHOWN_LINES, _MOST_COMPLAINTS = 5, 20
_WHOLE = ""


@dataclass(frozen=True)
class ReadCounts:
    """Reads by table (`db.table`) and path of the partition, empty for reads of the whole table. `shrunk` is what to believe.

    `source`: where they come from, such as `reads.ndjson`; empty without counts. `complaints`: which lines of which files were
    left out, because they are no counts.
    """

    counts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    source: str = ""
    complaints: tuple[str, ...] = ()

    @staticmethod
    def together(parts: Iterable[ReadCounts]) -> ReadCounts:
        """The sum of all, with their sources. Raises `UsageError` for more partitions than a file may name."""
        counts: dict[tuple[str, str], float] = {}
        sources: dict[str, None] = {}
        complaints: tuple[str, ...] = ()
        for part in parts:
            complaints = (*complaints, *part.complaints)[:_MOST_COMPLAINTS]
            sources.update({part.source: None} if part.counts else {})
            for key, reads in part.counts.items():
                counts[key] = counts.get(key, 0.0) + reads
            if len(counts) > MAX_READS_LINES:
                why = f"reads of more than {MAX_READS_LINES:,} partitions were counted"
                raise UsageError("there are too many counts of reads", why, f"delete files in the directory {READS_DIRECTORY}")
        return ReadCounts(counts, ", ".join(sources), complaints)

    @staticmethod
    def read(content: bytes, name: str) -> ReadCounts:
        """The counts in a file; those of one partition add up. Lines that are none are left out, with a complaint; a last line
        without an end may be on its way. Raises `UsageError` for a file that is too large.
        """
        if len(content) > MAX_READS_FILE:
            raise UsageError(f"{name} is too large", f"it has {len(content):,} bytes, and at most {MAX_READS_FILE:,} are read")
        counts: dict[tuple[str, str], float] = {}
        bad: list[int] = []
        lines = content.splitlines()
        is_whole = content.endswith((b"\n", b"\r"))
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if number > MAX_READS_LINES:
                raise at(name, number, "the file has too many lines", f"at most {MAX_READS_LINES:,} are read")
            try:
                table, partition, reads = _line(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                is_on_its_way = number == len(lines) and not is_whole and _is_cut(line, error)
                bad += [] if is_on_its_way else [number]
                continue
            counts[table, partition] = counts.get((table, partition), 0.0) + reads
        return ReadCounts(counts, complaints=(_complaint(name, bad),) if bad else ())

    def of_tables(self, tables: Collection[str]) -> tuple[ReadCounts, list[str]]:
        """The counts of these tables, and the names of the others that have counts: these would pull down the mean of all."""
        counts = {key: reads for key, reads in self.counts.items() if key[0] in tables}
        others = sorted({table for table, _ in self.counts.keys() - counts.keys()})
        return replace(self, counts=counts, source=self.source if counts else ""), others

    def proportion(self, table: str, partition: str) -> float:
        """How often a partition is believed to be read, in proportion to the mean; 1 where nothing is known.

        Reads of a whole table count for each of its partitions.
        """
        if not self.counts:
            return 1.0
        found = self.counts.get((table, partition), 0.0)
        return self.shrunk(found if partition == _WHOLE else found + self.counts.get((table, _WHOLE), 0.0))

    def shrunk(self, count: float) -> float:
        """The believed proportion for a count.

        >>> counts = ReadCounts({("s.a", ""): 3.0, ("s.b", ""): 5.0, ("s.c", ""): 4.0})
        >>> counts.shrunk(3.0), counts.shrunk(5.0)  # as far apart as equal rates would be by chance
        (1.0, 1.0)
        >>> uneven = ReadCounts({("s.a", ""): 1.0, ("s.b", ""): 1.0, ("s.c", ""): 998.0})
        >>> round(uneven.shrunk(998.0), 2), round(uneven.shrunk(0.0), 4)
        (2.99, 0.001)
        """
        mean, prior = self._moments
        return 1.0 if prior == math.inf else (count / mean + prior) / (1 + prior)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """The mean, and how much it weighs against a count; infinite if the counts differ no more than by chance."""
        size = len(self.counts)
        mean = sum(self.counts.values()) / max(1, size)
        variance = sum((each - mean) ** 2 for each in self.counts.values()) / max(1, size - 1)
        return mean, math.inf if not mean or variance <= mean else mean / (variance - mean)


def day_of(name: str) -> date | None:
    """The day of an object in the directory of counts; None for any other name.

    >>> day_of("reads-2026-11-29-0123abcd-0123-0123-0123-0123456789ab.ndjson")
    datetime.date(2026, 11, 29)
    """
    found = _OBJECT.fullmatch(name)
    try:
        return None if found is None else date.fromisoformat(found.group(1))
    except ValueError:
        return None


def _is_cut(line: bytes, error: Exception) -> bool:
    """Whether a line is the begin of an object, as one that is still being written."""
    is_no_json = isinstance(error, (json.JSONDecodeError, UnicodeDecodeError))
    return is_no_json and line.lstrip().startswith(b"{") and not line.rstrip().endswith(b"}")


def _complaint(name: str, bad: list[int]) -> str:
    numbers = ", ".join(f"{number}" for number in bad[:_SHOWN_LINES])
    more = f" and {len(bad) - _SHOWN_LINES:,} more" if len(bad) > _SHOWN_LINES else ""
    what = f"line {numbers} is no count" if len(bad) == 1 else f"lines {numbers}{more} are no counts"
    why = "a line is an object with table (db.table), partition (a path such as dt=2026-11-29, or none) and reads"
    return f"{name}: {what} of reads, and left out: {why}"


def _line(found: object) -> tuple[str, str, float]:
    if not isinstance(found, dict) or not found.keys() <= {"table", "partition", "reads"}:
        raise ValueError
    table, partition, reads = found["table"], found.get("partition") or _WHOLE, found["reads"]
    if not isinstance(table, str) or not isinstance(partition, str) or max(len(table), len(partition)) > LONGEST_READS_NAME:
        raise ValueError
    if isinstance(reads, bool) or not isinstance(reads, (int, float)) or not 0 <= reads <= _MOST_READS:
        raise ValueError
    if table.count(".") != 1:
        raise ValueError
    return table, partition.strip("/"), float(reads)
