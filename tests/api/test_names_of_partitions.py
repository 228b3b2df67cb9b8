"""Options that name the directories of partitions: with another value no file of the table would be found."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import DamagedFile, UsageError
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
        opened.with_options(options).write([{"k": 2, "p": None}])
    with pytest.raises(UsageError, match=f"{key} cannot be changed"):
        rows_of(opened.with_options(options))
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
