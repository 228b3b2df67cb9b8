"""The deletion vectors of a bucket: which index files hold them, how often those are read, and the errors for bad ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_cli.bucket.deletion_vectors import NO_VECTORS, ChangedVectors, live_rows, load_vectors, packed
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, IndexFileMeta
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.storage.injected import Step, StepTrace
from tests.commit.commit_tables import SteppingClock
from tests.goldens import golden_table
from tests.tables import make_table


def marked(folder: Path) -> tuple[TableContext, BucketFiles, list[Step]]:
    """A bucket of Java's with deletion vectors, and the steps that are traced from here on."""
    steps: list[Step] = []
    context = TableContext.open(str(golden_table("java-0.9", "dv_partitioned", folder)))
    context = replace(context, trace=StepTrace(SteppingClock(), steps.append))
    buckets = bucket_files(context, context.snapshots.latest()).values()
    bucket = next(one for one in buckets if any(index.deletion_vector_ranges for index in one.index_files))
    steps.clear()
    return context, bucket, steps


def test_every_listed_file_has_its_vector_and_no_other_file_has_one(tmp_path: Path) -> None:
    context, bucket, steps = marked(tmp_path)
    (index,) = bucket.index_files
    ranges = index.deletion_vector_ranges or ()
    vectors = load_vectors(context, bucket)
    assert list(vectors.by_file) == [listed.data_file_name for listed in ranges]
    deleted = {name: list(vector.positions) for name, vector in vectors.by_file.items()}
    assert deleted == {name: list(vectors.of(name).positions) for name in deleted} and all(deleted.values())  # type: ignore[union-attr]
    assert vectors.of("data-none-0.parquet") is None and NO_VECTORS.of(ranges[0].data_file_name) is None
    place = context.bucket_path(bucket.partition, bucket.bucket)
    size = Path(context.layout.index(index.file_name)).stat().st_size
    written = {"bucket": place, "file": index.file_name, "vectors": len(ranges), "bytes": size}
    assert [(step.name, step.facts) for step in steps] == [("deletion_vectors", written)]
    assert load_vectors(context, bucket).by_file.keys() == vectors.by_file.keys() and len(steps) == 1, "read once"


def test_index_files_of_other_kinds_are_left_alone(tmp_path: Path) -> None:
    context, bucket, steps = marked(tmp_path)
    (index,) = bucket.index_files
    hashes = replace(index, index_type="HASH", file_name="index-of-hashes", external_path="s3://elsewhere/x")
    assert load_vectors(context, replace(bucket, index_files=(hashes,))).by_file == {} and not steps
    both = load_vectors(context, replace(bucket, index_files=(hashes, index)))
    assert both.by_file.keys() == load_vectors(context, bucket).by_file.keys() != set()
    without_ranges = replace(index, deletion_vector_ranges=None)
    assert load_vectors(context, replace(bucket, index_files=(without_ranges,))).by_file == {}


def test_vectors_of_several_index_files_come_together(tmp_path: Path) -> None:
    context, bucket, _ = marked(tmp_path)
    (index,) = bucket.index_files
    (listed, *_) = index.deletion_vector_ranges or ()
    other = replace(index, deletion_vector_ranges=(replace(listed, data_file_name="data-other-0.parquet"),))
    vectors = load_vectors(context, replace(bucket, index_files=(index, other)))
    assert vectors.by_file.keys() == load_vectors(context, bucket).by_file.keys() | {"data-other-0.parquet"}


def test_an_index_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    context, bucket, _ = marked(tmp_path)
    (index,) = bucket.index_files
    outside = replace(bucket, index_files=(replace(index, external_path="s3://elsewhere/x"),))
    with pytest.raises(NotSupported, match=f"index file {index.file_name} .* lies outside of the table"):
        load_vectors(context, outside)
    path = Path(context.layout.index(index.file_name))
    content = path.read_bytes()
    path.write_bytes(content[:10])
    (listed, *_) = index.deletion_vector_ranges or ()
    with pytest.raises(DamagedFile, match=path.name):
        load_vectors(context, bucket).of(listed.data_file_name)
    path.unlink()
    again = TableContext.open(context.url)
    with pytest.raises(DamagedFile, match=f"index file {path} is missing") as refused:
        load_vectors(again, bucket).of(listed.data_file_name)
    assert refused.value.details["path"] == str(path)
    path.write_bytes(content)
    assert load_vectors(again, bucket).of(listed.data_file_name), "a failed attempt is not remembered"


def test_an_index_file_is_read_only_for_a_file_that_it_marks(tmp_path: Path) -> None:
    context, bucket, steps = marked(tmp_path)
    vectors = load_vectors(context, bucket)
    assert vectors.of("data-none-0.parquet") is None and len(vectors.by_file) and not steps
    for name in vectors.by_file:
        assert vectors.of(name) is vectors.of(name)
    assert [step.name for step in steps] == ["deletion_vectors"]


def changed_vectors(context: TableContext, bucket: BucketFiles, stamp: str = "") -> tuple[ChangedVectors, frozenset[str]]:
    return ChangedVectors(context, bucket, stamp), frozenset(file.file_name for file in bucket.files)


def test_vectors_are_copied_with_what_is_marked_and_dropped(tmp_path: Path) -> None:
    context, bucket, _ = marked(tmp_path)
    changes, live = changed_vectors(context, bucket, "0123456789abcdef")
    (first, *others) = changes.before.by_file
    fresh = next(name for name in live if name not in changes.before.by_file)
    before = {name: set(vector.positions) for name, vector in changes.before.by_file.items()}
    assert changes.write(live) == ((), ())
    changes.mark(fresh, np.array([3, 1]))
    changes.mark(fresh, np.array([2]))
    changes.mark(first, np.array([0]))
    gone, (made,) = changes.write(live)
    assert gone == bucket.index_files and made.file_name.startswith("index-01234567-89ab-cdef-")
    assert made.row_count == len(before) + 1 == len(made.deletion_vector_ranges or ())
    assert made.file_size == Path(context.layout.index(made.file_name)).stat().st_size
    found = load_vectors(context, replace(bucket, index_files=(made,)))
    assert {name: set(vector.positions) for name, vector in found.by_file.items()} == {
        **before,
        fresh: {1, 2, 3},
        first: before[first] | {0},
    }
    assert {r.data_file_name: r.cardinality for r in made.deletion_vector_ranges or ()}[fresh] == 3
    again, _ = changed_vectors(context, replace(bucket, index_files=(made,)))
    for name in (first, *others, fresh):
        again.drop(name)
    assert again.write(live) == ((made,), ()), "no vectors, no file"


def test_vectors_of_missing_files_are_not_copied(tmp_path: Path) -> None:
    context, bucket, _ = marked(tmp_path)
    changes, live = changed_vectors(context, bucket)
    (first, *_) = changes.before.by_file
    fresh = next(name for name in live if name not in changes.before.by_file)
    changes.mark(fresh, np.array([0]))
    _, (made,) = changes.write(live - {first})
    assert first not in {listed.data_file_name for listed in made.deletion_vector_ranges or ()}


def test_vectors_that_stay_are_kept_of_every_index_file(tmp_path: Path) -> None:
    """Without buckets only index files with a vector that changes are rewritten; two of them, and one that stays."""
    context = make_table(tmp_path, {"id": "INT"}, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    names = ("a", "b", "c", "d", "e", "f", "new")
    live, bucket = frozenset(names), BucketFiles(EMPTY_ROW, 0, -1, ())
    made: list[IndexFileMeta] = []
    for number in (0, 2, 4):
        changes = ChangedVectors(context, bucket, "")
        for name in names[number : number + 2]:
            changes.mark(name, np.array([number]))
        made += changes.write(live)[1]
    bucket = replace(bucket, index_files=tuple(made))
    changes = ChangedVectors(context, bucket, "")
    changes.mark("b", np.array([9]))
    changes.mark("new", np.array([7]))
    changes.drop("d")
    gone, added = changes.write(live)
    assert gone == tuple(made[:2])
    listed = [entry.data_file_name for index in (*added, made[2]) for entry in index.deletion_vector_ranges or ()]
    assert sorted(listed) == ["a", "b", "c", "e", "f", "new"]
    found = load_vectors(context, replace(bucket, index_files=(*added, made[2]))).by_file
    marks = {name: list(vector.positions) for name, vector in found.items()}
    assert marks == {"a": [0], "b": [0, 9], "c": [2], "e": [4], "f": [4], "new": [7]}


def test_live_rows_are_those_of_the_mask_in_every_type() -> None:
    random = np.random.default_rng(5)
    numbers, absent = random.integers(-1000, 1000, 500), random.random(500) < 0.1
    for mask in (absent, None):
        whole = pa.array(numbers, mask=mask)
        text = whole.cast(pa.string())
        typed = {
            "long": whole,
            "truth": pc.greater(whole, 0),
            "price": whole.cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 2)),
            "at": whole.cast(pa.timestamp("us", "UTC")),
            "text": text,
            "encoded": text.dictionary_encode(),
            "bytes": text.cast(pa.binary()),
            "list": pa.array([[one] for one in whole.to_pylist()]),
            "struct": pa.StructArray.from_arrays([whole, text], ["a", "b"]),
            "nothing": pa.nulls(500, pa.int32()),
        }
        for batch in (pa.record_batch(typed), pa.record_batch(typed).slice(3, 131)):
            live = random.random(batch.num_rows) > 0.2
            assert live_rows(batch, packed(live)).equals(batch.filter(pa.array(live)))
            assert live_rows(batch, packed(np.ones(batch.num_rows, bool))) is batch
            assert live_rows(batch, packed(np.zeros(batch.num_rows, bool))).num_rows == 0
            assert live_rows(batch.select([]), packed(live)).num_rows == np.count_nonzero(live)


@pytest.mark.parametrize("bitmap64", [False, True])
def test_masks_mark_the_deleted_rows_up_to_the_last_row(bitmap64: bool) -> None:
    marked = np.array([0, 5, 6, 70000, 131071], dtype=np.uint64)
    vector = DeletionVector.marking(marked, bitmap64=bitmap64)
    for count in (0, 5, 6, 70001, 131071, 131072, 131080):
        live = vector.live_rows(count)
        assert len(live) == count and np.flatnonzero(~live).tolist() == [int(row) for row in marked if row < count]


def test_of_two_vectors_of_a_file_the_later_one_counts(tmp_path: Path) -> None:
    """An engine may have left the older one."""
    context, bucket, _ = marked(tmp_path)
    (index,) = bucket.index_files
    (name, old), *_ = load_vectors(context, bucket).by_file.items()
    changed = ChangedVectors(context, replace(bucket, index_files=()), "0123456789abcdef")
    changed.mark(name, np.arange(7))
    _, (later,) = changed.write(frozenset([name]))
    both = load_vectors(context, replace(bucket, index_files=(index, later)))
    found, before = both.of(name), load_vectors(context, replace(bucket, index_files=(later, index))).of(name)
    assert found is not None and list(found.positions) == list(range(7)) != list(old.positions)
    assert before is not None and list(before.positions) == list(old.positions)


def test_marks_of_a_file_that_goes_are_not_written(tmp_path: Path) -> None:
    """In a table without buckets, whose vectors are rewritten in part."""
    context = make_table(tmp_path / "t", {"v": "INT"}, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    changed = ChangedVectors(context, BucketFiles(EMPTY_ROW, 0, -1, ()), "0123456789abcdef")
    for name in ("stays", "goes"):
        changed.mark(name, np.arange(3))
    changed.drop("goes")
    removed, (added,) = changed.write(frozenset(["stays", "goes"]))
    assert not removed and [entry.data_file_name for entry in added.deletion_vector_ranges or ()] == ["stays"]
