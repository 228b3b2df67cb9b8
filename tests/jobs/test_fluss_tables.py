"""The twin of a Fluss table, as its tiering job defines and writes it, stays readable while the service compacts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.snapshot import APPEND, COMPACT
from paimon_cli.options.option_catalog import HARMLESS, find_option
from tests.jobs.test_compaction_service import Pause, serve
from tests.tables import make_table, rows, write

TIERING = "__fluss_lake_tiering"
SYSTEM = {"__bucket": "INT", "__offset": "BIGINT", "__timestamp": "TIMESTAMP(6) WITH LOCAL TIME ZONE"}
OPTIONS = {
    "bucket-key": "id",
    "changelog-producer": "input",
    "partition.legacy-name": "false",
    "fluss.table.datalake.enabled": "true",
    "fluss.table.datalake.freshness": "30s",
    "write-only": "true",
}


def twin(folder: Path, **options: str) -> TableContext:
    columns = {"id": "INT NOT NULL", "v": "STRING", **SYSTEM}
    given = {**OPTIONS, **{name.replace("_", "-"): value for name, value in options.items()}}
    return make_table(folder / "t", columns, ["id"], bucket=2, options=given)


def tier(context: TableContext, first_offset: int, *ids: int) -> None:
    """What one round of tiering commits: rows with their offsets in the log."""
    made: list[dict[str, Any]] = [
        {
            "id": number,
            "v": f"v{first_offset}",
            "__bucket": 0,
            "__offset": first_offset + n,
            "__timestamp": f"2026-11-29T10:00:{first_offset:02}Z",
        }
        for n, number in enumerate(ids)
    ]
    write(context, made, commit_user=TIERING, commit_id=first_offset)


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_the_service_empties_level_0_and_keeps_what_belongs_to_fluss(tmp_path: Path, vectors: str) -> None:
    context = twin(tmp_path, **{"deletion-vectors.enabled": vectors})
    tier(context, 0, 1, 2, 3, 4)
    tier(context, 4, 3, 4, 5, 6)
    schema = (tmp_path / "t/schema/schema-0").read_bytes()
    serve({"t": context}, Pause(lambda: tier(context, 8, 1, 6, 7)), 2)
    latest = context.snapshots.latest()
    assert latest is not None and latest.commit_kind == COMPACT and latest.commit_user != TIERING
    assert all(entry.file.level > 0 for entry in context.manifests.live_entries(latest))
    before = [snapshot for snapshot in context.snapshots.newest_first() if snapshot.commit_kind == APPEND]
    assert before[0].commit_user == TIERING and before[0].id == latest.id - 1
    found = {row["id"]: (row["__offset"], row["v"]) for row in rows(context)}
    assert found == {1: (8, "v8"), 2: (1, "v0"), 3: (4, "v4"), 4: (5, "v4"), 5: (6, "v4"), 6: (9, "v8"), 7: (10, "v8")}
    assert [path.name for path in (tmp_path / "t/schema").iterdir()] == ["schema-0"]
    assert (tmp_path / "t/schema/schema-0").read_bytes() == schema and list(check_table(context)) == []


def test_the_settings_of_fluss_are_known_and_ignored() -> None:
    option = find_option("fluss.table.datalake.freshness")
    assert option is not None and option.status == HARMLESS
