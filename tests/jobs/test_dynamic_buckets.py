"""Tables with dynamic buckets: a key never has two buckets, whatever writes, fails or conflicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paimon_cli.bucket.hash_index import read_key_hashes
from paimon_cli.errors import BadInput, BucketsConflict, DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import write_job
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.staging.stage_job import StageFile, stage_write
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.data_file import HASH
from tests.rivals import beside, files_of
from tests.tables import commit_stage, compact, data_files, live_files, make_table, named_files, rows, write

COLUMNS = {"p": "STRING", "k": "INT NOT NULL", "v": "STRING"}


def table(folder: Path, partitioned: object = False, **options: object) -> TableContext:
    given = {"dynamic-bucket.target-row-num": "10", **{name.replace("_", "-"): str(value) for name, value in options.items()}}
    keys = ["p", "k"] if partitioned else ["k"]
    columns = COLUMNS | ({"p": "STRING NOT NULL"} if partitioned else {})
    return make_table(folder, columns, keys, ["p"] if partitioned else [], bucket=-1, options=given)


def some(numbers: range, value: str, partition: str | None = "a") -> list[dict[str, Any]]:
    return [{"p": partition, "k": number, "v": value} for number in numbers]


def index_of(context: TableContext) -> dict[tuple[bytes, int], list[int]]:
    """The hashes of each bucket, sorted."""
    latest = context.snapshots.latest()
    entries = [] if latest is None else context.manifests.index_entries(latest)
    hashes = {e.bucket_id: read_key_hashes(context, e.index_file) for e in entries if e.index_file.index_type == HASH}
    return {bucket_id: sorted(found.tolist()) for bucket_id, found in hashes.items()}


def sound(context: TableContext) -> None:
    """Every key is in one bucket and in its index, and no file is left over."""
    assert list(check_table(context, rows=True)) == []
    buckets = [hashes for hashes in index_of(context).values()]
    every = np.concatenate([np.array(hashes) for hashes in buckets]) if buckets else np.array([])
    assert len(every) == len(np.unique(every)) or context.schema.partition_keys
    assert data_files(context) == named_files(context)


def test_keys_stay_where_they_are_and_new_ones_fill_buckets(tmp_path: Path) -> None:
    context = table(tmp_path / "t")
    write(context, some(range(25), "old"))
    before = index_of(context)
    assert [len(hashes) for hashes in before.values()] == [10, 10, 5]
    summary = write(context, some(range(15, 45), "new"))
    assert summary.snapshots[0].commit_kind == "APPEND" and summary.buckets == 4
    after = index_of(context)
    assert [len(hashes) for hashes in after.values()] == [10, 10, 10, 10, 5]
    assert all(set(before[place]) <= set(after[place]) for place in before)
    assert {row["k"]: row["v"] for row in rows(context)} == {k: "old" if k < 15 else "new" for k in range(45)}
    sound(context)


def test_rows_of_known_keys_leave_the_index_alone(tmp_path: Path) -> None:
    context = table(tmp_path / "t")
    write(context, some(range(25), "old"))
    (first,) = {path.name for path in (tmp_path / "t/manifest").glob("index-manifest-*")}
    files = {path.name for path in (tmp_path / "t/index").iterdir()}
    write(context, some(range(25), "new"))
    write(context, [{**row, "_op": "-D"} for row in some(range(5), "new")])
    run_update(context, UpdateRequest("k = 7", ("v = 'x'",)), LocalEngine(), NoProgress())
    assert {path.name for path in (tmp_path / "t/index").iterdir()} == files
    assert {path.name for path in (tmp_path / "t/manifest").glob("index-manifest-*")} == {first}
    assert {row["k"]: row["v"] for row in rows(context)} == dict.fromkeys(range(5, 25), "new") | {7: "x"}
    sound(context)


def test_a_delete_of_an_unknown_key_gives_it_a_bucket_as_in_java(tmp_path: Path) -> None:
    context = table(tmp_path / "t")
    write(context, [{**row, "_op": "-D"} for row in some(range(3), "gone")])
    assert rows(context) == [] and sum(map(len, index_of(context).values())) == 3
    write(context, some(range(3), "back"))
    assert len(rows(context)) == 3
    sound(context)


@pytest.mark.parametrize("compaction", ["none", "inline", "async"])
def test_compactions_and_vectors_go_beside_the_index(tmp_path: Path, compaction: str) -> None:
    options = {"deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "2", "changelog-producer": "lookup"}
    context = table(tmp_path / "t", partitioned=True, **options)
    for turn in range(4):
        write(
            context,
            some(range(turn * 5, turn * 5 + 20), f"v{turn}", "a") + some(range(9), f"v{turn}", "b"),
            compact=compaction,
        )
        compact(context)
        assert {row["v"] for row in rows(context) if row["p"] == "b"} == {f"v{turn}"}
    assert len(rows(context)) == 35 + 9
    sound(context)


def test_overwrites_start_from_scratch(tmp_path: Path) -> None:
    context = table(tmp_path / "t", partitioned=True)
    write(context, some(range(25), "old", "a") + some(range(25), "old", "b"))
    write(context, some(range(20, 32), "new", "a"), overwrite=True)
    assert [(place[1], len(hashes)) for place, hashes in index_of(context).items()] == [(0, 10), (1, 10), (2, 5), (0, 10), (1, 2)]
    assert len(rows(context)) == 12 + 25
    write(context, some(range(3), "last", "b"), overwrite=True, partition={"p": "b"})
    assert len(rows(context)) == 12 + 3
    sound(context)


def test_a_rival_with_new_keys_makes_the_write_assign_again(tmp_path: Path) -> None:
    """Two writers choose a bucket for key 30: without the check of the commit it would have two."""
    context = table(tmp_path / "t")
    write(context, some(range(10), "old"))
    rival = [lambda: write(context, some(range(30, 33), "rival"))]
    summary = write(beside(context, *rival), some(range(20, 33), "ours"))
    assert {row["k"]: row["v"] for row in rows(context)} == dict.fromkeys(range(10), "old") | dict.fromkeys(range(20, 33), "ours")
    assert (summary.snapshots[0].id, summary.attempts, summary.rewrites) == (3, 1, 1)
    sound(context)
    assert len({path.name for path in (tmp_path / "t/index").iterdir()}) == len(
        {
            entry.index_file.file_name
            for number in (1, 2, 3)
            for entry in context.manifests.index_entries(context.snapshots.get(number))
        }
    )


def test_without_the_check_a_key_would_be_in_two_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is what Java allows. It is shown on the shipped code without the check, and found by verify."""
    context = table(tmp_path / "t")
    write(context, some(range(9), "old"))
    monkeypatch.setattr("paimon_cli.commit.committer.check_hash_indexes", lambda *given: None)
    write(beside(context, lambda: write(context, some(range(30, 33), "rival"))), some(range(20, 33), "ours"))
    assert sorted(row["v"] for row in rows(context) if row["k"] == 32) == ["ours", "rival"]
    assert {violation.code for violation in check_table(context, rows=True)} == {"PV041"}


def test_rivals_without_end_are_a_conflict_that_leaves_no_file(tmp_path: Path) -> None:
    context = table(tmp_path / "t", write_only="true")
    rivals = [lambda number=number: write(context, some(range(number, number + 1), "rival")) for number in range(50)]
    with pytest.raises(BucketsConflict, match=r"10 attempts") as failure:
        write(beside(context, *rivals, options={"commit.max-retry-wait": "1 ms"}), some(range(100, 105), "ours"))
    assert (failure.value.exit_code, failure.value.code) == (5, "PC-CONFLICT-BUCKETS")
    assert len(rows(context)) == 10 and data_files(context) == live_files(context)
    sound(context)


def test_writers_of_other_partitions_or_known_keys_do_not_conflict(tmp_path: Path) -> None:
    context = table(tmp_path / "t", partitioned=True)
    write(context, some(range(10), "old", "a"))
    rivals = [lambda: write(context, some(range(3), "rival", "b") + some(range(10), "rival", "a"))]
    summary = write(beside(context, *rivals), some(range(5, 15), "ours", "a"))
    assert (summary.attempts, len(rows(context))) == (2, 15 + 3)
    assert {violation.code for violation in check_table(context, rows=True)} == {"PV023"}  # as with any two writers of a bucket


def test_an_input_that_is_another_one_at_the_second_attempt_is_refused(tmp_path: Path) -> None:
    context = table(tmp_path / "t")
    source = tmp_path / "in.jsonl"
    source.write_text('{"p": "a", "k": 1}\n{"p": "a", "k": 2}\n')

    def rival() -> None:
        write(context, some(range(1), "rival"))
        source.write_text('{"p": "a", "k": 1}\n')

    request = WriteRequest(FileRows((str(source),), "json"))
    with pytest.raises(BadInput, match="it had 2 rows, and then 1"):
        write_job.run_write(beside(context, rival), request, LocalEngine(), NoProgress())
    assert len(rows(context)) == 1 and data_files(context) == live_files(context)


def test_a_staged_commit_is_refused_once_others_gave_keys_to_buckets(tmp_path: Path) -> None:
    context = table(tmp_path / "t")
    source = tmp_path / "in.jsonl"
    source.write_text('{"p": "a", "k": 1, "v": "staged"}\n')
    staged = []
    for name in ("one", "two"):
        file = StageFile(str(tmp_path / name))
        stage_write(context, WriteRequest(FileRows((str(source),), "json")), file, LocalEngine(), NoProgress())
        staged.append(file)
    commit_stage(context, staged[0])
    with pytest.raises(BucketsConflict):
        commit_stage(context, staged[1])
    assert rows(context) == [{"p": "a", "k": 1, "v": "staged"}]
    sound(context)
    assert len([path for path in files_of(context) if path.startswith("index/")]) == 1


def test_a_bucket_without_its_index_is_not_written_to(tmp_path: Path) -> None:
    context = table(tmp_path / "t")
    write(context, some(range(5), "old"))
    (index,) = (tmp_path / "t/index").iterdir()
    content = index.read_bytes()
    index.unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        write(context, some(range(5), "new"))
    index.write_bytes(content[:-4])
    with pytest.raises(DamagedFile, match="4 hashes, but its metadata says 5"):
        write(context, some(range(5), "new"))
    index.write_bytes(content)
    write(context, some(range(5), "new"))
    sound(context)


@pytest.mark.parametrize("initial, most, buckets", [("3", "-1", {0, 1, 2}), ("9", "2", {0, 1})])
def test_options_decide_how_many_buckets_a_partition_begins_with(
    tmp_path: Path, initial: str, most: str, buckets: set[int]
) -> None:
    options = {"dynamic-bucket.initial-buckets": initial, "dynamic-bucket.max-buckets": most}
    context = table(tmp_path / "t", **options)
    write(context, some(range(20), "v"))
    assert {bucket for _, bucket in index_of(context)} == buckets
    write(context, some(range(200), "w"))
    assert len(rows(context)) == 200
    if most != "-1":
        assert {bucket for _, bucket in index_of(context)} == buckets
    sound(context)


def test_null_and_strange_partitions_have_indexes_of_their_own(tmp_path: Path) -> None:
    context = table(tmp_path / "t", partitioned=True)
    strange = ["", " ", "a=b/c", "日本", "__DEFAULT_PARTITION__"]
    for value in ("old", "new"):
        write(context, [row for partition in strange for row in some(range(12), value, partition)])
    assert len(rows(context)) == 12 * len(strange) and len(index_of(context)) == 2 * len(strange)
    sound(context)


@pytest.mark.in_part(2)
def test_spark_assigns_what_this_process_assigns(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    """With several assigners; rows of a key stay in order, and buckets that another number of assigners has opened are used."""
    contexts = [table(tmp_path / name / "t", partitioned=True, **{"dynamic-bucket.initial-buckets": "3"}) for name in ("a", "b")]
    engines: list[Engine] = [LocalEngine(), any_spark_engine]
    for begin in (0, 60):
        given = [
            row for part in ("x", "y") for turn in range(2) for row in some(range(begin, begin + 90), f"{begin}/{turn}", part)
        ]
        for context, engine in zip(contexts, engines, strict=True):
            write(context, given, engine=engine)
            context = TableContext.open(context.url, {"dynamic-bucket.initial-buckets": "3" if begin else "2"})
    assert index_of(contexts[0]) == index_of(contexts[1])
    assert rows(contexts[0]) == rows(contexts[1]) and len(rows(contexts[0])) == 300
    for context in contexts:
        sound(context)


def test_threads_assign_as_one_does(tmp_path: Path) -> None:
    contexts = [table(tmp_path / name / "t") for name in ("a", "b")]
    for context, threads in zip(contexts, (1, 4), strict=True):
        write(context, some(range(300), "v"), threads=threads)
        write(replace(context), some(range(150, 400), "w"), threads=threads)
    assert index_of(contexts[0]) == index_of(contexts[1])
