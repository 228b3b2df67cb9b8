"""BinaryRow bytes and hashes against Java's (`binary_row` vectors), and round trips."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_cli.datatypes.binary_row import deserialize_row, encode_row, serialize_row
from paimon_cli.datatypes.canonical_form import canonical_json, from_canonical
from paimon_cli.datatypes.data_type import ArrayType, DataType, MapType, MultisetType, RowType
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.metadata.data_file_schema import KIND_TEXTS
from tests.datatypes.one_row_hash import row_hash
from tests.vectors import load


def parsed(line: dict[str, Any]) -> tuple[list[DataType], list[Any]]:
    types = [parse_type(t) for t in line["in"]["types"]]
    return types, [from_canonical(value, t) for value, t in zip(line["in"]["row"], types, strict=True)]


def lacks_room(value: Any, t: DataType, in_row: bool) -> bool:
    """Whether a null DECIMAL(>18) or TIMESTAMP(>3) lies inside a ROW, where 0.9 reserves nothing: read, but never written so."""
    if value is None:
        return in_row and not t.is_compact
    if isinstance(t, RowType):
        return any(lacks_room(item, field.type, True) for item, field in zip(value, t.fields, strict=True))
    if isinstance(t, ArrayType):
        return any(lacks_room(item, t.element, False) for item in value)
    if isinstance(t, (MapType, MultisetType)):
        key, item_type = t.key, t.value
        return any(lacks_room(k, key, False) or lacks_room(v, item_type, False) for k, v in value)
    return False


def test_rows_of_the_main_branch() -> None:
    lines = load("binary_row_head")
    for line in lines:
        types, row = parsed(line)
        data = encode_row(row, types, KIND_TEXTS.index(line["in"]["kind"]))
        assert (data.hex(), row_hash(data)) == (line["out"]["row"], line["out"]["hash"]), line
        assert data[4:] == serialize_row(row, types)[8:]
    assert len(lines) == 150


def test_rows_of_0_9() -> None:
    """Projections have no row kind and reserve space, as we do; the other rows count only if both ways give the same bytes."""
    projected = plain = unreserved = 0
    for line in load("binary_row"):
        types, row = parsed(line)
        out, cells = line["out"], list(zip(row, types, strict=True))
        if any(lacks_room(value, t, False) for value, t in cells):
            unreserved += 1
            continue
        if "projected" in out:
            data = encode_row(row, types)
            assert (data.hex(), row_hash(data)) == (out["projected"], out["projected_hash"]), line
            projected += 1
        if not any(lacks_room(value, t, True) for value, t in cells):
            data = encode_row(row, types, KIND_TEXTS.index(line["in"]["kind"]))
            assert (data.hex(), row_hash(data)) == (out["row"], out["hash"]), line
            plain += 1
    assert (projected, plain, unreserved) == (54, 508, 11)


@pytest.mark.parametrize("name", ["binary_row", "binary_row_head"])
def test_serialised_rows_of_every_version_are_read(name: str) -> None:
    for line in load(name):
        types, row = parsed(line)
        back = deserialize_row(bytes.fromhex(line["out"]["serialized"]), types)
        shown = [canonical_json(value, t) for value, t in zip(back, types, strict=True)]
        assert shown == [canonical_json(value, t) for value, t in zip(row, types, strict=True)], line


def test_what_is_written_is_read_back() -> None:
    for line in load("binary_row"):
        types, row = parsed(line)
        data = serialize_row(row, types)
        assert serialize_row(deserialize_row(data, types), types) == data


def test_rows_without_columns() -> None:
    assert serialize_row((), ()) == bytes(12)
    assert deserialize_row(bytes(12), ()) == deserialize_row(b"", ()) == ()


@pytest.mark.parametrize(
    ("types", "data"),
    [
        (["INT"], "000000020000000000000000010000000000000000000000000000"),
        (["INT"], "00000001000000"),
        (["INT"], ""),
        (["STRING"], "00000001" + "00" * 8 + "ff00000010000000" + "6162"),
        (["STRING"], "00000001" + "00" * 8 + "ff00000000000081"),
        (["TIMESTAMP(6)"], "00000001" + "00" * 8 + "00000000ff000000"),
        ([{"type": "ARRAY", "element": "INT"}], "00000001" + "00" * 8 + "0800000010000000" + "ffff000000000000"),
    ],
)
def test_malformed_rows_are_value_errors(types: list[str], data: str) -> None:
    with pytest.raises(ValueError):
        deserialize_row(bytes.fromhex(data), [parse_type(t) for t in types])


def test_a_decimal_zero_takes_one_byte() -> None:
    t = parse_type("DECIMAL(20, 2)")
    assert encode_row([from_canonical("0.00", t)], [t]).hex() == "0000000000000000" + "0100000010000000" + "00" * 16
