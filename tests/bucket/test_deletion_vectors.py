"""The deletion vectors of a bucket: which index files hold them, how often those are read, and what is said of a bad one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.bucket.deletion_vectors import NO_VECTORS, load_vectors
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.storage.trace import Step, StepTrace
from tests.commit.commit_tables import SteppingClock
from tests.goldens import golden_table


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
    told = {"bucket": place, "file": index.file_name, "vectors": len(ranges), "bytes": size}
    assert [(step.name, step.facts) for step in steps] == [("deletion_vectors", told)]
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
    with pytest.raises(DamagedFile, match=path.name):
        load_vectors(context, bucket)
    path.unlink()
    again = TableContext.open(context.url)
    with pytest.raises(DamagedFile, match=f"index file {path} is missing") as refused:
        load_vectors(again, bucket)
    assert refused.value.details["path"] == str(path)
    path.write_bytes(content)
    assert load_vectors(again, bucket).by_file, "a failed attempt is not remembered"
