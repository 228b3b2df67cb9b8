"""The options of changes to rows that contradict each other, which a request refuses when it is built."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.requests.writing import ErrorHandling, UpdateCall, WriteCall, WriteOptions

TWO = [{"dt": "a"}, {"dt": "b"}]


@pytest.mark.parametrize("kind", [WriteOptions, WriteCall])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"other_buckets": "skip"}, "no bucket is named"),
        ({"bucket": 3, "overwrite": True}, "--bucket cannot be combined with --overwrite"),
        ({"bucket": 0, "overwrite": True, "partition": TWO[0]}, "--bucket cannot be combined with --overwrite"),
        ({"op": "delete", "op_column": "k"}, "--op cannot be combined with --op-column"),
        ({"op": "delete", "overwrite": True}, "--op delete cannot be combined with --overwrite"),
        ({"partition": TWO[0]}, "--partition needs --overwrite"),
        ({"partition": TWO, "overwrite": True}, "--partition names several partitions"),
        ({"on_error": ""}, "--on-error is empty"),
        ({"commit_id": -1}, "--commit-id -1"),
    ],
)
def test_writes_that_cannot_be_are_refused(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        kind(**given)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    "given",
    [
        {"bucket": [0, range(3, 5)], "other_buckets": "skip"},
        {"op_column": "k", "overwrite": True},
        {"op": "delete"},
        {"partition": TWO[1], "overwrite": True},
        {"stage": "f"},
        {"stage": "f", "compact": "none"},
        {"compact": "async"},
    ],
)
def test_writes_that_are_possible(given: dict[str, Any]) -> None:
    WriteCall(**given)


@pytest.mark.parametrize("compact", ["inline", "async", "after"])
def test_a_staged_write_compacts_nothing(compact: Any) -> None:
    with pytest.raises(UsageError) as refused:
        WriteCall(stage="f", compact=compact)
    assert refused.value.message.startswith(f"--stage cannot be combined with --compact {compact}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"set": "n = 1"}, "no condition"),
        ({"values": {"n": 1}}, "no condition"),
        ({"where": "true"}, "nothing to set"),
        ({"where": "true", "set": [], "values": {}}, "nothing to set"),
        ({"where": "true", "set": {}}, "nothing to set"),
    ],
)
def test_updates_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        UpdateCall(**given)
    assert refused.value.message.startswith(message)
    for sets in ({"set": "n = 1"}, {"values": {"n": 1}}):
        UpdateCall(where="true", **sets)


def test_what_becomes_of_bad_rows_is_read_in_any_case_but_files_are_not() -> None:
    given = ("FAIL", "Skip", "Bad.csv", "skipped")
    assert [ErrorHandling().parse(one) for one in given] == ["fail", "skip", "Bad.csv", "skipped"]
