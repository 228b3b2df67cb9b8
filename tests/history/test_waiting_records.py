"""Which records wait for a compaction; `tests/cli/test_waiting_records.py` has what users are told about them."""

from __future__ import annotations

from pathlib import Path

from paimon_cli.history.waiting_records import waiting_partitions
from paimon_cli.metadata.data_file import EntryKind
from tests.tables import compact, make_table, write


def test_partitions_whose_records_wait_are_told_from_others(tmp_path: Path) -> None:
    options = {"write-only": "true", "deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "t", {"p": "INT NOT NULL", "k": "INT NOT NULL"}, ["p", "k"], ["p"], options=options)
    write(context, [{"p": 1, "k": 1}])
    compact(context, strategy="full")
    write(context, [{"p": 2, "k": 1}])
    latest = context.snapshots.get(3)
    (new,) = {entry.partition for entry in context.manifests.delta_entries(latest) if entry.kind == EntryKind.ADD}
    both = {entry.partition for entry in context.manifests.live_entries(latest)}
    assert len(both) == 2 and waiting_partitions(context, latest, both) == {new}
    assert waiting_partitions(context, latest, both - {new}) == set()
