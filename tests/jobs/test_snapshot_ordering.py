"""`sequence.snapshot-ordering`: rows of a later commit win, whatever their numbers and whatever was compacted in between."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.table_change import write_files
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.data_file import CommitMessage
from tests.jobs.test_changelog_files import ENGINES, merged, replayed
from tests.tables import compact, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "INT", "w": "INT"}
ORDERED = {"sequence.snapshot-ordering": "true", "write-only": "true"}


def table(folder: Path, **options: str) -> TableContext:
    return make_table(folder / "t", COLUMNS, ["k"], options={**ORDERED, **options})


def row(key: int, value: int) -> dict[str, Any]:
    return {"k": key, "v": value, "w": value}


def written(context: TableContext, given: Sequence[Mapping[str, Any]], folder: Path) -> list[CommitMessage]:
    """Files of rows that are not committed yet, numbered from the latest snapshot."""
    source = folder / "rows.csv"
    source.write_text("k,v,w\n" + "".join(f"{r['k']},{r['v']},{r['w']}\n" for r in given))
    plan = plan_write(context, WriteRequest(FileRows((str(source),), "csv")))
    return write_files(plan, LocalEngine(), NoProgress()).messages


def shown(context: TableContext) -> dict[int, Any]:
    return {r["k"]: r["v"] for r in rows(context)}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("vectors", [True, False])
def test_the_later_commit_wins_although_its_numbers_are_lower(ordered: bool, vectors: bool, tmp_path: Path) -> None:
    context = table(
        tmp_path, **{"sequence.snapshot-ordering": str(ordered).lower(), "deletion-vectors.enabled": str(vectors).lower()}
    )
    early = written(context, [row(1, 1)], tmp_path)
    late = written(context, [row(9, 9), row(1, 2)], tmp_path)
    Committer(context).commit(late, fresh_identity(context))
    Committer(context).commit(early, fresh_identity(context))
    winner = {1: 1 if ordered else 2, 9: 9}
    if not vectors:
        assert shown(context) == winner
    compact(context, strategy="full")
    assert shown(context) == winner
    write(context, [row(1, 3)])
    compact(context, strategy="minor")
    compact(context, strategy="full")
    assert shown(context) == {1: 3, 9: 9}


def test_new_files_bear_the_id_of_their_snapshot_in_every_attempt(tmp_path: Path) -> None:
    context = table(tmp_path)
    messages = written(context, [row(number, number) for number in range(50)], tmp_path)
    write(context, [row(1, 1)])
    Committer(context).commit(messages, fresh_identity(context))
    live = bucket_files(context, context.snapshots.latest())
    found = sorted((f.min_sequence_number, f.max_sequence_number) for bucket in live.values() for f in bucket.files)
    assert found == [(1, 1), (2, 2)]
    compact(context, strategy="full")
    write(context, [row(1, 7)], overwrite=True)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert [(f.min_sequence_number, f.max_sequence_number) for f in bucket.files] == [(4, 4)]


def test_several_flushes_of_one_commit_stay_in_order(tmp_path: Path) -> None:
    options = {"write-buffer-size": "300 b", "write-buffer-spillable": "false", "merge-engine": "aggregation"}
    context = table(tmp_path, **options, **{"fields.default-aggregate-function": "last_value"})
    given = [row(number % 3, number) for number in range(60)]
    write(context, given)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert len(bucket.files) > 2 and {f.max_sequence_number for f in bucket.files} == {1}
    assert shown(context) == {0: 57, 1: 58, 2: 59}
    compact(context, strategy="full")
    assert shown(context) == {0: 57, 1: 58, 2: 59}


def test_a_delete_after_an_insert_in_the_same_commit(tmp_path: Path) -> None:
    context = table(tmp_path, **{"write-buffer-size": "1 b", "write-buffer-spillable": "false"})
    write(
        context, [{**row(1, 1), "_op": "+I"}, {**row(1, 1), "_op": "-D"}, {**row(2, 2), "_op": "-D"}, {**row(2, 3), "_op": "+I"}]
    )
    assert shown(context) == {2: 3}
    compact(context, strategy="full")
    assert shown(context) == {2: 3}


def test_restored_rows_keep_their_order(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(1, 1), row(2, 2)])
    compact(context, strategy="full")
    write(context, [row(1, 5)])
    write(context, [row(1, 6), row(2, 6)], overwrite=True)
    Table.open(context.url).rollback(3, as_new=True)
    assert shown(context) == {1: 5, 2: 2}
    write(context, [row(2, 8)])
    compact(context, strategy="full")
    assert shown(context) == {1: 5, 2: 8}


PRODUCERS = [(engine, producer, vectors) for engine in ENGINES for producer in ("none", "lookup") for vectors in (False, True)]


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("engine", "producer", "vectors"), [each for each in PRODUCERS if each[0] != "first-row" or not each[2]])
def test_two_writers_and_a_compactor_in_any_order(engine: str, producer: str, vectors: bool, tmp_path: Path) -> None:
    chance = random.Random(f"{engine} {producer} {vectors}")
    options = {
        "changelog-producer": producer,
        "deletion-vectors.enabled": str(vectors).lower(),
        "num-sorted-run.compaction-trigger": "3",
    }
    context = table(tmp_path, **options, **ENGINES[engine])
    oracle: dict[int, Any] = {}
    waiting: list[tuple[list[dict[str, Any]], list[CommitMessage]]] = []
    for _ in range(14):
        keys = chance.sample(range(12), chance.randint(1, 6))
        given = [{"k": key, "v": chance.randint(1, 9), "w": chance.randint(1, 9)} for key in keys]
        waiting.append((given, written(context, given, tmp_path)))
        while waiting and chance.random() < 0.6:
            given, messages = waiting.pop(chance.randrange(len(waiting)))
            Committer(context).commit(messages, fresh_identity(context))
            oracle |= {r["k"]: merged(engine, oracle.get(r["k"]), r) for r in given}
        if chance.random() < 0.5:
            compact(context, strategy=chance.choice(["full", "minor"]))
    compact(context, strategy="full")
    assert {r["k"]: [r["v"], r["w"]] for r in rows(context)} == oracle
    if producer == "lookup":
        assert replayed(context) == oracle


def test_an_update_wins_over_what_it_read(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(key, key) for key in range(30)])
    run_update(context, UpdateRequest("k < 2", ("v = 77",)), LocalEngine(), NoProgress())
    assert shown(context)[0] == shown(context)[1] == 77 and shown(context)[2] == 2
    assert not Table.open(context.url).verify(level="full").violations


def test_the_greatest_number_is_noted_where_java_begins_with_it_and_always_raised(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [row(key, key) for key in range(7)])
    assert context.snapshots.get(1).greatest_sequence_number is None
    Table.open(context.url).alter.set({"write.sequence-number-init-mode": "snapshot"})
    context = TableContext.open(context.url)
    write(context, [row(1, 1)])  # from 7 on: found in the files
    write(context, [row(1, 2), row(2, 2)])  # from 8 on
    compact(context, strategy="full")
    write(context, [row(1, 2)], overwrite=True)
    noted = [context.snapshots.get(number).greatest_sequence_number for number in range(2, 6)]
    greatest = max(
        file.max_sequence_number for bucket in bucket_files(context, context.snapshots.get(4)).values() for file in bucket.files
    )
    assert noted == [7, 9, 9, 9] and greatest == 9


def test_the_greatest_number_is_that_of_all_buckets_where_none_is_noted_yet(tmp_path: Path) -> None:
    """Java numbers new rows of every bucket from it on, and a lower number would lose against older rows."""
    columns = {"p": "INT NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["p", "k"], ["p"], options={"write-only": "true"})
    write(context, [{"p": 0, "k": key} for key in range(20)])
    Table.open(context.url).alter.set({"write.sequence-number-init-mode": "snapshot"})
    context = TableContext.open(context.url)
    write(context, [{"p": 1, "k": 0}])
    assert context.snapshots.get(2).greatest_sequence_number == 19
