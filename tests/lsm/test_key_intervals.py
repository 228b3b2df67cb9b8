"""Sections against Java's answers, and their two promises: disjoint sections, disjoint files inside a run."""

from __future__ import annotations

import struct
from dataclasses import replace

from paimon_cli.lsm.sorted_runs import Section, SortedRun, follow_each_other, key_sections
from paimon_cli.metadata.data_file import DataFileMeta, SimpleStats
from tests.vectors import load


def file(name: str, low: int, high: int, *, level: int = 0, size: int = 1, seq: int = 0, deletes: int | None = 0) -> DataFileMeta:
    keys = struct.pack(">i", low), struct.pack(">i", high)
    return DataFileMeta(name, size, 1, *keys, SimpleStats(), SimpleStats(), 0, seq, 0, level, delete_row_count=deletes)


def int_key(data: bytes) -> tuple[int]:
    return (struct.unpack(">i", data)[0],)


def names(sections: list[Section]) -> list[list[list[str]]]:
    return [[[f.file_name for f in run.files] for run in section] for section in sections]


def test_sections_runs_and_their_order_are_java_s() -> None:
    lines = load("interval_partition")
    for line in lines:
        assert names(key_sections([file(*f) for f in line["in"]["files"]], int_key)) == line["out"]
    assert len(lines) == 442


def test_files_of_a_run_are_disjoint_and_ascend() -> None:
    for line in load("interval_partition"):
        for section in key_sections([file(*f) for f in line["in"]["files"]], int_key):
            for run in section:
                assert all(int_key(a.max_key) < int_key(b.min_key) for a, b in zip(run.files, run.files[1:], strict=False))


def test_runs_follow_each_other_if_every_row_of_one_is_older() -> None:
    """The files of a run are in the order of their keys, which is not that of their numbers."""

    def run(*numbers: tuple[int, int]) -> SortedRun:
        files = [(file(f"{low}", 10 * place, 10 * place + 5), low, high) for place, (low, high) in enumerate(numbers)]
        return SortedRun(1, tuple(replace(one, min_sequence_number=low, max_sequence_number=high) for one, low, high in files))

    middle = run((20, 29))
    assert follow_each_other([run((0, 9), (10, 19)), middle, run((40, 49), (30, 39))])
    assert not follow_each_other([run((50, 59), (0, 9), (60, 69)), middle])
    assert not follow_each_other([run((0, 9), (50, 59), (10, 19)), middle])
    assert not follow_each_other([run((0, 20)), middle])
