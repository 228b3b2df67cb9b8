"""What a message about a false number in a manifest blames: the field that is false, and none that was fine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import (
    EMPTY_ROW,
    DataFileMeta,
    DeletionVectorRange,
    EntryKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_cli.metadata.manifests import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest_list,
)
from tests.metadata.one_manifest import encode_manifest

STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, (2, None))
FILE = DataFileMeta("data-1", 10, 3, EMPTY_ROW, EMPTY_ROW, STATS, STATS, 4, 6, 0, 0, delete_row_count=2, first_row_id=0)
ENTRY = ManifestEntry(EntryKind.ADD, EMPTY_ROW, 1, 2, FILE)
LISTED = ManifestFileMeta("manifest-1", 10, 1, 0, STATS, 0, 0, 1, 0, 5)
INDEX = IndexFileMeta("DELETION_VECTORS", "index-1", 40, 1, (DeletionVectorRange("data-1", 1, 22, 3),))


def blamed(error: DamagedFile) -> list[str]:
    return re.findall(r"\b_[A-Z_]+\b", error.why)


def negative(counts: SimpleStats) -> SimpleStats:
    return replace(counts, null_counts=(-1, None))


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"file_size": -1}, ["_FILE_SIZE"]),
        ({"row_count": -1}, ["_ROW_COUNT"]),
        ({"row_count": -(2**62)}, ["_ROW_COUNT"]),
        (
            {"row_count": 1, "key_stats": negative(STATS)},
            ["_KEY_STATS", "_DELETE_ROW_COUNT", "_ROW_COUNT", "_VALUE_STATS", "_ROW_COUNT"],
        ),
        ({"delete_row_count": -1}, ["_DELETE_ROW_COUNT"]),
        ({"delete_row_count": 4}, ["_DELETE_ROW_COUNT", "_ROW_COUNT"]),
        ({"min_sequence_number": -2}, ["_MIN_SEQUENCE_NUMBER"]),
        ({"max_sequence_number": 3}, ["_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER"]),
        ({"schema_id": -1}, ["_SCHEMA_ID"]),
        ({"level": -1}, ["_LEVEL"]),
        ({"first_row_id": -1}, ["_FIRST_ROW_ID"]),
        ({"file_source": 7}, ["_FILE_SOURCE"]),
        ({"key_stats": negative(STATS)}, ["_KEY_STATS"]),
        ({"value_stats": replace(STATS, null_counts=(4,))}, ["_VALUE_STATS", "_ROW_COUNT"]),
        ({"row_count": -1, "level": -1}, ["_LEVEL", "_ROW_COUNT"]),
    ],
)
def test_a_number_of_a_data_file(change: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(DamagedFile) as damage:
        decode_manifest(encode_manifest([replace(ENTRY, file=replace(FILE, **change))]), "m")
    assert blamed(damage.value) == fields
    assert all(str(value) in damage.value.why for value in change.values() if isinstance(value, int))


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"kind": 2}, ["_KIND"]),
        ({"bucket": -1}, ["_BUCKET"]),
        ({"bucket": 2}, ["_BUCKET", "_TOTAL_BUCKETS"]),
        ({"total_buckets": 1}, ["_BUCKET", "_TOTAL_BUCKETS"]),
        ({"total_buckets": 0}, ["_TOTAL_BUCKETS"]),
        ({"total_buckets": -2}, ["_BUCKET", "_TOTAL_BUCKETS"]),
    ],
)
def test_a_number_of_an_entry(change: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(DamagedFile) as damage:
        decode_manifest(encode_manifest([replace(ENTRY, **change)]), "m")
    assert blamed(damage.value) == fields


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"file_size": -1}, ["_FILE_SIZE"]),
        ({"num_added_files": -1}, ["_NUM_ADDED_FILES"]),
        ({"num_deleted_files": -1}, ["_NUM_DELETED_FILES"]),
        ({"schema_id": -1}, ["_SCHEMA_ID"]),
        ({"min_bucket": -3}, ["_MIN_BUCKET"]),
        ({"max_bucket": -7}, ["_MAX_BUCKET"]),
        ({"min_bucket": 2}, ["_MIN_BUCKET", "_MAX_BUCKET"]),
        ({"max_level": -1}, ["_MAX_LEVEL"]),
        ({"min_level": 6}, ["_MIN_LEVEL", "_MAX_LEVEL"]),
        ({"partition_stats": negative(STATS)}, ["_PARTITION_STATS"]),
    ],
)
def test_a_number_of_a_manifest_in_a_list(change: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(DamagedFile) as damage:
        decode_manifest_list(encode_manifest_list([replace(LISTED, **change)]), "l")
    assert blamed(damage.value) == fields


def test_numbers_that_are_possible() -> None:
    assert decode_manifest(encode_manifest([ENTRY]), "m") == [ENTRY]
    assert decode_manifest_list(encode_manifest_list([LISTED]), "l") == [LISTED]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"file_size": -1}, ["_FILE_SIZE"]),
        ({"file_size": 22}, ["_DELETIONS_VECTORS_RANGES", "_FILE_SIZE"]),
        ({"row_count": -1}, ["_ROW_COUNT"]),
        ({"row_count": 0}, ["_ROW_COUNT", "_DELETIONS_VECTORS_RANGES"]),
        ({"index_type": "HASH"}, ["_INDEX_TYPE", "_DELETIONS_VECTORS_RANGES"]),
        ({"deletion_vector_ranges": (DeletionVectorRange("data-1", 1, 22, -3),)}, ["_CARDINALITY"]),
        ({"deletion_vector_ranges": (DeletionVectorRange("data-1", -1, 22, 3),)}, ["_DELETIONS_VECTORS_RANGES"]),
    ],
)
def test_a_number_of_an_index_file(change: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(DamagedFile) as damage:
        decode_index_manifest(
            encode_index_manifest([IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, replace(INDEX, **change))]), "i"
        )
    assert blamed(damage.value) == fields
