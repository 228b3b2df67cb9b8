"""Parts of VARIANTs by path, such as `$.a.b[0]`, of all values of a column at once (Java VariantGet; Spark's variant_get)."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.variant_casts import VariantParts, check_target, values_of_parts
from paimon_cli.datatypes.variant_columns import of_variants
from paimon_cli.datatypes.variant_leaf_texts import plain_texts
from paimon_cli.datatypes.variant_node_texts import node_texts
from paimon_cli.datatypes.variant_nodes import NodeKind, NodeLevel, Primitive, Variants, places_below
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened

Steps = tuple[str | int, ...]
"""The fields (by name) and elements (by number, from 0) that lead to a part."""
_STEP = re.compile(r"\.([^.\[\]'\"]+)|\['([^']*)'\]|\[\"([^\"]*)\"\]|\[([0-9]{1,9})\]")
_PARTS = pa.struct([pa.field("text", pa.string()), pa.field("is_text", pa.bool_())])


def parse_variant_path(text: str) -> Steps:
    """The steps of a path: `$`, then `.name`, `['name']` or `[number]`. Raises `UsageError`."""
    steps, place = list[str | int](), 1
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            break
        steps.append(int(found[4]) if found[4] is not None else next(name for name in found.groups() if name is not None))
        place = found.end()
    if not text.startswith("$") or place < len(text):
        why = "a path is $, then .name, ['name'] or [number] for each step"
        raise UsageError(f"cannot read the path '{shortened(text)}' of a VARIANT", why, "such as $.address.city or $.tags[0]")
    return tuple(steps)


def variant_get(column: pa.StructArray, steps: Steps, t: DataType, *, tries: bool = False) -> pa.Array:
    """The part of each VARIANT at a path, as `arrow_type(t)`; null where there is none, and for a null of JSON.

    An object or array becomes text as JSON. Raises `DamagedFile`, and `UsageError` for a part that is no value of the type; with
    `tries` such a part is null.
    """
    check_target(t)
    return values_of_parts(parts_at(column, steps), t, tries=tries)


def parts_at(column: pa.StructArray, steps: Steps) -> VariantParts:
    """The part of each VARIANT at a path. Raises `DamagedFile`."""
    found = of_variants(column, _PARTS, lambda variants: _parts(variants, steps))
    return VariantParts(found.field("text"), found.field("is_text").fill_null(False).to_numpy(zero_copy_only=False))


def _parts(variants: Variants, steps: Steps) -> pa.StructArray:
    level = variants.roots()
    for step in steps:
        level = _below(variants, level, step)
    is_text = (level.kinds == NodeKind.SHORT_TEXT) | ((level.kinds == NodeKind.PRIMITIVE) & (level.details == Primitive.TEXT))
    is_null = (level.kinds == NodeKind.PRIMITIVE) & (level.details == Primitive.NULL)
    texts, others = np.flatnonzero(is_text), np.flatnonzero(~is_text & ~is_null)
    written = node_texts(variants, level.of(others))
    has_quotes = pc.starts_with(written, '"')  # JSON has them around times, bytes, UUIDs and NaN
    found = pa.concat_arrays([plain_texts(variants, level.of(texts)), pc.utf8_trim(written, '"')])
    kinds = pa.concat_arrays([pa.array(np.ones(len(texts), bool)), has_quotes])
    places = np.full(len(variants.values.starts), -1, np.int64)
    places[level.rows[np.concatenate([texts, others])]] = np.arange(len(found))
    rows = pa.array(places, mask=places < 0)
    return pa.StructArray.from_arrays([found.take(rows), kinds.take(rows)], fields=list(_PARTS))


def _below(variants: Variants, level: NodeLevel, step: str | int) -> NodeLevel:
    """The children at one step, at most one of each node."""
    parents = level.of(level.kinds == (NodeKind.OBJECT if isinstance(step, str) else NodeKind.ARRAY))
    children = variants.below(parents)
    if isinstance(step, int):
        return children.of(places_below(parents)[1] == step)
    name = np.frombuffer(step.encode(), np.uint8)
    fits = np.flatnonzero(children.key_lengths == len(name))
    written = variants.names.data[children.key_starts[fits][:, None] + np.arange(len(name))]
    found = children.of(fits[(written == name).all(axis=1)])
    return found.of(np.unique(found.rows, return_index=True)[1])  # a malformed object may have a name twice
