"""The kind of table that a schema describes, and which work is refused on it, with which message."""

from __future__ import annotations

import pytest

from paimon_cli.datatypes.data_type import DataField, PlainType
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.metadata import bucket_modes
from paimon_cli.metadata.bucket_modes import BucketMode
from paimon_cli.metadata.table_mode import CHANGE_ROWS, RESCALE, TableMode
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.table_options import TableOptions

VECTORS, MERGED_VECTORS = {"deletion-vectors.enabled": "true"}, {"deletion-vectors.merge-on-read": "true"}
FIRST_ROW = {"merge-engine": "first-row"}


def mode(options: dict[str, str] | None = None, keys: tuple[str, ...] = ("dt", "id")) -> TableMode:
    fields = tuple(DataField(number, name, PlainType("INT", nullable=False)) for number, name in enumerate(("dt", "id", "v")))
    schema = TableSchema(0, fields, 2, ("dt",), keys, options or {}, None, 0)
    return TableMode.of(schema, TableOptions({"bucket": "2", **(options or {})}))


CANNOT_MOVE = "cannot write table t whose primary key lacks partition columns, with ignore-delete=true"


@pytest.mark.parametrize(
    ("bucket", "keys", "expected"),
    [
        ("4", ("dt", "id"), bucket_modes.FIXED),
        ("4", (), bucket_modes.FIXED),
        ("-1", ("dt", "id"), bucket_modes.DYNAMIC),
        ("-1", ("id",), bucket_modes.CROSS_PARTITION),
        ("-1", (), bucket_modes.UNAWARE),
        ("-2", ("dt", "id"), bucket_modes.POSTPONED),
    ],
)
def test_rows_find_their_bucket_by_bucket_number_and_keys(bucket: str, keys: tuple[str, ...], expected: BucketMode) -> None:
    assert mode({"bucket": bucket}, keys).bucket_mode is expected


@pytest.mark.parametrize(
    ("options", "keys", "reads_merge", "hides_level_0"),
    [
        ({}, ("dt", "id"), True, False),
        (FIRST_ROW, ("dt", "id"), True, True),
        (VECTORS, ("dt", "id"), False, True),
        (VECTORS | FIRST_ROW, ("dt", "id"), False, True),
        (VECTORS | MERGED_VECTORS, ("dt", "id"), True, False),
        (VECTORS | MERGED_VECTORS | FIRST_ROW, ("dt", "id"), True, False),
        (MERGED_VECTORS, ("dt", "id"), True, False),
        (MERGED_VECTORS | FIRST_ROW, ("dt", "id"), True, True),
        (VECTORS, (), False, False),
        ({}, (), False, False),
    ],
)
def test_reads_merge_unless_vectors_mark_what_is_replaced(
    options: dict[str, str], keys: tuple[str, ...], reads_merge: bool, hides_level_0: bool
) -> None:
    found = mode(options, keys)
    assert (found.reads_merge, found.hides_level_0) == (reads_merge, hides_level_0)


@pytest.mark.parametrize(
    ("work", "options", "keys", "refused"),
    [
        (Operation.WRITE, {}, ("dt", "id"), None),
        (Operation.WRITE, {}, (), None),
        (Operation.WRITE, {"bucket": "-1"}, (), None),
        (Operation.WRITE, {"bucket": "-1"}, ("dt", "id"), None),
        (CHANGE_ROWS, {"bucket": "-1"}, ("dt", "id"), None),
        (Operation.WRITE, {"bucket": "-1"}, ("id",), None),
        (CHANGE_ROWS, {"bucket": "-1"}, ("id",), None),
        (Operation.WRITE, {"bucket": "-1", "ignore-delete": "true"}, ("id",), CANNOT_MOVE),
        (Operation.WRITE, {"bucket": "-2"}, ("dt", "id"), None),
        (Operation.WRITE, VECTORS, ("dt", "id"), None),
        (RESCALE, {}, ("dt", "id"), None),
        (RESCALE, {"bucket": "-1"}, ("dt", "id"), None),
        (RESCALE, {"bucket": "-1"}, ("id",), "cannot rescale table t whose primary key lacks partition columns"),
        (RESCALE, {"bucket": "-2"}, ("dt", "id"), None),
        (Operation.COMPACT, {}, ("dt", "id"), None),
        (Operation.COMPACT, {"bucket": "-1"}, ("dt", "id"), None),
        (Operation.COMPACT, {"bucket": "-2"}, ("dt", "id"), None),
        (Operation.COMPACT, {}, (), None),
        (Operation.COMPACT, VECTORS, (), None),
        (RESCALE, {}, (), None),
        (RESCALE, {"bucket": "-1"}, (), "cannot rescale table t without buckets"),
        (CHANGE_ROWS, {}, (), None),
        (CHANGE_ROWS, {"bucket": "-1"}, (), None),
    ],
)
def test_work_is_done_or_refused_in_one_line(
    work: str, options: dict[str, str], keys: tuple[str, ...], refused: str | None
) -> None:
    found = mode(options, keys)
    if refused is None:
        found.check(work, "t")
        assert found.limits(work) == []
        return
    with pytest.raises(NotSupported) as error:
        found.check(work, "t")
    assert str(error.value) == f"{refused}: {error.value.why}" and error.value.hint
    assert len(found.limits(work)) >= 1


def test_limits_say_why_and_what_to_do() -> None:
    crossing = mode({"bucket": "-1"}, ("id",))
    assert crossing.limits(RESCALE) == ["a fixed number of buckets needs all partition columns in the primary key"]
    assert "dynamic-bucket.target-row-num" in crossing.hint(RESCALE) and crossing.hint(Operation.WRITE) == ""


def test_a_table_with_a_wrong_size_of_files_can_be_read() -> None:
    wrong = mode({"target-file-size": "huge"}, ("dt", "id"))
    assert wrong.reads_merge
    with pytest.raises(UsageError, match="target-file-size"):
        _ = wrong.target_file_size


@pytest.mark.parametrize(
    ("options", "keys", "expected"),
    [({}, ("dt", "id"), 128 << 20), ({}, (), 256 << 20), ({"target-file-size": "5 mb"}, (), 5 << 20)],
)
def test_files_of_append_tables_are_twice_as_large_by_default(
    options: dict[str, str], keys: tuple[str, ...], expected: int
) -> None:
    assert mode(options, keys).target_file_size == expected
