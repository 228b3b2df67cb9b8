"""Files of other engines as a table: what is read, what stays, and what is left after a failure."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.errors import AlreadyExists, Conflict, NotSupported, PaimonError, PartialSuccess, UsageError

ROWS = {
    "id": pa.array([1, 2, 3], pa.int64()),
    "name": pa.array(["a", None, "c"]),
    "amount": pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(18, 2)),
    "share": pa.array([1.5, float("nan"), None]),
    "tags": pa.array([["x"], None, []], pa.list_(pa.string())),
}


def write(path: Path, first: int = 0, form: str = "parquet", **more: pa.Array) -> None:
    """A file of three rows, whose ids begin at `first`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({**ROWS, "id": pa.array([first, first + 1, first + 2], pa.int64()), **more})
    pq.write_table(table, path) if form == "parquet" else orc.write_table(table, path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two partition columns, with a null, a percent-encoded value, files without extensions, and what does not count."""
    root = tmp_path / "source"
    for number, directory in enumerate(("dt=2026-01-01/r=a%2Fb", "dt=2026-01-01/r=c", "dt=__HIVE_DEFAULT_PARTITION__/r=c")):
        write(root / directory / "part-0.snappy.parquet", number * 100)
        write(root / directory / "000001_0", number * 100 + 10, "orc")
        (root / directory / "_SUCCESS").touch()
        (root / directory / ".part-0.crc").write_bytes(b"x")
    return root


def catalog(tmp_path: Path, options: dict[str, str] | None = None) -> Catalog:
    return Catalog(str(tmp_path / "wh"), options, runtime=Runtime(engine="local"))


def adopted(tmp_path: Path, source: Path, **options: Any) -> Table:
    catalog(tmp_path).adopt(str(source), table=str(tmp_path / "t"), **options)
    return Table.open(str(tmp_path / "t"), runtime=Runtime(engine="local"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rows_partitions_and_the_source(tmp_path: Path, source: Path) -> None:
    before = contents(source)
    table = adopted(tmp_path, source, partition_columns=["dt DATE"])
    assert contents(source) == before, "the source is untouched"
    assert table.context.schema.partition_keys == ("dt", "r")
    found = table.scan().to_arrow()
    assert found.num_rows == 18 and found.schema.field("dt").type == pa.date32()
    by_id = {row["id"]: row for row in found.to_pylist()}
    assert by_id[0]["r"] == "a/b" and by_id[0]["dt"] == datetime.date(2026, 1, 1) and by_id[0]["tags"] == ["x"]
    assert by_id[200]["dt"] is None and by_id[211]["r"] == "c" and by_id[0]["amount"] == Decimal("1.50")
    assert table.scan(where="dt is null and r = 'c'").to_arrow()["id"].to_pylist().count(200) == 1
    assert sorted(table.scan(columns=["r"]).to_arrow()["r"].to_pylist()) == ["a/b"] * 6 + ["c"] * 12
    assert not table.verify(level="full").violations
    files = sorted(path for path in (tmp_path / "t").rglob("data-*"))
    assert len(files) == 6 and all(path.stat().st_nlink == 2 for path in files)


def test_the_table_is_a_table_like_others(tmp_path: Path, source: Path) -> None:
    table = adopted(tmp_path, source)
    first = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    table.compact(strategy="full")
    assert repr(sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])) == repr(first)
    table.delete("id = 0")
    table.write(pa.table({**ROWS, "id": pa.array([7, 8, 9], pa.int64()), "dt": ["x"] * 3, "r": ["y"] * 3}))
    assert table.scan().to_arrow().num_rows == 20 and not table.verify(level="full").violations
    table.expire(retain_max=1, retain_min=1)
    assert len(contents(source)) == 12, "the files of the source outlive those of the table"


def test_statistics_come_from_footers(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"source/f{number}.parquet", number * 100)
    table = adopted(tmp_path, tmp_path / "source")
    explained = table.scan(where="id = 101").explain()
    assert (explained.files, explained.files_to_read) == (3, 1)
    latest = table.context.snapshots.latest()
    assert latest is not None
    (entry, *_) = table.context.manifests.live_entries(latest)
    assert entry.file.value_stats_cols == ("id", "name", "amount", "share", "tags")
    assert entry.file.value_stats.null_counts == (0, 1, 1, 1, None)
    assert (entry.file.min_sequence_number, entry.file.max_sequence_number, entry.file.level) == (0, 0, 0)


@pytest.mark.parametrize("placement", ["copy", "move", "link"])
def test_placements(tmp_path: Path, source: Path, placement: str) -> None:
    before = contents(source)
    table = adopted(tmp_path, source, files=placement)
    assert table.scan().to_arrow().num_rows == 18 and not table.verify(level="full").violations
    left = contents(source)
    if placement == "move":
        assert left.keys() == {name for name in before if name.rpartition("/")[2] in ("_SUCCESS", ".part-0.crc")}
    else:
        assert left == before
    links = {path.stat().st_nlink for path in (tmp_path / "t").rglob("data-*")}
    assert links == {2 if placement == "link" else 1}


def test_a_dry_run_writes_nothing(tmp_path: Path, source: Path) -> None:
    plan = catalog(tmp_path).plan_adoption(str(source), table=str(tmp_path / "t"), partition_columns=["dt DATE"]).plan
    assert (plan.files, plan.rows, plan.partitions, plan.placement) == (6, 18, 3, "link")
    assert plan.partition_keys == ("dt", "r") and plan.columns[-2:] == ("dt DATE", "r STRING")
    assert not (tmp_path / "t").exists()


def test_in_a_catalog(tmp_path: Path) -> None:
    write(tmp_path / "source/f.parquet")
    opened = catalog(tmp_path)
    opened.create_database("shop")
    done = opened.adopt(str(tmp_path / "source"), table="shop.orders")
    assert done.rows == 3 and opened.table("shop.orders").scan().to_arrow().num_rows == 3
    with pytest.raises(AlreadyExists) as said:
        opened.adopt(str(tmp_path / "source"), table="shop.orders")
    assert "choose another name" in said.value.hint and "--if-not-exists" not in said.value.hint
    assert opened.table("shop.orders").scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("place", ["jobs.adoption.adopt_job.link_file", "commit.committer.Committer.commit"])
def test_a_failure_leaves_no_table(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    before, calls = contents(source), 0

    def fail(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        raise UsageError("no", "a test")

    monkeypatch.setattr(f"paimon_cli.{place}", fail)
    opened = catalog(tmp_path)
    opened.create_database("d")
    with pytest.raises(UsageError, match="no"):
        opened.adopt(str(source), table="d.t", files="move" if "commit" in place else None)
    assert calls and contents(source) == before
    assert not [path for path in (tmp_path / "wh/d.db").rglob("*") if path.is_file()]
    monkeypatch.undo()
    assert opened.adopt(str(source), table="d.t").rows == 18


@pytest.mark.parametrize("links", [True, False])
def test_a_file_replaced_after_it_was_placed_is_not_deleted(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    replaced, commit = source / "dt=2026-01-01/r=c/000001_0", Committer.commit

    def replacing(*args: Any, **kwargs: Any) -> Any:
        result = commit(*args, **kwargs)
        write(source / "new", 1000)
        (source / "new").replace(replaced)
        return result

    monkeypatch.setattr(Committer, "commit", replacing)
    monkeypatch.setattr("paimon_cli.jobs.adoption.adopt_job.can_link", lambda *places: links)
    with pytest.raises(PartialSuccess, match="1 were replaced by another writer") as said:
        adopted(tmp_path, source, files="move")
    assert said.value.details["left"] == ["dt=2026-01-01/r=c/000001_0"]
    assert pq.read_table(replaced, partitioning=None)["id"].to_pylist() == [1000, 1001, 1002]
    assert not [name for name in contents(source) if name.endswith("parquet")], "the others are moved"
    table = Table.open(str(tmp_path / "t"), runtime=Runtime(engine="local"))
    assert table.scan().to_arrow().num_rows == 18 and not table.verify(level="full").violations


@pytest.mark.parametrize("harm", ["replace", "delete"])
@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_changes_before_the_commit_ends_the_run(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, harm: str, links: bool
) -> None:
    monkeypatch.setattr("paimon_cli.jobs.adoption.adopt_job.can_link", lambda *places: links)
    planned = catalog(tmp_path).plan_adoption(str(source), table=str(tmp_path / "t"), files="move")
    changed = source / "dt=2026-01-01/r=c/000001_0"
    content = changed.read_bytes()
    changed.unlink()
    if harm == "replace":
        changed.write_bytes(content[:-1] + b"x")
    left = contents(source)
    with pytest.raises(Conflict, match="has changed"):
        planned.run()
    assert contents(source) == left and not [path for path in (tmp_path / "t").rglob("*") if path.is_file()]


def other_type(root: Path) -> None:
    write(root / "a.parquet")
    pq.write_table(pa.table({**ROWS, "id": ["1", "2", "3"]}), root / "b.parquet")


def other_columns(root: Path) -> None:
    write(root / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), root / "b.parquet")


def stored_nanoseconds(root: Path) -> None:
    write(root / "a.parquet", at=pa.array([1, 2, 3], pa.timestamp("ns")))


def stored_time_of_day(root: Path) -> None:
    write(root / "a.parquet", at=pa.array([1, 2, 3], pa.time64("us")))


def stored_unsigned(root: Path) -> None:
    write(root / "a.parquet", n=pa.array([1, 2, 3], pa.uint32()))


def column_in_both(root: Path) -> None:
    write(root / "id=1/a.parquet")


@pytest.mark.parametrize(
    ("harm", "match"),
    [
        (other_type, "column id is BIGINT there, and STRING here"),
        (other_columns, "column name is STRING there, and missing here"),
        (stored_nanoseconds, "column at .* is stored as INT64"),
        (stored_time_of_day, "column at .* is stored as INT64"),
        (stored_unsigned, "column n .* is stored as INT32"),
        (column_in_both, "in the files and in the names"),
    ],
)
def test_files_that_would_be_misread_are_not_supported(tmp_path: Path, harm: Callable[[Path], None], match: str) -> None:
    harm(tmp_path / "source")
    with pytest.raises(NotSupported, match=match):
        adopted(tmp_path, tmp_path / "source")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("place", ["s/inner", "s"])
def test_a_table_within_its_source_is_refused(tmp_path: Path, source: Path, place: str) -> None:
    with pytest.raises(UsageError, match="lies in"):
        catalog(tmp_path).adopt(str(source), table=f"{source.parent}/{place.replace('s', source.name, 1)}")


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize("year", [1, 1600, 1969, 2026, 9999])
def test_times_that_cannot_be_read_back_are_refused(tmp_path: Path, form: str, year: int) -> None:
    """0001-01-01 and 9999-12-31 stand for no time in many tables of Hive; Arrow would wrap them around."""
    root, rows = tmp_path / "s", pa.table({"t": pa.array([None, datetime.datetime(2026, 1, 2), datetime.datetime(year, 12, 31)])})
    root.mkdir()
    if form == "orc":
        orc.write_table(rows, root / "a.orc")
    else:
        pq.write_table(rows, root / "a.parquet", use_deprecated_int96_timestamps=True)
    if 1677 < year < 2262:
        assert adopted(tmp_path, root).scan().to_arrow()["t"].cast(pa.timestamp("us")).to_pylist()[2].year == year
        return
    with pytest.raises(NotSupported, match="a timestamp before 1677 or after 2262"):
        adopted(tmp_path, root)


@pytest.mark.parametrize("is_nested", [False, True])
def test_early_times_that_java_cannot_read_in_orc_are_refused(tmp_path: Path, is_nested: bool) -> None:
    """Java's Paimon ends on the whole file. Whole milliseconds, and the same rows in a table with a key, are fine."""
    times = [datetime.datetime(1960, 1, 1, 0, 0, 0, 123_000), datetime.datetime(2026, 1, 2, 0, 0, 0, 123_456)]
    early = [*times, datetime.datetime(1960, 1, 1, 0, 0, 0, 123_456)]
    for name, values in (("fine", times), ("early", early)):
        column = pa.array(values, pa.timestamp("us"))
        if is_nested:
            column = pa.StructArray.from_arrays([column], ["t"])
        (tmp_path / name).mkdir()
        fine = pa.array([None] * len(values), pa.timestamp("ns"))
        orc.write_table(pa.table({"id": range(len(values)), "fine": fine, "t": column}), tmp_path / name / "a.orc")
    before = contents(tmp_path)
    with pytest.raises(NotSupported, match=r"column t of .*/early/a\.orc holds a timestamp before 1970") as refused:
        catalog(tmp_path).plan_adoption(str(tmp_path / "early"), table=str(tmp_path / "t"))
    assert refused.value.exit_code == 8 and "Parquet" in (refused.value.hint or "") and contents(tmp_path) == before
    catalog(tmp_path, {"bucket": "1"}).adopt(str(tmp_path / "early"), table=str(tmp_path / "keyed"), primary_key="id")
    assert Table.open(str(tmp_path / "keyed")).count() == 3
    assert adopted(tmp_path, tmp_path / "fine").count() == 2


def test_the_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet")
    pq.write_table(pa.table(dict(reversed(ROWS.items()))), tmp_path / "source/b.parquet")
    table = adopted(tmp_path, tmp_path / "source")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 1, 2, 2, 3]
    assert table.scan(where="id = 0").to_arrow().num_rows == 1 and not table.verify(level="full").violations


@pytest.mark.parametrize(
    ("columns", "options", "match"),
    [
        (["x INT"], {}, "x is no partition column"),
        (["dt INT"], {}, "dt=2026-01-01: the value is not of type INT"),
        ([], {"bucket": "2"}, "adopted files have no buckets"),
    ],
)
def test_declarations_must_fit(tmp_path: Path, source: Path, columns: list[str], options: dict[str, str], match: str) -> None:
    with pytest.raises(PaimonError, match=match):
        catalog(tmp_path, options).adopt(str(source), table=str(tmp_path / "t"), partition_columns=columns)
    assert not [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
