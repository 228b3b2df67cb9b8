"""Which combinations of options give which merge engine, and which contradict each other."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.lsm.aggregators.arithmetic import Sum
from paimon_cli.lsm.aggregators.chosen_values import LastNonNullValue, LastValue
from paimon_cli.lsm.engines.aggregation import Aggregation
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.engines.first_row import FirstRow
from paimon_cli.lsm.engines.partial_update import PartialUpdate, SequenceGroup
from paimon_cli.lsm.sort_merge import merge_piece
from paimon_cli.lsm.sorted_rows import MergeEngine
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from tests.lsm.merge_lines import engine_of, table_schema

COLUMNS: dict[str, Any] = {
    "k": "INT NOT NULL",
    "a": "INT",
    "b": "INT",
    "g": "INT",
    "h": "INT",
    "l": {"type": "ARRAY", "element": "INT"},
}
ORDER = tuple(COLUMNS)


def engine(options: dict[str, str]) -> MergeEngine:
    fields = [{"id": number, "name": name, "type": text} for number, (name, text) in enumerate(COLUMNS.items())]
    return engine_of(table_schema({"fields": fields, "partitionKeys": [], "primaryKeys": ["k"], "options": options}))


AGGREGATION, PARTIAL = {"merge-engine": "aggregation"}, {"merge-engine": "partial-update"}
GROUP = {**PARTIAL, "fields.g.sequence-group": "a,b"}
ON_GROUP = "partial-update.remove-record-on-sequence-group"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Deduplicate()),
        (
            {"sequence.field": "g,h", "sequence.field.sort-order": "descending", "ignore-delete": "true"},
            Deduplicate(("g", "h"), True, True),
        ),
        ({"merge-engine": "first-row"}, FirstRow()),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, FirstRow(ignore_delete=True)),
        (
            {**AGGREGATION, "fields.a.aggregate-function": "sum", "fields.a.ignore-retract": "true", "sequence.field": "g"},
            Aggregation(
                {"g": LastValue(), "a": Sum("a"), "b": LastNonNullValue(), "h": LastNonNullValue(), "l": LastNonNullValue()},
                frozenset("a"),
                frozenset("k"),
                False,
                ("g",),
            ),
        ),
        (
            {
                **AGGREGATION,
                "fields.default-aggregate-function": "last_value",
                "aggregation.remove-record-on-delete": "true",
                "sequence.field": "h",
                "sequence.field.sort-order": "descending",
            },
            Aggregation({name: LastValue() for name in "habgl"}, frozenset(), frozenset("k"), True, ("h",), True),
        ),
        (
            {**AGGREGATION, "sequence.field": "g", "fields.g.ignore-retract": "true"},
            Aggregation(
                {"g": LastValue()} | {name: LastNonNullValue() for name in "abhl"},
                frozenset(),
                frozenset("k"),
                False,
                ("g",),
            ),
        ),
        (PARTIAL, PartialUpdate((), {}, frozenset(), frozenset("k"), ORDER)),
        (
            {**PARTIAL, "ignore-delete": "true", "sequence.field": "g", "sequence.field.sort-order": "descending"},
            PartialUpdate((), {}, frozenset(), frozenset("k"), ORDER, True, False, ("g",), True),
        ),
        (
            {**PARTIAL, "partial-update.remove-record-on-delete": "true", "fields.a.aggregate-function": "last_non_null_value"},
            PartialUpdate((), {"a": LastNonNullValue()}, frozenset(), frozenset("k"), ORDER, False, True),
        ),
        (
            {
                **PARTIAL,
                "fields.g,h.sequence-group": "b,g",
                "fields.default-aggregate-function": "last_non_null_value",
                "fields.b.aggregate-function": "sum",
                "fields.b.ignore-retract": "true",
                ON_GROUP: "h",
            },
            PartialUpdate(
                (SequenceGroup(("g", "h"), ("b",), True),),
                {"a": LastNonNullValue(), "b": Sum("b"), "l": LastNonNullValue()},
                frozenset("b"),
                frozenset("k"),
                ORDER,
            ),
        ),
        (
            {**PARTIAL, "fields.h.sequence-group": "b", "fields.g.sequence-group": "a", ON_GROUP: "g"},
            PartialUpdate(
                (SequenceGroup(("g",), ("a",), True), SequenceGroup(("h",), ("b",))), {}, frozenset(), frozenset("k"), ORDER
            ),
        ),
    ],
)
def test_engines(options: dict[str, str], expected: MergeEngine) -> None:
    assert engine(options) == expected


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"sequence.field": "a,l"}, NotSupported, "sequence.field with l ARRAY<INT>"),
        ({**PARTIAL, "fields.l.sequence-group": "a"}, NotSupported, "fields.l.sequence-group with l ARRAY<INT>"),
        (
            {**AGGREGATION, "fields.b.ignore-retract": "true", "aggregation.remove-record-on-delete": "true"},
            UsageError,
            "fields.b.ignore-retract and aggregation.remove-record-on-delete contradict each other",
        ),
        ({**PARTIAL, "fields.a.aggregate-function": "sum"}, UsageError, "column a has the aggregate function sum, but no"),
        ({**PARTIAL, "fields.g.sequence-group": "k"}, UsageError, "fields.g.sequence-group names the primary-key column 'k'"),
        ({**PARTIAL, "fields.k.sequence-group": "a"}, UsageError, "fields.k.sequence-group names the primary-key column 'k'"),
        ({**PARTIAL, "fields.g.sequence-group": "none"}, UsageError, "none"),
        (
            {**GROUP, "fields.h.sequence-group": "b,l"},
            UsageError,
            "column b is in two sequence groups: the second is fields.h.sequence-group",
        ),
        (
            {**PARTIAL, **{f"fields.{name}.sequence-group": value for name, value in (("b", "a"), ("g", "l"), ("h", "a"))}},
            UsageError,
            "column a is in two sequence groups: the second is fields.h.sequence-group",
        ),
        (
            {**PARTIAL, "ignore-delete": "true", "partial-update.remove-record-on-delete": "true"},
            UsageError,
            "ignore-delete and partial-update.remove-record-on-delete contradict each other",
        ),
        ({**GROUP, "ignore-delete": "true", ON_GROUP: "g"}, UsageError, f"ignore-delete and {ON_GROUP} contradict each other"),
        ({**GROUP, "partial-update.remove-record-on-delete": "true"}, UsageError, "sequence groups and partial-update.remove"),
        ({**GROUP, ON_GROUP: "g,h"}, UsageError, f"{ON_GROUP} names 'h'"),
    ],
)
def test_contradictions(options: dict[str, str], error: type[PaimonError], what: str) -> None:
    with pytest.raises(error) as failure:
        engine(options)
    assert what in str(failure.value)


def test_other_engines_ignore_sequence_groups() -> None:
    assert engine({"fields.l.sequence-group": "a"}) == Deduplicate()


def test_which_columns_a_merge_needs_besides() -> None:
    partial = engine({**PARTIAL, "fields.h.sequence-group": "b", "fields.g.sequence-group": "a", ON_GROUP: "g"})
    assert list(partial.columns_for(["b"])) == ["g", "h"]
    assert list(partial.columns_for(["a"])) == list(partial.columns_for(["l"])) == ["g"]
    assert list(engine(GROUP).columns_for(["l"])) == [] and list(engine(GROUP).columns_for(["g"])) == ["g"]
    for options in ({}, AGGREGATION, {"merge-engine": "first-row"}):
        assert list(engine(options).columns_for(["a", "b"])) == []


@pytest.mark.parametrize("columns", [[], ["l"], ["g", "a"], ["g", "a", "l"], ["h"]])
def test_partial_updates_of_some_columns_are_those_of_all(columns: list[str]) -> None:
    """Group g is older in the second row, group h newer; column l is in no group."""
    merging = engine({**PARTIAL, "fields.g.sequence-group": "a", "fields.h.sequence-group": "b"})
    whole = {"k": [1, 1], "g": [9, 5], "a": [10, 20], "h": [1, 2], "b": [30, 40], "l": [[5], None]}
    names = ["k", *columns]
    arrays = [pa.array([0, 1], pa.int64()), pa.array([0, 0], pa.int8()), *(pa.array(whole[name]) for name in names)]
    rows = pa.RecordBatch.from_arrays(arrays, names=[SEQUENCE_NUMBER, VALUE_KIND, *names])
    (merged,) = merge_piece([rows.slice(0, 1), rows.slice(1)], ["k"], merging)
    expected = {"k": 1, "g": 9, "a": 10, "h": 2, "b": 40, "l": [5]}
    assert merged.to_pylist() == [{SEQUENCE_NUMBER: 1, VALUE_KIND: 0} | {name: expected[name] for name in names}]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, []),
        ({"merge-engine": "first-row"}, [RowKind.UPDATE_BEFORE, RowKind.DELETE]),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, []),
        (AGGREGATION, []),
        ({**AGGREGATION, "fields.a.aggregate-function": "max"}, [RowKind.UPDATE_BEFORE, RowKind.DELETE]),
        ({**AGGREGATION, "fields.a.aggregate-function": "max", "fields.a.ignore-retract": "true"}, []),
        (
            {**AGGREGATION, "fields.a.aggregate-function": "max", "aggregation.remove-record-on-delete": "true"},
            [RowKind.UPDATE_BEFORE],
        ),
        (PARTIAL, [RowKind.UPDATE_BEFORE, RowKind.DELETE]),
        ({**PARTIAL, "ignore-delete": "true"}, []),
        ({**PARTIAL, "partial-update.remove-record-on-delete": "true"}, []),
        (GROUP, []),
    ],
)
def test_which_rows_are_refused_on_their_way_in(options: dict[str, str], refused: list[int]) -> None:
    assert [kind for kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) if engine(options).refusal(kind) is not None] == refused


@pytest.mark.parametrize(
    ("aggregated", "removing", "is_refused"),
    [("b", "h", True), ("l2", "h", False), ("b", "g", False), ("b", "g,h", False), ("l2", "g,h", False)],
)
def test_only_columns_before_the_field_that_removes_the_row_must_retract(
    aggregated: str, removing: str, is_refused: bool
) -> None:
    """Java works column by column until a field of a removing group; fields of other groups end nothing."""
    columns = {"k": "INT NOT NULL", "g": "INT", "b": "INT", "h": "INT", "l2": "INT"}
    fields = [{"id": number, "name": name, "type": text} for number, (name, text) in enumerate(columns.items())]
    options = {**PARTIAL, "fields.g.sequence-group": "b", "fields.h.sequence-group": "l2", ON_GROUP: removing}
    options[f"fields.{aggregated}.aggregate-function"] = "max"
    merging = engine_of(table_schema({"fields": fields, "partitionKeys": [], "primaryKeys": ["k"], "options": options}))
    values = [pa.array([1, 1], pa.int32()), *(pa.array([1, 2], pa.int32()) for _ in range(4))]
    kinds = pa.array([RowKind.INSERT, RowKind.DELETE], pa.int8())
    rows = pa.RecordBatch.from_arrays(
        [pa.array([0, 1], pa.int64()), kinds, *values], names=[SEQUENCE_NUMBER, VALUE_KIND, *columns]
    )

    def merged() -> list[int]:
        (found,) = merge_piece([rows.slice(0, 1), rows.slice(1)], ["k"], merging)
        return found.column(VALUE_KIND).to_pylist()

    if is_refused:
        with pytest.raises(PaimonError, match=f"column {aggregated} cannot retract"):
            merged()
    else:
        assert merged() == [RowKind.DELETE]


@pytest.mark.parametrize("accepting", ["g", "h"])
def test_each_of_several_removing_groups_removes_the_row(accepting: str) -> None:
    """A deletion that is older than the row by the fields of the other group removes it all the same."""
    columns = {"k": "INT NOT NULL", "g": "INT", "b": "INT", "h": "INT", "l2": "INT"}
    fields = [{"id": number, "name": name, "type": text} for number, (name, text) in enumerate(columns.items())]
    options = {**PARTIAL, "fields.g.sequence-group": "b", "fields.h.sequence-group": "l2", ON_GROUP: "g,h"}
    merging = engine_of(table_schema({"fields": fields, "partitionKeys": [], "primaryKeys": ["k"], "options": options}))
    values = [pa.array([1, 1 if name == "k" else 2 if name == accepting else 0], pa.int32()) for name in columns]
    kinds = pa.array([RowKind.INSERT, RowKind.DELETE], pa.int8())
    rows = pa.RecordBatch.from_arrays(
        [pa.array([0, 1], pa.int64()), kinds, *values], names=[SEQUENCE_NUMBER, VALUE_KIND, *columns]
    )
    (found,) = merge_piece([rows.slice(0, 1), rows.slice(1)], ["k"], merging)
    assert found.column(VALUE_KIND).to_pylist() == [RowKind.DELETE]


def merged(options: dict[str, str], kinds: list[int], **cells: list[int]) -> dict[str, Any]:
    """The row that these versions of key 1 merge to, with its kind. `cells`: the other columns, in the order of the table."""
    columns = {"k": [1] * len(kinds), **cells}
    fields = [
        {"id": number, "name": name, "type": "INT NOT NULL" if name == "k" else "INT"} for number, name in enumerate(columns)
    ]
    schema = {"fields": fields, "partitionKeys": [], "primaryKeys": ["k"], "options": {**PARTIAL, **options}}
    values = [pa.array(of_column, pa.int32()) for of_column in columns.values()]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(len(kinds)), pa.int64()), pa.array(kinds, pa.int8()), *values], [SEQUENCE_NUMBER, VALUE_KIND, *columns]
    )
    (found,) = merge_piece([rows.slice(row, 1) for row in range(len(kinds))], ["k"], engine_of(table_schema(schema)))
    (row,) = found.drop_columns([SEQUENCE_NUMBER, "k"]).to_pylist()
    return cast("dict[str, Any]", row)


INSERTED, DELETED = RowKind.INSERT, RowKind.DELETE


def test_a_removal_begins_all_groups_anew() -> None:
    """Group h is at 9 when a deletion of group g removes the row; what comes then with h = 1 belongs to the new row."""
    options = {"fields.g.sequence-group": "b", "fields.h.sequence-group": "c", ON_GROUP: "g"}
    found = merged(options, [INSERTED, DELETED, INSERTED], g=[5, 6, 7], b=[50, 60, 70], h=[9, 0, 1], c=[90, 0, 10])
    assert found == {VALUE_KIND: INSERTED, "g": 7, "b": 70, "h": 1, "c": 10}


def test_ignored_deletions_clear_no_group() -> None:
    options = {"fields.g.sequence-group": "b", "ignore-delete": "true"}
    assert merged(options, [INSERTED, DELETED], g=[5, 6], b=[50, 60]) == {VALUE_KIND: INSERTED, "g": 5, "b": 50}


@pytest.mark.parametrize(("removing", "fields_of_group"), [("a", "g"), ("b", "g,h")])
def test_what_removes_the_row_is_a_sequence_field_and_no_column_of_its_group(removing: str, fields_of_group: str) -> None:
    options = {**PARTIAL, f"fields.{fields_of_group}.sequence-group": "a,b", ON_GROUP: removing}
    with pytest.raises(UsageError, match=f"{ON_GROUP} names '{removing}'"):
        engine(options)


def test_ignored_deletions_contradict_those_that_remove() -> None:
    for option, value in ((ON_GROUP, "g"), ("partial-update.remove-record-on-delete", "true")):
        groups = GROUP if option == ON_GROUP else PARTIAL
        with pytest.raises(UsageError, match="contradict each other"):
            engine({**groups, "ignore-delete": "true", option: value})


def test_of_the_fields_of_a_removing_group_the_first_one_removes_the_row() -> None:
    """Column b stands between the two fields, so that Java never retracts it."""
    options = {"fields.g.sequence-group": "b", "fields.b.aggregate-function": "max", "fields.h,i.sequence-group": "c"}
    found = merged({**options, ON_GROUP: "h,i"}, [INSERTED, DELETED], g=[1, 2], h=[1, 2], b=[1, 2], i=[1, 2], c=[1, 2])
    assert found[VALUE_KIND] == DELETED
