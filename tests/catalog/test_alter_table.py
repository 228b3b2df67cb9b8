"""Schema changes: what they make of a schema, and what is refused as Paimon refuses it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.catalog.alter_table import alter_table, altered_schema
from paimon_cli.catalog.column_changes import (
    AddColumn,
    AlterColumn,
    ColumnPosition,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetComment,
    SetOption,
    UnsetOption,
    request_steps,
)
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_definition import numbered
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type, parse_type, type_to_sql
from paimon_cli.errors import BeingDropped, NotSupported, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.storage_for_url import storage_for_url
from tests.tables import make_table, row_fields

NESTED = "ROW<a INT NOT NULL, l ARRAY<INT>, m MAP<STRING, ROW<x INT>>>"


def schema(options: Mapping[str, str] | None = None) -> TableSchema:
    types = {"id": "BIGINT NOT NULL", "dt": "STRING NOT NULL", "v": "INT", "r": NESTED}
    fields, highest = numbered(tuple(DataField(0, name, parse_sql_type(t)) for name, t in types.items()))
    return TableSchema(0, fields, highest, ("dt",), ("id", "dt"), {"bucket": "1", **(options or {})}, None, 0)


def changed(*changes: SchemaChange, data: bool = True, options: Mapping[str, str] | None = None) -> TableSchema:
    return altered_schema(schema(options), changes, data, 5)


def columns(found: TableSchema) -> list[str]:
    return [f"{f.name} {type_to_sql(f.type)}" for f in found.fields]


def test_add_columns_with_ids_of_their_own() -> None:
    found = changed(
        AddColumn(("w",), parse_sql_type("ROW<p INT, q INT>"), "hi", None, ColumnPosition(None)),
        AddColumn(("r", "b"), parse_sql_type("STRING"), position=ColumnPosition("a")),
        AddColumn(("r", "m", "value", "y"), parse_sql_type("INT")),
    )
    assert (found.id, found.time_millis, found.highest_field_id) == (1, 5, 12)
    assert [f.id for f in found.fields] == [8, 0, 1, 2, 3]
    assert found.fields[0].description == "hi"
    assert [f.id for f in row_fields(found.fields[0].type)] == [9, 10]
    row = row_fields(found.field("r").type)
    assert [(f.name, f.id) for f in row] == [("a", 4), ("b", 11), ("l", 5), ("m", 7)]
    assert [(f.name, f.id) for f in row_fields(row[3].type.children[1])] == [("x", 6), ("y", 12)]


def test_a_new_column_never_gets_an_id_that_is_taken() -> None:
    """Even if the schema says that its highest id is lower than it is."""
    low = replace(schema(), highest_field_id=0)
    found = altered_schema(low, [AddColumn(("w",), parse_sql_type("INT"))], True, 5)
    assert [f.id for f in found.fields] == [0, 1, 2, 3, 8] and found.highest_field_id == 8


@pytest.mark.parametrize("path", [("v",), ("r",), ("r", "m"), ("r", "l")])
def test_an_id_is_never_given_twice(path: tuple[str, ...]) -> None:
    """Files of before have the values of a dropped column under its id."""
    highest = 7
    new = AddColumn((*path[:-1], "w"), parse_sql_type("INT"))
    at_once = changed(new, DropColumn(path))
    later = altered_schema(changed(DropColumn(path)), [new], True, 6)
    assert at_once.highest_field_id == later.highest_field_id == highest + 1


def test_renamed_columns_are_renamed_in_options_and_keys() -> None:
    options = {"sequence.field": "v", "fields.v.stats-mode": "full", "bucket-key": "id", "fields.r.sequence-group": "v"}
    found = changed(RenameColumn(("v",), "w"), RenameColumn(("id",), "key"), RenameColumn(("r", "a"), "aa"), options=options)
    assert found.primary_keys == ("key", "dt")
    assert found.options == {
        "bucket": "1",
        "sequence.field": "w",
        "fields.w.stats-mode": "full",
        "bucket-key": "key",
        "fields.r.sequence-group": "w",
    }
    assert columns(found)[3].startswith("r ROW<`aa` INT NOT NULL")


def test_indexes_follow_their_columns() -> None:
    options = {"file-index.bloom-filter.columns": "v,id", "file-index.bloom-filter.v.fpp": "0.1", "clustering.columns": "v"}
    renamed = changed(RenameColumn(("v",), "w"), RenameColumn(("id",), "v"), options=options)
    assert renamed.options == {
        "bucket": "1",
        "file-index.bloom-filter.columns": "w,v",
        "file-index.bloom-filter.w.fpp": "0.1",
        "clustering.columns": "w",
    }
    assert changed(DropColumn(("v",)), options=options).options == {"bucket": "1", "file-index.bloom-filter.columns": "id"}


@pytest.mark.parametrize(
    ("change", "options", "holder"),
    [
        (DropColumn(("v",)), {"sequence.field": "v"}, "sequence.field"),
        (DropColumn(("v",)), {"merge-engine": "partial-update", "fields.v.sequence-group": "r"}, "fields.v.sequence-group"),
        (RenameColumn(("v",), "w"), {"orc.encrypt": "k:v"}, "orc.encrypt"),
        (RenameColumn(("r", "a"), "w"), {"fields.r.nested-key": "a"}, "fields.r.nested-key"),
        (SetOption("file-index.bitmap.columns", "nope"), {}, "unknown column 'nope'"),
        (SetOption("file-index.bitmap.columns", "v,"), {}, "names no column"),
        (SetOption("file-index.bloom-filter.v.fpp", "0.1"), {}, "has no such index"),
    ],
)
def test_options_hold_columns_that_the_table_needs(change: SchemaChange, options: dict[str, str], holder: str) -> None:
    with pytest.raises(UsageError, match=re.escape(holder)):
        changed(change, options=options)


def test_columns_with_foreign_indexes_keep_their_type() -> None:
    options = {"file-index.token-bloom-filter.columns": "v"}
    with pytest.raises(NotSupported, match=r"file-index\.token-bloom-filter\.columns names it"):
        changed(AlterColumn(("v",), parse_sql_type("DECIMAL(10, 2)")), options=options)


def test_a_schema_that_could_not_be_written_is_not_saved(tmp_path: Path) -> None:
    make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options={"file-index.bloom-filter.columns": "v"})
    table = open_table(TableLocation(str(tmp_path / "t"), str(tmp_path / "t")), {})
    with pytest.raises(NotSupported, match=r"file-index\.bloom-filter\.columns names column 'v'"):
        alter_table(table, [AlterColumn(("v",), parse_sql_type("DECIMAL(10, 2)"))])
    assert table.schemas.latest().id == 0


def test_alter_columns() -> None:
    found = changed(
        AlterColumn(("v",), parse_sql_type("BIGINT"), comment="n", default="7", position=ColumnPosition("id")),
        AlterColumn(("r", "l", "element"), parse_sql_type("BIGINT")),
        AlterColumn(("r", "a"), nullable=True),
        SetComment("orders"),
    )
    assert columns(found)[1] == "v BIGINT"
    assert (found.fields[1].default_value, found.fields[1].description, found.comment) == ("7", "n", "orders")
    assert columns(found)[3].startswith("r ROW<`a` INT, `l` ARRAY<BIGINT>")
    emptied = altered_schema(found, [AlterColumn(("v",), comment="", drop_default=True), SetComment(None)], True, 6)
    assert (emptied.id, emptied.fields[1].default_value, emptied.fields[1].description, emptied.comment) == (2, None, None, None)


def test_drop_and_add_again_is_another_column() -> None:
    found = changed(DropColumn(("v",)), AddColumn(("v",), parse_sql_type("INT")), DropColumn(("r", "l")))
    assert (found.field("v").id, len(row_fields(found.field("r").type))) == (8, 2)


REFUSED: list[tuple[SchemaChange, str]] = [
    (AddColumn(("w",), parse_sql_type("INT NOT NULL")), "cannot be NOT NULL"),
    (AddColumn(("v",), parse_sql_type("INT")), "column 'v' already exists"),
    (AddColumn(("_KEY_x",), parse_sql_type("INT")), "reserved"),
    (AddColumn(("w",), parse_sql_type("INT"), default="x"), "cannot have the default 'x'"),
    (AddColumn(("w",), parse_sql_type("INT"), position=ColumnPosition("nope")), "no column 'nope'"),
    (AddColumn(("v", "x"), parse_sql_type("INT")), "'v' is INT"),
    (AddColumn(("r", "l", "x"), parse_sql_type("INT")), "is called 'element'"),
    (AddColumn(("r", "l", "element"), parse_sql_type("INT")), "already"),
    (DropColumn(("id",)), "primary key or partition column"),
    (DropColumn(("dt",)), "primary key or partition column"),
    (DropColumn(("r", "m", "value", "x")), "it is the only one left"),
    (DropColumn(("r", "l", "element")), "are not columns"),
    (RenameColumn(("dt",), "day"), "partition column"),
    (RenameColumn(("v",), "id"), "already"),
    (RenameColumn(("nope",), "n"), "no column 'nope'"),
    (AlterColumn(("id",), parse_sql_type("INT")), "primary key column"),
    (AlterColumn(("dt",), parse_sql_type("INT")), "partition column"),
    (AlterColumn(("id",), nullable=True), "must stay NOT NULL"),
    (AlterColumn(("v",), nullable=False), "alter-column-null-to-not-null.disabled=false"),
    (AlterColumn(("v",), parse_sql_type("BYTES")), "no such cast"),
    (AlterColumn(("v",), parse_sql_type("ARRAY<INT>")), "no such cast"),
    (AlterColumn(("r", "l"), parse_sql_type("ARRAY<BIGINT>")), "alter-column r.l.FIELD"),
    (AlterColumn(("v",), position=ColumnPosition("v")), "already exists"),
    (AlterColumn(("id",), position=ColumnPosition(None)), "already exists"),
    (AlterColumn(("r", "l", "element"), comment="x"), "are not columns"),
    (SetOption("merge-engine", "first-row"), "cannot change once the table has data"),
    (SetOption("bucket", "-1"), "in the wrong buckets"),
    (SetOption("bucket", "0"), "allowed: a whole number from 1, -1 for dynamic"),
    (SetOption("file.format", "text"), "cannot be 'text'"),
    (SetOption("sequence.field", "nope"), "unknown column 'nope'"),
    (SetOption("deletion-vectors.enabled", "true"), "deletion-vectors.modifiable"),
    (SetOption("type", "format-table"), "never changes"),
    (UnsetOption("bucket"), "written for this bucket count"),
    (UnsetOption("write-only"), "is not set"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=str)
def test_refused(change: SchemaChange, said: str) -> None:
    with pytest.raises(UsageError) as problem:
        changed(change)
    assert said in f"{problem.value} {problem.value.hint}"


@pytest.mark.parametrize("new", ["BIGINT", "STRING", "DECIMAL(10, 0)"])
def test_a_bucket_key_keeps_the_type_that_its_buckets_are_of(new: str) -> None:
    made = TableSchema(0, (DataField(0, "k", parse_type("INT")),), 0, (), (), {"bucket": "4", "bucket-key": "k"}, None, 0)
    with pytest.raises(UsageError, match=f"'k' cannot change from INT to {re.escape(new)}: it is a bucket key"):
        altered_schema(made, (AlterColumn(("k",), parse_sql_type(new)),), True, 5)


def test_a_text_that_is_a_bucket_key_may_become_longer() -> None:
    made = TableSchema(0, (DataField(0, "k", parse_type("VARCHAR(5)")),), 0, (), (), {"bucket": "4", "bucket-key": "k"}, None, 0)
    assert columns(altered_schema(made, (AlterColumn(("k",), parse_sql_type("STRING")),), True, 5)) == ["k STRING"]
    with pytest.raises(UsageError, match="cannot change from"):
        altered_schema(made, (AlterColumn(("k",), parse_sql_type("VARCHAR(3)")),), True, 5)


def test_of_two_options_that_cannot_be_read_each_can_be_mended_first() -> None:
    bad = {"target-file-size": "12 zorks", "num-sorted-run.compaction-trigger": "abc"}
    for one, other in (tuple(bad), tuple(bad)[::-1]):
        left = changed(UnsetOption(one), options=bad).options
        assert one not in left and left[other] == bad[other]
    with pytest.raises(UsageError, match="cannot be '13 zorks'"):
        changed(SetOption("target-file-size", "13 zorks"), options=bad)


@pytest.mark.parametrize(
    ("key", "value"), [("bucket", "several"), ("changelog-producer", "some"), ("partition.legacy-name", "perhaps")]
)
def test_what_says_how_files_are_read_gets_no_default(key: str, value: str) -> None:
    """The value with which they were written is not known, and it may have been another one."""
    with pytest.raises(UsageError, match="its default may be wrong for the files"):
        changed(UnsetOption(key), options={key: value})
    assert key not in changed(UnsetOption(key), options={key: value}, data=False).options


def test_refusals_that_options_decide() -> None:
    narrow = AlterColumn(("v",), parse_sql_type("TINYINT"))
    assert columns(changed(narrow))[2] == "v TINYINT"
    with pytest.raises(UsageError, match="disable-explicit-type-casting is set"):
        changed(narrow, options={"disable-explicit-type-casting": "true"})
    allowed = changed(AlterColumn(("v",), nullable=False), options={"alter-column-null-to-not-null.disabled": "false"})
    assert columns(allowed)[2] == "v INT NOT NULL"
    with pytest.raises(UsageError, match="cannot be reset to false"):
        changed(SetOption("ignore-delete", "false"), options={"ignore-delete": "true"})
    for key in ("ignore-delete", "ignore-update-before"):  # its default is false
        with pytest.raises(UsageError, match="cannot be reset to false"):
            changed(UnsetOption(key), options={key: "True"})
        assert key not in changed(UnsetOption(key), options={key: "false"}).options
    front = changed(AddColumn(("w",), parse_sql_type("INT")), options={"add-column-before-partition": "true"})
    assert [f.name for f in front.fields] == ["id", "w", "dt", "v", "r"]
    with pytest.raises(NotSupported, match="changing the key"):
        changed(AddColumn(("r", "m", "key", "x"), parse_sql_type("INT")))


def test_an_empty_table_may_change_more() -> None:
    assert changed(SetOption("merge-engine", "aggregation"), data=False).options["merge-engine"] == "aggregation"
    with pytest.raises(UsageError, match="default"):  # it must fit the new type
        changed(AlterColumn(("v",), default="abc"), AlterColumn(("v",), parse_sql_type("STRING")))
    moved = changed(AlterColumn(("v",), parse_sql_type("STRING"), default="abc"))
    with pytest.raises(UsageError, match="cannot have the default 'abc'"):
        altered_schema(moved, [AlterColumn(("v",), parse_sql_type("INT"))], True, 6)


class _Overtaking:
    """Another writer publishes its schema first, the given number of times."""

    def __init__(self, path: Path, times: int) -> None:
        self._storage = storage_for_url(str(path))[0]
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def put_if_absent(self, path: str, data: bytes) -> Any:
        if self._left:
            self._left -= 1
            theirs = TableSchema.from_json(data)
            options = {key: value for key, value in theirs.options.items() if key != "a"}
            theirs = replace(theirs, options={**options, f"theirs-{theirs.id}": "1"}, fields=theirs.fields[:1])
            self._storage.put_if_absent(path, theirs.to_json().encode())
        return self._storage.put_if_absent(path, data)


def test_an_overtaken_writer_starts_from_the_new_schema(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make_table(path, {"id": "INT NOT NULL"}, ["id"])
    table = TableContext(TablePlace(str(path), "t"), _Overtaking(path, 2))
    found = alter_table(table, [AddColumn(("v",), parse_sql_type("INT"))])
    assert (found.schema.id, found.schema.field_names, found.changed) == (3, ("id", "v"), True)
    assert {"theirs-1", "theirs-2"} < set(found.schema.options)
    assert not alter_table(table, [SetOption("theirs-1", "1")]).changed
    with pytest.raises(StorageUnavailable, match="were published first"):
        alter_table(TableContext(TablePlace(str(path), "t"), _Overtaking(path, 99)), [SetOption("a", "b")])


def test_another_number_of_buckets_is_warned_about_once_there_is_data(tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, ["id"], bucket=1).url)
    with warnings.catch_warnings(record=True) as none_yet:
        warnings.simplefilter("always")
        table.alter.set({"bucket": "2"})
        assert not none_yet
    table.refresh()
    table.write(pa.table({"id": [1]}))
    with pytest.warns(UserWarning, match=r"another number of buckets, until Table.open\(.*\)\.rescale\(\)") as warned:
        table.alter.set({"bucket": "4"})
    assert warned[0].filename == __file__, "warnings point at the caller"
    with warnings.catch_warnings(record=True) as by_rescale:
        warnings.simplefilter("always")
        assert Table.open(table.url).rescale().buckets == 4
        assert not by_rescale


def test_a_table_that_another_engine_drops_meanwhile_does_not_come_back_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others delete the directory, and leave no mark of an end: then the new schema would be that of a new table."""
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    commit = type(context.schemas).commit

    def after_the_drop(schemas: Any, schema: TableSchema) -> bool:
        Path(context.layout.schema(0)).unlink()
        return commit(schemas, schema)

    monkeypatch.setattr(type(context.schemas), "commit", after_the_drop)
    with pytest.raises(BeingDropped, match="was not changed"):
        alter_table(context, [SetOption("num-levels", "3")])
    assert not list((tmp_path / "t/schema").glob("schema-*"))


def test_a_server_is_asked_for_all_of_a_change() -> None:
    """A new column with its default, and each property of a column that is changed."""
    t = parse_sql_type("INT")
    added = list(request_steps(AddColumn(("w",), t, "why", "7")))
    assert [step["action"] for step in added] == ["addColumn", "updateColumnDefaultValue"]
    assert (added[0]["comment"], added[1]["newDefaultValue"]) == ("why", "7")
    changes = AlterColumn(("v",), parse_sql_type("BIGINT"), nullable=True, comment="", default="3", position=ColumnPosition("id"))
    assert [step["action"].removeprefix("updateColumn") for step in request_steps(changes)] == [
        *("Type", "Nullability", "Comment", "DefaultValue", "Position")
    ]
    (dropped,) = request_steps(AlterColumn(("v",), drop_default=True))
    assert dropped["newDefaultValue"] is None and dropped["fieldNames"] == ["v"]
