"""Frames of cut events: each belongs to the images of its own event, whichever events between them could not be cut."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.ingest.changes.event_cuts import EventOrder, EventPart, PartTexts, cut_events
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_frames import FramedEvents, FrameParts, FrameReader
from paimon_cli.ingest.changes.event_lines import lines_of
from paimon_cli.ingest.changes.read_events import ReadParts
from tests.event_streams import canal


def event(number: int, types: str = "int", **changed: Any) -> str:
    """A row of Canal whose number is told by its image, its frame and its time."""
    one = canal("t", "c", None, {"id": number}) | {"es": number, "mysqlType": {"id": types}, "sqlType": {"id": number % 2}}
    return json.dumps(dict(sorted((one | changed).items())), separators=(",", ":"))


def framed(reader: FrameReader, *events: str) -> FramedEvents:
    found = reader.framed(lines_of("".join(f"{one}\n" for one in events).encode(), "s", 0).texts)
    assert found is not None
    return found


def told(found: FramedEvents) -> list[tuple[str, int, str, int] | None]:
    """Of each event of the block what its image, its frame and its repeated text say; None if it was not cut."""
    images = [json.loads(text)["data"][0]["id"] for text in found.cut.images.texts().to_pylist()]
    times = found.columns["es"].to_pylist()
    repeated = [found.repeated[code] for code in found.codes]
    assert len(images) == len(times) == len(repeated)
    return [
        None if at < 0 else (images[at], times[at], repeated[at]["mysqlType"]["id"], repeated[at]["sqlType"]["id"])
        for at in found.at
    ]


def wanted(number: int, types: str = "int") -> tuple[str, int, str, int]:
    return str(number), number, types, number % 2


ODD = {
    "a type that is no text": event(9, mysqlType={"id": {"a": 1}}),
    "a type with half a character": event(9).replace('"id":"int"', '"id":"\\ud800"'),
    "a key among what repeats": event(9).replace(',"old"', ',"more":1,"old"'),
    "no operation": event(9, type=None),
    "no table": event(9, table=None),
    "a frame of another shape": event(9, ts={"a": 1}),
    "no event": "[]",
    "a key left out": event(9).replace('"sqlType"', '"sqltype"'),
    "a key of joined frames in a value": event(9, pkNames=["id", {"sqlType": 1}]),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_is_beside_an_event_that_was_not_cut_is_its_own(odd: str) -> None:
    reader = FrameReader(EVENT_FORMATS["canal"])
    assert told(framed(reader, event(1), event(2, "text"))) == [wanted(1), wanted(2, "text")]
    block = [event(3, "text"), odd, event(4), odd, odd, event(5, "json"), event(6, "text")]
    assert told(framed(reader, *block)) == [
        wanted(3, "text"),
        None,
        wanted(4),
        None,
        None,
        wanted(5, "json"),
        wanted(6, "text"),
    ]


def test_several_kinds_of_odd_events_in_one_block() -> None:
    odd = [one for why, one in ODD.items() if why not in ("a frame of another shape", "a key of joined frames in a value")]
    block = [part for number, one in enumerate(odd) for part in (one, event(number, f"t{number}"))]
    found = told(framed(FrameReader(EVENT_FORMATS["canal"]), *block))
    assert found == [part for number in range(len(odd)) for part in (None, wanted(number, f"t{number}"))]


def parts_of(*events: str, at: list[int]) -> tuple[FrameParts, ReadParts]:
    """Parts of some cut events, and the same ones as they are if each event was read whole."""
    found = framed(FrameReader(EVENT_FORMATS["canal"]), *events)
    parts = FrameParts(found, np.array(at, np.int64))
    rows = [json.loads(events[place]) for place in at]
    return parts, ReadParts({key: pa.array([row[key] for row in rows]) for key in ("es", "mysqlType", "sqlType", "gone")})


EVENTS = [
    event(0, "a", gone=None),
    event(1, "b", gone="x"),
    event(2, "c", gone="y"),
    event(3, "b", gone=None),
    event(4, "c", gone=None),
]


@pytest.mark.parametrize("at", [[0, 1, 2, 3, 4], [4, 3, 2], [1, 2, 4], [0, 2, 0], [1, 2, 1], [1, 3], [0], []])
def test_parts_are_those_of_events_that_were_read_whole(at: list[int]) -> None:
    parts, whole = parts_of(*EVENTS, at=at)
    for key in ("es", "gone"):
        assert parts[key].to_pylist() == whole[key].to_pylist()
        assert parts.last(key) == whole.last(key)
    if at:
        assert parts["mysqlType"].to_pylist() == whole["mysqlType"].to_pylist()
        assert parts.last_texts("mysqlType") == whole.last_texts("mysqlType")
        assert parts.changes("mysqlType").tolist() == whole.changes("mysqlType").tolist()
        assert parts.slice(1, 2)["es"].to_pylist() == whole.slice(1, 2)["es"].to_pylist()


def test_the_last_text_of_each_column_is_that_of_the_newest_event_that_names_it() -> None:
    types = [{"id": "old", "a": "old"}, {"id": "new"}, {"a": "new"}, {"id": "newest"}, {"id": "new"}]
    parts, whole = parts_of(*(event(n, mysqlType=one, gone="") for n, one in enumerate(types)), at=[0, 1, 2, 3, 4])
    assert parts.last_texts("mysqlType") == whole.last_texts("mysqlType") == {"id": "new", "a": "new"}


def test_parts_of_parts_are_at_their_own_places() -> None:
    texts = PartTexts(pa.array([b"a", b"", b"b", b"", b"c", b"", b"d", b""], pa.large_binary()), 1, np.arange(4))
    assert texts.of(np.array([3, 1, 0])).of(np.array([2, 0])).texts().to_pylist() == [b"a", b"d"]


def test_the_keys_that_join_a_part_are_all_but_its_first() -> None:
    order = EventOrder(
        EventPart.IMAGES,
        {b',"a":': EventPart.FRAME, b',"old":': EventPart.IMAGES, b',"b":': EventPart.FRAME, b',"c":': EventPart.FRAME},
        b'{"data":',
    )
    assert order.names(EventPart.FRAME) == ("a", "b", "c")
    assert [order.joints(part) for part in (EventPart.IMAGES, EventPart.FRAME, EventPart.REPEATED)] == [
        {"old"},
        {"b", "c"},
        set(),
    ]


def test_an_event_is_cut_only_if_it_has_all_keys() -> None:
    order = EventOrder(EventPart.FRAME, {b',"data":': EventPart.IMAGES, b',"more":': EventPart.FRAME}, b'{"type":')
    texts = ['{"type":1,"data":{"id":1},"more":2}', '{"type":3,"data":{"id":4}}', '{"type":5,"data":{"id":6},"more":7}']
    cut = cut_events(pa.array([text.encode() for text in texts], pa.large_binary()), order)
    assert cut is not None and cut.chosen.tolist() == [0, 2]
    assert [json.loads(text) for text in cut.images.texts().to_pylist()] == [{"data": {"id": 1}}, {"data": {"id": 6}}]
    assert [json.loads(text) for text in cut.texts[EventPart.FRAME].to_pylist()] == [
        {"type": 1, "more": 2},
        {"type": 5, "more": 7},
    ]


def test_keys_within_the_types_of_columns_are_not_those_of_the_event() -> None:
    """The joined text of what repeats is an object, but lacks a key."""
    types = {"id": "int", "old": "int", "pkNames": "int", "sqlType": "int"}
    whole = json.loads(event(1)) | {"mysqlType": types}
    odd = json.dumps(
        {key: value for key, value in whole.items() if key not in ("old", "pkNames", "sql", "sqlType")}, separators=(",", ":")
    )
    assert FrameReader(EVENT_FORMATS["canal"]).framed(lines_of(f"{odd}\n".encode(), "s", 0).texts) is None
    assert told(framed(FrameReader(EVENT_FORMATS["canal"]), event(1), odd, event(2))) == [wanted(1), None, wanted(2)]
