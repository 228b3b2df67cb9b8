"""Retractions that no merge could take are refused before they are stored: nobody could read or compact their keys again."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import BadInput
from tests.tables import Row, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "g": "INT", "a": "INT", "h": "INT", "b": "INT"}
GROUPS = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "a",
    "fields.h.sequence-group": "b",
    "fields.a.aggregate-function": "max",
    "fields.b.aggregate-function": "sum",
}
POSTPONED = {"postpone.batch-write-fixed-bucket": "false"}
ON_GROUP = "partial-update.remove-record-on-sequence-group"
OLD: Row = {"k": 1, "g": 1, "a": 1, "h": 1, "b": 1}
OTHER_GROUP: Row = {"k": 1, "g": None, "a": 7, "h": 2, "b": 1, "_op": "-D"}
OWN_GROUP: Row = {"k": 2, "g": 5, "a": 6, "h": None, "b": None, "_op": "-D"}


@pytest.mark.parametrize("bucket", [1, -1, -2])
@pytest.mark.parametrize("kind", ["-D", "-U"])
def test_a_column_without_an_inverse_is_not_retracted(tmp_path: Path, bucket: int, kind: str) -> None:
    """Also if the row is alone of its key, and not the first retraction of its batch."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=bucket, options={**GROUPS, **POSTPONED})
    write(context, [OLD, {**OLD, "k": 2}], compact="none")
    before = context.snapshots.latest()
    with pytest.raises(BadInput, match="column a cannot retract"):
        write(context, [OTHER_GROUP, {**OWN_GROUP, "_op": kind}], compact="none")
    assert context.snapshots.latest() == before


def test_a_retraction_that_has_no_sequence_there_is_taken(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=GROUPS)
    write(context, [OLD, {**OLD, "k": 2}], compact="none")
    write(context, [OTHER_GROUP], compact="none")
    assert rows(context) == [{"k": 1, "g": 1, "a": 1, "h": 2, "b": 0}, {**OLD, "k": 2}]


@pytest.mark.parametrize(
    ("more", "kind", "is_refused"),
    [
        ({ON_GROUP: "g"}, "-D", False),
        ({ON_GROUP: "g"}, "-U", True),
        ({ON_GROUP: "h"}, "-D", True),
        ({"fields.a.ignore-retract": "true"}, "-D", False),
        ({"ignore-delete": "true"}, "-D", False),
    ],
    ids=["removes", "-U removes nothing", "no sequence of the removing group", "ignored by the column", "ignored by the table"],
)
def test_options_by_which_it_can_be_merged(tmp_path: Path, more: dict[str, str], kind: str, is_refused: bool) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={**GROUPS, **more})
    write(context, [{**OLD, "k": 2}], compact="none")
    if is_refused:
        with pytest.raises(BadInput, match="column a cannot retract"):
            write(context, [{**OWN_GROUP, "_op": kind}], compact="none")
    else:
        write(context, [{**OWN_GROUP, "_op": kind}], compact="none")
    assert all(row["k"] == 2 for row in rows(context)), "the table can be read"


@pytest.mark.parametrize("bucket", [1, -2])
def test_a_large_value_is_retracted_where_rows_wait_too(tmp_path: Path, bucket: int) -> None:
    """100 fits into a TINYINT, but not twice, by which it is no reason to refuse the row."""
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", **POSTPONED}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "a": "TINYINT"}, ["k"], bucket=bucket, options=options)
    write(context, [{"k": 1, "a": 100}])
    assert write(context, [{"k": 1, "a": 100, "_op": "-D"}]).rows == 1
