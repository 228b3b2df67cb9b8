"""A catalog as an object: where its tables are, what is listed, and what a drop takes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog
from paimon_cli.errors import NotFound, UsageError
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
