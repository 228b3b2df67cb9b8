"""Tables with deletion vectors, held against the rows that were written, under writes and compactions of all kinds."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.staging.stage_job import StageFile, stage_write
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.options.table_options import TableOptions
from tests.commit.commit_tables import SteppingClock
from tests.nightly import first
from tests.tables import Row, commit_stage, compact, make_table, rows, write

VECTORS = {"deletion-vectors.enabled": "true"}
COLUMNS = {"k": "INT NOT NULL", "t": "STRING NOT NULL", "n": "INT", "s": "BIGINT", "v": "STRING"}
KEYS = 60


def vector_table(folder: Path, options: Mapping[str, str], buckets: int = 1) -> TableContext:
    return make_table(folder, COLUMNS, ("k", "t"), bucket=buckets, options={**VECTORS, **options})


def the_bucket(context: TableContext) -> BucketFiles:
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    return bucket


def levels(context: TableContext) -> list[int]:
    return sorted(file.level for file in the_bucket(context).files)


def marked(context: TableContext) -> dict[int, list[int]]:
    """Level -> sorted positions that are marked in its files."""
    bucket, found = the_bucket(context), dict[int, list[int]]()
    vectors = load_vectors(context, bucket)
    for file in bucket.files:
        vector = vectors.of(file.file_name)
        if vector is not None:
            found.setdefault(file.level, []).extend(vector.positions)
    return found


def shown(context: TableContext) -> list[Row]:
    """The rows that a plain read shows, sorted."""
    return rows(context)


def row(k: int, n: int | None = 0, s: int | None = 0, v: str | None = "") -> Row:
    return {"k": k, "t": f"t{k % 3}", "n": n, "s": s, "v": v}


class Oracle:
    """The result of a merge of all rows ever written, row by row."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.rows: dict[int, Row] = {}

    def write(self, changes: list[Row]) -> None:
        for change in changes:
            getattr(self, "_" + self.engine)(dict(change))

    def _deduplicate(self, change: Row) -> None:
        if change.pop("_op", "+I") == "-D":
            self.rows.pop(change["k"], None)
        else:
            self.rows[change["k"]] = change

    def _ordered(self, change: Row) -> None:
        change.pop("_op")
        old = self.rows.get(change["k"])
        if old is None or change["s"] >= old["s"]:
            self.rows[change["k"]] = change

    def _partial(self, change: Row) -> None:
        change.pop("_op")
        old = self.rows.get(change["k"], change)
        self.rows[change["k"]] = {name: old[name] if value is None else value for name, value in change.items()}

    def _sums(self, change: Row) -> None:
        change.pop("_op")
        old = self.rows.get(change["k"])
        if old is not None:
            change["n"], change["s"] = old["n"] + change["n"], max(old["s"], change["s"])
        self.rows[change["k"]] = change

    def _first(self, change: Row) -> None:
        change.pop("_op")
        self.rows.setdefault(change["k"], change)


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": VECTORS,
    "ordered": {**VECTORS, "sequence.field": "s"},
    "partial": {**VECTORS, "merge-engine": "partial-update"},
    "sums": {
        **VECTORS,
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.s.aggregate-function": "max",
        "fields.default-aggregate-function": "last_value",
    },
    "first": {"merge-engine": "first-row"},
}


def random_rows(chance: random.Random, engine: str) -> list[Row]:
    found = []
    for _ in range(chance.choice((1, 3, 20, 60))):
        change = row(chance.randrange(KEYS), chance.randrange(100), chance.randrange(50), f"v{chance.randrange(1000)}")
        if engine == "partial":
            change |= {name: None for name in ("n", "v") if chance.random() < 0.5}
        found.append({**change, "_op": "-D" if engine == "deduplicate" and chance.random() < 0.2 else "+I"})
    return found


def random_options(chance: random.Random) -> dict[str, str]:
    """Files of a few rows, so that levels hold several files; small row groups."""
    return {
        "num-sorted-run.compaction-trigger": chance.choice(("2", "3", "5")),
        "target-file-row-num": chance.choice(("4", "7", "1000000")),
        "file.format": chance.choice(("parquet", "parquet", "avro", "orc")),
        "compaction.small-file-ratio": chance.choice(("0.0", "0.7")),
        "deletion-vectors.bitmap64": chance.choice(("true", "false")),
        "file.format.per.level": chance.choice(("", "0:avro", "0:orc,5:parquet")),
        "sort-spill-threshold": chance.choice(("2", "10")),
    }


@pytest.mark.in_part(6)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_rows_are_those_written_whatever_was_compacted(engine: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{engine} {seed}")
    options = {name: text for name, text in random_options(chance).items() if text}
    if engine == "first":
        options.pop("deletion-vectors.bitmap64")
    context = make_table(tmp_path / "t", COLUMNS, ("k", "t"), options={**options, **ENGINES[engine]})
    oracle = Oracle(engine)
    for step in range(12):
        changes = random_rows(chance, engine)
        compaction = chance.choice(("inline", "inline", "async", "none"))
        write(context, changes, compact=compaction)
        oracle.write(changes)
        if compaction == "none" or chance.random() < 0.2:
            compact(context, strategy=chance.choice(("minor", "minor", "full")))
        expected = sorted(oracle.rows.values(), key=lambda one: one["k"])
        assert sorted(shown(context), key=lambda one: one["k"]) == expected, (step, options)
        assert 0 not in levels(context)
    assert not list(check_table(context, rows=True))
    compact(context, strategy="full")
    assert marked(context) == {} and set(levels(context)) <= {context.options.num_levels - 1}
    assert sorted(shown(context), key=lambda one: one["k"]) == expected


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_an_old_row_that_has_expired_is_found_and_marked_all_the_same(producer: str, tmp_path: Path) -> None:
    clock = SteppingClock()
    seconds = clock.now // 1000
    options = {"record-level.expire-time": "1 h", "record-level.time-field": "s", "changelog-producer": producer}
    context = replace(vector_table(tmp_path / "t", options), clock=clock)
    write(context, [row(key, s=seconds) for key in range(4)])
    compact(context, strategy="full")
    clock.sleep(3601)
    now = clock.now // 1000
    write(context, [{**row(1, 7, s=now), "_op": "+I"}, {**row(2, s=now), "_op": "-D"}])
    compact(context, strategy="minor")
    assert marked(context) == {5: [1, 2]}
    assert [(known["k"], known["n"]) for known in shown(context)] == [(0, 0), (1, 7), (3, 0)], "reads show what has expired"
    assert not list(check_table(context, rows=True))
    compact(context, strategy="full")
    assert [(known["k"], known["n"]) for known in shown(context)] == [(1, 7)]


def with_large_file_on_top(folder: Path, rows_of_file: list[Row]) -> TableContext:
    """A table whose top level holds these rows and 5,000 more, which a minor compaction of a few rows leaves there."""
    context = vector_table(folder, {"write-only": "true"})
    write(context, [*rows_of_file, *(row(k, v=f"filler {k}") for k in range(1000, 6000))])
    compact(context, strategy="full")
    return context


def shown_value(context: TableContext, key: int) -> list[str]:
    return [found["v"] for found in shown(context) if found["k"] == key]


def test_a_late_commit_of_older_rows_loses_to_the_file_above_it(tmp_path: Path) -> None:
    """Only one row of level 0 is older than the file above it; the others are newer."""
    context = with_large_file_on_top(tmp_path / "t", [row(1, v="first")])
    late, file = tmp_path / "late.jsonl", StageFile(str(tmp_path / "late.json"))
    late.write_text(json.dumps(row(1, v="late")) + "\n")
    stage_write(context, WriteRequest(FileRows((str(late),), "json")), file, LocalEngine(), NoProgress())
    write(context, [row(2), row(1, v="newest")])
    compact(context, strategy="full")
    (above,) = the_bucket(context).files
    write(context, [row(0), row(3, v="after")])  # around the late row, so that both are merged together
    commit_stage(context, file)
    compact(context, strategy="minor")
    assert len(levels(context)) > 1 and above.file_name in {found.file_name for found in the_bucket(context).files}
    assert [shown_value(context, key) for key in (1, 2, 3)] == [["newest"], [""], ["after"]]


def test_a_late_file_does_not_hide_rows_of_any_file_above_it_that_are_newer(tmp_path: Path) -> None:
    """Of the files above, one is older than the late one and one is newer; the late file overlaps no other of its level."""
    context = vector_table(tmp_path / "t", {"target-file-row-num": "10", "compaction.small-file-ratio": "0"})
    write(context, [row(k, v="first") for k in range(10)])
    compact(context, strategy="full")
    late, file = tmp_path / "late.jsonl", StageFile(str(tmp_path / "late.json"))
    late.write_text("".join(json.dumps(row(k, v="late")) + "\n" for k in range(5, 12)))
    stage_write(context, WriteRequest(FileRows((str(late),), "json")), file, LocalEngine(), NoProgress())
    write(context, [row(k, v="newest") for _ in range(3) for k in range(10, 20)])
    compact(context, strategy="full")
    above = [found.file_name for found in the_bucket(context).files]
    commit_stage(context, file)
    compact(context, strategy="minor")
    assert len(above) == 2 and {*above} < {found.file_name for found in the_bucket(context).files} and 0 not in levels(context)
    expected = {k: "newest" if k >= 10 else "late" if k >= 5 else "first" for k in range(20)}
    assert {found["k"]: found["v"] for found in shown(context)} == expected and len(shown(context)) == 20


def test_a_late_file_whose_last_rows_are_newer_does_not_hide_rows_that_its_first_ones_lost_to(tmp_path: Path) -> None:
    context = vector_table(tmp_path / "t", {"target-file-row-num": "10", "compaction.small-file-ratio": "0"})
    write(context, [row(k, v="far") for k in range(1000, 1200)])
    late, file = tmp_path / "late.jsonl", StageFile(str(tmp_path / "late.json"))
    late.write_text("".join(json.dumps(row(k, v="late")) + "\n" for k in (15, *range(100, 120), *range(30, 39))))
    stage_write(context, WriteRequest(FileRows((str(late),), "json")), file, LocalEngine(), NoProgress())
    write(context, [row(k, v="newest") for k in range(10, 20)])
    compact(context, strategy="full")
    above = min(the_bucket(context).files, key=lambda found: context.key_of(found.min_key))
    commit_stage(context, file)
    first = min((one for one in the_bucket(context).files if not one.level), key=lambda one: context.key_of(one.min_key))
    assert first.min_sequence_number <= above.max_sequence_number < first.max_sequence_number
    compact(context, strategy="minor")
    assert above.file_name in {found.file_name for found in the_bucket(context).files} and 0 not in levels(context)
    expected = {k: "newest" if k < 20 else "late" for k in (*range(10, 20), *range(30, 39), *range(100, 120))}
    assert {found["k"]: found["v"] for found in shown(context) if found["k"] < 1000} == expected


def test_an_old_row_that_has_expired_is_not_added_to_a_new_one(tmp_path: Path) -> None:
    clock = SteppingClock()
    options = {
        "record-level.expire-time": "1 h",
        "record-level.time-field": "s",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
    }
    context = replace(vector_table(tmp_path / "t", options), clock=clock)
    begun = clock.now // 1000
    write(context, [row(1, 5, s=begun), row(2, 5, s=begun + 3600), row(3, 1, s=begun + 3600)])
    compact(context, strategy="full")
    clock.sleep(3601)
    write(context, [row(key, 7, s=clock.now // 1000) for key in (1, 2)])
    compact(context, strategy="minor")
    assert [(known["k"], known["n"]) for known in shown(context)] == [(1, 7), (2, 12), (3, 1)] and 5 in levels(context)
    assert marked(context) == {5: [0, 1]}


@pytest.mark.parametrize("options", [VECTORS, {"changelog-producer": "lookup"}], ids=["vectors", "lookup"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_that_could_be_moved_as_it_is_shows_no_deletes(tmp_path: Path, options: Mapping[str, str], is_first: bool) -> None:
    """It overlaps no other file of its level and is large enough; what it deletes is marked, or hidden, or was never there."""
    context = make_table(tmp_path / "t", COLUMNS, ("k", "t"), bucket=1, options={**options, "compaction.small-file-ratio": "0"})
    if not is_first:
        write(context, [row(k, v="old") for k in range(20)])
        compact(context, strategy="full")
    write(context, [{**row(k), "_op": "-D" if k % 2 else "+I"} for k in range(10)], compact="none")
    compact(context, strategy="full" if is_first else "minor")
    assert len(the_bucket(context).files) == (1 if is_first else 2) and 0 not in levels(context)
    expected = [*range(0, 10, 2), *([] if is_first else range(10, 20))]
    assert sorted(found["k"] for found in shown(context)) == expected
    if is_first or context.mode.deletion_vectors:
        assert all(file.delete_row_count == 0 for file in the_bucket(context).files)


@pytest.mark.parametrize("strategy", ["minor", "full"])
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_the_row_of_a_key_that_readers_have_seen_stays_the_first(tmp_path: Path, producer: str, strategy: str) -> None:
    """Two writers that plan at the same snapshot number their rows alike; the second one has the lower number of the key."""
    context = make_table(
        tmp_path / "t", COLUMNS, ("k",), bucket=1, options={"merge-engine": "first-row", "changelog-producer": producer}
    )
    late, file = tmp_path / "late.jsonl", StageFile(str(tmp_path / "late.json"))
    late.write_text("".join(json.dumps(row(k, v="late")) + "\n" for k in (7, 8)))
    stage_write(context, WriteRequest(FileRows((str(late),), "json")), file, LocalEngine(), NoProgress())
    write(context, [row(k, v="first") for k in (3, 7, 2, 9, 7)])
    assert shown_value(context, 7) == ["first"]
    commit_stage(context, file)
    compact(context, strategy=strategy)
    assert [found["k"] for found in shown(context)] == [2, 3, 7, 8, 9]
    assert [shown_value(context, k) for k in (7, 8)] == [["first"], ["late"]]
    assert not run_verify(context, VerifyRequest("full", only=("PV058",)), LocalEngine(), NoProgress()).violations


def test_a_delete_that_is_ignored_later_keeps_the_row_of_the_file_above(tmp_path: Path) -> None:
    written = with_large_file_on_top(tmp_path / "t", [row(1, v="kept")])
    write(written, [{**row(1), "_op": "-D"}])
    ignoring = TableOptions({**written.options.raw, "ignore-delete": "true"})
    context = written.redefined(options=ignoring)
    compact(context, strategy="minor")
    assert shown_value(context, 1) == ["kept"]
    assert len(levels(context)) > 1


def test_a_file_that_is_moved_keeps_its_marks(tmp_path: Path) -> None:
    context = with_large_file_on_top(tmp_path / "t", [row(k) for k in range(4)])
    write(context, [row(1, v="newer")])
    compact(context, strategy="minor")
    assert marked(context) == {5: [1]}
    bucket, latest = the_bucket(context), context.snapshots.latest()
    assert latest is not None
    task = plan_bucket(context, bucket, "full", latest.id)
    assert isinstance(task, CompactionTask)
    (above,) = (replace(file, level=3) for file in bucket.files if file.level == 5)
    others = tuple(replace(file, level=2) for file in bucket.files if file.level != 5)
    message = run_compaction(context, replace(task, files=(above,), others=others, output_level=4, rewrite_marked=False))
    assert [(file.file_name, file.level) for file in message.compact.added] == [(above.file_name, 4)]
    assert (message.compact.removed_indexes, message.compact.added_indexes) == ((), ())
