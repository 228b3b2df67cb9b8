"""Tag files: as Java writes them, read and written again."""

from __future__ import annotations

import pytest

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.snapshot import Snapshot, Tag, snapshot_text, tag_text

SNAPSHOT = Snapshot(3, 0, "base", "delta", "me", 7, "APPEND", 1_700_000_000_000, 10, 10).to_json().encode()


def test_a_tag_without_a_limit_is_the_snapshot() -> None:
    assert Tag.from_json(SNAPSHOT) == Tag(Snapshot.from_json(SNAPSHOT))
    assert snapshot_text(SNAPSHOT) == SNAPSHOT


def test_a_limit_and_what_a_newer_writer_knew_survive() -> None:
    newer = SNAPSHOT.replace(b'"version"', b'"nextRowId" : 12,\n  "share" : 0.10,\n  "version"')
    text = tag_text(newer, 1_700_000_001_234, 90_500)
    tag = Tag.from_json(text)
    assert (tag.created_millis, tag.retained_millis) == (1_700_000_001_234, 90_500)
    assert b'"tagTimeRetained" : 90.500000000' in text
    assert b'"tagCreateTime" : [ 2023, 11, 14, 22, 13, 21, 234000000 ]' in text
    assert snapshot_text(text) == newer


def test_parts_that_java_leaves_out_are_zero() -> None:
    text = SNAPSHOT[:-2] + b',\n  "tagCreateTime" : [ 2023, 11, 14, 22, 13 ],\n  "tagTimeRetained" : 5\n}'
    assert Tag.from_json(text).created_millis == 1_699_999_980_000 and Tag.from_json(text).retained_millis == 5000


@pytest.mark.parametrize("more", [b'"tagCreateTime" : [ 2023, 13, 1 ]', b'"tagTimeRetained" : "soon"'])
def test_damage_is_named(more: bytes) -> None:
    with pytest.raises(DamagedFile, match="tag-x"):
        Tag.from_json(SNAPSHOT[:-2] + b",\n  " + more + b"\n}", "t/tag/tag-x")
