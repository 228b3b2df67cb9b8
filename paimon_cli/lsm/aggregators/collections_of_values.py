"""collect, merge_map and merge_map_with_keytime: arrays and maps put together (Java FieldCollectAgg, FieldMergeMapAgg ...)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from paimon_cli.lsm.aggregators.step_by_step import StepByStep
from paimon_cli.lsm.aggregators.value_identity import identity


def collected(element: pa.DataType, distinct: bool, reversible: bool) -> StepByStep:
    """collect: arrays one behind the other, older ones too, or the set of their items.

    `reversible`: with ignore-retract Java's wrapper puts an older array in front.
    """
    # Java keeps a set of plain items; others it compares with each item, and never looks at what it holds already
    keeps_held = pa.types.is_nested(element) or pa.types.is_binary(element)

    def add(held: Any, items: Any) -> Any:
        if held is None and items is None:
            return None
        if not distinct:
            return [*(held or ()), *(items or ())]
        result = list(held or ()) if keeps_held else []
        seen = {identity(item, element) for item in result}
        for item in (items or ()) if keeps_held else [*(held or ()), *(items or ())]:
            mark = identity(item, element)
            if mark not in seen:
                seen.add(mark)
                result.append(item)
        return result

    def take_back(held: Any, items: Any) -> Any:
        if held is None or not items:
            return held
        missing = Counter(identity(item, element) for item in items)
        left = []
        for item in held:
            mark = identity(item, element)
            if missing[mark]:
                missing[mark] -= 1
            else:
                left.append(item)
        return left

    return StepByStep(add, None if reversible else add, take_back)


def merged_map(key: pa.DataType) -> StepByStep:
    """merge_map: entries of both, the newer value wins; a retraction removes its keys."""

    def add(held: Any, entries: Any) -> Any:
        if held is None or entries is None:
            return entries if held is None else held
        return list({identity(k, key): (k, v) for k, v in [*held, *entries]}.values())

    def take_back(held: Any, entries: Any) -> Any:
        if held is None or not entries:
            return held
        gone = {identity(k, key) for k, _ in entries}
        return [(k, v) for k, v in held if identity(k, key) not in gone]

    return StepByStep(add, None, take_back)


def timed_map(key: pa.DataType, time_field: str) -> StepByStep:
    """merge_map_with_keytime: of two ROWs of a key the one with the greater text in `time_field`; a null ROW removes the key."""

    def add(held: Any, entries: Any) -> Any:
        if held is None or entries is None:
            return entries if held is None else held
        result = {identity(k, key): (k, v) for k, v in held}
        for k, row in entries:
            mark = identity(k, key)
            if row is None:
                result.pop(mark, None)
            elif row[time_field] is not None:
                old = result.get(mark, (k, None))[1]
                if old is None or old[time_field] is None or _utf16(row[time_field]) > _utf16(old[time_field]):
                    result[mark] = (k, row)
        return list(result.values())

    return StepByStep(add)


def _utf16(text: str) -> bytes:
    """Java compares texts by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
