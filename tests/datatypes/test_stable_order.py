"""The packed sort against NumPy's lexsort, which it replaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.datatypes import key_order
from paimon_cli.datatypes.key_order import MEASURED_ROWS, merges_faster, stable_order

I64 = np.iinfo(np.int64)
VALUES = (
    st.integers(0, 3),
    st.integers(-100, 100),
    st.integers(0, 1 << 40),
    st.integers(I64.min, I64.max),
    st.sampled_from((I64.min, -1, 0, I64.max)),
)


def by_lexsort(words: list[np.ndarray]) -> np.ndarray:
    return np.lexsort(tuple(reversed(words)))


@settings(max_examples=400)
@given(st.data(), st.integers(0, 60), st.lists(st.sampled_from(VALUES), min_size=1, max_size=5))
def test_orders_as_lexsort_does(data: st.DataObject, rows: int, columns: list[st.SearchStrategy[int]]) -> None:
    words = [np.array(data.draw(st.lists(column, min_size=rows, max_size=rows)), dtype=np.int64) for column in columns]
    before = [word.copy() for word in words]
    assert stable_order(words).tolist() == by_lexsort(words).tolist()
    assert all((word == kept).all() for word, kept in zip(words, before, strict=True))


@pytest.mark.parametrize("most", [1, 50, 1 << 20, 1 << 46, I64.max])
@pytest.mark.parametrize("runs", [1, 2, 4, 40])
def test_sorted_runs_and_many_rows(most: int, runs: int) -> None:
    dice = np.random.default_rng(runs)
    word = np.concatenate([np.sort(dice.integers(0, most, 5000)) for _ in range(runs)])
    second = dice.integers(-3, 3, len(word))
    assert (stable_order([word]) == by_lexsort([word])).all()
    assert (stable_order([word, second]) == by_lexsort([word, second])).all()
    assert (stable_order([second, word, second]) == by_lexsort([second, word, second])).all()


@pytest.mark.parametrize("passes", [0.0, 2.0, 9.0, 100.0])
@pytest.mark.parametrize("sizes", [(30_000, 30_000), (20_000, 4_000, 4_000), (3_000,) * 11, (40_000, *[500] * 40), (20,) * 2_000])
def test_the_order_is_the_same_on_every_processor(passes: float, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "passes_of_a_sort", lambda: passes)
    dice = np.random.default_rng(len(sizes))
    word = np.concatenate([np.sort(dice.integers(-(1 << 40), 1 << 40, size)) for size in sizes])
    assert (stable_order([word]) == by_lexsort([word])).all()
    doubled = np.repeat(word[::3], 3)  # equal keys keep their order
    assert (stable_order([doubled]) == by_lexsort([doubled])).all()


def falls_of(*sizes: int) -> tuple[np.ndarray, int]:
    falls = np.zeros(sum(sizes) - 1, dtype=bool)
    falls[np.cumsum(sizes[:-1]) - 1] = True
    return falls, len(sizes) - 1


@pytest.mark.parametrize(
    ("sizes", "passes"),
    [
        ((32_768, 32_768), 1.0),
        ((16_384,) * 4, 2.0),
        ((60_000, 1_000, 1_000, 1_000), 0.33),
        ((8_192,) * 8, 3.0),
        ((30_000, *[1_000] * 30), 3.45),
    ],
)
def test_runs_are_merged_where_that_takes_few_passes(
    sizes: tuple[int, ...], passes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the entropy of their sizes, and by what a sort costs on this processor."""
    for cost in (passes - 0.1, passes + 0.1):
        monkeypatch.setattr(key_order, "passes_of_a_sort", lambda cost=cost: cost)
        assert merges_faster(*falls_of(*sizes)) is (cost > passes or passes <= 2)


def test_only_large_merges_need_to_know_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured() -> float:
        raise AssertionError("measured for a small merge")

    monkeypatch.setattr(key_order, "passes_of_a_sort", measured)
    assert merges_faster(*falls_of(*[MEASURED_ROWS // 4] * 4))
    assert not merges_faster(*falls_of(*[MEASURED_ROWS // 8] * 8))
    assert not merges_faster(*falls_of(*[30] * 4_000)), "runs this short are not merged"
    with pytest.raises(AssertionError, match="small merge"):
        merges_faster(*falls_of(*[MEASURED_ROWS] * 8))


def test_a_processor_is_measured_without_loading_generators() -> None:
    assert 0.5 < key_order.passes_of_a_sort() < 100
