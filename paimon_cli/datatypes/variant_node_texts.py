"""The JSON texts of nodes of VARIANTs of any shape, level by level.

The texts are put together from the innermost level to the outermost: Arrow writes names, brackets and commas around the texts of
all nodes of a level, so that those of neighbours are the text of their parent.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.value_texts import escaped, quoted
from paimon_cli.datatypes.variant_columns import TextBudget, in_order
from paimon_cli.datatypes.variant_leaf_texts import decoded, leaf_texts
from paimon_cli.datatypes.variant_nodes import MalformedVariant, NodeKind, NodeLevel, Variants


def node_texts(variants: Variants, roots: NodeLevel, budget: TextBudget | None = None, depth: int = 0) -> pa.StringArray:
    """The JSON text of each of these nodes, `depth` levels below the outermost. Raises `MalformedVariant` and `TextTooLarge`."""
    levels = variants.levels(replace(roots, key_lengths=np.full(len(roots.rows), -1, np.int64)), depth)
    budget = budget or TextBudget()
    for level in levels:
        leaves = int((level.ends - level.starts)[level.counts == 0].sum())
        budget.spend(len(level.rows), leaves + int(np.maximum(level.key_lengths, 0).sum()))
    below = pa.array([], pa.string())
    for level, above in zip(reversed(levels), [*reversed(levels[:-1]), None], strict=True):
        below = _level_texts(variants, level, below, above)
    return below


def _level_texts(variants: Variants, level: NodeLevel, below: pa.StringArray, above: NodeLevel | None) -> pa.StringArray:
    """The texts of the nodes of a level, with what their parents of the level `above` write around them.

    `below`: the texts of their children. Those of one parent are neighbours and have its brackets and commas, so that together
    they are its text.
    """
    has_children, is_nested = level.counts > 0, level.kinds >= NodeKind.OBJECT
    full, empty, scalar = map(np.flatnonzero, (has_children, is_nested & ~has_children, ~is_nested))
    parts = []
    if len(full):
        bounds = np.concatenate([[0], np.cumsum(level.counts[full])])
        _, offsets, data = below.buffers()
        ends = np.frombuffer(offsets, np.int32)[bounds + below.offset]
        parts.append(pa.Array.from_buffers(pa.string(), len(full), [None, pa.py_buffer(ends), data]))
    if len(empty):
        parts.append(pa.array(["{}", "[]"]).take(pa.array(level.kinds[empty] - NodeKind.OBJECT)))
    if len(scalar):
        parts.append(leaf_texts(variants, level if len(scalar) == len(is_nested) else level.leaves(scalar)))
    texts = in_order(parts, [part for part in (full, empty, scalar) if len(part)])
    return texts if above is None else _within(variants, level, texts, above)


def _within(variants: Variants, level: NodeLevel, texts: pa.StringArray, above: NodeLevel) -> pa.StringArray:
    """The texts with their names, and with the brackets and commas of the nodes above."""
    parents = np.flatnonzero(above.counts)
    last = np.cumsum(above.counts[parents]) - 1
    first = last + 1 - above.counts[parents]
    brackets = above.kinds[parents] - NodeKind.OBJECT
    names, numbers = _names(variants, level)
    _refuse_repeated(level, np.repeat(parents, above.counts[parents]), names.dictionary_encode().indices.to_numpy()[numbers])
    before = pa.concat_arrays([pc.binary_join_element_wise(mark, names, "") for mark in (",", "{", "[")])
    marks, ends = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int8)
    marks[first], ends[last] = 1 + brackets, 1 + brackets
    after = pa.array(["", "}", "]"]).take(pa.array(ends))
    return pc.binary_join_element_wise(before.take(pa.array(marks * len(names) + numbers)), texts, after, "")


def _refuse_repeated(level: NodeLevel, parents: np.ndarray, names: np.ndarray) -> None:
    """Raise `MalformedVariant` for an object with two fields of one name: readers take either."""
    fields = np.flatnonzero(level.key_lengths >= 0)
    order = fields[np.lexsort((names[fields], parents[fields]))]
    again = (np.diff(parents[order]) == 0) & (np.diff(names[order]) == 0)
    if again.any():
        raise MalformedVariant(int(level.rows[order[np.flatnonzero(again)[0]]]), "an object has two fields of one name")


def _names(variants: Variants, level: NodeLevel) -> tuple[pa.StringArray, np.ndarray]:
    """The names of the nodes, quoted and with a colon, and the number of each node's; an empty text for elements of arrays."""
    is_field = level.key_lengths >= 0
    fields = np.flatnonzero(is_field)
    stored, of_field = _distinct(variants, level.key_starts[fields], level.key_lengths[fields])
    names = decoded(stored, level.rows[fields])
    written = pa.concat_arrays([pc.binary_join_element_wise(quoted(escaped(names)), ":", ""), pa.array([""])])
    numbers = np.full(len(is_field), len(names), np.int64)
    numbers[fields] = of_field
    return written, numbers


def _distinct(variants: Variants, starts: np.ndarray, lengths: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The names at these places of the metadata, each about once, and for each place the number of its name."""
    length_at = np.full(len(variants.names.data), -1, np.int64)
    length_at[starts] = lengths
    if len(length_at) > len(starts) or (length_at[starts] != lengths).any():  # too many, or names that overlap
        stored = variants.names.binary(starts, lengths).dictionary_encode()
        return stored.dictionary, stored.indices.to_numpy()
    used = np.flatnonzero(length_at >= 0)
    return variants.names.binary(used, length_at[used]), np.cumsum(length_at >= 0)[starts] - 1
