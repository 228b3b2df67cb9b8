"""Long-lived changelogs whose manifest lists are missing, as Java leaves them beside a changelog producer, stop nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import PaimonError
from paimon_cli.history.tags_and_branches import ChangelogHistory
from tests.tables import make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
OPTIONS = {"changelog.num-retained.max": "40", "snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"}


def table_of(folder: Path, producer: str) -> Table:
    context = make_table(folder / "t", COLUMNS, ["k"], options={**OPTIONS, "changelog-producer": producer})
    for number in range(4):
        write(context, [{"k": number, "v": "v"}])
    table = Table.open(context.url)
    table.expire(retain_max=3, retain_min=1)
    for changelog in ChangelogHistory(context.storage, context.layout).all():
        if changelog.changelog_manifest_list is None:
            for name in (changelog.base_manifest_list, changelog.delta_manifest_list):
                Path(context.layout.manifest(name)).unlink(missing_ok=True)
    return table


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_missing_lists_stop_nothing_beside_a_producer(tmp_path: Path, producer: str) -> None:
    table = table_of(tmp_path, producer)
    target = table.context.snapshots.latest_id()
    assert target is not None and ChangelogHistory(table.context.storage, table.context.layout).ids()
    table.tags.create("one")
    table.tags.create("two")
    table.branches.create("b", tag="one")
    write(table.context, [{"k": 9, "v": "later"}])
    table.rollback(str(target))
    assert {row["k"] for row in rows(table.context)} == {0, 1, 2, 3}
    orphans = table.plan_orphans(older_than="0 s", force=True)
    assert table.orphan_rows(orphans.plan) == []
    table.tags.rm("two")
    table.branches.rm("b")
    table.tags.rm("one")
    table.expire(retain_max=1, retain_min=1)
    table.expire(what="changelogs", retain_max=1, retain_min=1)
    assert table.verify().violations == []


def test_a_rollback_that_cannot_know_what_to_delete_changes_nothing(tmp_path: Path) -> None:
    """Without a producer the lists name the changes, so that a missing one is damage."""
    table = table_of(tmp_path, "none")
    target = table.context.snapshots.latest_id()
    write(table.context, [{"k": 9, "v": "later"}])
    for _ in range(2):
        with pytest.raises(PaimonError):
            table.rollback(str(target))
        assert {row["k"] for row in rows(table.context)} == {0, 1, 2, 3, 9}
