"""Which directory the user means by TABLE."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.errors import NotSupported, PaimonError, UsageError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("table", "url"),
    [
        ("./wh/shop.db/orders", "./wh/shop.db/orders"),
        ("/wh/shop.db/orders/", "/wh/shop.db/orders"),
        ("s3://bucket/wh/shop.db/orders", "s3://bucket/wh/shop.db/orders"),
        ("shop.orders", "/warehouse/shop.db/orders"),
        ("orders", "orders"),
        ("shop.orders$ro", "/warehouse/shop.db/orders"),
    ],
)
def test_paths_and_names(table: str, url: str) -> None:
    location = locate_table(table, "/warehouse/")
    assert (location.url, location.name) == (url, table)
    assert location.read_optimized == table.endswith("$ro")


def test_home_directory() -> None:
    assert locate_table("~/t").url == str(Path("~/t").expanduser())


def test_flag_beats_environment_beats_file(elsewhere: Path) -> None:
    (elsewhere / "paimon.yaml").write_text("warehouse: /file\nmetastore: filesystem\nfs.s3.endpoint: http://x\nssl: true\n")
    environment = {"PAIMON_WAREHOUSE": "/environment"}
    assert find_metastore("/flag", None, environment).warehouse == "/flag"
    assert find_metastore(None, None, environment).warehouse == "/environment"
    found = find_metastore(environment={})
    assert found.warehouse == "/file"
    assert found.storage_options == {"fs.s3.endpoint": "http://x", "ssl": "true"}


def test_storage_options_come_along_but_are_never_shown(elsewhere: Path) -> None:
    (elsewhere / "paimon.yaml").write_text("warehouse: s3://b/wh\nfs.s3.secret-key: hunter2\n")
    location = locate_table("s3://b/other/t")
    assert location.storage_options["fs.s3.secret-key"] == "hunter2"
    assert "hunter2" not in repr(location)
    assert "hunter2" not in repr(find_metastore(environment={}))


def test_credentials_in_a_url_are_not_part_of_the_name() -> None:
    assert locate_table("s3://user:secret@host/wh/t").name == "s3://host/wh/t"


@pytest.mark.parametrize("content", ["- a\n- b\n", "a:\n  b: c\n", "a: [\n", "just text"])
def test_a_catalog_file_that_is_not_a_flat_mapping(elsewhere: Path, content: str) -> None:
    (elsewhere / "paimon.yaml").write_text(content)
    with pytest.raises(UsageError, match=r"paimon\.yaml"):
        find_metastore(environment={})


def test_an_unknown_kind_of_catalog_is_never_taken_for_a_file_system(elsewhere: Path) -> None:
    (elsewhere / "paimon.yaml").write_text("metastore: glue\nwarehouse: /wh\n")
    for table in ("a.b", "./a"):
        with pytest.raises(NotSupported, match="glue"):
            locate_table(table)
    assert locate_table("a.b", options={"metastore": "filesystem"}).url == "/wh/a.db/b"


def test_options_of_the_call_go_before_those_of_the_catalog_file(elsewhere: Path) -> None:
    (elsewhere / "paimon.yaml").write_text("warehouse: /wh\nlock.enabled: true\nuri: jdbc:sqlite:/db\ns3.region: eu\n")
    location = locate_table("a.b", options={"s3.region": "us", "s3.endpoint": "http://x"})
    assert location.url == "/wh/a.db/b"
    assert location.storage_options == {
        "lock.enabled": "true",
        "uri": "jdbc:sqlite:/db",
        "s3.region": "us",
        "s3.endpoint": "http://x",
    }


def test_an_empty_catalog_file_has_no_effect(elsewhere: Path) -> None:
    (elsewhere / "paimon.yaml").write_text("")
    assert find_metastore(environment={}).warehouse is None


def test_a_directory_in_reach_is_a_path_unless_a_warehouse_takes_the_name(elsewhere: Path) -> None:
    (elsewhere / "orders.v1").mkdir()
    (elsewhere / "orders").mkdir()
    assert locate_table("orders.v1").url == "orders.v1"
    assert locate_table("orders", "/wh").url == "orders"
    assert locate_table("orders.v1", "/wh").url == "/wh/orders.db/v1"


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ("a.b.c d", UsageError, "neither a path nor db.table"),
        ("", UsageError, "empty"),
        ("$ro", UsageError, "empty"),
        ("a.b$snapshots", UsageError, "cannot be opened as a table"),
        ("./t$nonsense", UsageError, "cannot be opened as a table"),
        ("./t$branch_7", UsageError, "name of a branch"),
        ("./t$branch_a$tags", UsageError, "cannot be opened as a table"),
    ],
)
def test_names_without_a_table(table: str, error: type[PaimonError], message: str) -> None:
    with pytest.raises(error, match=message):
        locate_table(table, "/wh")


def test_the_path_of_a_hint_is_quoted() -> None:
    with pytest.raises(UsageError) as caught:
        locate_table("a.b.c d")
    assert "write './a.b.c d' for a directory" in caught.value.hint


def test_system_tables_name_the_command_that_shows_them() -> None:
    with pytest.raises(UsageError) as caught:
        locate_table("a.b$snapshots", "/wh")
    assert caught.value.hint == "paimon-cli snapshots ls a.b"


def test_branches_and_views_of_them() -> None:
    branch, both = locate_table("a.b$branch_dev", "/wh"), locate_table("./t$branch_dev$ro")
    assert (branch.url, branch.branch, branch.read_optimized) == ("/wh/a.db/b", "dev", False)
    assert (both.url, both.branch, both.read_optimized) == ("./t", "dev", True)
    assert locate_table("./t$branch_main").branch == "main"


def test_a_dollar_in_a_parent_directory_is_not_a_suffix() -> None:
    assert locate_table("/data$x/t").url == "/data$x/t"


def test_a_new_table_has_no_dollar_in_its_name() -> None:
    with pytest.raises(UsageError, match=r"a table cannot be called do\$llar"):
        locate_table("./do$llar", is_new=True)
