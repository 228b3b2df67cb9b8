"""The deletion vector model with the constants of the published Fizzbee model: damage without the check, none with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_cli.lab.dv_model import (
    DANGLING,
    TWO_LEVELS,
    TWO_ROWS,
    WRONG_ROW,
    Bucket,
    Check,
    DvModel,
    File,
    Mark,
    Row,
    damages_of,
    explore,
)

FIZZBEE = DvModel(writers=1, compactors=2, writes=2, compactions=3, highest_level=3)
TWO_AND_TWO = replace(FIZZBEE, writers=2)


def test_unchecked_it_is_damaged() -> None:
    """Complete; a dangling vector takes 15 steps, two writes and three compactions."""
    result = explore(FIZZBEE)
    assert result.complete and result.states > 9_000
    assert {damage: len(steps) for damage, steps in result.traces.items()} == {DANGLING: 15, TWO_ROWS: 15}
    assert sum("publishes" in step for step in result.traces[DANGLING]) == 5


@pytest.mark.parametrize("model", [FIZZBEE, TWO_AND_TWO], ids=["1 writer", "2 writers"])
def test_checked_it_is_whole(model: DvModel) -> None:
    result = explore(replace(model, check=Check.BUCKET))
    assert result.complete and result.states > 9_000 and result.traces == {}


def test_two_writers_of_one_bucket() -> None:
    result = explore(TWO_AND_TWO)
    assert result.complete and result.states > 30_000
    assert {damage: len(steps) for damage, steps in result.traces.items()} == {WRONG_ROW: 12, DANGLING: 15, TWO_ROWS: 15}


def test_writers_of_own_buckets_with_a_crash() -> None:
    result = explore(DvModel(writers=2, compactors=2, writes=3, compactions=2, own_buckets=True, crashes=1))
    assert result.complete and result.states > 70_000 and result.traces == {}


@pytest.mark.parametrize(
    ("check", "is_enough"), [(Check.FILES, False), (Check.INDEX, False), (Check.VECTORS, True), (Check.BUCKET, True)]
)
def test_what_a_compaction_has_to_check(check: Check, is_enough: bool) -> None:
    """That the replaced index file is current is not enough: a file may go that was not marked when it was read."""
    result = explore(replace(FIZZBEE, check=check))
    assert result.complete and (result.traces == {}) == is_enough


def test_lost_vectors_need_no_dangling_one() -> None:
    result = explore(DvModel(writes=1, compactions=2, beginning=TWO_LEVELS))
    assert len(result.traces[TWO_ROWS]) == 9
    assert explore(DvModel(writes=1, compactions=2, beginning=TWO_LEVELS, check=Check.BUCKET)).traces == {}


def test_the_search_can_stop_early() -> None:
    found = explore(TWO_AND_TWO, until=frozenset({WRONG_ROW}))
    assert not found.complete and set(found.traces) == {WRONG_ROW}
    bounded = explore(TWO_AND_TWO, most_states=1_000)
    assert not bounded.complete and bounded.states < 2_000


OLD, NEW = File("old", 3, (Row(0, 1, 1),)), File("new", 2, (Row(0, 2, 2),))


@pytest.mark.parametrize(
    ("bucket", "damages"),
    [
        (Bucket(frozenset({OLD, NEW}), frozenset({Mark("old", 0)}), 1, ((0, 2),)), []),
        (Bucket(frozenset({OLD, NEW}), frozenset(), 0, ((0, 2),)), [TWO_ROWS]),
        (Bucket(frozenset({OLD, NEW}), frozenset({Mark("new", 0)}), 1, ((0, 2),)), [WRONG_ROW]),
        (Bucket(frozenset({NEW}), frozenset({Mark("old", 0)}), 1, ((0, 2),)), [DANGLING]),
        (Bucket(frozenset({OLD, NEW}), frozenset({Mark("old", 0), Mark("new", 0)}), 1, ((0, 2),)), [WRONG_ROW]),
    ],
)
def test_the_oracle_of_the_model(bucket: Bucket, damages: list[str]) -> None:
    assert list(damages_of(bucket)) == damages
