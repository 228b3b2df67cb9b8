"""A catalog as an object: where its tables are, what is listed, and what a drop takes with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.api.catalog import restore
from paimon_cli.errors import NotFound, Refused, UsageError
from paimon_cli.storage.storage_for_url import storage_for_url

KEYED: dict[str, Any] = {"columns": ["id BIGINT NOT NULL"], "primary_key": "id", "bucket": 1}


def names(catalog: Catalog, **which: Any) -> list[str]:
    return [row.table for row in catalog.tables(**which)]


@pytest.mark.parametrize("mark", ["#", "?"])
def test_a_local_url_is_not_cut_to_that_of_another_table(tmp_path: Path, mark: str) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("shop.t", **KEYED)
    with pytest.raises(NotFound):
        catalog.drop_table(f"file://{tmp_path}/shop.db/t{mark}2", purge=True)
    assert names(catalog) == ["shop.t"]
    other = Catalog(f"file://{tmp_path}/lake{mark}2")
    for name in "ab":
        other.create_table(f"shop.{name}", **KEYED)
    assert names(other) == ["shop.a", "shop.b"]
    assert (tmp_path / f"lake{mark}2/shop.db/b/schema/schema-0").exists()


def test_a_name_in_a_store_is_not_cut_to_that_of_another_table() -> None:
    catalog = Catalog("memory://cut-names")
    catalog.create_table("shop.a", **KEYED)
    for call in (catalog.create_table, catalog.drop_table):
        with pytest.raises(UsageError, match=r"is followed by \?"):
            call("shop.a?b", **(KEYED if call == catalog.create_table else {"purge": True}))
    storage, root = storage_for_url("memory://cut-names")
    for table in ("shop.db/a?b", "x?y.db/t"):
        storage.write_new(f"{root}/{table}/schema/schema-0", storage.read_bytes(f"{root}/shop.db/a/schema/schema-0"))
    with pytest.warns(UserWarning, match="names in a store may not contain"):
        assert [(row.table, row.problem is None) for row in catalog.tables()] == [("shop.a", True), ("shop.a?b", False)]
        assert [row.database for row in catalog.databases()] == ["shop"]


def shop(path: Path, *tables: str, **options: Any) -> Catalog:
    catalog = Catalog(str(path), options)
    for name in tables:
        catalog.create_table(f"shop.{name}", **KEYED).write([{"id": 1}])
    return catalog


def test_a_listing_by_name_goes_on_after_a_name(tmp_path: Path) -> None:
    catalog = shop(tmp_path, "b", "a", "c")
    assert names(catalog, limit=2) == ["shop.a", "shop.b"]
    assert names(catalog, after="shop.a") == ["shop.b", "shop.c"]
    assert names(catalog, after="shop.a", limit=1) == ["shop.b"]
    assert names(catalog, after="shop.c") == []
    assert names(catalog, limit=0) == []
    with pytest.raises(UsageError):
        catalog.tables(limit=-1)


def test_a_database_is_made_once(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    assert [catalog.create_database("shop", if_not_exists=True) for _ in range(2)] == [True, False]
    with pytest.raises(UsageError):
        catalog.create_database("shop")


def test_one_table_is_enough_to_keep_a_database(tmp_path: Path) -> None:
    catalog = shop(tmp_path, "t")
    with pytest.raises(UsageError, match="is not empty"):
        catalog.drop_database("shop")
    assert names(catalog) == ["shop.t"] and catalog.table("shop.t").count() == 1


def test_a_database_that_is_a_link_is_not_dropped(tmp_path: Path) -> None:
    there = shop(tmp_path / "there", "t")
    (tmp_path / "here").mkdir()
    os.symlink(tmp_path / "there/shop.db", tmp_path / "here/shop.db")
    for given in ({}, {"cascade": True}, {"cascade": True, "purge": True}):
        with pytest.raises(Refused, match="is a link to"):
            Catalog(str(tmp_path / "here")).drop_database("shop", **given)
    assert there.table("shop.t").count() == 1 and (tmp_path / "here/shop.db").is_symlink()


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("kept", ["1 d", "0"])
def test_the_plan_says_what_becomes_of_the_tables_of_a_database(tmp_path: Path, purge: bool, kept: str) -> None:
    catalog = shop(tmp_path, "a", "b", **{"trash-retention": kept})
    plan = catalog.plan_drop_database("shop", cascade=True, purge=purge)
    is_kept = not purge and kept == "1 d"
    assert (plan.plan.table_names, plan.plan.for_good) == (("shop.a", "shop.b"), not is_kept)
    assert plan.run() == plan.plan and not (tmp_path / "shop.db").exists()
    assert sorted(str(row.table) for row in catalog.trash.ls()) == (["shop.a", "shop.b"] if is_kept else [])


def test_the_entry_of_a_table_stays_if_only_a_branch_is_missing(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "wh"), {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"})
    catalog.create_database("shop")
    catalog.create_table("shop.t", **KEYED)
    for _ in range(2):
        with pytest.raises(NotFound):
            catalog.drop_table("shop.t$branch_gone")
        assert names(catalog) == ["shop.t"]
        for file in (tmp_path / "wh/shop.db/t/schema").iterdir():
            file.unlink()
    assert catalog.drop_table("shop.t").only_entry and names(catalog) == []


@pytest.mark.parametrize("purge", [False, True])
def test_a_damaged_table_can_be_dropped(tmp_path: Path, purge: bool) -> None:
    catalog = shop(tmp_path, "t")
    for file in (tmp_path / "shop.db/t/snapshot").glob("snapshot-*"):
        file.write_text("{")
    catalog.drop_table("shop.t", purge=purge)
    assert not (tmp_path / "shop.db/t").exists() and len(catalog.trash.ls()) == (0 if purge else 1)


def test_a_table_is_renamed_in_its_own_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("paimon.yaml").write_text("warehouse: plain\nprofiles:\n  prod: {warehouse: prod}\n  test: {warehouse: test}\n")
    for place in ("plain", "prod", "test"):
        shop(tmp_path / place, "t")
    for old, new in (("shop.t", "@prod/shop.u"), ("@prod/shop.t", "@test/shop.u")):
        with pytest.raises(UsageError, match="is in another profile"):
            Catalog().rename_table(old, new)
    Catalog().rename_table("@prod/shop.t", "shop.u")
    Catalog().rename_table("@test/shop.t", "@test/shop.v")
    assert [names(Catalog(place)) for place in ("plain", "prod", "test")] == [["shop.t"], ["shop.u"], ["shop.v"]]
    assert names(Catalog(), place="@prod") == ["shop.u"]
    assert [row.table.rpartition(".")[2] for row in Catalog().tables("@test/shop")] == ["v"]


def test_options_of_the_call_are_those_of_a_table_that_sql_creates(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path), {"file.format": "avro"})
    catalog.sql(
        "CREATE TABLE shop.t (id INT NOT NULL, PRIMARY KEY (id) NOT ENFORCED) WITH ('file.format' = 'orc', 'bucket' = '3')"
    )
    stored = {row.key: row.value for row in Catalog(str(tmp_path)).table("shop.t").option_rows()}
    assert (stored["bucket"], stored["file.format"]) == ("3", "avro")


def test_a_backup_is_restored_at_the_version_that_is_named(tmp_path: Path) -> None:
    table = shop(tmp_path / "wh", "t").table("shop.t")
    table.tags.create("first")
    table.write([{"id": 2}])
    table.backup(str(tmp_path / "backup"))

    def restored(name: str, **version: Any) -> tuple[list[int], int]:
        restore(tmp_path / "backup", "shop." + name, warehouse=str(tmp_path / "wh"), **version)
        found = Table.open(str(tmp_path / f"wh/shop.db/{name}"))
        return sorted(row["id"] for row in found.scan().to_arrow().to_pylist()), len(found.snapshots())

    assert restored("all") == ([1, 2], 1)
    assert restored("tagged", tag="first") == restored("numbered", snapshot=1) == ([1], 1)
    assert restored("past", history=True) == ([1, 2], 2)
