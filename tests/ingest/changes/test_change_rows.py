"""Which rows events write, of which kinds, and which events cannot be applied: what one event is does not change the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from paimon_cli.ingest.changes.change_rows import (
    LACKS_KEY,
    LACKS_VALUE,
    NO_AFTER,
    NO_IMAGE,
    UNCHANGED,
    ChangeRows,
    rows_of,
)
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import BadEvent, lines_of
from paimon_cli.ingest.changes.key_images import ChangeKey
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, RowKind
from tests.event_streams import Row, debezium


def of(
    *events: Row, keys: Sequence[str] = ("id",), comma: str = ",", **how: Any
) -> tuple[ChangeRows, list[tuple[Any, ...]], list[str]]:
    """The rows of events, each as its kind and cells, and the reasons of bad events."""
    text = "".join(json.dumps(event, separators=(comma, ":")) + "\n" for event in events)
    (found,) = EventDecoder(EVENT_FORMATS["debezium"]).decode(lines_of(text.encode(), "s", 0)).events
    bad = list[BadEvent](found.bad)
    rows = rows_of(found, ChangeKey(keys), **{"needs_before": False, **how}, bad=bad)
    cells = zip(*(column.to_pylist() for column in rows.cells.values()), strict=True)
    return rows, [(KIND_TEXTS[kind], *row) for kind, row in zip(rows.kinds, cells, strict=True)], [one.reason for one in bad]


def update(before: Row | None, after: Row | None) -> Row:
    return debezium("t", "u", before, after)


@pytest.mark.parametrize("changed", ["a", "b"])
def test_a_key_moves_with_any_of_its_columns(changed: str) -> None:
    old = {"a": 1, "b": 1, "v": 5}
    _, rows, _ = of(update(old, {**old, changed: 2}), update(old, {**old, "v": 6}), keys=("a", "b"))
    assert [kind for kind, *_ in rows] == ["-D", "+I", "+U"]


@pytest.mark.parametrize("name", ["s", "t"])
def test_an_unchanged_value_is_taken_from_its_own_row_alone(name: str) -> None:
    """Beside events, and columns, whose values have all come."""
    old = {"id": 1, "s": "s", "t": "t"}
    whole = update(old, {"id": 1, "s": "new", "t": "newer"})
    _, rows, _ = of(whole, update(old, {**old, name: UNCHANGED}), whole)
    assert rows == [("+U", 1, "new", "newer"), ("+U", 1, "s", "t"), ("+U", 1, "new", "newer")]


@pytest.mark.parametrize("comma", [",", ", "])
def test_a_deletion_that_comes_with_its_row_as_the_new_one_has_all_of_its_columns(comma: str) -> None:
    """Whether its images are cut out of the text, or not."""
    deletion = debezium("t", "d", None, {"id": 2, "more": 3})
    _, rows, _ = of(update({"id": 1, "n": 1}, {"id": 1, "n": 2}), deletion, comma=comma)
    assert rows == [("+U", 1, 2, None), ("-D", 2, None, 3)]


def test_a_row_before_that_lacks_its_key_is_not_moved() -> None:
    """Unless another column of the key says so: then the old row cannot be found."""
    _, rows, _ = of(update({"n": 1}, {"id": 1, "n": 2}), update({"id": 1, "n": 1}, {"id": 1, "n": 2}))
    assert [kind for kind, *_ in rows] == ["+U", "+U"]
    for comma in (",", ", "):
        _, rows, reasons = of(update({"b": 1}, {"a": 1, "b": 2}), keys=("a", "b"), comma=comma)
        assert not rows and reasons == [LACKS_KEY]


ONE = {"id": 1, "n": 1}
TWO = {"id": 2, "n": 2}


@pytest.mark.parametrize(
    ("bad", "how", "reason"),
    [
        (debezium("t", "c", None, None), {}, NO_AFTER),
        (debezium("t", "d", None, None), {}, NO_IMAGE),
        (update(None, ONE), {"needs_before": True}, NO_IMAGE),
        (update(ONE, {"n": 2}), {}, LACKS_KEY),
        (update({"n": 1}, ONE), {"needs_before": True}, LACKS_KEY),
        (debezium("t", "d", {"n": 1}, None), {}, LACKS_KEY),
        (debezium("t", "d", {"n": 1}, ONE), {}, LACKS_KEY),
        (update(None, {"id": 1, "n": 1, "s": UNCHANGED}), {}, LACKS_VALUE),
        (debezium("t", "d", None, None), {"refused": {RowKind.DELETE: "no deletes"}}, NO_IMAGE),
        (debezium("t", "d", ONE, None), {"refused": {RowKind.DELETE: "no deletes"}}, "no deletes"),
        (update(ONE, TWO), {"refused": {RowKind.DELETE: "no deletes"}}, "no deletes"),
        (update(ONE, {"id": 1, "n": 3}), {"needs_before": True, "refused": {RowKind.UPDATE_BEFORE: "no -U"}}, "no -U"),
    ],
)
def test_an_event_that_cannot_be_applied_writes_nothing_and_others_all(bad: Row, how: dict[str, Any], reason: str) -> None:
    """The first reason counts, and no other event is taken for it."""
    good = debezium("t", "c", None, {"id": 7, "n": 7, "s": "x"})
    found, rows, reasons = of(good, bad, good, **how)
    assert reasons == [reason]
    assert [(kind, key) for kind, key, *_ in rows] == [("+I", 7)] * 2 and found.event.tolist() == [0, 2]
    assert found.incomplete == 0


def test_updates_without_their_row_before_are_counted() -> None:
    found, rows, reasons = of(update(None, ONE), update(ONE, ONE), update(None, {"n": 1}))
    assert found.incomplete == 1 and len(rows) == 2 and reasons == [LACKS_KEY]
