"""A write on one machine: readers notice when an earlier one has failed, and rows are exchanged where Spark has its shuffles."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.jobs.spark.exchange_files import is_superseded, mark_failed, scratch_directory


def test_only_readers_after_a_failed_one_work_in_vain(tmp_path: Path) -> None:
    assert not is_superseded(str(tmp_path), 99)
    mark_failed(str(tmp_path), 10)
    assert [is_superseded(str(tmp_path), task) for task in (9, 10, 11)] == [False, False, True]


@pytest.mark.parametrize(
    ("setting", "environment", "place"),
    [("", {}, None), ("/a, /b", {}, "/a"), ("/a", {"SPARK_LOCAL_DIRS": "/c,/d"}, "/c"), ("", {"SPARK_LOCAL_DIRS": ""}, None)],
)
def test_chunks_are_where_spark_would_shuffle_them(setting: str, environment: dict[str, str], place: str | None) -> None:
    assert scratch_directory(setting, environment) == place
