"""Tables of every merge engine: rows written in several commits, read merged, compacted, read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.merged_rows import RecordExpiry
from paimon_cli.catalog.definition_check import check_definition
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from tests.tables import compact, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "a": "INT", "b": "STRING"}
Rows = list[dict[str, Any]]


def row(k: int, a: int | None, b: str | None, kind: str | None = None, **more: Any) -> dict[str, Any]:
    return {"k": k, "a": a, "b": b, **more, **({} if kind is None else {"_op": kind})}


CASES: dict[str, tuple[dict[str, str], list[Rows], Rows]] = {
    "partial-update": (
        {"merge-engine": "partial-update"},
        [[row(1, 1, None), row(2, None, "x")], [row(1, None, "y"), row(1, 5, None), row(3, 7, "z")]],
        [row(1, 5, "y"), row(2, None, "x"), row(3, 7, "z")],
    ),
    "partial-update, removal": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        [[row(1, 1, "x", "+I"), row(2, 2, "x", "+I")], [row(1, None, None, "-D")], [row(1, None, "new", "+I")]],
        [row(1, None, "new"), row(2, 2, "x")],
    ),
    "partial-update, a row after a removal goes on from the values of the -D": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        [
            [row(1, 1, "x", "+I"), row(1, 5, None, "-D"), row(1, None, "new", "+I"), row(2, 2, "x", "+I"), row(3, 3, "x", "+I")],
            [row(2, 4, None, "-D"), row(3, None, "gone", "-D")],
            [row(2, None, "new", "+I")],
        ],
        [row(1, 5, "new"), row(2, 4, "new")],
    ),
    "partial-update, nulls of a newer sequence": (
        {"merge-engine": "partial-update", "fields.s.sequence-group": "a"},
        [
            [row(1, 1, "x", s=1), row(2, 2, "x", s=2), row(3, 3, "x", s=None)],
            [row(1, None, None, s=2), row(2, None, "y", s=1)],
        ],
        [row(1, None, "x", s=2), row(2, 2, "y", s=2), row(3, 3, "x", s=None)],
    ),
    "aggregation": (
        {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "listagg"},
        [[row(1, 1, "x"), row(1, 2, "y"), row(2, 5, None)], [row(1, 10, "z"), row(2, None, "q")]],
        [row(1, 13, "x,y,z"), row(2, 5, "q")],
    ),
    "aggregation, retraction": (
        {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
        [[row(1, 10, "x", "+I")], [row(1, 4, "x", "-U"), row(1, 1, "y", "+U")], [row(2, 3, "z", "+I"), row(2, 3, "z", "-D")]],
        [row(1, 7, "y"), row(2, 0, None)],
    ),
    "descending sequence": (
        {"sequence.field": "a", "sequence.field.sort-order": "descending"},
        [[row(1, 5, "x")], [row(1, 3, "y")], [row(1, 4, "z"), row(2, None, "n"), row(2, 1, "m")]],
        [row(1, 3, "y"), row(2, 1, "m")],
    ),
    "ignored deletes": (
        {"ignore-delete": "true"},
        [[row(1, 1, "x", "+I")], [row(1, 1, "x", "-D"), row(2, 1, "y", "+U"), row(2, 1, "y", "-U")]],
        [row(1, 1, "x"), row(2, 1, "y")],
    ),
    "ignored -U": (
        {"ignore-update-before": "true"},
        [[row(1, 1, "x", "+I"), row(2, 1, "y", "+I")], [row(1, 1, "x", "-U"), row(2, 1, "y", "-D")]],
        [row(1, 1, "x")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_engine_from_write_to_compaction(case: str, tmp_path: Path) -> None:
    options, commits, expected = CASES[case]
    columns = {**COLUMNS, "s": "INT"} if "s" in expected[0] else COLUMNS
    context = make_table(tmp_path / "t", columns, ["k"], options=options)
    for commit in commits:
        write(context, commit)
    assert rows(context) == expected
    compact(context)
    assert rows(context) == expected


@pytest.mark.parametrize(
    ("column_type", "old", "young"),
    [
        ("INT", 1_000, 2_000_000_000),
        ("BIGINT", 1_000_000_000_001, 4_000_000_000_000),
        ("TIMESTAMP(3)", "1970-01-02T00:00:00", "2500-01-01T00:00:00"),
        ("TIMESTAMP_LTZ(6)", "1969-12-31T00:00:00Z", "2500-01-01T00:00:00Z"),
    ],
)
def test_compaction_leaves_out_rows_that_are_too_old(column_type: str, old: Any, young: Any, tmp_path: Path) -> None:
    options = {"record-level.expire-time": "30 d", "record-level.time-field": "at"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "at": column_type}, ["k"], options=options)
    write(context, [{"k": 1, "at": old}, {"k": 2, "at": young}, {"k": 3, "at": None}])
    assert len(rows(context)) == 3
    compact(context)
    assert [row["k"] for row in rows(context)] == [2, 3]
    write(context, [{"k": 2, "at": old}])
    compact(context)
    assert rows(context)[0] == {"k": 2, "at": young}, "the older row is what is left when the newer one is too old"


def test_sequence_groups_keep_their_columns_apart(tmp_path: Path) -> None:
    columns = {**COLUMNS, "ga": "INT", "gb": "INT"}
    options = {
        "merge-engine": "partial-update",
        "fields.ga.sequence-group": "a",
        "fields.gb.sequence-group": "b",
        "fields.a.aggregate-function": "sum",
    }
    context = make_table(tmp_path / "t", columns, ["k"], options=options)
    write(context, [row(1, 1, "new", ga=1, gb=9)])
    write(context, [row(1, 10, "old", ga=2, gb=3), row(1, 100, None, ga=1, gb=None)])
    expected = [row(1, 111, "new", ga=2, gb=9)]
    assert rows(context) == expected
    assert rows(context, columns=["b"]) == [{"b": "new"}]
    compact(context)
    assert rows(context) == expected


def test_first_row_shows_rows_after_a_compaction(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"merge-engine": "first-row"})
    write(context, [row(1, 1, "first"), row(1, 2, "second")])
    write(context, [row(1, 3, "third"), row(2, 1, "first")])
    compact(context)
    write(context, [row(2, 9, "late")])
    compact(context)
    assert rows(context) == [row(1, 1, "first"), row(2, 1, "first")]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"merge-engine": "first-row"}, "ignore-delete"),
        ({"merge-engine": "partial-update"}, "remove-record-on-delete"),
        ({"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}, "fields.a.ignore-retract"),
    ],
)
def test_deletes_are_refused_before_anything_is_written(options: dict[str, str], hint: str, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=options)
    with pytest.raises(BadInput) as refused:
        write(context, [row(1, 1, "x", "+I"), row(2, 1, "x", "-D")])
    assert hint in refused.value.hint
    assert context.snapshots.latest() is None


def test_a_sum_that_overflows_names_its_column(tmp_path: Path) -> None:
    context = make_table(
        tmp_path / "t", COLUMNS, ["k"], options={"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    )
    with pytest.raises(BadInput, match="column a"):
        write(context, [row(1, 2**31 - 1, None), row(1, 1, None)])


def update(context: Any, where: str, *assignments: str) -> None:
    run_update(context, UpdateRequest(where, assignments), LocalEngine(), NoProgress())


def test_update_and_delete_happen_only_where_the_engine_shows_them(tmp_path: Path) -> None:
    summed = make_table(
        tmp_path / "s", COLUMNS, ["k"], options={"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    )
    write(summed, [row(1, 1, "x")])
    with pytest.raises(BadInput, match="column a"):
        update(summed, "k = 1", "a = 5")
    with pytest.raises(BadInput, match="does not delete"):
        update(summed, "k = 1")
    removing = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    partial = make_table(tmp_path / "p", COLUMNS, ["k"], options=removing)
    write(partial, [row(1, 1, "x"), row(2, 2, "y")])
    update(partial, "k = 1")
    update(partial, "k = 2", "a = 3")
    with pytest.raises(BadInput, match="column b"):
        update(partial, "k = 2", "b = NULL")
    assert rows(partial) == [row(2, 3, "y")]


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "aggregation", "fields.a.aggregate-function": "median"},
        {"merge-engine": "aggregation", "fields.b.aggregate-function": "sum"},
        {"merge-engine": "aggregation", "fields.a.ignore-retract": "true", "aggregation.remove-record-on-delete": "true"},
        {"merge-engine": "partial-update", "fields.a.aggregate-function": "sum"},
        {"merge-engine": "partial-update", "fields.a.sequence-group": "k"},
        {"merge-engine": "partial-update", "fields.a.sequence-group": "b", "partial-update.remove-record-on-delete": "true"},
        {"merge-engine": "partial-update", "ignore-delete": "true", "partial-update.remove-record-on-delete": "true"},
        {"merge-engine": "partial-update", "partial-update.remove-record-on-sequence-group": "a"},
        {"merge-engine": "aggregation", "fields.default-aggregate-function": "listagg"},
        {"record-level.expire-time": "1 d"},
        {"record-level.expire-time": "1 d", "record-level.time-field": "b"},
    ],
)
def test_contradicting_engine_options_are_refused_at_creation(options: dict[str, str], tmp_path: Path) -> None:
    context = make_table(tmp_path / "valid", COLUMNS, ["k"])
    definition = TableDefinition(context.schema.fields, ("k",), (), {"bucket": "1", **options})
    with pytest.raises(UsageError):
        check_definition(definition)


def test_rows_have_no_age_by_a_column_of_text(tmp_path: Path) -> None:
    """A table that others have created, or an option of one command, has passed no check of ours."""
    options = {"record-level.expire-time": "1 d", "record-level.time-field": "b"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    for chosen, message in ((options, "is STRING"), ({**options, "record-level.time-field": "missing"}, "missing")):
        expiring = context.with_options(chosen)
        with pytest.raises(UsageError, match=message):
            RecordExpiry.of(expiring)
