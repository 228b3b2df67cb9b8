"""Breadth-first search through all states of the deletion vector model: the shortest way to each kind of damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from paimon_cli.lab.dv_model import Bucket, DvModel, Mark, State

DANGLING, TWO_ROWS, WRONG_ROW = "dangling vector", "two live rows", "wrong row"
DAMAGES = {
    DANGLING: "a deletion vector marks rows of a file that is gone",
    TWO_ROWS: "two rows of one key are shown to readers",
    WRONG_ROW: "readers see another row than the one committed last",
}


@dataclass
class Exploration:
    """`traces`: for each damage found, the steps that lead to it. `complete`: every reachable state was seen."""

    states: int = 0
    complete: bool = False
    traces: dict[str, list[str]] = field(default_factory=dict)


def damages_of(bucket: Bucket) -> Iterator[str]:
    """What a reader of the latest snapshot suffers."""
    alive = {file.name for file in bucket.files}
    if any(mark.file not in alive for mark in bucket.vectors):
        yield DANGLING
    shown: dict[int, list[int]] = {}
    for file in bucket.files:
        for row in file.rows if file.level else ():
            if Mark(file.name, row.key) not in bucket.vectors:
                shown.setdefault(row.key, []).append(row.born)
    if any(len(rows) > 1 for rows in shown.values()):
        yield TWO_ROWS
    elif {key: rows[0] for key, rows in shown.items()} != dict(bucket.expected):
        yield WRONG_ROW


def explore(model: DvModel, *, most_states: int | None = None, until: frozenset[str] = frozenset()) -> Exploration:
    """All states, or until every damage of `until` was found. Damaged states are not followed: what comes next is their fault."""
    begin = model.begin()
    parents: dict[State, tuple[State, str] | None] = {begin: None}
    level, result = [begin], Exploration()
    while level:
        following: list[State] = []
        for state in level:
            for label, after in model.steps(state):
                if after in parents:
                    continue
                parents[after] = (state, label)
                damages = [d for bucket in after.buckets for d in damages_of(bucket)] if after.log != state.log else []
                for damage in damages:
                    result.traces.setdefault(damage, _trace(parents, after))
                if not damages:
                    following.append(after)
            if (until and until <= result.traces.keys()) or (most_states is not None and len(parents) >= most_states):
                result.states = len(parents)
                return result
        level = following
    result.states, result.complete = len(parents), True
    return result


def _trace(parents: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (parent := parents[state]) is not None:
        state, label = parent
        steps.append(label)
    return steps[::-1]
