"""SHOW, DESCRIBE, USE, CREATE, ALTER and DROP: which of several things is meant, and that nothing of a statement is ignored."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paimon_cli import Catalog
from paimon_cli.api.sql_definition import _changed_column, _exists, _take_back
from paimon_cli.api.sql_session import SqlSession
from paimon_cli.errors import AlreadyExists, CommitUnknown, DamagedFile, NotFound, NotSupported, Refused, UsageError
from paimon_cli.sql.statements import statements_of

pytestmark = pytest.mark.filterwarnings("ignore:option '.*' is unknown to Paimon")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Databases shop, shop2 and empty, with tables whose names are alike."""
    made = tmp_path_factory.mktemp("definitions") / "wh"
    Catalog(str(made)).sql(
        """CREATE DATABASE shop; CREATE DATABASE shop2; CREATE DATABASE empty;
        CREATE TABLE shop.t (id BIGINT NOT NULL, s STRING, n INT);
        CREATE TABLE shop.t_1 (dt STRING, h INT, id INT) PARTITIONED BY (dt, h);
        CREATE TABLE shop2.tx1 (id INT);
        INSERT INTO shop.t_1 VALUES ('a', 1, 1), ('a', 2, 2), ('b', 1, 3)"""
    )
    return made


@pytest.fixture
def catalog(warehouse: Path, tmp_path: Path) -> Catalog:
    return Catalog(str(shutil.copytree(warehouse, tmp_path / "wh")))


def shown(catalog: Catalog, statement: str) -> list[str]:
    return [".".join(row.values()) for row in catalog.sql(statement).to_arrow().to_pylist()]


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SHOW DATABASES", ["empty", "shop", "shop2"]),
        ("SHOW SCHEMAS LIKE 'SHOP'", ["shop"]),
        ("SHOW DATABASES LIKE 'sho_'", ["shop"]),
        ("SHOW DATABASES LIKE 'shop%'", ["shop", "shop2"]),
        ("SHOW DATABASES LIKE 'sho.'", []),
        ("SHOW DATABASES LIKE '(shop'", []),
        ("SHOW TABLES", ["shop.t", "shop.t_1", "shop2.tx1"]),
        ("USE shop2; SHOW TABLES", ["shop2.tx1"]),
        ("USE shop2; SHOW TABLES FROM shop", ["shop.t", "shop.t_1"]),
        ("USE shop2; SHOW TABLES IN shop LIKE '*1'", ["shop.t_1"]),
        ("SHOW TABLES LIKE 't'", ["shop.t"]),
        ("SHOW TABLES LIKE 't_1'", ["shop.t_1", "shop2.tx1"]),
        ("SHOW TABLES FROM empty", []),
    ],
)
def test_names_are_shown(catalog: Catalog, statement: str, names: list[str]) -> None:
    assert shown(catalog, statement) == names


@pytest.mark.parametrize("database", ["missing", "SHOP"])
def test_a_database_that_is_missing_is_not_an_empty_one(catalog: Catalog, database: str) -> None:
    session = SqlSession(catalog)
    for statement in (f"SHOW TABLES FROM {database}", f"USE {database}", f"USE shop; USE {database}"):
        with pytest.raises(NotFound):
            session.last(statement)
    assert session.context.database == "shop", "the one that was chosen last"


@pytest.mark.parametrize(
    "statement",
    [
        "SHOW TABLES LIKE 't' x",
        "SHOW TABLES LIKE shop.t",
        "SHOW DATABASES LIKE shop.t",
        "SHOW CREATE TABLE shop.t x",
        "USE shop x",
        "DROP TABLE shop.t x",
        "DROP TABLE shop.t CASCADE",
        "DROP DATABASE shop CASCADE RESTRICT",
        "DROP DATABASE shop RESTRICT",
        "DROP DATABASE shop",
        "ALTER TABLE shop.t RENAME TO x y",
        "ALTER TABLE shop.t UNSET TBLPROPERTIES ('a' = 'b')",
        "ALTER TABLE shop.t UNSET TBLPROPERTIES ('a' x, 'b')",
        "ALTER TABLE shop.t ALTER COLUMN s COMMENT a.b",
        "ALTER TABLE shop.t ALTER COLUMN s COMMENT",
        "ALTER TABLE shop.t ALTER COLUMN s SET DEFAULT NULL 1",
        "ALTER TABLE shop.t SET ('a' = NULL)",
        "ALTER TABLE shop.t_1 DROP PARTITION (dt = 'a') x",
        "ALTER TABLE shop.t_1 DROP PARTITION ()",
    ],
)
def test_nothing_of_a_statement_is_ignored(catalog: Catalog, statement: str) -> None:
    catalog.sql("ALTER TABLE shop.t SET ('a' = '1', 'b' = '2')")
    before = [catalog.table(name).context.schema for name in ("shop.t", "shop.t_1")]
    with pytest.raises(UsageError):
        catalog.sql(statement)
    assert shown(catalog, "SHOW TABLES FROM shop") == ["shop.t", "shop.t_1"]
    assert [catalog.table(name).context.schema for name in ("shop.t", "shop.t_1")] == before
    assert catalog.table("shop.t_1").count() == 3


def test_descriptions_take_parameters_and_any_name(catalog: Catalog) -> None:
    described = catalog.sql("DESCRIBE SELECT :x AS y", params={"x": "text"}).to_arrow().to_pylist()
    assert [(row["column_name"], row["column_type"]) for row in described] == [("y", "VARCHAR")]
    for word in ("HISTORY", "DETAIL"):
        catalog.sql(f"CREATE DATABASE {word}; CREATE TABLE {word}.{word} (id INT)")
        assert catalog.sql(f"DESCRIBE {word}.{word}").to_arrow().num_rows == 1
        assert catalog.sql(f"USE {word}; DESC {word}").to_arrow().num_rows == 1
        with pytest.raises(NotSupported, match=f"DESCRIBE {word}"):
            catalog.sql(f"DESCRIBE {word} shop.t")


def test_databases_are_created_once(catalog: Catalog) -> None:
    assert catalog.sql("CREATE DATABASE new").verb == "created"
    assert catalog.sql("CREATE SCHEMA IF NOT EXISTS new").verb == "existed"
    with pytest.raises(AlreadyExists):
        catalog.sql("CREATE DATABASE new")
    with pytest.raises(NotSupported, match="CREATE TABLE LIKE"):
        catalog.sql("CREATE TABLE new.t LIKE shop.t")


def test_a_new_table_has_the_rows_of_its_query(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.sql("CREATE TABLE shop.new AS SELECT :x AS x", params={"x": "y"})
    assert catalog.sql("SELECT * FROM shop.new").to_arrow().to_pylist() == [{"x": "y"}]
    monkeypatch.setattr(catalog, "_create_defined", lambda *_: False)
    assert catalog.sql("CREATE TABLE IF NOT EXISTS shop.t_2 AS SELECT 1 AS x").verb == "existed", "another job was faster"
    with pytest.raises(NotFound):
        catalog.table("shop.t_2")


def test_only_a_new_table_that_is_empty_is_taken_back(catalog: Catalog) -> None:
    context = SqlSession(catalog).context
    kept = [("shop.t_1", UsageError("no", "rows")), ("shop.t", CommitUnknown("who", "knows"))]
    for name, error in kept:
        _take_back(context, name, error)
        assert f"table {name} was created, and stays" in error.why and catalog.table(name)
    _take_back(context, "shop.t", UsageError("no", "rows"))
    with pytest.raises(NotFound):
        catalog.table("shop.t")


def test_a_table_that_cannot_be_read_exists() -> None:
    def table(name: str) -> Any:
        raise DamagedFile(name, "cut off") if name == "damaged" else NotFound(name, "it is not there")

    context: Any = SimpleNamespace(catalog=SimpleNamespace(table=table))
    assert not _exists(context, "missing")
    with pytest.raises(DamagedFile):
        _exists(context, "damaged")


@pytest.mark.parametrize(
    ("statement", "asked"),
    [
        ("DROP TABLE shop.t_1", "table shop.t_1 with 1 snapshot will be moved to the trash"),
        ("DROP TABLE IF EXISTS shop.t_1 PURGE", "table shop.t_1 with 1 snapshot will be deleted for good"),
        ("DROP DATABASE empty", "database empty will be deleted"),
        ("DROP DATABASE shop2 CASCADE", "database shop2 with 1 table will be deleted, its tables will be moved to the trash"),
        ("DROP SCHEMA shop2 CASCADE PURGE", "database shop2 with 1 table will be deleted"),
        ("ALTER TABLE shop.t_1 DROP PARTITION (dt = 'a')", "2 stored records in 2 partitions of shop.t_1 will be deleted"),
        ("ALTER TABLE shop.t_1 DROP PARTITION (dt = 'a', h = 2)", "1 stored record in 1 partition of shop.t_1 will be deleted"),
    ],
)
def test_what_is_deleted_is_confirmed(catalog: Catalog, statement: str, asked: str) -> None:
    questions: list[str] = []

    def refuse(question: str) -> None:
        questions.append(question)
        raise Refused("no", "it was not confirmed")

    tables = shown(catalog, "SHOW TABLES")
    with pytest.raises(Refused, match="no"):
        SqlSession(catalog, confirm=refuse).last(statement)
    assert questions == [asked]
    assert shown(catalog, "SHOW TABLES") == tables and len(shown(catalog, "SHOW DATABASES")) == 3
    assert catalog.table("shop.t_1").count() == 3
    assert SqlSession(catalog, confirm=questions.append).last(statement).verb in ("dropped", "partition dropped")


def test_what_is_missing_is_dropped_only_if_that_is_said(catalog: Catalog) -> None:
    for what in ("TABLE shop.gone", "DATABASE gone"):
        assert catalog.sql(f"DROP {what.replace(' ', ' IF EXISTS ', 1)}").verb == "not there"
        with pytest.raises(NotFound):
            catalog.sql(f"DROP {what}")


def test_a_partition_is_named_by_all_its_columns(catalog: Catalog) -> None:
    catalog.sql("ALTER TABLE shop.t_1 DROP PARTITION (h = 1, dt = 'a')")
    left = catalog.sql("SELECT id FROM shop.t_1 ORDER BY id").to_arrow()["id"].to_pylist()
    assert left == [2, 3]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ALTER TABLE shop.t RENAME TO x", "shop.x"),
        ("USE shop2; ALTER TABLE shop.t RENAME TO x", "shop.x"),
        ("USE shop; ALTER TABLE t RENAME TO x", "shop.x"),
        ("USE shop; ALTER TABLE t RENAME TO shop2.x", "shop2.x"),
        ("ALTER TABLE shop.t RENAME TO shop2.t", "shop2.t"),
    ],
)
def test_a_renamed_table_stays_in_its_database(catalog: Catalog, statement: str, name: str) -> None:
    """Also if USE has chosen another one."""
    assert catalog.sql(statement).table == name
    assert shown(catalog, "SHOW TABLES") == sorted(["shop.t_1", "shop2.tx1", name])


def test_a_path_is_not_renamed_by_its_last_dot(catalog: Catalog, tmp_path: Path) -> None:
    path = f"{tmp_path}/wh/shop.db/t"
    with pytest.raises(UsageError) as raised:
        catalog.sql(f"ALTER TABLE '{path}' RENAME TO x")
    assert f"{tmp_path}/wh/shop.x" not in raised.value.hint


def test_options_are_unset_by_their_whole_names(catalog: Catalog) -> None:
    def options() -> set[str]:
        return set(catalog.table("shop.t").context.schema.options) & {"file", "file.format", "c", "d"}

    catalog.sql("ALTER TABLE shop.t SET ('file' = '1', file.format = 'orc', 'c' = '1', 'd' = '2')")
    assert catalog.sql("ALTER TABLE shop.t SET ('c' = '1')").verb == "unchanged"
    assert catalog.sql("ALTER TABLE shop.t UNSET TBLPROPERTIES (file.format)").verb == "altered"
    assert options() == {"file", "c", "d"}
    with pytest.raises(UsageError, match=r"file\.format is not set"):
        catalog.sql("ALTER TABLE shop.t UNSET TBLPROPERTIES (file.format, 'c')")
    assert catalog.sql("ALTER TABLE shop.t UNSET TBLPROPERTIES IF EXISTS ('file.format', 'c', 'd')").verb == "altered"
    assert options() == {"file"}
    assert catalog.sql("ALTER TABLE shop.t RESET IF EXISTS ('c')").verb == "unchanged"
    catalog.sql("ALTER TABLE shop.t SET ('c' = '1', 'd' = '2'); ALTER TABLE shop.t UNSET TBLPROPERTIES ('c', 'd')")
    assert options() == {"file"}


def test_columns_are_changed_as_is_said(catalog: Catalog) -> None:
    def column(name: str) -> Any:
        return next(field for field in catalog.table("shop.t").context.schema.fields if field.name == name)

    def alter(change: str) -> None:
        catalog.sql(f"ALTER TABLE shop.t ALTER COLUMN {change}")

    alter("id DROP NOT NULL")
    assert column("id").type.nullable
    catalog.sql("ALTER TABLE shop.t ADD COLUMN k INT")
    with pytest.raises(NotSupported, match="IF NOT EXISTS"):
        catalog.sql("ALTER TABLE shop.t ADD COLUMN IF NOT EXISTS j INT")
    alter("s SET DEFAULT 'x'")
    assert column("s").default_value == "x"
    alter("s SET DEFAULT NULL")
    assert column("s").default_value is None, "and not the text NULL, which new rows would have"
    alter("n SET DEFAULT -7")
    assert column("n").default_value == "-7"
    alter("n DROP DEFAULT")
    assert column("n").default_value is None
    alter("s COMMENT 'it''s'")
    assert column("s").description == "it's"
    alter('s COMMENT "a b"')
    assert column("s").description == "a b"
    alter("k FIRST")
    assert list(catalog.table("shop.t").context.schema.field_names) == ["k", "id", "s", "n"]
    alter("k AFTER s")
    assert list(catalog.table("shop.t").context.schema.field_names) == ["id", "s", "k", "n"]
    catalog.sql("ALTER TABLE shop.t DROP COLUMNS (k, n)")
    assert list(catalog.table("shop.t").context.schema.field_names) == ["id", "s"]


def test_a_column_that_may_be_null_can_be_forbidden_to_be() -> None:
    calls: list[Any] = []
    alter: Any = SimpleNamespace(alter_column=lambda *names, **changes: calls.append((names, changes)))
    for text, changes in (("SET NOT NULL", {"nullable": False}), ("DROP NOT NULL", {"nullable": True})):
        _changed_column(alter, statements_of(f"c {text}")[0].words())()
        assert calls[-1] == (("`c`",), changes)
