"""Unions of roaring bitmaps and of sketches, kept as bytes in a column (Java FieldRoaringBitmap32Agg, FieldHllSketchAgg ...)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from pyroaring import BitMap

from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.lsm.aggregators.bitmap64 import Bitmap64
from paimon_cli.lsm.aggregators.step_by_step import StepByStep

FRACTION = slice(12, 16)
JAVA_FRACTION = b"\x00\x00\x80\x3f"
"""Java writes the sampling fraction 1.0 where the other libraries leave the bytes 0; readers ignore them."""


def bitmap32(column: str) -> StepByStep:
    return StepByStep(_union(column, "rbm32", _joined_bitmaps))


def bitmap64(column: str) -> StepByStep:
    def joined(held: bytes, added: bytes) -> bytes:
        bitmap = Bitmap64.deserialize(held)
        bitmap.add(Bitmap64.deserialize(added))
        return bitmap.serialize()

    return StepByStep(_union(column, "rbm64", joined))


def theta_sketch(column: str) -> StepByStep:
    """NotSupported without the optional package `datasketches`."""
    library = sketch_library("theta_sketch")

    def joined(held: bytes, added: bytes) -> bytes:
        union = library.theta_union()
        for sketch in (held, added):
            union.update(library.compact_theta_sketch.deserialize(sketch))
        result = bytearray(union.get_result().serialize())
        if len(result) > FRACTION.stop:
            result[FRACTION] = JAVA_FRACTION
        return bytes(result)

    return StepByStep(_union(column, "theta_sketch", joined))


def hll_sketch(column: str) -> StepByStep:
    """As precise as the newer of two sketches, as in Java. NotSupported without the optional package `datasketches`."""
    library = sketch_library("hll_sketch")

    def joined(held: bytes, added: bytes) -> bytes:
        newer = library.hll_sketch.deserialize(added)
        union = library.hll_union(newer.lg_config_k)
        union.update(newer)
        union.update(library.hll_sketch.deserialize(held))
        return bytes(union.get_result(library.tgt_hll_type.HLL_4).serialize_compact())

    return StepByStep(_union(column, "hll_sketch", joined))


def sketch_library(function: str) -> ModuleType:
    """The package that knows the sketches' form, for that aggregate function."""
    try:
        return importlib.import_module("datasketches")
    except ImportError as missing:
        raise NotSupported(
            f"the aggregate function {function}", "it needs the package datasketches", "pip install 'paimon-cli[sketches]'"
        ) from missing


def _joined_bitmaps(held: bytes, added: bytes) -> bytes:
    bitmap = BitMap.deserialize(held) | BitMap.deserialize(added)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def _union(
    column: str, function: str, joined: Callable[[bytes, bytes], bytes]
) -> Callable[[bytes | None, bytes | None], bytes | None]:
    def add(held: bytes | None, added: bytes | None) -> bytes | None:
        if held is None or added is None:
            return added if held is None else held
        try:
            return joined(held, added)
        except (ValueError, RuntimeError) as problem:
            raise BadInput(f"column {column} holds bytes that are no {function}", str(problem), column=column) from problem

    return add
