"""What only a Hive metastore does: its lock, its entries, tables of other kinds, and what it refuses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.catalog.metastore.hive import HiveMetastore, hive_type
from paimon_cli.catalog.metastore.hive_client import HiveAddress, HiveLock
from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.datatypes.data_type import VectorType
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import NotSupported, StorageUnavailable, UsageError
from tests.catalog.metastore.hive_server import HiveServer
from tests.cli.calling import Run
from tests.pieces import injected

pytestmark = pytest.mark.xdist_group("hive")


@pytest.fixture
def flags(hive: HiveServer, tmp_path: Path, run: Run) -> list[str]:
    """A catalog with the table `other.orders`, in a metastore that other tests use, too."""
    address = HiveAddress.of({"uri": hive.uri}, {})
    with address.connected() as client:
        if "other" in client.get_all_databases():
            client.drop_database("other", False, True)
    flags = ["--warehouse", f"{tmp_path}/wh", "--option", "metastore=hive", "--option", f"uri={hive.uri}"]
    run("db", "create", "other", *flags)
    columns = ("-C", "id BIGINT NOT NULL", "-C", "price DECIMAL(10, 2)", "--primary-key", "id", "--bucket", "1")
    run("create", "other.orders", *columns, "--option", "snapshot.num-retained.max=15", "--comment", "sales", *flags)
    return flags


def entry(hive: HiveServer, table: str = "orders") -> Any:
    with HiveAddress.of({"uri": hive.uri}, {}).connected() as client:
        return client.get_table("other", table)


def test_the_entry_is_the_one_that_java_makes(flags: list[str], hive: HiveServer, tmp_path: Path) -> None:
    table = entry(hive)
    assert table.tableType == "MANAGED_TABLE" and table.partitionKeys == []
    assert [(column.name, column.type) for column in table.sd.cols] == [("id", "bigint"), ("price", "decimal(10,2)")]
    assert table.sd.inputFormat == "org.apache.paimon.hive.mapred.PaimonInputFormat"
    assert table.sd.outputFormat == "org.apache.paimon.hive.mapred.PaimonOutputFormat"
    assert table.sd.serdeInfo.serializationLib == "org.apache.paimon.hive.PaimonSerDe"
    assert table.sd.location == f"file:{tmp_path}/wh/other.db/orders"
    shown = ("table_type", "storage_handler", "primary-key", "bucket", "bucket-key", "snapshot.num-retained.max", "comment")
    storage_handler = "org.apache.paimon.hive.PaimonStorageHandler"
    assert [table.parameters[key] for key in shown] == ["PAIMON", storage_handler, "id", "1", "id", "15", "sales"]


def test_changes_of_the_schema_are_entered(flags: list[str], hive: HiveServer, run: Run) -> None:
    run("alter", "other.orders", "add-column", "note INT", *flags)
    run("alter", "other.orders", "unset", "snapshot.num-retained.max", *flags)
    run("alter", "other.orders", "set", "snapshot.num-retained.min=3", *flags)
    table = entry(hive)
    assert [column.type for column in table.sd.cols] == ["bigint", "decimal(10,2)", "int"]
    assert "snapshot.num-retained.max" not in table.parameters and table.parameters["snapshot.num-retained.min"] == "3"
    answer = run("alter", "other.orders", "drop-column", "price", *flags)
    assert "the Hive metastore refuses the new columns" in answer.err
    assert [field["name"] for field in run("schemas", "show", "other.orders", "-o", "json", *flags).json["item"]["fields"]] == [
        "id",
        "note",
    ]


def test_a_table_of_hive_is_left_alone(flags: list[str], hive: HiveServer, run: Run) -> None:
    foreign = entry(hive)
    foreign.tableName, foreign.sd.inputFormat, foreign.sd.location = "plain", "org.apache.hadoop.mapred.TextInputFormat", None
    with HiveAddress.of({"uri": hive.uri}, {}).connected() as client:
        client.create_table(foreign)
    assert [item["table"] for item in run("tables", "ls", "other", "-o", "json", *flags).json["items"]] == ["other.orders"]
    assert "not a Paimon table" in run("read", "other.plain", *flags, code=8).err
    assert "already exists" in run("create", "other.plain", "-C", "id INT", *flags, code=2).err
    assert "already exists" in run("tables", "rename", "other.orders", "other.plain", *flags, code=2).err
    assert "it has other tables or views: plain" in run("db", "drop", "other", "--cascade", "-y", *flags, code=2).err


def test_an_external_table_is_not_dropped(flags: list[str], hive: HiveServer, run: Run, tmp_path: Path) -> None:
    external = entry(hive)
    external.tableType, external.parameters = "EXTERNAL_TABLE", {**external.parameters, "EXTERNAL": "TRUE"}
    with HiveAddress.of({"uri": hive.uri}, {}).connected() as client:
        client.alter_table("other", "orders", external)
    assert "external table" in run("drop", "other.orders", "-y", *flags, code=8).err
    assert (tmp_path / "wh/other.db/orders/schema/schema-0").exists()


def test_more_tables_than_one_call_returns(flags: list[str], run: Run) -> None:
    for number in range(6):
        run("create", f"other.t{number}", "-C", "id BIGINT", *flags)
    with injected(3):
        listed = run("tables", "ls", "other", *flags).out
    assert [name for name in ("orders", *(f"t{number}" for number in range(6))) if name not in listed] == []


def test_names_are_in_lower_case(flags: list[str], run: Run) -> None:
    assert "capital letters" in run("create", "other.Orders2", "-C", "id INT", *flags, code=2).err
    assert "capital letters" in run("db", "create", "Other", *flags, code=2).err
    assert "capital letters" in run("tables", "rename", "other.orders", "other.Orders2", *flags, code=2).err


def test_the_lock_excludes_others_until_it_is_released(flags: list[str], hive: HiveServer) -> None:
    patient = HiveLock(HiveAddress.of({"uri": hive.uri}, {}), "other", "orders")
    hasty = pickle.loads(
        pickle.dumps(HiveLock(HiveAddress.of({"uri": hive.uri, "lock-acquire-timeout": "300 ms"}, {}), "other", "orders"))
    )
    with patient.held() as held:
        held.confirm()
        with pytest.raises(StorageUnavailable, match=r"could not acquire the lock of other\.orders"), hasty.held():
            pass
        with HiveLock(HiveAddress.of({"uri": hive.uri}, {}), "other", "items").held():
            pass
    with hasty.held() as held, patient._address.connected() as client:
        from pymetastore.hive_metastore import ttypes

        client.unlock(ttypes.UnlockRequest(lockid=held.lock_id))
        with pytest.raises(StorageUnavailable, match="was lost"):
            held.confirm()
        assert not held.release()


def test_a_locked_table_is_not_written(flags: list[str], hive: HiveServer, run: Run) -> None:
    locking = [*flags, "--option", "lock.enabled=true", "--option", "lock-acquire-timeout=300 ms"]
    row = '{"id": 1, "price": "2.50"}'
    with HiveLock(HiveAddress.of({"uri": hive.uri}, {}), "other", "orders").held():
        assert (
            "could not acquire the lock"
            in run("write", "other.orders", "-", "--format", "json", "--engine", "local", *locking, stdin=row, code=6).err
        )
    run("write", "other.orders", "-", "--format", "json", "--engine", "local", *locking, stdin=row)
    assert run("read", "other.orders", "--count", *flags).out == "1\n"
    (item,) = run("locks", "ls", "other.orders", "-o", "json", *locking).json["items"]
    assert item["mechanism"] == "lock"


def test_a_metastore_that_is_not_there() -> None:
    silent = HiveMetastore("/wh", {"uri": "thrift://127.0.0.1:1"})
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1 does not answer"):
        silent.databases()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UsageError, "no metastore"),
        ({"uri": "http://x"}, UsageError, "address of a Hive metastore"),
        ({"uri": "thrift://x", "hive.metastore.sasl.enabled": "true"}, NotSupported, "Kerberos"),
        ({"uri": "thrift://x", "location-in-properties": "true"}, NotSupported, "location-in-properties"),
        ({"uri": "thrift://x", "table.type": "external"}, NotSupported, "table.type"),
        ({"uri": "thrift://x", "lock.type": "zookeeper"}, NotSupported, "lock.type"),
        ({"hive-conf-dir": "/nowhere"}, UsageError, "cannot read /nowhere/hive-site.xml"),
    ],
)
def test_what_a_hive_catalog_refuses(
    options: dict[str, str], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    with pytest.raises(error, match=message):
        find_metastore("/wh", {"metastore": "hive", **options}).databases()


def test_the_address_may_be_in_hive_site(tmp_path: Path) -> None:
    site = "<configuration><property><name>hive.metastore.uris</name><value>thrift://a:1, thrift://b</value></property></configuration>"
    (tmp_path / "hive-site.xml").write_text(site)
    assert HiveAddress.of({}, {"HIVE_CONF_DIR": str(tmp_path)}).hosts == (("a", 1), ("b", 9083))
    assert HiveAddress.of({"uri": "thrift://c:2", "hive-conf-dir": str(tmp_path)}, {}).hosts == (("c", 2),)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("BIGINT", "bigint"),
        ("INT", "int"),
        ("CHAR(10)", "char(10)"),
        ("CHAR(300)", "string"),
        ("STRING", "string"),
        ("VARBINARY(9)", "binary"),
        ("TIME(3)", "string"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp"),
        ("ARRAY<DECIMAL(4, 1)>", "array<decimal(4,1)>"),
        ("MAP<STRING, ROW<a INT, b DATE>>", "map<string,struct<a:int,b:date>>"),
        ("MULTISET<INT>", "map<int,int>"),
        ("VARIANT", "struct<value:binary,metadata:binary>"),
        ("BLOB", "binary"),
    ],
)
def test_types_of_hive(sql: str, expected: str) -> None:
    assert hive_type(parse_sql_type(sql)) == expected


@pytest.mark.parametrize("sql", ["GEOMETRY", "ARRAY<GEOGRAPHY>"])
def test_types_that_hive_has_no_name_for(sql: str) -> None:
    with pytest.raises(NotSupported, match=r"a column of type GEO\w+ in a hive catalog"):
        hive_type(parse_sql_type(sql))


def test_a_vector_is_an_array_in_hive() -> None:
    assert hive_type(VectorType(element=parse_sql_type("FLOAT"), length=3)) == "array<float>"


def test_partitions_are_entered_and_announced(flags: list[str], hive: HiveServer, run: Run, tmp_path: Path) -> None:
    """In a table whose partitions are in the metastore, like those that Flink creates with `metastore.partitioned-table`."""
    columns = ("-C", "d STRING", "-C", "h INT", "-C", "v INT", "--partition-by", "d,h", "--bucket", "-1")
    run("create", "other.hours", *columns, *flags)
    rows = '{"d": "a b=c", "h": 1, "v": 1}\n{"d": null, "h": 2, "v": 1}'
    run("write", "other.hours", "-", "--format", "json", "--engine", "local", *flags, stdin=rows)
    marked = ("partitions", "mark-done", "other.hours", "--action", "done-partition", "--action", "mark-event", *flags)
    assert "metastore.partitioned-table" in run(*marked, "--partition", "h=1", code=2).err
    made = entry(hive, "hours")
    made.partitionKeys, made.sd.cols = made.sd.cols[:2], made.sd.cols[2:]
    with HiveAddress.of({"uri": hive.uri}, {}).connected() as client:
        client.drop_table("other", "hours", False)
        client.create_table(made)
        registered = (*marked, "--option", "metastore.partitioned-table=true")
        for _ in range(2):
            run(*registered, "--partition", "h=1", "--partition", "h=2")
        assert client.get_partition_names("other", "hours", -1) == ["d=__DEFAULT_PARTITION__/h=2.done", "d=a b%3Dc/h=1.done"]
        (done,) = client.get_partitions_by_names("other", "hours", ["d=a b%3Dc/h=1.done"])
        assert done.values == ["a b=c", "1.done"] and done.sd.location == f"file:{tmp_path}/wh/other.db/hours/d=a b%3Dc/h=1.done"
        for values in ({"d": "a b=c", "h": "1"}, {"d": "__DEFAULT_PARTITION__", "h": "2"}):
            assert client.isPartitionMarkedForEvent("other", "hours", values, 1)
        assert not client.isPartitionMarkedForEvent("other", "hours", {"d": "a b=c", "h": "2"}, 1)
