"""Rows outside of the ranges that the manifest records for their file are damage, wherever files are merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from tests import tables


def two_files(folder: Path, file_format: str) -> tuple[TableContext, BucketFiles]:
    options = {"file.format": file_format, "write-only": "true"}
    context = tables.make_table(folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], (), 1, options)
    for version in ("old", "new"):
        tables.write(context, [{"k": k, "v": version} for k in range(10)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    return context, bucket


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("false", "said"),
    [
        ({"min_key": 3}, "its keys are"),
        ({"max_key": 6}, "its keys are"),
        ({"min_sequence_number": 3}, "sequence numbers"),
        ({"max_sequence_number": 5}, "sequence numbers"),
    ],
)
def test_rows_outside_of_a_recorded_range_are_refused(tmp_path: Path, file_format: str, false: dict[str, int], said: str) -> None:
    context, bucket = two_files(tmp_path, file_format)
    names = ["k", "v", "_SEQUENCE_NUMBER"]
    assert sum(batch.num_rows for batch in read_bucket(context, bucket, names)) == 10
    stored: dict[str, Any] = {n: serialize_row([v], context.key_types) if n.endswith("key") else v for n, v in false.items()}
    damaged = replace(bucket, files=(replace(bucket.files[0], **stored), bucket.files[1]))
    with pytest.raises(DamagedFile, match=said):
        list(read_bucket(context, damaged, names))


def test_footers_tell_sequence_numbers_that_are_not_read(tmp_path: Path) -> None:
    """Swapped ranges would turn the order of two files round."""
    context, bucket = two_files(tmp_path, "parquet")
    files = tuple(
        replace(file, min_sequence_number=other.min_sequence_number, max_sequence_number=other.max_sequence_number)
        for file, other in zip(bucket.files, reversed(bucket.files), strict=True)
    )
    with pytest.raises(DamagedFile, match="sequence numbers"):
        list(read_bucket(context, replace(bucket, files=files), ["k", "v"]))


def test_a_least_key_above_the_greatest_is_refused(tmp_path: Path) -> None:
    context, bucket = two_files(tmp_path, "parquet")
    turned = replace(bucket.files[0], min_key=bucket.files[0].max_key, max_key=bucket.files[0].min_key)
    with pytest.raises(DamagedFile, match="least key"):
        list(read_bucket(context, replace(bucket, files=(turned, bucket.files[1])), ["k", "v"]))
