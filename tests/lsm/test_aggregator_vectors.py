"""Aggregate functions against the answers of Paimon's own classes, one accumulator after each operation."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.canonical_form import canonical_column, from_canonical
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported, PaimonError
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, REVERSED, SKIP, column_history
from paimon_cli.lsm.aggregators.builder import ignores_retractions
from paimon_cli.lsm.aggregators.catalog import aggregator_of
from paimon_cli.options.table_options import TableOptions
from tests.vectors import load

CODES = {"agg": ADD, "agg_reversed": REVERSED, "retract": RETRACT}
Line = dict[str, Any]


def _accumulators(given: Line, upto: int) -> list[Any]:
    """What the column holds after each of the first `upto` operations: as many keys, each with one operation more."""
    field = DataField(0, "f", parse_type(given["type"]))
    options = TableOptions({"merge-engine": "aggregation", **given["options"]})
    function = "last_non_null_value" if given["function"] == "default" else given["function"]
    aggregator = aggregator_of(function, field, options)
    if upto == 0:
        return []
    deaf = ignores_retractions(field, options)
    values = [from_canonical(value, field.type) for _, value in given["ops"][:upto]]
    column = values_to_arrow(values, field.type).cast(arrow_type(field.type))
    codes = np.array([CODES[op] for op, _ in given["ops"][:upto]], np.int8)
    if not aggregator.retracts and not deaf and (codes == RETRACT).any():
        raise NotSupported("no retraction")
    codes[(codes == RETRACT) & deaf] = SKIP
    order = np.concatenate([np.arange(n + 1) for n in range(upto)])
    starts = np.cumsum(np.arange(upto + 1))[:-1]
    history = column_history(order, starts, codes[order])
    return canonical_column(pa.concat_arrays([aggregator.merge(column, history)]), field.type)


def _answer(given: Line, upto: int) -> Any:
    try:
        return _accumulators(given, upto)
    except PaimonError:
        return "error"


def _ordered(value: Any, unordered: bool) -> str:
    if unordered and isinstance(value, list):
        value = sorted(value, key=lambda item: json.dumps(item, sort_keys=True))
    return json.dumps(value, sort_keys=True)


def _mismatch(line: Line) -> str | None:
    given, out = line["in"], line["out"]
    if isinstance(out, dict):
        return None if _answer(given, 1) == "error" else "accepted"
    good = next((i for i, value in enumerate(out) if isinstance(value, dict) and "error" in value), len(out))
    if good:
        got = _answer(given, good)
        kind = given["type"] if isinstance(given["type"], str) else given["type"]["type"]
        free = given.get("unordered", False) or kind in ("MAP", "MULTISET")
        if got == "error" or [_ordered(v, free) for v in got] != [_ordered(v, free) for v in out[:good]]:
            return f"{got}"
    return None if good == len(out) or _answer(given, good + 1) == "error" else "accepted"


def _not_ours(line: Line, old: bool) -> str | None:
    """Why a line is left out. `old`: a line of 0.9, which may differ from main."""
    given, out = line["in"], line["out"]
    function, ops = given["function"], given["ops"]
    if function == "primary-key":
        return "key columns are taken from the newest row, without an aggregator"
    if _has_null_key(given):
        return "Arrow has no maps with a null key"
    if "TIMESTAMP(7)" in json.dumps(given["type"]):
        return "Arrow's nanoseconds end in 2262"
    if "fields.f.count-limit" in given["options"] and any(op == "agg_reversed" for op, _ in ops):
        return "which rows stay below the limit depends on the order of a hash map"
    return _changed_since(given, out) if old else None


def _changed_since(given: Line, out: Any) -> str | None:
    """Lines for which 0.9 answers differently from main."""
    function, ops = given["function"], given["ops"]
    if function in ("sum", "product", "bool_or", "bool_and") and not isinstance(out, dict) and _answer(given, 0) == "error":
        return "0.9 refused the type at the first merge only"
    if function == "nested_update" and _key_twice(given):
        return "0.9 kept a key that was twice in the first array"
    if function in ("max", "min") and given["type"] == "BOOLEAN":
        return "0.9 refused a second BOOLEAN"
    if function == "listagg" and (given["type"] != "STRING" or any(v is not None and not v.strip() for _, v in ops)):
        return "0.9 joined blank texts and took every VARCHAR"
    if function == "product" and next((op for op, v in ops if v is not None), "") == "retract":
        return "0.9 took the first retracted value as the product"
    if function in ("merge_map", "collect") and ["retract", None] in ops:
        return "0.9 failed on a null retraction"
    integer = given["type"] in ("TINYINT", "SMALLINT", "INT", "BIGINT")
    if function in ("sum", "product") and integer and _answer(given, len(ops)) == "error":
        return "0.9 wrapped on overflow"
    return None


def _key_twice(given: Line) -> bool:
    names = [name for name in given["options"].get("fields.f.nested-key", "").split(",") if name]
    first: list[dict[str, Any]] = next((value for _, value in given["ops"] if value), [])
    keys = [tuple(row[name] for name in names) for row in first]
    return bool(names) and len(set(keys)) < len(keys)


def _has_null_key(given: Line) -> bool:
    kind = given["type"] if isinstance(given["type"], str) else given["type"]["type"]
    return kind in ("MAP", "MULTISET") and any(entry[0] is None for _, value in given["ops"] for entry in value or ())


@pytest.mark.parametrize("name", ["field_aggregators_head", "field_aggregators"])
def test_aggregators(name: str) -> None:
    left_out: Counter[str] = Counter()
    wrong = []
    for line in load(name):
        reason = _not_ours(line, not name.endswith("_head"))
        if reason is not None:
            left_out[reason] += 1
        elif (problem := _mismatch(line)) is not None:
            wrong.append((problem, json.dumps(line, ensure_ascii=False)))
    assert wrong == []
    assert left_out == LEFT_OUT[name]


LEFT_OUT = {
    "field_aggregators_head": {
        "key columns are taken from the newest row, without an aggregator": 5,
        "which rows stay below the limit depends on the order of a hash map": 1,
    },
    "field_aggregators": {
        "0.9 wrapped on overflow": 1,
        "0.9 refused the type at the first merge only": 7,
        "0.9 took the first retracted value as the product": 5,
        "0.9 joined blank texts and took every VARCHAR": 19,
        "key columns are taken from the newest row, without an aggregator": 17,
        "0.9 failed on a null retraction": 13,
        "Arrow's nanoseconds end in 2262": 3,
        "0.9 kept a key that was twice in the first array": 7,
        "0.9 refused a second BOOLEAN": 1,
        "Arrow has no maps with a null key": 1,
    },
}
