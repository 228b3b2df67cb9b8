"""The ledger of a warehouse: what its services did in each round, and what that cost (FORMAT.md, section 13.10).

    WAREHOUSE/.paimon-cli/ledger/round-MILLIS-SERVICE-NUMBER     a round of one service (JSON)
    WAREHOUSE/.paimon-cli/ledger/day-MILLIS-SERVICE-NUMBER       the rounds of past days, packed by one service
    WAREHOUSE/.paimon-cli/ledger/begun-MILLIS-SERVICE-NUMBER     a round that spends a daily budget, before it does

Rounds and packs are written once, if absent. A service packs the rounds of past days: first the pack is written, then the rounds
in it are deleted, so at any time each round is there at least once, and readers count it once. Objects older than `KEPT_MILLIS`
are deleted. Nothing depends on the ledger but reports and daily budgets, so whatever goes wrong with it is a warning.

A service that is killed cannot say what it has spent. So what the budgets have granted is written before the first turn of a
round, rewritten as tables are done, which then count with what they took, and deleted after the round. Until the round is in the
ledger, what stands there counts as spent.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.maintain.trash import KEPT_DIRECTORY
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import link_target
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage

LEDGER_DIRECTORY = "ledger"
KEPT_MILLIS, DAY_MILLIS = 90 * 86_400_000, 86_400_000
_BEGUN_KEPT_MILLIS = 2 * DAY_MILLIS
"""No budget asks for more than the last day, and services that are killed again and again must not fill the directory."""
MAX_OBJECT, MOST_STEPS, LONGEST_REASON, MAX_OBJECTS = 8 << 20, 100_000, 4000, 200_000
"""Bounds of one object (bytes), of the steps in it, of a text, and of the objects that are read: the newest."""
_VERSION = 1
_LATER = ("upkeep_bytes", "upkeep_seconds")
"""Numbers of a step that older releases do not write."""
_NAME = re.compile(r"(round|day|begun)-([0-9]{13,15})-([0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12})-([0-9]{1,18})")


class LedgerKind:
    """The kinds of objects: a round, packed rounds, a round that spends a daily budget before it does."""

    ROUND = "round"
    DAY = "day"
    BEGUN = "begun"


_ROUND, _DAY, _BEGUN = LedgerKind.ROUND, LedgerKind.DAY, LedgerKind.BEGUN


@dataclass(frozen=True)
class LedgerStep:
    """What a round did to one table. Sizes are bytes; the compaction's are those of rewritten files.

    `runs_before`, `runs_after`: sorted runs of the compacted buckets, together. `read_files_*`, `read_bytes_*`: what a read
    of all rows opens and fetches before and after. `score`, `budget_left` (bytes to read): None for a service without goal or
    budget. `why`: the reasons of the compactions, with their arithmetic; `why_not`: what was left, and why. `error`: of the step,
    empty if it succeeded; the sizes then include what came to nothing. `upkeep_bytes`: what the budget was charged for expiry and
    orphans; `upkeep_seconds`: of a budget in time, all that the turn took besides the compaction.
    """

    table: str
    state: str
    buckets: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    runs_before: int = 0
    runs_after: int = 0
    read_files_before: int = 0
    read_files_after: int = 0
    read_bytes_before: int = 0
    read_bytes_after: int = 0
    snapshots_expired: int = 0
    files_deleted: int = 0
    score: float | None = None
    budget_left: int | None = None
    why: str = ""
    why_not: str = ""
    error: str = ""
    upkeep_bytes: int = 0
    upkeep_seconds: float = 0.0

    @property
    def charged_bytes(self) -> int:
        return self.bytes_read + self.upkeep_bytes

    @property
    def charged_seconds(self) -> float:
        return self.seconds + self.upkeep_seconds


@dataclass(frozen=True)
class StepSums:
    """What steps did together, in bytes and seconds. `runs_removed`: sorted runs that compactions merged away."""

    steps: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    runs_removed: int = 0
    snapshots_expired: int = 0
    files_deleted: int = 0

    @staticmethod
    def of(steps: Sequence[LedgerStep]) -> StepSums:
        return StepSums(
            len(steps),
            sum(bool(step.error) for step in steps),
            sum(step.bytes_read for step in steps),
            sum(step.bytes_written for step in steps),
            sum(step.seconds for step in steps),
            sum(max(0, step.runs_before - step.runs_after) for step in steps),
            sum(step.snapshots_expired for step in steps),
            sum(step.files_deleted for step in steps),
        )


@dataclass(frozen=True)
class LedgerRound:
    """One round of one service. `started`: epoch millis. `requests`: to storages, by kind, of the whole process meanwhile."""

    service: str
    number: int
    started: int
    seconds: float
    tables: int
    requests: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[LedgerStep, ...] = ()

    @property
    def key(self) -> tuple[int, str, int]:
        """Orders rounds by time; equal for copies of one round."""
        return self.started, self.service, self.number

    @property
    def name(self) -> str:
        return f"{_ROUND}-{self._id}"

    @property
    def begun_name(self) -> str:
        return f"{_BEGUN}-{self._id}"

    @property
    def _id(self) -> str:
        return f"{self.started:013}-{self.service}-{self.number}"


@dataclass(frozen=True)
class LedgerFile:
    """The name of an object of the ledger: `round`, `day` or `begun`, when it began (epoch millis), its service and number."""

    kind: str
    millis: int
    service: str
    number: int
    status: FileStatus

    @classmethod
    def of(cls, status: FileStatus) -> LedgerFile | None:
        found = _NAME.fullmatch(status.name)
        if found is None or status.is_directory:
            return None
        kind, millis, service, number = found.groups()
        return cls(kind, int(millis), service, int(number), status)


@dataclass(frozen=True)
class Ledger:
    """The ledger of the warehouse at `root`, which `storage` reaches."""

    storage: Storage
    root: str
    clock: Clock

    @property
    def directory(self) -> str:
        return f"{self.root.rstrip('/')}/{KEPT_DIRECTORY}/{LEDGER_DIRECTORY}"

    def add(self, done: LedgerRound) -> bool:
        """Write a round; returns whether it is certainly there."""
        self._refuse_links()
        return self.storage.put_if_absent(f"{self.directory}/{done.name}", encode((done,))) != PutOutcome.UNKNOWN

    def begin(self, begun: LedgerRound) -> None:
        """Write what a round may spend, before it does: the bytes and seconds that its steps were granted."""
        self._refuse_links()
        self.storage.put_if_absent(f"{self.directory}/{begun.begun_name}", encode((begun,)))

    def goes_on(self, begun: LedgerRound) -> None:
        """Replace what a round may spend, when it knows better. Only its own service does."""
        self._refuse_links()
        self.storage.overwrite(f"{self.directory}/{begun.begun_name}", encode((begun,)))

    def end(self, begun: LedgerRound) -> None:
        """Forget what a round might have spent. Only after it was added, or has spent nothing."""
        self._refuse_links()
        self.storage.delete(f"{self.directory}/{begun.begun_name}")

    def spent(self, since_millis: int, on_damage: Callable[[DamagedFile], object]) -> tuple[list[LedgerRound], list[LedgerRound]]:
        """The rounds, as of `rounds`, and those that began and are not among them: their services are at work or were killed."""
        begun = [
            each
            for file in self.newest()  # named below
            if file.kind == _BEGUN and file.millis >= since_millis
            for each in self.read(file, on_damage)
        ]
        # listed again: a round that ends meanwhile is written before its begin is deleted, so it is seen at least once
        rounds = self.rounds(since_millis, on_damage)
        keys = {each.key for each in rounds}
        return rounds, sorted((each for each in begun if each.key not in keys), key=lambda each: each.key)

    def rounds(self, since_millis: int, on_damage: Callable[[DamagedFile], object]) -> list[LedgerRound]:
        """The rounds that began at `since_millis` or later, oldest first. `on_damage`: receives the error of each object that
        cannot be read.
        """
        found: dict[tuple[int, str, int], LedgerRound] = {}
        for file in self.newest(on_damage):
            if file.kind == _BEGUN or (file.kind == _ROUND and file.millis < since_millis):
                continue
            for each in self.read(file, on_damage):
                if each.started >= since_millis:
                    found.setdefault(each.key, each)
        return [found[key] for key in sorted(found)]

    def tidy(self, service: str, on_damage: Callable[[DamagedFile], object]) -> None:
        """Pack the rounds of past days, and delete what is older than `KEPT_MILLIS`, or was cut off a day ago."""
        self._refuse_links()
        now = self.clock.now_millis()
        for status in self.storage.list_directory(self.directory):
            if not status.is_directory and status.is_temporary() and status.modified_millis + DAY_MILLIS < now:
                self.storage.delete(status.path)
        today = now - now % DAY_MILLIS
        files = self._files(on_damage)
        kept = {_ROUND: KEPT_MILLIS, _DAY: KEPT_MILLIS + DAY_MILLIS, _BEGUN: _BEGUN_KEPT_MILLIS}
        for file in files:
            if file.millis + kept[file.kind] < now:
                self.storage.delete(file.status.path)
        past = [file for file in files if file.kind == _ROUND and now - KEPT_MILLIS <= file.millis < today]
        days: dict[int, list[LedgerFile]] = {}
        for file in past:
            days.setdefault(file.millis - file.millis % DAY_MILLIS, []).append(file)
        for day, of_day in days.items():
            for number, pack in enumerate(_packs(of_day), now):
                self._pack(day, service, number, pack, on_damage)

    def _pack(
        self, day: int, service: str, number: int, files: Sequence[LedgerFile], on_damage: Callable[[DamagedFile], object]
    ) -> None:
        """Write one pack, then delete the rounds in it. One that cannot be read stays as it is."""
        read = [(file, [*self.read(file, on_damage)]) for file in files]
        packed = [(file, rounds) for file, rounds in read if rounds]
        if len(packed) < 2:
            return
        content = encode([each for _, rounds in packed for each in rounds])
        path = f"{self.directory}/{_DAY}-{day:013}-{service}-{number}"
        self.storage.put_if_absent(path, content)
        if self.storage.read_bytes(path) != content:
            return
        for file, _ in packed:
            self.storage.delete(file.status.path)

    def newest(self, on_damage: Callable[[DamagedFile], object] = lambda damage: None) -> list[LedgerFile]:
        """The objects that are read, newest first."""
        return self._files(on_damage)[:MAX_OBJECTS]

    def _files(self, on_damage: Callable[[DamagedFile], object]) -> list[LedgerFile]:
        """All objects by their names, newest first; others are damage."""
        self._refuse_links()
        found: list[LedgerFile] = []
        for status in self.storage.list_directory(self.directory):
            file = LedgerFile.of(status)
            if file is None and status.name.startswith("."):
                continue  # of the file system, or an object that is being written
            if file is None:
                on_damage(_damage(status.path, "no service names an object like that"))
            else:
                found.append(file)
        return sorted(found, key=lambda file: -file.millis)

    def read(self, file: LedgerFile, on_damage: Callable[[DamagedFile], object]) -> Iterator[LedgerRound]:
        """The rounds in an object; none if it is gone. `on_damage`: receives the error of one that cannot be read."""
        path = file.status.path
        try:
            if file.status.size > MAX_OBJECT:
                raise _damage(path, f"it is larger than {MAX_OBJECT:,} bytes")
            if link_target(self.storage, path) is not None:
                raise _damage(path, "it is a link, which no service makes")
            rounds = decode(self.storage.read_bytes(path), path)
            names = [each.begun_name if file.kind == _BEGUN else each.name for each in rounds]
            if file.kind != _DAY and names != [file.status.name]:
                raise _damage(path, "it holds another round than its name says")
        except FileNotFoundError:  # packed, or ended, meanwhile
            return
        except DamagedFile as error:
            on_damage(error)
            return
        yield from rounds

    def _refuse_links(self) -> None:
        for path in (self.directory.rpartition("/")[0], self.directory):
            if link_target(self.storage, path) is not None:
                raise DamagedFile(f"{path} is a link", "the ledger is a directory of its own", "delete the link", path=path)


def encode(rounds: Iterable[LedgerRound]) -> bytes:
    """Rounds as the content of one object."""
    return json.dumps({"version": _VERSION, "rounds": [asdict(each) for each in rounds]}, separators=(",", ":")).encode()


def decode(content: bytes, path: str) -> list[LedgerRound]:
    """The rounds in an object. Raises `DamagedFile` for anything that no service writes."""
    try:
        if len(content) > MAX_OBJECT:
            raise ValueError(f"it is larger than {MAX_OBJECT:,} bytes")
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("version") != _VERSION or not isinstance(found["rounds"], list):
            raise ValueError("it is of another version")
        return [_round(each) for each in found["rounds"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damage(path, "it is not what a service writes") from error


def _packs(files: Sequence[LedgerFile]) -> Iterator[list[LedgerFile]]:
    """Files in the order of time, as many together as fit into one object."""
    rest = iter(sorted(files, key=lambda file: file.millis))
    pack: list[LedgerFile] = []
    size = 0
    for file in rest:
        if pack and (len(pack) >= PIECES.packed_rounds or size + file.status.size > MAX_OBJECT // 2):
            yield pack
            pack, size = [], 0
        pack.append(file)
        size += file.status.size
    if pack:
        yield pack


def _damage(path: str, why: str) -> DamagedFile:
    return DamagedFile(f"cannot read {path}", why, "delete it: nothing but reports of the past depends on it", path=path)


def _round(found: Any) -> LedgerRound:
    requests, steps = found["requests"], found["steps"]
    if not isinstance(requests, dict) or len(requests) > 20 or not isinstance(steps, list) or len(steps) > MOST_STEPS:
        raise ValueError("it has too much in it")
    return LedgerRound(
        _text(found["service"], 40),
        _count(found["number"]),
        _count(found["started"]),
        _real(found["seconds"]),
        _count(found["tables"]),
        {_text(kind, 40): _count(number) for kind, number in requests.items()},
        tuple(_step(each) for each in islice(steps, MOST_STEPS)),
    )


def _step(found: Any) -> LedgerStep:
    if not isinstance(found, dict):
        raise ValueError("a step is no object")
    kinds = {each.name: _CHECKS[str(each.type)] for each in fields(LedgerStep)}
    found = {**dict.fromkeys(_LATER, 0), **found}
    return LedgerStep(**{name: check(found[name]) for name, check in kinds.items()})


def _text(found: Any, longest: int = LONGEST_REASON) -> str:
    if not isinstance(found, str) or len(found) > longest:
        raise ValueError("a text is missing or too long")
    return found


def _count(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
        raise ValueError("a whole number is missing")
    return found


def _real(found: Any) -> float:
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not math.isfinite(found) or found < 0:
        raise ValueError("a number is missing")
    return float(found)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": _count,
    "float": _real,
    "float | None": lambda found: None if found is None else _real(found),
    "int | None": lambda found: None if found is None else _count(found),
}
