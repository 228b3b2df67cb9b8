"""The golden archives hold what their loader promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import GOLDENS, Golden, expected_rows, golden, golden_table


def test_all_writers_are_there() -> None:
    counts = {writer: sum(g.writer == writer for g in GOLDENS) for writer in {g.writer for g in GOLDENS}}
    assert counts == {"java-0.9": 58, "java-0.9-extra": 2, "java-1.4": 23, "pypaimon-2.1": 9, "rust-0.4": 8}


@pytest.mark.in_part(4)
@pytest.mark.parametrize("table", GOLDENS, ids=str)
def test_a_golden_has_a_schema_a_table_and_rows(table: Golden, tmp_path: Path) -> None:
    directory = golden_table(table.writer, table.name, tmp_path)
    assert (directory / "schema" / "schema-0").is_file()
    assert "now" in table.moments
    columns = {field["name"] for field in table.schema["fields"]}
    evolved = any(step["op"] == "alter" for step in table.params["steps"])
    for moment in table.moments:
        rows = expected_rows(table, moment)
        assert evolved or moment == "changelog" or all(set(row) == columns for row in rows)


def test_only_the_asked_table_is_laid_out(tmp_path: Path) -> None:
    golden_table("java-0.9", "key_bigint", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["key_bigint"]
    with pytest.raises(KeyError):
        golden_table("java-0.9", "key_", tmp_path)
    assert golden("java-0.9", "key_bigint").options["bucket"] == "3"
