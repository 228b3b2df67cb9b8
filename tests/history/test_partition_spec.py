"""Partitions as a user types them, for all types of partition columns."""

from __future__ import annotations

import datetime
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.partition_spec import PartitionSpec
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.tables import make_table, write

TYPED: dict[str, tuple[list[str], list[object]]] = {
    "TINYINT NOT NULL": (["1", "-2"], [1, -2]),
    "SMALLINT NOT NULL": (["300", "-2"], [300, -2]),
    "INT NOT NULL": (["70000", "-2"], [70000, -2]),
    "BIGINT NOT NULL": (["5000000000", "-2"], [5_000_000_000, -2]),
    "BOOLEAN NOT NULL": (["true", "FALSE"], [True, False]),
    "STRING NOT NULL": (["a b", "7"], ["a b", "7"]),
    "DATE NOT NULL": (["2024-01-05", "1969-12-31"], ["2024-01-05", "1969-12-31"]),
    "DECIMAL(5, 2) NOT NULL": (["1.50", "-0.01"], ["1.50", "-0.01"]),
}


@pytest.mark.parametrize("kind", TYPED)
def test_each_type(tmp_path: Path, kind: str) -> None:
    typed, values = TYPED[kind]
    context = make_table(tmp_path / "t", {"p": kind, "k": "INT NOT NULL"}, ["p", "k"], ["p"])
    write(context, [{"p": value, "k": 1} for value in values])
    known = {partition for partition, _ in bucket_files(context, context.snapshots.latest())}
    chosen = [{p for p in known if PartitionSpec.parse(context, {"p": text}).matches(p)} for text in typed]
    assert [len(some) for some in chosen] == [1, 1] and chosen[0] | chosen[1] == known and len(known) == 2
    both = PartitionSpec.parse_any(context, [{"p": text} for text in typed])
    assert all(map(both.matches, known)) and all(map(PartitionSpec.everything().matches, known))
    assert {p for p in known if PartitionSpec.exactly(context, chosen[0]).matches(p)} == chosen[0]


def test_all_keys_that_are_named_must_fit(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "INT", "q": "STRING", "k": "INT NOT NULL"}, ["p", "q", "k"], ["p", "q"])
    write(context, [{"p": p, "q": q, "k": 1} for p in (1, 2) for q in ("a", "b")])
    known = {partition for partition, _ in bucket_files(context, context.snapshots.latest())}

    def found(**typed: str) -> set[tuple[Any, ...]]:
        spec = PartitionSpec.parse(context, typed)
        return {tuple(map(str, context.partition_values(p))) for p in known if spec.matches(p)}

    assert found() == {("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")}
    assert found(p="1") == {("1", "a"), ("1", "b")} and found(q="b") == {("1", "b"), ("2", "b")}
    assert found(q="a", p="2") == {("2", "a")} and found(p="3") == set()
    for typed in ({"k": "1"}, {"p": "1", "k": "1"}, {"p": "one"}, {"p": "1.5"}):
        with pytest.raises(UsageError):
            PartitionSpec.parse(context, typed)
    assert found(q="__DEFAULT_PARTITION__") == set()


TEXT = "__DEFAULT_PARTITION__"
INSTANT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A NULL and the text that names it on the command line share a directory; `_PARTITION` keeps them apart."""
    table = Table.create(tmp_path / "db.db" / "t", columns=["p STRING", "k INT"], partition_by="p", bucket=-1)
    table.write([{"p": None, "k": 1}, {"p": TEXT, "k": 2}, {"p": "a", "k": 3}, {"p": "NULL", "k": 4}])
    return table


def keys(table: Table) -> list[int]:
    table.refresh()
    return sorted(table.scan().to_arrow().column("k").to_pylist())


def test_a_text_is_that_text_in_the_library(table: Table) -> None:
    assert [len(table.files(partition={"p": value})) for value in (TEXT, None, "a")] == [1, 1, 1]
    table.write([{"p": TEXT, "k": 5}], overwrite=True, partition={"p": TEXT})
    assert keys(table) == [1, 3, 4, 5]
    assert table.drop_partition({"p": TEXT}).rows == 1 and keys(table) == [1, 3, 4]
    assert table.drop_partition({"p": TEXT}).rows == 0
    assert table.drop_partition([{"p": None}, {"p": "a"}]).rows == 2 and keys(table) == [4]


def test_an_empty_text_is_not_null(tmp_path: Path) -> None:
    """Both are in the directory of null; a script may well pass '' for a value that it does not have."""
    table = Table.create(tmp_path / "t", columns=["p STRING", "k INT"], partition_by="p", bucket=-1)
    table.write([{"p": None, "k": 1}, {"p": "", "k": 2}])
    assert [len(table.files(partition={"p": value})) for value in ("", None)] == [1, 1]
    assert table.drop_partition({"p": ""}).rows == 1 and keys(table) == [1]
    assert table.drop_partition({"p": ""}).rows == 0
    number = Table.create(tmp_path / "n", columns=["p INT", "k INT"], partition_by="p", bucket=-1)
    number.write([{"p": None, "k": 1}])
    with pytest.raises(UsageError, match="the value is not of type INT"):
        number.drop_partition({"p": ""})
    assert keys(number) == [1]


def test_the_name_of_null_is_no_number_in_the_library(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["p INT", "k INT"], partition_by="p", bucket=-1)
    table.write([{"p": None, "k": 1}])
    with pytest.raises(UsageError, match="the value is not of type INT") as refused:
        table.drop_partition({"p": TEXT})
    assert refused.value.hint == "null is None in the library, and NULL in SQL"
    assert table.drop_partition({"p": None}).rows == 1


def test_on_the_command_line_it_is_null(table: Table, run: Run) -> None:  # noqa: F811
    run("drop-partition", table.url, f"p={TEXT}", "--yes")
    assert keys(table) == [2, 3, 4]


@pytest.mark.parametrize(("value", "left"), [(None, [2, 3, 4, 9]), (TEXT, [1, 3, 4, 9])])
def test_a_staged_overwrite_knows_them_apart(table: Table, tmp_path: Path, value: str | None, left: list[int]) -> None:
    file = str(tmp_path / "staged.json")
    table.write([{"p": value, "k": 9}], overwrite=True, partition={"p": value}, stage=file)
    table.stage.commit(file)
    assert keys(table) == left


def test_a_stage_file_of_an_earlier_version_writes_null_as_the_default_name(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "staged.json"
    table.write([{"p": None, "k": 9}], overwrite=True, partition={"p": None}, stage=str(file))
    document = json.loads(file.read_text())
    assert document["version"] == 3
    content = {**document["content"], "static_partition": [f"p={TEXT}"]}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    file.write_text(json.dumps({**document, "version": 2, "sha256": digest, "content": content}))
    table.stage.commit(str(file))
    assert keys(table) == [2, 3, 4, 9]


@pytest.mark.parametrize(
    ("value", "left"), [("NULL", [2, 3, 4]), (f"'{TEXT}'", [1, 3, 4]), ("'NULL'", [1, 2, 3]), ("'a'", [1, 2, 4])]
)
def test_sql_knows_them_apart(table: Table, value: str, left: list[int]) -> None:
    catalog = Catalog(str(Path(table.url).parent.parent))
    catalog.sql(f"ALTER TABLE db.t DROP PARTITION (p = {value})")
    assert keys(table) == left
    catalog.sql(f"INSERT OVERWRITE db.t PARTITION (p = {value}) SELECT 7")
    catalog.sql(f"INSERT OVERWRITE db.t PARTITION (p = {value}) SELECT 8")
    assert keys(table) == sorted([*left, 8])


def test_sql_drops_no_partition_that_was_not_named(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "db.db" / "t", columns=["p INT", "k INT"], partition_by="p", bucket=-1)
    table.write([{"p": 5, "k": 1}, {"p": -5, "k": 2}, {"p": 10, "k": 3}])
    catalog = Catalog(str(tmp_path))
    catalog.sql("ALTER TABLE db.t DROP PARTITION (p = -5)")
    assert keys(table) == [1, 3]
    for value in ("5 + 5", "'5' '10'", "DATE 5", "x'35'", "a.b", "lower('5')", "- '5'", "- - 5", "INT -5"):
        with pytest.raises(NotSupported, match="the value of a partition is a literal or NULL"):
            catalog.sql(f"ALTER TABLE db.t DROP PARTITION (p = {value})")
    assert keys(table) == [1, 3]


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("STRING", "a", '"a"'),
        ("STRING", "a", "a"),
        ("STRING", "null", '"null"'),
        ("STRING", "it's", r"e'it\'s'"),
        ("STRING", "a", "$$a$$"),
        ("INT", 5, "+5"),
        ("INT", 5, "INT '5'"),
        ("DECIMAL(3, 1)", Decimal("1.5"), "DECIMAL '1.5'"),
        ("DECIMAL(3, 1)", Decimal("-1.5"), "- 1.5"),
        ("DATE", datetime.date(2026, 1, 2), "DATE '2026-01-02'"),
        ("BOOLEAN", True, "true"),
        ("TIMESTAMP_LTZ(3)", INSTANT, "TIMESTAMPTZ '2026-01-02T03:04:05Z'"),
        ("TIMESTAMP_LTZ(3)", INSTANT, "TIMESTAMP_LTZ '2026-01-02T03:04:05Z'"),
    ],
)
def test_sql_drops_the_partition_of_a_literal(tmp_path: Path, kind: str, value: object, written: str) -> None:
    table = Table.create(tmp_path / "db.db" / "t", columns=[f"p {kind}", "k INT"], partition_by="p", bucket=-1)
    table.write([{"p": value, "k": 1}, {"p": None, "k": 2}])
    Catalog(str(tmp_path)).sql(f"ALTER TABLE db.t DROP PARTITION (p = {written})")
    assert keys(table) == [2]


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        ("INT", "'5'", "5"),
        ("BIGINT", "'-5'", "-5"),
        ("DECIMAL(4, 2)", "'5.5'", "5.5"),
        ("DATE", "'2026-01-02'", "DATE '2026-01-02'"),
        ("BOOLEAN", "'true'", "TRUE"),
    ],
)
def test_sql_inserts_into_partitions_of_every_type(tmp_path: Path, kind: str, text: str, number: str) -> None:
    table = Table.create(tmp_path / "db.db" / "t", columns=[f"p {kind}", "k INT"], partition_by="p", bucket=-1)
    catalog = Catalog(str(tmp_path))
    for value, other in ((text, number), ("NULL", "NULL")):
        catalog.sql(f"INSERT INTO db.t PARTITION (p = {value}) SELECT 7")
        catalog.sql(f"INSERT INTO db.t PARTITION (p = {other}) VALUES (8)")
    assert keys(table) == [7, 7, 8, 8] and len(table.partitions()) == 2
    for value in (text, number, "NULL"):
        catalog.sql(f"INSERT OVERWRITE db.t PARTITION (p = {value}) SELECT 9")
    assert keys(table) == [9, 9] and len(table.partitions()) == 2


def test_sql_puts_no_fraction_into_a_partition_of_whole_numbers(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "db.db" / "t", columns=["p INT", "k INT"], partition_by="p", bucket=-1)
    for value in ("1.5", "'1.5'"):
        with pytest.raises(UsageError, match="not a whole number"):
            Catalog(str(tmp_path)).sql(f"INSERT INTO db.t PARTITION (p = {value}) SELECT 7")
    assert keys(table) == []


def test_blame_finds_the_text_null(tmp_path: Path) -> None:
    options = {"primary-key.nullable": "true"}
    table = Table.create(tmp_path / "t", columns=["k STRING", "v INT"], primary_key="k", bucket=1, options=options)
    table.write([{"k": None, "v": 1}, {"k": "NULL", "v": 2}])
    assert [[(row.values or {})["v"] for row in table.blame({"k": key})] for key in (None, "NULL")] == [[1], [2]]


def test_a_table_without_partitions(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    with pytest.raises(UsageError, match="not a partition key"):
        PartitionSpec.parse(context, {"k": "1"})


@pytest.mark.parametrize(
    ("kind", "text"), [("BOOLEAN NOT NULL", "yes"), ("DATE NOT NULL", "today"), ("DECIMAL(3, 1) NOT NULL", "x")]
)
def test_texts_that_are_not_values_of_the_column(tmp_path: Path, kind: str, text: str) -> None:
    context = make_table(tmp_path / "t", {"p": kind, "k": "INT NOT NULL"}, ["p", "k"], ["p"])
    with pytest.raises(UsageError, match=f"p={text}: the value is not of type"):
        PartitionSpec.parse(context, {"p": text})
