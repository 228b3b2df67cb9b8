"""Tables with VARIANT, GEOMETRY and GEOGRAPHY columns: written, changed, compacted, verified. The bytes stay what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Table
from paimon_cli.bucket.shredded_variants import whole_variants
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.errors import BadInput, DamagedFile, NotSupported, UsageError

KINDS: dict[str, dict[str, Any]] = {
    "append": {"bucket": -1},
    "deduplicate": {"primary_key": ["k"], "bucket": 1},
    "partial-update": {"primary_key": ["k"], "bucket": 1, "options": {"merge-engine": "partial-update"}},
    "first-row": {"primary_key": ["k"], "bucket": 1, "options": {"merge-engine": "first-row"}},
    "vectors": {"primary_key": ["k"], "bucket": 1, "options": {"deletion-vectors.enabled": "true"}},
    "lookup": {"primary_key": ["k"], "bucket": 1, "options": {"changelog-producer": "lookup"}},
}
ODD = (bytes.fromhex("0c05") + b"behind it", b"\x01\0\0")
"""A sound value as no writer of ours makes it: with bytes behind it."""


def variants(*rows: tuple[bytes, bytes] | None) -> pa.StructArray:
    cells = [None if row is None else {"value": row[0], "metadata": row[1]} for row in rows]
    return pa.array(cells, arrow_type(VARIANT))


def stored(table: Table) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def cell(document: Any) -> dict[str, bytes]:
    value, metadata = variant_of(document)
    return {"value": value, "metadata": metadata}


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_kept(tmp_path: Path, kind: str) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT"], **KINDS[kind])
    for first in (0, 3, 6):
        keys = pa.array(range(first, first + 4), pa.int32())
        table.write(
            pa.table({"k": keys, "v": variants(ODD, None, variant_of({"n": first}), variant_of([first]))}), compact="none"
        )
    table.compact("full")
    odd = {"value": ODD[0], "metadata": ODD[1]}
    found = stored(table)
    assert found[0] == odd
    assert found[1] is None
    assert found[8] == cell({"n": 6})
    if kind not in ("append", "first-row"):
        assert found[3] == found[6] == odd
    assert not table.verify("full").errors


@pytest.mark.parametrize("kind", ["append", "deduplicate", "vectors"])
def test_update_and_delete(tmp_path: Path, kind: str) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT"], **KINDS[kind])
    table.write(pa.table({"k": pa.array(range(4), pa.int32()), "v": variants(ODD, None, ODD, variant_of("x"))}))
    table.update(["v = '{\"new\": [1.50]}'"], where="k = 1")
    table.delete("k = 2")
    odd = {"value": ODD[0], "metadata": ODD[1]}
    assert stored(table) == {0: odd, 1: cell({"new": [1.5]}) | {"value": stored(table)[1]["value"]}, 3: cell("x")}
    assert not table.verify("full").errors
    with pytest.raises(BadInput, match="no JSON"):
        table.update(["v = '{'"], where="k = 1")


def test_json_in_and_out(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT", "a ARRAY<VARIANT>"], bucket=-1)
    (tmp_path / "in.ndjson").write_text(
        '{"k":1,"v":{"b":{"c":1.50},"a":[null,"é"]},"a":[1,null,"x"]}\n{"k":2,"v":null,"a":null}\n{"k":3,"v":"text","a":[]}\n'
    )
    table.write(str(tmp_path / "in.ndjson"))
    (tmp_path / "in.csv").write_text('k,v,a\n4,"{""d"": 7}",\n5,,\n')
    table.write(str(tmp_path / "in.csv"))
    pq.write_table(pa.table({"k": pa.array([6], pa.int32()), "v": ["[true]"], "a": [['{"q": 0}']]}), tmp_path / "in.parquet")
    table.write(str(tmp_path / "in.parquet"))
    table.scan().write_file(str(tmp_path / "out.ndjson"))
    found = sorted(map(json.loads, (tmp_path / "out.ndjson").read_text().splitlines()), key=lambda row: row["k"])
    assert [(row["v"], row["a"]) for row in found] == [
        ({"a": [None, "é"], "b": {"c": 1.5}}, [1, None, "x"]),
        (None, None),
        ("text", []),
        ({"d": 7}, None),
        (None, None),
        ([True], [{"q": 0}]),
    ]


def test_python_texts_are_json(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT"], bucket=-1)
    table.write([{"k": 0, "v": '{"a": [1]}'}, {"k": 1, "v": None}, {"k": 2, "v": "null"}])
    table.write([{"k": 3, "v": cell("x")}, {"k": 4, "v": None}])
    found = {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {0: cell({"a": [1]}), 1: None, 2: cell(None), 3: cell("x"), 4: None}
    with pytest.raises(BadInput, match="no JSON"):
        table.write([{"k": 5, "v": "{"}])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it ends too early"),
        (" ", "the text is empty"),
        ('{"a": nope}', r"at character 7, 'nope}' does not go on as JSON"),
        (r'"\ud800"', r"half a character, \ud800"),
        (r'{"\ud800": 1}', r"half a character, \ud800"),
    ],
)
def test_what_is_no_json_is_said_without_words_of_python(tmp_path: Path, text: str, why: str) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT", "a ARRAY<INT>"], bucket=-1)
    with pytest.raises(BadInput) as refused:
        table.write([{"k": 5, "v": text}])
    assert why in refused.value.message and "codec" not in refused.value.message
    (tmp_path / "in.csv").write_text("k,v,a\n1,nope,[1\n")
    with pytest.raises(BadInput) as refused:
        table.write(str(tmp_path / "in.csv"))
    assert "Expecting" not in refused.value.message and "does not go on as JSON" in refused.value.message


def test_bytes_that_are_no_variant_are_not_written(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT"], bucket=-1)
    rows = pa.table({"k": pa.array([1, 2], pa.int32()), "v": variants(ODD, (b"\x03\xff", b"\x01\0\0"))})
    with pytest.raises(BadInput, match=r"row 2.*'v'"):
        table.write(rows)
    with pytest.raises(BadInput):
        table.write(pa.table({"k": pa.array([1], pa.int32()), "v": [5]}))


def test_damage_is_found(tmp_path: Path) -> None:
    """The bytes pass through a compaction; reading them as text, and `verify`, say that they are damaged."""
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT"], bucket=-1)
    for key in (1, 2):
        table.write(pa.table({"k": pa.array([key], pa.int32()), "v": variants(variant_of({"a": "text"}))}), compact="none")
    path = next(tmp_path.glob("t/bucket-0/*.parquet"))
    content = path.read_bytes()
    rows = pq.read_table(path)
    broken = variants((variant_of({"a": "text"})[0][:-2] + b"\xff\xff", variant_of({"a": 1})[1]))
    broken_rows = rows.set_column(
        rows.schema.get_field_index("v"), rows.schema.field("v"), broken.cast(rows.schema.field("v").type)
    )
    pq.write_table(broken_rows, path, store_schema=False)
    _resize(tmp_path / "t", path, len(content))
    found = table.verify("full")
    assert {violation.invariant.code for violation in found.violations} >= {"PV031"}
    with pytest.raises(DamagedFile):
        table.scan().write_file(str(tmp_path / "out.ndjson"))


def _resize(table: Path, path: Path, size: int) -> None:
    """Give the file the size that its manifest says: Parquet files end with their footer, so bytes go in front of it."""
    content = path.read_bytes()
    assert len(content) <= size, "choose a smaller codec"
    tail = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(content[:-tail] + bytes(size - len(content)) + content[-tail:])


GROUP = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
SHREDDED = pa.struct(
    [
        pa.field("metadata", pa.binary(), False),
        ("value", pa.binary()),
        ("typed_value", pa.struct([pa.field("a", GROUP, False)])),
    ]
)


def test_shredded_files_are_read_and_compacted(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "t"), columns=["k INT NOT NULL", "v VARIANT"], bucket=-1, options={"file.compression": "none"}
    )
    for key in (1, 2):
        table.write(
            pa.table({"k": pa.array([key], pa.int32()), "v": variants(variant_of({"a": 1, "pad": "x" * 9_000}))}), compact="none"
        )
    for path in tmp_path.glob("t/bucket-0/*.parquet"):
        size, rows = path.stat().st_size, pq.read_table(path)
        metadata = variant_of({"a": 1})[1]
        typed = [{"metadata": metadata, "value": None, "typed_value": {"a": {"value": None, "typed_value": 7}}}]
        pq.write_table(pa.table({"k": rows["k"], "v": pa.array(typed, SHREDDED)}), path, store_schema=False)
        _resize(tmp_path / "t", path, size)
    assert {row["k"]: row["v"]["value"] for row in table.scan().to_arrow().to_pylist()} == dict.fromkeys(
        (1, 2), variant_of({"a": 7})[0]
    )
    table.compact("full")
    assert [whole_variants(column, VARIANT).to_pylist() for column in table.scan().to_arrow()["v"].chunks]
    assert stored(table) == dict.fromkeys((1, 2), cell({"a": 7}))
    assert not table.verify("full").errors


def test_spatial_values_are_bytes(tmp_path: Path) -> None:
    columns = ["k INT NOT NULL", "g GEOMETRY", "h GEOGRAPHY"]
    table = Table.create(str(tmp_path / "t"), columns=columns, primary_key=["k"], bucket=1)
    point = bytes.fromhex("0101000000000000000000F03F0000000000000040")
    for key in (1, 2, 1):
        rows = {
            "k": pa.array([key], pa.int32()),
            "g": pa.array([point]),
            "h": pa.array([None if key == 2 else point], pa.binary()),
        }
        table.write(pa.table(rows), compact="none")
    table.compact("full")
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "g": point, "h": point}, {"k": 2, "g": point, "h": None}]
    table.scan().write_file(str(tmp_path / "out.ndjson"))
    first = json.loads((tmp_path / "out.ndjson").read_text().splitlines()[0])
    assert first == {"k": 1, "g": point.hex(), "h": point.hex()}
    assert not table.verify("full").errors


def test_variants_are_no_keys(tmp_path: Path) -> None:
    with pytest.raises((UsageError, NotSupported)):
        Table.create(str(tmp_path / "t"), columns=["k VARIANT NOT NULL"], primary_key=["k"], bucket=1)
