"""Events whose images are cut out of their text are read as others are."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from paimon_cli.ingest.changes.event_decoder import Decoded, EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_frames import FrameReader
from paimon_cli.ingest.changes.event_images import Images
from paimon_cli.ingest.changes.event_lines import lines_of
from tests.event_streams import Row, canal, debezium, maxwell
from tests.nightly import first

CUT = [("debezium", debezium), ("maxwell", maxwell), ("canal", canal)]
PARTS = ("source.ts_ms", "ts", "es", "mysqlType.n", "sqlType.n", "isDdl")


def compact(event: Row) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def told(found: Decoded) -> Any:
    """All that matters of decoded events: a column without a value is as good as none, and it makes no difference whether a
    malformed event is found before its table is known.
    """

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
            dict(one.forms),
            [cells.to_pylist() for path in PARTS if (cells := one.read.part(path)) is not None and cells.null_count < len(cells)],
        )
        for one in found.events
        if len(one.read.lines)
    ]
    bad = [(bad.position, bad.reason) for bad in [*found.bad, *(bad for one in found.events for bad in one.bad)]]
    return sorted(events, key=lambda event: event[0]), sorted(bad), found.others


def both(format: str, *blocks: str) -> list[Any]:
    """What blocks of lines hold. Cutting makes no difference."""
    whole = EVENT_FORMATS[format]
    decoders = EventDecoder(whole), EventDecoder(replace(whole, order=None))
    found = [[told(decoder.decode(lines_of(block.encode(), "s", 0))) for block in blocks] for decoder in decoders]
    assert found[0] == found[1]
    return found[0]


def cut_of(format: str, block: str) -> list[bool]:
    framed = FrameReader(EVENT_FORMATS[format]).framed(lines_of(block.encode(), "s", 0).texts)
    return [] if framed is None else (framed.at >= 0).tolist()


def in_order(event: Row) -> Row:
    """An event with its keys in the order of its connector."""
    if "mysqlType" in event:
        return dict(sorted(event.items()))
    return event | {name: event.pop(name) for name in ("data", "old") if name in event}


def changes(envelope: Any, seed: int) -> list[Row]:
    chance = random.Random(seed)
    events = []
    for number in range(60):
        row = {"id": number, "name": f'a "{number}" }},"after":{{', "n": chance.random(), "x": chance.choice([None, 1, 2])}
        if number > 40:
            row["late"] = True
        new = {**row, "n": 2.5}
        op, table = chance.choice("cud"), f"t{number % 3}"
        event = in_order(envelope(table, op, None if op == "c" else row, None if op == "d" else new))
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


OF_CANAL = (
    '"es":5,"id":3,"isDdl":false,"mysqlType":{"id":"int","n":"varchar(9)"},"old":%s,"pkNames":["id"],"sql":"",'
    '"sqlType":{"id":4,"n":12},"table":"t","ts":6,"type":"%s"}'
)
INSERT_OF_CANAL = OF_CANAL % ("null", "INSERT")
USUAL_OF_CANAL = '{"data":[{"id":"1","n":"a"}],"database":"shop",' + OF_CANAL % ('[{"n":"b"}]', "UPDATE")


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "event",
    [
        '{"data":[{"id":"1","n":"a"},{"id":"2","n":"c"}],"database":"shop",' + OF_CANAL % ('[{"n":"b"},{"id":"7"}]', "UPDATE"),
        '{"data":[{"id":"1","n":"a"},{"id":"2","n":"c"}],"database":"shop",' + OF_CANAL % ('[{"n":"b"}]', "UPDATE"),
        '{"data":[{"id":"1"},null],"database":"shop",' + INSERT_OF_CANAL,
        '{"data":[],"database":"shop",' + OF_CANAL % ("[]", "UPDATE"),
        '{"data":[{}],"database":"shop",' + OF_CANAL % ("[{}]", "UPDATE"),
        '{"data":null,"database":"shop",' + OF_CANAL % ("null", "TRUNCATE"),
        '{"data":null,"database":"shop",' + OF_CANAL % ("null", "CREATE"),
        '{"data":{"id":"1"},"database":"shop",' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","database":"x","old":"y","table":"z","sqlType":"q"}],"database":"shop",' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","old":"y"}],"database":"shop",' + OF_CANAL % ('[{"id":"2","old":"3"}]', "UPDATE"),
        '{"data":[{"id":"1","old":"y","pkNames":"p"}],"database":"shop",'
        + OF_CANAL % ('[{"id":"2","old":"3","pkNames":"p"}]', "ROW"),
        '{"data":[{"id":"1","n":"],\\"database\\":"}],"database":"shop",' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","n":{"a":[1]}}],"database":"shop",' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","n":"a"}],"database":"shop","more":{"table":"u"},' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","n":"a"}],"database":"shop","gtid":"",' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","n":7}],"database":"shop",' + INSERT_OF_CANAL,
        '{"data":[{"id":"1","n":"\\ud800"}],"database":"shop",' + INSERT_OF_CANAL,
        USUAL_OF_CANAL.replace('"varchar(9)"', '"bigint"'),
        USUAL_OF_CANAL.replace('"varchar(9)"', "null"),
        USUAL_OF_CANAL.replace('"varchar(9)"', "12"),
        USUAL_OF_CANAL.replace('"varchar(9)"', '"a","n":"b"'),
        USUAL_OF_CANAL.replace('"varchar(9)"', '"\\ud800"'),
        USUAL_OF_CANAL.replace('{"id":"int","n":"varchar(9)"}', "null"),
        USUAL_OF_CANAL.replace('{"id":4,"n":12}', "null"),
        USUAL_OF_CANAL.replace('"n":12', '"n":{"a":1}'),
        USUAL_OF_CANAL.replace('"n":12', '"n":99999999999999999999'),
        USUAL_OF_CANAL.replace('"n":12}', '"n":12,"sqlType":{"a":1}}'),
        USUAL_OF_CANAL.replace('"pkNames":["id"]', '"pkNames":["id",{"sqlType":1,"x":2}]'),
        USUAL_OF_CANAL.replace('"pkNames":["id"]', '"pkNames":null'),
        USUAL_OF_CANAL.replace('"sql":"",', '"sql":"",,'),
        USUAL_OF_CANAL.replace('"type":"UPDATE"', '"type":"UPDATE","data":[]'),
        USUAL_OF_CANAL.replace('"table"', '"mysqlType":{},"table"'),
        USUAL_OF_CANAL.replace('"old":[', '"old":[['),
        USUAL_OF_CANAL + "}",
    ],
)
def test_unusual_events_of_canal_are_read_as_before(event: str) -> None:
    assert json.loads(USUAL_OF_CANAL) and cut_of("canal", f"{USUAL_OF_CANAL}\n") == [True]
    both("canal", f"{USUAL_OF_CANAL}\n{USUAL_OF_CANAL}\n", f"{USUAL_OF_CANAL}\n{event}\n{USUAL_OF_CANAL}\n")
    both("canal", f"{event}\n{USUAL_OF_CANAL}\n{USUAL_OF_CANAL}\n")
    both("canal", f"{event}\n")


def test_a_column_may_have_the_name_of_a_key() -> None:
    for name in ("database", "pkNames", "table"):
        event = USUAL_OF_CANAL.replace('"n"', f'"{name}"')
        both("canal", f"{event}\n{event}\n")
        assert cut_of("canal", f"{event}\n") == [True]
    event = USUAL_OF_CANAL.replace('"n"', '"old"')
    (table,) = both("canal", f"{event}\n{event}\n")[0][0]
    assert [row["old"] for row in table[3]] == ["a", "a"] and [row["old"] for row in table[2]] == ["b", "b"]
    source = '{"before":null,"after":{"id":1,"source":null,"z":2},' + OF_DEBEZIUM % "c"
    both("debezium", f"{source}\n{source}\n")
    assert cut_of("debezium", f"{source}\n") == [True]


BESIDE = [(*one, key) for one in CUT for key in (("op",) if one[0] == "debezium" else ("type", "database", "table"))]


@pytest.mark.parametrize("format, envelope, beside", BESIDE)
def test_what_an_event_does_may_stand_beside_its_images(format: str, envelope: Any, beside: str) -> None:
    """Then the text is cut, but not between the keys that its order has."""
    usual = in_order(envelope("t", "c", None, {"id": 1}))
    image = "after" if format == "debezium" else "data"
    odd = dict[str, Any]()
    for key, value in usual.items():
        odd |= {} if key == beside else {key: value}
        odd |= {beside: usual[beside]} if key == image else {}
    blocks = [[odd], [usual, odd, usual]]
    found = both(format, *("".join(f"{compact(event)}\n" for event in block) for block in blocks))
    assert [[len(one[1]) for one in events] for events, _, _ in found] == [[1], [3]]
    assert not any(bad for _, bad, _ in found)


KEYS = ("data", "old", "database", "mysqlType", "sqlType", "pkNames", "table", "before", "after", "source", "op", "id", "n")
ODD = ("x", "],", '"', "{")
_NAMED = [f'{comma}"{key}":' for key in KEYS for comma in ("", ",")]
SCRAPS = (*'{}[],:"', '""', "null", "1", "[]", "{}", "}{", "]}", "[{", '{"a":', *_NAMED)


def scrambled(text: str, chance: random.Random) -> str:
    """A text of an event in which pieces were left out, put in, or come twice."""
    for _ in range(chance.randrange(1, 4)):
        at, size = chance.randrange(1, len(text)), chance.choice((0, 0, 1, 2, 9, 40))
        piece = chance.choice(
            ("", chance.choice(SCRAPS), chance.choice(SCRAPS) + chance.choice(SCRAPS), text[at : at + size] * 2)
        )
        text = text[:at] + piece + text[at + size :]
    return text.replace("\n", "")


def with_odd_names(event: Row, chance: random.Random) -> Row:
    """An event whose rows have columns with names of keys."""
    names = chance.sample(KEYS, 3)

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(renamed, value))
        return {**value, **dict.fromkeys(names, chance.choice(("x", "],", '"', "{")))} if isinstance(value, dict) else value

    return {
        key: renamed(value) if key in ("data", "old", "before", "after", "mysqlType") else value for key, value in event.items()
    }


@pytest.mark.parametrize("format, envelope", CUT)
@pytest.mark.parametrize("seed", first(1, range(6)))
def test_random_texts_are_read_as_before(format: str, envelope: Any, seed: int) -> None:
    chance = random.Random(seed)
    events = changes(envelope, seed)
    for round_ in range(12):
        some = [with_odd_names(event, chance) if chance.random() < 0.1 * (round_ % 3) else event for event in events]
        texts = [compact(event) for event in some]
        for place in chance.sample(range(len(texts)), chance.randrange(6)):
            texts[place] = scrambled(texts[place], chance)
        both(format, "\n".join(texts[:20]) + "\n", "\n".join(texts[20:]) + "\n")


def test_a_part_of_a_block_is_cut_at_its_own_places() -> None:
    texts = [compact(debezium("t", "c", None, {"id": number})) for number in range(30)]
    lines = lines_of("".join(f"{text}\n" for text in texts).encode(), "s", 0)
    framed = FrameReader(EVENT_FORMATS["debezium"]).framed(lines.slice(7, 5).texts)
    assert framed is not None and (framed.at >= 0).all()
    images = [json.loads(text) for text in framed.cut.images.texts().to_pylist()]
    assert [image["after"]["id"] for image in images] == [*range(7, 12)]
