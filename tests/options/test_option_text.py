"""Texts of sizes and durations."""

from __future__ import annotations

import pickle

import pytest

from paimon_cli.errors import BadOption, UsageError
from paimon_cli.options.option_text import (
    LONGEST_NAME,
    did_you_mean,
    duration_text,
    integer,
    nearest,
    parse_duration,
    parse_size,
    plain_number,
    read_option,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("500 b", 500),
        ("128 mb", 128 << 20),
        ("128MB", 128 << 20),
        (" 1 g ", 1 << 30),
        ("2 tebibytes", 2 << 40),
        ("4kb", 4096),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1 h", 3_600_000),
        ("10 s", 10_000),
        ("500 ms", 500),
        ("500", 500),
        ("7d", 604_800_000),
        ("3 min", 180_000),
        ("1999 µs", 1),
    ],
)
def test_durations(text: str, millis: int) -> None:
    assert parse_duration(text) == millis


@pytest.mark.parametrize("text", ["", "mb", "-1 mb", "1.5 gb", "1 xb", "1 mb mb", "9999999999 tb", "１ mb"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "h", "-1 s", "1 month", "1 h 5 min", "99999999999999999999 d"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        (" -12 ", -12),
        ("0012", 12),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("²", None),
        ("٣", None),
        ("--5", None),
        ("+5", None),
        ("", None),
        ("1.0", None),
        ("9" * 5000, None),
    ],
)
def test_plain_numbers(text: str, number: int | None) -> None:
    assert plain_number(text) == number


def test_amounts_of_any_length_are_refused_and_not_counted() -> None:
    with pytest.raises(UsageError):
        parse_size("9" * 5000 + " b")


def test_long_names_are_not_compared() -> None:
    assert nearest("x" * 10_000_000, ["x" * 10_000_001, "x"]) is None
    assert nearest("ordrs", ["o" * 10_000_000, "orders"]) == "orders"


def test_what_is_wrong_with_an_option_survives_a_task() -> None:
    """Who has the option decides what `health` and listings of tables make of the error."""
    with pytest.raises(BadOption) as raised:
        read_option("bucket", "many", integer(1))
    error = raised.value
    assert (error.key, error.value, error.of_call, error.of_table) == ("bucket", "many", False, "")
    error.blame(table="./t")
    error.details["clean_up_failed"] = "no"
    again = pickle.loads(pickle.dumps(error))
    assert (again.key, again.value, again.of_table, again.details) == ("bucket", "many", "./t", error.details)


@pytest.mark.parametrize(("length", "found"), [(LONGEST_NAME, True), (LONGEST_NAME + 1, False)])
def test_names_are_compared_up_to_a_length(length: int, found: bool) -> None:
    assert (nearest("A" * length, ["a" * LONGEST_NAME]) is not None) == found


def test_the_question_that_begins_a_hint() -> None:
    assert did_you_mean("itme", ["item", "other"], "db.") == "did you mean 'db.item'? "
    assert did_you_mean("item", ["item", "xyz"]) == "", "the name itself is never the answer"


@pytest.mark.parametrize("text", ["5 d", "90 s", "36 h", "1 ms", "0 ms", "1500 ms"])
def test_a_duration_is_shown_as_it_is_parsed(text: str) -> None:
    assert duration_text(parse_duration(text)) == text
