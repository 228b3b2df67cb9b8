"""An operation: what it does to a table, and how the table shows that it was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paimon_cli.metadata.snapshot import APPEND, COMPACT, Snapshot
from tests.faults.bench import HEALTHY, Actor, Bench, Rows

USER, IDENTIFIER = "job", 7
RIVALS: dict[int, str | None] = {1: "rival", 5: None, 9: "rival"}


@dataclass(frozen=True)
class Operation:
    """`start` makes the table and returns its rows; `act` is what meets faults, `rival` happens just before its first put.

    `done` counts how often the operation stands in the table's history; `effect` is what it does to rows. `is_gradual`: it
    may be half done, and is finished by doing it again. `may_be_needless`: it may find nothing to do. `is_repeatable`: once
    it was done, doing it again changes nothing. `leaves_orphans`: files that are no longer needed are left to `orphans`.
    `reopens_records`: the records of commits that it takes back stay, and are open.
    """

    name: str
    start: Callable[[Bench], Rows]
    act: Callable[[Actor], object]
    done: Callable[[Actor], int]
    effect: Callable[[Rows], Rows] = dict
    rival: Callable[[Bench], object] | None = None
    rival_effect: Callable[[Rows], Rows] = dict
    is_gradual: bool = False
    may_be_needless: bool = False
    is_repeatable: bool = True
    leaves_orphans: bool = False
    reopens_records: bool = False


def is_job(snapshot: Snapshot) -> bool:
    return (snapshot.commit_user, snapshot.commit_identifier) == (USER, IDENTIFIER) and snapshot.commit_kind != COMPACT


def times_job(actor: Actor) -> int:
    return sum(is_job(snapshot) for snapshot in actor.context().snapshots.newest_first())


def write_of(bench: Bench, changes: Mapping[int, str | None] = RIVALS) -> None:
    bench.healthy().write(changes, commit_user="rival", commit_id=1)


def times_compacted(actor: Actor) -> int:
    return _times_by_name(actor, COMPACT)


def times_anonymous(actor: Actor) -> int:
    return _times_by_name(actor, APPEND)


def _times_by_name(actor: Actor, kind: str) -> int:
    """Snapshots whose user was made up by an actor that meets faults: the name begins with its number."""
    users = [snapshot.commit_user for snapshot in actor.context().snapshots.newest_first() if snapshot.commit_kind == kind]
    return sum(user[:8].isdigit() and int(user[:8], 16) < HEALTHY for user in users)
