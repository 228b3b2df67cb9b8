"""`compare`: rows of tables, versions and files against a plain oracle, with keys and without, also with runs on disk."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.errors import BadInput, NotFound, UsageError
from paimon_cli.jobs.comparison import Comparison
from paimon_cli.pieces import PIECES
from tests.nightly import first
from tests.tables import make_table, write

NUMBERS = ["NaN", -0.0, 0.0, 1.5, "Infinity", None]
TYPES = {
    "k": "INT",
    "d": "DOUBLE",
    "p": "DECIMAL(20, 3)",
    "s": "STRING",
    "r": "ROW<a DOUBLE, l ARRAY<INT>>",
    "m": "MAP<STRING, INT>",
}


def rows_of(seed: int, count: int, keys: int) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [
        {
            "k": dice.choice([*range(keys), None, None, None]),
            "d": dice.choice(NUMBERS),
            "p": dice.choice(["0.001", "99999999999999999.999", "-1.500", None]),
            "s": dice.choice(["", "a", "é", None]),
            "r": dice.choice([None, {"a": "NaN", "l": [1, None]}, {"a": None, "l": None}]),
            "m": dice.choice([None, [["a", 1], ["b", None]], []]),
        }
        for _ in range(count)
    ]


def canonical(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "wh"))


@pytest.fixture(params=[PIECES.comparison_run_bytes, 2000], ids=["in memory", "on disk"])
def run_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side is one run in memory, or many on disk that are merged in several passes."""
    monkeypatch.setattr(PIECES, "comparison_run_bytes", request.param)
    monkeypatch.setattr(PIECES, "spilled_batch_bytes", 500)
    monkeypatch.setattr(PIECES, "max_merged_runs", 2)


@pytest.mark.usefixtures("run_bytes")
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_whole_rows_are_counted(tmp_path: Path, catalog: Catalog, seed: int) -> None:
    counts = []
    for name, salt in (("a", 0), ("b", 10)):
        context = make_table(tmp_path / name, TYPES, (), bucket=-1)
        rows = rows_of(seed + salt, 300, 2)
        for start in range(0, 300, 100):
            write(context, rows[start : start + 100])
        counts.append(Counter(map(canonical, rows)))
    found = catalog.compare(str(tmp_path / "a"), str(tmp_path / "b"), limit=1000)
    here, there = counts
    assert (found.rows_here, found.rows_there) == (300, 300)
    assert found.equal == (here & there).total()
    assert found.only_here == (here - there).total() and found.only_there == (there - here).total()
    shown = {kind: Counter[str]() for kind in ("only here", "only there")}
    for one in found.differences:
        row = one.here if one.kind == "only here" else one.there
        assert row is not None
        shown[one.kind][canonical(row)] += one.count
    assert shown == {"only here": here - there, "only there": there - here}


@pytest.mark.usefixtures("run_bytes")
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_rows_are_paired_by_key(tmp_path: Path, catalog: Catalog, seed: int) -> None:
    sides = []
    for name, salt in (("a", 0), ("b", 10)):
        context = make_table(tmp_path / name, TYPES, ["k", "s"], bucket=3, options={"primary-key.nullable": "true"})
        rows = {(row["k"], row["s"]): row for row in rows_of(seed + salt, 200, 60)}
        write(context, list(rows.values()))
        sides.append(rows)
    found = catalog.compare(str(tmp_path / "a"), str(tmp_path / "b"), limit=1000)
    here, there = sides
    common = here.keys() & there.keys()
    different = {key for key in common if canonical(here[key]) != canonical(there[key])}
    assert found.key == ("k", "s") and None in {key[0] for key in common}
    assert (found.rows_here, found.rows_there, found.equal) == (len(here), len(there), len(common) - len(different))
    assert (found.only_here, found.only_there, found.different) == (
        len(here.keys() - common),
        len(there.keys() - common),
        len(different),
    )
    for column in ("d", "p", "r", "m"):
        wanted = sum(canonical({column: here[key][column]}) != canonical({column: there[key][column]}) for key in common)
        assert found.differing_columns.get(column, 0) == wanted
    kinds = {(one.key["k"], one.key["s"]): one.kind for one in found.differences if one.key is not None}
    assert {key for key, kind in kinds.items() if kind == "different"} == different


@pytest.fixture
def orders(tmp_path: Path) -> Table:
    columns = ["id BIGINT NOT NULL", "name STRING", "v DECIMAL(10, 2)"]
    table = Table.create(str(tmp_path / "orders"), columns=columns, primary_key="id", bucket=2)
    table.write(pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}))
    return table


def counts(found: Comparison) -> tuple[int, int, int, int]:
    return found.equal, found.different, found.only_here, found.only_there


def test_versions_of_a_table(orders: Table, catalog: Catalog) -> None:
    orders.tags.create("before")
    orders.write(pa.table({"id": [3, 4], "name": ["x", "y"]}))
    orders.branches.create("b", tag="before")
    assert counts(catalog.compare(f"{orders.url}@1", orders.url)) == (2, 1, 0, 1)
    assert counts(catalog.compare(orders.url, f"{orders.url}@before")) == (2, 1, 1, 0)
    assert counts(catalog.compare(orders.url, orders.url, tag_b="before")) == (2, 1, 1, 0)
    assert counts(catalog.compare(orders.url, orders.url, snapshot_a=1, branch_b="b")) == (3, 0, 0, 0)
    assert counts(catalog.compare(orders.url, orders.url, snapshot_a=1, where="id < 3")) == (2, 0, 0, 0)
    assert counts(catalog.compare(orders.url, orders.url, snapshot_a=1, columns="v", limit=0)) == (3, 0, 0, 1)
    with pytest.raises(NotFound):
        catalog.compare(orders.url, f"{orders.url}@nothing")
    with pytest.raises(UsageError, match=r"two versions are given for .* already names one"):
        catalog.compare(f"{orders.url}@1", orders.url, snapshot_a=2)


def test_a_key_that_is_a_date(tmp_path: Path, catalog: Catalog) -> None:
    """Its column is NOT NULL in the tables but not in the comparison, and Paimon has no cast between two dates."""
    for name in ("a", "b"):
        columns = {"day": "DATE NOT NULL", "open": "BOOLEAN NOT NULL", "n": "INT"}
        write(make_table(tmp_path / name, columns, ["day", "open"], bucket=1), [{"day": "2026-01-01", "open": True, "n": 1}])
    assert counts(catalog.compare(str(tmp_path / "a"), str(tmp_path / "b"))) == (1, 0, 0, 0)


def test_files_are_read_with_the_types_of_the_table(orders: Table, catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text('name,v,id\na,,1\n,,2\n"x",7.5,3\n')
    found = catalog.compare(orders.url, str(tmp_path / "o.csv"))
    assert counts(found) == (2, 1, 0, 0) and found.differing_columns == {"name": 1, "v": 1}
    assert found.differences[0].there == {"name": "x", "v": "7.50"}
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None], "more": [1, 2]}), tmp_path / "o.parquet")
    found = catalog.compare(str(tmp_path / "o.parquet"), orders.url)
    assert counts(found) == (2, 0, 0, 1)
    assert (found.columns_only_here, found.columns_only_there) == (["more"], ["v"])
    equal = catalog.compare(str(tmp_path / "o.parquet"), orders.url, columns=["name"], where="id < 3")
    assert equal.is_equal
    (tmp_path / "o.json").write_text('{"id": 1, "name": "a"}\n{"id": 3, "name": null}\n')
    assert counts(catalog.compare(orders.url, str(tmp_path / "o.json"), columns="name")) == (1, 1, 1, 0)
    (tmp_path / "bad.csv").write_text("id,name,v\nx,a,1\n")
    with pytest.raises(BadInput, match="row 1"):
        catalog.compare(orders.url, str(tmp_path / "bad.csv"))


def test_what_cannot_be_compared_is_refused(orders: Table, catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("id,name,v\n7,a,1\n1,a,1\n7,b,2\n")
    with pytest.raises(UsageError, match="key id=7 is not unique"):
        catalog.compare(orders.url, str(tmp_path / "twice.csv"))
    assert counts(catalog.compare(orders.url, str(tmp_path / "twice.csv"), key=[])) == (0, 0, 3, 3)
    other = Table.create(str(tmp_path / "other"), columns=["id BIGINT NOT NULL", "name INT"], primary_key="id", bucket=1)
    with pytest.raises(UsageError, match="STRING on one side and INT"):
        catalog.compare(orders.url, other.url)
    assert counts(catalog.compare(orders.url, other.url, columns="id")) == (0, 0, 3, 0)
    with pytest.raises(UsageError, match="no column 'nope'"):
        catalog.compare(orders.url, other.url, columns="nope")
    with pytest.raises(UsageError, match="is a table"):
        catalog.compare(str(tmp_path / "twice.csv"), str(tmp_path / "twice.csv"))
    with pytest.raises(NotFound, match="neither a table nor a file"):
        catalog.compare(orders.url, str(tmp_path / "nothing"))


def test_numbers_of_different_widths_are_compared(orders: Table, catalog: Catalog, tmp_path: Path) -> None:
    columns = ["id INT NOT NULL", "name STRING", "v DECIMAL(12, 4)"]
    wider = Table.create(str(tmp_path / "wider"), columns=columns, primary_key="id", bucket=1)
    wider.write(orders.scan().to_arrow())
    assert catalog.compare(orders.url, wider.url).is_equal and catalog.compare(wider.url, orders.url).is_equal


def test_versions_pair_columns_by_field_id(orders: Table, catalog: Catalog) -> None:
    """A rename changes no row, and a column that was dropped and added again is another one."""
    orders.write(pa.table({"id": [1], "name": ["a"], "v": pa.array([Decimal("1.50")], pa.decimal128(10, 2))}))
    orders.alter.rename_column("name", "title")
    orders.alter.drop_column("v")
    orders.alter.add_column("v DECIMAL(10, 2)")
    orders.alter.add_column("name STRING")
    orders.write(pa.table({"id": [2], "title": ["b"], "name": ["a"], "v": pa.array([Decimal("1.50")], pa.decimal128(10, 2))}))
    here, there = f"{orders.url}@2", f"{orders.url}@3"
    found = catalog.compare(here, there)
    assert counts(found) == (2, 1, 0, 0) and found.columns == ["title"]
    assert found.renamed_columns == {"name": "title"} and found.differing_columns == {"title": 1}
    assert (found.columns_only_here, found.columns_only_there) == (["v"], ["v", "name"])
    assert [(one.here, one.there) for one in found.differences] == [({"title": None}, {"title": "b"})]
    back = catalog.compare(there, here)
    assert counts(back) == (2, 1, 0, 0) and back.columns == ["name"] and back.renamed_columns == {"title": "name"}
    assert counts(catalog.compare(here, there, columns="title", key="id", where="id <> 2")) == (2, 0, 0, 0)
    for asked, message in (
        ({"columns": ["v"]}, "column 'v' of .*@2 is another one than that of .*@3"),
        ({"where": "v > 1"}, "reads column 'v', which is not the same on both sides"),
        ({"where": "title = 'a'"}, "reads column 'title', which is not the same on both sides: it is .name. on"),
    ):
        with pytest.raises(UsageError, match=message):
            catalog.compare(here, there, **asked)


def test_a_branch_shares_the_columns_that_it_began_with(orders: Table, catalog: Catalog) -> None:
    """Both lines add a column later, which has the same field id in both: these go by their names."""
    orders.branches.create("side")
    side = Table.open(orders.url, branch="side")
    side.alter.rename_column("name", "title")
    side.alter.add_column("a STRING")
    side.write(pa.table({"id": [1], "title": ["a"], "a": ["x"]}))
    orders.alter.add_column("b STRING")
    orders.write(pa.table({"id": [1], "name": ["a"], "b": ["x"]}))
    found = catalog.compare(orders.url, orders.url, branch_b="side")
    assert found.renamed_columns == {"name": "title"} and found.columns == ["title", "v"]
    assert (found.columns_only_here, found.columns_only_there) == (["b"], ["a"])


def test_columns_from_before_a_branch_are_shared_whenever_they_were_added(orders: Table, catalog: Catalog) -> None:
    """Also those of the last schema that both have, which go by their ids and not by their names."""
    for name in ("w", "x"):
        orders.alter.add_column(f"{name} INT")
        orders.write(pa.table({"id": [1], name: pa.array([7], pa.int32())}))
    orders.branches.create("side", snapshot="latest")
    Table.open(orders.url, branch="side").alter.rename_column("x", "y")
    found = catalog.compare(orders.url, orders.url, branch_b="side")
    assert found.is_equal and found.renamed_columns == {"x": "y"} and found.columns == ["name", "v", "w", "y"]


def test_a_version_needs_a_name(orders: Table, catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="names no version: nothing follows the @"):
        catalog.compare(orders.url, f"{orders.url}@")


DIGITS = "0.1000000000000000055511151231257827"
"""As a DOUBLE it is 0.1."""


@pytest.mark.parametrize("key", [(), ("k",)])
def test_fractions_of_variants_are_compared_exactly(tmp_path: Path, catalog: Catalog, key: tuple[str, ...]) -> None:
    for name, number in (("a", DIGITS), ("b", "0.1")):
        table = Table.create(str(tmp_path / name), columns=["k INT NOT NULL", "v VARIANT", "l ARRAY<VARIANT>"], primary_key=key)
        for k, text in enumerate((number, "7")):
            (tmp_path / "rows").write_text(f'{{"k": {k}, "v": {{"n": {text}}}, "l": [{text}]}}\n')
            table.write(str(tmp_path / "rows"), format="json")
    found = catalog.compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (found.equal, found.different, found.only_here, found.only_there) == ((1, 1, 0, 0) if key else (1, 0, 1, 1))
    assert {name: here for one in found.differences if one.here for name, here in one.here.items() if name != "k"} == {
        "v": {"n": DIGITS},
        "l": [DIGITS],
    }


def test_variants_with_the_same_json_are_equal(tmp_path: Path, catalog: Catalog) -> None:
    """Their names may be in another order in the bytes."""
    ab, ba = (b"\x01\x02\x00\x01\x02" + names for names in (b"ab", b"ba"))
    for name, metadata, ids in (("a", ab, b"\x00\x01"), ("b", ba, b"\x01\x00")):
        table = Table.create(str(tmp_path / name), columns=["k INT NOT NULL", "v VARIANT"], primary_key=["k"], bucket=1)
        value = b"\x02\x02" + ids + b"\x00\x02\x04\x0c\x01\x0c\x02"
        stored = pa.array([{"value": value, "metadata": metadata}], arrow_type(VARIANT))
        table.write(pa.table({"k": pa.array([1], pa.int32()), "v": stored}))
    found = catalog.compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (found.equal, found.different) == (1, 0)
