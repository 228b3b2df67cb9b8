"""What tables get from events without declared types does not depend on where the stream is cut into blocks.

`python -m tests.ingest.changes.test_cut_anywhere 1000 5000` tries the seeds from 1000 to 5000.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from paimon_cli.datatypes.data_type import STRING
from paimon_cli.ingest.changes.change_rows import rows_of
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines, lines_of
from paimon_cli.ingest.changes.event_values import as_column
from paimon_cli.ingest.changes.key_images import ChangeKey
from tests.event_streams import Row, canal, debezium, flat, maxwell
from tests.nightly import first

ENVELOPES: dict[str, Any] = {"debezium": debezium, "maxwell": maxwell, "canal": canal, "debezium-flat": flat, "json": None}
NUMBERS = ("2", "-7", "0", "-0", "2.0", "1.5", "-0.25", "1e3", "1.50", "9007199254740993", "12345678901234567890", "1e400")
OTHERS = ("null", '"a"', '"2"', '"2.0"', '""', "true", "false", '{"n":1,"m":2.5}', "[1,2.5]", '"\\"b\\":3,"')
NAMES = ("a", "b", "ts_ms", 'odd"name', "größe")


class Literal(float):
    """A value that is written as this text."""

    def __new__(cls, text: str) -> Literal:
        self = super().__new__(cls, 0.5)
        self.text = text  # type: ignore[attr-defined]
        return self


def written(event: Row, chance: random.Random) -> str:
    """The event as JSON, with its literals."""
    literals = list[str]()

    def marked(value: Any) -> Any:
        if isinstance(value, Literal):
            literals.append(value.text)  # type: ignore[attr-defined]
            return f"\x01{len(literals) - 1}\x02"
        if isinstance(value, dict):
            return {key: marked(one) for key, one in value.items()}
        return [marked(one) for one in value] if isinstance(value, list) else value

    separators = (",", ":") if chance.random() < 0.8 else (", ", ": ")
    text = json.dumps(marked(event), separators=separators, ensure_ascii=chance.random() < 0.3)
    for number, literal in enumerate(literals):
        text = text.replace(f'"\\u0001{number}\\u0002"', literal)
    return text


def events_of(format: str, seed: int) -> list[str]:
    """Random events of two tables. Each column has values of a few kinds, now and then of any."""
    chance = random.Random(seed)
    kinds = {name: chance.choice([NUMBERS[:4], NUMBERS[:9], NUMBERS, OTHERS, (*NUMBERS, *OTHERS)]) for name in NAMES}
    texts = list[str]()

    def row(key: int) -> Row:
        names = [name for name in NAMES if chance.random() < 0.8]
        cells = {name: chance.choice(kinds[name] if chance.random() < 0.95 else OTHERS) for name in names}
        if format == "canal":
            cells = {name: "null" if text == "null" else json.dumps(text) for name, text in cells.items()}
        return {"id": key, **{name: Literal(text) for name, text in cells.items()}}

    for _ in range(chance.randrange(4, 14)):
        op, table, key = chance.choice("ccud"), chance.choice("tu"), chance.randrange(4)
        before, after = row(key), row(key if chance.random() < 0.8 else key + 1)
        if format == "json":
            event: Row = after
        elif format == "canal":
            event = debezium_like_canal(table, op, before, after)
        else:
            event = ENVELOPES[format](table, op, None if op == "c" else before, None if op == "d" else after)
        texts.append("null" if chance.random() < 0.03 else written(event, chance))
    return texts


def debezium_like_canal(table: str, op: str, before: Row, after: Row) -> Row:
    """An event of Canal that declares no types."""
    event = {"data": [before if op == "d" else after], "database": "shop", "table": table, "pkNames": ["id"], "isDdl": False}
    event |= {"type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op], "ts": 2, "es": 1}
    return event | {"old": [{name: before[name] for name in before if name != "id"}] if op == "u" else None}


def tables_of(format: str, blocks: Sequence[EventLines]) -> tuple[dict[str, list[Row]], list[tuple[int, str]]]:
    """The rows of each table, in order, all cells as texts, and the bad events."""
    decoder, bad, tables = EventDecoder(EVENT_FORMATS[format]), list[BadEvent](), dict[str, list[Row]]()
    for lines in blocks:
        found = decoder.decode(lines)
        bad += found.bad
        for events in found.events:
            bad += events.bad
            rows = rows_of(events, ChangeKey(["id"]), needs_before=False, bad=bad)
            columns = dict[str, list[Any]]()
            for name, cells in rows.cells.items():
                texts, misfits = as_column(cells, events.form(name), STRING)
                assert not misfits
                columns[name] = texts.to_pylist()
            made = tables.setdefault(events.table.name, [])
            for index, kind in enumerate(rows.kinds.tolist()):
                cells_of = {name: one[index] for name, one in columns.items() if one[index] is not None}
                made.append({"kind": kind, "at": int(events.read.lines.positions[rows.event[index]]), **cells_of})
    return {name: rows for name, rows in tables.items() if rows}, sorted((one.position, one.text.decode()) for one in bad)


def check(format: str, seed: int) -> None:
    chance, texts = random.Random(seed), events_of(format, seed)
    whole = lines_of("".join(f"{text}\n" for text in texts).encode(), "s", 0)
    wanted = tables_of(format, [whole])
    for cuts in ({n for n in range(len(texts)) if chance.random() < share} for share in (0.2, 0.5, 1)):
        bounds = [0, *sorted(cuts - {0}), len(texts)]
        blocks = [whole.slice(begin, end - begin) for begin, end in pairwise(bounds)]
        assert tables_of(format, blocks) == wanted, (format, seed, bounds, texts)


@pytest.mark.parametrize("format", ENVELOPES)
@pytest.mark.parametrize("seed", first(4, range(40)))
@pytest.mark.in_part(2)
def test_tables_do_not_depend_on_where_events_are_cut(format: str, seed: int) -> None:
    for number in range(seed * 10, seed * 10 + 10):
        check(format, number)


if __name__ == "__main__":
    for number in range(*map(int, sys.argv[1:3])):
        for format in ENVELOPES:
            check(format, number)
