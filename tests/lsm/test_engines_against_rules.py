"""The columnar engines against the same rules one record at a time, over generated keys, kinds, nulls and options."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.errors import PaimonError
from tests.lsm.merge_lines import merged_rows, table_schema
from tests.lsm.one_row_at_a_time import PartialRow, Refused, aggregated, deduplicated, first_row

COLUMNS = {"k": "INT NOT NULL", "a": "BIGINT", "b": "STRING", "c": "INT", "g": "INT", "h": "INT", "l": "ARRAY<INT>"}
NAMES = list(COLUMNS)
NUMBER = st.none() | st.integers(-3, 3)
ROW = st.tuples(
    NUMBER, st.none() | st.sampled_from("xyz"), NUMBER, NUMBER, NUMBER, st.none() | st.lists(st.integers(0, 2), max_size=2)
)
RECORDS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["+I", "+U", "-U", "-D"]), ROW), min_size=1, max_size=24)
ADDED = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["+I", "+U"]), ROW), min_size=1, max_size=24)
FUNCTIONS = {
    1: ["sum", "max", "min", "last_value", "first_value"],
    2: ["listagg", "max", "last_non_null_value", "first_non_null_value"],
    3: ["sum", "last_value", "first_non_null_value", "min"],
    6: ["collect", "last_value", "first_value"],
}
Record = dict[str, Any]


def _type(text: str) -> Any:
    return {"type": "ARRAY", "element": "INT"} if text.startswith("ARRAY") else text


def _check(options: dict[str, str], given_rows: list[Any], expected: Callable[[list[Record]], Record | None]) -> None:
    fields = [{"id": i, "name": name, "type": _type(text)} for i, (name, text) in enumerate(COLUMNS.items())]
    schema = table_schema({"fields": fields, "partitionKeys": [], "primaryKeys": ["k"], "options": {"bucket": "1", **options}})
    records = [{"seq": n, "kind": kind, "row": [key, *row]} for n, (key, kind, row) in enumerate(given_rows)]
    try:
        wanted: Any = [record for record in (_one_key(records, key, expected) for key in range(4)) if record is not None]
    except Refused:
        wanted = "refused"
    try:
        got: Any = merged_rows(schema, records)
    except PaimonError:
        got = "refused"
    assert json.dumps(got) == json.dumps(wanted), options


def _one_key(records: list[Record], key: int, expected: Callable[[list[Record]], Record | None]) -> Record | None:
    mine = [record for record in records if record["row"][0] == key]
    return expected(mine) if len(mine) > 1 else mine[0] if mine else None


@given(RECORDS, st.booleans(), st.sampled_from([deduplicated, first_row]))
@settings(max_examples=40)
def test_engines_that_choose_a_row(rows: list[Any], ignore: bool, engine: Any) -> None:
    name = "first-row" if engine is first_row else "deduplicate"
    _check({"merge-engine": name, "ignore-delete": str(ignore).lower()}, rows, lambda records: engine(records, ignore))


@given(RECORDS | ADDED, st.data(), st.booleans())
@settings(max_examples=80)
def test_aggregation(rows: list[Any], data: st.DataObject, remove: bool) -> None:
    chosen = {at: data.draw(st.sampled_from(choices)) for at, choices in FUNCTIONS.items()}
    functions = [chosen.get(at, "last_non_null_value") for at in range(1, len(NAMES))]
    deaf = set() if remove else data.draw(st.sets(st.sampled_from(range(6))))
    options = {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": str(remove).lower()}
    options |= {f"fields.{NAMES[at]}.aggregate-function": function for at, function in chosen.items()}
    options |= {f"fields.{NAMES[at + 1]}.ignore-retract": "true" for at in deaf}
    _check(options, rows, lambda records: aggregated(records, functions, deaf, remove))


@given(RECORDS | ADDED, st.sampled_from(["plain", "ignore", "remove"]))
@settings(max_examples=40)
def test_partial_update_without_groups(rows: list[Any], mode: str) -> None:
    options = {"merge-engine": "partial-update"}
    options |= {"ignore-delete": "true"} if mode == "ignore" else {}
    options |= {"partial-update.remove-record-on-delete": "true"} if mode == "remove" else {}
    _check(options, rows, lambda records: _partial(records, {mode: True}))


@given(RECORDS | ADDED, st.data(), st.booleans())
@settings(max_examples=120)
def test_partial_update_with_sequence_groups(rows: list[Any], data: st.DataObject, together: bool) -> None:
    groups = [([4, 5], [1, 2, 6])] if together else [([4], [1, 6]), ([5], [2, 3])]
    grouped = [at for _, others in groups for at in others]
    functions = {at: data.draw(st.sampled_from(FUNCTIONS[at])) for at in grouped if data.draw(st.booleans()) and at in FUNCTIONS}
    deaf = data.draw(st.sets(st.sampled_from(sorted(functions)))) if functions else set()
    mode = data.draw(st.sampled_from(["plain", "ignore", "removing"]))
    removing = data.draw(st.sets(st.sampled_from([4, 5]), min_size=1)) if mode == "removing" else set()
    options = {"merge-engine": "partial-update"}
    for fields, others in groups:
        options[f"fields.{','.join(NAMES[at] for at in fields)}.sequence-group"] = ",".join(NAMES[at] for at in others)
    options |= {f"fields.{NAMES[at]}.aggregate-function": function for at, function in functions.items()}
    options |= {f"fields.{NAMES[at]}.ignore-retract": "true" for at in deaf}
    options |= {"ignore-delete": "true"} if mode == "ignore" else {}
    options |= {"partial-update.remove-record-on-sequence-group": ",".join(NAMES[at] for at in removing)} if removing else {}
    rules = {"groups": groups, "functions": functions, "deaf": deaf, "ignore": mode == "ignore", "removing": removing}
    _check(options, rows, lambda records: _partial(records, rules))


def _partial(records: list[Record], rules: dict[str, Any]) -> Record:
    row = PartialRow(len(NAMES), rules)
    for record in records:
        row.feed(record)
    return row.result()
