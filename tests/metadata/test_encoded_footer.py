"""Row groups of footers are read by a regular expression or, if encoded unusually, field by field: with the same result."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.parquet_chunks import footer_bytes
from paimon_cli.metadata import encoded_footer
from paimon_cli.metadata.compact_thrift import Struct, decode, encode
from paimon_cli.metadata.encoded_footer import FooterFrame, StoredGroup
from tests.goldens import golden_table
from tests.nightly import at_night

Split = tuple[FooterFrame, int, list[StoredGroup]]
ROWS = pa.table(
    {
        "i": pa.array([1, None, -(1 << 31)], pa.int32()),
        "l": pa.array([1, 1 << 62, 0]),
        "f": pa.array([1.5, float("nan"), -0.0]),
        "none": pa.array([None, None, None], pa.string()),
        "s": ["", "x" * 127, "y" * 20],
        "d": pa.array([0, 1, 2]).cast(pa.decimal128(38, 2)),
        "b": [True, False, None],
        "z": [b"\0\x15\x16", b"\x80\xff", b""],
        "row": [{"x": 1, "y": [1, 2]}, {"x": 2, "y": []}, None],
    }
)
WAYS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False, "version": "1.0"},
    {"compression": "zstd", "write_page_index": True, "max_rows_per_page": 1, "data_page_version": "2.0"},
    {"compression": "snappy", "write_page_index": True, "bloom_filter_options": {"s": {"ndv": 10}}},
    {"compression": "gzip", "write_statistics": False},
    {"compression": "brotli", "row_group_size": 1, "use_byte_stream_split": ["f"], "use_dictionary": ["s"]},
]


def footer(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return footer_bytes(sink)


def field_by_field(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Split:
    with monkeypatch.context() as patch:
        patch.setattr(encoded_footer, "_usual_group", lambda footer, begin: None)
        return FooterFrame.split(data)


def outcome(split: Callable[[], Split]) -> Split | type[Exception]:
    try:
        return split()
    except (ValueError, LookupError):
        return ValueError


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_every_spelling_is_read_as_field_by_field(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = footer(ROWS, **options)
    frame, rows, groups = FooterFrame.split(data)
    assert (frame, rows, groups) == field_by_field(data, monkeypatch)
    assert frame.around(rows, [group.entry_with([]) for group in groups]) == data
    assert FooterFrame.split(data, frame) == FooterFrame.split(data, FooterFrame(b"other", b"")) == (frame, rows, groups)


def test_flat_columns_use_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of Java's writer and of Rust's."""
    monkeypatch.setattr(encoded_footer, "encoded_struct", None)
    monkeypatch.setattr(encoded_footer, "encoded_structs", None)
    for options in WAYS:
        if options.get("write_statistics", True):
            FooterFrame.split(footer(ROWS.drop(["row", "none"]), **options))
    for writer, name in (
        ("java-0.9", "append_unaware"),
        ("java-1.4", "append"),
        ("pypaimon-2.1", "append"),
        ("rust-0.4", "append"),
    ):
        files = sorted(golden_table(writer, name, tmp_path / writer).rglob("data-*.parquet"))
        assert files
        for file in files:
            FooterFrame.split(footer_bytes(io.BytesIO(file.read_bytes())))


@pytest.mark.parametrize("changes", [1500, at_night(6000)])
def test_changed_bytes_are_read_or_refused_alike(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    random, whole = Random(5), [footer(ROWS, **options) for options in WAYS]
    seen = {"read": 0, "refused": 0}
    for number in range(changes):
        data = bytearray(whole[number % len(whole)])
        begin = len(FooterFrame.split(bytes(data))[0].before)
        for _ in range(random.choice([1, 1, 2])):
            place = random.randrange(begin, len(data))
            data[place : place + random.choice([0, 1, 1, 1, 2])] = random.choice([b"", bytes([random.randrange(256)])])
        given = bytes(data)
        found = outcome(lambda given=given: FooterFrame.split(given))  # type: ignore[misc]
        assert found == outcome(lambda given=given: field_by_field(given, monkeypatch)), given.hex()  # type: ignore[misc]
        seen["refused" if found is ValueError else "read"] += 1
    assert min(seen.values()) > changes // 12, seen


def test_numbers_may_become_longer_and_shorter() -> None:
    data = footer(ROWS, compression="none")
    _, _, (group,) = FooterFrame.split(data)
    offsets = [place for chunk in group.chunks for place in chunk.offsets]
    entry = group.entry_with([(place, 0 if number % 2 else 1 << 50) for number, place in enumerate(offsets)])
    fields = decode(entry)
    changed: list[Struct] = [chunk.required(3) for chunk in fields.elements(1)]
    values = [chunk.value(field) for chunk in changed for field in (9, 11) if field in chunk]
    assert set(values) == {0, 1 << 50} and len(values) == len(offsets) and encode(fields) == entry
