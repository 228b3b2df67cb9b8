"""The file indexes bsi and range-bitmap: Java's own bytes and answers, and bytes that are damaged or hostile."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.bucket.bsi_index import BsiIndex, BsiKind
from paimon_cli.bucket.file_index import FileIndex, IndexKind
from paimon_cli.bucket.range_bitmap_index import RangeBitmapKind
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES
from tests.vectors import load

KINDS: dict[str, IndexKind] = {kind.name: kind for kind in (BsiKind(), RangeBitmapKind())}
CASES = load("number_index")
WRITTEN = [case for case in CASES if "bytes" in case["out"]]
REFUSED = [case for case in CASES if case["out"].get("error") in ("UnsupportedOperationException", "IllegalArgumentException")]
INEXPRESSIBLE = [case for case in CASES if "error" in case["out"] and case not in REFUSED]


def name(case: dict[str, Any]) -> str:
    return f"{case['in']['kind']}-{case['in']['type']}"


def field_of(case: dict[str, Any]) -> DataField:
    return DataField(0, "c", parse_type(case["in"]["type"]))


def column(values: list[Any], field: DataField) -> pa.Array:
    return values_to_arrow([None if value is None else from_canonical(value, field.type) for value in values], field.type)


def empty(case: dict[str, Any]) -> FileIndex:
    kind, field = KINDS[case["in"]["kind"]], field_of(case)
    key = f"file-index.{kind.name}.c.chunk-size"
    kind.check(field)
    return kind.empty(field, TableOptions({key: case["in"]["chunk-size"]} if "chunk-size" in case["in"] else {}))


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("case", WRITTEN, ids=name)
def test_java_s_own_bytes_and_answers(case: dict[str, Any], one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paimon 1.4.2 wrote them, and counted the rows that equal each probe, or are less or greater."""
    monkeypatch.setattr(PIECES, "sliced_lookups", 1_000 if one_by_one else 0)
    given, out, field = case["in"], case["out"], field_of(case)
    content = bytes.fromhex(out["bytes"])
    mine, merged = empty(case), empty(case)
    mine.add(column(given["rows"], field))
    theirs = KINDS[given["kind"]].decoded(field, content, len(given["rows"]))
    merged.merge(theirs)
    probes = column(given["probes"], field)
    assert mine.to_bytes() == content == merged.to_bytes()
    for index in (mine, theirs, merged):
        assert index.may_hold(probes).tolist() == [rows > 0 for rows in out["equal"]]
        if (bounds := index.bounds()) is None:
            assert given["rows"].count(None) == len(given["rows"]) or given["type"] in ("FLOAT", "DOUBLE", "TIMESTAMP(9)")
            continue
        for probe, less, greater in zip(given["probes"], out["less"], out["greater"], strict=True):
            value = from_canonical(probe, field.type)
            assert value == -(2**63) or (bounds[0] < value, bounds[1] > value) == (less > 0, greater > 0)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_batches_and_parts_together_are_the_index_of_all_rows(kind: str, stored: bool) -> None:
    """Parts of copied row groups, some of them read from their bytes, and asked in between: nothing is remembered from before."""
    dice, field = random.Random(3), DataField(0, "c", parse_type("INT"))

    def new(*batches: list[int | None]) -> FileIndex:
        chunks = {} if stored else {f"file-index.{kind}.c.chunk-size": "12 b"}  # bytes do not say their size
        index = KINDS[kind].empty(field, TableOptions(chunks))
        for values in batches:
            index.add(pa.array(values, pa.int32()))
            assert index.bounds() is not None and index.may_hold(pa.array([v for v in values if v is not None], pa.int32())).all()
        return index

    batches = [[dice.choice([None, -1, 1]) and dice.randrange(-40, 40) for _ in range(rows)] for rows in (5, 3, 9, 4)]
    parts = [new(values) for values in batches]
    if stored:
        parts = [KINDS[kind].decoded(field, part.to_bytes() or b"", len(of)) for part, of in zip(parts, batches, strict=True)]
    first, *others = parts
    held = {value for value in batches[0] if value is not None}
    for other, values in zip(others, batches[1:], strict=True):
        assert first.fits(other)
        first.merge(other)
        held |= {value for value in values if value is not None}
        asked = [*range(-300, 300), *held]
        assert first.may_hold(pa.array(asked, pa.int32())).tolist() == [value in held for value in asked]
        assert first.bounds() == (min(held), max(held))
    assert first.to_bytes() == new(*batches).to_bytes()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_bounds_of_few_numbers(kind: str) -> None:
    """Whatever bits they have in common."""
    field = DataField(0, "c", parse_type("INT"))
    for low in range(-6, 9):
        for high in range(low, 9):
            index = KINDS[kind].empty(field, TableOptions({}))
            index.add(pa.array([high, None, low], pa.int32()))
            assert index.bounds() == (low, high)


def test_amounts_from_which_something_was_subtracted() -> None:
    """Of older writers of Java: its readers add it again, and so do ours."""
    field = DataField(0, "c", parse_type("INT"))
    index = BsiIndex(field.type)
    index.add(pa.array([2, 5, -1, -4], pa.int32()))
    index._offsets = [10, 100]
    there = BsiKind().decoded(field, index.to_bytes() or b"", 4)
    asked = pa.array([2, 12, 15, -1, -101, -104], pa.int32())
    assert there.may_hold(asked).tolist() == [False, True, True, False, True, True]
    assert there.bounds() == (-104, 15) and not there.fits(index)


OF_DAMAGE = ("bsi-INT", "range-bitmap-INT", "range-bitmap-STRING")
DAMAGED = [next(case for case in WRITTEN if name(case) == wanted) for wanted in OF_DAMAGE]


@pytest.mark.parametrize("case", REFUSED, ids=name)
def test_types_that_java_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(NotSupported, match="Paimon has none"):
        KINDS[case["in"]["kind"]].check(field_of(case))


@pytest.mark.parametrize("case", INEXPRESSIBLE, ids=name)
def test_a_file_with_a_number_that_java_cannot_express_has_no_index(case: dict[str, Any]) -> None:
    index = empty(case)
    index.add(column(case["in"]["rows"], field_of(case)))
    assert index.to_bytes() is None and index.bounds() is None
    assert index.may_hold(column(case["in"]["rows"], field_of(case))).all()
    other = empty(case)
    other.merge(index)
    assert other.to_bytes() is None


def test_floating_point_numbers_are_not_asked_for() -> None:
    assert not any(KINDS["range-bitmap"].is_consulted(parse_type(t)) for t in ("DOUBLE", "FLOAT", "CHAR(3)"))
    assert not KINDS["bsi"].is_consulted(parse_type("DOUBLE")) and KINDS["bsi"].is_consulted(parse_type("TIMESTAMP(9)"))


@pytest.mark.parametrize("case", DAMAGED, ids=name)
def test_damaged_bytes_are_refused_or_are_another_index(case: dict[str, Any]) -> None:
    content, field, rows = bytes.fromhex(case["out"]["bytes"]), field_of(case), len(case["in"]["rows"])
    kind, chance = KINDS[case["in"]["kind"]], random.Random(3)
    for cut in range(len(content)):
        with pytest.raises(ValueError):
            kind.decoded(field, content[:cut], rows).to_bytes()
    with pytest.raises(ValueError, match=f"its file has {rows - 1}"):
        kind.decoded(field, content, rows - 1)
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        try:
            index = kind.decoded(field, bytes(damaged), rows)
            index.bounds()
            index.may_hold(column(case["in"]["probes"], field))
            index.to_bytes()
        except ValueError:
            continue
