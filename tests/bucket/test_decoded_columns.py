"""Decoded columns are checked as Arrow's full validation would, whatever way is taken."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.bucket.decoding import check_decoded, decoding
from paimon_cli.datatypes.data_type import MAX_NESTING, ArrayType, DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import DamagedFile, NotSupported

BINARIES: dict[str, list[bytes | None]] = {
    "ascii": [b"a", b"", None, b"longer than twelve bytes"],
    "characters of several bytes": ["é".encode(), None, "字".encode()],
    "a byte that begins nothing": [b"fine", b"\xff"],
    "a character cut between two texts": [b"x\xc3", b"\xa9y"],
    "a surrogate": [b"\xed\xa0\x80"],
    "nothing": [],
    "nulls": [None, None],
}


def as_texts(values: list[bytes | None]) -> pa.Array:
    stored = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())


@pytest.mark.parametrize("name", BINARIES)
def test_texts_are_judged_like_full_validation(name: str) -> None:
    texts = as_texts([b"\xff", *BINARIES[name], b"\xff"])[1:-1]
    batch = pa.record_batch([texts], names=["t"])
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        with pytest.raises(pa.ArrowInvalid):
            check_decoded(batch)
    else:
        check_decoded(batch)


def test_texts_in_dictionaries_are_judged_by_the_dictionary() -> None:
    positions = pa.array([0, 1, None, 1], pa.int32())
    for texts, indices, is_valid in (
        (pa.array(["a", "é"]), positions, True),
        (pa.array(["a"]), positions, False),
        (pa.array(["a", "b"]), pa.array([0, -1], pa.int32()), False),
        (pa.array([], pa.string()), pa.array([], pa.int32()), True),
        (as_texts([b"a", b"\xff"]), pa.array([0, 0], pa.int32()), False),
    ):
        batch = pa.record_batch([pa.DictionaryArray.from_arrays(indices, texts, safe=False)], names=["t"])
        if is_valid:
            check_decoded(batch)
        else:
            with pytest.raises(pa.ArrowInvalid):
                check_decoded(batch)


def test_a_decimal_of_too_many_digits_is_found() -> None:
    wide = pa.array([12345], pa.decimal128(5, 0))
    narrow = pa.Array.from_buffers(pa.decimal128(3, 0), 1, wide.buffers())
    with pytest.raises(pa.ArrowInvalid):
        check_decoded(pa.record_batch([narrow], names=["d"]))


def test_strings_inside_of_lists_are_checked() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), as_texts([b"ok", b"\xfe"]))
    with pytest.raises(pa.ArrowInvalid):
        check_decoded(pa.record_batch([lists], names=["l"]))


def test_strings_that_end_beyond_their_bytes_are_found_before_they_are_read() -> None:
    """Arrow's readers accept such offsets; what follows the bytes may be ASCII as well."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"t": ["aaa", "bb"]})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    good, content = np.array([0, 3, 5], np.int32).tobytes(), sink.getvalue().to_pybytes()
    assert content.count(good) == 1
    for offsets in ([0, 3, 100], [0, 3, -1]):
        damaged = content.replace(good, np.array(offsets, np.int32).tobytes()) + bytes(200)
        (found,) = pa.ipc.open_stream(damaged)
        with pytest.raises(pa.ArrowInvalid):
            check_decoded(found)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_column_of_a_batch_is_checked(place: int) -> None:
    columns = [pa.array(["fine"]), pa.array([1]), as_texts([b"fine"])]
    check_decoded(pa.record_batch(columns, names=["a", "b", "c"]))
    columns[place] = as_texts([b"\xff"])
    with pytest.raises(pa.ArrowInvalid):
        check_decoded(pa.record_batch(columns, names=["a", "b", "c"]))


def test_far_times_are_no_damage() -> None:
    """Arrow says more than this, in several forms."""
    for said in ("out of range for nanosecond resolution", "Timestamp -1 is out of range for nanosecond resolution (ns)"):
        with pytest.raises(NotSupported, match="holds a timestamp before 1677 or after 2262"), decoding("f.orc"):
            raise pa.ArrowInvalid(said)


@pytest.mark.parametrize(("depth", "raised"), [(MAX_NESTING, DamagedFile), (MAX_NESTING + 1, NotSupported)])
def test_files_of_columns_that_no_decoder_nests_so_deep_are_not_called_damaged(depth: int, raised: type[Exception]) -> None:
    fields = [DataField(0, "a", parse_type("INT")), DataField(1, "b", parse_type("INT"))]
    for _ in range(depth):
        fields[1] = DataField(1, "b", ArrayType(fields[1].type))
    with pytest.raises(raised, match=r"f\.parquet") as error, decoding("f.parquet", fields):
        raise RecursionError
    assert raised is DamagedFile or "column 'b'" in str(error.value.why)  # type: ignore[attr-defined]
