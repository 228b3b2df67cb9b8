"""Faults, alone or in pairs, that once lost something.

They are described by the calls that they hit, because numbers of calls change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fault_kinds import Fault, Kind
from tests.faults.fault_storage import NoteCall
from tests.faults.operations import OPERATIONS
from tests.faults.runs import memory_runs

Hit = tuple[str, str, Kind, str]
"""Name of the call, a part of its path, and what happens to it."""


def one_after_the_other(*hits: Hit) -> NoteCall:
    """Each fault for the first matching call after the one before."""
    left = list(hits)

    def fault_of(call: int, name: str, path: str) -> Fault | None:
        if left and name == left[0][0] and left[0][1] in path:
            _, _, kind, detail = left.pop(0)
            return Fault(call, kind, detail)
        return None

    return fault_of


def failures_of(name: str, folder: Path, *hits: Hit) -> list[str]:
    runs = memory_runs(OPERATIONS[name], folder)
    storage = runs.run(one_after_the_other(*hits))[0]
    assert len(storage.hit) == len(hits), "the faults were not met"
    return runs.figures.failures


@pytest.mark.in_part(3)
@pytest.mark.parametrize("answer", ["exists", "unknown"])
@pytest.mark.parametrize("length", ["none", "half", "most"])
@pytest.mark.parametrize("name", ["write", "write-anonymous", "create", "alter"])
def test_own_put_without_an_answer_read_back_in_part(name: str, length: str, answer: str, tmp_path: Path) -> None:
    """The file was taken for another writer's: a snapshot lost its manifest lists, and the commit was made again."""
    put = ("put_if_absent", "", Kind.LOST_ANSWER, answer)
    assert not failures_of(name, tmp_path, put, ("read_bytes", "", Kind.SHORT_READ, length))


def test_no_hint_and_a_listing_without_any_snapshot(tmp_path: Path) -> None:
    """The table looked empty to the writer, whose rows then got sequence numbers below those of the rows they replace."""
    stale = ("list_directory", "/snapshot", Kind.STALE_LIST, "all")
    assert not failures_of("write-without-hints", tmp_path, stale)


@pytest.mark.parametrize("kind", [Kind.FAIL_BEFORE, Kind.FAIL_AFTER])
def test_the_first_bytes_of_a_data_file_are_refused(kind: Kind, tmp_path: Path) -> None:
    """Its handle stayed open, and would have finished the file after it had been deleted."""
    assert not failures_of("write", tmp_path, ("output.write", "", kind, ""))


def test_an_outage_begins_at_the_last_of_several_files(tmp_path: Path) -> None:
    """The first file could not be deleted, so the others were not even closed."""
    assert not failures_of("write", tmp_path, ("output.write", "/bucket-1/", Kind.OUTAGE, ""))


def test_a_new_schema_whose_answer_is_lost_in_an_outage(tmp_path: Path) -> None:
    """It was reported as refused, but was committed."""
    put = ("put_if_absent", "/schema/", Kind.LOST_ANSWER, "unknown")
    assert not failures_of("alter", tmp_path, put, ("read_bytes", "/schema/", Kind.OUTAGE, ""))


def test_a_staged_commit_that_was_stored_but_reported_as_failed(tmp_path: Path) -> None:
    """Its data files were deleted, and the file that names them stayed."""
    for answer in ("exists", "unknown", "nothing"):
        (tmp_path / answer).mkdir()
        assert not failures_of("stage-and-commit", tmp_path / answer, ("put_if_absent", "/staged/", Kind.LOST_ANSWER, answer))
