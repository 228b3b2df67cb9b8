"""What becomes of the rows of a table whose commit does not succeed at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.api.dead_letters import DeadLetters
from paimon_cli.api.ingest_call import IngestCall
from paimon_cli.api.ingest_rows import KIND_COLUMN, PlacedRows, StoppingEvent
from paimon_cli.api.ingest_run import IngestRun
from paimon_cli.api.ingest_site import IngestSite
from paimon_cli.api.ingest_target import MAX_COMMITS, IngestTarget, counts_of
from paimon_cli.api.runtime import Runtime
from paimon_cli.commit.deduplication import LastCommit
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import Conflict, NotSupported, Refused
from paimon_cli.ingest.changes.event_lines import EventLines, PositionUnit
from paimon_cli.ingest.changes.read_lag import LAG_PROPERTY, ReadLag
from paimon_cli.ingest.changes.read_marks import (
    MARKS_PROPERTY,
    TABLES_PROPERTY,
    BlockMarks,
    Mark,
    marks_of_text,
    marks_text,
    tables_of_text,
    tables_text,
)
from paimon_cli.ingest.changes.table_events import SourceTable
from paimon_cli.ingest.row_sources import ArrowRows
from paimon_cli.jobs.write_job import WriteSummary
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, RowKind
from paimon_cli.metadata.table_schema import TableSchema

SOURCE = '"source":{"db":"crm","table":"people"}'
EVENT = b'{"op":"c","after":{"id":1,"city":"Bonn"},"source":{"db":"crm","table":"people"}}'


@pytest.mark.parametrize("conflicts", [0, 1, 2])
def test_a_batch_without_marks_is_written_again_after_a_conflict(
    tmp_path: Path, conflicts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark, where the number of the batch alone says whether it was committed."""
    call = IngestCall(sources=(), into="crm", format="debezium", primary_key=("people=id",), commit_user="q")
    real, tries = IngestTarget._write, []

    def write(target: IngestTarget, *given: Any) -> Any:
        tries.append(target.next_id)
        if len(tries) <= conflicts:
            raise Conflict("files were changed by another job", "", "")
        return real(target, *given)

    monkeypatch.setattr(IngestTarget, "_write", write)
    with DeadLetters(None, ()) as letters:
        run = IngestRun(IngestSite(Runtime(), str(tmp_path)), call, letters)
        lines = EventLines("s", pa.array([EVENT], pa.large_binary()), np.array([0]), 1, PositionUnit.ROW)
        for _ in range(2):  # Spark repeats a batch
            run.apply("k", lines, 0, None)
            (target,) = run.targets.values()
            target.pending, target.marks, target.next_id = {}, {}, 7
            run.commit()
    table = Table.open(tmp_path / "crm.db" / "people")
    assert (target.failure, set(tries)) == (None, {7}) and table.scan().to_arrow().num_rows == 1
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [7]


def test_what_a_table_holds_is_forgotten_when_it_is_committed_or_dropped(tmp_path: Path) -> None:
    call = IngestCall(sources=(), into="crm", format="debezium", primary_key=("people=id",))
    with DeadLetters(None, ()) as letters:
        run = IngestRun(IngestSite(Runtime(), str(tmp_path)), call, letters)
        lines = EventLines("s", pa.array([EVENT], pa.large_binary()), np.array([0]), len(EVENT), PositionUnit.BYTE)
        for end in (run.reopen, lambda target: run.commit()):
            run.apply("k", lines, 0, None)
            (target,) = run.targets.values()
            assert target.held_bytes and target.pending
            end(target)
            assert (target.held, target.held_bytes, target.pending) == ([], 0, {})
        assert target.marks.keys() == {"k"}
    assert [snapshot.commit_identifier for snapshot in Table.open(tmp_path / "crm.db" / "people").snapshots()] == [0]


def event(key: int) -> str:
    return f'{{"op":"c","after":{{"id":{key},"city":"Bonn"}},{SOURCE}}}'


TRUNCATION = f'{{"op":"t",{SOURCE}}}'


def lines_of(*events: str, begin: int = 0, unit: str = PositionUnit.ROW) -> EventLines:
    texts = pa.array([text.encode() for text in events], pa.large_binary())
    return EventLines("s", texts, np.arange(begin, begin + len(events)), begin + len(events), unit)


def run_of(path: Path, letters: DeadLetters) -> IngestRun:
    call = IngestCall(sources=(), into="crm", format="debezium", primary_key=("people=id",))
    return IngestRun(IngestSite(Runtime(), str(path)), call, letters)


def test_a_truncation_that_another_process_has_made_is_made(tmp_path: Path) -> None:
    """What comes after it is committed once: by the process that is faster."""
    with DeadLetters(None, ()) as letters:
        one, other = run_of(tmp_path, letters), run_of(tmp_path, letters)
        for run in (one, other):
            run.apply("k", lines_of(event(1)), 0, None)
            run.commit()
        for run in (one, other):
            run.apply("k", lines_of(TRUNCATION, event(2), begin=1), 1, None)
        for run in (other, one):
            run.commit()
            assert [target.failure for target in run.targets.values()] == [None]
    table = Table.open(tmp_path / "crm.db" / "people")
    assert table.scan().to_arrow()["id"].to_pylist() == ["2"]
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [2, 1, 0]


def test_truncations_are_commits_of_their_own_between_others(tmp_path: Path) -> None:
    blocks = {"j": lines_of(event(1)), "k": lines_of(event(2), TRUNCATION, event(3), TRUNCATION, event(4))}
    for is_dry, numbers in ((False, [0, 1, 2, 3, 4]), (True, [0, 1, 2, 3, 4]), (False, [0, 1, 2, 3, 4])):
        with DeadLetters(None, ()) as letters:
            run = run_of(tmp_path, letters)
            run.is_dry = is_dry
            for key, lines in blocks.items():
                run.apply(key, lines, 0, None)
            run.commit()
        (target,) = run.targets.values()
        table = Table.open(tmp_path / "crm.db" / "people")
        assert target.failure is None and [one.commit_identifier for one in reversed(table.snapshots())] == numbers
        if not is_dry:
            assert target.marks.keys() == {"j", "k"} and target.marks["k"].position == 5
    assert [table.scan(snapshot=number).count() for number in range(1, 6)] == [2, 0, 1, 0, 1]


def test_truncations_at_the_end_of_the_events_are_not_applied_again(tmp_path: Path) -> None:
    with DeadLetters(None, ()) as letters:
        run = run_of(tmp_path, letters)
        run.apply("k", lines_of(event(1), TRUNCATION, TRUNCATION), 0, None)
        (target,) = run.targets.values()
        assert (target.failure, target.marks["k"].position, target.next_id) == (None, 2, 2)
        Table.open(tmp_path / "crm.db" / "people").write([{"id": "7"}])
        again = run_of(tmp_path, letters)
        again.apply("k", lines_of(event(1), TRUNCATION), 0, None)
        assert Table.open(tmp_path / "crm.db" / "people").scan().count() == 1


def test_a_truncation_is_not_lost_in_the_commit_of_another_process(tmp_path: Path) -> None:
    with DeadLetters(None, ()) as letters:
        one, other = run_of(tmp_path, letters), run_of(tmp_path, letters)
        for run in (one, other):
            run.apply("k", lines_of(event(1)), 0, None)
            run.commit()
        one.apply("j", lines_of(event(5)), 0, None)
        one.commit()
        other.apply("k", lines_of(TRUNCATION, begin=1), 1, None)
        assert [type(target.failure) for target in other.targets.values()] == [Conflict]


def test_truncations_of_a_dry_run_are_counted(tmp_path: Path) -> None:
    with DeadLetters(None, ()) as letters:
        run = run_of(tmp_path, letters)
        run.apply("k", lines_of(event(1)), 0, None)
        run.commit()
        dry = run_of(tmp_path, letters)
        dry.is_dry = True
        dry.apply("k", lines_of(event(1), TRUNCATION, event(2), TRUNCATION), 0, None)
    (target,) = dry.targets.values()
    assert (target.truncations, target.counts[RowKind.INSERT], target.held) == (2, 1, [])
    assert Table.open(tmp_path / "crm.db" / "people").scan().count() == 1


def test_a_truncation_needs_rows_of_one_table_and_events_in_one_order() -> None:
    def truncation(unit: str) -> Any:
        return SimpleNamespace(table=B, read=SimpleNamespace(lines=lines_of(TRUNCATION, begin=5, unit=unit)))

    other = {"other": Mark(1, "")}
    refused: list[tuple[dict[str, Any], str, str]] = [
        ({"sources": {A}}, PositionUnit.BYTE, "crm.a, crm.b, which cannot be told apart"),
        ({"sources": {B}, "pending": other}, PositionUnit.OFFSET, "several partitions"),
        ({"sources": {B}, "marks": other}, PositionUnit.OFFSET, "several partitions"),
    ]
    for state, unit, why in refused:
        target = target_of(None, **state)
        with pytest.raises(NotSupported, match="was emptied by a truncation") as failure:
            target._truncate(truncation(unit), marks_of())
        assert why in failure.value.why and (target.sources, target.end, target.truncations) == (state["sources"], None, 0)
    for state, unit in (({"pending": other}, PositionUnit.BYTE), ({"marks": {"k": Mark(1, "")}}, PositionUnit.OFFSET)):
        target = target_of(None, sources={B}, **state)
        target._truncate(truncation(unit), marks_of())
        assert target.truncations == 1 and target.sources == {B}


def test_rows_are_counted_by_kind_in_all_chunks() -> None:
    numbers = pa.DictionaryArray.from_arrays(pa.array([3, 0, 3]), pa.array(KIND_TEXTS))
    others = pa.DictionaryArray.from_arrays(pa.array([1, 1]), pa.array(["+U", "-U"]))
    kinds: list[Any] = [numbers, numbers[:0], others, others[1:]]
    found = counts_of(pa.table({KIND_COLUMN: pa.chunked_array(kinds[:2])}))
    assert found == {RowKind.DELETE: 2, RowKind.INSERT: 1}
    assert counts_of(pa.table({KIND_COLUMN: pa.chunked_array(kinds[2:])})) == {RowKind.UPDATE_BEFORE: 3}
    assert counts_of(pa.table({KIND_COLUMN: pa.chunked_array([["-D", "+I"], ["-D"]])})) == {RowKind.DELETE: 2, RowKind.INSERT: 1}


SCHEMA = TableSchema(
    id=0,
    fields=(DataField(0, "id", parse_sql_type("BIGINT NOT NULL")),),
    highest_field_id=0,
    partition_keys=(),
    primary_keys=("id",),
    options={},
    comment=None,
    time_millis=0,
)


@dataclass
class Opened:
    """A table as a target uses it. `last`: the last commit of its user; `outcomes`: of the writes that it will get."""

    last: LastCommit | None = None
    outcomes: list[Any] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    context: Any = field(default_factory=lambda: SimpleNamespace(schema=SCHEMA))

    def refresh(self) -> None:
        self.events.append("refresh")

    def check_commit(self) -> None:
        self.events.append("check")


A, B = SourceTable("crm", "a"), SourceTable("crm", "b")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Opened:
    table = Opened()
    monkeypatch.setattr("paimon_cli.api.ingest_target.last_commit", lambda context, user: table.last)
    return table


def target_of(table: Any, **given: Any) -> IngestTarget:
    def never(*arguments: Any) -> Any:
        raise AssertionError(arguments)

    return IngestTarget(name="t", user="u", keys=(), allows_append=False, create=never, define=never, table=table, **given)


def committed(identifier: int, marks: dict[str, Mark], *sources: SourceTable, lag: ReadLag | None = None) -> LastCommit:
    properties = {MARKS_PROPERTY: marks_text(marks, "u"), TABLES_PROPERTY: tables_text(set(sources))}
    return LastCommit(identifier, properties if lag is None else {**properties, LAG_PROPERTY: lag.text()})


def test_a_table_goes_on_where_its_last_commit_ended(table: Opened) -> None:
    target = target_of(None, sources={A})
    target.open(None)
    target.open(table)  # type: ignore[arg-type]
    opened: Any = target.table
    assert (opened, target.marks, target.sources, target.next_id) == (table, {}, {A}, 0)
    table.last = committed(7, {"k": Mark(3, "x")}, B, lag=ReadLag(5, None, 6))
    target.open(table)  # type: ignore[arg-type]
    assert (target.marks, target.sources, target.next_id) == ({"k": Mark(3, "x")}, {A, B}, 8)
    assert (target.newest_millis, target.followed_millis) == (5, 6)
    table.last = committed(8, {}, lag=ReadLag(1, None, 2))
    target.open(table)  # type: ignore[arg-type]
    assert (target.marks, target.next_id, target.newest_millis, target.followed_millis) == ({}, 9, 5, 6)
    told = committed(7, {"k": Mark(3, "x")}, B).properties or {}
    without = {MARKS_PROPERTY: told[MARKS_PROPERTY]}
    table.last = LastCommit(1, without)
    target.open(table)  # type: ignore[arg-type]
    assert target.next_id == 2, "older releases recorded no tables"
    lost: list[tuple[dict[str, str] | None, str]] = [
        (None, "has expired"),
        ({TABLES_PROPERTY: "[]"}, "has expired"),
        ({**told, MARKS_PROPERTY: "{"}, "cannot be read"),
        ({**told, TABLES_PROPERTY: "7"}, "cannot be read"),
    ]
    for properties, why in lost:
        table.last = LastCommit(1, properties)
        with pytest.raises(Refused, match="cannot determine how far user u has read") as refused:
            target.open(table)  # type: ignore[arg-type]
        assert why in refused.value.why


def test_what_was_not_committed_is_dropped_when_a_table_is_opened_again(table: Opened) -> None:
    rows = PlacedRows(ids(1), np.array([0]))
    for is_dry in (False, True):
        table.last, table.events = committed(7, {"k": Mark(3, "x")}), []
        held: Any = {"held": [ids(1)], "held_bytes": 9, "pending": {"j": Mark(1, "")}}
        target = target_of(table, block=[rows], end=4, is_dry=is_dry, **held)
        target.reopen()
        assert (target.block, target.end, target.held, target.held_bytes, target.pending) == ([], None, [], 0, {})
        assert (table.events, target.next_id) == (([], 0) if is_dry else (["refresh"], 8))


def ids(*numbers: int, kind: str = "+I") -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), KIND_COLUMN: pa.array([kind] * len(numbers))})


def placed(*numbers: int) -> PlacedRows:
    """Rows, each of the event at the position of its number."""
    return PlacedRows(ids(*numbers), np.array(numbers))


def marks_of(begin: int = 0, previous: Mark | None = None) -> BlockMarks:
    return BlockMarks("k", lines_of(*(event(key) for key in range(4)), begin=begin), previous)


def test_what_is_held_is_complete_up_to_its_mark(table: Opened) -> None:
    target = target_of(table)
    assert (target.end_at(2), target.end_at(3), target.end_at(2), target.end) == (True, False, False, 2)
    assert (target.end_at(1), target.end_at(3), target.end) == (True, False, 1)
    marks = marks_of()
    target.block = [placed(0, 2, 3), placed(1)]
    target.end = 3
    target.hold(marks)
    first = target.held_bytes
    assert [rows["id"].to_pylist() for rows in target.held] == [[0, 1, 2]] and first == target.held[0].nbytes > 0
    left: tuple[Any, ...] = (target.block, target.end, target.pending)
    assert left == ([], None, {"k": marks.before(3)}) and marks.before(3) != marks.end
    later = marks_of(4, marks.end)
    target.block = [placed(5), placed()]
    target.hold(later)
    assert [rows["id"].to_pylist() for rows in target.held] == [[0, 1, 2], [5]] and target.held_bytes > first
    assert target.pending == {"k": later.end}
    last = marks_of(8, later.end)
    target.hold(last)
    assert target.pending == {"k": last.end} and len(target.held) == 2, "events of others move the mark, too"
    fresh = target_of(table, end=0)
    fresh.hold(marks_of())
    assert (fresh.pending, fresh.end) == ({}, None), "there is no event before the first one"
    dry = target_of(table, is_dry=True, block=[placed(0, 1), placed(2)])
    dry.hold(marks)
    dry.block = [PlacedRows(ids(3, kind="-D"), np.array([3]))]
    dry.hold(marks)
    assert (dry.counts, dry.held, dry.held_bytes) == ({RowKind.INSERT: 3, RowKind.DELETE: 1}, [], 0)


def test_the_event_that_stops_a_table_is_that_of_the_rows_just_made(table: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StoppingEvent(7, Refused("no", "", ""))
    made = iter([placed(1), PlacedRows(ids(), np.array([]), stop), placed(8)])
    monkeypatch.setattr("paimon_cli.api.ingest_target.has_rows", lambda events, bad: events.rows)
    monkeypatch.setattr(IngestTarget, "rows", lambda target, events, bad: next(made))
    target, with_rows = target_of(table), SimpleNamespace(truncates=False, rows=True)
    found = [target.apply(with_rows, marks_of(), []) for _ in range(3)]  # type: ignore[arg-type]
    assert found == [None, stop, None] and len(target.block) == 3
    assert target.apply(SimpleNamespace(truncates=False, rows=False), marks_of(), []) is None  # type: ignore[arg-type]
    assert len(target.block) == 3


def test_a_commit_records_its_rows_and_what_is_behind(table: Opened) -> None:
    target = target_of(table, behind={"k": 5, "j": 2, "z": 100}, newest_millis=7, followed_millis=8, sources={A})
    counts = {RowKind.INSERT: 1, RowKind.UPDATE_BEFORE: 20, RowKind.UPDATE_AFTER: 3, RowKind.DELETE: 4}
    marks = {"k": Mark(1, ""), "j": Mark(1, ""), "file": Mark(1, "")}
    target.next_id = 9
    request = target.request(ArrowRows(ids(1), "rows"), marks, counts)
    properties = dict(request.properties)
    assert (request.op_column, request.commit_user, request.commit_id) == (KIND_COLUMN, "u", 9)
    assert (marks_of_text(properties[MARKS_PROPERTY]), tables_of_text(properties[TABLES_PROPERTY])) == (marks, {A})
    assert ReadLag.of(properties) == ReadLag(7, 7, 8, 1, 3, 4)
    assert ReadLag.of(dict(target._properties({"file": Mark(1, "")}))) == ReadLag(7, None, 8)


def written(*ids: int, already: bool = False) -> WriteSummary:
    snapshots: Any = tuple(SimpleNamespace(id=number) for number in ids)
    return WriteSummary(snapshots=snapshots, already_committed=already)


CONFLICT = Conflict("other", "", "")
J, K, L = {"j": Mark(1, "j")}, {"k": Mark(2, "k")}, {"k": Mark(3, "l")}


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of each write: the ids of its rows, its number, its marks."""
    asked: list[Any] = []

    def write(table: Opened, request: Any, on_written: None) -> Any:
        properties = dict(request.properties)
        rows = pa.concat_tables(batch for batch in [request.source.table])["id"].to_pylist()
        asked.append((rows, request.commit_id, marks_of_text(properties[MARKS_PROPERTY])))
        found = table.outcomes.pop(0)
        if isinstance(found, tuple):  # another process commits meanwhile
            table.last, found = found
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(Opened, "_write", write, raising=False)
    return asked


def test_commits_follow_each_other(table: Opened, writes: list[Any]) -> None:
    target = target_of(table, held=[ids(1), ids(2, kind="-D")], held_bytes=9, pending=K, marks=J)
    table.outcomes = [written(4, 5), written(*range(6, 110)), written(110)]
    target.commit()
    assert (target.held, target.held_bytes, target.pending) == ([], 0, {})
    assert (target.marks, target.next_id, target.snapshots) == ({**J, **K}, 1, [4, 5])
    target.held, target.pending = [ids(3)], L
    target.commit()
    assert (target.marks, target.next_id, target.snapshots) == ({**J, **L}, 2, list(range(10, 110)))
    target.held = [ids(4)]
    target.commit()
    assert writes == [([1, 2], 0, {**J, **K}), ([3], 1, {**J, **L}), ([4], 2, {**J, **L})]
    assert target.counts == {RowKind.INSERT: 3, RowKind.DELETE: 1} and target.snapshots[-1] == 110
    assert table.events == ["check"] * 3
    target.commit()
    assert len(writes) == 3, "nothing is held"


def test_another_process_of_the_same_user_is_met(table: Opened, writes: list[Any]) -> None:
    """`last`: what it has committed; the rest: what becomes of rows of the sources j and k, with marks of another one, i."""
    other, again = {"i": Mark(1, "i")}, {"i": Mark(5, "i")}
    mine = {**J, **K}
    for failure in (CONFLICT, written(already=True)):
        for last, marks in (
            (committed(3, {**other, **mine}), {**other, **mine}),  # these rows
            (committed(3, again), {**again, **mine}),  # rows of other sources
        ):
            writes.clear()
            target = target_of(table, held=[ids(1)], pending=mine, marks=other, next_id=3)
            table.outcomes = [(last, failure), written(9)]
            target.commit()
            assert (target.marks, target.counts, target.failure) == (marks, {RowKind.INSERT: 1}, None)
            is_theirs = marks == {**other, **mine}
            assert (len(writes), target.next_id, target.snapshots) == ((1, 4, []) if is_theirs else (2, 5, [9]))
            assert is_theirs or writes[1] == ([1], 4, {**again, **mine})
        for theirs in ({**other, **J}, {**other, **L}, {**other, **J, **L}):
            target = target_of(table, held=[ids(1)], pending=mine, marks=other, next_id=3)
            table.outcomes = [(committed(3, theirs), failure)]
            with pytest.raises(Conflict, match="another ingest of user u has committed"):
                target.commit()
            assert not target.counts and target.held == []


def test_a_commit_that_others_always_precede_ends(table: Opened, writes: list[Any]) -> None:
    table.last = committed(3, J)
    for failure, error in ((CONFLICT, "other"), (written(already=True), "events were not committed to t")):
        target = target_of(table, held=[ids(1)], pending=K, marks=J, next_id=4)
        table.outcomes = [failure] * 9
        with pytest.raises(Conflict, match=error):
            target.commit()
        assert len(table.outcomes) == 9 - MAX_COMMITS and not target.counts


def test_a_truncation_is_that_of_the_same_events(table: Opened) -> None:
    target = target_of(table)
    table.last = committed(3, K)
    target._expect_same(K)
    for last in (None, LastCommit(3, None), committed(3, L), committed(3, {**J, **K})):
        table.last = last
        with pytest.raises(Conflict, match="another ingest of user u"):
            target._expect_same(K)


def test_a_result_tells_what_was_done(table: Opened) -> None:
    counts = Counter({RowKind.INSERT: 1, RowKind.UPDATE_BEFORE: 20, RowKind.UPDATE_AFTER: 3, RowKind.DELETE: 4})
    target = target_of(table, sources={B, A}, counts=counts, truncations=2, bad_events=5, snapshots=[7, 8], added=["x INT"])
    target.widened, target.incomplete, target.created = ["y BIGINT"], 6, True
    done = target.result()
    assert (done.table, done.sources, done.state, done.error, done.error_code) == ("t", ("crm.a", "crm.b"), "applied", None, None)
    assert (done.inserts, done.updates, done.deletes, done.truncations, done.bad_events, done.incomplete) == (1, 3, 4, 2, 5, 6)
    assert (done.columns_added, done.types_changed, done.columns) == (("x INT",), ("y BIGINT",), ("id BIGINT NOT NULL",))
    assert (done.primary_key, done.snapshots, done.created) == (("id",), (7, 8), True)
    target.failure = CONFLICT
    assert (target.result().state, target.result().error) == ("stopped", "other")
    assert target.result().error_code == CONFLICT.exit_code and target.result().columns == done.columns


def test_a_schema_that_cannot_be_read_is_why_a_table_has_stopped(table: Opened) -> None:
    class Damaged:
        @property
        def schema(self) -> None:
            raise Refused("damaged", "", "")

    table.context = Damaged()
    target = target_of(table, failure=CONFLICT)
    assert (target.result().columns, target.result().primary_key, target.result().state) == ((), (), "stopped")
    target.failure = None
    with pytest.raises(Refused, match="damaged"):
        target.result()
