"""Merge engines and append tables under operations that hypothesis chooses, beside the oracle; and planted bugs to be found."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from paimon_cli.bucket import merged_rows
from paimon_cli.lsm import sort_merge
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.engines.first_row import FirstRow
from tests.nightly import at_night
from tests.properties.shapes import APPEND, ENGINES, random_changes, random_layout
from tests.properties.trial import Trial

STEPS_OF_A_TABLE = 40
TABLES, MIN_STEPS = 6, 100
APPEND_TABLES, MIN_APPEND_STEPS = 4, 40
TIMES = 50
"""At night, as many times the tables; `scripts/nightly/properties.py` makes a million steps without hypothesis."""
SEEDS = st.integers(0, 1 << 30)
STEPS_MADE: Counter[str] = Counter()


class EngineMachine(RuleBasedStateMachine):
    """Hypothesis chooses the operations, and seeds for tables and rows: fewer choices, so that small failures are found."""

    engine = "deduplicate"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    @initialize(seed=SEEDS)
    def create(self, seed: int) -> None:
        self.trial = Trial(Path(self.folder.name), random_layout(self.engine, random.Random(seed)))

    @rule(seed=SEEDS)
    def write(self, seed: int) -> None:
        self.trial.write(random_changes(self.trial.layout, random.Random(seed)))

    @rule(seed=SEEDS)
    def overwrite(self, seed: int) -> None:
        self.trial.write(random_changes(self.trial.layout, random.Random(seed)), overwrite=seed % 4 == 0)

    @rule(strategy=st.sampled_from(["minor", "minor", "full"]))
    def compact(self, strategy: str) -> None:
        self.trial.compact(strategy)

    @rule(key=st.none() | st.integers(0, 7), value=st.sampled_from([None, 1, 7]))
    def update(self, key: int | None, value: int | None) -> None:
        self.trial.update(key, value)

    @rule(keep=st.integers(1, 4))
    def expire(self, keep: int) -> None:
        self.trial.expire(keep)

    @rule(which=st.integers(0, 9))
    def roll_back(self, which: int) -> None:
        self.trial.roll_back(which)

    @rule(buckets=st.integers(1, 3))
    def rescale(self, buckets: int) -> None:
        self.trial.rescale(buckets)

    @rule(which=st.integers(0, 9))
    def look_back(self, which: int) -> None:
        self.trial.look_back(which)

    @rule(which=st.integers(0, 4))
    def filter(self, which: int) -> None:
        self.trial.filter(which)

    @rule()
    def look_at_top(self) -> None:
        self.trial.look_at_top()

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            STEPS_MADE[self.engine] += len(self.trial.steps)
            self.trial.check()
            self.trial.close()
        self.folder.cleanup()


@pytest.mark.in_part(2)
@pytest.mark.parametrize("times", [1, at_night(TIMES)])
@pytest.mark.parametrize("engine", [*ENGINES, APPEND])
def test_engines_beside_the_oracle(engine: str, times: int) -> None:
    machine = type(f"{engine}-machine", (EngineMachine,), {"engine": engine})
    STEPS_MADE[engine] = 0
    tables, least = (APPEND_TABLES, MIN_APPEND_STEPS) if engine == APPEND else (TABLES, MIN_STEPS)
    chosen = settings(
        max_examples=tables * times,
        stateful_step_count=STEPS_OF_A_TABLE,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    run_state_machine_as_test(machine, settings=chosen)
    print(f"{engine}: {STEPS_MADE[engine]} steps")
    assert STEPS_MADE[engine] >= least * times


def _oldest_wins(self: Deduplicate, rows: Any) -> Any:
    return rows.rows.take(rows.order[rows.starts])


def _newest_stays(self: FirstRow, rows: Any) -> Any:
    return Deduplicate().merge(rows)


def _sequence_forgotten(original: Callable[..., Any]) -> Callable[..., Any]:
    def sorted_rows(rows: Any, key_columns: Any, engine: Any) -> Any:
        found = original(rows, key_columns, engine)
        ends = np.append(found.starts[1:], len(found.order))
        order = np.concatenate([found.order[a:b][::-1] for a, b in zip(found.starts, ends, strict=True)])
        return type(found)(found.rows, order, found.starts)

    return sorted_rows


PLANTED = {
    "deduplicate keeps the oldest": ("deduplicate", Deduplicate, "merge", _oldest_wins),
    "first-row keeps the newest": ("first-row", FirstRow, "merge", _newest_stays),
    "deleted rows are shown": ("deduplicate", merged_rows, "without_retractions", lambda batch: batch),
    "versions are merged backwards (partial-update)": (
        "partial-update",
        sort_merge,
        "sorted_rows",
        _sequence_forgotten(sort_merge.sorted_rows),
    ),
    "versions are merged backwards (aggregation)": (
        "aggregation",
        sort_merge,
        "sorted_rows",
        _sequence_forgotten(sort_merge.sorted_rows),
    ),
}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine, place, attribute, wrong = PLANTED[name]
    monkeypatch.setattr(place, attribute, wrong)
    dice = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(20):
            trial = Trial(tmp_path, random_layout(engine, dice))
            for _ in range(30):
                trial.random_step(dice)
