"""Sections against Java's answers, and their two promises: disjoint sections, disjoint files inside a run."""

from __future__ import annotations

import struct

from paimon_cli.lsm.key_intervals import Section, key_sections
from paimon_cli.metadata.data_file import DataFileMeta, SimpleStats
from tests.vectors import load


def file(name: str, low: int, high: int, *, level: int = 0, size: int = 1, seq: int = 0, deletes: int | None = 0) -> DataFileMeta:
    keys = struct.pack(">i", low), struct.pack(">i", high)
    return DataFileMeta(name, size, 1, *keys, SimpleStats(), SimpleStats(), 0, seq, 0, level, delete_row_count=deletes)


def int_key(data: bytes) -> tuple[int]:
    return (struct.unpack(">i", data)[0],)


def names(sections: list[Section]) -> list[list[list[str]]]:
    return [sorted([f.file_name for f in run.files] for run in section) for section in sections]


def members(sections: list[list[list[str]]]) -> list[list[str]]:
    return [sorted(name for run in section for name in run) for section in sections]


def test_sections_hold_the_files_that_java_puts_into_them_in_as_few_runs() -> None:
    """Which of several runs that end at the same key gets the next file is the heap's whim: runs are compared by number."""
    lines = load("interval_partition")
    exact = 0
    for line in lines:
        got = names(key_sections([file(*f) for f in line["in"]["files"]], int_key))
        expected = [sorted(section) for section in line["out"]]
        assert members(got) == members(expected)
        assert [len(section) for section in got] == [len(section) for section in expected]
        exact += got == expected
    assert (len(lines), exact) == (442, 428)


def test_files_of_a_run_are_disjoint_and_ascend() -> None:
    for line in load("interval_partition"):
        for section in key_sections([file(*f) for f in line["in"]["files"]], int_key):
            for run in section:
                assert all(int_key(a.max_key) < int_key(b.min_key) for a, b in zip(run.files, run.files[1:], strict=False))
