"""Writes, updates and compactions leave the changelog that the table's producer promises: replayed, it gives the table's rows."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import FilesConflict, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.metadata.data_file import SOURCE_APPEND, ManifestEntry
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, SEQUENCE_NUMBER, VALUE_KIND
from tests.nightly import first
from tests.tables import compact, data_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def table(folder: Path, producer: str, **options: str) -> TableContext:
    return make_table(folder / "t", COLUMNS, ["k"], options={"changelog-producer": producer, **options})


def changelog_entries(context: TableContext, snapshot_id: int) -> list[ManifestEntry]:
    snapshot = context.snapshots.get(snapshot_id)
    if snapshot.changelog_manifest_list is None:
        assert snapshot.changelog_record_count is None
        return []
    manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    entries = [entry for batch in context.manifests.entries(manifests) for entry in batch]
    assert snapshot.changelog_record_count == sum(entry.file.row_count for entry in entries)
    return entries


def changelog(context: TableContext, snapshot_id: int) -> list[tuple[Any, ...]]:
    """The kind, values and sequence number of the changes in a snapshot's changelog files."""
    found: list[tuple[Any, ...]] = []
    names = [*context.schema.field_names, SEQUENCE_NUMBER, VALUE_KIND]
    for entry in changelog_entries(context, snapshot_id):
        for batch in read_data_file(context, entry.bucket_id, entry.file, names, 1000):
            values = canonical_rows(batch.select(context.schema.field_names), context.schema.fields)
            system = zip(batch.column(VALUE_KIND).to_pylist(), batch.column(SEQUENCE_NUMBER).to_pylist(), strict=True)
            found += [(KIND_TEXTS[kind], *row.values(), seq) for row, (kind, seq) in zip(values, system, strict=True)]
    return found


def update(context: TableContext, where: str, *assignments: str) -> None:
    run_update(context, UpdateRequest(where, assignments), LocalEngine(), NoProgress())


def test_input_is_kept_as_it_came(tmp_path: Path) -> None:
    context = table(tmp_path, "input")
    given = [(2, "a", "+I"), (1, "b", "+U"), (2, "c", "+I"), (3, None, "-D")]
    write(context, [{"k": key, "v": value, "_op": op} for key, value, op in given])
    assert changelog(context, 1) == [("+U", 1, "b", 1), ("+I", 2, "a", 0), ("+I", 2, "c", 2), ("-D", 3, None, 3)]
    (entry,) = changelog_entries(context, 1)
    file = entry.file
    assert file.file_name.startswith("changelog-") and (file.level, file.file_source) == (0, SOURCE_APPEND)
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (0, 3, 1)
    update(context, "k = 1", "v = 'B'")
    assert changelog(context, 2) == [("-U", 1, "b", 4), ("+U", 1, "B", 4)]
    update(context, "k = 2")
    assert changelog(context, 3) == [("-D", 2, "c", 5)]
    compact(context, strategy="full")
    assert changelog(context, 4) == [] and rows(context) == [{"k": 1, "v": "B"}]


def test_an_overwrite_has_no_changelog_files_as_in_java(tmp_path: Path) -> None:
    context = table(tmp_path, "input")
    write(context, [{"k": 1, "v": "a"}])
    write(context, [{"k": 2, "v": "b"}], overwrite=True)
    assert changelog(context, 2) == [] and len(data_files(context)) == 3


@pytest.mark.parametrize("spilled", [False, True])
def test_each_flush_has_its_changelog(tmp_path: Path, spilled: bool) -> None:
    options = {"write-buffer-size": "1 kb", "write-buffer-spillable": str(spilled).lower(), "changelog-file.format": "orc"}
    context = table(tmp_path, "input", **{"num-sorted-run.compaction-trigger": "100", **options})
    given = [{"k": number % 50, "v": f"{number} {'x' * 20}"} for number in range(300)]
    write(context, given, compact="none")
    files = [entry.file for entry in changelog_entries(context, 1)]
    assert (len(files) == 1) is spilled and {file.file_name.rpartition(".")[2] for file in files} == {"orc"}
    changes = sorted((row for row in changelog(context, 1)), key=lambda row: row[-1])
    assert [(row[1], row[2], row[3]) for row in changes] == [(row["k"], row["v"], seq) for seq, row in enumerate(given)]


def test_a_full_compaction_reports_what_it_changes(tmp_path: Path) -> None:
    context = table(tmp_path, "full-compaction")
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}, {"k": 3, "v": "c"}])
    assert changelog(context, 1) == []
    compact(context, strategy="full")
    (entry,) = changelog_entries(context, 2)
    assert (entry.file.level, entry.file.file_source) == (5, SOURCE_APPEND)
    assert changelog(context, 2) == [("+I", 1, "a", 0), ("+I", 2, "b", 1), ("+I", 3, "c", 2)]
    write(context, [{"k": 2, "v": "B"}, {"k": 3, "v": "c"}, {"k": 4, "v": "d"}])
    update(context, "k = 1")
    compact(context, strategy="full")
    changes = changelog(context, 5)
    assert changes == [
        ("-D", 1, "a", 0),
        *[("-U", 2, "b", 1), ("+U", 2, "B", 3)],
        *[("-U", 3, "c", 2), ("+U", 3, "c", 4)],
        ("+I", 4, "d", 5),
    ]


def test_equal_rows_are_not_reported_with_row_deduplicate(tmp_path: Path) -> None:
    context = table(tmp_path, "full-compaction", **{"changelog-producer.row-deduplicate": "true"})
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    compact(context, strategy="full")
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "B"}])
    compact(context, strategy="full")
    assert changelog(context, 4) == [("-U", 2, "b", 1), ("+U", 2, "B", 3)]


def test_an_upgrade_reports_no_changes(tmp_path: Path) -> None:
    context = table(tmp_path, "full-compaction", **{"num-sorted-run.compaction-trigger": "2", "num-levels": "4"})
    for number in range(4):
        write(context, [{"k": key, "v": f"{number}" * (1000 >> number)} for key in range(1000 >> 2 * number)], compact="none")
        compact(context, strategy="minor")
    replayed: dict[int, str] = {}
    for number in range(1, context.snapshots.latest().id + 1):  # type: ignore[union-attr]
        for kind, key, value, _ in changelog(context, number):
            if kind in ("-U", "-D"):
                assert replayed.pop(key) == value
            else:
                replayed[key] = value
    compact(context, strategy="full")
    for kind, key, value, _ in changelog(context, context.snapshots.latest().id):  # type: ignore[union-attr]
        if kind in ("-U", "-D"):
            assert replayed.pop(key) == value
        else:
            replayed[key] = value
    assert replayed == {row["k"]: row["v"] for row in rows(context)}


@pytest.mark.parametrize("producer", ["input", "full-compaction"])
def test_a_write_that_fails_leaves_no_changelog_files(producer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, producer, **{"num-sorted-run.compaction-trigger": "2"})
    write(context, [{"k": 1, "v": "a"}])
    before = data_files(context)

    def refuse(*_: object, **__: object) -> None:
        raise FilesConflict("taken", "by a test")

    monkeypatch.setattr("paimon_cli.commit.committer.Committer._check", refuse)
    with pytest.raises(FilesConflict):
        write(context, [{"k": 1, "v": "b"}])
    assert data_files(context) == before and context.snapshots.latest_id() == 1


def replayed(context: TableContext, state: dict[int, Any] | None = None, since: int = 1) -> dict[int, Any]:
    """The rows that the changelog makes of `state`; each -U and -D names the row that is there, each +I a new key."""
    state = {} if state is None else state
    updated: set[int] = set()
    for number in range(since, (context.snapshots.latest_id() or 0) + 1):
        for kind, key, *values, _ in changelog(context, number):
            if kind in ("-U", "-D"):
                assert state.pop(key) == values, (number, kind, key)
                updated |= {key} if kind == "-U" else set()
            else:
                assert key not in state and (kind == "+U") is (key in updated), (number, kind, key)
                updated.discard(key)
                state[key] = values
    assert not updated
    return state


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "max"},
}


def merged(engine: str, old: list[Any] | None, new: Mapping[str, Any]) -> list[Any] | None:
    """The result of the newest row of a key, by plain rules."""
    row = [new["v"], new["w"]]
    if engine == "deduplicate":
        return None if new.get("_op") == "-D" else row
    if old is None:
        return row
    if engine == "first-row":
        return old
    if engine == "partial-update":
        return [before if value is None else value for before, value in zip(old, row, strict=True)]
    return [old[0] if row[0] is None else row[0] + (old[0] or 0), max(old[1], row[1])]


PRODUCERS = [
    *((engine, "full-compaction", False) for engine in ENGINES if engine != "first-row"),
    *((engine, "lookup", False) for engine in ENGINES),
    *((engine, "lookup", True) for engine in ENGINES if engine != "first-row"),
]


@pytest.mark.in_part(6)
@pytest.mark.parametrize(("engine", "producer", "vectors"), PRODUCERS)
@pytest.mark.parametrize("seed", first(1, [1, 2]))
def test_the_changelog_replays_to_the_rows(engine: str, producer: str, vectors: bool, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{engine} {producer} {vectors} {seed}")
    options = {
        "changelog-producer": producer,
        "deletion-vectors.enabled": str(vectors).lower(),
        "num-sorted-run.compaction-trigger": "3",
        "target-file-size": chance.choice(["1 kb", "128 mb"]),
        "changelog-producer.row-deduplicate": chance.choice(["true", "false"]),
        "lookup-compact": chance.choice(["radical", "gentle"]),
        **ENGINES[engine],
    }
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT", "w": "INT"}, ["k"], options=options)
    state: dict[int, Any] = {}
    oracle: dict[int, Any] = {}
    seen = 0
    for _ in range(12):
        keys = chance.sample(range(40), chance.randint(1, 15))
        given: list[dict[str, Any]] = [{"k": key, "v": chance.choice([None, 1, 2, 3]), "w": chance.randint(1, 3)} for key in keys]
        if engine == "deduplicate":
            given = [{**row, "_op": chance.choice(["+I", "+I", "-D"])} for row in given]
        write(context, given)
        oracle |= {row["k"]: merged(engine, oracle.get(row["k"]), row) for row in given}
        oracle = {key: row for key, row in oracle.items() if row is not None}
        shown = {row["k"]: [row["v"], row["w"]] for row in rows(context)}
        assert shown == oracle or (context.mode.hides_level_0 and options["lookup-compact"] == "gentle")
        if chance.random() < 0.2:
            compact(context, strategy=chance.choice(["full", "minor"]))
        state = replayed(context, state, seen + 1)
        seen = context.snapshots.latest_id() or 0
    compact(context, strategy="full")
    state = replayed(context, state, seen + 1)
    assert state == oracle == {row["k"]: [row["v"], row["w"]] for row in rows(context)} and len(state) > 10


@pytest.mark.parametrize("vectors", [False, True])
def test_a_commit_waits_for_the_lookup_or_leaves_it_to_a_compaction(vectors: bool, tmp_path: Path) -> None:
    for waits in ("true", "false"):
        options = {"lookup-wait": waits, "deletion-vectors.enabled": str(vectors).lower()}
        context = table(tmp_path / waits, "lookup", **options)
        write(context, [{"k": 1, "v": "a"}])
        update(context, "k = 1", "v = 'b'")
        latest = context.snapshots.latest_id()
        if waits == "true":
            assert latest == 4 and changelog(context, 2) == [("+I", 1, "a", 0)]
            assert changelog(context, 4) == [("-U", 1, "a", 0), ("+U", 1, "b", 1)]
        else:
            assert latest == 2
            compact(context, strategy="minor")
            assert changelog(context, 3) == [("+I", 1, "b", 1)]


def test_full_compactions_at_every_nth_commit(tmp_path: Path) -> None:
    context = table(tmp_path, "full-compaction", **{"full-compaction.delta-commits": "2"})
    for number in range(1, 5):
        write(context, [{"k": 1, "v": f"{number}"}], commit_user="me", commit_id=number)
    assert [context.snapshots.get(number).commit_kind for number in range(1, 7)] == [
        "APPEND",
        "APPEND",
        "COMPACT",
        "APPEND",
        "APPEND",
        "COMPACT",
    ]
    assert changelog(context, 3) == [("+I", 1, "2", 1)] and changelog(context, 6) == [("-U", 1, "2", 1), ("+U", 1, "4", 3)]
    write(context, [{"k": 2, "v": "x"}])
    assert changelog(context, 8) == [("+I", 2, "x", 4)]


def test_the_changelog_of_an_upgraded_file_shows_its_rows_as_they_are(tmp_path: Path) -> None:
    """A merge would drop the value of a sequence group without a sequence; a row that is alone keeps it until it is merged."""
    columns = {**COLUMNS, "g": "INT"}
    options = {"merge-engine": "partial-update", "fields.g.sequence-group": "v", "changelog-producer": "lookup"}
    context = make_table(tmp_path / "t", columns, ["k"], bucket=1, options=options)
    write(context, [{"k": 1, "v": "alone", "g": None}, {"k": 2, "v": "a", "g": 1}])
    compact(context, strategy="full")
    assert rows(context) == [{"k": 1, "v": "alone", "g": None}, {"k": 2, "v": "a", "g": 1}]
    assert [change[:4] for change in changelog(context, 2)] == [("+I", 1, "alone", None), ("+I", 2, "a", 1)]
    write(context, [{"k": 1, "v": "merged", "g": None}])
    compact(context, strategy="full")
    assert rows(context)[0] == {"k": 1, "v": None, "g": None}
    table = Table.open(context.url)
    assert [tuple(change.values()) for change in table.changelog(3).to_arrow().to_pylist()] == [
        ("-U", 1, "alone", None),
        ("+U", 1, None, None),
    ]
    assert table.verify(level="full").errors == 0


def test_lookups_begin_and_cease_where_one_level_holds_all(tmp_path: Path) -> None:
    options = {**ENGINES["aggregation"], "num-sorted-run.compaction-trigger": "2", "num-levels": "5"}
    columns = {"k": "INT NOT NULL", "v": "INT", "w": "INT"}
    context = make_table(tmp_path / "t", columns, ["k"], options={"changelog-producer": "lookup", **options})
    for size in (400, 60, 1):
        write(context, [{"k": key, "v": 1, "w": 1} for key in range(size)])
    levels = {file.level for bucket in bucket_files(context, context.snapshots.latest()).values() for file in bucket.files}
    assert len(levels) > 1 and 0 not in levels
    before = rows(context)
    assert before[0] == {"k": 0, "v": 3, "w": 1}
    opened = Table.open(context.url)
    with pytest.raises(UsageError, match="compactions cannot start or stop looking up older rows yet"):
        opened.alter.set({"changelog-producer": "none"})
    with pytest.raises(UsageError, match="for one call"):
        Table.open(context.url, options={"changelog-producer": "input"}).compact(strategy="full")
    compact(context, strategy="full")
    opened.alter.set({"changelog-producer": "none"})
    again = TableContext.open(context.url)
    assert rows(again) == before
    write(again, [{"k": 0, "v": 1, "w": 1}])
    assert rows(again)[0] == {"k": 0, "v": 4, "w": 1}
    Table.open(context.url).alter.set({"changelog-producer": "lookup"})
    last = TableContext.open(context.url)
    compact(last, strategy="full")
    assert rows(last)[0] == {"k": 0, "v": 4, "w": 1}
