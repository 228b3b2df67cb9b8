"""Routing rows to partitions and buckets: as Java, vectorised, order of arrival kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.binary_row import deserialize_row, encode_row
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.data_file import EMPTY_ROW
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.write.routers import FixedRouter
from tests.datatypes.one_row_hash import row_hash
from tests.ingest.input_files import schema_of

COLUMNS = {"dt": "STRING NOT NULL", "h": "INT NOT NULL", "k": "STRING NOT NULL", "v": "INT"}


def router_of(schema: TableSchema) -> FixedRouter:
    return FixedRouter(schema, TableOptions(schema.options))


def test_rows_go_where_their_keys_hash_to() -> None:
    schema = schema_of(COLUMNS, ("dt", "h", "k"), ("dt", "h"), {"bucket": "7"})
    random = np.random.default_rng(5)
    rows = 1000
    batch = pa.record_batch(
        {
            "_SEQUENCE_NUMBER": np.arange(rows),
            "dt": random.choice(["2024-01-01", "", "é" * 20], rows),
            "h": pa.array(random.integers(-2, 2, rows), pa.int32()),
            "k": [f"key-{n}" for n in random.integers(0, 200, rows)],
        }
    )
    router = router_of(schema)
    routed = router.route(batch)
    partitions, buckets = routed.partitions.take(pa.array(routed.codes)), routed.buckets
    types = schema.types_of(("dt", "h"))
    for row in batch.slice(0, 50).to_pylist():
        n = row["_SEQUENCE_NUMBER"]
        assert deserialize_row(partitions[n].as_py(), types) == (row["dt"], row["h"])
        assert buckets[n] == abs(row_hash(encode_row([row["k"]], schema.types_of(["k"])))) % 7
    pieces = list(router.route(batch).pieces())
    assert sorted(n for _, piece in pieces for n in piece["_SEQUENCE_NUMBER"].to_pylist()) == list(range(rows))
    assert len({(partition, bucket) for (partition, bucket), _ in pieces}) == len(pieces)
    for (partition, bucket), piece in pieces:
        order = piece["_SEQUENCE_NUMBER"].to_pylist()
        assert order == sorted(order)
        assert {partitions[n].as_py() for n in order} == {partition} and set(buckets[order]) == {bucket}


def test_a_table_without_partitions_and_one_bucket_keeps_its_batches() -> None:
    router = router_of(schema_of({"k": "INT NOT NULL"}, options={"bucket": "1"}))
    batch = pa.record_batch({"k": pa.array([3, 1, 2], pa.int32())})
    (((partition, bucket), piece),) = router.route(batch).pieces()
    assert (partition, bucket) == (EMPTY_ROW, 0) and piece.equals(batch)
    assert list(router.route(batch.slice(0, 0)).pieces()) == []


def test_null_partitions_are_partitions_of_their_own() -> None:
    schema = schema_of({"dt": "STRING", "k": "INT NOT NULL"}, ("dt", "k"), ("dt",), {"bucket": "1"})
    batch = pa.record_batch({"dt": [None, "a", None, ""], "k": pa.array([1, 2, 3, 4], pa.int32())})
    found = {
        deserialize_row(partition, schema.types_of(["dt"]))[0]: piece["k"].to_pylist()
        for (partition, _), piece in router_of(schema).route(batch).pieces()
    }
    assert found == {None: [1, 3], "a": [2], "": [4]}


def test_the_bucket_key_may_be_a_part_of_the_key() -> None:
    schema = schema_of({"a": "INT NOT NULL", "b": "BIGINT NOT NULL"}, ("a", "b"), options={"bucket": "5", "bucket-key": "b"})
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int32()), "b": pa.array([1, 1, 1], pa.int64())})
    assert router_of(schema).route(batch).buckets.tolist() == [3, 3, 3]


def test_partitions_whose_directory_names_differ_by_writer_are_refused() -> None:
    schema = schema_of({"p": "DOUBLE NOT NULL", "k": "INT NOT NULL"}, ("p", "k"), ("p",))
    with pytest.raises(NotSupported, match="column 'p'"):
        router_of(schema)


def test_pieces_come_in_the_requested_order() -> None:
    router = router_of(schema_of({"k": "INT NOT NULL"}, options={"bucket": "3"}))
    batch = pa.record_batch({"k": pa.array(np.random.default_rng(1).permutation(500), pa.int32())})
    falling = np.argsort(-batch["k"].to_numpy(), kind="stable")
    pieces = {bucket: piece["k"].to_pylist() for (_, bucket), piece in router.route(batch).pieces(falling)}
    given = {bucket: piece["k"].to_pylist() for (_, bucket), piece in router.route(batch).pieces()}
    assert pieces == {bucket: sorted(keys, reverse=True) for bucket, keys in given.items()}
    ((_, whole),) = router_of(schema_of({"k": "INT NOT NULL"}, options={"bucket": "1"})).route(batch).pieces(falling)
    assert whole["k"].to_pylist() == list(range(499, -1, -1))


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_the_rows_of_each_bucket_in_the_requested_order(seed: int) -> None:
    """Also where rows come grouped by their places already, and where all are of one place."""
    dice = np.random.default_rng(seed)
    schema = schema_of({"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "INT"}, ("p", "k"), ("p",), {"bucket": f"{1 + seed % 3}"})
    rows = int(dice.integers(1, 40))
    p = dice.integers(0, 1 + seed % 4, rows)
    columns = {"p": np.sort(p) if seed % 2 else p, "k": np.sort(dice.integers(0, 9, rows)), "v": np.arange(rows)}
    batch = pa.record_batch({name: pa.array(values, pa.int32()) for name, values in columns.items()})
    order = None if seed % 5 == 0 else dice.permutation(rows) if seed % 5 == 1 else np.arange(rows)
    router = router_of(schema)
    routed = router.route(batch)
    partitions, buckets = routed.partitions.take(pa.array(routed.codes)), routed.buckets
    expected: dict[tuple[bytes, int], list[int]] = {}
    for row in range(rows) if order is None else order:
        expected.setdefault((partitions[int(row)].as_py(), int(buckets[row])), []).append(int(row))
    pieces = list(router.route(batch).pieces(order))
    assert {(partition, bucket): piece["v"].to_pylist() for (partition, bucket), piece in pieces} == expected
    assert len(pieces) == len(expected)


@pytest.mark.parametrize(("function", "expected"), [("mod", [0, 1, 2, 2, 1, 1]), ("default", None)])
def test_buckets_are_counted_by_the_function_that_the_table_names(function: str, expected: list[int] | None) -> None:
    options = {"bucket": "3", "bucket-function.type": function}
    router = router_of(schema_of({"k": "INT NOT NULL", "v": "INT"}, ("k",), (), options))
    numbers = [0, 1, 2, -1, -2, 7]
    batch = pa.record_batch({"k": pa.array(numbers, pa.int32()), "v": pa.array(numbers, pa.int32())})
    buckets = router.route(batch).buckets
    types = schema_of({"k": "INT NOT NULL"}).types_of(["k"])
    assert buckets.tolist() == (expected or [abs(row_hash(encode_row([k], types))) % 3 for k in numbers])
    pieces = {bucket: piece["k"].to_pylist() for (_, bucket), piece in router.route(batch).pieces()}
    assert pieces == {b: [k for k, of in zip(numbers, buckets, strict=True) if of == b] for b in {*buckets.tolist()}}


def test_an_order_that_is_given_is_kept_within_each_bucket() -> None:
    router = router_of(schema_of(COLUMNS, ("dt", "h", "k"), ("dt", "h"), {"bucket": "2"}))
    columns = {"dt": ["b", "a"] * 6, "h": pa.array([1, 1, 2] * 4, pa.int32()), "k": [f"k{n}" for n in range(12)]}
    batch = pa.record_batch({"n": np.arange(12), **columns})
    backwards = np.arange(12)[::-1].copy()
    places = [(partition, bucket) for (partition, bucket), _ in router.route(batch).pieces(backwards)]
    assert len(set(places)) == len(places)
    for ((partition, bucket), piece), ((same, number), forth) in zip(
        router.route(batch).pieces(backwards), router.route(batch).pieces(), strict=True
    ):
        assert (partition, bucket) == (same, number)
        assert piece["n"].to_pylist() == forth["n"].to_pylist()[::-1]


@pytest.mark.parametrize("root", ["FLOAT", "DOUBLE", "BINARY(3)", "VARBINARY(3)", "BYTES"])
def test_partitions_that_writers_spell_differently_are_refused(root: str) -> None:
    schema = schema_of({"p": f"{root} NOT NULL", "k": "INT NOT NULL"}, ("p", "k"), ("p",), {"bucket": "1"})
    with pytest.raises(NotSupported, match="cannot write partitions by column 'p'"):
        router_of(schema)
