"""Clones of a table; `tests/catalog/metastore/test_catalogs.py` has those of catalogs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, LastCommit, last_commit
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.clone_job import clone_table
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from tests.jobs.backups import backup
from tests.tables import make_table, rows, write


def test_a_clone_knows_which_commits_its_rows_contain(tmp_path: Path) -> None:
    """Other engines have committed since, and the snapshots have expired: only the records can tell."""
    source = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=1)
    write(source, [{"k": 1, "v": "mine"}], commit_user="nightly", commit_id=7)
    for number in range(3):
        write(source, [{"k": 10 + number, "v": "others"}])
    for number in source.snapshots.ids():
        path = Path(source.layout.snapshot(number))
        path.write_text(replace(source.snapshots.get(number), properties=None).to_json())
    expire_snapshots(source, Retention(at_least=1, at_most=1, millis=0, limit=None))
    clone_table(source, "t", TableLocation(str(tmp_path / "c"), "c"))
    clone = TableContext.open(str(tmp_path / "c"))
    assert write(clone, [{"k": 1, "v": "again"}], commit_user="nightly", commit_id=7).already_committed
    assert not write(clone, [{"k": 2, "v": "next"}], commit_user="nightly", commit_id=8).already_committed
    assert {row["k"]: row["v"] for row in rows(clone)}[1] == "mine" and len(rows(clone)) == 5


def test_copies_say_how_far_a_user_has_come(tmp_path: Path) -> None:
    """An ingest goes on from there, although the snapshot that said so has expired."""
    source = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"commit.force-create-snapshot": "true"})
    Committer(source).commit([], CommitIdentity("ingest", 7, properties=(("read", "5"),)))
    for number in range(3):
        write(source, [{"k": number}])
    expire_snapshots(source, Retention(at_least=1, at_most=1, millis=0, limit=None))
    clone_table(source, "t", TableLocation(str(tmp_path / "c"), "c"))
    backup(source, tmp_path / "b")
    for copy in ("c", "b"):
        assert last_commit(TableContext.open(str(tmp_path / copy)), "ingest") == LastCommit(7, {"read": "5"})
