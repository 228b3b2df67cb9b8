"""Changelogs that lead from snapshot to snapshot, in small pieces, and each row that one of them could lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.api.table import Table
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants import changelog_checks
from paimon_cli.invariants.changelog_checks import Replay, check_replay, replays
from paimon_cli.invariants.changelog_comparison import MEANINGS, OTHER_ROW, UNSHOWN
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND, RowKind
from tests.invariants.damaged_tables import Bench
from tests.maintain.test_tags import KEEP_ONE
from tests.pieces import injected
from tests.tables import compact, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
KEPT = {"changelog.time-retained": "9 d", "changelog.num-retained.max": "99", "write-only": "true"}
VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: dict[str, Mapping[str, str]] = {
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"changelog-producer": "lookup", **VECTORS},
}


def history(folder: Path, kind: str) -> TableContext:
    """Keys come, change, go and come back, in several commits between compactions; the last compaction only deletes."""
    context = make_table(folder / "t", COLUMNS, ["k"], bucket=2, options={**KEPT, **KINDS[kind]})
    for turn in range(3):
        write(context, [{"k": k, "v": f"{turn}"} for k in range(2 * turn, 10 + turn)])
        write(context, [{"k": k, "v": f"{turn}b", "_op": "-D" if k % 3 == 0 else "+U"} for k in range(turn, 10 + turn, 2)])
        shown(context, kind)
    write(context, [{"k": k, "v": None, "_op": "-D"} for k in (5, 7, 8, 11)])
    shown(context, kind)
    return context


def shown(context: TableContext, kind: str) -> None:
    if kind != "input":
        compact(context, strategy="full" if kind == "full-compaction" else "minor")


def outlived(folder: Path, kind: str) -> TableContext:
    """A tag at the first compaction, and one snapshot: all changes between them are in changelogs."""
    context = history(folder, kind)
    create_tag(context, "early", 3)
    expire_snapshots(context, KEEP_ONE)
    return TableContext.open(context.url)


def messages(context: TableContext, replay: Replay) -> list[str]:
    return [violation.message for violation in check_replay(context, replay)]


@pytest.mark.in_part(4)
@pytest.mark.parametrize("pieces", [1, 3, 1000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", [history, outlived])
def test_right_changelogs(made: Callable[[Path, str], TableContext], kind: str, pieces: int, tmp_path: Path) -> None:
    """However rows are cut into batches: changes of a key follow each other across batches, files and commits."""
    context = made(tmp_path, kind)
    with injected(pieces):
        found = list(replays(context))
        assert bool(found) == (made is history or kind != "input"), "of the input, each commit is compared by itself"
        assert [messages(context, replay) for replay in found] == [[]] * len(found)
    if made is outlived and found:
        assert {(replay.first, replay.last) for replay in found} == {(4, context.snapshots.latest_id())}
        assert max(len(bucket.files) for replay in found for bucket in replay.changes) >= 3


def _without(rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
    return pa.concat_batches([rows.slice(0, at), rows.slice(at + 1)])


def _twice(rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
    return pa.concat_batches([rows.slice(0, at + 1), rows.slice(at)])


def _other_value(rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
    values = rows.column("v").to_pylist()
    values[at] = "wrong"
    return rows.set_column(rows.schema.get_field_index("v"), rows.schema.field("v"), pa.array(values, pa.string()))


def _other_kind(rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
    kinds = rows.column(VALUE_KIND).to_numpy().copy()
    kinds[at] = {RowKind.INSERT: RowKind.DELETE, RowKind.DELETE: RowKind.INSERT}.get(kinds[at], kinds[at] ^ 3)
    return rows.set_column(rows.schema.get_field_index(VALUE_KIND), rows.schema.field(VALUE_KIND), pa.array(kinds, pa.int8()))


SLIPS = {"without": _without, "twice": _twice, "another value": _other_value, "another kind": _other_kind}


WRONG = [
    *((history, "input", slip) for slip in SLIPS if slip != "twice"),  # rows of a key in a commit are one row of it
    *((made, kind, slip) for made in (history, outlived) for kind in ("lookup", "full-compaction") for slip in SLIPS),
]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("made", "kind", "slip"), WRONG, ids=lambda of: of if isinstance(of, str) else of.__name__)
def test_each_wrong_row_of_a_changelog_is_found(
    made: Callable[[Path, str], TableContext], kind: str, slip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = made(tmp_path, kind)
    read, wrong = read_data_file, ("", 0)

    def slipped(context: TableContext, bucket_id: Any, file: DataFileMeta, names: Any, rows: int) -> Iterator[pa.RecordBatch]:
        batches = list(read(context, bucket_id, file, names, rows))
        if file.file_name != wrong[0]:
            return iter(batches)
        changed = SLIPS[slip](pa.concat_batches(batches), wrong[1])
        return iter([changed.slice(at, 3) for at in range(0, changed.num_rows, 3)])

    monkeypatch.setattr("paimon_cli.invariants.changelog_checks.read_data_file", slipped)
    tried = 0
    for replay in replays(context):
        for name, count in {file.file_name: file.row_count for bucket in replay.changes for file in bucket.files}.items():
            for at in range(count):
                wrong, tried = (name, at), tried + 1
                assert messages(context, replay), (replay.first, replay.last, name, at)
    assert tried > 10


@pytest.mark.parametrize("kind", KINDS)
def test_each_changelog_that_is_lost_is_missed(kind: str, tmp_path: Path) -> None:
    context = history(tmp_path, kind)
    bench, lost = Bench(Path(context.url)), 0
    for number in context.snapshots.ids():
        snapshot = context.snapshots.get(number)
        if snapshot.changelog_manifest_list is None:
            continue
        bench.publish(replace(snapshot, changelog_manifest_list=None, changelog_manifest_list_size=None))
        opened = bench.context
        assert any(messages(opened, replay) for replay in replays(opened, number)), number
        bench.publish(snapshot)
        lost += 1
    assert lost >= 3


def test_how_many_rows_are_wrong_is_counted_over_all_batches(tmp_path: Path) -> None:
    context = history(tmp_path, "lookup")
    bench, number = Bench(Path(context.url)), 3
    snapshot = context.snapshots.get(number)
    keys = {bucket.bucket: sum(file.row_count for file in bucket.files) for r in replays(context, number) for bucket in r.after}
    bench.publish(replace(snapshot, changelog_manifest_list=None, changelog_manifest_list_size=None))
    opened = bench.context
    with injected(1):
        found = {replay.after[0].bucket: messages(opened, replay) for replay in replays(opened, number)}
    assert len(found) == 2 and min(keys.values()) > 1
    for bucket, (message,) in found.items():
        assert f"no change for a key that was added: {keys[bucket]}, the first with k=" in message


def test_what_interrupts_the_chain_is_no_finding(tmp_path: Path) -> None:
    """Overwrites have no changelog, and what a producer shows that was not there before cannot be compared."""
    context = history(tmp_path, "lookup")
    write(context, [{"k": 70, "v": "alone"}], overwrite=True)
    write(context, [{"k": 71, "v": "a"}])
    shown(context, "lookup")
    write(context, [{"k": 72, "v": "a"}, {"k": 71, "v": "b"}])
    Table.open(context.url).alter.set({"changelog-producer": "full-compaction"})
    context = TableContext.open(context.url)
    compact(context, strategy="full")
    write(context, [{"k": 73, "v": "a"}])
    compact(context, strategy="full")
    found = list(replays(context))
    assert found[-1].last == context.snapshots.latest_id()
    assert [messages(context, replay) for replay in found] == [[]] * len(found)


def test_a_snapshot_that_came_back_without_its_changelog_is_no_finding(tmp_path: Path) -> None:
    """A tag keeps the rows of its snapshot, not the changelog."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": "input", "write-only": "true"})
    for number in (1, 2):
        write(context, [{"k": number, "v": "a"}])
        create_tag(context, f"of-{number}", number)
    expire_snapshots(context, KEEP_ONE)
    Table.open(context.url).rollback("of-1")
    context = TableContext.open(context.url)
    assert context.snapshots.ids() == [1] and context.snapshots.get(1).changelog_has_expired
    assert [messages(context, replay) for replay in replays(context)] == []
    write(context, [{"k": 3, "v": "a"}])
    assert [messages(context, replay) for replay in replays(context)] == [[]]


def test_buckets_of_a_new_count_are_compared_together(tmp_path: Path) -> None:
    """A key may have moved from one to another. Other partitions are left as they are."""

    def buckets(partition: bytes, total: int, *numbers: int) -> dict[BucketId, BucketFiles]:
        return {BucketId(partition, number): BucketFiles(partition, number, total, ()) for number in numbers}

    old = {**buckets(b"p", 2, 0, 1), **buckets(b"q", 2, 0, 1)}
    new = {**buckets(b"p", 3, 0, 1, 2), **buckets(b"q", 2, 0, 1)}
    found = list(changelog_checks._compared_together(old, new, buckets(b"p", 1, 1)))
    assert found == [[BucketId(b"p", number) for number in (0, 1, 2)], [BucketId(b"q", 0)], [BucketId(b"q", 1)]]


def test_buckets_are_compared_together_by_partition_and_none_is_left_out() -> None:
    def buckets(partition: bytes, total: int, *numbers: int) -> dict[BucketId, BucketFiles]:
        return {BucketId(partition, number): BucketFiles(partition, number, total, ()) for number in numbers}

    def together(old: dict[BucketId, BucketFiles], new: dict[BucketId, BucketFiles], *changes: BucketId) -> list[list[int]]:
        found = changelog_checks._compared_together(old, new, {each: BucketFiles(*each, 1, ()) for each in changes})
        return [[each.bucket for each in group] for group in found]

    grown = {**buckets(b"p", 3, 0, 1, 2), **buckets(b"q", 3, 3, 4)}
    assert together({**buckets(b"p", 2, 0, 1), **buckets(b"q", 2, 3)}, grown) == [[0, 1, 2], [3, 4]]
    assert together(buckets(b"p", 2, 0), {}, BucketId(b"q", 5)) == [[0], [5]] and together({}, buckets(b"p", 2, 0)) == [[0]]


def test_all_buckets_of_a_replay_are_compared(tmp_path: Path) -> None:
    """Those of a partition whose bucket count has changed are in one, and the files of each kind in several buckets."""
    for kind in ("lookup", "vectors"):
        context = history(tmp_path / kind, kind)
        by_step: dict[tuple[int, int], list[Replay]] = {}
        for replay in replays(context):
            by_step.setdefault((replay.first, replay.last), []).append(replay)
        joined = [some for some in by_step.values() if len(some) == 2]
        assert len(joined) > 2
        for one, other in joined:
            before = (*(one.before or ()), *(other.before or ()))
            both = replace(one, before=before, after=(*one.after, *other.after), changes=(*one.changes, *other.changes))
            assert messages(context, both) == messages(context, one) == messages(context, other) == []


ENGINES: dict[str, tuple[dict[str, str], list[list[dict[str, Any]]]]] = {
    "one row of a key that was written as an update": (
        {"merge-engine": "first-row", "changelog-producer": "lookup"},
        [
            [{"k": 1, "v": "a", "w": 1, "_op": "+U"}],
            [{"k": 1, "v": "b", "w": 1, "_op": "+I"}, {"k": 2, "v": "b", "w": 1, "_op": "+U"}],
        ],
    ),
    "rows of a key that one commit combines": (
        {"merge-engine": "partial-update", "changelog-producer": "input"},
        [[{"k": 1, "v": "a", "w": None}, {"k": 1, "v": None, "w": 2}, {"k": 2, "v": "a", "w": None}]],
    ),
    "rows of a key of which the last does not win": (
        {"sequence.field": "w", "changelog-producer": "input"},
        [[{"k": 1, "v": "a", "w": 9}, {"k": 1, "v": "b", "w": 2}], [{"k": 1, "v": "c", "w": 1}]],
    ),
    "rows of level 0 that reads skip": ({"changelog-producer": "input", **VECTORS}, [[{"k": 1, "v": "a", "w": 9}]]),
    "a key that one commit adds and deletes": (
        {"changelog-producer": "input"},
        [[{"k": 1, "v": "a", "w": 9, "_op": "+I"}, {"k": 1, "v": "a", "w": 9, "_op": "-D"}]],
    ),
    "retractions of keys that were never there": (
        {"changelog-producer": "input"},
        [[{"k": 1, "v": "a", "w": 9, "_op": "-D"}, {"k": 2, "v": "b", "w": 2, "_op": "+I"}]],
    ),
    "a change of columns that are not compared": (
        {
            "changelog-producer": "lookup",
            "changelog-producer.row-deduplicate": "true",
            "changelog-producer.row-deduplicate-ignore-fields": "w",
        },
        [[{"k": 1, "v": "a", "w": 9}], [{"k": 1, "v": "a", "w": 2}], [{"k": 1, "v": "b", "w": 2}]],
    ),
}


@pytest.mark.parametrize("case", ENGINES)
def test_what_engines_and_options_do_with_changes_is_no_finding(case: str, tmp_path: Path) -> None:
    options, commits = ENGINES[case]
    context = make_table(tmp_path / "t", {**COLUMNS, "w": "INT"}, ["k"], options={**options, "write-only": "true"})
    for rows in commits:
        write(context, rows)
        if options["changelog-producer"] == "lookup":
            compact(context, strategy="minor")
    found = list(replays(context))
    assert len(found) == len(commits) and [messages(context, replay) for replay in found] == [[]] * len(found)


def test_a_changelog_is_checked_by_the_columns_of_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a column was dropped later hides no wrong value."""
    context = make_table(tmp_path / "t", {**COLUMNS, "w": "INT"}, ["k"], options={"changelog-producer": "input"})
    write(context, [{"k": 1, "v": "a", "w": 1}])
    table = Table.open(context.url)
    table.alter.drop_column("v")
    context = Table.open(context.url).context
    (replay,), read = replays(context), read_data_file
    assert messages(context, replay) == []

    def slipped(context: TableContext, *rest: Any) -> Iterator[pa.RecordBatch]:
        return (_other_value(batch, 0) for batch in read(context, *rest))

    monkeypatch.setattr("paimon_cli.invariants.changelog_checks.read_data_file", slipped)
    assert messages(context, replay) != []


def test_files_that_cannot_be_read_are_damage_and_those_that_must_not_be_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = history(tmp_path, "lookup")
    replay = next(each for each in replays(context) if each.before and each.changes and each.after)
    assert replay.before is not None
    sides = (replay.before, replay.after, replay.changes)
    for side, others in zip(sides, (sides[1], sides[0], sides[0]), strict=True):
        elsewhere = {file.file_name for bucket in others for file in bucket.files}
        name = next(file.file_name for bucket in side for file in bucket.files if file.file_name not in elsewhere)
        (path,) = Path(context.url).rglob(name)
        content = path.read_bytes()
        path.write_bytes(content[:20])
        with monkeypatch.context() as patch:
            patch.setattr(TableContext, "can_open", lambda _, file, closed=name: file.file_name != closed)
            assert list(check_replay(TableContext.open(context.url), replay)) == []
        (violation,) = check_replay(TableContext.open(context.url), replay)
        assert (violation.code, violation.path) == ("PV031", str(path))
        path.write_bytes(content)


def test_the_first_wrong_key_is_named_and_all_of_a_kind_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind by itself, over all batches."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": "input"})
    write(context, [{"k": k, "v": "a"} for k in range(20)])
    (replay,), read = replays(context), read_data_file

    def slipped(context: TableContext, *rest: Any) -> Iterator[pa.RecordBatch]:
        rows = pa.concat_batches(list(read(context, *rest)))
        for at in (3, 8, 17):
            rows = _other_value(rows, at)
        yield pa.concat_batches([rows.slice(0, 5), rows.slice(7, 8), rows.slice(16)])

    monkeypatch.setattr("paimon_cli.invariants.changelog_checks.read_data_file", slipped)
    starts = "the changelog of snapshot 1 has "
    expected = [
        f"{starts}{MEANINGS[UNSHOWN]}: 3, the first with k=5",
        f"{starts}{MEANINGS[OTHER_ROW]}: 3, the first with k=3",
    ]
    for pieces in (3, 1000):
        with injected(pieces):
            assert messages(context, replay) == expected


def test_a_chain_has_a_beginning_and_ends_where_it_is_asked_to(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {**COLUMNS, "w": "INT"}, ["k"], options={"changelog-producer": "input"})
    for number in range(1, 5):
        write(context, [{"k": number, "v": "a", "w": 1}])

    def steps(context: TableContext, last: int | None = None) -> list[tuple[int, int]]:
        return [(replay.first, replay.last) for replay in replays(context, last)]

    assert steps(context) == [(1, 1), (2, 2), (3, 3), (4, 4)] and steps(context, 3) == [(3, 3)] and steps(context, 5) == []
    expiring = {"record-level.expire-time": "1 d", "record-level.time-field": "w"}
    assert steps(context.with_options(expiring)) == []
    clustered = {"pk-clustering-override": "true", "clustering.columns": "v", **VECTORS}
    assert steps(context.with_options(clustered)) == [], "the bounds of files are no keys, by which sections are found"
    create_tag(context, "one", 1)
    for number in (1, 2):
        Path(context.layout.snapshot(number)).unlink()
    Path(context.layout.earliest_hint).write_text("3")
    assert steps(TableContext.open(context.url)) == [(4, 4)], "nothing is known of the second commit"
    write(context, [{"k": 5, "v": "a", "w": 1}])
    Path(context.layout.snapshot(4)).write_text("{")
    assert steps(TableContext.open(context.url)) == []


def test_a_changelog_that_is_missing_between_others_interrupts_the_chain(tmp_path: Path) -> None:
    context = outlived(tmp_path, "lookup")
    assert list(replays(context))
    number = ChangelogHistory(context.storage, context.layout).ids()[6]
    Path(context.layout.changelog(number)).unlink()
    assert not list(replays(TableContext.open(context.url)))


def test_only_sections_are_compared_in_which_something_may_have_changed(tmp_path: Path) -> None:
    """Files, vectors and changelogs count, of the state before and of the one after."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    for first in (0, 20, 40, 43):
        write(context, [{"k": k, "v": "a"} for k in range(first, first + 5)])
    latest = context.snapshots.latest()
    assert latest is not None
    entries = sorted(context.manifests.live_entries(latest), key=lambda entry: entry.file.min_sequence_number)
    low, middle, high, beside = (entry.file for entry in entries)

    def sections(
        before: Collection[DataFileMeta] | None, after: Collection[DataFileMeta], changes: Collection[DataFileMeta] = ()
    ) -> list[set[str]]:
        sides = [(BucketFiles(b"", 0, 1, tuple(files)),) if files else () for files in (before or (), after, changes)]
        replay = Replay(1, 2, 0, None if before is None else sides[0], sides[1], sides[2])
        return sorted(changelog_checks._sections(context, replay), key=sorted)

    def names(*files: DataFileMeta) -> set[str]:
        return {file.file_name for file in files}

    assert sections((low, middle, high), (low, middle, high)) == []
    assert sections((low, middle), (low,)) == [names(middle)], "a file is gone"
    assert sections((low,), (low, middle)) == [names(middle)], "a file has come"
    assert sections((low, high), (low, high), (beside,)) == [names(high, beside)], "changes were shown"
    assert sections(None, (low,)) == [names(low)]
    index = np.array  # any other index file
    marked = BucketFiles(b"", 0, 1, (low,), (index,))  # type: ignore[arg-type]
    replay = Replay(1, 2, 0, (BucketFiles(b"", 0, 1, (low,)),), (marked,), ())
    assert list(changelog_checks._sections(context, replay)) == [names(low)], "rows were marked"


def test_a_tag_far_from_all_other_versions_costs_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is searched for beyond the first commit of which nothing is left. A damaged tag stops no other."""
    context = outlived(tmp_path, "lookup")
    tag = context.tags.content("early")
    assert tag is not None
    context.storage.overwrite(context.layout.tag("far"), tag.replace(b'"id" : 3', b'"id" : 4611686018427387904'))
    context.storage.overwrite(context.layout.tag("broken"), b"{")
    looked, find = list[int](), ChangelogHistory.find

    def looking(self: ChangelogHistory, number: int) -> object:
        looked.append(number)
        assert len(looked) < 50
        return find(self, number)

    monkeypatch.setattr(ChangelogHistory, "find", looking)
    newest = context.snapshots.latest_id()
    found = list(replays(context))
    assert newest is not None and [(replay.first, replay.last) for replay in found] == [(4, newest)] * 2
    assert [messages(context, replay) for replay in found] == [[], []], "of the changes of all commits and files"
    assert looked == [*range(4, newest), newest + 1]
