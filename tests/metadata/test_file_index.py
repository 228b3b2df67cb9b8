"""File indexes against the bytes and answers of Paimon's own classes."""

from __future__ import annotations

import numpy as np
import pytest

from paimon_cli.bucket.bloom_index import index_hashes
from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.index_files import BloomFilter, decode_file_index, encode_file_index
from tests.vectors import load

BLOOM = load("bloom_filter")
CONTAINERS = [line for line in load("file_index") if "columns" in line["in"]]


def test_bloom_filters_byte_for_byte() -> None:
    compared = too_far = 0
    for line in BLOOM:
        given, out = line["in"], line["out"]
        t = parse_type(given["type"])
        if "error" in out:
            with pytest.raises(NotSupported):
                index_hashes(values_to_arrow([], t), t)
            continue
        try:
            values, probes = (values_to_arrow([from_canonical(v, t) for v in given[key]], t) for key in ("values", "probes"))
        except NotSupported:  # timestamps that 64-bit nanoseconds do not hold
            too_far += 1
            continue
        items, share = int(given["options"].get("items", 1_000_000)), float(given["options"].get("fpp", 0.1))
        built = BloomFilter.sized(items, share)
        built.add(index_hashes(values, t))
        assert built.to_bytes().hex() == out["bytes"], given
        hashes = index_hashes(probes, t)
        expected = [h for h in out["probe_hashes"] if h is not None]
        assert hashes.view(np.int64).tolist() == expected
        kept = [answer for answer, h in zip(out["remain"], out["probe_hashes"], strict=True) if h is not None]
        assert BloomFilter.from_bytes(built.to_bytes()).may_hold(hashes).tolist() == kept
        compared += 1
    assert (compared > 100, too_far < 10) == (True, True)


def test_strings_of_every_length() -> None:
    """The tail of a hash depends on the length modulo 32: a string hashes the same alone and beside others."""
    t = parse_type("STRING")
    texts = ["x" * n + str(n) for n in range(100)]
    together = index_hashes(values_to_arrow([None, *texts], t).slice(1), t)
    alone = [int(index_hashes(values_to_arrow([text], t), t)[0]) for text in texts]
    assert together.tolist() == alone
    assert len(index_hashes(values_to_arrow([None], t), t)) == 0
    assert str(arrow_type(t)) == "string"


def test_containers_byte_for_byte() -> None:
    for line in CONTAINERS:
        columns = _bodies(line["in"]["columns"])
        assert encode_file_index(columns).hex() == line["out"]["bytes"], line["in"]
        assert decode_file_index(bytes.fromhex(line["out"]["bytes"])) == columns
    assert len(CONTAINERS) > 40


def _bodies(columns: list[tuple[str, list[tuple[str, str | None]]]]) -> dict[str, dict[str, bytes | None]]:
    return {name: {kind: None if body is None else bytes.fromhex(body) for kind, body in indexes} for name, indexes in columns}


@pytest.mark.parametrize("cut", [0, 7, 19, 30, -1])
def test_damaged_containers(cut: int) -> None:
    whole = encode_file_index({"a": {"bloom-filter": b"\0\0\0\1\xff"}})
    with pytest.raises(ValueError, match=r"."):
        decode_file_index(whole[:cut] if cut else b"\1" + whole[1:])
