"""Which tables there are, in a warehouse, a database or a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli import Catalog
from paimon_cli.catalog.metastore.filesystem import FileSystemMetastore
from paimon_cli.catalog.table_listing import table_rows, tables_below, tables_of_database
from paimon_cli.errors import NotFound

PATHS = FileSystemMetastore(None)


def test_tables_of_a_database(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / "shop.db" / name / "schema").mkdir(parents=True)
        (tmp_path / "shop.db" / name / "schema" / "schema-0").touch()
    (tmp_path / "shop.db" / "not_a_table").mkdir()
    (tmp_path / "shop.db" / "file").touch()
    found = tables_of_database("shop", FileSystemMetastore(str(tmp_path)))
    assert [location.name for location in found] == ["shop.a", "shop.b"]
    assert found[0].url == str(tmp_path / "shop.db" / "a")
    with pytest.raises(NotFound):
        tables_of_database("nope", FileSystemMetastore(str(tmp_path)))


def test_a_table_that_cannot_be_opened_is_listed_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "t" / "schema").mkdir(parents=True)
    (tmp_path / "t" / "schema" / "schema-0").write_text("{")
    (row,) = table_rows(tables_below(str(tmp_path), PATHS), 60)
    assert row.table == f"{tmp_path}/t"
    assert row.problem is not None and "schema-0" in row.problem
    assert row.records is None


def test_a_directory_that_is_not_there_is_not_an_empty_one(tmp_path: Path) -> None:
    assert tables_below(str(tmp_path), PATHS) == []
    with pytest.raises(NotFound, match="nothing exists at"):
        tables_below(str(tmp_path / "nope"), PATHS)


def test_pages_of_tables_have_each_table_once(tmp_path: Path) -> None:
    """In the order of their names, whatever was made first."""
    catalog = Catalog(str(tmp_path))
    names = ["shop.b", "shop.a", "other.z", "shop.b2", "shop.B"]
    for name in names:
        catalog.create_table(name, columns=["id INT"])
    for size in (1, 2, 5):
        found, after = list[str](), None
        while page := [row.table for row in catalog.tables(after=after, limit=size)]:
            found, after = [*found, *page], page[-1]
            assert len(found) <= len(names)
        assert found == sorted(names)
    assert [row.table for row in catalog.tables(after="shop.a9")] == ["shop.b", "shop.b2"]
