"""The scenarios by name, and what several of them share."""

from __future__ import annotations

import functools
from collections.abc import Callable

from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import CRASH, PUT_FAULTS

CRASHES = (CRASH,)
ALL_FAULTS = (CRASH, *PUT_FAULTS)
CHECKED = {"commit.data-conflict-check": "bucket"}

Factory = Callable[[], Scenario]
_FACTORIES: dict[str, Factory] = {}


def planned(name: str) -> Callable[[Factory], Factory]:
    """Give a scenario its name; it is set up when it is asked for."""

    def register(factory: Factory) -> Factory:
        _FACTORIES[name] = functools.cache(factory)
        return factory

    return register


def scenario(name: str) -> Scenario:
    """The scenario of that name; KeyError if there is none."""
    return _FACTORIES[name]()


def names() -> list[str]:
    return sorted(_FACTORIES)
