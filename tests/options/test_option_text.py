"""Texts of options: sizes, durations, numbers, places and lists; and values as JSON."""

from __future__ import annotations

import json
import pickle

import pytest

from paimon_cli.errors import BadOption, UsageError
from paimon_cli.options.option_text import (
    LONGEST_NAME,
    TypedOption,
    did_you_mean,
    duration_text,
    inner_directory,
    integer,
    json_text,
    locations,
    nearest,
    parse_duration,
    parse_size,
    per_level,
    plain_number,
    read_option,
    split_buckets,
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


def test_the_longest_long_is_the_largest_size_and_duration() -> None:
    assert parse_size("9223372036854775807 b") == 2**63 - 1
    assert parse_duration("9223372036854775807") == 2**63 - 1
    for read in (parse_size, parse_duration):
        with pytest.raises(UsageError):
            read("9007199254740993 t" if read is parse_size else "106751991168 d")


def test_the_own_key_of_an_option_counts_before_an_older_one() -> None:
    class Options:
        buckets = TypedOption("bucket", 7, integer(1), ("buckets", "bucket-count"))

        def __init__(self, **raw: str) -> None:
            self.raw = {key.replace("_", "-"): text for key, text in raw.items()}

        def explain(self, error: BadOption) -> None:
            error.details["explained"] = True

    assert [Options().buckets, Options(bucket_count="3").buckets] == [7, 3]
    assert Options(bucket_count="3", buckets="2", bucket="1").buckets == 1
    assert Options(bucket_count="3", buckets="2").buckets == 2
    with pytest.raises(BadOption) as wrong:
        Options(bucket="0", buckets="2").buckets  # noqa: B018
    assert (wrong.value.key, wrong.value.details["explained"]) == ("bucket", True)


@pytest.mark.parametrize("text", ["..", "../a", "a/../b", "a/b/..", "/..", "a\0b", "s3://b"])
def test_a_directory_below_the_table_never_leads_out_of_it(text: str) -> None:
    with pytest.raises(ValueError, match="below the table"):
        inner_directory(text)
    assert inner_directory("/a/..b/") == "a/..b"


@pytest.mark.parametrize(
    "text", ["a", "/a", "s3://b/../c", "s3://b/..", "file:/a/../b", "s3://b\\c", "s3://b\0", "s3:///x", "://b"]
)
def test_each_location_of_a_list_is_checked(text: str) -> None:
    assert locations("s3://b/c/, file:///d ,") == ("s3://b/c", "file:/d")
    for several in (text, f"s3://ok,{text}", f"{text},s3://ok"):
        with pytest.raises(ValueError, match="URLs with a scheme"):
            locations(several)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (None, None),
        ([], None),
        (["3"], [3]),
        (["0-2,5", "7 , 9-9"], [range(3), 5, 7, range(9, 10)]),
        (["-1"], [-1]),
        (["1048575"], [1048575]),
    ],
)
def test_every_bucket_that_is_named_is_selected(texts: list[str] | None, found: list[int | range] | None) -> None:
    assert split_buckets(texts) == found


@pytest.mark.parametrize("text", ["", "3,", "x", "5-3", "-3-", "1--2", "1048576", "0-1048576"])
def test_what_names_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        split_buckets(["0", text])


@pytest.mark.parametrize("text", ["-1:avro", "0:avro,-1:orc", "x:orc", "0", "0:avro,00:orc"])
def test_levels_are_counted_from_0(text: str) -> None:
    assert per_level(" 0:avro, 3: orc ,") == {0: "avro", 3: "orc"}
    with pytest.raises(ValueError, match="pairs of level and value"):
        per_level(text)


def test_no_character_of_json_controls_a_terminal() -> None:
    value = {"\x9b": ["\u202e\u2028\x7f", "\x1b", "é"]}
    assert json_text(value) == '{"\\u009b": ["\\u202e\\u2028\\u007f", "\\u001b", "é"]}'
    assert json.loads(json_text(value, indent=1)) == value
