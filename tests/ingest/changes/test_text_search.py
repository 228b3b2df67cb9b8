"""All places of a key in a block are found, with one pass for many keys as with one for each."""

from __future__ import annotations

import random

import numpy as np
import pytest

from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import lines_of
from paimon_cli.ingest.changes.text_search import BlockSearch
from paimon_cli.pieces import PIECES

KEYS = (b',"old":', b',"database":', b',"ab,')
PIECES_OF_TEXT = (*KEYS, b',"a', b"x", b',"', b'":', b"{}", b',"databas')


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_keys_are_found_wherever_they_are(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "search_bytes", size)
    for seed in range(200):
        chance = random.Random(seed)
        text = b"".join(chance.choices(PIECES_OF_TEXT, k=chance.randrange(1, 30)))
        block = np.frombuffer(text, np.uint8)
        for search in (BlockSearch(block), BlockSearch(block, b',"')):
            for key in KEYS:
                wanted = [place for place in range(len(text)) if text.startswith(key, place)]
                assert search.places(key).tolist() == wanted, (text, key)


@pytest.mark.parametrize("format", ["debezium", "canal", "maxwell"])
def test_a_block_may_be_smaller_than_any_key(format: str) -> None:
    found = EventDecoder(EVENT_FORMATS[format]).decode(lines_of(b"{}\n", "s", 0))
    assert [bad.text for bad in found.bad] == [b"{}"]
