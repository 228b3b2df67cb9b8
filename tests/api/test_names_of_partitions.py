"""Options that name the directories of partitions: with another value no file of the table would be found."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from tests.tables import Row

COLUMNS = ["k INT", "p DATE"]
DAY = date(2026, 1, 5)
OF_NULLS, OF_DATES = {"partition.default-name": "zz"}, {"partition.legacy-name": "false"}


def table(folder: Path, day: date | None, **options: str) -> Table:
    made = Table.create(str(folder / "t"), columns=COLUMNS, partition_by="p", options=options)
    made.write([{"k": 1, "p": day}])
    return made


def changed_by_another_engine(folder: Path, options: dict[str, str]) -> None:
    """What Java's ALTER TABLE does, which asks for no rows."""
    schemas = folder / "t" / "schema"
    number = len(list(schemas.iterdir()))
    schema = json.loads((schemas / f"schema-{number - 1}").read_text())
    schema |= {"id": number, "options": schema["options"] | options}
    (schemas / f"schema-{number}").write_text(json.dumps(schema))


def rows_of(opened: Table) -> list[Row]:
    return opened.to_arrow().to_pylist()


@pytest.mark.parametrize("options", [OF_NULLS, OF_DATES])
def test_they_do_not_change_once_there_are_rows(tmp_path: Path, options: dict[str, str]) -> None:
    opened = table(tmp_path, None)
    (key,) = options
    with pytest.raises(UsageError, match=f"{key} cannot be changed"):
        opened.alter.set(options)
    with pytest.raises(UsageError, match=f"{key} cannot be changed"):
        opened.with_options(options).tags.plan_rm("none")
    with pytest.raises(UsageError, match=f"{key} cannot be changed"):
        opened.with_options(options).write([{"k": 2, "p": None}])
    assert rows_of(opened) == [{"k": 1, "p": None}]


def test_nor_are_they_unset(tmp_path: Path) -> None:
    opened = table(tmp_path, None, **OF_NULLS)
    with pytest.raises(UsageError, match=r"partition\.default-name cannot be changed"):
        opened.alter.unset("partition.default-name")


def test_they_change_where_no_directory_depends_on_them(tmp_path: Path) -> None:
    empty = Table.create(str(tmp_path / "e"), columns=COLUMNS, partition_by="p")
    assert empty.alter.set(OF_NULLS).changed
    plain = Table.create(str(tmp_path / "u"), columns=COLUMNS)
    plain.write([{"k": 1, "p": None}])
    assert plain.alter.set(OF_NULLS).changed
    opened = table(tmp_path, None)
    assert opened.alter.set({"partition.legacy-name": "TRUE"}).changed  # as before, only said


@pytest.mark.parametrize(("options", "day", "back"), [(OF_NULLS, None, "__DEFAULT_PARTITION__"), (OF_DATES, DAY, "true")])
def test_a_change_by_another_engine_is_named_and_undone(
    tmp_path: Path, options: dict[str, str], day: date | None, back: str
) -> None:
    before = rows_of(table(tmp_path, day))
    changed_by_another_engine(tmp_path, options)
    opened = Table.open(str(tmp_path / "t"))
    (key,) = options
    with pytest.raises(DamagedFile, match=f"{key} of the table was changed while it had rows") as missing:
        rows_of(opened)
    assert missing.value.hint.endswith(f"set {key}={back}")
    found = [v.message for v in check_table(TableContext.open(opened.url)) if v.code == "PV012"]
    assert found and all(f"{key} of the table was changed" in message for message in found)
    assert opened.alter.set({key: back}).changed
    assert rows_of(Table.open(opened.url)) == before


@pytest.mark.parametrize(("options", "day"), [(OF_NULLS, None), (OF_DATES, DAY)])
def test_files_of_the_other_name_are_not_taken_out(tmp_path: Path, options: dict[str, str], day: date | None) -> None:
    """A repair would lose their rows, which are all there."""
    table(tmp_path, day)
    changed_by_another_engine(tmp_path, options)
    opened = Table.open(str(tmp_path / "t"))
    for only in ((), ("dead-files",), ("damaged-files",), ("file-index",)):
        plan = opened.plan_repair(only=only).plan
        assert plan.changes == 0 and not plan.messages
        (step,) = plan.steps
        assert (step.kind, step.command.partition(" set ")[0]) == ("by-hand", f"paimon-cli alter {opened.url}")
    for file in (tmp_path / "t").rglob("data-*"):
        file.unlink()
    assert [step.kind for step in Table.open(opened.url).plan_repair().plan.steps] == ["dead-files"]


def test_rows_of_both_names(tmp_path: Path) -> None:
    """No value is right for all files: older rows are read with an option, and nothing proposes a change that is refused."""
    table(tmp_path, None)
    changed_by_another_engine(tmp_path, OF_NULLS)
    opened = Table.open(str(tmp_path / "t"))
    opened.write([{"k": 2, "p": None}])
    old_name = {"partition.default-name": "__DEFAULT_PARTITION__"}
    with pytest.raises(DamagedFile, match="was changed") as missing:
        rows_of(opened)
    assert "no value is right for all files" in missing.value.hint and "alter" not in missing.value.hint
    (step,) = opened.plan_repair().plan.steps
    assert (step.kind, step.command) == ("by-hand", "")
    assert opened.with_options(old_name).scan(snapshot=1).to_arrow().to_pylist() == [{"k": 1, "p": None}]
    with pytest.raises(DamagedFile, match="of this call names other directories") as missing:
        rows_of(opened.with_options(old_name))
    assert missing.value.hint.startswith("leave out")
    with pytest.raises(UsageError, match="cannot be changed"):
        opened.with_options(old_name).write([{"k": 3, "p": None}])
    (tmp_path / "t" / "p=__DEFAULT_PARTITION__").rename(tmp_path / "t" / "old")
    for file in (tmp_path / "t" / "old").rglob("data-*"):
        file.rename(tmp_path / "t" / "p=zz" / file.relative_to(tmp_path / "t" / "old"))
    assert [row["k"] for row in rows_of(Table.open(opened.url))] == [1, 2]


def test_only_names_that_the_columns_can_have_count(tmp_path: Path) -> None:
    numbers = Table.create(str(tmp_path / "n"), columns=["k INT", "p INT NOT NULL"], partition_by="p")
    numbers.write([{"k": 1, "p": 1}])
    numbers.with_options(OF_NULLS | OF_DATES).write([{"k": 2, "p": 1}])
    assert numbers.alter.set(OF_NULLS | OF_DATES).changed
    assert len(rows_of(numbers)) == 2
    texts = Table.create(str(tmp_path / "s"), columns=["k INT", "p STRING NOT NULL"], partition_by="p")
    texts.write([{"k": 1, "p": " "}])
    assert texts.alter.set(OF_DATES).changed
    with pytest.raises(UsageError, match="cannot be changed"):
        texts.alter.set(OF_NULLS)  # a blank text has the default name, too


def test_a_column_that_was_nullable_counts(tmp_path: Path) -> None:
    opened = Table.create(str(tmp_path / "t"), columns=["k INT", "p INT"], partition_by="p")
    opened.write([{"k": 1, "p": None}])
    schema = json.loads((tmp_path / "t" / "schema" / "schema-0").read_text())
    schema["fields"][1]["type"] = "INT NOT NULL"
    (tmp_path / "t" / "schema" / "schema-1").write_text(json.dumps(schema | {"id": 1}))
    with pytest.raises(UsageError, match="cannot be changed"):
        Table.open(opened.url).alter.set(OF_NULLS)


def test_back_to_an_earlier_name_that_no_live_file_has(tmp_path: Path) -> None:
    table(tmp_path, DAY)
    changed_by_another_engine(tmp_path, OF_NULLS)
    opened = Table.open(str(tmp_path / "t"))
    with pytest.raises(UsageError, match="cannot be changed"):
        opened.alter.set({"partition.default-name": "yy"})
    assert opened.alter.set({"partition.default-name": "__DEFAULT_PARTITION__"}).changed
    assert len(rows_of(opened)) == 1


def test_schemas_are_searched_once_for_all_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Table.create(str(tmp_path / "t"), columns=COLUMNS, partition_by="p")
    made.write([{"k": day, "p": date(2026, 1, day)} for day in range(1, 21)])
    for file in (tmp_path / "t").rglob("data-*"):
        file.unlink()
    listed: list[int] = []
    ids = SchemaHistory.ids

    def counted_ids(history: SchemaHistory) -> list[int]:
        listed.append(1)
        return ids(history)

    monkeypatch.setattr(SchemaHistory, "ids", counted_ids)
    found = [v for v in check_table(TableContext.open(made.url)) if v.code == "PV012"]
    assert len(found) == 20 and len(listed) < 10
