"""Blocks of events as rows of tables."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.data_type import BIGINT, STRING, DataType, DecimalType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput
from paimon_cli.ingest.changes.change_rows import UNCHANGED, rows_of
from paimon_cli.ingest.changes.debezium_types import declared_columns
from paimon_cli.ingest.changes.derived_columns import newest_millis
from paimon_cli.ingest.changes.event_decoder import Decoded, EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS, Unchanging
from paimon_cli.ingest.changes.event_lines import BadEvent, event_blocks, lines_of, parsed_objects
from paimon_cli.ingest.changes.event_payloads import names_in_key
from paimon_cli.ingest.changes.event_values import as_column
from paimon_cli.ingest.changes.key_images import ChangeKey
from paimon_cli.ingest.changes.table_events import SourceTable, TableEvents, Wanted
from paimon_cli.ingest.changes.table_reader import MAX_TABLES
from paimon_cli.ingest.changes.whole_numbers import MAX_NAME_CHARACTERS
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, RowKind
from tests.event_streams import Row, canal, debezium, flat, maxwell, schema_part, with_schema
from tests.ingest.changes.test_event_cuts import USUAL_OF_CANAL

KEY = ChangeKey(["id"])


def decoded(format: str, *events: Row | str, decoder: EventDecoder | None = None) -> Decoded:
    text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in events)
    return (decoder or EventDecoder(EVENT_FORMATS[format])).decode(lines_of(text.encode(), "s", 0))


def rows(events: TableEvents, *, needs_before: bool = False) -> list[tuple[str, Row]]:
    """The kinds and cells of the rows; none of the events is bad."""
    bad = list[BadEvent](events.bad)
    found = rows_of(events, KEY, needs_before=needs_before, bad=bad)
    assert not bad, bad
    cells = {name: column.to_pylist() for name, column in found.cells.items()}
    return [(KIND_TEXTS[kind], {name: column[n] for name, column in cells.items()}) for n, kind in enumerate(found.kinds)]


ENVELOPES = [("debezium", debezium), ("maxwell", maxwell), ("canal", canal)]


@pytest.mark.parametrize("format, envelope", ENVELOPES)
def test_kinds_and_images(format: str, envelope: Any) -> None:
    a, b, c = ({"id": key, "name": name, "extra": "e"} for key, name in ((1, "a"), (1, "b"), (2, "b")))
    events = [envelope("t", "c", None, a), envelope("t", "u", a, b), envelope("t", "u", b, c), envelope("t", "d", c, None)]
    (found,) = decoded(format, *events).events
    one, two = (1, 2) if format != "canal" else ("1", "2")
    a, b, c = ({**row, "id": key} for row, key in ((a, one), (b, one), (c, two)))
    assert rows(found) == [("+I", a), ("+U", b), ("-D", b), ("+I", c), ("-D", c)]
    (found,) = decoded(format, *events).events
    assert rows(found, needs_before=True) == [("+I", a), ("-U", a), ("+U", b), ("-D", b), ("+I", c), ("-D", c)]
    assert found.table == SourceTable("shop", "t")
    assert found.keys == (() if format == "debezium" else ("id",))


def test_a_message_of_canal_holds_several_rows() -> None:
    event = canal("t", "c", None, {"id": 1, "name": "a"})
    event["data"] = [{"id": str(n), "name": "a"} for n in range(3)]
    update = {**event, "type": "UPDATE", "old": [{"name": "x"}, {"name": None}, {"id": "9"}]}
    (found,) = decoded("canal", event, update, {**event, "isDdl": True, "type": "ALTER", "data": None}).events
    kinds = [kind for kind, _ in rows(found)]
    assert kinds == ["+I"] * 3 + ["+U", "+U", "-D", "+I"]
    assert {name: type_to_sql(form.type) for name, form in found.forms.items()} == {"id": "INT", "name": "VARCHAR(20)"}
    for count in (1, 4):
        uneven = decoded("canal", {**update, "old": [{"name": "x"}] * count}).events[0]
        assert [one.reason for one in uneven.bad] == ["its lists of rows differ in length"]


def test_rows_of_lists_of_several_lengths_have_their_own_images() -> None:
    """Of messages with and without old rows."""
    first = canal("t", "u", {"id": 1, "name": "x"}, {"id": 1, "name": "a"})
    events, expected, number = [], list[tuple[str, Row]](), 0
    for count in (2, 0, 3, 1):
        names = [f"old {number + place}" for place in range(count)]
        olds = [{"name": name} for name in names] if count else None
        events.append({**first, "data": [{"id": str(number + n), "name": "a"} for n in range(count or 2)], "old": olds})
        events[-1]["type"] = "UPDATE" if count else "INSERT"
        for place in range(count or 2):
            row = {"id": str(number + place), "name": "a"}
            expected += [("-U", {**row, "name": names[place]}), ("+U", row)] if count else [("+I", row)]
        number += count or 2
    (found,) = decoded("canal", *events).events
    assert rows(found, needs_before=True) == expected


def test_flattened_events() -> None:
    events = [flat("t", "c", None, {"id": 1, "n": "a"}), flat("t", "d", {"id": 1, "n": "a"}, None), {"id": 2, "n": "b"}]
    found = decoded("debezium-flat", *events).events
    assert [one.table.name for one in found] == ["shop.t", ""]
    assert rows(found[0]) == [("+I", {"id": 1, "n": "a"}), ("-D", {"id": 1, "n": "a"})]
    assert rows(found[1]) == [("+U", {"id": 2, "n": "b"})]


def test_events_that_change_no_rows_are_counted() -> None:
    others: list[Row | str] = [
        "null",
        {"status": "BEGIN", "id": "1"},
        {"ts_ms": 1},
        {"ddl": "CREATE TABLE t (id INT)", "source": {"db": "shop"}},
    ]
    found = decoded("debezium", *others, "", "  null  ", {**debezium("", "m", None, None), "message": {}})
    assert not found.bad and not found.events
    assert found.others == {
        Unchanging.TOMBSTONE: 2,
        Unchanging.TRANSACTION: 1,
        Unchanging.HEARTBEAT: 1,
        Unchanging.SCHEMA_CHANGE: 1,
        "message": 1,
    }
    nulls = "null", '{"schema":null,"payload":null}', '{ "payload": null, "schema": null }'
    for text in nulls:  # a block of them crashes Arrow's parser
        found = decoded("debezium", *[text] * 100)
        assert not found.events and not found.bad and found.others == {Unchanging.TOMBSTONE: 100}
    assert [one.reason for one in decoded("debezium", '{"schema":{"fields":[]},"payload":5}').bad] == [
        "it is not JSON: an event is an object on a line of its own"
    ]


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("payload_first", [True, False])
def test_the_schema_part_gives_the_types(spaced: bool, payload_first: bool) -> None:
    event = with_schema(debezium("t", "c", None, {"id": 1, "day": 5}))
    event = dict(reversed(event.items())) if payload_first else event
    text = json.dumps(event) if spaced else json.dumps(event, separators=(",", ":"))
    (found,) = decoded("debezium", text, text).events
    assert {name: type_to_sql(form.type) for name, form in found.forms.items()} == {"id": "INT", "day": "DATE"}
    assert len(rows(found)) == 2
    plain = debezium("t", "c", None, {"id": 2, "day": 5})
    assert [len(one.operations) for one in decoded("debezium", text, plain, text).events] == [1, 1, 1]


@pytest.mark.parametrize(
    "format, row", [("debezium", debezium("t", "c", None, {"id": 1})), ("debezium-flat", {"id": 1, "__op": "c"})]
)
def test_a_payload_may_come_without_its_schema(format: str, row: Any) -> None:
    """A flat row may have a column of this name, and other forms stand beside it."""
    declared = json.dumps({"schema": None, "payload": row}, separators=(",", ":"))
    found = decoded(format, {"payload": row}, row, declared, {"schema": None, "payload": row})
    assert not found.bad and [row["id"] for one in found.events for _, row in rows(one)] == [1] * 4
    (column,) = decoded("debezium-flat", {"payload": {"id": 1}}).events
    assert column.read.lines.texts.to_pylist() == [b'{"payload": {"id": 1}}']
    (bad,) = decoded("debezium", {"payload": {"id": 1}}).bad
    assert bad.reason.startswith("it has no 'op'")


def test_the_key_of_a_payload_without_schema() -> None:
    assert names_in_key(pa.array([b'{"payload": {"id": 1}}']), EVENT_FORMATS["debezium"]) == ("id",)
    assert names_in_key(pa.array([b'{"payload": 1}']), EVENT_FORMATS["debezium"]) == ("payload",)


@pytest.mark.parametrize("format", ["debezium", "debezium-flat"])
def test_the_columns_of_a_key_may_have_the_names_of_an_envelope(format: str) -> None:
    assert names_in_key(pa.array([b'{"database":"a","table":"b","pk.id":1}']), EVENT_FORMATS["maxwell"]) == ("id",)
    assert names_in_key(pa.array([b'{"database":"a","table":"b"}']), EVENT_FORMATS[format]) == ("database", "table")


def test_a_changed_schema_cuts_the_events_of_a_table() -> None:
    narrow = {"id": {"type": "int32"}, "n": {"type": "int16"}}
    wide = {**narrow, "n": {"type": "int64"}}
    events = [
        {"schema": schema_part(narrow, types), "payload": debezium("t", "c", None, {"id": n, "n": n})}
        for n, types in enumerate((narrow, narrow, wide, narrow))
    ]
    found = decoded("debezium", *events).events
    assert [type_to_sql(one.form("n").type) for one in found] == ["SMALLINT", "BIGINT", "SMALLINT"]
    assert [row["id"] for one in found for _, row in rows(one)] == [0, 1, 2, 3]
    (one,) = decoded("debezium", events[0], {**events[2], "payload": None}, events[3]).events
    assert type_to_sql(one.form("n").type) == "SMALLINT" and [row["id"] for _, row in rows(one)] == [0, 3]


def test_of_several_keys_the_last_one_counts() -> None:
    first, last = (canal("t", "c", None, {"id": n, "name": "a"}) for n in range(2))
    last["pkNames"] = ["id", "name"]
    (found,) = decoded("canal", first, last).events
    assert found.keys == ("id", "name")


def test_a_bad_event_between_others_does_not_change_what_these_do() -> None:
    one, two = {"id": 1}, {"id": 2}
    given = (
        debezium("t", "c", None, one),
        debezium("t", "u", None, two),
        debezium("t", "d", one, None),
        debezium("t", "c", None, two),
    )
    given[1]["after"] = 5
    (found,) = decoded("debezium", *given).events
    assert [event.reason for event in found.bad] == ["its 'after' is no row"]
    assert rows(replace(found, bad=())) == [("+I", one), ("-D", one), ("+I", two)]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("format, envelope", ENVELOPES)
def test_a_column_whose_name_is_half_a_surrogate_is_in_a_bad_event(
    format: str, envelope: Any, separators: tuple[str, str]
) -> None:
    one, wrong, two = {"id": 1}, {"id": 9, "\ud800": "x"}, {"id": 2}
    given = [json.dumps(envelope("t", "c", None, row), separators=separators) for row in (one, wrong, two)]
    (found,) = decoded(format, *given).events
    assert [event.reason for event in found.bad] == ["it holds text that is not valid Unicode"]
    assert [int(cells["id"]) for _, cells in rows(replace(found, bad=()))] == [one["id"], two["id"]]


@pytest.mark.parametrize("name", [None, 5, "\ud800"])
def test_a_schema_with_a_field_that_no_column_can_be_is_none(name: object) -> None:
    assert declared_columns(json.dumps({"fields": [{"field": name, "type": "string"}]}).encode()) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"fields": [5]},
        {"fields": ["after"]},
        {"fields": {"field": "id"}},
        {"fields": [{"field": "after", "fields": [None]}]},
        {"fields": [{"field": "after", "fields": 7}]},
        {"fields": None},
        {},
        [],
        "fields",
    ],
    ids=str,
)
def test_a_schema_of_another_shape_is_none(schema: object) -> None:
    assert declared_columns(json.dumps(schema).encode()) is None


def test_each_truncation_is_one_of_its_own() -> None:
    gone = debezium("t", "t", None, None)
    found = decoded("debezium", gone, gone, debezium("t", "c", None, {"id": 1})).events
    assert [one.truncates for one in found] == [True, True, False]


def test_the_columns_that_a_row_of_a_list_names() -> None:
    event = canal("t", "d", {"id": 1, "name": None}, None)
    (found,) = decoded("canal", event, {**event, "data": [{"id": "2"}, {"id": "3", "name": None}, {"id": "4"}]}).events
    names = [sorted(found.read.names_before(row)) for row in range(4)]
    assert names == [["id", "name"], ["id"], ["id", "name"], ["id"]]


def test_a_table_that_takes_no_deletes_refuses_a_key_that_changes() -> None:
    one, two = {"id": 1}, {"id": 2}
    (found,) = decoded("debezium", debezium("t", "u", one, two), debezium("t", "u", two, two)).events
    bad = list[BadEvent]()
    left = rows_of(found, KEY, needs_before=False, bad=bad, refused={RowKind.DELETE: "no deletes"})
    assert [event.reason for event in bad] == ["no deletes"] and left.event.tolist() == [1]


def test_values_that_arrow_cannot_read_beside_others() -> None:
    values = [1, 1.5, "x", None, True, 1 << 80, {"b": [1, 2.5]}, [], "1e400", 9_007_199_254_740_993]
    (found,) = decoded("debezium", *[debezium("t", "c", None, {"id": n, "v": v}) for n, v in enumerate(values)]).events
    texts = ["1", "1.5", "x", None, "true", str(1 << 80), '{"b":[1,2.5]}', "[]", "1e400", "9007199254740993"]
    assert [row["v"] for _, row in rows(found)] == texts
    assert [row["id"] for _, row in rows(found)] == list(range(len(values)))


SEPARATORS = [(", ", ": "), (",", ":")]
"""Images are cut out of events without blanks."""


@pytest.mark.parametrize("separators", SEPARATORS)
@pytest.mark.parametrize("kind", ["-U", "+U"])
@pytest.mark.parametrize("place", [0, 1])
def test_whole_numbers_beside_fractions_keep_their_digits(separators: tuple[str, str], kind: str, place: int) -> None:
    """In either image, in any column, and beside tables that come first and have none."""
    decoder = EventDecoder(EVENT_FORMATS["debezium"])
    plain = {"id": 1, "v": 1.5, "w": 0.5}
    long = {"id": 1, "v": 1.5, "w": 0.5} | {"vw"[place]: 9_007_199_254_740_993}
    images = (long, plain) if kind == "-U" else (plain, long)
    for event in (debezium("t", "u", plain, plain), debezium("t", "u", *images)):
        texts = [json.dumps({**event, "source": {**event["source"], "table": name}}, separators=separators) for name in "rst"]
        if event["before"] != event["after"]:
            texts[:2] = [json.dumps(debezium(name, "u", plain, plain), separators=separators) for name in "rs"]
        *_, found = decoded("debezium", *texts, decoder=decoder).events
    (row,) = (row for found_kind, row in rows(found, needs_before=True) if found_kind == kind)
    assert str(row["vw"[place]]) == "9007199254740993"


@pytest.mark.parametrize("separators", SEPARATORS)
def test_a_fraction_does_not_spoil_the_whole_numbers_of_its_block(separators: tuple[str, str]) -> None:
    """The column is BIGINT: the fraction is a misfit, and the number beside it has all of its digits."""
    decoder = EventDecoder(EVENT_FORMATS["debezium"], wanted=lambda table: Wanted({"v": BIGINT}))
    images = ({"id": 1, "v": 1.5}, {"id": 2, "v": 9_007_199_254_740_993})
    texts = [json.dumps(debezium("t", "c", None, image), separators=separators) for image in images]
    (found,) = decoded("debezium", *texts, decoder=decoder).events
    cells, misfits = as_column(found.read.after.columns["v"], found.form("v"), BIGINT)
    assert (cells.to_pylist()[1], [cell.row for cell in misfits]) == (9_007_199_254_740_993, [0])


@pytest.mark.parametrize("separators", SEPARATORS)
@pytest.mark.parametrize("name", [r"gr\u00f6\u00dfe", r"odd\u0022name", r"\u006e", r"a\/b", r"\\\u005c", r"\t", r"odd\"name"])
def test_keys_with_escapes_are_those_that_they_stand_for(name: str, separators: tuple[str, str]) -> None:
    """Numbers are as they are written, whatever stands beside them in a block."""
    events = [json.dumps(debezium("t", "c", None, {"id": n, "v": v}), separators=separators) for n, v in ((1, 2), (2, 1.5))]
    together, *alone = ([one.replace('"v"', f'"{name}"') for one in some] for some in (events, events[:1], events[1:]))
    wanted = [row for some in alone for row in rows_as_text(some)]
    assert rows_as_text(together) == wanted and [row[json.loads(f'"{name}"')] for _, row in wanted] == ["2", "1.5"]


def rows_as_text(texts: Sequence[str]) -> list[tuple[str, Row]]:
    """The rows of events without declared types, all of their cells as a column of text takes them."""
    (found,) = decoded("debezium", *texts).events
    changes = rows_of(found, KEY, needs_before=False, bad=[])
    cells = {name: as_column(column, found.form(name), STRING)[0].to_pylist() for name, column in changes.cells.items()}
    return [(KIND_TEXTS[kind], {name: column[n] for name, column in cells.items()}) for n, kind in enumerate(changes.kinds)]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("separators", SEPARATORS)
@pytest.mark.parametrize("limit", [MAX_NAME_CHARACTERS, 1 << 30])
@pytest.mark.parametrize("names", [["x" * 3_000_000], ["x" * 99_999], [f"{n}{'x' * 1000}" for n in range(3_000)]])
def test_numbers_of_columns_with_long_names(
    names: list[str], limit: int, separators: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RE2 refuses a pattern of some million characters, and Python reads such events."""
    monkeypatch.setattr("paimon_cli.ingest.changes.whole_numbers.MAX_NAME_CHARACTERS", limit)
    events = [debezium("t", "c", None, {"id": n, **dict.fromkeys(names, value)}) for n, value in ((1, 1.5), (2, 2))]
    events.append(debezium("u", "c", None, {"id": 3}))
    found = decoded("debezium", *[json.dumps(event, separators=separators) for event in events]).events
    assert [row[names[0]] for _, row in rows(found[0])] == ["1.5", "2"] and rows(found[1]) == [("+I", {"id": 3})]


def test_an_unchanged_large_value_comes_from_the_row_before() -> None:
    whole = debezium("t", "u", {"id": 1, "text": "old"}, {"id": 1, "text": UNCHANGED})
    assert rows(decoded("debezium", whole).events[0]) == [("+U", {"id": 1, "text": "old"})]
    lacking = decoded("debezium", debezium("t", "u", None, {"id": 1, "text": UNCHANGED})).events[0]
    bad = list[BadEvent]()
    assert not len(rows_of(lacking, KEY, needs_before=False, bad=bad))
    assert "REPLICA IDENTITY FULL" in bad[0].reason


def test_what_was_applied_before_is_left_out() -> None:
    events = [debezium("t", "c", None, {"id": n}) for n in range(4)]
    middle = 2 * len(json.dumps(events[0]) + "\n")
    decoder = EventDecoder(EVENT_FORMATS["debezium"], skips=lambda table: middle)
    (found,) = decoded("debezium", *events, decoder=decoder).events
    assert [row["id"] for _, row in rows(found)] == [2, 3]
    none = EventDecoder(EVENT_FORMATS["debezium"], wanted=lambda table: None)
    assert not decoded("debezium", *events, decoder=none).events


def test_numbers_of_decimal_columns_keep_their_digits() -> None:
    wanted = Wanted({"v": DecimalType(30, 10)})
    decoder = EventDecoder(EVENT_FORMATS["maxwell"], wanted=lambda table: wanted)
    text = json.dumps(maxwell("t", "c", None, {"id": 1, "v": 1})).replace('"v": 1', '"v": 12345678901234567890.0123456789')
    (found,) = decoded("maxwell", text, text, decoder=decoder).events
    assert str(rows(found)[1][1]["v"]) == "12345678901234567890.0123456789"


NUMERIC = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
NUMBERS = [
    ("20", "0", "1234", "1234"),
    ("20", "0", '"BNI="', "1234"),
    ("20", "0", "Infinity", None),
    ("20", "0", '"-5"', None),
    ("38", "10", "2.5e+20", "250000000000000000000.0000000000"),
    ("38", "2", '"12.50"', "12.50"),
    ("65", "0", "1234", "1234"),
    ("65", "0", '"BNI="', "1234"),
]


@pytest.mark.parametrize("beside", ["1", '["a"]', '{"b": 1}'])
@pytest.mark.parametrize("digits, scale, value, wanted", NUMBERS)
def test_a_number_is_not_taken_for_base64(digits: str, scale: str, value: str, wanted: str | None, beside: str) -> None:
    """Whatever other columns hold: a list makes Python read the event."""
    declared = {**NUMERIC, "parameters": {"scale": scale, "connect.decimal.precision": digits}}
    types = {"id": {"type": "int32"}, "v": declared, "x": {"type": "string"}}
    event = with_schema(debezium("t", "c", None, {"id": 1, "v": 0, "x": 0}), types)
    text = json.dumps(event).replace('"v": 0', f'"v": {value}').replace('"x": 0', f'"x": {beside}')
    for stream in (text + "\n" + text, text.replace(f'"v": {value}', '"v": "AQ=="') + "\n" + text):
        (found,) = decoded("debezium", *stream.splitlines()).events
        form = found.form("v")
        cells, bad = as_column(rows_of(found, KEY, needs_before=False, bad=[]).cells["v"], form, form.type)
        assert [None if cell is None else str(cell) for cell in cells.to_pylist()][-1] == wanted
        assert (len(cells) - 1 in [cell.row for cell in bad]) == (wanted is None)


@pytest.mark.parametrize("separators", SEPARATORS)
def test_a_column_that_becomes_a_decimal_between_two_blocks_keeps_its_digits(separators: tuple[str, str]) -> None:
    types = dict[str, DataType]()
    decoder = EventDecoder(EVENT_FORMATS["maxwell"], wanted=lambda table: Wanted({**types}))
    event = maxwell("t", "c", None, {"id": 1})
    event["data"] = event.pop("data") | {"v": 7777}  # in its place for cuts
    text = json.dumps(event, separators=separators).replace("7777", "0.12345678901234567890")
    decoded("maxwell", text, decoder=decoder)
    types["v"] = DecimalType(30, 20)
    (found,) = decoded("maxwell", text, decoder=decoder).events
    assert str(rows(found)[0][1]["v"]) == "0.12345678901234567890"


@pytest.mark.parametrize("text", [b"\xff", "ä".encode(), b'{"op"'])
def test_an_event_that_was_set_apart_is_what_it_was(text: bytes) -> None:
    letter = json.dumps({"dead_letter": {}, "event": text.decode(errors="surrogateescape")}, separators=(",", ":"))
    assert [one.text for one in decoded("debezium", letter).bad] == [text]
    assert len(decoded("debezium", '{"dead_letter":{},"event":"\\ud800"}').bad) == 1


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_an_event_with_its_schema_is_set_apart_whole(separators: tuple[str, str]) -> None:
    events = [with_schema(debezium("t", op, None, {"id": 1, "day": day})) for op, day in (("c", 1), ("u", 2), ("c", 3))]
    wrong = {**events[0], "payload": {**events[0]["payload"], "op": "x"}}
    texts = [json.dumps(one, separators=separators) for one in (events[0], wrong, events[1], None, events[2])]
    found = decoded("debezium", *texts)
    (bad,) = [bad for one in found.events for bad in one.bad]
    assert bad.text.decode() == texts[1] and not found.bad
    (good,) = [one for one in found.events if len(one.read.lines)]
    for kept in (good, pickle.loads(pickle.dumps(good))):
        assert [kept.read.lines.bad(index, "").text.decode() for index in range(3)] == [texts[0], texts[2], texts[4]]
    letter = json.dumps({"dead_letter": {}, "event": texts[2]}, separators=(",", ":"))
    (again,) = decoded("debezium", letter).events
    assert type_to_sql(again.form("day").type) == "DATE" and again.read.lines.bad(0, "").text.decode() == texts[2]


def test_of_each_bad_event_only_its_own_place_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them for each would take minutes for a block of bad events."""
    event = with_schema(debezium("t", "c", None, {"id": 1, "day": 1}))
    event["payload"]["op"] = "x"
    search, searched = np.searchsorted, list[int]()

    def counted(a: Any, v: Any, *rest: Any, **named: Any) -> Any:
        searched.append(np.size(v))
        return search(a, v, *rest, **named)

    monkeypatch.setattr(np, "searchsorted", counted)
    found = decoded("debezium", *[event] * 2_000)
    bad = [*found.bad, *(one for events in found.events for one in events.bad)]
    assert [one.text.decode() for one in bad] == [json.dumps(event)] * 2_000
    assert sum(searched) < 20_000


def test_more_tables_than_a_database_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.ingest.changes.table_reader.MAX_TABLES", 3)
    assert MAX_TABLES == 10_000
    with pytest.raises(BadInput, match="names more than 3 tables"):
        decoded("debezium", *[debezium(f"t{n}", "c", None, {"id": 1}) for n in range(4)])


class _Growing(io.BytesIO):
    """A file to which another process adds after each read."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__(parts[0])
        self.parts = list(parts[1:])

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if self.parts:
            at = self.tell()
            self.seek(0, io.SEEK_END)
            self.write(self.parts.pop(0))
            self.seek(at)
        return found

    def readline(self, size: int | None = -1) -> bytes:
        return super().readline(size) if not self.parts else b""


def test_a_line_that_is_completed_while_its_file_is_read_waits() -> None:
    """Its rest is not an event, though it is all that is left to read."""
    stream = _Growing(b'{"a":1}\n{"a"', b":2}\n", b'{"a":3}\n')
    blocks = list(event_blocks(stream, "s", 100, is_growing=True))
    assert [one.as_py() for lines in blocks for one in lines.texts] == [b'{"a":1}'] and blocks[-1].end == 8


def test_blocks_are_whole_lines_and_know_their_positions() -> None:
    text = b"\xef\xbb\xbf" + b'{"a":1}\r\n\n{"a":22}\n{"a":333}'
    blocks = list(event_blocks(io.BytesIO(text), "s", 4))
    assert [one.as_py() for lines in blocks for one in lines.texts] == [b'{"a":1}', b'{"a":22}', b'{"a":333}']
    positions = [int(position) for lines in blocks for position in lines.positions]
    assert [text[position : position + 4] for position in positions] == [b'{"a"'] * 3
    assert blocks[-1].end == len(text)


def test_lines_before_one_that_is_too_long_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.ingest.changes.event_lines.MAX_EVENT_BYTES", 50)
    blocks = event_blocks(io.BytesIO(b'{"a":1}\n{"a":2}\n{"a":' + b"3" * 100 + b"}\n"), "s", 20)
    lines = next(blocks)
    assert lines.texts.to_pylist() == [b'{"a":1}', b'{"a":2}'] and lines.end == 16
    with pytest.raises(BadInput, match="an event of more than"):
        next(blocks)


@pytest.mark.parametrize("separators", SEPARATORS)
def test_a_number_that_is_whole_in_one_image_becomes_text(separators: tuple[str, str]) -> None:
    text = json.dumps(debezium("t", "u", {"id": 1, "n": 1}, {"id": 1, "n": 2.5}), separators=separators)
    (found,) = decoded("debezium", text, text).events
    assert rows(found, needs_before=True) == [("-U", {"id": 1, "n": "1"}), ("+U", {"id": 1, "n": "2.5"})] * 2


@pytest.mark.parametrize("data", [{"id": 1}, {"id": 1, "odd": {}}])
def test_an_old_value_of_a_column_that_the_new_row_lacks(data: Row) -> None:
    """Also where Arrow cannot read the event; of a column that both have, each image keeps its own value."""
    event = {**maxwell("t", "u", {"id": 1, "n": 1}, {"id": 1, "n": 2}), "data": {**data, "n": 2}, "old": {"gone": 5, "n": 1}}
    (found,) = decoded("maxwell", event).events
    (_, old), (_, new) = rows(found, needs_before=True)
    assert (old["id"], old["n"], old["gone"]) == (1, 1, 5) and (new["id"], new["n"], new["gone"]) == (1, 2, None)


def test_images_whose_values_differ_in_kind_become_text() -> None:
    (found,) = decoded("maxwell", maxwell("t", "u", {"id": 1, "n": 1, "m": True}, {"id": 1, "n": 2.5, "m": "x"})).events
    assert rows(found, needs_before=True) == [("-U", {"id": 1, "n": "1", "m": "true"}), ("+U", {"id": 1, "n": "2.5", "m": "x"})]


def test_a_name_with_the_separator_is_refused() -> None:
    events: list[Row] = [{"id": 1, "__op": "c", "__table": "a\0b"}, {"id": 1, "__op": "c", "__db": "\0"}]
    found = decoded("debezium-flat", *events)
    assert not found.events and [one.reason for one in found.bad] == ["it names no table"] * 2


@pytest.mark.parametrize("key, value", [("old", {"n": "4"}), ("old", "n"), ("data", {"id": "1"}), ("data", 7), ("old", [["n"]])])
def test_rows_that_are_in_no_list_are_refused(key: str, value: Any) -> None:
    """Also where the events of a table cannot be read by Arrow."""
    before, after = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    wanted = Wanted({}, needs_before=True)
    for asked in (Wanted(), wanted):
        decoder = EventDecoder(EVENT_FORMATS["canal"], wanted=lambda _, asked=asked: asked)  # type: ignore[misc]
        good = canal("t", "u", before, after)
        found = decoded("canal", {**good, key: value}, good, decoder=decoder)
        bad = [*found.bad, *(one for events in found.events for one in events.bad)]
        assert [one.reason for one in bad] == [f"its '{key}' is no list of rows"]
        assert sum(len(events.read.event) for events in found.events) == 1


@pytest.mark.parametrize("is_cut", [True, False])
def test_each_event_of_canal_has_the_types_that_it_declares(is_cut: bool) -> None:
    """Those of a later event of its block are not its own: a narrower one would not hold its values."""
    types = ["double", "double", "float", "float", "double"]
    events = [canal("t", "c", None, {"id": n, "v": "0.1"}) for n in range(len(types))]
    for event, kind in zip(events, types, strict=True):
        event["mysqlType"] = {"id": "int", "v": kind}
    text = [json.dumps(event, separators=(",", ":") if is_cut else (", ", ": ")) for event in events]
    found = decoded("canal", *text).events
    assert [type_to_sql(one.form("v").type) for one in found] == ["DOUBLE", "FLOAT", "DOUBLE"]
    assert [[row["id"] for _, row in rows(one)] for one in found] == [["0", "1"], ["2", "3"], ["4"]]
    assert [one.begin for one in found] == [sum(len(line) + 1 for line in text[:n]) for n in (0, 2, 4)]


@pytest.mark.parametrize("is_cut", [True, False])
def test_an_event_of_canal_without_types_does_not_take_those_of_its_block(is_cut: bool) -> None:
    events = [canal("t", "c", None, {"id": n, "v": "0.1"}) for n in range(5)]
    for event, types in zip(events, [None, {"id": "int", "v": "double"}, None, None, {"id": "int", "v": "double"}], strict=True):
        event["mysqlType"] = types
    text = [json.dumps(event, separators=(",", ":") if is_cut else (", ", ": ")) for event in events]
    found = decoded("canal", *text).events
    assert [one.form("v").is_declared for one in found] == [False, True, False, True]
    assert [[row["id"] for _, row in rows(one)] for one in found] == [["0"], ["1"], ["2", "3"], ["4"]]


def test_types_that_all_events_share_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their columns are not built to find no difference."""
    monkeypatch.setattr("paimon_cli.ingest.changes.event_frames.changes_in", None)
    (found,) = decoded("canal", *[USUAL_OF_CANAL] * 5).events
    assert len(found.read.lines) == 5


def test_a_type_that_only_later_events_declare_is_not_that_of_earlier_ones() -> None:
    events = [canal("t", "c", None, {"id": n, "v": "a"}) for n in range(2)]
    events[0]["mysqlType"], events[1]["mysqlType"] = {"id": "int"}, {"id": "int", "v": "json"}
    first, last = decoded("canal", *events).events
    assert ("v" in first.forms, "v" in last.forms) == (False, True)


@pytest.mark.parametrize("is_cut", [True, False])
def test_the_type_of_a_column_is_not_that_of_a_key_of_the_event(is_cut: bool) -> None:
    event = debezium("t", "c", None, {"id": 1, "ts_ms": 12.5})
    text = json.dumps(event, separators=(",", ":") if is_cut else (", ", ": "))
    decoder = EventDecoder(EVENT_FORMATS["debezium"], wanted=lambda _: Wanted({"ts_ms": DecimalType(10, 2)}))
    (found,) = decoded("debezium", text, decoder=decoder).events
    assert found.read.after.columns["ts_ms"].to_pylist() == [Decimal("12.50")]
    millis = newest_millis(found)
    assert millis == event["source"]["ts_ms"]


def test_a_text_that_ends_within_a_string_does_not_go_on_in_the_next_one() -> None:
    texts = [b'{"a":"}', b'{","b":"x"}', b'{"a":"y"}{"a":"z"}']
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert parsed_objects(pa.array(texts, pa.large_binary()), schema, "error") is None
    whole = parsed_objects(pa.array([b'{"a":"y"}', b'{"b":"x"}'], pa.large_binary()), schema, "error")
    assert whole is not None and whole.to_pylist() == [{"a": "y", "b": None}, {"a": None, "b": "x"}]
