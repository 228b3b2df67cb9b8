"""Primary-key indexes of Paimon 2.0 (`pk-btree`, `pk-bitmap`): rows do not depend on them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.data_file import EMPTY_ROW, EntryKind, IndexFileMeta, IndexManifestEntry
from paimon_cli.metadata.manifests import decode_index_manifest, encode_index_manifest
from tests.tables import make_table

GLOBAL = {
    "type": "record",
    "name": "record__GLOBAL_INDEX",
    "fields": [
        *({"name": name, "type": "long"} for name in ("_ROW_RANGE_START", "_ROW_RANGE_END")),
        {"name": "_INDEX_FIELD_ID", "type": "int"},
        *({"name": name, "type": ["null", "bytes"], "default": None} for name in ("_INDEX_META", "_SOURCE_META")),
    ],
}


def with_index(content: bytes, kind: str) -> bytes:
    """The index manifest with one more entry, as Java's IndexManifestEntrySerializer writes it."""
    reader = fastavro.reader(io.BytesIO(content))
    schema, records = json.loads(json.dumps(reader.writer_schema)), [record for record in reader if isinstance(record, dict)]
    schema["fields"].append({"name": "_GLOBAL_INDEX", "type": ["null", GLOBAL], "default": None})
    of_rows = {"_ROW_RANGE_START": 0, "_ROW_RANGE_END": 2, "_INDEX_FIELD_ID": 1, "_INDEX_META": b"x", "_SOURCE_META": b"y"}
    added = {
        **{"_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": 0, "_INDEX_TYPE": kind, "_EXTERNAL_PATH": None},
        **{"_FILE_NAME": f"{kind}-global-index-1.index", "_FILE_SIZE": 5, "_ROW_COUNT": 3, "_DELETIONS_VECTORS_RANGES": None},
        "_GLOBAL_INDEX": of_rows,
    }
    out = io.BytesIO()
    fastavro.writer(out, schema, [*(dict(record, _GLOBAL_INDEX=None) for record in records), added])
    return out.getvalue()


@pytest.fixture(params=["btree", "bitmap"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """A table with deletion vectors, and an index of each row group as Paimon 2.0 would have it."""
    kind = request.param
    columns = {"k": "INT NOT NULL", "v": "INT"}
    made = Table.open(make_table(tmp_path / "t", columns, ["k"], (), 1, {"deletion-vectors.enabled": "true"}).url)
    for keys, value in ([1, 2, 3], 1), ([2], 2):
        made.write(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array([value] * len(keys), pa.int32())}))
    latest = max((tmp_path / "t/snapshot").glob("snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    snapshot = json.loads(latest.read_text())
    manifest = tmp_path / "t/manifest" / snapshot["indexManifest"]
    manifest.write_bytes(with_index(manifest.read_bytes(), kind))
    (tmp_path / f"t/index/{kind}-global-index-1.index").write_bytes(b"12345")
    schema = tmp_path / "t/schema/schema-0"
    content = json.loads(schema.read_text())
    content["options"][f"pk-{kind}.index.columns"] = "v"
    schema.write_text(json.dumps(content))
    return Table.open(made.url, runtime=Runtime(engine="local"))


def test_rows_are_read_and_the_table_is_sound(table: Table) -> None:
    assert sorted(table.scan().to_arrow().to_pydict()["v"]) == [1, 1, 2]
    assert not table.verify(level="full").violations
    assert not table.plan_orphans(older_than="0s", force=True).plan.files, "the files of the index are in use"


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.write(pa.table({"k": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())})),
        lambda table: table.compact(strategy="full"),
        lambda table: table.delete("k = 1"),
        lambda table: table.compact_manifests(),
    ],
    ids=["write", "compact", "delete", "manifests"],
)
def test_changes_are_refused(table: Table, call: Callable[[Table], object]) -> None:
    with pytest.raises(NotSupported, match="not kept up to date here"):
        call(table)
    assert not table.verify(level="full").violations


def test_an_index_that_no_option_announces_is_not_lost() -> None:
    entry = IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, IndexFileMeta("HASH", "index-1", 4, 1))
    entries = decode_index_manifest(with_index(encode_index_manifest([entry]), "btree"), "i")
    assert [one.index_file.index_type for one in entries] == ["HASH", "btree"]
    with pytest.raises(NotSupported, match="cannot be kept in a new snapshot"):
        encode_index_manifest(entries)


@pytest.fixture(params=["btree", "lumina", "an index of tomorrow"])
def indexed(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """An append table whose rows have ids, with a global index as `create_global_index` of pypaimon leaves it."""
    made = Table.create(str(tmp_path / "g"), columns=["k INT", "v INT"], options={"row-tracking.enabled": "true"})
    made.write([{"k": 1, "v": 1}])
    made.write([{"k": 2, "v": 2}, {"k": 3, "v": 3}])
    (tmp_path / "g/manifest/index-manifest-1").write_bytes(with_index(encode_index_manifest([]), request.param))
    (tmp_path / "g/index").mkdir()
    (tmp_path / f"g/index/{request.param}-global-index-1.index").write_bytes(b"12345")
    snapshot = tmp_path / "g/snapshot/snapshot-2"
    snapshot.write_text(json.dumps({**json.loads(snapshot.read_text()), "indexManifest": "index-manifest-1"}))
    return Table.open(made.url)


def test_rows_are_read_without_a_global_index_of_any_type(indexed: Table) -> None:
    assert sorted(indexed.to_arrow().to_pydict()["k"]) == [1, 2, 3]
    assert indexed.scan("k").filter("v = 2").to_arrow().to_pylist() == [{"k": 2}]
    assert not indexed.verify(level="full").violations
    assert not indexed.plan_orphans(older_than="0s", force=True).plan.files


def compacted(table: Table) -> object:
    return table.compact(strategy="full")


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.write([{"k": 9, "v": 9}]),
        lambda table: table.update({"v": "7"}, "k = 1"),
        lambda table: table.truncate(),
        compacted,
    ],
    ids=["write", "update", "truncate", "compact"],
)
def test_no_commit_leaves_a_global_index_behind(
    indexed: Table, call: Callable[[Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    if call is compacted:
        monkeypatch.setattr(DataFileWriter, "__init__", lambda *_, **__: pytest.fail("rows are written in vain"))
    with pytest.raises(NotSupported, match=r"index .* of type .* cannot be kept in a new snapshot"):
        call(indexed)
    assert not indexed.verify(level="full").violations and indexed.snapshot_id == 2


def test_what_changes_nothing_is_not_refused(indexed: Table, tmp_path: Path) -> None:
    assert indexed.update({"v": "7"}, "k = 99").rows == 0 and indexed.snapshot_id == 2
    identity: Any = {"commit_user": "nightly", "commit_id": 1}
    snapshot, index = tmp_path / "g/snapshot/snapshot-2", json.loads((tmp_path / "g/snapshot/snapshot-2").read_text())
    snapshot.write_text(json.dumps({name: value for name, value in index.items() if name != "indexManifest"}))
    Table.open(indexed.url).write([{"k": 9, "v": 9}], **identity)
    newest = tmp_path / "g/snapshot/snapshot-3"
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "indexManifest": "index-manifest-1"}))
    assert Table.open(indexed.url).write([{"k": 9, "v": 9}], **identity).already_committed, (
        "a repetition is told that it was made"
    )


def test_an_index_of_a_bucket_is_no_global_one() -> None:
    with pytest.raises(NotSupported, match="has a global index of type DELETION_VECTORS"):
        decode_index_manifest(with_index(encode_index_manifest([]), "DELETION_VECTORS"), "i")
