"""Numbers that are decoded in parallel are those that fastavro wrote."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.metadata.avro_columns import LONGEST, NotColumnar, NumberBuffer, numbers_in
from paimon_cli.metadata.avro_writer import encode_value

KIND_TEXTS, LONG = st.integers(-64, 63), st.integers(-(2**55), 2**55 - 1)


def placed(values: list[int]) -> tuple[NumberBuffer, np.ndarray, np.ndarray]:
    """Numbers one after the other: where each begins and where it ends."""
    encoded = [encode_value("long", value) for value in values]
    ends = np.cumsum([len(one) for one in encoded])
    data = np.frombuffer(b"".join(encoded) + bytes(LONGEST), dtype=np.uint8)
    return NumberBuffer(data), ends - [len(one) for one in encoded], ends


@given(st.one_of(st.lists(KIND_TEXTS, min_size=1), st.lists(LONG, min_size=1), st.lists(st.one_of(KIND_TEXTS, LONG), min_size=1)))
def test_numbers_and_where_they_end(values: list[int]) -> None:
    buffer, begins, ends = placed(values)
    after, numbers = buffer.numbers(begins)
    assert after.tolist() == ends.tolist() and numbers.tolist() == values


@pytest.mark.parametrize("count", [8191, 8192, 8193, 20_000])
def test_many_words_are_read_in_pieces(count: int) -> None:
    values = [(-1) ** number * number**3 for number in range(count)]
    buffer, begins, _ = placed(values)
    assert numbers_in(buffer.words(begins)[1]).tolist() == values


@pytest.mark.parametrize("value", [2**55, -(2**55) - 1, 2**63 - 1, -(2**63)])
def test_numbers_of_more_than_eight_bytes_are_left_to_others(value: int) -> None:
    buffer, begins, _ = placed([1, value])
    with pytest.raises(NotColumnar):
        buffer.numbers(begins)
