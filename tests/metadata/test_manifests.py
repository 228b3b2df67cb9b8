"""Manifests, manifest lists and index manifests: those of real writers are read, ours have Java's schema."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pytest

from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.metadata.data_file import (
    EMPTY_ROW,
    HASH,
    DataFileMeta,
    DeletionVectorRange,
    EntryKind,
    FileChanges,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_cli.metadata.manifests import (
    LISTS_PROPERTY,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest_list,
    encode_manifests,
    inlined_lists,
    lists_property,
)
from tests.goldens import GOLDENS, Golden, golden_table
from tests.metadata.one_manifest import encode_manifest

STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, (1, None))
FILE = DataFileMeta("data-1.parquet", 10, 3, EMPTY_ROW, EMPTY_ROW, STATS, STATS, 0, 2, 0, 0, creation_time_millis=5)
ENTRY = ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 2, FILE)
INDEX = IndexFileMeta("DELETION_VECTORS", "index-1", 40, 1, (DeletionVectorRange("data-1.parquet", 1, 22, 3),))


def schema_of(data: bytes) -> Any:
    return json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])


def java_fields(schema: Any) -> dict[str, Any]:
    return {field["name"]: field for field in schema["fields"]}


@pytest.mark.in_part(5)
@pytest.mark.parametrize("table", GOLDENS, ids=str)
def test_everything_that_real_writers_wrote_survives_the_round_trip(table: Golden, tmp_path: Path) -> None:
    folder = golden_table(table.writer, table.name, tmp_path)
    count = 0
    for path in folder.rglob("manifest/*"):
        data, name = path.read_bytes(), str(path)
        if path.name.startswith("manifest-list"):
            lists = decode_manifest_list(data, name)
            assert decode_manifest_list(encode_manifest_list(lists), name) == lists
        elif path.name.startswith("index-manifest"):
            indexes = decode_index_manifest(data, name)
            assert decode_index_manifest(encode_index_manifest(indexes), name) == indexes
        else:
            entries = decode_manifest(data, name)
            assert decode_manifest(encode_manifest(entries), name) == entries
            assert all(isinstance(entry.file.creation_time_millis, int) for entry in entries)
        count += 1
    assert count >= 3


def test_manifests_extend_the_schema_of_java(tmp_path: Path) -> None:
    folder = golden_table("java-0.9", "dv_partitioned", tmp_path) / "manifest"
    samples = (
        ("manifest-list-", encode_manifest_list([])),
        ("manifest-", encode_manifest([])),
        ("index-manifest-", encode_index_manifest([])),
    )
    for prefix, ours in samples:
        theirs = next(p for p in sorted(folder.iterdir()) if p.name.startswith(prefix) and prefix + "list" not in p.name)
        java, own = schema_of(theirs.read_bytes()), schema_of(ours)
        assert {key: value for key, value in own.items() if key != "fields"} == {k: v for k, v in java.items() if k != "fields"}
        assert list(java_fields(own))[: len(java["fields"])] == list(java_fields(java))
        for name, field in java_fields(java).items():
            if name == "_FILE":
                nested = java_fields(field["type"])
                assert java_fields(java_fields(own)["_FILE"]["type"]).items() >= nested.items()
            elif name != "_DELETIONS_VECTORS_RANGES":  # ours also has the cardinality
                assert java_fields(own)[name] == field


def test_the_fields_newer_than_0_9_are_nullable_and_null_first() -> None:
    file = java_fields(java_fields(schema_of(encode_manifest([])))["_FILE"]["type"])
    assert len(file) == 20 and list(file)[-4:] == ["_VALUE_STATS_COLS", "_EXTERNAL_PATH", "_FIRST_ROW_ID", "_WRITE_COLS"]
    for field in list(file.values())[12:]:
        assert field["type"][0] == "null" and len(field["type"]) == 2 and field["default"] is None
    items = java_fields(schema_of(encode_index_manifest([])))["_DELETIONS_VECTORS_RANGES"]["type"][1]["items"]
    assert items[0] == "null" and [f["name"] for f in items[1]["fields"]] == ["f0", "f1", "f2", "_CARDINALITY"]


def test_big_manifests_roll_between_blocks() -> None:
    entries = [ManifestEntry(EntryKind.ADD, EMPTY_ROW, number, 3500, FILE) for number in range(3500)]
    rolled = list(encode_manifests(entries, 1))
    assert [count for _, count in rolled] == [1000, 1000, 1000, 500]
    assert [entry for data, _ in rolled for entry in decode_manifest(data, "m")] == entries
    assert [count for _, count in encode_manifests(entries, 1 << 20)] == [3500]
    assert list(encode_manifests([], 1)) == []


def test_index_manifests_keep_ranges() -> None:
    entries = [
        IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, INDEX),
        IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 1, IndexFileMeta("HASH", "index-2", 8, 2)),
        IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 2, IndexFileMeta("DELETION_VECTORS", "index-3", 1, 0, ())),
    ]
    assert decode_index_manifest(encode_index_manifest(entries), "i") == entries


def altered(data: bytes, schema: Any, change: Any) -> bytes:
    """The records of a container, changed, under a changed schema."""
    out = io.BytesIO()
    fastavro.writer(out, schema, [change(record) for record in fastavro.reader(io.BytesIO(data))])
    return out.getvalue()


def test_other_versions_are_refused() -> None:
    manifest, manifests = encode_manifest([ENTRY]), encode_manifest_list([ManifestFileMeta("m", 1, 1, 0, STATS, 0)])
    index = encode_index_manifest([IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, INDEX)])
    for data, decode, version in (
        (manifest, decode_manifest, 1),
        (manifests, decode_manifest_list, 1),
        (index, decode_index_manifest, 2),
    ):
        other = altered(data, schema_of(data), lambda record, version=version: {**record, "_VERSION": version})
        with pytest.raises(NotSupported, match=f"version {version}"):
            decode(other, "f")


def test_old_python_writers_spell_the_source_of_a_file() -> None:
    data = encode_manifest([ENTRY])
    schema = schema_of(data)
    java_fields(java_fields(schema)["_FILE"]["type"])["_FILE_SOURCE"]["type"] = ["null", "string"]
    for spelled, meant in (("APPEND", 0), ("COMPACT", 1), (None, None)):

        def spell(record: dict[str, Any], source: str | None = spelled) -> dict[str, Any]:
            return {**record, "_FILE": {**record["_FILE"], "_FILE_SOURCE": source}}

        assert decode_manifest(altered(data, schema, spell), "m")[0].file.file_source == meant


def test_missing_fields_and_statistics_are_unknown() -> None:
    data = encode_manifest([ENTRY])
    schema = schema_of(data)
    file = java_fields(schema)["_FILE"]["type"]
    file["fields"] = [field for field in file["fields"] if field["name"] != "_EXTRA_FILES"][:11]
    java_fields(file)["_VALUE_STATS"]["type"] = ["null", java_fields(file)["_VALUE_STATS"]["type"]]

    def strip(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "_FILE": {**record["_FILE"], "_VALUE_STATS": None}}

    (entry,) = decode_manifest(altered(data, schema, strip), "m")
    assert entry.file.value_stats == SimpleStats() and entry.file.key_stats == STATS
    assert (entry.file.extra_files, entry.file.creation_time_millis, entry.file.delete_row_count) == ((), None, None)


@pytest.mark.parametrize("name", ["../escape", "a/b", "..", ".", "", "a\\b", "a\0b"])
def test_names_that_lead_out_of_the_directory_are_damage(name: str) -> None:
    file = DataFileMeta(name, 1, 1, EMPTY_ROW, EMPTY_ROW, STATS, STATS, 0, 0, 0, 0)
    extra = DataFileMeta("ok", 1, 1, EMPTY_ROW, EMPTY_ROW, STATS, STATS, 0, 0, 0, 0, (name,))
    for bad in (file, extra):
        with pytest.raises(DamagedFile, match="names a file"):
            decode_manifest(encode_manifest([ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 1, bad)]), "m")
    with pytest.raises(DamagedFile, match="names a file"):
        decode_manifest_list(encode_manifest_list([ManifestFileMeta(name, 1, 1, 0, STATS, 0)]), "l")
    with pytest.raises(DamagedFile, match="names a file"):
        index = IndexFileMeta("HASH", name, 1, 1)
        decode_index_manifest(encode_index_manifest([IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, index)]), "i")


def test_global_indexes_are_refused() -> None:
    data = encode_index_manifest([IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, INDEX)])
    schema = schema_of(data)
    ranges = {"type": "record", "name": "record__GLOBAL_INDEX", "fields": [{"name": "_ROW_RANGE_START", "type": "long"}]}
    schema["fields"].append({"name": "_GLOBAL_INDEX", "type": ["null", ranges], "default": None})
    assert decode_index_manifest(altered(data, schema, lambda record: record), "i")[0].index_file == INDEX
    with pytest.raises(NotSupported, match="global index"):
        decode_index_manifest(altered(data, schema, lambda r: {**r, "_GLOBAL_INDEX": {"_ROW_RANGE_START": 0}}), "i")


def metas(count: int) -> list[ManifestFileMeta]:
    return [ManifestFileMeta(f"manifest-{uuid4()}-0", 9, 1, 0, STATS, 0, 0, 3, 0, 5) for _ in range(count)]


class TestListsThatASnapshotRepeats:
    def test_they_are_the_lists(self) -> None:
        lists = {"base": metas(30), "delta": metas(1), "empty": []}
        noted = lists_property(lists)
        assert inlined_lists(noted) == lists and len(noted[LISTS_PROPERTY]) < 4000

    def test_a_long_list_is_not_repeated(self) -> None:
        lists = {"base": metas(300), "delta": metas(1)}
        assert inlined_lists(lists_property(lists)) == {"delta": lists["delta"]}
        assert lists_property({"base": metas(300)}) == {}

    def test_lists_that_are_long_together_are_not_all_repeated(self) -> None:
        base, delta = metas(80), metas(80)
        alone = [len(lists_property({"list": one})[LISTS_PROPERTY]) for one in (base, delta)]
        assert all(2100 < size < 4000 for size in alone), "two of them are too long"
        assert inlined_lists(lists_property({"base": base, "delta": delta})) == {"base": base}

    @pytest.mark.parametrize(
        "text", ["", "[]", "7", '{"base": 7}', '{"base": "AAAA"}', '{"base": "%"}', '{"base": "eJwDAAAAAAE="}']
    )
    def test_what_is_not_ours_counts_as_missing(self, text: str) -> None:
        assert inlined_lists({LISTS_PROPERTY: text}) == {}

    def test_names_that_lead_elsewhere_count_as_missing(self) -> None:
        outside = [replace(meta, file_name="../../other") for meta in metas(1)]
        assert inlined_lists(lists_property({"base": outside})) == {}
        assert inlined_lists(None) == inlined_lists({}) == {}


@pytest.mark.parametrize("listed", [None, (), ("a",), ("a", "b")])
def test_columns_with_statistics_are_all_some_or_none(listed: tuple[str, ...] | None) -> None:
    (content,) = [data for data, _ in encode_manifests([replace(ENTRY, file=replace(FILE, value_stats_cols=listed))], 1 << 20)]
    assert [entry.file.value_stats_cols for entry in decode_manifest(content, "m")] == [listed]


def changed(name: str, file: Any) -> FileChanges:
    given: dict[str, Any] = {name: (file,)}
    return FileChanges(**given)


def test_changes_that_follow_others_lose_none() -> None:
    index = IndexFileMeta(HASH, "index-1", 4, 1)
    kinds: dict[str, Any] = {"added": FILE, "removed": FILE, "changelog": FILE, "added_indexes": index, "removed_indexes": index}
    for name, file in kinds.items():
        both = changed(name, replace(file, file_name="1")).followed_by(changed(name, replace(file, file_name="2")))
        assert [one.file_name for one in getattr(both, name)] == ["1", "2"]
        assert not any(getattr(both, other) for other in kinds if other != name)
