"""The twin of a Fluss table, as its tiering job defines and writes it, stays readable while the service compacts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.errors import NotSupported, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.snapshot import APPEND, COMPACT
from paimon_cli.options.option_catalog import HARMLESS, REFUSED_ON_WRITE, find_option
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


CLEAN = {"lakestream.enabled": "true"}
"""What Fluss sets in a table that it has made without system columns, since 1.0 (its FIP-27)."""
AS_TIERING = {"lakestream.enabled": "false"}
"""With what this process writes as the tiering job does."""


def twin(folder: Path, **options: str) -> TableContext:
    columns = {"id": "INT NOT NULL", "v": "STRING", **SYSTEM}
    given = {**OPTIONS, **{name.replace("_", "-"): value for name, value in options.items()}}
    return make_table(folder / "t", columns, ["id"], bucket=2, options=given)


def clean_twin(folder: Path, **options: str) -> TableContext:
    """A table without system columns, in partitions, as Fluss has made it since 1.0."""
    columns, given = {"day": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}, {**OPTIONS, **options}
    context = make_table(folder / "t", columns, ["day", "id"], ["day"], bucket=2, options=given)
    path = folder / "t/schema/schema-0"
    path.write_text(path.read_text().replace('"bucket-key"', '"lakestream.enabled" : "true", "bucket-key"', 1))
    return context.reopened()


def tier_clean(context: TableContext, offset: int, day: str, *ids: int, buckets: int = 2) -> None:
    """A round of tiering into one partition, whose number of buckets is that with which it was made."""
    writer = TableContext.open(context.url, {**AS_TIERING, "bucket": str(buckets)})
    properties = {"fluss-offsets": json.dumps([{"partition_name": day, "partition_id": 1, "bucket": 0, "offset": offset}])}
    made = [{"day": day, "id": number, "v": f"v{offset}"} for number in ids]
    write(writer, made, commit_user=TIERING, commit_id=offset, properties=tuple(properties.items()))


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


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_clean_tables_whose_later_partitions_have_other_bucket_counts(tmp_path: Path, vectors: str) -> None:
    """Partitions keep the number of buckets with which they were made; the service must not give them another one."""
    context = clean_twin(tmp_path, **{"deletion-vectors.enabled": vectors})
    tier_clean(context, 0, "1", 1, 2, 3, 4)
    of_fluss = Table.open(context.url, options={**AS_TIERING, "fluss.table.datalake.enabled": "false"})
    of_fluss.alter.set({"bucket": "4", "fluss.bucket.num": "4"})
    context = TableContext.open(context.url)
    tier_clean(context, 4, "2", 1, 2, 3, 4, 5, buckets=4)
    tier_clean(context, 8, "1", 3, 4, 5)
    served: dict[str, TableContext | Path] = {"t": TableContext.open(context.url)}
    serve(served, Pause(lambda: tier_clean(context, 12, "2", 5, 6, buckets=4)), 2)
    latest = context.snapshots.latest()
    assert latest is not None and latest.commit_kind == COMPACT and latest.commit_user != TIERING
    entries = context.manifests.live_entries(latest)
    assert all(entry.file.level > 0 for entry in entries)
    assert {(context.partition_path_of(entry.partition), entry.total_buckets) for entry in entries} == {
        ("day=1/", 2),
        ("day=2/", 4),
    }
    newest = next(snapshot for snapshot in context.snapshots.newest_first() if snapshot.commit_user == TIERING)
    assert '"offset": 12' in (newest.properties or {})["fluss-offsets"], "from there tiering goes on after a failure"
    found = {(row["day"], row["id"]): row["v"] for row in rows(context)}
    first = {("1", 1): "v0", ("1", 2): "v0", ("1", 3): "v8", ("1", 4): "v8", ("1", 5): "v8"}
    assert found == {**first, **{("2", number): "v4" for number in (1, 2, 3, 4)}, ("2", 5): "v12", ("2", 6): "v12"}
    assert list(check_table(context)) == []


def test_rows_of_a_table_that_fluss_feeds_are_not_written(tmp_path: Path) -> None:
    context = clean_twin(tmp_path)
    tier_clean(context, 0, "1", 1)
    table = Table.open(context.url)
    attempts = (
        lambda: table.write([{"day": "1", "id": 9, "v": "x"}]),
        lambda: table.delete("id = 1"),
        lambda: table.update({"v": "'y'"}, where="id = 1"),
        lambda: table.rescale(4),
    )
    for attempt in attempts:
        with pytest.raises(NotSupported, match=r"lakestream\.enabled=true"):
            attempt()
    assert rows(context) == [{"day": "1", "id": 1, "v": "v0"}]


@pytest.mark.parametrize("kind", ["clean", "legacy"])
def test_nothing_is_taken_out_of_a_table_that_fluss_feeds(tmp_path: Path, kind: str) -> None:
    """Neither a run nor a plan, until the user says in the call that Fluss does not use the table any more."""
    key = "lakestream.enabled" if kind == "clean" else "fluss.table.datalake.enabled"
    context = clean_twin(tmp_path, **{"fluss.table.datalake.enabled": "false"}) if kind == "clean" else twin(tmp_path)
    for offset in (0, 1):
        tier_clean(context, offset, "1", offset) if kind == "clean" else tier(context, offset, offset)
    table = Table.open(context.url)
    table.branches.create("b")
    part = {"day": "1"} if kind == "clean" else {}
    attempts: dict[str, Callable[[Table], Any]] = {
        "truncate": lambda t: t.truncate(),
        "erase": lambda t: t.erase(where="id = 1"),
        "erase plan": lambda t: t.plan_erase(where="id = 1"),
        "rollback": lambda t: t.rollback(1),
        "rollback plan": lambda t: t.plan_rollback(1),
        "restore": lambda t: t.rollback(1, as_new=True),
        "restore plan": lambda t: t.plan_restore(1),
        "fast-forward": lambda t: t.branches.fast_forward("b"),
        "plan": lambda t: t.plan_truncate(partition=part or None),
    }
    if kind == "legacy":  # a clean table takes no work on its rows at all
        attempts |= {
            "delete": lambda t: t.delete("id = 1"),
            "delete plan": lambda t: t.plan_delete("id = 1"),
            "update": lambda t: t.update({"v": "'y'"}, where="id = 1"),
            "merge": lambda t: t.merge([{"id": 1}], on="id").when_matched_delete().execute(),
            "overwrite": lambda t: t.write([{"id": 9, "v": "x"}], overwrite=True),
        }
    if part:
        attempts["drop"] = lambda t: t.drop_partition(partition=part)
    before = rows(context)
    for attempt in attempts.values():
        with pytest.raises(Refused, match=rf"Fluss moves rows into it \({key}=true\)") as refused:
            attempt(table)
        assert refused.value.exit_code == 7 and f"--option {key}=false" in refused.value.hint
    assert rows(context) == before and len(before) == 2 and context.snapshots.latest_id() == 2
    allowed = Table.open(context.url, options={key: "false"})
    assert allowed.rollback(1).target == 1 and len(rows(context)) == 1
    allowed.truncate()
    assert not rows(context)


def test_the_buckets_of_a_table_that_fluss_feeds_stay(tmp_path: Path) -> None:
    context = twin(tmp_path)
    tier(context, 0, 1, 2, 3)
    table, key = Table.open(context.url), "fluss.table.datalake.enabled"
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: table.rescale(4),
        lambda: table.plan_rescale(4),
        lambda: table.alter.set({"bucket": 4}),
    )
    for attempt in attempts:
        with pytest.raises(Refused, match=r"cannot change the buckets of .*: Fluss moves rows into it") as refused:
            attempt()
        assert refused.value.exit_code == 7 and refused.value.hint.endswith(f"add --option {key}=false")
    assert Table.open(context.url).context.schema.id == 0
    assert table.alter.set({"snapshot.num-retained.min": 20}).changed
    Table.open(context.url, options={key: "false"}).rescale(4)
    assert Table.open(context.url).context.options.bucket == 4


def test_expiry_by_age_alone_leaves_what_tiering_goes_on_from(tmp_path: Path) -> None:
    """The offsets are in the newest snapshot of its own, behind which only a few compactions follow."""
    context = clean_twin(tmp_path)
    for offset in range(12):
        tier_clean(context, offset, "1", 1)
    table = Table.open(context.url)
    table.compact("full")
    assert table.expire(older_than="0s").removed
    newest = next(found for found in TableContext.open(context.url).snapshots.newest_first() if found.commit_user == TIERING)
    assert (newest.id, '"offset": 11' in (newest.properties or {})["fluss-offsets"]) == (12, True)


def test_the_settings_of_fluss_are_known() -> None:
    ignored, refused = find_option("fluss.table.datalake.freshness"), find_option("lakestream.enabled")
    assert ignored is not None and ignored.status == HARMLESS
    assert refused is not None and refused.status == REFUSED_ON_WRITE
