"""Null partitions: writers serialise the null of a long DECIMAL or precise TIMESTAMP in different ways, and mean one partition.

Java and this engine reserve bytes for the value that may come, pypaimon does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.datatypes.bucket_hash import encode_rows
from paimon_cli.errors import NotSupported
from paimon_cli.write import routers

TYPES = ("TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "DECIMAL(38, 10)")
Writer = Callable[[int], None]


def without_reserved_bytes(values: Any, types: Any, encode: Any = encode_rows) -> pa.Array:
    """The partitions as pypaimon serialises them: nothing follows the slots, and the slot of a null is empty."""
    return pa.array([row[:12] + bytes(8) for row in encode(values, types).to_pylist()], pa.binary())


def made(folder: Path, t: str, **more: Any) -> Table:
    return Table.create(str(folder / "t"), columns=["k INT", f"p {t}"], partition_by="p", **more)


def put(table: Table, *keys: int, **more: Any) -> None:
    table.write([{"k": key, "p": None} for key in keys], **more)


def put_foreign(table: Table, *keys: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routers, "encode_rows", without_reserved_bytes)
        put(table, *keys)


def keys(table: Table) -> list[int]:
    return sorted(table.scan("k").to_arrow().column("k").to_pylist())


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("foreign_first", [True, False])
def test_rows_without_keys_are_those_of_one_partition(tmp_path: Path, t: str, foreign_first: bool) -> None:
    table = made(tmp_path, t)
    for writer, key in ((put_foreign, 1), (put, 2)) if foreign_first else ((put, 1), (put_foreign, 2)):
        writer(table, key, key + 10)
    assert len({bytes(bucket.partition) for bucket in table.context.manifests.live_entries(table.context.snapshots.get(2))}) == 2
    assert keys(table) == [1, 2, 11, 12] and table.scan(where="p IS NULL").count() == 4
    (partition,) = table.partitions()
    assert (partition.buckets, partition.rows, table.describe().partitions) == (1, 4, 1)
    assert table.update("k = k + 100", where="k > 10").rows == 2 and table.delete("k IN (1, 111)").rows == 2
    table.compact()
    assert keys(table) == [2, 112] and not table.verify("full").violations


@pytest.mark.parametrize("change", ["overwrite", "overwrite the partition", "drop the partition"])
def test_what_replaces_the_partition_replaces_all_of_it(tmp_path: Path, change: str) -> None:
    table = made(tmp_path, "TIMESTAMP(6)")
    put_foreign(table, 1)
    put(table, 2)
    if change == "drop the partition":
        table.drop_partition({"p": None})
        assert keys(table) == []
    else:
        put(table, 3, overwrite=True, **({} if change == "overwrite" else {"partition": {"p": None}}))
        assert keys(table) == [3]


@pytest.mark.parametrize("moves", [False, True], ids=["", "keys that move"])
def test_rows_with_keys_would_not_be_merged_so_the_second_form_is_refused(tmp_path: Path, moves: bool) -> None:
    options = {"primary-key.nullable": "true"}
    keyed = {"primary_key": "k"} if moves else {"primary_key": ["k", "p"], "bucket": 1, "options": options}
    table = made(tmp_path, "DECIMAL(38, 10)", **keyed)
    stage = str(tmp_path / "staged.json")
    put(table, 2, stage=stage)
    put_foreign(table, 1)
    for change in (lambda: put(table, 3), lambda: table.stage.commit(stage)):
        with pytest.raises(NotSupported, match="in a form of its own"):
            change()
    table.write([{"k": 4, "p": 5}])
    assert keys(table) == [1, 4] and not table.verify("full").violations
    table.drop_partition({"p": None})
    put(table, 6)
    assert keys(table) == [4, 6] and not table.verify("full").violations


def test_an_overwrite_replaces_rows_with_keys_in_a_form_of_another_writer(tmp_path: Path) -> None:
    keyed = {"primary_key": ["k", "p"], "bucket": 1, "options": {"primary-key.nullable": "true"}}
    table = made(tmp_path, "DECIMAL(38, 10)", **keyed)
    put_foreign(table, 1)
    put(table, 2, overwrite=True)
    assert keys(table) == [2] and not table.verify("full").violations
