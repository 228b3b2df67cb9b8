"""What a planted bug is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from paimon_cli.lab.simulation.real_files import forget

Patch = AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutation:
    """`plant` puts the bug in; a search through `scenario` has to find it, with at most this many interruptions of actors."""

    name: str
    scenario: str
    plant: Callable[[], Patch]
    max_switches: int = 1


PLANTED: list[Mutation] = []


def planted_in(scenario: str) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
    def register(plant: Callable[[], Patch]) -> Callable[[], Patch]:
        PLANTED.append(Mutation(plant.__name__, scenario, lambda: _alone(plant())))
        return plant

    return register


@contextmanager
def _alone(bug: Patch) -> Iterator[None]:
    """What tasks have made without the bug is forgotten, and what they make with it."""
    forget()
    with bug:
        yield
    forget()


@contextmanager
def both(first: Patch, second: Patch) -> Iterator[None]:
    with first, second:
        yield


def nothing(*arguments: Any, **named: Any) -> None:
    """In the place of a check or of a change."""
