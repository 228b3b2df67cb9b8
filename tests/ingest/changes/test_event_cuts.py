"""Events whose images are cut out of their text are read as others are."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from paimon_cli.ingest.changes.event_cuts import FrameReader
from paimon_cli.ingest.changes.event_decoder import Decoded, EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_images import Images
from paimon_cli.ingest.changes.event_lines import lines_of
from tests.event_streams import Row, debezium, maxwell

CUT = [("debezium", debezium), ("maxwell", maxwell)]


def compact(event: Row) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def told(found: Decoded) -> Any:
    """All that matters of decoded events: a column without a value is as good as none."""

    def image(one: Images) -> list[Row | None]:
        cells = {name: cells.to_pylist() for name, cells in one.columns.items() if cells.null_count < len(cells)}
        return [{name: cells[n] for name, cells in cells.items()} if there else None for n, there in enumerate(one.present)]

    events = [
        (
            one.table,
            one.operations.tolist(),
            image(one.read.before),
            image(one.read.after),
            one.read.lines.positions.tolist(),
            one.read.lines.texts.to_pylist(),
            one.read.event.tolist(),
            one.keys,
            one.truncates,
            [(bad.position, bad.reason) for bad in one.bad],
            None if (times := one.read.part("source.ts_ms")) is None else times.to_pylist(),
        )
        for one in found.events
        if len(one.read.lines) or one.bad
    ]
    return events, sorted((bad.position, bad.reason) for bad in found.bad), found.others


def both(format: str, *blocks: str) -> list[Any]:
    """What blocks of lines hold. Cutting makes no difference."""
    whole = EVENT_FORMATS[format]
    decoders = EventDecoder(whole), EventDecoder(replace(whole, order=None))
    found = [[told(decoder.decode(lines_of(block.encode(), "s", 0))) for block in blocks] for decoder in decoders]
    assert found[0] == found[1]
    return found[0]


def cut_of(format: str, block: str) -> list[bool]:
    framed = FrameReader(EVENT_FORMATS[format]).framed(lines_of(block.encode(), "s", 0))
    return [] if framed is None else (framed.at >= 0).tolist()


def changes(envelope: Any, seed: int) -> list[Row]:
    chance = random.Random(seed)
    events = []
    for number in range(60):
        row = {"id": number, "name": f'a "{number}" }},"after":{{', "n": chance.random(), "x": chance.choice([None, 1, 2])}
        if number > 40:
            row["late"] = True
        new = {**row, "n": 2.5}
        op, table = chance.choice("cud"), f"t{number % 3}"
        event = envelope(table, op, None if op == "c" else row, None if op == "d" else new)
        last = {name: event.pop(name) for name in ("data", "old") if name in event}  # as Maxwell orders its keys
        event |= last
        events.append({**event, "transaction": {"id": "1"}} if number == 35 and "op" in event else event)
    return events


@pytest.mark.parametrize("format, envelope", CUT)
@pytest.mark.parametrize("seed", range(3))
def test_cut_events_are_read_as_others(format: str, envelope: Any, seed: int) -> None:
    events = changes(envelope, seed)
    texts = [compact(one) if number % 20 else json.dumps(one) for number, one in enumerate(events)]
    blocks = ["\n".join(texts[:30]) + "\n", "\n".join(texts[30:]) + "\n"]
    found = both(format, *blocks)
    assert sum(len(rows) for events, _, _ in found for _, rows, *_ in events) == len(events)
    assert [sum(cut_of(format, block)) for block in blocks] == [28, 29]


OF_DEBEZIUM = '"source":{"db":"shop","table":"t","ts_ms":5},"op":"%s","ts_ms":1}'


@pytest.mark.parametrize(
    "event",
    [
        '{"before":null,"after":{"id":1,"after":2,"source":3},' + OF_DEBEZIUM % "c",
        '{"before":{"id":{"a":1},"after":{"x":1}},"after":{"id":1},' + OF_DEBEZIUM % "u",
        '{"before":null,"after":{"id":{"x":1},"source":{}},' + OF_DEBEZIUM % "c",
        '{"before":null,"after":{"id":1},"extra":{"b":2},' + OF_DEBEZIUM % "c",
        '{"before":null,"after":{"id":1},' + OF_DEBEZIUM[:-1] % "c" + ',"after":{"id":2}}',
        '{"before":null,"after":{"id":1},' + OF_DEBEZIUM[:-1] % "u" + ',"before":{"id":2}}',
        '{"beside":{"id":9},"after":{"id":1},' + OF_DEBEZIUM % "u",
        '{"before":{"id":9007199254740993.0,"n":1.5},"after":{"id":1,"n":2},' + OF_DEBEZIUM % "u",
        '{"before":null,"after":{"id":1,"id":2},' + OF_DEBEZIUM % "c",
        '{"before":null,"after":{"id":1,"s":"},"},' + OF_DEBEZIUM % "c",
        '{"before":null,"after":{"id":1,"s":"\\ud800"},' + OF_DEBEZIUM % "c",
        '{"before":null,"after":{"id":},' + OF_DEBEZIUM % "c",
        '{"before":null,"after":{"id":1}{},' + OF_DEBEZIUM % "c",
        '{"before":,"after":{"id":1},' + OF_DEBEZIUM % "c",
        '{"before":{"id":1},"after":,' + OF_DEBEZIUM % "d",
        '{"before":null,"after":7,' + OF_DEBEZIUM % "c",
        '{"before":null,"after":null,' + OF_DEBEZIUM % "t",
        '{"before":{},"after":{"id":9007199254740993.0,"n":9007199254740993},' + OF_DEBEZIUM % "u",
        '{"before":{"id":1},"after":null,' + OF_DEBEZIUM % "d",
        '{"before":null,"after":{"id":1},"source":{"db":"shop","table":7},"op":"c"}',
        '{"before":null,"after":{"id":1},"source":"x","op":"c"}',
        '{"before":null,"after":{"id":1},"source":null,"op":"c"}',
        '{"before":null,"after":{"id":1},"source":{"db":"shop","table":"t"},"op":5}',
        '{"before":null,"after":{"id":1},"source":{"db":"shop","table":"t"},"op":"c"',
        '{"status":"BEGIN","id":"1"}',
    ],
)
def test_unusual_events_are_read_as_before(event: str) -> None:
    usual = '{"before":null,"after":{"id":1,"n":1.5},' + OF_DEBEZIUM % "c"
    both("debezium", f"{usual}\n{usual}\n", f"{usual}\n{event}\n{usual}\n")
    both("debezium", f"{event}\n")


@pytest.mark.parametrize(
    "event",
    [
        '{"database":"shop","table":"t","type":"insert","ts":1,"data":{"id":1,"data":{"a":1},"old":{}}}',
        '{"database":"shop","table":"t","type":"update","ts":1,"data":{"id":1},"old":{"id":null},"more":1}',
        '{"database":"shop","table":"t","type":"update","ts":1,"data":{"id":1},"old":{}}',
        '{"database":"shop","table":"t","type":"update","old":{"id":3},"data":{"id":1}}',
        '{"database":"shop","table":"t","type":"delete","ts":1,"data":{"id":1,"old":2}}',
        '{"database":"shop","table":"t","type":"bootstrap-start","ts":1,"data":{}}',
        '{"database":"shop","table":"t","type":"table-drop","ts":1,"sql":"x"}',
        '{"database":"shop","table":"t","type":"insert","ts":1,"data":null}',
        '{"database":"shop","table":"t","type":"update","ts":1,"data":{"id":1},"old":}',
        '{"database":"shop","table":"t","type":"delete","ts":1,"data":,"old":{"id":1}}',
        '{"database":"shop","table":"t","type":"insert","ts":1,"data":{"id":1}}}',
    ],
)
def test_unusual_events_of_maxwell_are_read_as_before(event: str) -> None:
    usual = '{"database":"shop","table":"t","type":"update","ts":1,"data":{"id":1,"n":2},"old":{"n":1}}'
    both("maxwell", f"{usual}\n{usual}\n", f"{usual}\n{event}\n{usual}\n")
    both("maxwell", f"{event}\n")


def test_a_table_is_not_slowed_by_the_events_of_another() -> None:
    usual = '{"before":null,"after":{"id":1},' + OF_DEBEZIUM % "c"
    heartbeat = '{"ts_ms":1}'
    assert cut_of("debezium", f"{usual}\n{heartbeat}\n{usual}\n") == [True, False, True]


def test_a_part_of_a_block_is_cut_at_its_own_places() -> None:
    texts = [compact(debezium("t", "c", None, {"id": number})) for number in range(30)]
    lines = lines_of("".join(f"{text}\n" for text in texts).encode(), "s", 0)
    framed = FrameReader(EVENT_FORMATS["debezium"]).framed(lines.slice(7, 5))
    assert framed is not None and (framed.at >= 0).all()
    assert framed.cut.after.to_pylist() == [b'{"id":%d}' % number for number in range(7, 12)]
