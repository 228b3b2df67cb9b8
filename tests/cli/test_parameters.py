"""How commands take partitions and buckets: as values, numbers, lists and ranges."""

from __future__ import annotations

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import split_buckets


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (["3"], [3]),
        (["0-999"], [range(1000)]),
        (["0-1,3", " 7 "], [range(2), 3, 7]),
        (["5-5"], [range(5, 6)]),
        (["-2"], [-2]),
        ([], None),
    ],
)
def test_buckets_are_numbers_and_ranges(given: list[str], numbers: list[int | range] | None) -> None:
    assert split_buckets(given) == numbers


@pytest.mark.parametrize("given", ["", "a", "1-", "3-1", "1--2", "1,,2", "0-1048576", "²"])
def test_texts_that_are_not_buckets(given: str) -> None:
    with pytest.raises(UsageError, match="bucket"):
        split_buckets([given])
