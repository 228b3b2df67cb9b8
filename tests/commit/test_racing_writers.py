"""Several writers at once, in threads and in processes: every commit is in the table, once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from tests.commit.commit_tables import data_file, live_names, make_table, manifest_files, named_manifest_files
from tests.nightly import at_night

COMMITS = 20
OPTIONS = {"manifest.merge-min-count": "8", "commit.max-retries": "200"}


def write(folder: str, commits: int, writer: int) -> int:
    """Commit one file after the other as one of the writers. Returns the number of attempts."""
    context = make_table(Path(folder), OPTIONS)
    spent = 0
    for number in range(commits):
        message = CommitMessage(
            EMPTY_ROW, writer % 2, 2, append=FileChanges(added=(data_file(f"w{writer}-{number}", rows=writer + 1),))
        )
        spent += Committer(context).commit([message], CommitIdentity(f"writer-{writer}", number)).attempts
    return spent


def check(folder: Path, writers: int, commits: int) -> None:
    context = make_table(folder)
    assert context.snapshots.ids() == list(range(1, writers * commits + 1))
    assert live_names(context) == sorted(f"w{w}-{n}@0" for w in range(writers) for n in range(commits))
    total = 0
    for snapshot in reversed(list(context.snapshots.newest_first())):
        total += snapshot.delta_record_count
        assert snapshot.total_record_count == total
    assert manifest_files(context) == named_manifest_files(context)
    assert not list((folder / "snapshot").glob(".*")), "no temporary file is left"


def test_threads(tmp_path: Path) -> None:
    make_table(tmp_path, OPTIONS)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(write, str(tmp_path), 6), range(4)))
    check(tmp_path, 4, 6)


@pytest.mark.parametrize("writers", [3, at_night(8)])
def test_processes(tmp_path: Path, writers: int) -> None:
    make_table(tmp_path, OPTIONS)
    with ProcessPoolExecutor(writers, multiprocessing.get_context("spawn")) as pool:
        spent = list(pool.map(partial(write, str(tmp_path), COMMITS), range(writers)))
    check(tmp_path, writers, COMMITS)
    assert sum(spent) >= writers * COMMITS
