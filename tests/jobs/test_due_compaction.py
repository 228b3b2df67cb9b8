"""What a change owes its buckets after the commit, also if it is a repetition that commits nothing."""

from __future__ import annotations

from pathlib import Path

from paimon_cli import Table
from paimon_cli.api.runtime import Runtime


def test_a_repeated_write_compacts_what_is_due_unless_it_shall_not(tmp_path: Path) -> None:
    options = {"num-sorted-run.compaction-trigger": "2"}
    made = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL"], primary_key=["k"], bucket=1, options=options)
    table = Table.open(made.url, runtime=Runtime(engine="local"))
    for number in range(4):
        table.write([{"k": number}], compact="none", commit_user="u", commit_id=number)
    repeated = table.write([{"k": 3}], compact="none", commit_user="u", commit_id=3)
    assert repeated.already_committed and not repeated.compacted and table.context.snapshots.ids() == [1, 2, 3, 4]
    assert table.write([{"k": 3}], commit_user="u", commit_id=3).compacted == 1, "it was due"
