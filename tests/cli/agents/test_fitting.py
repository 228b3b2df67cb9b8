"""What is cut of an answer is told."""

from __future__ import annotations

import pytest

from paimon_cli.cli.agents.answers import MOST_TEXT, Fitting


@pytest.mark.parametrize("names", [("k" * MOST_TEXT + "a", "k" * MOST_TEXT + "b"), ("a\udc80", "a\udc81")], ids=["long", "bytes"])
def test_names_that_are_shown_alike_are_told_as_a_cut(names: tuple[str, str]) -> None:
    fitted = Fitting(10**6)
    assert len(fitted.value(dict.fromkeys(names, 1))) == 1
    assert fitted.is_cut


def test_names_that_are_whole_are_no_cut() -> None:
    fitted = Fitting(10**6)
    assert fitted.value({"a": 1, "b": 2}) == {"a": 1, "b": 2} and not fitted.is_cut
