"""What an erasure removes, and that all else stays: each kind of table, searched with pyarrow and fastavro alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.table import Table
from paimon_cli.bucket.hash_index import read_key_hashes, write_key_hashes
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.errors import NotSupported, Refused, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.certificate import Certificate
from paimon_cli.jobs.erasure.erase_job import Erasure
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys
from paimon_cli.jobs.erasure.file_rewrite import new_name
from paimon_cli.jobs.erasure.metadata_rewrite import MetadataRewrite
from paimon_cli.jobs.erasure.unnamed_files import _PAUSES
from paimon_cli.jobs.staging.stage_job import StageFile
from paimon_cli.metadata.data_file import IndexFileMeta, IndexManifestEntry
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import SystemClock
from tests.commit.commit_tables import data_file
from tests.goldens import golden_table
from tests.invariants.forged_tables import entry
from tests.jobs.erasure.plain_scan import files_with
from tests.tables import Row, commit_stage, compact, make_table, rows, write


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file has several batches, each erasure several portions."""
    for name, size in (("batch_rows", 7), ("erased_bytes", 1), ("deleted_files", 2)):
        monkeypatch.setattr(PIECES, name, size)


GONE = ("user-0007", "mail-0007", "user-0033", "mail-0033")
CONDITION = "v IN ('mail-0007@0', 'mail-0033@1', 'mail-0007@20')"
COLUMNS = {"dt": "STRING NOT NULL", "k": "STRING NOT NULL", "v": "STRING", "n": "INT"}
PLAIN = {"k": "STRING NOT NULL", "v": "STRING", "n": "INT"}


def row(number: int, n: int = 0, **more: Any) -> Row:
    return {"k": f"user-{number:04}", "v": f"mail-{number:04}@{n}", "n": n, **more}


def is_kept(one: Row) -> bool:
    return one["k"] not in GONE


def partitioned(folder: Path) -> TableContext:
    """Levels, deletes, a tag, a branch with commits of its own, expired snapshots."""
    context = make_table(folder, COLUMNS, ["dt", "k"], ["dt"], 2, {"num-sorted-run.compaction-trigger": "3"})
    for n in range(4):
        write(context, [row(number, n, dt=dt) for dt in ("a", "b") for number in range(n, 40)])
    table = Table.open(str(folder))
    table.tags.create("kept", snapshot=2)
    table.branches.create("b", tag="kept")
    compact(context)
    write(context, [row(7, 9, dt="a", _op="-D"), row(8, 9, dt="b", _op="+U")])
    write(context.at_branch("b"), [row(7, 20, dt="c"), row(1, 20, dt="c")])
    table.expire(retain_max=4, retain_min=4, older_than="0s")
    return context


def vectors(folder: Path) -> TableContext:
    options = {"deletion-vectors.enabled": "true", "file-index.bloom-filter.columns": "v,k"}
    context = make_table(folder, PLAIN, ["k"], (), 2, options)
    for n in range(3):
        write(context, [row(number, n) for number in range(n, 40, n + 1)])
        compact(context)
    return context


def dynamic(folder: Path) -> TableContext:
    context = make_table(folder, PLAIN, ["k"], (), -1, {"dynamic-bucket.target-row-num": "15"})
    for n in range(3):
        write(context, [row(number, n) for number in range(n, 40)])
    compact(context, strategy="full")
    return context


def changelogs(folder: Path) -> TableContext:
    options = {"changelog-producer": "lookup", "changelog.num-retained.min": "5", "changelog.num-retained.max": "50"}
    context = make_table(folder, PLAIN, ["k"], (), 1, {**options, "changelog.time-retained": "30 d"})
    for n in range(4):
        write(context, [row(number, n) for number in range(n, 40)])
        compact(context)
    write(context, [row(7, 9, _op="-D")])
    compact(context)
    Table.open(str(folder)).expire(retain_max=3, retain_min=3, older_than="0s")
    return context


def postponed(folder: Path) -> TableContext:
    context = make_table(folder, PLAIN, ["k"], (), -2)
    write(context, [row(number) for number in range(40)])
    compact(context)
    write(context, [row(number, 1) for number in (33, 3, 7)])
    return context


def in_format(form: str) -> Callable[[Path], TableContext]:
    def build(folder: Path) -> TableContext:
        context = make_table(folder, PLAIN, ["k"], (), 1, {"file.format": form})
        for n in range(2):
            write(context, [row(number, n) for number in range(40)])
        compact(context)
        return context

    return build


KEYED: dict[str, Callable[[Path], TableContext]] = {
    "partitions, a tag and a branch": partitioned,
    "vectors and Bloom filters": vectors,
    "dynamic buckets": dynamic,
    "changelogs": changelogs,
    "postponed buckets": postponed,
    "avro": in_format("avro"),
    "orc": in_format("orc"),
}


@dataclass
class States:
    """The rows of every snapshot, tag and branch, and the changes of every changelog."""

    rows: dict[str, list[Row]]

    @staticmethod
    def of(root: str) -> States:
        found = {}
        for branch in ("main", *Table.open(root).context.branches.names()):
            context = TableContext.open(root, branch=branch)
            for number in context.snapshots.ids():
                found[f"{branch} {number}"] = rows(context.at_schema(context.snapshots.get(number).schema_id), snapshot_id=number)
            table = Table.open(root, branch=None if branch == "main" else branch)
            for name in context.tags.names():
                found[f"{branch} {name}"] = sorted(table.scan(tag=name).to_arrow().to_pylist(), key=json.dumps)
        return States(found)

    def without(self, keeps: Callable[[Row], bool]) -> dict[str, list[Row]]:
        return {name: [one for one in found if keeps(one)] for name, found in self.rows.items()}


def check(root: str, before: States, keeps: Callable[[Row], bool], *gone: str) -> None:
    assert files_with(Path(root), *gone) == {}
    after = States.of(root).rows
    expected = before.without(keeps)
    assert {name: after[name] for name in expected} == expected
    found = Table.open(root).verify("full", all_snapshots=True)
    assert not found.violations, [(v.code, v.path, v.message) for v in found.violations]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", KEYED)
def test_every_version_of_a_key_is_gone(kind: str, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    KEYED[kind](tmp_path / "t")
    before = States.of(root)
    assert len(files_with(tmp_path / "t", *GONE)) >= 3 and len(before.rows) > 1
    done = Table.open(root).erase(CONDITION)
    assert done.found == () and done.keys and done.rows > done.keys
    check(root, before, is_kept, *GONE)
    assert Table.open(root).erase(CONDITION).files == 0


@pytest.mark.parametrize("bucket", [-1, 2])
def test_the_rows_of_an_append_table_are_gone(bucket: int, tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": "true"} if bucket < 0 else {"bucket-key": "k"}
    context = make_table(tmp_path / "t", PLAIN, [], (), bucket, {**options, "file-index.bloom-filter.columns": "k"})
    for n in range(3):
        write(context, [row(number, n) for number in range(40)])
    table = Table.open(context.url)
    table.tags.create("kept")
    if bucket < 0:
        table.delete("n = 1 AND k > 'user-0005' AND k < 'user-0009'")
    before = States.of(context.url)
    done = table.erase("k = 'user-0007'")
    assert done.keys is None and done.rows == 3 and done.found == ()
    check(context.url, before, lambda one: one["k"] != "user-0007", "user-0007", "mail-0007")


def test_the_values_of_a_partition_that_is_emptied_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index manifest must not keep the entry of an empty hash index: it has the values of the partition."""
    columns = {"p": "STRING NOT NULL", "id": "BIGINT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["p", "id"], ["p"], -1)
    for others in ("a", "b"):
        write(context, [{"p": "VICTIM", "id": 1}, {"p": others, "id": 4}])
    table = Table.open(context.url)
    before = States.of(context.url)
    with monkeypatch.context() as patch:  # what an earlier version left behind is found, and then erased
        patch.setattr(MetadataRewrite, "_index_file", _emptied)
        assert any("index-manifest" in path for path in table.erase("p = 'VICTIM'").found)
    assert table.erase(keys=[{"p": "VICTIM", "id": 1}]).found == ()
    check(context.url, before, lambda one: one["p"] != "VICTIM", "VICTIM")
    write(context, [{"p": "VICTIM", "id": 2}])
    assert {"p": "VICTIM", "id": 2} in rows(context)


def _emptied(rewrite: MetadataRewrite, entry: IndexManifestEntry) -> IndexFileMeta:
    """As `_index_file`, but with an empty index in the place of one that is dropped."""
    index, context = entry.index_file, rewrite.context
    stored = read_key_hashes(context, index)
    assert rewrite.erased_hashes is not None
    gone = np.isin(stored, rewrite.erased_hashes(entry.bucket_id, stored))
    if not gone.any():
        return index
    rewrite._replace(context.layout.index(index.file_name), True)
    return write_key_hashes(context, entry.bucket_id, stored[~gone], "")


def test_a_key_with_the_hash_of_an_erased_one_stays_in_the_index(tmp_path: Path) -> None:
    """Else a writer would give it a second bucket. It is neither in the first batch of the file nor in the last one."""
    context = make_table(tmp_path / "t", {"k": "BIGINT NOT NULL"}, ["k"], (), -1)
    keys = np.random.default_rng(1).integers(0, 1 << 62, 300_000)
    hashes = hash_rows([pa.array(keys)], context.key_types)
    order = np.argsort(hashes, kind="stable")
    place = int(np.flatnonzero(np.diff(hashes[order]) == 0)[0])
    kept, erased = keys[order[place : place + 2]].tolist()
    write(context, [{"k": number} for number in (*range(20), kept, erased, *range(1 << 62, (1 << 62) + 20))])
    done = Table.open(context.url).erase(keys=[{"k": erased}])
    assert done.found == () and {"k": kept} in rows(context) and {"k": erased} not in rows(context)
    latest = context.snapshots.latest()
    assert latest is not None and latest.index_manifest is not None
    (entry,) = context.manifests.index_manifest(latest.index_manifest)
    assert hashes[order[place]] in read_key_hashes(context, entry.index_file)


def test_which_keys_a_partition_may_have(tmp_path: Path) -> None:
    """All of its columns count, and null is a value."""
    context = make_table(tmp_path / "t", {"p": "STRING", "q": "STRING", "id": "BIGINT NOT NULL"}, ["p", "q", "id"], ["p", "q"])
    values = [(None, "x"), ("a", "x"), ("a", None), ("b", "x"), ("a", "y"), (None, None)]
    columns = [[p for p, _ in values], [q for _, q in values], [*range(len(values))]]
    arrays = [pa.array(column, t) for column, t in zip(columns, (pa.string(), pa.string(), pa.int64()), strict=True)]
    keys = ErasedKeys.of(context.schema, [pa.RecordBatch.from_arrays(arrays, names=["p", "q", "id"])])
    for number, partition in enumerate(values):
        found = keys.in_partition(context, serialize_row(list(partition), context.partition_types))
        assert found.column("id").to_pylist() == [number]
        assert len(keys.hashes(context, serialize_row(list(partition), context.partition_types))) == 1
    assert len(keys.in_partition(context, serialize_row(["c", "x"], context.partition_types))) == 0


@pytest.mark.parametrize(("key", "expected"), [(3, True), (9, True), (2, False), (5, False), (10, False)])
def test_a_key_is_remembered_as_the_least_or_the_greatest_of_a_file(key: int, expected: bool, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    keys = ErasedKeys.of(context.schema, [pa.record_batch({"k": pa.array([key, 77], pa.int32())})])
    assert keys.are_bounds(context, entry(data_file("a", low=3, high=9))) == expected


def test_rows_of_which_the_condition_is_unknown_stay(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, [], (), -1)
    write(context, [row(number) for number in range(20)])
    write(context, [{**row(number), "n": None if number % 2 else 1, "v": None} for number in range(20, 40)])
    before = States.of(context.url)
    assert Table.open(context.url).erase("v = 'mail-0007@0' OR n > 0").rows == 11
    check(context.url, before, lambda one: one["v"] != "mail-0007@0" and not one["n"], "user-0007", "mail-0007")


@pytest.mark.parametrize("place", ["in the manifest", "beside the file"])
def test_indexes_say_where_the_rows_are_that_are_left(place: str, tmp_path: Path) -> None:
    options = {
        "file-index.bitmap.columns": "n",
        "file-index.in-manifest-threshold": "1 b" if place != "in the manifest" else "1 mb",
    }
    context = make_table(tmp_path / "t", PLAIN, [], (), -1, options)
    write(context, [row(number, number % 5) for number in range(40)])
    before = States.of(context.url)
    assert Table.open(context.url).erase("k IN ('user-0002', 'user-0007', 'user-0018')").rows == 3
    latest = context.snapshots.latest()
    assert latest is not None
    (live,) = context.manifests.live_entries(latest)
    assert bool(live.file.embedded_file_index) == (place == "in the manifest") == (not live.file.extra_files)
    gone = {"user-0002", "user-0007", "user-0018"}
    check(context.url, before, lambda one: one["k"] not in gone, *gone)
    for n in range(5):
        found = Table.open(context.url).scan(where=f"n = {n}").to_arrow().column("k").to_pylist()
        assert sorted(found) == [f"user-{k:04}" for k in range(40) if k % 5 == n and f"user-{k:04}" not in gone]


def test_keys_of_a_file(tmp_path: Path) -> None:
    context = partitioned(tmp_path / "t")
    before = States.of(context.url)
    keys = tmp_path / "keys.csv"
    keys.write_text("dt,k,other\na,user-0007,x\nb,user-0033,y\nz,nobody,z\n")
    done = Table.open(context.url).erase(keys=keys)
    gone = {("a", "user-0007"), ("b", "user-0033")}
    assert done.keys == 3 and done.found == ()
    check(context.url, before, lambda one: (one["dt"], one["k"]) not in gone)
    assert files_with(tmp_path / "t", "user-0007")  # of another partition, which is another key


def test_files_that_no_version_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: None)
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    staged = tmp_path / "w.stage"
    Table.open(context.url).write([row(number, 5) for number in range(20)], stage=str(staged))  # in a batch of its own
    filters = tmp_path / "t/bucket-0/data-gone.parquet.index"
    filters.write_bytes(b"nobody can say of which values")
    before = States.of(context.url)
    with pytest.raises(Refused, match="2 files that no version names"):
        Table.open(context.url).erase("k = 'user-0007'")
    assert States.of(context.url) == before
    done = Table.open(context.url).erase("k = 'user-0007'", older_than="0s")
    assert done.unnamed == 2 and done.found == () and not filters.exists()
    check(context.url, before, lambda one: one["k"] != "user-0007", "user-0007", "mail-0007")


@pytest.mark.parametrize("wait_of_commit", [1, len(_PAUSES)])
def test_files_that_are_committed_meanwhile_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_of_commit: int
) -> None:
    """Between the look at the versions and that at the files a writer or a compaction may commit."""
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    staged = tmp_path / "w.stage"
    Table.open(context.url).write([row(7, 5)], stage=str(staged))
    waits = list[float]()

    def wait(clock: object, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == wait_of_commit:
            commit_stage(context, StageFile(str(staged)))

    monkeypatch.setattr(SystemClock, "sleep", wait)
    before = States.of(context.url)
    done = Table.open(context.url).erase("k = 'user-0007'")
    assert len(waits) == wait_of_commit and done.unnamed == 0 and done.rows == 2 and done.found == ()
    check(context.url, before, lambda one: one["k"] != "user-0007", "user-0007", "mail-0007")


def test_what_others_commit_after_the_erasure_is_searched_and_not_suspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof reads versions that the erasure has not seen: their Bloom filters and manifests are no findings."""
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: None)
    context = make_table(tmp_path / "t", PLAIN, [], (), -1, {"file-index.bloom-filter.columns": "k"})
    write(context, [row(number) for number in range(9)])
    erase, others = Erasure.run, [[row(1, 1)], [row(7, 1)]]

    def run(erasure: Erasure, unnamed: Sequence[str]) -> None:
        erase(erasure, unnamed)
        write(context, others.pop(0))

    monkeypatch.setattr(Erasure, "run", run)
    assert Table.open(context.url).erase("k = 'user-0007'").found == ()
    (again,) = Table.open(context.url).erase("k = 'user-0007'").found
    assert again.startswith("bucket-0/data-")


def test_what_is_committed_while_the_proof_waits_for_it_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that no version named at first is no orphan, but it holds erased rows all the same."""
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    staged, erase = tmp_path / "w.stage", Erasure.run

    def run(erasure: Erasure, unnamed: Sequence[str]) -> None:
        erase(erasure, unnamed)
        Table.open(context.url).write([row(7, 5)], stage=str(staged))

    def wait(clock: object, seconds: float) -> None:
        if staged.exists():
            commit_stage(context, StageFile(str(staged)))
            staged.unlink()

    monkeypatch.setattr(Erasure, "run", run)
    monkeypatch.setattr(SystemClock, "sleep", wait)
    found = Table.open(context.url).erase("k = 'user-0007'").found
    assert not staged.exists() and any(path.startswith("bucket-0/data-") for path in found)


def test_a_certificate_is_written_before_the_erasure_counts_as_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated command finds no rows any more, but the record says which keys they were."""
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    path = tmp_path / "erased.json"
    with monkeypatch.context() as patched:
        patched.setattr(Certificate, "write", _killed)
        with pytest.raises(KeyboardInterrupt):
            Table.open(context.url).erase("k = 'user-0007'", certificate=str(path))
    assert files_with(tmp_path / "t" / "bucket-0", "user-0007") == {} and not path.exists()
    with monkeypatch.context() as patched:
        patched.setattr(Erasure, "finish", _killed)
        with pytest.raises(KeyboardInterrupt):
            Table.open(context.url).erase("k = 'user-0007'", certificate=str(path))
    first = json.loads(path.read_text())
    assert first["proof"]["unnamed_files"] == 0, "its own record is no file of the table"
    done = Table.open(context.url).erase("k = 'user-0007'", certificate=str(path))
    assert done.keys == 1 and json.loads(path.read_text())["keys"] == first["keys"] and len(first["keys"]) == 1
    assert files_with(tmp_path / "t", "user-0007") == {} and not (tmp_path / "t/removal").exists()
    with pytest.raises(UsageError, match="never replaced"):
        Table.open(context.url).plan_erase("k = 'user-0008'", certificate=str(path))


def test_a_certificate_without_its_secret_is_that_of_another_erasure(tmp_path: Path) -> None:
    path = tmp_path / "erased.json"
    Certificate.check_new(str(path), "t", may_exist=False)
    path.write_text("{}")
    for may_exist in (False, True):
        with pytest.raises(UsageError, match="never replaced"):
            Certificate.check_new(str(path), "t", may_exist=may_exist)
    path.with_name("erased.json.secret").write_text("ab" * 32)
    Certificate.check_new(str(path), "t", may_exist=True)
    with pytest.raises(UsageError, match="never replaced"):
        Certificate.check_new(str(path), "t", may_exist=False)


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_older_snapshots_can_go_instead(tmp_path: Path) -> None:
    context = partitioned(tmp_path / "t")
    before = States.of(context.url)
    table = Table.open(context.url)
    done = table.erase("v LIKE 'mail-0007@%' OR v LIKE 'mail-0033@%'", drop_history=True)
    newest = max(number for number in context.snapshots.ids())
    assert done.found == () and context.snapshots.ids() == [newest - 1, newest]
    assert context.at_branch("b").snapshots.ids() == [3, 4], "nor has the branch its older ones"
    kept = {name: before.rows[name] for name in before.rows if name in (f"main {newest - 1}", "main kept")}
    check(context.url, States(kept), is_kept, *GONE)


def test_statistics_are_dropped_and_counts_are_right(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    path = tmp_path / "t/snapshot/snapshot-1"
    path.write_text(
        json.dumps(
            {
                **json.loads(path.read_text()),
                "statistics": "stat-1",
                "logOffsets": {"0": 7},
                "watermark": 8,
                "timeMillis": 1 << 43,
            }
        )
    )
    (tmp_path / "t/statistics").mkdir()
    (tmp_path / "t/statistics/stat-1").write_text('{"colStats": {"k": {"min": "user-0007"}}}')
    Table.open(context.url).erase("k = 'user-0007'")
    found = json.loads(path.read_text())
    assert found["totalRecordCount"] == found["deltaRecordCount"] == 39 and found["logOffsets"] == {"0": 7}
    newest = context.snapshots.latest()
    assert newest is not None and (newest.id, newest.watermark, newest.total_record_count) == (2, 8, 39)
    assert newest.time_millis == 1 << 43, "times never go back"
    assert files_with(tmp_path / "t", "user-0007") == {}


def test_deletes_that_are_left_are_counted_again(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number, _op="-D" if number < 12 else "+I") for number in range(5, 20)])
    Table.open(context.url).erase("k = 'user-0007'")
    latest = context.snapshots.latest()
    assert latest is not None
    (file,) = (file for held in bucket_files(context, latest).values() for file in held.files)
    assert (file.row_count, file.delete_row_count) == (14, 6)


def test_a_file_that_waits_for_its_bucket_keeps_its_writer(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), -2)
    write(context, [row(7)])
    writer, file = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    name = new_name(context, f"data-u-{writer}-s-0-w-{file}-0.avro", "e1")
    assert name.startswith(f"data-u-{writer}-s-0-w-") and name.endswith("-0.avro") and file not in name
    plain = new_name(context, "part-1.parquet", "e1")
    assert plain.startswith("part-1-") and plain.endswith(".parquet") and len(plain) == len("part-1-.parquet") + 36


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, [], (), -1)
    write(context, [row(7)])
    table = Table.open(context.url)
    with pytest.raises(UsageError, match="no primary key"):
        table.erase(keys=[{"k": "user-0007"}])
    with pytest.raises(UsageError, match="name what to erase"):
        table.erase()
    (tmp_path / "t/metadata").mkdir()
    (tmp_path / "t/metadata/v1.metadata.json").write_text("{}")
    with pytest.raises(NotSupported, match="erase from"):
        table.erase("k = 'user-0007'")
    assert len(context.snapshots.ids()) == 1


def test_a_stage_whose_files_were_deleted_is_refused(tmp_path: Path) -> None:
    """The commit of what was staged finds its files gone: no snapshot names what is not there."""
    from paimon_cli.errors import DamagedFile

    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(9)])
    stage = tmp_path / "w.stage"
    Table.open(context.url).write([row(7, 5)], stage=str(stage))
    Table.open(context.url).erase("k = 'user-0007'", older_than="0s")
    with pytest.raises(DamagedFile):
        commit_stage(context, StageFile(str(stage)))


def test_a_bound_of_java_that_names_a_deleted_key(tmp_path: Path) -> None:
    """A compaction of Java 0.9 dropped the delete of key 22, and recorded it as the greatest key of its file nevertheless."""
    root = golden_table("java-0.9", "changelog_input", tmp_path)
    before = States.of(str(root))
    done = Table.open(str(root)).erase(keys=[{"k": 22}], older_than="0s")
    assert done.found == () and done.rows > 0
    check(str(root), before, lambda one: one["k"] != 22)


def test_an_earlier_table_in_the_trash(tmp_path: Path) -> None:
    """A dropped table waits in the trash for a while, and could be brought back."""
    root = tmp_path / "wh" / "shop.db" / "t"
    write(make_table(root, PLAIN, ["k"], (), 1), [row(number) for number in range(40)])
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.drop_table("shop.t")
    write(make_table(root, PLAIN, ["k"], (), 1), [row(number, 1) for number in range(5, 40)])
    certificate = tmp_path / "done.json"
    planned = Table.open(str(root)).plan_erase(CONDITION, certificate=str(certificate))
    assert planned.plan.earlier_tables == 1 and planned.plan.files == 2
    done = planned.run()
    assert done.found == () and done.earlier_tables == 1 and done.files == 2
    (of_trash,) = json.loads(certificate.read_text())["trash"]
    assert of_trash["files"] == 1 and of_trash["found"] == [] and "/trash/" in of_trash["path"]
    catalog.undrop("shop.t", new_name="shop.old")
    old = TableContext.open(str(tmp_path / "wh" / "shop.db" / "old"))
    assert len(rows(old)) == 39 and "user-0007" not in {one["k"] for one in rows(old)}
    assert files_with(Path(old.url), "user-0007", "mail-0007") == {}


@pytest.mark.parametrize(("columns", "keys"), [(PLAIN, []), ({**PLAIN, "k": "INT NOT NULL"}, ["k"]), (PLAIN, ["k", "v"])])
def test_an_earlier_table_with_other_keys_is_refused(columns: dict[str, str], keys: list[str], tmp_path: Path) -> None:
    root = tmp_path / "wh" / "shop.db" / "t"
    key = {} if columns is PLAIN else {"k": 7}
    write(make_table(root, columns, keys, (), 1 if keys else -1), [{**row(7), **key}])
    Catalog(str(tmp_path / "wh")).drop_table("shop.t")
    write(make_table(root, PLAIN, ["k"], (), 1), [row(7, 1)])
    with pytest.raises(Refused, match="rows cannot be erased from shop"):
        Table.open(str(root)).plan_erase(CONDITION)


def ids_of(root: str) -> dict[int, list[Row]]:
    """The rows of each snapshot with their ids and the numbers of the snapshots that changed them."""
    found, table = {}, Table.open(root)
    for number in table.context.snapshots.ids():
        columns = [*table.context.schema.field_names, "_ROW_ID", "_SEQUENCE_NUMBER"]
        batches = table.scan(columns=columns, snapshot=number).to_arrow().to_pylist()
        found[number] = sorted(batches, key=lambda one: one["_ROW_ID"])
    return found


@pytest.mark.in_part(2)
@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_keep_their_ids(form: str, vectors: str, tmp_path: Path) -> None:
    """In files as they were appended, updated ones, compacted ones, and at all snapshots."""
    options = {"row-tracking.enabled": "true", "file.format": form, "deletion-vectors.enabled": vectors}
    context = make_table(tmp_path / "t", PLAIN, [], (), -1, options)
    table = Table.open(context.url)
    for n in range(3):
        write(context, [row(number, n) for number in range(5 * n, 40)])
    table.update({"n": 77}, where="k = 'user-0011' OR k = 'user-0007' AND n = 1")
    table.delete("k = 'user-0001'")
    compact(context, strategy="full")
    write(context, [row(number, 3) for number in (7, 8)])
    before = ids_of(context.url)
    done = table.erase("k = 'user-0007'")
    assert done.found == () and done.rows >= 6
    expected = {number: [one for one in found if one["k"] != "user-0007"] for number, found in before.items()}
    after = ids_of(context.url)
    assert {number: after[number] for number in before} == expected
    assert files_with(tmp_path / "t", "user-0007", "mail-0007") == {}
    write(context, [row(50)])
    assert max(one["_ROW_ID"] for one in ids_of(context.url)[max(after) + 1]) > max(o["_ROW_ID"] for o in before[max(before)])
    assert not Table.open(context.url).verify("full", all_snapshots=True).violations


def test_columns_that_are_divided_among_files_are_refused(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, [], (), -1, {"row-tracking.enabled": "true"})
    write(context, [row(7), row(8)])
    schema = tmp_path / "t/schema/schema-0"
    schema.write_text(schema.read_text().replace('"row-tracking', '"data-evolution.enabled" : "true", "row-tracking', 1))
    with pytest.raises(NotSupported, match="divided among files"):
        Table.open(context.url).erase("k = 'user-0007'")
    assert len(context.snapshots.ids()) == 1
