"""The packed sort against NumPy's lexsort, which it replaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.datatypes.key_order import stable_order

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
