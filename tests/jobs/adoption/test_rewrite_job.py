"""Files of other engines whose rows become a table with a primary key: what is merged, counted and left after a failure."""

from __future__ import annotations

import dataclasses
import datetime
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import BadInput, Conflict, NotSupported, PaimonError, UsageError
from paimon_cli.jobs.adoption.footers import FileFooter
from paimon_cli.jobs.adoption.rewrite_job import AdoptedRows
from paimon_cli.jobs.adoption.source import AdoptedFile
from tests.pieces import injected

DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two days of two files each; key 1 is in three rows of the first day, and in one of the second."""
    root = tmp_path / "source"
    for day in DAYS:
        (root / f"dt={day}").mkdir(parents=True)
    pq.write_table(rows([1, 2], [10, 20], [1, 1]), root / f"dt={DAYS[0]}/a.parquet")
    orc.write_table(rows([1, 1], [12, 11], [9, 3]), root / f"dt={DAYS[0]}/b")
    pq.write_table(rows([1], [30], [1]), root / f"dt={DAYS[1]}/c.parquet")
    pq.write_table(rows([4, 5], [40, 50], [1, 1]), root / f"dt={DAYS[1]}/d.parquet")
    return root


def rows(ids: list[int | None], values: list[int], versions: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int32()), "seq": versions})


def plan(tmp_path: Path, source: Path, options: dict[str, str] | None = None, **asked: Any) -> Any:
    catalog = Catalog(None, {"bucket": "2", **(options or {})}, runtime=Runtime(engine="local"))
    given = {"table": str(tmp_path / "t"), "primary_key": "dt,id", "partition_columns": ["dt DATE"], **asked}
    return catalog.plan_adoption(str(source), **given)


def opened(tmp_path: Path) -> Table:
    return Table.open(str(tmp_path / "t"), runtime=Runtime(engine="local"))


def values(tmp_path: Path) -> dict[tuple[datetime.date, int], int]:
    return {(row["dt"], row["id"]): row["v"] for row in opened(tmp_path).scan().to_arrow().to_pylist()}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


OTHERS = {(DAYS[0], 2): 20, (DAYS[1], 1): 30, (DAYS[1], 4): 40, (DAYS[1], 5): 50}


@pytest.mark.parametrize(
    ("options", "newest"),
    [({}, 11), ({"sequence.field": "seq"}, 12), ({"merge-engine": "first-row"}, 10), ({"bucket": "-1"}, 11)],
)
@pytest.mark.parametrize("small", [False, True])
def test_rows_are_merged_as_by_write(tmp_path: Path, source: Path, options: dict[str, str], newest: int, small: bool) -> None:
    before = contents(source)
    planned = plan(tmp_path, source, options)
    assert (planned.plan.rows, planned.plan.files, planned.plan.partitions) == (7, 4, 2)
    assert planned.plan.placement == "rewrite" and planned.plan.primary_keys == ("dt", "id") and not (tmp_path / "t").exists()
    if small:
        with injected(2):
            done = planned.run()
    else:
        done = planned.run()
    assert (done.rows, done.duplicates) == (7, 2)
    assert values(tmp_path) == {(DAYS[0], 1): newest, **OTHERS}
    assert contents(source) == before and not opened(tmp_path).verify(level="full").violations


def test_pieces_of_a_file_arrive_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(rows([5, 1, 1, 6], [50, 10, 11, 60], [1] * 4), tmp_path / "source" / "a.parquet", row_group_size=2)
    with injected(2):
        plan(tmp_path, tmp_path / "source", primary_key="id", partition_columns=[]).run()
    found = {row["id"]: row["v"] for row in opened(tmp_path).scan().to_arrow().to_pylist()}
    assert found == {5: 50, 1: 11, 6: 60}


def test_rows_that_wait_are_not_counted(tmp_path: Path, source: Path) -> None:
    assert plan(tmp_path, source, {"bucket": "-2"}).run().duplicates is None
    assert values(tmp_path) == {}
    opened(tmp_path).compact()
    assert values(tmp_path) == {(DAYS[0], 1): 11, **OTHERS}


def test_a_moved_source_goes_after_the_commit(tmp_path: Path, source: Path) -> None:
    planned = plan(tmp_path, source, files="move")
    assert planned.plan.deletes_source and planned.plan.placement == "rewrite"
    planned.run()
    assert not contents(source) and values(tmp_path) == {(DAYS[0], 1): 11, **OTHERS}


@pytest.mark.parametrize("placement", ["link", "copy"])
def test_files_as_they_are_have_no_keys(tmp_path: Path, source: Path, placement: str) -> None:
    with pytest.raises(UsageError, match="with a primary key"):
        plan(tmp_path, source, files=placement)


def a_null_in_the_key(source: Path) -> None:
    pq.write_table(rows([None], [1], [1]), source / f"dt={DAYS[0]}/z.parquet")


def a_day_that_is_none(source: Path) -> None:
    (source / "dt=tomorrow").mkdir()
    pq.write_table(rows([1], [1], [1]), source / "dt=tomorrow/z.parquet")


@pytest.mark.parametrize("harm", [a_null_in_the_key, a_day_that_is_none])
def test_rows_that_do_not_fit_leave_no_table(tmp_path: Path, source: Path, harm: Any) -> None:
    harm(source)
    before = contents(source)
    with pytest.raises((BadInput, UsageError)):
        plan(tmp_path, source, files="move").run()
    assert contents(source) == before and not contents(tmp_path / "t")


def test_partition_values_are_read_as_without_a_key(tmp_path: Path) -> None:
    for text in ("+3", "04"):
        (tmp_path / f"source/n={text}").mkdir(parents=True)
        pq.write_table(rows([1], [1], [1]), tmp_path / f"source/n={text}/a.parquet")
    plan(tmp_path, tmp_path / "source", primary_key="n,id", partition_columns=["n INT"]).run()
    assert sorted(opened(tmp_path).scan().to_arrow()["n"].to_pylist()) == [3, 4]


def test_a_file_that_changes_is_a_conflict(tmp_path: Path, source: Path) -> None:
    planned = plan(tmp_path, source, files="move")
    pq.write_table(rows([7], [70], [1]), source / f"dt={DAYS[1]}/c.parquet")
    before = contents(source)
    with pytest.raises(Conflict, match="has changed"):
        planned.run()
    assert contents(source) == before and not contents(tmp_path / "t")


def test_what_other_engines_would_misread_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "n": pa.array([7, 2**32 - 1], pa.uint32())}), tmp_path / "source/a.parquet")
    with pytest.raises(NotSupported, match="is stored as"):
        plan(tmp_path, tmp_path / "source", {"bucket": "-1"}, primary_key=None, partition_columns=None)
    plan(tmp_path, tmp_path / "source", primary_key="id", partition_columns=None).run()
    assert [row["n"] for row in opened(tmp_path).scan().to_arrow().to_pylist()] == [7, 2**32 - 1]


@pytest.mark.parametrize("asked", [{"primary_key": "dt,nothing"}, {"primary_key": "id", "options": {"bucket": "2"}}])
def test_a_key_that_cannot_be_is_refused(tmp_path: Path, source: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(PaimonError):
        plan(tmp_path, source, **asked).run()
    assert not contents(tmp_path / "t")


def test_tasks_get_only_their_own_files(tmp_path: Path) -> None:
    """What all tasks share does not grow with the number of files, and a split still has the values of its partition."""
    file = AdoptedFile("dt=2026-01-01/a.parquet", 100, ("2026-01-01",))
    sizes = []
    for count in (1, 1_000):
        files = [dataclasses.replace(file, path=f"dt=2026-01-01/{number}.parquet") for number in range(count)]
        footers = tuple(FileFooter(one, "parquet", (), 3, None) for one in files)
        values = {one.path: (pa.scalar(DAYS[0]),) for one in files}
        source = AdoptedRows(str(tmp_path), {}, footers, ("dt",), values)
        splits = pickle.loads(pickle.dumps(source.plan()))
        assert len(splits) == count and splits[-1].values == (pa.scalar(DAYS[0]),)
        sizes.append(len(pickle.dumps(source)))
    assert sizes[0] == sizes[1]
