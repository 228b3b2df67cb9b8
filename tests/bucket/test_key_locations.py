"""Where keys live that may move from partition to partition: what a lookup finds is what a read shows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_cli.bucket.key_locations import KeyLocations, RepeatedKeys, repeated_keys, whole_key
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.pieces import PIECES
from tests.tables import make_table, rows, write

COLUMNS = {"p": "INT", "a": "INT", "b": "INT", "k": "INT NOT NULL", "v": "INT"}


def table(folder: Path, options: Mapping[str, str] | None = None, parts: Sequence[str] = ("p", "a", "b")) -> TableContext:
    """The key is (a, k, b): two partition columns belong to it, and p does not."""
    keys = [name for name in ("a", "k", "b") if name == "k" or name in parts]
    return make_table(folder / "t", COLUMNS, keys, parts, bucket=-1, options={"write-only": "true", **(options or {})})


def row(p: int | None, a: int | None, b: int | None, k: int, v: int = 0, **more: Any) -> dict[str, Any]:
    return {"p": p, "a": a, "b": b, "k": k, "v": v, **more}


def files(context: TableContext) -> dict[BucketId, BucketFiles]:
    return dict(bucket_files(context, context.snapshots.latest()))


def where(context: TableContext, *keys: tuple[Any, ...]) -> list[int | None]:
    """The value of p in the partition that holds each key (its columns in the order of lookups)."""
    names, locations = whole_key(context.schema), KeyLocations(context, files(context))
    given = pa.table({name: pa.array(cells, pa.int32()) for name, cells in zip(names, zip(*keys, strict=True), strict=True)})
    found = locations.of(given.to_batches()[0])
    return [None if at == ABSENT else context.partition_values(locations.buckets[at].partition)[0] for at in found.tolist()]


def test_the_order_of_lookups_is_that_of_files_and_then_the_partition(tmp_path: Path) -> None:
    assert whole_key(table(tmp_path).schema) == ("k", "a", "b")


def test_keys_are_found_in_the_partition_that_their_own_columns_name(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(7, 1, 1, 5), row(8, 1, 2, 5), row(9, 2, 1, 5), row(6, 2, 2, 6), row(None, 1, 1, 9)])
    asked = [(5, 1, 1), (5, 1, 2), (5, 2, 1), (5, 2, 2), (6, 1, 1), (6, 2, 2), (7, 1, 1)]
    assert where(context, *asked) == [7, 8, 9, None, None, 6, None]


@pytest.mark.parametrize("kind", ["-D", "-U"])
def test_a_retraction_hides_a_key_and_a_later_row_shows_it(tmp_path: Path, kind: str) -> None:
    context = table(tmp_path, parts=("p",))
    write(context, [row(1, 0, 0, k) for k in range(4)])
    write(context, [row(1, 0, 0, 1, _op=kind), row(1, 0, 0, 2, _op=kind)])
    write(context, [row(1, 0, 0, 2, 5)])
    assert where(context, (0,), (1,), (2,), (3,)) == [1, None, 1, 1]


def test_a_row_that_comes_late_does_not_show_what_a_newer_deletion_hides(tmp_path: Path) -> None:
    """By the sequence field the deletion is the newest version, although its file is older."""
    context = table(tmp_path, {"sequence.field": "v"}, parts=("p",))
    write(context, [row(1, 0, 0, 1, 1), row(1, 0, 0, 2, 1)])
    write(context, [row(1, 0, 0, 1, 10, _op="-D"), row(1, 0, 0, 2, 10, _op="+I")])
    write(context, [row(1, 0, 0, 1, 5), row(1, 0, 0, 2, 5)])
    assert where(context, (1,), (2,)) == [None, 1]
    assert [found["k"] for found in rows(context)] == [2]


def test_all_keys_in_doubt_are_merged_whatever_batches_they_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, parts=("p",))
    write(context, [row(1, 0, 0, k) for k in range(300)])
    write(context, [row(1, 0, 0, k, _op="-D") for k in range(0, 300, 2)])
    monkeypatch.setattr(PIECES, "batch_rows", 16)
    shown = [1 if k % 2 else None for k in range(300)]
    assert where(context, *((k,) for k in range(300))) == shown


def moved(context: TableContext, to: int) -> dict[BucketId, BucketFiles]:
    """The buckets, and those of partition p = 1 once more in another partition, as two jobs of another engine write them."""
    found = files(context)
    (old,) = [bucket for bucket in found.values() if context.partition_values(bucket.partition) == (1,)]
    new = replace(old, partition=serialize_row([to], context.partition_types))
    root = Path(context.layout.root)
    source, target = (root / context.bucket_path(*bucket.bucket_id) for bucket in (old, new))
    shutil.copytree(source, target, dirs_exist_ok=True)
    return {**found, new.bucket_id: new}


def test_a_key_in_two_partitions_is_damage_unless_old_keys_are_forgotten(tmp_path: Path) -> None:
    context = table(tmp_path, parts=("p",))
    write(context, [row(1, 0, 0, 3)])
    write(context, [row(2, 0, 0, 4)])
    keys = pa.record_batch([pa.array([3, 4], pa.int32())], ["k"])
    twice = moved(context, 5)
    with pytest.raises(DamagedFile, match=r"the key k = 3 lives in two buckets, .*p=1/bucket-0 and .*p=5/bucket-0"):
        KeyLocations(context, twice).of(keys)
    lasting = context.redefined(options=context.options.with_overrides({"cross-partition-upsert.index-ttl": "1 d"}))
    assert KeyLocations(lasting, twice).of(keys).tolist() == [2, 1], "the last bucket that shows it"


def test_repeated_keys_are_counted_and_the_first_is_named_with_its_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = table(tmp_path, parts=("p",))
    write(context, [row(2, 0, 0, k) for k in range(100, 140)])
    write(context, [row(1, 0, 0, k) for k in range(40)])
    assert repeated_keys(context, list(files(context).values())) is None
    monkeypatch.setattr(PIECES, "batch_rows", 8)
    twice = moved(context, 5)
    names = {context.partition_values(bucket_id.partition)[0]: bucket_id for bucket_id in twice}
    buckets = [twice[names[p]] for p in (2, 1, 5)]
    assert repeated_keys(context, buckets) == RepeatedKeys(40, "k = 0", (names[1], names[5]))
    assert repeated_keys(context, buckets, lambda batch: batch.filter(pc.greater(batch.column("k"), 37))) == RepeatedKeys(
        2, "k = 38", (names[1], names[5])
    )


def test_sections_of_old_files_are_forgotten_whole(tmp_path: Path) -> None:
    """Keys 1 to 5 have a young file above an old one, and keys 7 and 8 only an old one."""
    context = table(tmp_path, {"cross-partition-upsert.index-ttl": "1 h"}, parts=("p",))
    write(context, [row(1, 0, 0, k) for k in range(1, 6)])
    write(context, [row(1, 0, 0, 3)])
    write(context, [row(1, 0, 0, 7), row(1, 0, 0, 8)])
    (bucket,) = files(context).values()
    oldest, young, other = bucket.files
    aged = (replace(oldest, creation_time_millis=0), young, replace(other, creation_time_millis=None))
    keys = pa.record_batch([pa.array([1, 3, 7], pa.int32())], ["k"])
    found = KeyLocations(context, {bucket.bucket_id: replace(bucket, files=aged)}).of(keys)
    assert found.tolist() == [0, 0, ABSENT]
