"""What a read tells Spark's reader, and what it leaves to Python, without a session."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paimon_cli import Table
from paimon_cli.errors import UsageError
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER
from paimon_cli.spark import reading
from paimon_cli.spark.native_files import Division, NativeFile
from paimon_cli.spark.reading import FrameCall
from paimon_cli.storage.whole_file import ScratchStorage

V1 = "avro, Parquet,orc"


def session(**confs: str) -> Any:
    """Something with the settings of a session."""
    values = {reading.CASE_SENSITIVE: "false", reading.V1_SOURCES: V1, **confs}

    def unset(key: str) -> None:
        del values[key]

    conf = SimpleNamespace(get=lambda key, *default: values.get(key, *default), set=values.__setitem__, unset=unset)
    return SimpleNamespace(conf=conf, values=values)


def native(
    number: int = 0, names: Sequence[str | None] = ("id",), hidden: Sequence[int] | None = None, **traits: Any
) -> NativeFile:
    words = None if hidden is None else np.array(hidden, np.int64)
    given: dict[str, Any] = {"size": 100 + number, "has_retractions": False, "may_hold_nan": False, "rows": 10 + number, **traits}
    return NativeFile(f"file:///f{number}", old_names=tuple(names), hidden=words, **given)


class Seen(list[Any]):
    """What a function was called with."""

    def noted(self, given: Any, answer: Any) -> Any:
        self.append(given)
        return answer


class Frame:
    """A DataFrame that remembers what was done to it."""

    def __init__(self, *done: Any) -> None:
        self.done = done

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: Frame(*self.done, (name, *given, *named.items()))


@pytest.fixture(autouse=True)
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "DataFrame", SimpleNamespace(unionByName=lambda one, other: [*one, *other]))
    monkeypatch.setattr(reading, "check_session", lambda spark: None)
    monkeypatch.setattr(reading, "check_running", lambda spark: None)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(
        tmp_path / "t", columns=["id BIGINT NOT NULL", "s ROW<a INT, b STRING>", "d DOUBLE"], primary_key="id", bucket=1
    )


def test_a_read_passes_on_who_may_read_and_how_many_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    monkeypatch.setattr(reading, "frame_of", lambda spark, scan, native=None: seen.noted(native, Frame()))
    limits = [
        reading.read(session(), table, limit=limit, native=native).done for limit, native in ((None, None), (0, True), (7, False))
    ]
    assert limits == [(), (("limit", 0),), (("limit", 7),)] and seen == [None, True, False]
    with pytest.raises(UsageError, match="order"):
        reading.read(session(), table, order_by="id")


def test_a_plan_counts_the_files_of_both_readers(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def split(*rows: int) -> Any:
        return SimpleNamespace(files=[SimpleNamespace(row_count=count, file_size=count * 10) for count in rows])

    files, splits = [native(0, hidden=[-1, 0, 5]), native(1), native(2, hidden=[3])], [split(1, 2), split(4)]
    found, seen = [Division(files, splits, {"odd": 3}), Division(files, [], {})], Seen()
    monkeypatch.setattr(reading, "_division", lambda spark, scan, native: seen.noted(native, found.pop(0)))
    monkeypatch.setattr(reading, "task_parts", lambda scan, splits: [*splits, "one more"])
    plan = reading.explain(session(), table, native=True)
    assert (plan.snapshot, plan.native_files, plan.native_rows, plan.native_size, plan.hidden_rows) == (None, 3, 33, 303, 68)
    assert (plan.python_files, plan.python_rows, plan.python_size, plan.python_tasks) == (3, 7, 70, 3) and plan.reasons == {
        "odd": 3
    }
    assert reading.explain(session(), table).python_tasks == 0 and seen == [True, None]


def test_a_planned_scan_takes_no_further_arguments(table: Table) -> None:
    scan = table.scan()
    assert reading._scan_of(scan, FrameCall(native=False)) is scan.rows
    others: list[dict[str, Any]] = [{"columns": "id"}, {"where": "id = 1"}, {"limit": 1}, {"snapshot": 1}, {"tag": "a"}]
    others += [{"as_of": "1d"}, {"row_kind": True}, {"incremental": "1..2"}, {"params": {"a": 1}}]
    for given in others:
        with pytest.raises(UsageError, match="the scan is planned"):
            reading._scan_of(scan, FrameCall(**given))
    for given in ({"branch": "b"}, {"warehouse": "w"}, {"options": {"a": "b"}}):
        with pytest.raises(UsageError, match="open"):
            reading._scan_of(scan, FrameCall(**given))
    with pytest.raises(UsageError, match="order_by of a scan"):
        reading._scan_of(table.scan(order_by="id"), FrameCall())


def test_a_frame_has_the_rows_of_both_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_native_frame", lambda spark, scan, files: list(files))
    monkeypatch.setattr(reading, "merged_frame", lambda spark, scan, splits: [*splits, "workers"])
    scratch = ScratchStorage.__new__(ScratchStorage)
    monkeypatch.setattr(ScratchStorage, "__del__", lambda self: None, raising=False)
    monkeypatch.setattr(reading, "_scratch_of_frames", [])
    found: list[Any] = []
    monkeypatch.setattr(reading, "_division", lambda *given: found[-1])
    frames = {("f", ""): ["f"], ("", "s"): ["s", "workers"], ("f", "s"): ["f", "s", "workers"], ("", ""): ["workers"]}
    for storage in (None, scratch):
        scan: Any = SimpleNamespace(context=SimpleNamespace(storage=storage))
        for (files, splits), frame in frames.items():
            found.append(Division(list(files), list(splits), {}))  # type: ignore[arg-type]
            assert reading.frame_of(session(), scan) == frame  # type: ignore[comparison-overlap]
    assert reading._scratch_of_frames == [scratch] * 4, "their files must not go before the frames"


def test_files_go_to_python_where_spark_would_mistake_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "all_to_python", lambda scan, why: why)
    files, scan = [native(0), native(1, hidden=[1])], SimpleNamespace()
    monkeypatch.setattr(reading, "divided", lambda scan, native: Division(files, [], {}))
    distinct = [True]
    monkeypatch.setattr(reading, "_distinguishes", lambda spark, scan: distinct[0])
    division = partial(reading._division, scan=scan)  # type: ignore[arg-type]
    plain = session(**{reading.V1_SOURCES: "orc"})
    for way in (None, True):
        assert division(session(), native=way).files == files
        assert str(division(plain, native=way)).startswith(f"{reading.V1_SOURCES} is without parquet")
    files[1] = native(1)
    assert division(plain, native=True).files == files, "no row is left out by its number"
    distinct[0] = False
    assert "upper and lower case" in str(division(session(), native=True))


def test_columns_that_are_added_to_leave_rows_out_must_be_free() -> None:
    assert reading._has_positions(session(), [native(0), native(1, ["a", None])])
    for name in ("_metadata", "_MetaData", "_paimon_SIZE", "_paimon_position", "_PAIMON_words"):
        assert not reading._has_positions(session(), [native(0), native(1, ["a", None, name])])
    sources = {"parquet": True, "PARQUET": True, "orc , parquet ": True, "parquet2,orc": False, "": False}
    assert {text: reading._has_positions(session(**{reading.V1_SOURCES: text}), []) for text in sources} == sources


def test_names_must_differ_in_more_than_case(tmp_path: Path) -> None:
    def distinguishes(columns: list[str], key: str | None = None, renamed: str = "", case: str = "false") -> bool:
        table = Table.create(
            tmp_path / str(len(list(tmp_path.iterdir()))), columns=columns, primary_key=key, bucket=1 if key else -1
        )
        table.write([{"id": 1}])
        if renamed:
            table.alter.rename_column(renamed, "other")
            table.refresh()
        return reading._distinguishes(session(**{reading.CASE_SENSITIVE: case}), table.scan().rows)

    assert distinguishes(["id BIGINT NOT NULL", "a ROW<b INT, c INT>", "b ROW<b INT>"], "id")
    for columns in (
        ["id INT", "a INT", "A INT"],
        ["id INT", "a ROW<b INT, B INT>"],
        ["id INT", "m MAP<INT, ARRAY<ROW<x INT, X INT>>>"],
    ):
        assert not distinguishes(columns) and distinguishes(columns, case="TRUE")
    assert not distinguishes(["id INT", "a INT", "A INT"], renamed="A"), "the file has both"
    for name in (f"{KEY_PREFIX}id".lower(), SEQUENCE_NUMBER.lower(), "_value_kind"):
        assert not distinguishes(["id BIGINT NOT NULL", f"{name} INT"], "id") and distinguishes(["id BIGINT", f"{name} INT"])
    assert distinguishes(["id BIGINT NOT NULL", f"{KEY_PREFIX}other INT".lower()], "id")


def test_files_that_differ_take_separate_scans(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[list[str]] = []

    def scanned(spark: Any, scan: Any, files: Sequence[NativeFile]) -> Any:
        groups.append([file.path[-2:] for file in files])
        return [Frame()]

    monkeypatch.setattr(reading, "_parquet", scanned)
    files = [native(0), native(1, ["old"]), native(2, has_retractions=True), native(3, may_hold_nan=True)]
    files += [
        native(4, hidden=[1], size=7),
        native(5, hidden=[2], size=7),
        native(6, hidden=[3], size=8),
        native(7),
        native(8, size=100),
    ]
    reading._native_frame(session(), table.scan().rows, files)
    assert sorted(groups) == [["f0", "f7", "f8"], ["f1"], ["f2"], ["f3"], ["f4", "f6"], ["f5"]]


def test_columns_of_the_condition_alone_are_not_shown(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_parquet", lambda *given: Frame())
    monkeypatch.setattr(reading, "spark_condition", lambda condition: "the condition")
    frame: Any = reading._native_frame(session(), table.scan(["d"], where="id > 1").rows, [native()])
    assert frame.done == (("where", "the condition"), ("select", "`d`"))
    frame = reading._native_frame(session(), table.scan(["d", "id"], where="id > 1").rows, [native()])
    assert frame.done == (("where", "the condition"),)
    assert reading._native_frame(session(), table.scan().rows, [native()]).done == ()


def parquet(table: Table, monkeypatch: pytest.MonkeyPatch, *files: NativeFile) -> Any:
    monkeypatch.setattr(reading, "_column", lambda column, old: (column.name, old))
    monkeypatch.setattr(reading, "nullable_schema", lambda fields: Frame(*(field.name for field in fields)))
    monkeypatch.setattr(reading, "_without_hidden", lambda spark, rows, files: rows.hide(len(files)))
    monkeypatch.setattr(reading, "classic_context", lambda spark: None)
    spark = session()
    spark.read = Frame()
    return reading._parquet(spark, table.scan(["id", "d"]).rows, files).done


def test_a_scan_of_spark_takes_what_files_hold_under_its_current_name(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    done = parquet(table, monkeypatch, native(0, ["id", "d"]), native(1, ["id", "d"]))
    assert [step[0] for step in done] == ["schema", "options", "parquet"] and done[0][1].done == ("id", "d")
    assert dict(done[1][1:]) == reading.AS_WRITTEN and done[2] == ("parquet", "file:///f0", "file:///f1")
    done = parquet(table, monkeypatch, native(0, ["old", None], may_hold_nan=True, hidden=[1]))
    assert done[0][1].done == ("old",) and dict(done[1][1:]) == reading.AS_WRITTEN | reading.WITHOUT_BOUNDS
    assert done[3:] == (("hide", 1), ("select", ("id", "old"), ("d", None)))
    done = parquet(table, monkeypatch, native(0, ["id", "d"], has_retractions=True))
    assert [(step[0], step[1]) for step in done[0][1].done[2:]] == [("add", "_VALUE_KIND")]
    assert done[3:] == (("where", "_VALUE_KIND IN (0, 2)"), ("select", ("id", "id"), ("d", "d")))
    assert {**reading.AS_WRITTEN, **reading.WITHOUT_BOUNDS}.keys() >= {"datetimeRebaseMode", "ignoreMissingFiles"}


@pytest.mark.parametrize("before", [None, "7"])
def test_the_setting_for_listing_is_that_of_the_user_again(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    spark = session(**({} if before is None else {reading.LISTED_BY_JOB: before}))
    given, paths = dict(spark.values), [f"file:///{number}" for number in range(reading.MAX_LISTED_FILES + 1)]
    monkeypatch.setattr(reading, "classic_context", lambda spark: "classic")
    with reading._listed_by_driver(spark, paths):
        assert spark.values[reading.LISTED_BY_JOB] == len(paths)
    assert spark.values == given
    with pytest.raises(KeyError), reading._listed_by_driver(spark, paths):
        raise KeyError
    assert spark.values == given and not reading._listing.locked()
    for few in (paths[1:], [f"hdfs{path}" for path in paths]):
        with reading._listed_by_driver(spark, few):
            assert spark.values == given


def test_bitmaps_belong_to_the_sizes_of_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, tables = session(), Seen()
    spark.createDataFrame = lambda table: tables.noted(table, Frame("bitmaps"))
    files = [native(0, hidden=[1, -2]), native(1, hidden=[3])]
    literal: Any = reading._without_hidden(spark, Frame(), files)  # type: ignore[arg-type]
    (where,) = literal.done
    assert where[0] == "where" and not tables
    for part in (
        "WHEN 100 THEN cast(split('1,-2', ',')",
        "WHEN 101 THEN cast(split('3', ',')",
        f"CASE {reading.SIZE_OF_FILE} WHEN",
    ):
        assert part in where[1]
    for limit, most in (("MAX_LITERAL_FILES", 1), ("MAX_LITERAL_ROWS", 20)):
        with monkeypatch.context() as patched:
            patched.setattr(reading, limit, most)
            joined: Any = reading._without_hidden(spark, Frame(), files)  # type: ignore[arg-type]
        assert tables.pop().to_pydict() == {reading._SIZE: [100, 101], reading._WORDS: [[1, -2], [3]]}
        steps = [step[0] for step in joined.done]
        assert steps == ["selectExpr", "join", "where", "drop"] and joined.done[1][2:] == (reading._SIZE, "left")
        assert joined.done[3][1:] == (reading._SIZE, reading.POSITION, reading._WORDS)
