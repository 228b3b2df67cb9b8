"""Old columns under a newer schema: by id at any depth, cast by one step."""

from __future__ import annotations

import pyarrow as pa
import pytest

from paimon_cli.bucket import schema_evolution
from paimon_cli.bucket.schema_evolution import ColumnSource, as_declared, column_sources, evolved
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import INT, ArrayType, DataField, DataType, MapType, RowType
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import NotSupported, UsageError


def _row(*fields: tuple[int, str, str]) -> DataType:
    return RowType(tuple(DataField(i, name, parse_sql_type(text)) for i, name, text in fields))


OLD = _row((5, "a", "INT"), (6, "b", "STRING"), (7, "gone", "INT"))
NEW = _row((6, "text", "VARCHAR(2)"), (8, "b", "INT"), (5, "a", "BIGINT"))


def test_fields_of_rows_by_id() -> None:
    column = pa.array([{"a": 1, "b": "xyz", "gone": 9}, None, {"a": None, "b": None, "gone": None}], arrow_type(OLD))
    expected = [{"text": "xy", "b": None, "a": 1}, None, {"text": None, "b": None, "a": None}]
    found = evolved(column, OLD, NEW)
    assert found.type == arrow_type(NEW)
    assert found.to_pylist() == expected
    assert evolved(column.slice(1), OLD, NEW).to_pylist() == expected[1:]


def test_rows_inside_of_lists_and_maps() -> None:
    lists = ArrayType(OLD), ArrayType(NEW)
    maps = MapType(INT, OLD), MapType(INT, NEW)
    cell, evolved_cell = {"a": 1, "b": "xyz", "gone": 9}, {"text": "xy", "b": None, "a": 1}
    column = pa.array([[], None, [cell, None]], arrow_type(lists[0]))
    assert evolved(column.slice(1), *lists).to_pylist() == [None, [evolved_cell, None]]
    column = pa.array([[(1, cell)], None, [(2, None)]], arrow_type(maps[0]))
    assert evolved(column.slice(1), *maps).to_pylist() == [None, [(2, None)]]
    assert evolved(column, *maps).to_pylist()[0] == [(1, evolved_cell)]


def test_fewer_digits_and_letters_are_cut_though_arrow_has_one_type_for_both() -> None:
    texts = evolved(pa.array(["abc"]), parse_sql_type("STRING"), parse_sql_type("VARCHAR(2)"))
    times = evolved(pa.array([1_999_999], pa.timestamp("us")), parse_sql_type("TIMESTAMP(6)"), parse_sql_type("TIMESTAMP(4)"))
    assert (texts.to_pylist(), times.cast(pa.int64()).to_pylist()) == (["ab"], [1_999_900])


def test_a_value_without_counterpart_names_column_and_change() -> None:
    old, new = DataField(1, "c", parse_sql_type("STRING")), DataField(1, "d", parse_sql_type("INT"))
    (source,) = column_sources((new,), (old,))
    with pytest.raises(UsageError, match=r"column d was changed from STRING to INT: cannot cast 'x' to INT") as refused:
        source.column(pa.array(["1", "x"]), 2)
    assert (refused.value.hint or "").startswith("read a snapshot from before the change")
    assert refused.value.details["column"] == "d"
    assert source.column(pa.array(["1", None]), 2).to_pylist() == [1, None]


@pytest.mark.parametrize(("why", "hint"), [("", ""), ("its own reason", "its own hint")])
def test_the_message_of_a_cast_is_kept(why: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> pa.Array:
        raise NotSupported("cannot", why, hint)

    monkeypatch.setattr(schema_evolution, "cast_column", refuse)
    source = ColumnSource(DataField(1, "d", parse_sql_type("INT")), DataField(1, "c", parse_sql_type("STRING")))
    with pytest.raises(NotSupported) as refused:
        source.column(pa.array(["1"]), 1)
    found = (refused.value.what, refused.value.why, refused.value.hint)
    assert found[:2] == ("column d was changed from STRING to INT: cannot", why or "an old data file has the old type")
    assert found[2] == hint if hint else (found[2] or "").startswith("read a snapshot")


def test_columns_are_found_by_id_and_others_are_null() -> None:
    old = (DataField(1, "a", parse_sql_type("INT")), DataField(2, "b", parse_sql_type("STRING")))
    new = tuple(DataField(i, name, parse_sql_type("BIGINT")) for i, name in ((3, "b"), (1, "renamed")))
    added, renamed = column_sources(new, old)
    assert (added.file_field, renamed.file_field) == (None, old[0])
    found = [added.column(None, 2), renamed.column(pa.array([5, None], pa.int32()), 2)]
    assert [(column.type, column.to_pylist()) for column in found] == [(pa.int64(), [None, None]), (pa.int64(), [5, None])]


def test_what_other_writers_call_a_type_is_read_as_the_declared_one() -> None:
    texts = pa.array(["x", None, "x"])
    for stored in (texts, texts.dictionary_encode(), texts.cast(pa.large_string())):
        found = as_declared(stored, pa.string())
        assert (found.type, found.to_pylist()) == (pa.string(), ["x", None, "x"])
    assert as_declared(texts, pa.string()) is texts
