"""Sorting rows by several int64 words, stably: the kernel below every merge, flush and compaction.

NumPy's plain sort of integers is vectorised and about five times as fast as its stable argsort, thirty times as fast as
`lexsort`. So words are joined where they fit into 63 bits, and the row number goes into the lowest bits: then a plain sort is
a stable one, and what comes out holds the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WORD_BITS = 63
"""Without the sign."""
RADIX_BITS = 16
"""Words so narrow NumPy sorts by their digits, two to three times as fast again: buckets, partitions, tasks."""
FEW_DESCENTS = 3
"""So few ascending runs are merged faster than sorted: `kind="stable"` finds them."""


def stable_order(words: Sequence[np.ndarray]) -> np.ndarray:
    """Row numbers (int64) in ascending order of the int64 words (most significant first); equal rows keep their order."""
    joined = _joined(words)
    order = _order(joined[-1])
    for word in reversed(joined[:-1]):
        order = order[_order(word[order])]
    return order


def _order(word: np.ndarray) -> np.ndarray:
    descents = np.count_nonzero(word[1:] < word[:-1])
    if descents == 0:
        return np.arange(len(word))
    row_bits = _row_bits(word)
    low, value_bits = _span(word)
    if descents <= FEW_DESCENTS or value_bits + row_bits > WORD_BITS:
        return np.argsort(word, kind="stable")
    if value_bits <= RADIX_BITS:
        return np.argsort((word - low).astype(np.uint16), kind="stable")
    packed = (word - low) << row_bits
    packed |= np.arange(len(word))
    packed.sort()
    packed &= (1 << row_bits) - 1
    return packed


def _joined(words: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Fewer words that order rows in the same way: neighbours share one where the row number still fits beside them."""
    if len(words) == 1 or len(words[0]) == 0:
        return [*words[:1]]
    room = WORD_BITS - _row_bits(words[0])
    joined: list[np.ndarray] = []
    free_bits = 0
    for word in words:
        low, bits = _span(word)
        if joined and bits <= free_bits:
            joined[-1] = (joined[-1] << bits) | (word - low)
            free_bits -= bits
        else:
            # A word of full width is left as it is: its differences from the least value could leave 64 bits.
            joined.append(word - low if bits <= room else word)
            free_bits = max(0, room - bits)
    return joined


def _row_bits(word: np.ndarray) -> int:
    return (len(word) - 1).bit_length()


def _span(word: np.ndarray) -> tuple[int, int]:
    """The least value, and how many bits the differences from it need."""
    low = int(word.min())
    return low, (int(word.max()) - low).bit_length()
