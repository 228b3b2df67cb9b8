"""Changes that find their rows by `_ROW_ID`: in SQL, the library and transactions, against plain Python and SELECT."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.errors import BadInput, NotSupported, UsageError
from paimon_cli.invariants.check import check_table
from tests.jobs.test_merge_job import rivalled
from tests.nightly import at_night

KINDS = (
    "('row-tracking.enabled' = 'true')",
    "('row-tracking.enabled' = 'true', 'deletion-vectors.enabled' = 'true')",
    "('row-tracking.enabled' = 'true', 'file.format' = 'orc')",
    "('row-tracking.enabled' = 'true', 'deletion-vectors.enabled' = 'true', 'file.format' = 'avro')",
)
Row = dict[str, Any]
Rows = dict[int, Row]
VALUES: dict[str, list[Any]] = {"k": [None, 1, 1, 2, 3], "x": [None, 0.5, 0.5, -0.0, math.nan, 4.0], "s": [None, "a", "a", "b"]}
NOTES: dict[int | None, str] = {None: "null"}
NOTES.update({number: f"n{number}" for number in range(0, 80, 2)})


@dataclass
class Tracked:
    """A table with row tracking, `w.t`, beside `w.dim` with NOTES; its rows as they must be, by their ids."""

    catalog: Catalog
    chance: random.Random
    rows: Rows

    @property
    def table(self) -> Table:
        return self.catalog.table("w.t")

    def stored(self) -> Rows:
        columns = ["_ROW_ID", "_SEQUENCE_NUMBER", "dt", "k", "x", "s"]
        found = self.table.scan(columns=columns).to_arrow().to_pylist()
        rows = {row.pop("_ROW_ID"): row for row in found}
        assert len(rows) == len(found)
        return rows

    def select(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.catalog.sql(text).to_arrow().to_pylist()]

    def changed(self, ids: set[int], new: Callable[[int, Row], Row | None], statement: str, shown: str) -> None:
        """Run a change that must concern these rows; `new`: what they become, None if deleted. `shown`: a SELECT of their ids."""
        assert {row_id for (row_id,) in self.select(shown)} == ids, shown
        self.catalog.sql(statement).to_arrow()
        self.expect(ids, new)

    def expect(self, ids: set[int], new: Callable[[int, Row], Row | None]) -> None:
        snapshot = self.table.context.snapshots.latest()
        assert snapshot is not None
        after = {row_id: new(row_id, self.rows[row_id]) for row_id in ids}
        self.rows = {row_id: row for row_id, row in self.rows.items() if row_id not in ids}
        numbered = ((row_id, row) for row_id, row in after.items() if row is not None)
        self.rows |= {row_id: {**row, "_SEQUENCE_NUMBER": snapshot.id} for row_id, row in numbered}

    def added(self, rows: list[Row]) -> None:
        """Note rows that the newest snapshot has added; the files of a partition have neighbouring ids."""
        found, snapshot = self.stored(), self.table.context.snapshots.latest()
        assert snapshot is not None
        new = {row_id: row for row_id, row in found.items() if row_id not in self.rows and row["_SEQUENCE_NUMBER"] == snapshot.id}
        assert comparable_rows(new.values()) == comparable_rows({**row, "_SEQUENCE_NUMBER": snapshot.id} for row in rows)
        self.rows |= new


def comparable(row: Row) -> str:
    return repr(sorted(row.items()))


def comparable_rows(rows: Any) -> list[str]:
    return sorted(map(comparable, rows))


def tracked(folder: Path, kind: str, chance: random.Random) -> Tracked:
    catalog = Catalog(str(folder / "wh"))
    catalog.sql(f"CREATE TABLE w.t (dt STRING, k INT, x DOUBLE, s STRING) PARTITIONED BY (dt) WITH {kind}")
    catalog.sql("CREATE TABLE w.dim (rid BIGINT, note STRING)")
    catalog.table("w.dim").write(pa.table({"rid": pa.array(list(NOTES), pa.int64()), "note": list(NOTES.values())}))
    made = Tracked(catalog, chance, {})
    for _ in range(3):
        insert(made)
    return made


def insert(made: Tracked) -> None:
    chance = made.chance
    rows = [{"dt": chance.choice("ab"), **{name: chance.choice(of) for name, of in VALUES.items()}} for _ in range(8)]
    types = pa.schema([("dt", pa.string()), ("k", pa.int32()), ("x", pa.float64()), ("s", pa.string())])
    made.table.write(pa.Table.from_pylist([*rows, *rows[:2]], schema=types))
    made.added([*rows, *rows[:2]])


def by_subquery(made: Tracked) -> None:
    low = made.chance.randrange(60)
    where = f"t._ROW_ID IN (SELECT rid FROM w.dim WHERE rid BETWEEN {low} AND {low + 5})"
    ids = {row_id for row_id in made.rows if row_id in NOTES and low <= row_id <= low + 5}
    made.changed(ids, lambda i, row: None, f"DELETE FROM w.t WHERE {where}", f"SELECT _ROW_ID FROM w.t WHERE {where}")


CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("t.k IS NULL", lambda row: row["k"] is None),
    ("isnan(t.x)", lambda row: row["x"] is not None and math.isnan(row["x"])),
    ("t.x IS DISTINCT FROM 0.5", lambda row: row["x"] != 0.5),
    ("coalesce(t.s, 'b') = 'b'", lambda row: row["s"] in (None, "b")),
    ("pow(t.k, 2) > 3", lambda row: row["k"] is not None and row["k"] ** 2 > 3),
    ("t.x = -t.x", lambda row: row["x"] is not None and (row["x"] == 0 or math.isnan(row["x"]))),
]


def from_another_table(made: Tracked) -> None:
    (text, holds), gap = made.chance.choice(CONDITIONS), made.chance.randrange(2)
    rest = f"FROM w.dim AS q WHERE t._row_id = q.rid + {gap} AND {text}"
    ids = {row_id for row_id, row in made.rows.items() if row_id - gap in NOTES and holds(row)}
    made.changed(
        ids,
        lambda i, row: {**row, "s": NOTES[i - gap]},
        f"UPDATE w.t AS t SET s = q.note {rest}",
        f"SELECT t._ROW_ID {rest.replace('FROM', 'FROM w.t AS t,', 1)}",
    )


def using_another_table(made: Tracked) -> None:
    (text, holds), low = made.chance.choice(CONDITIONS), made.chance.randrange(60)
    rest = f"WHERE q.rid = t._ROW_ID AND t._ROW_ID BETWEEN {low} AND {low + 9} AND {text}"
    ids = {row_id for row_id, row in made.rows.items() if row_id in NOTES and low <= row_id <= low + 9 and holds(row)}
    shown = f"SELECT t._ROW_ID FROM w.t AS t, w.dim AS q {rest}"
    made.changed(ids, lambda i, row: None, f"DELETE FROM w.t AS t USING w.dim AS q {rest}", shown)


def by_case(made: Tracked) -> None:
    text, holds = made.chance.choice(CONDITIONS)
    ids = {row_id for row_id, row in made.rows.items() if holds(row)}
    made.changed(
        ids,
        lambda i, row: {**row, "k": i if i % 3 == 0 else row["k"]},
        f"UPDATE w.t AS t SET k = CASE WHEN _ROW_ID % 3 = 0 THEN _ROW_ID ELSE k END WHERE {text}",
        f"SELECT _ROW_ID FROM w.t AS t WHERE {text}",
    )


def by_itself(made: Tracked) -> None:
    gap, before = made.chance.randint(1, 3), made.rows
    ids = {row_id for row_id in before if row_id - gap in before}
    made.changed(
        ids,
        lambda i, row: {**row, "s": before[i - gap]["s"], "x": before[i - gap]["x"]},
        f"UPDATE w.t SET s = o.s, x = o.x FROM w.t AS o WHERE t._ROW_ID = o._ROW_ID + {gap}",
        f"SELECT t._ROW_ID FROM w.t, w.t AS o WHERE t._ROW_ID = o._ROW_ID + {gap}",
    )


def by_our_own_sql(made: Tracked) -> None:
    low = made.chance.randrange(60)
    where = f"_ROW_ID >= {low} AND _ROW_ID < {low + 7}"
    ids = {row_id for row_id in made.rows if low <= row_id < low + 7}
    shown = f"SELECT _ROW_ID FROM w.t WHERE {where}"
    made.changed(ids, lambda i, row: {**row, "k": i + 1}, f"UPDATE w.t SET k = _row_id + 1 WHERE {where}", shown)


def by_merge(made: Tracked) -> None:
    low, floor = made.chance.randrange(60), made.chance.randrange(60)
    source = f"(SELECT rid, note FROM w.dim WHERE rid BETWEEN {low} AND {low + 12})"
    ids = {row_id for row_id in made.rows if row_id in NOTES and low <= row_id <= low + 12}
    absent = {number for number in NOTES if number is not None and low <= number <= low + 12} - ids
    condition = made.chance.choice([f"t._ROW_ID > {floor}", f"pow(t._ROW_ID, 2) > {floor * floor}"])  # by our own SQL, by DuckDB
    made.changed(
        ids,
        lambda i, row: {**row, "k": i, "s": NOTES[i]} if i > floor else None,
        f"MERGE INTO w.t AS t USING {source} AS q ON q.rid = t._ROW_ID WHEN MATCHED AND {condition} THEN UPDATE SET k = q.rid, "
        "s = q.note WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (dt, k) VALUES ('c', q.rid)",
        f"SELECT t._ROW_ID FROM w.t AS t JOIN {source} AS q ON q.rid = t._ROW_ID",
    )
    made.added([{"dt": "c", "k": number, "x": None, "s": None} for number in absent])


def by_the_library(made: Tracked) -> None:
    ids = made.chance.sample(range(90), 30)
    source = pa.table({"_ROW_ID": pa.array([*ids, None], pa.int64()), "s": [*(f"l{i}" for i in ids), None]})
    merge = made.table.merge(source, on=["_ROW_ID"]).when_matched_update_all(condition="target._ROW_ID <= 70")
    merge.when_not_matched_by_source_update({"k": "_ROW_ID - 1"}, condition="_ROW_ID % 5 = 0").execute()
    found = {i for i in ids if i in made.rows and i <= 70}
    others = {i for i in made.rows if i not in ids and i % 5 == 0}
    made.expect(found | others, lambda i, row: {**row, "s": f"l{i}"} if i in found else {**row, "k": i - 1})


def compact(made: Tracked) -> None:
    made.table.compact(strategy="full")


@pytest.mark.parametrize(("seed", "statements"), [(1, 10), *(at_night(seed, 36) for seed in range(16))])
def test_random_changes_concern_the_rows_that_a_query_shows(tmp_path: Path, seed: int, statements: int) -> None:
    print("seed", seed)
    made = tracked(tmp_path, KINDS[seed % len(KINDS)], random.Random(seed))
    steps = [by_subquery, from_another_table, using_another_table, by_case, by_itself, by_our_own_sql, by_merge, by_the_library]
    for number in range(statements):
        step = steps[number] if number < len(steps) else made.chance.choice([*steps, insert, compact])
        step(made)
        after = made.stored()
        assert {i: comparable(row) for i, row in after.items()} == {i: comparable(row) for i, row in made.rows.items()}, step
    assert not list(check_table(made.table.context))


@pytest.fixture
def small(tmp_path: Path) -> Tracked:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.sql("CREATE TABLE w.t (k INT, s STRING) WITH ('row-tracking.enabled' = 'true')")
    catalog.sql("INSERT INTO w.t VALUES (1, 'a'), (1, 'a'), (2, 'b'); INSERT INTO w.t VALUES (3, 'c')")
    return Tracked(catalog, random.Random(0), {})


ALL = "SELECT _ROW_ID, _SEQUENCE_NUMBER, k, s FROM w.t ORDER BY ALL"
BEFORE = [(0, 1, 1, "a"), (1, 1, 1, "a"), (2, 1, 2, "b"), (3, 2, 3, "c")]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE w.t SET _ROW_ID = 7",
        "UPDATE w.t SET _sequence_number = 7 WHERE k IN (SELECT 1)",
        "INSERT INTO w.t (k, _ROW_ID) VALUES (1, 2)",
        "INSERT INTO w.t BY NAME SELECT 1 AS k, 2 AS _row_id",
        "MERGE INTO w.t USING (SELECT 1 AS i) q ON t._ROW_ID = q.i WHEN MATCHED THEN UPDATE SET _ROW_ID = 7",
        "MERGE INTO w.t USING (SELECT 1 AS i) q ON t._ROW_ID = q.i WHEN NOT MATCHED THEN INSERT (k, _ROW_ID) VALUES (1, 9)",
    ],
)
def test_ids_are_not_set(small: Tracked, statement: str) -> None:
    with pytest.raises(UsageError, match=r"column '_\w+' cannot be set: each row gets its id and number from a commit"):
        small.catalog.sql(statement)
    assert small.select(ALL) == BEFORE


def test_ids_are_not_set_in_the_library(small: Tracked) -> None:
    table, source = small.table, pa.table({"_ROW_ID": pa.array([1]), "k": [9]})
    cannot = "'_ROW_ID' cannot be set"
    with pytest.raises(UsageError, match=cannot):
        table.update({"_ROW_ID": "k"}, where="k = 1")
    with pytest.raises(UsageError, match=cannot):
        table.merge(source, on="_ROW_ID").when_matched_update({"_ROW_ID": "source.k"}).execute()
    with pytest.raises(UsageError, match=cannot):
        table.merge(source, on="_ROW_ID").when_matched_update(values={"_ROW_ID": 5}).execute()
    with pytest.raises(UsageError, match=cannot):
        table.merge(source, on="k").when_not_matched_insert({"_ROW_ID": "source.k"}).execute()
    with pytest.raises(UsageError, match="nothing reads column '_ROW_ID' of the source"):
        table.merge(source, on="k").when_matched_update_all().when_not_matched_insert_all().execute()
    assert small.select(ALL) == BEFORE


def test_several_values_for_one_row_are_refused(small: Tracked) -> None:
    with pytest.raises(BadInput, match="several rows of the source have _ROW_ID = 1"):
        small.catalog.sql("UPDATE w.t SET s = q.v FROM (VALUES (1, 'x'), (1, 'y')) AS q(i, v) WHERE t._ROW_ID = q.i")
    assert small.select(ALL) == BEFORE


def test_where_there_are_no_ids_they_are_no_columns(small: Tracked) -> None:
    small.catalog.sql("CREATE TABLE w.p (k INT); INSERT INTO w.p VALUES (1), (7)")
    with pytest.raises(UsageError, match=r"_ROW_ID"):
        small.catalog.sql("MERGE INTO w.p USING (SELECT 1 AS i) q ON p._ROW_ID = q.i WHEN MATCHED THEN DELETE")
    with pytest.raises(NotSupported) as refused:
        small.catalog.sql("DELETE FROM w.p USING w.t WHERE p._ROW_ID = t._ROW_ID")
    assert "its rows have no ids" in refused.value.hint
    small.catalog.sql("DELETE FROM w.p WHERE k IN (SELECT k FROM w.t WHERE _ROW_ID = 1)")  # of the other table
    assert small.select("SELECT k FROM w.p") == [(7,)]


def test_the_source_of_a_merge_by_ids_may_be_such_a_table(small: Tracked) -> None:
    """A `*` shows no ids, also where the merge itself needs those of another table."""
    small.catalog.sql("CREATE TABLE w.o (rid BIGINT, s STRING) WITH ('row-tracking.enabled' = 'true')")
    small.catalog.sql("INSERT INTO w.o VALUES (2, 'z'), (8, 'new')")
    small.catalog.sql(
        "MERGE INTO w.t USING (SELECT * FROM w.o) AS q ON t._ROW_ID = q.rid WHEN MATCHED AND q.rid > 0 THEN UPDATE SET "
        "s = q.s WHEN NOT MATCHED THEN INSERT (s) VALUES (q.s)"
    )
    assert small.select(ALL) == [*BEFORE[:2], (2, 3, 2, "z"), BEFORE[3], (4, 3, None, "new")]


def test_a_file_without_a_matching_id_is_not_read(small: Tracked) -> None:
    (_, later) = small.table.context.manifests.live_entries(small.table.context.snapshots.get(2))
    (Path(small.table.url) / "bucket-0" / later.file.file_name).unlink()
    assert small.table.count("_ROW_ID < 3") == 3
    assert small.table.update("k = 9", where="_ROW_ID IN (0, 2)").rows == 2
    assert small.table.merge(pa.table({"_ROW_ID": [1]}), on="_ROW_ID").when_matched_delete().execute().deleted == 1


def test_a_change_by_id_meets_another_commit(small: Tracked) -> None:
    """Rows keep their ids while files are rewritten; the change is made again, with the number of its own snapshot."""
    table = small.table
    rivalled_one = rivalled(table, lambda: table.compact(strategy="full"))
    merge = rivalled_one.merge(pa.table({"_ROW_ID": [1], "s": ["x"]}), on="_ROW_ID").when_matched_update_all()
    assert merge.execute().attempts == 2
    assert small.select(ALL) == [BEFORE[0], (1, 4, 1, "x"), *BEFORE[2:]]


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_rows_of_a_transaction_get_their_ids_from_its_commit(tmp_path: Path, vectors: str) -> None:
    table = Table.create(
        tmp_path / "t", columns=["k INT", "s STRING"],
        options={"row-tracking.enabled": "true", "deletion-vectors.enabled": vectors},
    )  # fmt: skip
    table.write([{"k": 1, "s": "a"}, {"k": 2, "s": "b"}])
    with table.transaction() as t:
        t.write([{"k": 3, "s": "c"}, {"k": 4, "s": "d"}, {"k": 5, "s": "e"}])
        t.update({"s": "'C'"}, where="k = 3")
        t.update({"s": "'A'"}, where="_ROW_ID = 0")  # known to be an older row
        t.delete("k = 4")
        merge = t.merge(pa.table({"k": [1, 5], "s": ["AA", "E"]}), on="k")
        merge.when_matched_update_all(condition="k < 9").execute()
        t.write([{"k": 6, "s": "f"}])
        other = Table.open(table.url)
        other.write([{"k": 9, "s": "z"}])
    found = table.scan(columns=["_ROW_ID", "_SEQUENCE_NUMBER", "k", "s"]).to_arrow().to_pylist()
    rows = {row["k"]: tuple(row.values()) for row in found}
    assert rows[1] == (0, 3, 1, "AA") and rows[2] == (1, 1, 2, "b") and rows[9] == (2, 2, 9, "z")
    assert {rows[k][3] for k in (3, 5, 6)} == {"C", "E", "f"} and {rows[k][1] for k in (3, 5, 6)} == {3}
    assert sorted(rows[k][0] for k in (3, 5, 6)) == [3, 4, 5] and len(found) == 6
    table.write([{"k": 10, "s": "y"}])
    assert table.scan(columns=["_ROW_ID"], where="k = 10").to_arrow().to_pylist() == [{"_ROW_ID": 6}]
    assert not list(check_table(table.context))


def test_ids_that_rows_do_not_have_yet_are_refused(small: Tracked) -> None:
    table, source, new = small.table, pa.table({"_ROW_ID": [2], "s": ["x"]}), pa.table({"s": ["n"]})
    refused = "the ids of rows that this transaction has written: they get their ids with its commit"
    with pytest.raises(NotSupported, match=refused), table.transaction() as t:
        t.write([{"k": 7, "s": "n"}])
        assert t.merge(source, on="_ROW_ID").when_matched_update_all().execute().rows == 1
        assert t.update({"s": "'y'"}, where="_ROW_ID = 1").rows == 1
        for ids_of_new_rows in (
            lambda: t.update({"s": "'y'"}, where="_ROW_ID = 4"),
            lambda: t.update({"k": "_ROW_ID"}, where="k = 7"),
            lambda: t.delete("_ROW_ID > 1"),
            lambda: t.scan(columns=["_ROW_ID"]).to_arrow(),
            lambda: t.merge(source, on="_ROW_ID").when_not_matched_by_source_delete().execute(),
            lambda: t.merge(new, on="s").when_matched_delete(condition="target._ROW_ID > 0").execute(),
        ):
            with pytest.raises(NotSupported, match=refused):
                ids_of_new_rows()
        t.scan(columns=["_ROW_ID"]).to_arrow()
    assert small.select(ALL) == BEFORE


@pytest.mark.parametrize(
    "where",
    [
        "NOT EXISTS (SELECT 1 FROM w.o WHERE o = t)",
        "NOT (t IN (SELECT o FROM w.o))",
        "n < (SELECT count(*) FROM (UNPIVOT w.o ON COLUMNS(*))) - 6",
        "EXISTS (SELECT 1 FROM w.o WHERE to_json(o) = to_json(t)) AND id = 1",
        "n > (SELECT count(*) FROM (SELECT DISTINCT COLUMNS('.*') FROM w.o)) - 3",
        "id = 2 AND t.n IN (SELECT n FROM (SELECT * FROM w.o NATURAL JOIN w.t))",
    ],
)
def test_a_change_chooses_the_rows_that_its_select_shows(tmp_path: Path, where: str) -> None:
    """The ids of rows are in no value that is a whole row, unless the statement names them."""
    catalog = Catalog(str(tmp_path / "wh"))
    for name in "to":
        catalog.sql(f"CREATE TABLE w.{name} (id BIGINT, k INT, n BIGINT) WITH ('row-tracking.enabled' = 'true')")
    catalog.sql("INSERT INTO w.o VALUES (9, 9, 9)")  # so that equal rows have other ids
    catalog.sql("INSERT INTO w.t VALUES (1, 1, 0), (2, 2, 0)")
    catalog.sql("INSERT INTO w.o VALUES (1, 1, 0), (2, 2, 0)")
    catalog.sql("DELETE FROM w.o WHERE id = 9")
    (shown,) = catalog.sql(f"SELECT count(*) AS c FROM w.t WHERE {where}").to_arrow().to_pydict()["c"]
    (deleted,) = catalog.sql(f"DELETE FROM w.t WHERE {where}").to_arrow().to_pydict()["rows"]
    assert deleted == shown
