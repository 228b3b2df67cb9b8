"""Tables of a Hive metastore as sources: partitions in places of their own, types, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.catalog.metastore.hive_client import HiveAddress
from paimon_cli.catalog.metastore.hive_tables import sql_type
from paimon_cli.errors import NotFound, NotSupported, PaimonError
from tests.catalog.metastore.hive_server import HiveServer

pytestmark = pytest.mark.xdist_group("hive")
PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
ORC = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]
COLUMNS = [("id", "bigint"), ("name", "varchar(20)"), ("small", "smallint"), ("tags", "array<string>")]


@pytest.fixture(scope="module")
def hive() -> Iterator[HiveServer]:
    with HiveServer() as server:
        yield server


def rows(first: int) -> pa.Table:
    values = {"id": pa.array([first, first + 1], pa.int64()), "name": ["a", None], "small": pa.array([7, None], pa.int32())}
    return pa.table({**values, "tags": pa.array([["x"], []], pa.list_(pa.string()))})


class Made:
    """A Hive table of two days; the second one is elsewhere. `change`: what differs from that."""

    def __init__(
        self, hive: HiveServer, tmp_path: Path, form: str = PARQUET, columns: Any = COLUMNS, partitioned: bool = True
    ) -> None:
        from pymetastore.hive_metastore import ttypes

        self.uri, self.name = f"{hive.uri}", f"t{abs(hash(tmp_path)) % 10**9}"
        self.places = (
            [tmp_path / "hive/t/dt=2026-01-01", tmp_path / "hive/elsewhere/second"] if partitioned else [tmp_path / "hive/t"]
        )
        for number, place in enumerate(self.places):
            place.mkdir(parents=True)
            write = orc.write_table if form == ORC else pq.write_table
            write(rows(number * 10), place / "000000_0")
            (place / "_SUCCESS").touch()
        self.fields = [ttypes.FieldSchema(name=name, type=t) for name, t in columns]
        keys = [ttypes.FieldSchema(name="dt", type="date")] if partitioned else []
        descriptor = self.descriptor(form, tmp_path / "hive/t")
        self.table = ttypes.Table(
            tableName=self.name, dbName="default", owner="a", sd=descriptor, partitionKeys=keys, parameters={}
        )
        self.table.tableType = "EXTERNAL_TABLE"
        self.table.parameters = {"EXTERNAL": "TRUE"}
        self.partitions = [
            ttypes.Partition([str(day)], "default", self.name, 0, 0, self.descriptor(form, place), {})
            for day, place in zip(DAYS, self.places, strict=False)
            if partitioned
        ]

    def descriptor(self, form: str, place: Path) -> Any:
        from pymetastore.hive_metastore import ttypes

        serde = ttypes.SerDeInfo(serializationLib="x", parameters={})
        output = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
        return ttypes.StorageDescriptor(
            cols=self.fields, location=f"file:{place}", inputFormat=form, outputFormat=output, serdeInfo=serde
        )

    def registered(self) -> str:
        with HiveAddress.of({"uri": self.uri}, {}).connected() as client:
            client.create_table(self.table)
            if self.partitions:
                client.add_partitions(self.partitions)
        return f"{self.uri}/default.{self.name}"


def adopt(tmp_path: Path, source: str, options: dict[str, str] | None = None, **asked: Any) -> Table:
    Catalog(None, options, runtime=Runtime(engine="local")).adopt(source, table=str(tmp_path / "p"), **asked)
    return Table.open(str(tmp_path / "p"), runtime=Runtime(engine="local"))


def found(table: Table) -> dict[int, Any]:
    return {row["id"]: (row["name"], row["small"], row["tags"], row.get("dt")) for row in table.scan().to_arrow().to_pylist()}


def expected(partitioned: bool = True) -> dict[int, Any]:
    firsts = {0: DAYS[0], 10: DAYS[1]} if partitioned else {0: None}
    return {
        key: value
        for first, day in firsts.items()
        for key, value in {first: ("a", 7, ["x"], day), first + 1: (None, None, [], day)}.items()
    }


@pytest.mark.in_part(2)
@pytest.mark.parametrize("form", [PARQUET, ORC])
@pytest.mark.parametrize("partitioned", [True, False])
def test_files_as_they_are(hive: HiveServer, tmp_path: Path, form: str, partitioned: bool) -> None:
    made = Made(hive, tmp_path, form, partitioned=partitioned)
    table = adopt(tmp_path, made.registered())
    assert found(table) == expected(partitioned)
    assert table.context.schema.partition_keys == (("dt",) if partitioned else ())
    assert not table.verify(level="full").violations
    table.compact(strategy="full")
    assert found(table) == expected(partitioned) and all((place / "000000_0").exists() for place in made.places)


def test_moved_from_a_hive_catalog(hive: HiveServer, tmp_path: Path) -> None:
    made = Made(hive, tmp_path)
    made.registered()
    options = {"metastore": "hive", "uri": hive.uri}
    catalog = Catalog(str(tmp_path / "wh"), options, runtime=Runtime(engine="local"))
    planned = catalog.plan_adoption(f"default.{made.name}", table=str(tmp_path / "p"), files="move")
    assert (planned.plan.source, planned.plan.kind, planned.plan.rows) == (f"Hive table default.{made.name}", "hive", 4)
    planned.run()
    assert found(Table.open(str(tmp_path / "p"), runtime=Runtime(engine="local"))) == expected()
    assert not any((place / "000000_0").exists() for place in made.places)


@pytest.mark.parametrize("by_position", [True, False])
def test_rows_for_a_primary_key(hive: HiveServer, tmp_path: Path, by_position: bool) -> None:
    made = Made(hive, tmp_path, ORC, [*COLUMNS, ("later", "string")])
    if by_position:
        for number, place in enumerate(made.places):
            orc.write_table(rows(number * 10).rename_columns([f"_col{n}" for n in range(4)]), place / "000000_0")
    source = made.registered()
    with pytest.raises(NotSupported, match="cannot be adopted as it is" if by_position else "has other columns"):
        adopt(tmp_path, source)
    table = adopt(tmp_path, source, {"bucket": "1"}, primary_key="dt,id")
    assert found(table) == expected()
    assert [(field.name, field.type.root) for field in table.context.schema.fields][-2:] == [("later", "VARCHAR"), ("dt", "DATE")]


def test_columns_of_another_type_keep_their_names_in_the_files(hive: HiveServer, tmp_path: Path) -> None:
    made = Made(hive, tmp_path, columns=[("id", "bigint"), ("name", "string"), ("small", "bigint"), ("tags", "array<string>")])
    for number, place in enumerate(made.places):
        pq.write_table(rows(number * 10).rename_columns(["id", "name", "Small", "tags"]), place / "000000_0")
    table = adopt(tmp_path, made.registered(), {"bucket": "1"}, primary_key="dt,id")
    assert [(row["id"], row["Small"]) for row in table.scan().to_arrow().sort_by("id").to_pylist()] == [
        *[(0, 7), (1, None)],
        *[(10, 7), (11, None)],
    ]
    assert table.context.schema.field("Small").type.root == "BIGINT"


def view(made: Made) -> None:
    made.table.tableType, made.table.viewOriginalText, made.table.viewExpandedText = "VIRTUAL_VIEW", "select 1", "select 1"


def acid(made: Made) -> None:
    made.table.parameters["transactional"] = "true"
    made.table.tableType = "MANAGED_TABLE"


def text(made: Made) -> None:
    made.table.sd.inputFormat = "org.apache.hadoop.mapred.TextInputFormat"


def one_partition_is_avro(made: Made) -> None:
    made.partitions[1].sd.inputFormat = "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat"


def an_iceberg_table(made: Made) -> None:
    made.table.parameters["table_type"] = "ICEBERG"


def a_delta_table(made: Made) -> None:
    made.table.parameters["spark.sql.sources.provider"] = "delta"


def another_type(made: Made) -> None:
    made.fields[0].type = "string"


def a_union(made: Made) -> None:
    made.fields[0].type = "uniontype<int,string>"


def one_location_for_two(made: Made) -> None:
    made.partitions[1].sd.location = made.partitions[0].sd.location


def names_that_differ_in_case(made: Made) -> None:
    pq.write_table(rows(0).append_column("NAME", pa.array(["p", "q"])), made.places[0] / "000000_0")
    pq.write_table(rows(10).append_column("NAME", pa.array(["p", "q"])), made.places[1] / "000000_0")


def a_directory_inside(made: Made) -> None:
    (made.places[0] / "HIVE_UNION_SUBDIR_1").mkdir()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (view, "is a view"),
        (acid, "is an ACID table"),
        (text, "TextInputFormat"),
        (one_partition_is_avro, "Avro"),
        (an_iceberg_table, "table of ICEBERG"),
        (a_delta_table, "table of delta"),
        (another_type, "BIGINT there, and STRING in Hive"),
        (a_union, "a type that Paimon does not have"),
        (a_directory_inside, "is a directory in"),
        (one_location_for_two, "2026-01-01 and 2026-01-02 are both in"),
        (names_that_differ_in_case, "upper from lower case"),
    ],
)
def test_refused(hive: HiveServer, tmp_path: Path, change: Any, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(hive, tmp_path)
    change(made)
    if change is acid:  # a metastore of its own mind about who may create one
        monkeypatch.setattr("paimon_cli.jobs.adoption.hive.read_hive_table", lambda *given: _check(made))
        source = f"{hive.uri}/default.{made.name}"
    else:
        source = made.registered()
    with pytest.raises(NotSupported, match=match):
        adopt(tmp_path, source)
    assert not (tmp_path / "p").exists()


def _check(made: Made) -> None:
    from paimon_cli.catalog.metastore.hive_tables import _check_kind

    _check_kind("default.t", made.table)


def test_a_table_that_is_not_there(hive: HiveServer, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        adopt(tmp_path, f"{hive.uri}/default.nothing")


def test_types() -> None:
    def of(text: str) -> str:
        return sql_type("t", type("Column", (), {"name": "c", "type": text}))

    assert of("struct<a:int,b:map<string,array<decimal(5,2)>>>") == "ROW<`a` INT, `b` MAP<STRING, ARRAY<DECIMAL(5,2)>>>"
    assert (of("char(3)"), of("timestamp"), of("binary")) == ("CHAR(3)", "TIMESTAMP(9)", "BYTES")
    for bad in ("array<" * 2000 + "int" + ">" * 2000, "struct<a>", "map<int>", "interval_day_time", "struct<a`b:int>", ""):
        with pytest.raises(PaimonError):
            of(bad)
