"""Snapshot files of any writer are read; ours look like Java's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.snapshot import Snapshot
from tests.goldens import GOLDENS, Golden, golden_table

SNAPSHOT = Snapshot(
    id=7,
    schema_id=0,
    base_manifest_list="manifest-list-u-0",
    delta_manifest_list="manifest-list-u-1",
    commit_user="me",
    commit_identifier=2**63 - 1,
    commit_kind="APPEND",
    time_millis=1_795_221_695_166,
    total_record_count=24,
    delta_record_count=-7,
)
REQUIRED = {
    "version",
    "id",
    "schemaId",
    "baseManifestList",
    "deltaManifestList",
    "commitUser",
    "commitIdentifier",
    "commitKind",
    "timeMillis",
    "totalRecordCount",
    "deltaRecordCount",
}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(SNAPSHOT.to_json()).items() if name != key}


def test_only_known_types_are_written_in_the_layout_of_java() -> None:
    assert set(json.loads(SNAPSHOT.to_json())) == REQUIRED
    lines = SNAPSHOT.to_json().split("\n")
    assert lines[:3] == ["{", '  "version" : 3,', '  "id" : 7,'] and lines[-1] == "}"


def test_every_field_survives() -> None:
    full = replace(
        SNAPSHOT,
        base_manifest_list_size=1,
        delta_manifest_list_size=2,
        changelog_manifest_list="manifest-list-u-2",
        changelog_manifest_list_size=3,
        index_manifest="index-manifest-u-0",
        changelog_record_count=4,
        watermark=5,
        statistics="stat-u-0",
        properties={"a": "b"},
        uuid="u",
    )
    assert Snapshot.from_json(full.to_json()) == full
    assert Snapshot.from_json(full.to_json().encode()) == full


@pytest.mark.in_part(5)
@pytest.mark.parametrize("table", GOLDENS, ids=str)
def test_snapshots_and_tags_of_real_writers(table: Golden, tmp_path: Path) -> None:
    folder = golden_table(table.writer, table.name, tmp_path)
    for path in [*folder.rglob("snapshot-*"), *folder.rglob("tag-*")]:
        snapshot = Snapshot.from_json(path.read_text(), str(path))
        assert Snapshot.from_json(snapshot.to_json()) == snapshot
        ours, theirs = json.loads(snapshot.to_json()), json.loads(path.read_text())
        assert {key: theirs[key] for key in ours} == ours


def test_what_other_versions_write_is_understood() -> None:
    content = json.loads(SNAPSHOT.to_json())
    old = {
        **content,
        "changelogManifestList": None,
        "logOffsets": {},
        "watermark": -(2**63),
        "operation": "WRITE",
        "nextRowId": 0,
    }
    newer = replace(SNAPSHOT, operation="WRITE", next_row_id=0)
    assert Snapshot.from_json(json.dumps(old)) == newer
    assert Snapshot.from_json(newer.to_json()) == newer and '"operation" : "WRITE"' in newer.to_json()
    assert Snapshot.from_json(json.dumps(without("version"))).version == 1


@pytest.mark.parametrize("key", sorted(REQUIRED - {"version"}))
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(DamagedFile, match=key) as failure:
        Snapshot.from_json(json.dumps(without(key)), "/t/snapshot/snapshot-7")
    assert "/t/snapshot/snapshot-7" in failure.value.what


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "7"),
        ("id", True),
        ("id", 1.5),
        ("commitKind", "MERGE"),
        ("commitUser", 3),
        ("properties", ["a"]),
        ("properties", {"a": 1}),
        ("baseManifestList", "../x"),
        ("indexManifest", "a/b"),
        ("watermark", "5"),
        ("uuid", 1),
    ],
)
def test_a_value_that_does_not_fit_is_damage(key: str, value: Any) -> None:
    with pytest.raises(DamagedFile):
        Snapshot.from_json(json.dumps({**json.loads(SNAPSHOT.to_json()), key: value}), "s")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "[" * 100_000, '{"id": 1e999}', b"\xff\xfe{}"])
def test_a_file_that_is_not_a_snapshot_is_damaged(text: str | bytes) -> None:
    with pytest.raises(DamagedFile):
        Snapshot.from_json(text, "s")


def test_a_cut_file_is_damage_at_every_length() -> None:
    text = SNAPSHOT.to_json()
    for length in range(len(text)):
        with pytest.raises(DamagedFile):
            Snapshot.from_json(text[:length], "s")
