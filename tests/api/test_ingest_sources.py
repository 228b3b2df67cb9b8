"""Sources of events, whose first line is read before the others."""

from __future__ import annotations

import gzip
import io

import pytest

from paimon_cli.api.ingest_sources import EventSource, _Rejoined, _source
from paimon_cli.pieces import PIECES

TEXT = b"first\nsecond\nthe third one\n"


class Archive(io.BytesIO):
    """A stream that only goes on."""

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError("no seek")


def opened(stream: io.BytesIO) -> EventSource:
    return _source("s", "s", stream)


@pytest.mark.parametrize("kind", [io.BytesIO, Archive])
def test_any_position_is_found_in_small_portions(kind: type[io.BytesIO], monkeypatch: pytest.MonkeyPatch) -> None:
    for portion in (1, 2, 7, 100):
        monkeypatch.setattr(PIECES, "text_read_bytes", portion)
        for offset in range(len(TEXT) + 1):
            stream = opened(kind(TEXT)).stream
            assert stream.seek(offset) == offset and stream.read() == TEXT[offset:]
    assert opened(Archive(TEXT)).stream.seek(len(TEXT) + 5) == len(TEXT)


@pytest.mark.parametrize("size", [1, 3, 6, 7, 100, -1])
def test_the_first_line_is_read_again(size: int) -> None:
    stream, found = opened(Archive(TEXT)).stream, b""
    while part := stream.read(size):
        found += part
    assert found == TEXT
    assert isinstance(stream, _Rejoined) and opened(io.BytesIO(gzip.compress(TEXT))).key != opened(io.BytesIO(TEXT)).key
