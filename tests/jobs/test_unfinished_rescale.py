"""A rescale that was killed is finished by the next round of a service, unless it had committed nothing."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from paimon_cli import Table
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import SetOption
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import unfinished_rescale
from paimon_cli.jobs import rescale_job
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.service.maintenance import REQUEST
from paimon_cli.requests.maintenance import RescaleOptions
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.jobs.test_online_rescale import counts, made, put, sound, values
from tests.nightly import at_night
from tests.rivals import Killed, Mortal
from tests.tables import make_table, write


def rescaled(context: TableContext, buckets: int = 4, **options: Any) -> None:
    table = TableContext.open(context.url, storage=context.storage)
    run_rescale(table, plan_rescale(table, RescaleOptions(buckets, **options)), LocalEngine(), NoProgress())


def killed_before_the_option(context: TableContext, buckets: int = 4, **options: Any) -> None:
    with patch.object(rescale_job, "alter_table", side_effect=Killed), pytest.raises(Killed):
        rescaled(context, buckets, **options)


def served(context: TableContext) -> CompactSummary:
    """One round of a service."""
    return run_compact(TableContext.open(context.url), REQUEST, LocalEngine(), NoProgress())


def option(context: TableContext) -> int:
    return TableContext.open(context.url).options.bucket


def unfinished(context: TableContext) -> bool:
    return plan_compaction(TableContext.open(context.url), REQUEST).unfinished is not None


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("step", [5, at_night(1)])
def test_a_run_that_is_killed_at_any_step(step: int, online: bool, tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    before, found = values(context), set[tuple[int, bool]]()
    for number in range(0, 1000, step):
        copy = TableContext.open(str(shutil.copytree(tmp_path / "t", tmp_path / str(number))))
        mortal = Mortal(number)
        with contextlib.suppress(Killed):
            rescaled(replace(copy, storage=mortal), online=online)
        done = served(copy)
        assert option(copy) in (2, 4) and counts(copy) == {option(copy)} and values(copy) == before
        found.add((option(copy), bool(done.rescaled_to)))
        put(TableContext.open(copy.url), [1], "after")
        if mortal.left >= 0:
            break
        shutil.rmtree(copy.url)
    else:
        raise AssertionError("the run never ends")
    assert found == {(2, False), (4, True), (4, False)}


def test_partitions_that_a_writer_has_begun_before_the_option_changes(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    killed_before_the_option(context, online=True)
    put(TableContext.open(context.url), range(20), "begun", "c")
    before = values(context)
    assert counts(context) == {2, 4}
    done = served(context)
    assert (done.rescaled_to, option(context), counts(context)) == (4, 4, {4})
    assert values(context) == before and sound(context)
    assert not served(context).has_changed


def test_partitions_that_a_writer_has_begun_just_before_the_option_changed(tmp_path: Path) -> None:
    """The command looks for them after the option has changed; it is killed before that."""
    context = made(tmp_path / "t")
    real = rescale_job._expect_nothing_left

    def then_one_begins(*given: Any) -> None:
        real(*given)
        put(TableContext.open(context.url), range(20), "begun", "c")

    again = rescale_job.rescale_beside_writers
    with (
        patch.object(rescale_job, "_expect_nothing_left", then_one_begins),
        patch.object(rescale_job, "rescale_beside_writers", side_effect=[again, Killed]) as runs,
        pytest.raises(Killed),
    ):
        runs.side_effect = lambda *given: again(*given) if runs.call_count == 1 else raise_killed()
        rescaled(context, online=True)
    before = values(context)
    assert (option(context), counts(context)) == (4, {2, 4})
    assert served(context).rescaled_to == 4 and counts(context) == {4} and values(context) == before
    put(TableContext.open(context.url), [1], "after", "c")


def raise_killed() -> None:
    raise Killed


def test_a_service_that_comes_while_the_command_still_runs(tmp_path: Path) -> None:
    """It takes the command for a dead one, and changes the option in its place."""
    context, real = made(tmp_path / "t"), alter_table
    before = values(context)

    def served_first(*given: Any) -> Any:
        with patch.object(rescale_job, "alter_table", real):
            assert served(context).rescaled_to == 4
        return real(*given)

    with patch.object(rescale_job, "alter_table", served_first):
        rescaled(context, online=True)
    assert (option(context), counts(context)) == (4, {4}) and values(context) == before
    assert len(list(Path(context.url, "schema").glob("schema-*"))) == 2


def test_a_count_that_was_chosen_for_a_partition_stays(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    rescaled(context)
    put(TableContext.open(context.url), range(20), "late", "c")
    rescaled(context, 2, partition=[{"p": "c"}])
    assert not unfinished(context) and not served(context).has_changed and counts(context) == {2, 4}


def test_an_option_that_was_changed_before_the_files_is_not_ours(tmp_path: Path) -> None:
    """As Paimon's documentation says it: change the option, then overwrite the partitions."""
    context = made(tmp_path / "t")
    alter_table(context, [SetOption("bucket", "4", fits_files=True)])
    assert not unfinished(context) and not served(context).has_changed
    assert (option(context), counts(context)) == (4, {2})


def test_an_option_that_was_changed_back_after_the_rescale_stays(tmp_path: Path) -> None:
    """The rescale was finished; its owner wants the old count again, and changes the option first."""
    context = made(tmp_path / "t")
    rescaled(context)
    alter_table(TableContext.open(context.url), [SetOption("bucket", "2")])
    assert not unfinished(context) and not served(context).has_changed
    assert (option(context), counts(context)) == (2, {4})
    (row, *_) = Table.open(context.url).bucket_plan()
    assert row.new_buckets == 2 and "option says bucket=2" in row.reason


def test_other_options_may_change_before_it_is_finished(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    killed_before_the_option(context)
    for value in ("5", "6"):
        alter_table(TableContext.open(context.url), [SetOption("num-sorted-run.compaction-trigger", value)])
    assert served(context).rescaled_to == 4 and (option(context), counts(context)) == (4, {4})


@pytest.mark.parametrize("way", ["rescale", "restore"])
def test_a_rescale_that_the_user_has_withdrawn(way: str, tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    killed_before_the_option(context)
    if way == "rescale":
        rescaled(context, 2)
    else:
        Table.open(context.url).rollback("1", as_new=True)
    assert counts(context) == {2} and not unfinished(context) and option(context) == 2


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("buckets", "options"),
    [(2, {"deletion-vectors.enabled": "true"}), (2, {"changelog-producer": "lookup"}), (-1, {})],
)
@pytest.mark.parametrize("new", [3, 4])
def test_kinds_that_are_rescaled_while_nobody_writes(buckets: int, new: int, options: Mapping[str, str], tmp_path: Path) -> None:
    context = made(tmp_path / "t", buckets, options)
    before = values(context)
    killed_before_the_option(context, new)
    done = served(context)
    assert (done.rescaled_to, option(context), counts(context)) == (new, new, {new})
    assert values(context) == before and sound(context)
    put(TableContext.open(context.url), [1], "after")


def test_append_tables(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING", "k": "INT"}, [], ["p"], 2, {"bucket-key": "k"})
    write(context, [{"p": "a", "k": k} for k in range(40)])
    killed_before_the_option(context, 3)
    assert served(context).rescaled_to == 3 and (option(context), counts(context)) == (3, {3})


@pytest.mark.parametrize("text", ["", "[2]", '["2", 4]', "[2, 4", "[2, 0]", "[2, 99999999999]", "[2, true]", "7", "[" * 100_000])
def test_records_of_others(text: str, tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    killed_before_the_option(context)
    path = Path(context.url, "snapshot", "snapshot-2")
    snapshot = json.loads(path.read_text())
    snapshot["properties"]["paimon-cli.rescale"] = text
    path.write_text(json.dumps(snapshot))
    now = TableContext.open(context.url)
    latest = now.snapshots.latest()
    assert latest is not None and unfinished_rescale(now, now.manifests.live_files(latest).bucket_counts()) is None


def test_commands(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context, file = made(tmp_path / "t"), tmp_path / "rows.csv"
    file.write_text("p,k,v\na,1,x\n")
    killed_before_the_option(context, online=True)
    plan = json.loads(run("rescale", context.url, "--buckets", 4, "--online", "--dry-run", "-o", "json").out)
    assert (plan["items"], plan["changes_option"], plan["buckets"]) == ([], True, 4)
    health = run("health", context.url, code=4).out
    assert "a rescale from 2 to 4 buckets was interrupted" in health and "--buckets 4 --yes" in health
    assert "maintain finishes it" in run("write", context.url, file, code=2).err
    put(TableContext.open(context.url), range(20), "begun", "c")
    planned = json.loads(run("buckets", "plan", context.url, "-o", "json").out)["items"]
    assert [(row["action"], row["new_buckets"]) for row in planned] == [("keep", 4), ("keep", 4), ("rescale", 4)]
    told = run("maintain", context.url, "--dry-run").out
    assert "a rescale to 4 buckets that was interrupted is to be finished" in told and option(context) == 2
    assert "that was interrupted was finished" in run("maintain", context.url, "--yes").out
    assert option(context) == 4 and "PD024" not in run("health", context.url, code=None).out
    assert "nothing to do" in run("maintain", context.url, "--dry-run").out


def test_what_a_service_has_mended_is_no_finding_of_its_round(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context = made(tmp_path / "t")
    killed_before_the_option(context, online=True)
    done = run("maintain", context.url, "--yes", "--watch", "--max-rounds", 1, code=None)
    assert "rescale to 4 buckets finished" in done.out + done.err and "PD024" not in done.out + done.err
