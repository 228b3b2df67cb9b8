"""Parts that DuckDB writes as we do are told from others without making VARIANTs of them."""

from __future__ import annotations

import json
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from paimon_cli.datatypes.variant_building import variants_of_texts
from paimon_cli.datatypes.variant_json import has_changed_numbers, is_nested, is_written_alike
from paimon_cli.datatypes.variant_path import parse_variant_path, parts_at

NAMES = ["a", "b", "B", "é", "", "a b", "ab", "a{", "]", ",1e5", "日本", "a:", "\x7f"]
NUMBERS = [
    "1",
    "0",
    "-0",
    "1.5",
    "-0.0",
    "-0.00",
    "1.0",
    "1.10",
    "100.00",
    "0.1",
    "0.00001",
    "1e3",
    "-5E-7",
    "12345678.9",
    "0.30000001",
]
NUMBERS += ["9223372036854775807", "9223372036854775808", "99999999999999999999", "0.12345678901234567", "-1.000000000000000001"]
TEXTS = [
    '"x"',
    '""',
    '"a, 1e5"',
    '"{"',
    '"}]"',
    '" "',
    '":"',
    '"é日"',
    '"\\n"',
    '"\\u0041"',
    '"\\/"',
    '"\\""',
    '"\\\\"',
    '"\\u007f"',
]
TEXTS += ['"\x7f"', '"\u2028"', '"\x80\x9f"', '"\u202e\ufeff\U0001f600"', '"</x>"', '"12345678-1e5a"', "true", "false", "null"]


def document(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth == 0 or (kind < 0.4 and depth < 4):
        names = chance.sample(NAMES, chance.randrange(4))
        if chance.random() < 0.6:
            names.sort(key=str.encode)
        blank = " " * (chance.random() < 0.1)
        fields = (f"{json.dumps(name, ensure_ascii=False)}:{blank}{document(chance, depth + 1)}" for name in names)
        return "{" + f",{blank}".join(fields) + "}"
    if kind < 0.55 and depth < 4:
        return "[" + ",".join(document(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    return chance.choice(NUMBERS[:10] if kind < 0.8 else NUMBERS + TEXTS)


@pytest.mark.parametrize("path", ["$", "$.a", "$.b"])
def test_what_is_written_alike_is_so(path: str) -> None:
    """Compared with the texts of the VARIANTs."""
    chance = random.Random(7)
    documents = pa.array(sorted({document(chance) for _ in range(6000)}))
    query = "SELECT CAST(json_extract(d, $1) AS VARCHAR) FROM (SELECT unnest($2) d)"
    found = duckdb.connect().execute(query, [path, documents.to_pylist()])
    parts = pa.array([part for (part,) in found.fetchall()], pa.string())
    nested = is_nested(parts).fill_null(False)
    parts, documents = parts.filter(nested), documents.filter(nested)
    alike = is_written_alike(parts, documents)
    variants, wrong = variants_of_texts(documents, shown=True)
    assert not wrong
    exact = parts_at(variants, parse_variant_path(path)).texts
    assert parts.filter(alike).to_pylist() == exact.filter(alike).to_pylist()
    assert alike.true_count > len(parts) / 8


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ('{"a":1,"b":{"c":[{"x":1,"y":2},{"x":1}]}}', True),
        ('{"b":1,"a":1}', False),
        ('{"a":1,"a":1}', False),
        ('[{"b":1},{"a":1}]', True),
        ('{"z":{"b":1},"y":{"a":1}}', False),
        ('{"a":{"b":1,"a":1}}', False),
        ('{"a": 1}', False),
        ('{"a b":" {,}: "}', True),
        ('{"a":"12345678-1e5a-4e3f-9e1b-0a0b0c0d0e0f","f":1.5}', True),
        ('{"a":1e5}', False),
        ("[1.5,12345678901234567]", False),
        ("[]", True),
        ('{"a":0,"b":[0,0.0,-1]}', True),
        ('{"a":-0}', False),
    ],
)
def test_single_texts(text: str, alike: bool) -> None:
    """The texts around it are looked at on their own."""
    texts = pa.array(["[1]", text, '{"a":1}'])
    assert is_written_alike(texts, texts).to_pylist() == [True, alike, True]
    assert is_written_alike(texts.slice(1), texts.slice(1)).to_pylist() == [alike, True]


def test_only_where_a_number_can_begin() -> None:
    given: dict[str, Any] = {
        '{"u":"9-1e5a-4e3f"}': False,
        "1e5": True,
        '{"f": -1e3}': True,
        "[1,2e5]": True,
        '{"h":"3e4f"}': False,
    }
    assert has_changed_numbers(pa.array(list(given))).to_pylist() == list(given.values())


def test_nothing() -> None:
    none = pa.array([], pa.string())
    assert is_written_alike(none, none).to_pylist() == []
