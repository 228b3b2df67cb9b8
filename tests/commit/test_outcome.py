"""How a commit ends, and what becomes of its files and of its error: one value decides."""

from __future__ import annotations

from pathlib import Path

import pytest

import paimon_cli
from paimon_cli.commit.commit_messages import created_files, settle_files
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.errors import (
    BadInput,
    BeingDropped,
    CommitUnknown,
    DamagedFile,
    FilesConflict,
    PaimonError,
    Refused,
    StorageUnavailable,
    Unpublished,
)
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from tests import tables
from tests.commit.commit_tables import data_file, make_table

PACKAGE = Path(paimon_cli.__file__).parent

ENDINGS = {
    CommitOutcome.PUBLISHED: (None, False),
    CommitOutcome.DUPLICATE: (None, True),
    CommitOutcome.REFUSED: (FilesConflict("a file", "is gone"), True),
    CommitOutcome.UNKNOWN: (CommitUnknown("no", "answer"), False),
}


def test_files_go_only_if_no_snapshot_will_ever_name_them(tmp_path: Path) -> None:
    assert set(ENDINGS) == set(CommitOutcome)
    for outcome, (failure, go) in ENDINGS.items():
        context = make_table(tmp_path / outcome.name)
        messages = [CommitMessage(EMPTY_ROW, 0, 1, append=FileChanges(added=(data_file("mine"),)))]
        paths = written(context, messages)
        settle_files(context, messages, CommitResult(outcome=outcome, failure=failure))
        assert [context.storage.exists(path) for path in paths] == [not go] * len(paths), outcome


@pytest.mark.parametrize("failure", [
    FilesConflict("a", "b"), Refused("a", "b"), StorageUnavailable("a", "b"), DamagedFile("a", "b"), BeingDropped("a", "b"),
    BadInput("a", "b"), Unpublished(), CommitUnknown("a", "b"),
])  # fmt: skip
def test_a_failure_keeps_its_type_and_names_what_was_published(failure: PaimonError | Unpublished) -> None:
    def commit() -> CommitResult:
        raise failure

    result = CommitResult.of(commit)
    assert (result.outcome is CommitOutcome.UNKNOWN) == isinstance(failure, CommitUnknown)
    with pytest.raises(type(failure)) as raised:
        result.or_raise()
    assert raised.value is failure and raised.value.details["published_snapshots"] == []


def test_what_is_no_error_of_ours_is_no_outcome() -> None:
    def interrupted() -> CommitResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CommitResult.of(interrupted)


def test_no_other_module_reads_an_outcome_out_of_an_exception() -> None:
    """Which snapshots an error has published is read in `commit/outcome`, where it is set; all others read the result."""
    users = {
        path.name
        for path in PACKAGE.rglob("*.py")
        if any(f"{name}.committed" in path.read_text() for name in ("failure", "refusal", "conflict", "error"))
    }
    assert users == {"outcome.py"}


def written(context: TableContext, messages: list[CommitMessage]) -> list[str]:
    paths = [path for _, path in created_files(context, messages)]
    for path in paths:
        context.storage.write_new(path, b"data")
    return paths


def test_a_failure_after_the_first_of_two_snapshots_names_it(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"k": "INT"}, [], bucket=-1)
    tables.write(context, [{"k": 1}])
    first, failure = context.snapshots.get(1), FilesConflict("a", "b")
    failure.committed = (first,)

    def commit() -> CommitResult:
        raise failure

    result = CommitResult.of(commit)
    assert (result.snapshots, result.attempts, result.lost_compactions) == ((first,), 1, True)
    with pytest.raises(FilesConflict) as raised:
        result.or_raise()
    assert raised.value.details["published_snapshots"] == [1]
