"""`health --topology`: the arrangement in which a table is written is told from its history, whichever engine wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import OK, TOPOLOGY, WARNING, Finding
from paimon_cli.inspect.findings.runner import findings_of
from paimon_cli.inspect.findings.topology_rules import Writers
from paimon_cli.inspect.health_report import health_of
from paimon_cli.jobs.staging.stage_job import StageFile
from tests.goldens import GOLDENS, golden_table
from tests.jobs.test_stage_commit import stage
from tests.rivals import beside
from tests.tables import commit_stage, compact, make_table, write

COLUMNS = {"id": "INT NOT NULL", "v": "INT"}


def topology(context: TableContext) -> Finding:
    (found,) = findings_of(ExaminedTable(TableContext.open(context.url), "T"), OK, costs=(TOPOLOGY,))
    return found


def keyed(folder: Path, bucket: int = 4, **options: str) -> TableContext:
    return make_table(folder / "t", COLUMNS, ["id"], bucket=bucket, options={"write-only": "true", **options})


def row(id: int, value: int = 0) -> dict[str, Any]:
    return {"id": id, "v": value}


def upsert(context: TableContext, *ids: int, user: str, number: int, **more: Any) -> None:
    write(context, [row(id) for id in ids], commit_user=user, commit_id=number, **more)


def meet(context: TableContext, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Two users commit at the same time: the second one's commit comes between plan and commit of the first."""
    upsert(beside(context, lambda: upsert(context, *second, user="b", number=1)), *first, user="a", number=1)


def test_a_user_that_wrote_long_is_met_by_all_that_began_meanwhile() -> None:
    spans = {"long": (1, 9), "short": (2, 3), "late": (5, 6), "alone": (10, 11)}
    assert Writers(spans=spans).concurrent == {"long", "short", "late"}


def test_a_late_commit_with_low_numbers_hides_none_with_higher_ones(tmp_path: Path) -> None:
    """The rows of a staged write have the numbers of when it was staged."""
    context = keyed(tmp_path, 1)

    def staged(user: str) -> StageFile:
        return stage(context, f"staged-{user}", [row(1)], commit_user=user, commit_id=9)

    early = staged("a")
    upsert(context, *range(9), user="d", number=1)
    unseeing = staged("b")
    upsert(context, 1, user="a", number=2)
    for file in (early, unseeing):
        commit_stage(context, file)
    found = Writers.of(ExaminedTable(TableContext.open(context.url), "T"))
    assert {(snapshot.commit_user, other) for snapshot, other in found.unseen} == {("a", "d"), ("b", "a")}


def test_one_job_alone(tmp_path: Path) -> None:
    context = keyed(tmp_path)
    assert topology(context).message == "no recent commit wrote rows"
    for number in range(3):
        upsert(context, 1, 2, user="job", number=number)
    compact(context)
    found = topology(context)
    assert found.severity == OK and "1 user wrote and committed alone; 1 dedicated job compacted" in found.message


def test_jobs_one_after_the_other_see_each_other(tmp_path: Path) -> None:
    context = keyed(tmp_path)
    for user in "abc":
        upsert(context, 1, 2, user=user, number=1)
    found = topology(context)
    assert found.severity == OK and "3 users wrote and committed, one after the other" in found.message


def test_one_writer_per_bucket(tmp_path: Path) -> None:
    context = keyed(tmp_path)
    rows = [row(id) for id in range(40)]
    for number in range(3):
        for bucket in range(4):
            write(context, rows, commit_user=f"w{bucket}", commit_id=number, bucket=(bucket,), other_buckets="skip")
    found = topology(context)
    assert found.severity == OK and "4 users wrote and committed by turns (w0, w1, w2, ...)" in found.message
    assert "topology 1" in found.message and "no check is needed" in found.message
    assert (found.figures["shared_buckets"], found.figures["unseen_commits"]) == (0, 0)


def test_writers_of_a_bucket_that_do_not_see_each_other(tmp_path: Path) -> None:
    context = keyed(tmp_path, bucket=1)
    meet(context, (1, 2), (1,))
    found = topology(context)
    assert (found.code, found.severity, found.figures["unseen_commits"]) == ("PD029", WARNING, 1)
    assert "1 commit did not see" in found.message and "snapshot 2 (user a, after b)" in found.message
    assert found.command == "paimon-cli alter T set commit.data-conflict-check=bucket"
    Table.open(context.url).alter.set({"commit.data-conflict-check": "bucket"})
    cured = topology(context)
    assert cured.severity == OK and "the data conflict check refuses the second of two writers" in cured.message


def as_if_of_flink(context: TableContext) -> None:
    """Remove what tells the snapshots of this program from those of others."""
    for path in (Path(context.url) / "snapshot").glob("snapshot-*"):
        snapshot = json.loads(path.read_text())
        path.write_text(json.dumps({name: value for name, value in snapshot.items() if name != "properties"}))


def test_what_users_of_other_engines_can_do(tmp_path: Path) -> None:
    """They have no check: a column that orders the rows works in all engines."""
    context = keyed(tmp_path, bucket=1)
    meet(context, (1, 2), (1,))
    Table.open(context.url).alter.set({"commit.data-conflict-check": "bucket"})
    assert topology(context).severity == OK
    as_if_of_flink(context)
    found = topology(context)
    assert found.severity == WARNING and "one Flink job with a UNION ALL or a statement set, or name a column" in found.message
    assert found.command == "paimon-cli alter T set sequence.field=COLUMN"
    Table.open(context.url).alter.set({"sequence.field": "v"})
    cured = topology(context)
    assert cured.severity == OK and "a column decides which row wins" in cured.message


@pytest.mark.parametrize(
    ("bucket", "options", "command"),
    [(1, {"merge-engine": "first-row"}, ""), (-1, {}, "paimon-cli verify T --only bucket-index")],
)
def test_other_engines_where_no_column_can_decide(tmp_path: Path, bucket: int, options: dict[str, str], command: str) -> None:
    context = keyed(tmp_path, bucket=bucket, **options)
    if bucket == 1:
        meet(context, (2, 3), (2,))
    else:
        upsert(context, 1, user="a", number=1)
        upsert(context, 2, user="b", number=1)
        upsert(context, 3, user="a", number=2)
        upsert(context, 4, user="b", number=2)
    as_if_of_flink(context)
    found = topology(context)
    assert (found.code, found.command) == ("PD029", command) and "let one job write each bucket" in found.message


@pytest.mark.parametrize("option", [{"sequence.field": "v"}, {"sequence.snapshot-ordering": "true"}])
def test_an_order_of_rows_cures_it(tmp_path: Path, option: dict[str, str]) -> None:
    context = keyed(tmp_path, bucket=1, **option)
    meet(context, (1, 2), (1,))
    upsert(context, 1, user="b", number=2)
    found = topology(context)
    assert found.severity == OK and ("topology 2" in found.message) == (next(iter(option)) in found.message)


def test_rows_without_keys_have_no_order(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    meet(context, (1, 2), (1,))
    assert topology(context).severity == OK


def test_an_overwrite_begins_anew(tmp_path: Path) -> None:
    context = keyed(tmp_path, bucket=1)
    upsert(context, *range(20), user="a", number=1)
    upsert(context, 1, user="b", number=1, overwrite=True)
    upsert(context, 2, user="c", number=1)
    assert topology(context).figures["unseen_commits"] == 0


def test_several_writers_with_one_committer(tmp_path: Path) -> None:
    context = keyed(tmp_path)
    table, rows = Table.open(context.url), Table.open(context.url).scan().to_arrow().schema
    import pyarrow as pa

    data = pa.Table.from_pylist([row(id) for id in range(40)], rows)
    files = [str(tmp_path / f"{bucket}") for bucket in range(4)]
    for bucket, file in enumerate(files):
        table.write(data, bucket=bucket, other_buckets="skip", stage=file)
    table.stage.commit(files)
    found = topology(context)
    assert found.severity == OK and "up to 4 writers had one committer" in found.message


@pytest.mark.parametrize(
    ("name", "compactors"),
    [
        ("sixty_commits", ""),
        ("dedup_partitioned", ""),
        ("write_only_never_compacted", "no compaction ran"),
        ("write_only_then_compact", "1 writer compacted between writes"),
        ("append_unaware", ""),
        ("dynamic_bucket", ""),
        ("overwrite_drop_partition", "2 users wrote and committed by turns"),
    ],
)
def test_tables_of_java_are_judged_by_what_their_history_holds(name: str, compactors: str, tmp_path: Path) -> None:
    found = topology(TableContext.open(str(golden_table("java-0.9", name, tmp_path))))
    assert found.severity == OK and compactors in found.message and found.figures["unseen_commits"] == 0


def test_no_table_of_another_writer_is_suspected(tmp_path: Path) -> None:
    """All of them were written by one job at a time, or by jobs that followed each other."""
    for one in GOLDENS:
        found = topology(TableContext.open(str(golden_table(one.writer, one.name, tmp_path / one.writer))))
        assert found.severity == OK, (one.writer, one.name, found.message)


def test_health_shows_it_on_request_only(tmp_path: Path) -> None:
    context = keyed(tmp_path, bucket=1)
    meet(context, (1, 2), (1,))
    assert health_of(ExaminedTable(context, "T"), "t").problems == ()
    (found,) = health_of(ExaminedTable(context, "T"), "t", with_topology=True).problems
    assert found.code == "PD029"
