"""Tables with postponed buckets: rows wait, are distributed by a compaction, and then equal those of a table with buckets."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.bucket.postponed_files import replay_order, writer_of
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import SetOption
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import Conflict, DataConflict, FilesConflict, PaimonError, Refused, StorageUnavailable, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import compact_job
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.goal_merges import merges_of
from paimon_cli.jobs.postponed_rows import partitions_changed_since
from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale
from paimon_cli.jobs.row_scan import FollowedChanges, Increment, ReadRequest, plan_rows
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.maintenance import Quiet, RunLimits, maintain
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.table_round import TableRound
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.maintain.expire_partitions import drop_partitions
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    EMPTY_ROW,
    CommitMessage,
    DataFileMeta,
    DeletionVectorRange,
    FileChanges,
    IndexFileMeta,
    SimpleStats,
)
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.read.key_history import key_history, key_predicate
from paimon_cli.read.pruning import TableBounds
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.requests.upkeep import Allowance, GoalName
from paimon_cli.storage.local_storage import LocalStorage
from tests.goldens import golden_table
from tests.nightly import at_night
from tests.pieces import injected
from tests.rivals import beside, files_of
from tests.tables import Row, compact, data_files, live_files, make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "n": "INT", "text": "STRING"}
POSTPONED = {"postpone.batch-write-fixed-bucket": "false"}


def make(folder: Path, bucket: int = -2, **options: str) -> TableContext:
    own = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return make_table(folder, COLUMNS, ["dt", "id"], ["dt"], bucket, {**POSTPONED, **own})


def shown(context: TableContext) -> list[Row]:
    """The rows that a plain read shows, in order."""
    names = context.schema.field_names
    found: list[Row] = []
    for split in plan_scan(context, context.snapshots.latest()).splits:
        for batch in read_split(context, split, names):
            found += canonical_rows(batch, context.schema.fields_of(names))
    return sorted(found, key=json.dumps)


def row(number: int, n: int | None = 0, dt: str = "a", text: str | None = None, op: str | None = None) -> Row:
    return {"dt": dt, "id": number, "n": n, "text": text} | ({"_op": op} if op else {})


def bucket_counts(context: TableContext) -> dict[str, set[int]]:
    counts: dict[str, set[int]] = {}
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        counts.setdefault(context.partition_path_of(bucket.partition), set()).add(bucket.total_buckets)
    return counts


def test_rows_wait_as_they_came_until_they_are_distributed(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1), row(2), row(1, 2), row(9, dt="b")], commit_user="me", commit_id=3)
    assert shown(context) == []
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        assert (bucket.bucket, bucket.total_buckets) == (-2, -2)
        for file in bucket.files:
            assert file.file_name.startswith("data--u-me-s-0-w-") and file.file_name.endswith(".avro")
            assert (file.level, file.file_source) == (0, 0) and set(file.value_stats.null_counts or ()) == {None}
    assert sorted(f.row_count for b in bucket_files(context, context.snapshots.latest()).values() for f in b.files) == [1, 3]
    summary = compact(context)
    assert [s.commit_kind for s in summary.snapshots] == ["COMPACT"]
    assert shown(context) == [row(1, 2), row(2), row(9, dt="b")]
    assert not any("postpone" in name for name in live_files(context))


@pytest.mark.parametrize("user", ["a/b", "x-s-7-y", "x-w-y", "ä", "", "u" * 300, ".."])
def test_a_user_that_no_file_name_may_hold(user: str, tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1)], commit_user=user or None, commit_id=1 if user else None)
    (name,) = data_files(context)
    assert name.count("/") == 2 and len(name.rpartition("/")[2]) < 200
    writer = name.rpartition("/")[2].split("-s-")
    assert len(writer) == 2 and writer[1].startswith("0-w-"), "as other engines take it apart"


ENGINES: list[dict[str, str]] = [
    {},
    {"sequence.field": "n"},
    {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.text.aggregate-function": "last_value"},
    {"merge-engine": "first-row", "ignore-delete": "true"},
    {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "input"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "changelog-producer": "lookup"},
    {"merge-engine": "partial-update", "deletion-vectors.enabled": "true", "ignore-delete": "true"},
    {"write-only": "true", "file.format": "orc"},
]


@pytest.mark.in_part(6)
@pytest.mark.parametrize("options", ENGINES, ids=lambda options: ",".join(options.values()) or "plain")
@pytest.mark.parametrize("rounds", [4, at_night(10)])
def test_equals_a_table_with_buckets(options: dict[str, str], rounds: int, tmp_path: Path) -> None:
    draw = random.Random(7)
    keys = {**POSTPONED, **options}
    postponed = make_table(tmp_path / "p", COLUMNS, ["dt", "id"], ["dt"], -2, {**keys, "postpone.default-bucket-num": "3"})
    fixed = make_table(tmp_path / "f", COLUMNS, ["dt", "id"], ["dt"], 3, options)
    kinds = ["+I"] if options.get("fields.n.aggregate-function") else ["+I", "+I", "+U", "-D"]
    for number in range(rounds):
        batch = [
            row(draw.randrange(12), draw.choice([None, number]), draw.choice("ab"), draw.choice([None, str(number)]), op)
            for op in draw.choices(kinds, k=draw.randrange(1, 9))
        ]
        for context in (postponed, fixed):
            write(context, batch)
        if draw.random() < 0.5:
            strategy = draw.choice(["full", "minor"])
            for context in (postponed, fixed):
                compact(context, strategy=strategy)
    for context in (postponed, fixed):
        compact(context)
    assert shown(postponed) == shown(fixed) != []
    assert bucket_counts(postponed) == bucket_counts(fixed)


PLAIN_FILE = DataFileMeta("f", 1, 1, EMPTY_ROW, EMPTY_ROW, SimpleStats(), SimpleStats(), 0, 0, 0, 0)
BATCHES = {"postpone.batch-write-fixed-bucket": "true"}


def test_a_batch_gives_new_partitions_a_power_of_two_and_keeps_what_others_have(tmp_path: Path) -> None:
    context = make_table(
        tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], -2, {**BATCHES, "postpone.target-row-num-per-bucket": "10"}
    )
    write(context, [row(n, n) for n in range(45)] + [row(1, dt="b")])
    assert bucket_counts(context) == {"dt=a/": {8}, "dt=b/": {1}} and len(shown(context)) == 46
    write(context, [row(n, -n, "b") for n in range(100)])
    assert bucket_counts(context) == {"dt=a/": {8}, "dt=b/": {1}} and len(shown(context)) == 145
    assert live_files(context) == data_files(context), "what was counted is gone"
    limited = TableContext.open(context.url, {"postpone.batch-write-fixed-bucket.max-parallelism": "5"})
    write(limited, [row(n, n, "c") for n in range(100)])
    write(TableContext.open(context.url, {"postpone.default-bucket-num": "3"}), [row(1, dt="d")])
    write(context, [row(n, n, "a") for n in range(5)], overwrite=True)
    assert bucket_counts(context) == {"dt=a/": {1}, "dt=b/": {1}, "dt=c/": {5}, "dt=d/": {3}}


class Temporary(LocalStorage):
    """Remembers the sizes of postponed files that are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}

    def delete(self, path: str) -> None:
        if "/bucket-postpone/" in path:
            self.sizes[path] = self.file_size(path)
        super().delete(path)


def test_a_batch_counts_the_bytes_of_its_temporary_files(tmp_path: Path) -> None:
    """They are in the table's format. Java counts Avro, whose bytes make another number of buckets of these rows."""
    rows = [row(n, n % 7, text=f"{n * 2654435761 % 2**32:x}") for n in range(2000)]
    storage = Temporary()
    write(TableContext.open(make(tmp_path / "measured").url, BATCHES, storage=storage), rows)
    assert {path.rpartition(".")[2] for path in storage.sizes} == {"parquet"}
    counted = sum(storage.sizes.values())
    write(make(tmp_path / "waits"), rows)
    waiting = sum(path.stat().st_size for path in (tmp_path / "waits").rglob("*.avro"))
    target = -(-min(counted, waiting) // 4)
    assert power_of_two(counted / target) != power_of_two(waiting / target)
    context = make(tmp_path / "t", postpone__target_size_per_bucket=f"{target} b")
    write(TableContext.open(context.url, BATCHES), rows)
    assert bucket_counts(context) == {"dt=a/": {power_of_two(counted / target)}}
    waits = TableContext.open(str(tmp_path / "waits"), {"postpone.target-size-per-bucket": f"{target} b"})
    compact(waits)
    assert bucket_counts(waits) == {"dt=a/": {-(-waiting // target)}}


def power_of_two(least: float) -> int:
    return next(1 << power for power in range(20) if 1 << power >= least)


def test_a_compaction_counts_exactly_and_keeps_what_a_partition_has(tmp_path: Path) -> None:
    context = make(tmp_path / "t", postpone__target_row_num_per_bucket="10")
    write(context, [row(n, n) for n in range(45)])
    write(context, [row(n, n) for n in range(10)])
    compact(context)
    assert bucket_counts(context) == {"dt=a/": {6}}, "55 rows wait, of 45 keys"
    write(context, [row(n, n) for n in range(500)])
    compact(TableContext.open(context.url, {"postpone.default-bucket-num": "2"}))
    assert bucket_counts(context) == {"dt=a/": {6}} and len(shown(context)) == 500


def test_rows_that_are_postponed_during_a_compaction_go_on_waiting(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    summary = compact(beside(context, lambda: write(context, [row(1, 2), row(2, 2)])))
    assert (summary.conflicts, shown(context)) == (0, [row(1, 1)])
    compact(context)
    assert shown(context) == [row(1, 2), row(2, 2)]


@pytest.mark.parametrize("on_conflict", ["fail", "retry", "skip"])
def test_of_two_compactions_one_gives_the_rows_out(on_conflict: str, tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1), row(1, 1, "b")])

    def other() -> None:
        compact(context, partition=({"dt": "a"},))

    def ours() -> object:
        return compact(beside(context, other), on_conflict=on_conflict)

    if on_conflict == "retry":
        ours()
    else:
        with pytest.raises(PaimonError) as failure:
            ours()
        assert failure.value.exit_code == 9, "partial success"
    assert shown(context) == [row(1, 1), row(1, 1, "b")], "the other partition is not held back"
    assert not any("postpone" in name for name in live_files(context))
    kept = {name for name in data_files(context) if "postpone" not in name}
    assert kept == live_files(context), "what lost left no file"


def test_a_partition_in_which_rows_were_only_marked_has_changed(tmp_path: Path) -> None:
    context = make(tmp_path / "t", deletion_vectors__enabled="true")
    write(context, [row(1, 1), row(1, 1, "b")])
    compact(context)
    read = context.snapshots.latest_id()
    first, second = (bucket for bucket in bucket_files(context, context.snapshots.latest()).values())
    vector = DeletionVectorRange(first.files[0].file_name, 1, 22, 1)
    index = IndexFileMeta(DELETION_VECTORS, "index-1-0", 30, 1, (vector,))
    marks = CommitMessage(*first.bucket_id, 1, append=FileChanges(added_indexes=(index,)), read_snapshot_id=read)
    Committer(context).commit([marks], fresh_identity(context))
    ours = [CommitMessage(*bucket.bucket_id, 1, read_snapshot_id=read) for bucket in (first, second)]
    assert partitions_changed_since(context, ours) == {first.partition}


def test_partitions_that_different_snapshots_have_changed(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1), row(1, 1, "b"), row(1, 1, "c")])
    compact(context)
    read = context.snapshots.latest_id()
    buckets = [*bucket_files(context, context.snapshots.latest()).values()]
    for number, bucket in enumerate(buckets[:2]):
        added = FileChanges(added=(replace(bucket.files[0], file_name=f"data-{number}.parquet", level=0),))
        message = CommitMessage(*bucket.bucket_id, 1, append=added, read_snapshot_id=context.snapshots.latest_id())
        Committer(context).commit([message], fresh_identity(context))
    ours = [CommitMessage(*bucket.bucket_id, 1, read_snapshot_id=read) for bucket in buckets]
    assert partitions_changed_since(context, ours) == {bucket.partition for bucket in buckets[:2]}


def test_an_error_after_the_first_commit_says_that_rows_have_their_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    compact(context)
    write(context, [row(1, 2)])

    def break_down(*_: object) -> None:
        raise StorageUnavailable("the storage is away", "it does not answer")

    monkeypatch.setattr(compact_job, "commit_results", break_down)
    with pytest.raises(StorageUnavailable) as failure:
        compact(context)
    latest = context.snapshots.latest()
    assert latest is not None and shown(context) == [row(1, 2)]
    assert failure.value.why == f"it does not answer; the postponed rows already have their buckets, since snapshot {latest.id}"
    assert failure.value.details["snapshots"] == [latest.id]
    with pytest.raises(StorageUnavailable) as failure:
        compact(context)
    assert failure.value.why == "it does not answer", "no row waited"


def test_a_batch_conflicts_with_rows_that_were_distributed_meanwhile(tmp_path: Path) -> None:
    """They are older than the batch but have equal sequence numbers, so they could win."""
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    compact(context)
    write(context, [row(1, 2)])
    before = data_files(context)
    with pytest.raises(DataConflict) as failure:
        write(beside(context, lambda: compact(context), options=BATCHES), [row(1, 3)], compact="none")
    assert failure.value.exit_code == 5 and shown(context) == [row(1, 2)]
    assert not any(name not in live_files(context) for name in data_files(context) - before)
    write(TableContext.open(context.url, BATCHES), [row(1, 3)])
    assert shown(context) == [row(1, 3)]


def test_a_compaction_that_conflicts_with_a_batch_starts_again(tmp_path: Path) -> None:
    """Its rows are older than those of the batch."""
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    compact(context)
    write(context, [row(1, 2)])
    batches = TableContext.open(context.url, BATCHES)
    summary = compact(beside(context, lambda: write(batches, [row(1, 3), row(2, 3)], compact="none")))
    assert summary.conflicts == 1 and shown(context) == [row(1, 2), row(2, 3)], "waiting rows count from their compaction on"


def test_a_batch_with_another_number_of_buckets_is_refused(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    four = {**BATCHES, "postpone.default-bucket-num": "4"}
    with pytest.raises(Conflict) as failure:
        write(beside(context, lambda: compact(context), options=four), [row(n, 3) for n in range(9)])
    assert isinstance(failure.value, FilesConflict | DataConflict) and shown(context) == [row(1, 1)]
    assert bucket_counts(context) == {"dt=a/": {1}}


def read(context: TableContext, **request: Any) -> list[Row]:
    """What `read` shows, in order."""
    table = open_table(locate_table(context.url), dict(context.options.raw))
    scan = plan_rows(table, ReadRequest(**request))
    found = [row for batch in scan.rows() for row in canonical_rows(batch, scan.fields)]
    assert scan.count() == len(found)
    return sorted(found, key=json.dumps)


@pytest.mark.in_part(6)
@pytest.mark.parametrize("options", ENGINES, ids=lambda options: ",".join(options.values()) or "plain")
@pytest.mark.parametrize("rounds", [2, at_night(4)])
def test_merge_on_read_shows_what_a_compaction_would(options: dict[str, str], rounds: int, tmp_path: Path) -> None:
    draw = random.Random(3)
    context = make_table(
        tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], -2, {**POSTPONED, **options, "postpone.target-row-num-per-bucket": "7"}
    )
    merging = TableContext.open(context.url, {"postpone.merge-on-read": "true"})
    kinds = ["+I"] if options.get("fields.n.aggregate-function") else ["+I", "+I", "+U", "-D"]
    for number in range(rounds):
        for _ in range(draw.randrange(1, 3)):
            ops = draw.choices(kinds, k=draw.randrange(1, 9))
            write(context, [row(draw.randrange(9), number, draw.choice("ab"), draw.choice([None, "x"]), op) for op in ops])
        before = read(merging), read(merging, where="id >= 4 and dt = 'a'"), read(merging, where="n = 2", columns="id")
        files = data_files(context)
        compact(context)
        after = read(context), read(context, where="id >= 4 and dt = 'a'"), read(context, where="n = 2", columns="id")
        assert before == after and read(merging) == read(context)
        assert files <= data_files(context), "the read left nothing behind"


@pytest.mark.parametrize("waits", [False, True])
def test_each_partition_is_rescaled_by_itself_and_waiting_rows_keep_waiting(waits: bool, tmp_path: Path) -> None:
    """Rescaling a postponed table once deleted the rows that waited (apache/paimon #7865)."""
    context = make(tmp_path / "t")
    write(context, [row(n, n, dt) for n in range(20) for dt in "ab"])
    compact(context)
    if waits:
        write(context, [row(n, -1) for n in range(5)] + [row(50, 5, "c")])
    table = open_table(locate_table(context.url))
    plan = plan_rescale(context, RescaleOptions(4, partition=({"dt": "a"},)))
    assert [(p.partition, p.buckets, p.new_buckets, p.rows) for p in plan.partitions] == [("dt=a", 1, 4, 20)]
    before = shown(context)
    run_rescale(table, plan, LocalEngine(), NoProgress())
    assert shown(context) == before and bucket_counts(context)["dt=a/"] == ({4, -2} if waits else {4})
    assert TableContext.open(context.url).options.bucket == -2
    compact(context)
    assert bucket_counts(context)["dt=a/"] == {4} and bucket_counts(context)["dt=b/"] == {1}
    expected = [row(n, -1 if waits and n < 5 else n) for n in range(20)]
    assert [r for r in shown(context) if r["dt"] == "a"] == sorted(expected, key=json.dumps)
    run_rescale(table, plan_rescale(context, RescaleOptions(2)), LocalEngine(), NoProgress())
    assert set.union(*bucket_counts(context).values()) == {2} and len(shown(context)) == (41 if waits else 40)


def test_a_rescale_conflicts_with_rows_that_were_distributed(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    compact(context)
    write(context, [row(2, 2)])
    plan = plan_rescale(context, RescaleOptions(4))
    compact(context)
    with pytest.raises(DataConflict):
        run_rescale(open_table(locate_table(context.url)), plan, LocalEngine(), NoProgress())
    assert shown(context) == [row(1, 1), row(2, 2)]


def test_the_number_of_buckets_can_be_fixed_once_nothing_waits(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    table = open_table(locate_table(context.url))
    with pytest.raises(UsageError, match="bucket cannot change from -2 to 1 yet") as refusal:
        alter_table(table, [SetOption("bucket", "1")])
    assert refusal.value.hint == f"run this first, while nothing writes: paimon-cli compact {context.url}"
    compact(context)

    stale = TableContext.open(context.url)
    alter_table(table, [SetOption("bucket", "1")])
    with pytest.raises(FilesConflict, match="was changed to 1"):
        write(stale, [row(2, 2)])
    fixed = TableContext.open(context.url)
    write(fixed, [row(3, 3)])
    assert shown(fixed) == [row(1, 1), row(3, 3)]
    alter_table(table, [SetOption("bucket", "-2")])
    postponed = TableContext.open(context.url)
    write(postponed, [row(4, 4)])
    assert shown(postponed) == [row(1, 1), row(3, 3)]


def changes(context: TableContext, first: int, last: int) -> list[tuple[str, int, int | None]]:
    table = open_table(locate_table(context.url))
    found = FollowedChanges(table, ReadRequest(row_kind=True), first, last).rows()
    return [
        tuple(change)
        for batch in found
        for change in zip(*(batch.column(n).to_pylist() for n in ("rowkind", "id", "n")), strict=True)
    ]


def test_a_stream_sees_rows_when_they_are_written_and_not_again(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(2, 1, op="+I"), row(1, 1, op="+I"), row(2, 2, op="+U"), row(3, 3, op="-D")])
    compact(context)
    write(TableContext.open(context.url, BATCHES), [row(4, 4)], compact="none")
    latest = context.snapshots.latest()
    assert latest is not None
    assert changes(context, 1, latest.id) == [("+I", 2, 1), ("+I", 1, 1), ("+U", 2, 2), ("-D", 3, 3), ("+I", 4, 4)]
    batch = open_table(locate_table(context.url))
    scan = plan_rows(batch, ReadRequest(increment=Increment("0", str(latest.id))))
    assert scan.count() == 1, "as in Java, increments of a query are about buckets"


def test_what_waits_is_a_finding_with_a_cure(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    for number in range(12):
        write(context, [row(9 - number, number), row(number, number)])
    (finding,) = Table.open(context.url).describe().health
    assert (finding.code, finding.command) == ("PD023", f"paimon-cli compact {context.url}")
    assert finding.message == "24 rows in 12 files wait for their buckets; plain reads do not show them"
    compact(context)
    assert Table.open(context.url).describe().health == ()


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}, {"changelog-producer": "lookup"}])
def test_rows_in_buckets_are_changed_unless_others_wait_there(options: dict[str, str], tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], -2, {**POSTPONED, **options})
    write(context, [row(n, n, dt) for n in range(4) for dt in "ab"])
    compact(context)
    write(context, [row(0, 9, "b")])

    def change(where: str, *assignments: str) -> int:
        request = UpdateRequest(where, assignments)
        return run_update(context, request, LocalEngine(), NoProgress()).rows

    assert change("dt = 'a' and id < 2", "n = n + 10") == 2
    assert change("dt = 'a' and id = 3") == 1
    expected = [row(0, 10), row(1, 11), row(2, 2), *(row(n, n, "b") for n in range(4))]
    assert shown(context) == sorted(expected, key=json.dumps)
    with pytest.raises(Refused) as refusal:
        change("id = 1", "n = 0")
    assert refusal.value.what == "rows of dt=b are waiting for their buckets"
    compact(context)
    assert change("id = 0", "n = 0") == 2
    assert [r for r in shown(context) if r["id"] == 0] == [row(0, 0), row(0, 0, "b")]


def test_a_change_that_conflicts_with_distributed_rows_starts_again(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    compact(context)

    def other() -> None:
        write(context, [row(1, 5)])
        compact(context)

    request = UpdateRequest("id = 1", ("n = n + 1",))
    summary = run_update(beside(context, other), request, LocalEngine(), NoProgress())
    assert summary.conflicts == 1 and shown(context) == [row(1, 6)]


def test_a_job_that_dies_leaves_what_waits_and_what_was_there(tmp_path: Path) -> None:
    """Only the commit changes anything; the files of a dead compaction are found as orphans."""
    context = make(tmp_path / "t")
    write(context, [row(1, 1)])
    before = files_of(context)

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(beside(context, die))
    assert shown(context) == [] and before <= files_of(context)
    compact(context)
    assert shown(context) == [row(1, 1)]
    with pytest.raises(KeyboardInterrupt):
        write(beside(context, die, options=BATCHES), [row(2, 2)])
    assert shown(context) == [row(1, 1)]


def test_files_replay_as_they_were_committed_and_those_of_a_writer_by_age() -> None:
    def file(writer: str, number: int, millis: int) -> DataFileMeta:
        return replace(PLAIN_FILE, file_name=f"data--u-me-s-{writer}-w-uuid-{number}.avro", creation_time_millis=millis)

    one, two = [file("1", number, millis) for number, millis in enumerate((50, 10, 30))], [file("2", 0, 5), file("2", 1, 4)]
    committed = [one[0], two[0], one[1], one[2], two[1]]
    assert replay_order(committed) == [one[1], two[1], one[2], one[0], two[0]]
    assert replay_order([replace(f, creation_time_millis=None) for f in committed]) == [
        replace(f, creation_time_millis=None) for f in committed
    ]
    assert writer_of(one[0].file_name) == writer_of(one[1].file_name) != writer_of(two[0].file_name)


def test_later_rows_win_whoever_wrote_them(tmp_path: Path) -> None:
    """Also among very many small files, in little memory."""
    context = make(tmp_path / "t", write_buffer_size="4 kb")
    for number in range(40):
        batch = [row(key, number, text="x" * 50) for key in range(number % 5, 30, 5)]
        write(context, batch, commit_user=f"u{number % 3}", commit_id=number + 1)
    compact(context)
    expected = [row(key, max(n for n in range(40) if key % 5 == n % 5), text="x" * 50) for key in range(30)]
    assert shown(context) == sorted(expected, key=json.dumps)


@pytest.mark.parametrize("pieces", [1, 4])
def test_the_later_of_two_rows_wins_in_whatever_batch_of_whatever_file_it_is(tmp_path: Path, pieces: int) -> None:
    """The later files are shorter: the last row of a key is nearer to the beginning of its file than older ones."""
    batches = [[row(key, 100 * step + turn) for turn in range(5 - 2 * step) for key in range(5)] for step in range(3)]
    with injected(pieces):
        context = make(tmp_path / "t")
        for number, batch in enumerate(batches):
            write(context, batch, commit_user=f"u{number % 2}", commit_id=number + 1)
        compact(context)
        assert shown(context) == [row(key, 200) for key in range(5)]
        write(context, [row(key, turn) for turn in range(5) for key in (4, 0, 2)])
        compact(context)
        assert shown(context) == [row(key, 4 if key in (0, 2, 4) else 200) for key in range(5)]


def test_golden_rows_that_wait_are_read_and_distributed(tmp_path: Path) -> None:
    """Five commits of five writers of Java 1.4; they are replayed in the order of the commits."""
    context = TableContext.open(str(golden_table("java-1.4", "postpone", tmp_path)))
    merged = read(TableContext.open(context.url, {"postpone.merge-on-read": "true"}))
    assert shown(context) == [] and len(merged) == 39
    compact(context)
    assert shown(context) == merged
    assert list(check_table(context, rows=True)) == []


def test_the_first_and_last_key_of_a_waiting_file_are_not_bounds(tmp_path: Path) -> None:
    """Its rows are in the order of arrival: a search for a key between or beyond them must still read the file."""
    context = make(tmp_path / "t")
    write(context, [row(5, 0), row(1, 1), row(99, 2), row(9, 3)])
    latest = context.snapshots.latest()
    assert latest is not None
    (bucket,) = bucket_files(context, latest).values()
    assert (bucket.files[0].min_key, bucket.files[0].max_key) == tuple(serialize_row((n,), context.key_types) for n in (5, 9))
    bounds, bare = TableBounds(context), replace(bucket.files[0], key_stats=SimpleStats())
    assert bounds.of_keys(bucket.partition, 0, bare)("id") is not None, "in a sorted file they would be"
    assert bounds.of_keys(*bucket.bucket_id, bare)("id") is None
    table = open_table(locate_table(context.url))
    for number, n in ((1, 1), (99, 2), (9, 3)):
        found = FollowedChanges(table, ReadRequest(where=f"id = {number}"), 1, 1).rows()
        assert [batch.column("n").to_pylist() for batch in found] == [[n]]
        assert len(key_history(context, key_predicate(context, {"id": str(number)})).versions) == 1


MERGES_AT_ONCE = {"num-sorted-run.compaction-trigger": "2", **POSTPONED}


def sizes_of(context: TableContext) -> dict[tuple[str, int], int]:
    """The bytes of the live files by name and bucket."""
    buckets = bucket_files(context, context.snapshots.latest()).values()
    return {(file.file_name, bucket.bucket): file.file_size for bucket in buckets for file in bucket.files}


def maintained(context: TableContext, budget: int | None, goal: GoalName | None = None) -> tuple[int, TableRound]:
    """Maintains a table within a budget; returns the bytes of the files that it read, and what it says."""
    before = sizes_of(context)
    limits = RunLimits(Budget.of(None if budget is None else Allowance(size=budget), context.clock), 60.0, merges_of(goal))
    served = [ServedTable("t", lambda: TableContext.open(context.url))]
    ((done, _),) = maintain(served, LocalEngine(), Quiet(NoProgress), contextlib.nullcontext, None, limits)
    after = sizes_of(context)
    return sum(size for file, size in before.items() if file not in after), done


@pytest.mark.parametrize("goal", [None, "latency"])
def test_a_budget_holds_for_the_merges_after_rows_got_their_buckets(tmp_path: Path, goal: GoalName | None) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], (), -2, MERGES_AT_ONCE)
    for number in range(5):
        write(context, [{"id": key, "n": number} for key in range(100)])
        waiting = sum(size for (_, bucket), size in sizes_of(context).items() if bucket == POSTPONE_BUCKET)
        read, done = maintained(context, waiting + 100, goal)
        assert waiting <= read <= waiting + 100
        assert done.summary.bytes_read <= waiting + 100
        assert not any(bucket == POSTPONE_BUCKET for _, bucket in sizes_of(context))
    assert len(live_files(context)) == 5 and (goal or done.left.buckets == 1), "what is left is said"
    assert shown(context) == sorted(({"id": key, "n": 4} for key in range(100)), key=json.dumps)


def test_one_run_places_rows_and_merges_them_if_the_budget_suffices(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], (), -2, MERGES_AT_ONCE)
    for number in range(3):
        write(context, [{"id": key, "n": number} for key in range(100)])
        maintained(context, sum(size for (_, bucket), size in sizes_of(context).items() if bucket == POSTPONE_BUCKET))
    write(context, [{"id": 1, "n": 9}])
    read, done = maintained(context, 1_000_000)
    assert len(live_files(context)) == 1 and not done.left.buckets
    assert read < done.summary.bytes_read <= 1_000_000, "the rows that got their buckets are read again, too"


def test_limits_of_a_compaction_hold_for_merges_of_rows_that_got_their_buckets(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], (), -2, MERGES_AT_ONCE)
    for number in range(5):
        write(context, [{"id": key, "n": number} for key in range(100)])
        waiting = sum(size for (_, bucket), size in sizes_of(context).items() if bucket == POSTPONE_BUCKET)
        summary = run_compact(context, CompactRequest("minor", max_bytes=waiting + 100), LocalEngine(), NoProgress())
        assert summary.bytes_read == waiting


def test_a_partition_whose_waiting_rows_are_gone_has_changed(tmp_path: Path) -> None:
    context = make(tmp_path / "t")
    write(context, [row(1, 1), row(1, 1, "b")])
    begun, latest = context.snapshots.latest_id(), context.snapshots.latest()
    buckets = [*bucket_files(context, latest).values()]
    dropped = buckets[0].partition
    drop_partitions(context, [dropped], begun)
    write(context, [row(2, 1), row(2, 1, "b")])
    ours = [CommitMessage(*bucket.bucket_id, -2, read_snapshot_id=begun) for bucket in buckets]
    assert partitions_changed_since(context, ours) == {dropped}, "rows that came meanwhile go on waiting"


def test_merge_on_read_does_not_show_rows_that_are_marked(tmp_path: Path) -> None:
    context = make(tmp_path / "t", deletion_vectors__enabled="true")
    write(context, [row(number, 1) for number in range(4000)])
    compact(context)
    write(context, [row(1, op="-D"), row(3, 2, op="+I")])
    compact(context, strategy="minor")
    assert any(bucket.index_files for bucket in bucket_files(context, context.snapshots.latest()).values())
    write(context, [row(2, 3)])
    merging = TableContext.open(context.url, {"postpone.merge-on-read": "true"})
    found = read(merging, where="id < 4")
    compact(context)
    assert found == read(context, where="id < 4") and [one["n"] for one in found] == [1, 3, 2]
