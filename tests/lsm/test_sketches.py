"""Aggregate functions whose values are bytes of a library: other bytes are the input's fault, and no error of the program."""

from __future__ import annotations

from random import Random

import pytest
from pyroaring import BitMap

from paimon_cli.errors import BadInput
from paimon_cli.lsm.aggregators.sketches import bitmap32, bitmap64, hll_sketch, sketch_library, theta_sketch
from tests.lsm.test_bitmap64 import bitmap

FUNCTIONS = {"rbm32": bitmap32, "rbm64": bitmap64, "theta_sketch": theta_sketch, "hll_sketch": hll_sketch}


def valid(function: str) -> bytes:
    if function == "rbm32":
        return BitMap([1, 2, 3, 70_000]).serialize()
    if function == "rbm64":
        return bitmap({1, 2, 3, 70_000, 1 << 40}).serialize()
    library = sketch_library(function)
    sketch = library.update_theta_sketch() if function == "theta_sketch" else library.hll_sketch(8)
    for number in range(50):
        sketch.update(number)
    return bytes(sketch.compact().serialize() if function == "theta_sketch" else sketch.serialize_compact())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bytes_that_are_no_sketch_are_bad_input_whatever_is_wrong_with_them(function: str) -> None:
    """They may be cut or changed at any place. Libraries raise errors of many types for them."""
    add, whole, random = FUNCTIONS[function]("c").add, valid(function), Random(7)
    damaged = [whole[:length] for length in range(len(whole))]
    for _ in range(1000):
        place = random.randrange(len(whole))
        damaged.append(whole[:place] + random.randbytes(random.randrange(1, 4)) + whole[place + 1 :])
    refused = 0
    for given in damaged:
        for held, added in ((whole, given), (given, whole)):
            try:
                add(held, added)
            except BadInput as problem:
                assert problem.what == f"column c holds bytes that are not a {function}" and problem.details == {"column": "c"}
                refused += 1
    assert refused > len(whole)
