"""Hashes of whole columns against Java's (`bucket` vectors) and against the row-wise encoder."""

from __future__ import annotations

import decimal
import random
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.binary_row import encode_row, serialize_row
from paimon_cli.datatypes.bucket_functions import bucket_of
from paimon_cli.datatypes.bucket_hash import encode_rows, hash_rows
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import BinaryType, DataType, DecimalType, StringType, TimestampType, TimeType
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.snapshot import dump_java_json
from paimon_cli.metadata.table_schema import TableSchema
from tests.datatypes.one_row_hash import row_hash
from tests.vectors import load

TYPES = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "CHAR(5)",
    "VARCHAR(90)",
    "STRING",
    "BINARY(3)",
    "BYTES",
    "DATE",
    "TIME(3)",
    "DECIMAL(9, 2)",
    "DECIMAL(18, 0)",
    "DECIMAL(19, 3)",
    "DECIMAL(38, 10)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP(0) WITH LOCAL TIME ZONE",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
)


def table_schema(json: dict[str, object]) -> TableSchema:
    return TableSchema.from_json(dump_java_json({"version": 3, "id": 0, "highestFieldId": 99, **json}))


def check_hash(row: dict[str, object], schema: TableSchema, names: tuple[str, ...], data: str, expected: int) -> bool:
    """Compare the single row, and the column where Arrow can hold it (nanoseconds end in 2262): returns whether it could."""
    types, values = schema.types_of(names), [row[name] for name in names]
    single = encode_row(values, types)
    assert (single.hex(), row_hash(single)) == (data, expected)
    try:
        arrays = [values_to_arrow([value], t) for value, t in zip(values, types, strict=True)]
    except NotSupported:
        assert any(isinstance(t, TimestampType) and t.precision > 6 for t in types)
        return False
    assert encode_rows(arrays, types)[0].as_py() == serialize_row(values, types)
    assert hash_rows(arrays, types).tolist() == [expected]
    return True


def test_buckets_of_java() -> None:
    lines, beyond_arrow = load("bucket"), 0
    for line in lines:
        schema, out = table_schema(line["in"]["schema"]), line["out"]
        row = {f.name: from_canonical(v, f.type) for f, v in zip(schema.fields, line["in"]["row"], strict=True)}
        in_arrow = check_hash(row, schema, schema.bucket_key_names, out["bucket_key"], out["bucket_key_hash"])
        buckets = bucket_of(np.array([out["bucket_key_hash"]], dtype=np.int32), int(schema.options["bucket"]))
        assert buckets.tolist() == [out["bucket"]]
        if schema.partition_keys:
            in_arrow &= check_hash(row, schema, schema.partition_keys, out["partition"][8:], out["partition_hash"])
        if out["trimmed_primary_key"] is not None:
            names = schema.trimmed_primary_keys
            in_arrow &= check_hash(row, schema, names, out["trimmed_primary_key"], out["trimmed_primary_key_hash"])
        beyond_arrow += not in_arrow
    assert (len(lines), beyond_arrow) == (277, 3)


def random_value(t: DataType, draw: random.Random) -> object:
    if draw.random() < 0.15:
        return None
    if t.root == "BOOLEAN":
        return draw.random() < 0.5
    bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}.get(t.root)
    if bits:
        return draw.choice([0, -1, -(1 << bits - 1), (1 << bits - 1) - 1, draw.getrandbits(bits - 1)])
    if t.root in ("FLOAT", "DOUBLE"):
        return draw.choice([0.0, -0.0, 1.5, -2.25, float("inf")])
    if isinstance(t, StringType):
        return "".join(draw.choices("aé表😀 ", k=draw.choice([0, 1, 2, 7, 8, 9, 30])))[: t.length]
    if isinstance(t, BinaryType):
        return draw.randbytes(draw.choice([0, 1, 3, 7, 8, 9, 40]))[: t.length]
    if t.root == "DATE":
        return draw.randint(-800_000, 2_000_000)
    if isinstance(t, TimeType):
        return draw.randint(0, 86_399_999)
    if isinstance(t, DecimalType):
        limit = 10 ** draw.randint(0, t.precision) - 1
        return decimal.Decimal((draw.randint(0, 1), tuple(map(int, str(draw.randint(0, limit)))), -t.scale))
    assert isinstance(t, TimestampType)
    nanos = 0 if t.precision <= 3 else draw.randint(0, 999) * 1000 + (draw.randint(0, 999) if t.precision > 6 else 0)
    return Timestamp(draw.randint(-(10**12), 10**12), nanos)


@pytest.mark.parametrize("seed", range(6))
def test_columns_agree_with_single_rows(seed: int) -> None:
    draw = random.Random(seed)
    types = [parse_type(t) for t in draw.sample(TYPES, draw.choice([1, 2, 5, len(TYPES)]))]
    columns = [[random_value(t, draw) for _ in range(300)] for t in types]
    rows = list(zip(*columns, strict=True))
    arrays = [values_to_arrow(column, t) for column, t in zip(columns, types, strict=True)]
    assert hash_rows(arrays, types).tolist() == [row_hash(encode_row(row, types)) for row in rows]
    assert encode_rows(arrays, types).to_pylist() == [serialize_row(row, types) for row in rows]
    sliced = [array.slice(17, 50) for array in arrays]
    assert hash_rows(sliced, types).tolist() == [row_hash(encode_row(row, types)) for row in rows[17:67]]


@pytest.mark.parametrize("text", ["STRING", "BYTES"])
@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_few_rows_of_all_lengths(text: str, rows: int) -> None:
    """Among them are batches in which the first row has the mean length, though others are shorter and longer."""
    t = parse_type(text)
    for lengths in product((2, 8, 19, 60), repeat=rows):
        column = ["x" * length if text == "STRING" else b"x" * length for length in lengths]
        assert hash_rows([values_to_arrow(column, t)], [t]).tolist() == [row_hash(encode_row([value], [t])) for value in column]


@pytest.mark.parametrize("text", TYPES)
def test_each_type_alone(text: str) -> None:
    draw, t = random.Random(text), parse_type(text)
    column = [random_value(t, draw) for _ in range(100)]
    assert hash_rows([values_to_arrow(column, t)], [t]).tolist() == [row_hash(encode_row([value], [t])) for value in column]


def test_more_columns_than_one_header_word_has_bits() -> None:
    types = [parse_type("INT")] * 60
    rows = [tuple(None if (i + r) % 7 == 0 else i for i in range(60)) for r in range(20)]
    arrays = [values_to_arrow(column, t) for column, t in zip(zip(*rows, strict=True), types, strict=True)]
    assert hash_rows(arrays, types).tolist() == [row_hash(encode_row(row, types)) for row in rows]


def test_rows_of_several_blocks() -> None:
    count, t = 70_000, parse_type("STRING")
    texts = ["x" * (i % 20) for i in range(count)]
    by_text = {text: row_hash(encode_row([text], [t])) for text in set(texts)}
    assert hash_rows([pa.array(texts)], [t]).tolist() == [by_text[text] for text in texts]
    encoded = encode_rows([pa.array(texts)], [t])
    assert encoded[69_999].as_py() == serialize_row([texts[69_999]], [t])
    assert len(encoded) == count


def test_other_arrow_forms_of_a_column() -> None:
    t = parse_type("STRING")
    plain = hash_rows([pa.array(["a", "hello world", None])], [t]).tolist()
    assert plain[:2] == [943281246, 161593394]
    assert hash_rows([pa.array(["a", "hello world", None]).dictionary_encode()], [t]).tolist() == plain
    assert hash_rows([pa.array(["a", "hello world", None], pa.large_string())], [t]).tolist() == plain
    assert hash_rows([pa.chunked_array([["a"], ["hello world", None]])], [t]).tolist() == plain


def test_no_rows() -> None:
    t = parse_type("STRING")
    assert hash_rows([pa.array([], pa.string())], [t]).tolist() == []
    assert encode_rows([pa.array([], pa.string())], [t]).to_pylist() == []


def test_bucket_is_the_magnitude_of_the_remainder() -> None:
    hashes = np.array([-(2**31), -7, -1, 0, 7, 2**31 - 1], dtype=np.int32)
    assert bucket_of(hashes, 5).tolist() == [3, 2, 1, 0, 2, 2]


def test_nested_keys_are_refused() -> None:
    t = parse_type({"type": "ARRAY", "element": "INT"})
    with pytest.raises(NotSupported, match="ARRAY<INT>"):
        hash_rows([pa.array([[1]])], [t])
