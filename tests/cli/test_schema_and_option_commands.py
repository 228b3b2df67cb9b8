"""`options explain`, `options ls --all` and `schemas diff`: options with their origin, and how two schemas differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.api.history import all_options, explain_option
from paimon_cli.errors import NotFound
from paimon_cli.inspect.schema_report import SchemaChange, schema_changes
from paimon_cli.options.option_catalog import OPTIONS
from tests.cli.calling import Run


@pytest.fixture
def table(tmp_path: Path) -> Table:
    columns = ["id BIGINT NOT NULL", "name STRING", "r ROW<a INT, b INT>", "v INT"]
    options = {"fields.v.aggregate-function": "sum", "merge-engine": "aggregation", "write-only": "true"}
    return Table.create(str(tmp_path / "t"), columns=columns, primary_key="id", bucket=1, options=options)


def test_every_option_can_be_explained() -> None:
    for option in OPTIONS:
        explained = explain_option(option.key)
        assert explained.description and explained.effect and explained.since
        assert bool(explained.refused) == bool(option.gates)
        assert (explained.value, explained.origin) == (None, None)


def test_the_value_in_a_table_and_where_it_comes_from(table: Table) -> None:
    assert (table.explain_option("write-only").value, table.explain_option("write-only").origin) == ("true", "table")
    unset = table.explain_option("bucket-key")
    assert (unset.value, unset.origin) == (None, "unset")
    by_default = table.explain_option("num-sorted-run.compaction-trigger")
    assert (by_default.value, by_default.origin) == ("5", "default")
    of_call = table.with_options({"write-only": "false"}).explain_option("write-only")
    assert (of_call.value, of_call.origin) == ("false", "call")


def test_families_and_older_keys(table: Table) -> None:
    assert table.explain_option("fields.v.aggregate-function").value == "sum"
    family = table.explain_option("fields.<column>.aggregate-function")
    assert (family.value, family.origin) == ("fields.v.aggregate-function=sum", "table")
    older = next(option for option in OPTIONS if option.older_keys)
    assert explain_option(older.older_keys[0]).key == older.key
    assert table.with_options({older.older_keys[0]: "7"}).explain_option(older.key).value == "7"


def test_an_unknown_option_suggests_a_similar_one(run: Run) -> None:
    with pytest.raises(NotFound) as error:
        explain_option("num-sorted-run.compaction-triger")
    assert error.value.hint == "paimon-cli options explain num-sorted-run.compaction-trigger"
    assert "paimon-cli options ls --all" in run("options", "explain", "zzzzzzzz", code=3).err


def test_all_options_show_where_their_values_come_from(table: Table) -> None:
    origins = {row.key: row.origin for row in table.with_options({"bucket": "3"}).option_rows(every=True)}
    assert (origins["bucket"], origins["write-only"], origins["num-levels"]) == ("call", "table", "unset")
    assert {row.origin for row in all_options()} == {"default", "unset"}
    assert [row.key for row in table.option_rows() if row.origin != "table"] == []


def test_the_command_explains_and_hides_what_there_is_not(run: Run, table: Table) -> None:
    text = run("options", "explain", "write-only", table.url).out
    assert "Value                     true" in text and "Choices" not in text
    assert "Value " not in run("options", "explain", "write-only").out
    item = run("options", "explain", "merge-engine", "-o", "json").json["item"]
    assert item["choices"][0] == "deduplicate" and item["value"] is None


def changes_of(table: Table) -> list[SchemaChange]:
    table.refresh()
    return table.schema_changes()


def test_each_change_of_a_schema_is_a_difference(table: Table) -> None:
    assert changes_of(table) == []
    table.alter.rename_column("name", "title")
    assert changes_of(table) == [SchemaChange("column", "title", "renamed", "name", "title")]
    table.alter.alter_column("v", type="BIGINT")
    assert changes_of(table) == [SchemaChange("column", "v", "type", "INT", "BIGINT")]
    table.alter.set({"write-only": "false", "snapshot.time-retained": "1 d"})
    assert changes_of(table) == [
        SchemaChange("option", "snapshot.time-retained", "added", None, "1 d"),
        SchemaChange("option", "write-only", "changed", "true", "false"),
    ]
    table.alter.drop_column("r.b")
    assert [(change.change, change.after) for change in changes_of(table)] == [("type", "ROW<`a` INT>")]
    subjects = {(change.name, change.change) for change in table.schema_changes(0, "latest")}
    assert subjects == {
        ("title", "renamed"),
        ("v", "type"),
        ("r", "type"),
        ("write-only", "changed"),
        ("snapshot.time-retained", "added"),
    }
    assert len(schema_changes(*(table.context.schemas.get(number) for number in (4, 0)))) == 5


def test_added_removed_and_moved_columns(table: Table, run: Run) -> None:
    table.alter.add_column("w STRING", first=True)
    assert changes_of(table) == [SchemaChange("column", "w", "added", None, "STRING")]
    run("alter", table.url, "alter-column", "v", "--after", "id")
    assert [(c.name, c.before, c.after) for c in changes_of(table)] == [
        ("v", "after r", "after id"),
        ("name", "after id", "after v"),
    ]
    run("alter", table.url, "drop-column", "w")
    assert changes_of(table) == [SchemaChange("column", "w", "removed", "STRING", None)]


def test_the_exit_code_shows_whether_there_are_differences(run: Run, table: Table) -> None:
    run("schemas", "diff", table.url)
    run("alter", table.url, "set", "write-only=false")
    shown = run("schemas", "diff", table.url, 0, 1, "-o", "json", code=4).json
    assert shown["kind"] == "SchemaChangeList"
    assert shown["items"] == [
        {"subject": "option", "name": "write-only", "change": "changed", "before": "true", "after": "false"}
    ]
    run("schemas", "diff", table.url, 0, 0)
    run("schemas", "diff", table.url, 0, 9, code=3)


def test_an_aggregate_function_is_one_of_a_list(run: Run) -> None:
    for key in ("fields.x.aggregate-function", "fields.default-aggregate-function"):
        choices = run("options", "explain", key, "-o", "json").json["item"]["choices"]
        assert {"sum", "max", "listagg", "last_non_null_value"} <= set(choices)
