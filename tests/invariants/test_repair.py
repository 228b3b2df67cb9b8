"""Repairs are planned, then made as new snapshots; a table that was repaired passes `verify`."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from paimon_cli import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, StorageUnavailable
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants.hash_indexes import hashes_of
from paimon_cli.invariants.lost_commits import _entries
from paimon_cli.invariants.repair_plan import plan_repair
from paimon_cli.invariants.repair_steps import RepairKind, RepairPlan
from paimon_cli.invariants.violation import ERROR
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.repair_job import apply_repair
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.metadata.snapshot import OVERWRITE
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests import tables
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.goldens import golden_table
from tests.invariants import damages
from tests.invariants.damaged_tables import Bench, flip, keyed_table
from tests.rivals import beside


def plain_table(folder: Path) -> TableContext:
    context = tables.make_table(folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    for number in range(4):
        tables.write(context, [{"k": number, "v": f"v{number}"}, {"k": 10, "v": f"from {number}"}])
    return context


def errors(context: TableContext) -> list[str]:
    report = run_verify(context, VerifyRequest("full"), LocalEngine(), NoProgress())
    return [str(v) for v in report.violations if v.severity == ERROR]


def repaired(context: TableContext, *only: str, left: tuple[str, ...] = ()) -> RepairPlan:
    """Plan a repair, check that planning changed nothing, apply it, and verify the table.

    `left`: codes of what earlier snapshots did, which no repair changes.
    """
    before = {path: path.read_bytes() for path in Path(context.url).rglob("*") if path.is_file()}
    plan = plan_repair(context, only)
    assert before == {path: path.read_bytes() for path in Path(context.url).rglob("*") if path.is_file()}
    assert plan.changes
    apply_repair(context, plan)
    kept = {path: content for path, content in before.items() if path.name not in ("LATEST", "EARLIEST")}
    assert kept.items() <= {path: path.read_bytes() for path in kept}.items(), "nothing was changed in place"
    assert tuple(error[:5] for error in errors(context)) == left
    assert plan_repair(context, only).changes == 0, "nothing is left to do"
    return plan


def test_a_sound_table(tmp_path: Path) -> None:
    assert plan_repair(plain_table(tmp_path)).steps == []
    assert plan_repair(TableContext.open(str(keyed_table(tmp_path)))).steps == []


def test_hints(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    Path(context.layout.earliest_hint).write_text("zero")
    plan = repaired(context)
    assert [step.kind for step in plan.steps] == ["hints"] and context.snapshots.latest_id() == 4


def test_missing_files(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    newest = sorted(tables.live_files(context), key=lambda name: (Path(context.url) / name).stat().st_mtime_ns)[-1]
    (Path(context.url) / newest).unlink()
    plan = repaired(context)
    assert [step.kind for step in plan.steps] == ["dead-files"] and "2 rows" in plan.steps[0].loss
    assert tables.rows(context) == [{"k": 0, "v": "v0"}, {"k": 1, "v": "v1"}, {"k": 10, "v": "from 2"}, {"k": 2, "v": "v2"}]


def test_a_snapshot_in_the_middle(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    expected = tables.rows(context, snapshot_id=3)
    for number in (2, 3):
        Path(context.layout.snapshot(number)).unlink()
    repaired(context)
    assert context.snapshots.ids() == [1, 2, 3, 4] and tables.rows(context, snapshot_id=3) == expected


@pytest.mark.parametrize("follows", ["write", "compact"])
@pytest.mark.parametrize("bucket", [-1, 1])
def test_a_missing_snapshot_that_only_marked_rows(tmp_path: Path, bucket: int, follows: str) -> None:
    """The next snapshot still has the marks: the deleted rows do not come back, and it is seen which commit deleted them."""
    options = {"deletion-vectors.enabled": "true", **({"bucket-key": "k"} if bucket > 0 else {})}
    context = tables.make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, [], bucket=bucket, options=options)
    for first in (0, 10, 20):
        tables.write(context, [{"k": first + number, "v": "v"} for number in range(5)])
    run_update(context, UpdateRequest("k = 3"), LocalEngine(), NoProgress())
    expected = tables.rows(context)
    if follows == "write":
        tables.write(context, [{"k": 30, "v": "v"}])
    else:
        merge_unmarked(context)
    Path(context.layout.snapshot(4)).unlink()
    repaired(context)
    assert tables.rows(context, snapshot_id=4) == expected
    assert context.snapshots.get(4).commit_kind == OVERWRITE


def merge_unmarked(context: TableContext) -> None:
    """Compact the files of the only bucket in which no row is marked."""
    ((_, bucket),) = bucket_files(context, context.snapshots.latest()).items()
    marked = {vector.data_file_name for index in bucket.index_files for vector in index.deletion_vector_ranges or ()}
    task = plan_bucket(context, bucket, "full", context.snapshots.latest_id() or 0)
    assert isinstance(task, CompactionTask)
    chosen = tuple(file for file in bucket.files if file.file_name not in marked)
    message = run_compaction(context, replace(task, packs=(chosen,)).parts[0])
    Committer(context).commit([message], fresh_identity(context))


@pytest.mark.parametrize("plant", [damages.a_vector_dangles])
def test_dangling_vectors(tmp_path: Path, plant: Callable[[Bench], None]) -> None:
    bench = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    extra = damages.vector_entry(bench)
    ranges = extra.index_file.deletion_vector_ranges or ()
    dangling = replace(ranges[0], data_file_name="data-gone-0.parquet", offset=ranges[-1].offset, length=0)
    more = damages.with_ranges(extra, *ranges, dangling)
    expected = tables.rows(bench.context)
    bench.reforge(indexes=lambda entries: [more if e == extra else e for e in entries])
    plan = repaired(bench.context, "dv", left=("PV065",))
    assert [step.kind for step in plan.steps] == ["dv"] and "data-gone-0" in plan.steps[0].action
    assert tables.rows(bench.context) == expected


def test_a_missing_file_takes_its_vector_along(tmp_path: Path) -> None:
    bench = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    marked = (damages.vector_entry(bench).index_file.deletion_vector_ranges or ())[0].data_file_name
    next(bench.root.glob(f"bucket-*/{marked}")).unlink()
    plan = repaired(bench.context)
    assert sorted({step.kind for step in plan.steps}) == ["dead-files", "dv"]


def test_the_newest_snapshot_is_lost(tmp_path: Path) -> None:
    """The hint shows that it existed, and its manifests and files still do: the commit is made again."""
    context = plain_table(tmp_path)
    expected = tables.rows(context)
    Path(context.layout.snapshot(4)).unlink()
    assert tables.rows(context) != expected
    plan = repaired(context)
    assert [step.kind for step in plan.steps] == ["hints", "lost-commits"]
    assert "it gets the number of the commit" in plan.steps[0].action
    assert tables.rows(context) == expected and context.snapshots.latest_id() == 4
    assert Path(context.layout.latest_hint).read_text() == "4"


SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "changelog-producer": "input"}


def changes_of(context: TableContext, number: int) -> list[tuple[str, object]]:
    changed = Table.open(context.url).changelog(number)
    return sorted((row["rowkind"], row["n"]) for row in changed.to_arrow().to_pylist())


@pytest.mark.parametrize("options", [SUMS, {**SUMS, "changelog-file.prefix": "log-"}], ids=["usual names", "names of its own"])
def test_a_lost_commit_is_made_again_with_its_changelog(tmp_path: Path, options: dict[str, str]) -> None:
    """Its changelog files are not committed as data: sums would count their rows twice."""
    context = tables.make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "BIGINT"}, ["id"], options=options)
    for _ in range(3):
        tables.write(context, [{"id": 1, "n": 10}])
    changed = changes_of(context, 3)
    Path(context.layout.snapshot(3)).unlink()
    plan = repaired(context)
    assert [step.kind for step in plan.steps] == ["hints", "lost-commits"] and "1 changelog file" in plan.steps[1].action
    assert [row["n"] for row in tables.rows(context)] == [30] and context.snapshots.ids() == [1, 2, 3]
    assert changes_of(context, 3) == changed != []


def test_the_changelog_of_a_lost_compaction_is_no_commit(tmp_path: Path) -> None:
    options = {"changelog-producer": "full-compaction", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    context = tables.make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "BIGINT"}, ["id"], options=options)
    for _ in range(2):
        tables.write(context, [{"id": 1, "n": 10}])
    Table.open(context.url).compact()
    newest = context.snapshots.latest_id()
    assert newest is not None and context.snapshots.get(newest).changelog_manifest_list is not None
    Path(context.layout.snapshot(newest)).unlink()
    assert [step.kind for step in repaired(context).steps] == ["hints"]
    assert [row["n"] for row in tables.rows(context)] == [20]


def test_changelogs_that_cannot_be_told_from_data_are_left_to_the_user(tmp_path: Path) -> None:
    options = {**SUMS, "changelog-file.prefix": "data-"}
    context = tables.make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "BIGINT"}, ["id"], options=options)
    for _ in range(2):
        tables.write(context, [{"id": 1, "n": 10}])
    Path(context.layout.snapshot(2)).unlink()
    plan = plan_repair(context, ("lost-commits",))
    assert plan.changes == 0 and "data-file.prefix" in plan.steps[0].action


def test_hints_alone_take_the_sign_of_a_lost_commit_along_and_say_so(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    Path(context.layout.snapshot(4)).unlink()
    (step,) = plan_repair(context, ("hints",)).steps
    assert step.loss == "the only sign that snapshot 4 existed"
    assert plan_repair(context).steps[0].loss == ""


def test_a_repair_that_dies_while_it_commits_finds_the_lost_commit_again(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    expected = tables.rows(context)
    Path(context.layout.snapshot(4)).unlink()
    with mock.patch.object(Committer, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        apply_repair(context, plan_repair(context))
    repaired(context)
    assert tables.rows(context) == expected


def test_a_snapshot_is_overwritten(tmp_path: Path) -> None:
    """Two writers that both thought they had number 4 look like a failed commit, so the user has to decide."""
    context = plain_table(tmp_path)
    other = shutil.copytree(context.url, tmp_path / "copy")
    loser = TableContext.open(str(other))
    tables.write(context, [{"k": 77, "v": "first"}])
    tables.write(loser, [{"k": 88, "v": "second"}])
    shutil.copytree(other, context.url, dirs_exist_ok=True)
    keys = {row["k"] for row in tables.rows(context)}
    assert 77 not in keys and 88 in keys
    plan = plan_repair(context)
    assert plan.changes == 0 and [step.kind for step in plan.steps] == [RepairKind.BY_HAND]
    assert plan.steps[0].command.endswith("--only lost-commits --apply --yes")
    assert plan_repair(context, ("lost-commits",), 3_600_000).changes == 0, "too young"
    repaired(context, "lost-commits")
    assert {77, 88} <= {row["k"] for row in tables.rows(context)}


@pytest.mark.parametrize("oldest", ["as written", "base lists"])
def test_base_lists_are_no_lost_commits(tmp_path: Path, oldest: str) -> None:
    """A history was begun again over lost snapshots: older commits are made again once, though base lists repeat their files."""
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    for number in range(4):
        tables.write(context, [{"n": number}])
    shutil.rmtree(context.layout.snapshot_directory)
    tables.write(context, [{"n": 4}])
    if oldest == "base lists":
        lists = Path(context.layout.manifest_directory).glob("manifest-list-*")
        for age, path in enumerate(sorted(lists, key=lambda path: -len(_entries(context, path.name)))):
            os.utime(path, (1e9 + age, 1e9 + age))
    plan = repaired(context, "lost-commits")
    assert len(plan.steps) == 4
    assert sorted(row["n"] for row in tables.rows(context)) == [0, 1, 2, 3, 4]


def test_a_lost_commit_with_a_file_that_was_cut_off_is_not_made_again(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    newest = max(tables.live_files(context), key=lambda name: (Path(context.url) / name).stat().st_mtime_ns)
    Path(context.layout.snapshot(4)).unlink()
    cut(f"{context.url}/{newest}")
    assert plan_repair(context, ("lost-commits",)).steps == []


def test_commits_whose_rows_were_compacted_before_they_expired_are_not_lost(tmp_path: Path) -> None:
    """An expiry was killed between the snapshots and their files, which only manifests of compactions still name."""
    columns = {"p": "INT NOT NULL", "k": "INT NOT NULL"}
    context = tables.make_table(tmp_path / "t", columns, ["p", "k"], ["p"], options={"write-only": "true"})
    for partition in (0, 1):
        for number in range(2):
            tables.write(context, [{"p": partition, "k": number}])
    for partition in (0, 1):
        Table.open(context.url).compact(strategy="full", partition={"p": partition})
    for number in range(1, 5):
        Path(context.layout.snapshot(number)).unlink()
    assert plan_repair(context, ("lost-commits",)).steps == []


def test_commits_of_which_changelogs_are_kept_are_not_lost(tmp_path: Path) -> None:
    """The changelogs keep the files of expired commits, which no manifest of a snapshot names any more."""
    retained = {"changelog.num-retained.max": "40", "snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"}
    options = {"write-only": "true", **retained}
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options=options)
    for number in range(3):
        tables.write(context, [{"k": number}])
    table = Table.open(context.url)
    table.compact(strategy="full")
    table.compact_manifests()
    table.expire(retain_max=1, retain_min=1)
    kept = ChangelogHistory(context.storage, context.layout).all()
    assert [len(context.manifests.delta_entries(changelog)) for changelog in kept][:3] == [1, 1, 1]
    assert plan_repair(context, ("lost-commits",)).steps == []


@pytest.fixture
def branched(tmp_path: Path) -> TableContext:
    """A table with a commit of its own, one in its branch `side`, and one above that."""
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    Table.open(context.url).branches.create("side")
    for number, name in enumerate((MAIN_BRANCH, "side", MAIN_BRANCH)):
        tables.write(context.at_branch(name), [{"n": number}])
    return context


@pytest.mark.parametrize("name", [MAIN_BRANCH, "side"])
def test_commits_to_other_branches_are_not_lost(branched: TableContext, name: str) -> None:
    assert plan_repair(branched.at_branch(name), ("lost-commits",)).steps == []


def test_a_commit_of_an_unreadable_branch_is_not_made_again(branched: TableContext) -> None:
    path = branched.layout.of_branch("side").snapshot(1)
    cut(path)
    (step,) = plan_repair(branched, ("lost-commits",)).steps
    assert (step.kind, step.path) == (RepairKind.BY_HAND, path) and "would look lost" in step.action
    assert kinds(plan_repair(branched)) == [RepairKind.BY_HAND], "named once, with the ways out"


def test_the_command_for_a_young_lost_commit_makes_it_again(run: Run, tmp_path: Path) -> None:  # noqa: F811
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    for number in range(2):
        tables.write(context, [{"n": number}])
    shutil.rmtree(context.layout.snapshot_directory)
    tables.write(context, [{"n": 2}])
    done = run("repair", context.url, "--apply", "--yes", code=4)
    assert "0 repairs made" in done.out and "2 steps of the plan are manual" in done.err
    (command,) = {item["command"] for item in run("repair", context.url, "-o", "json").json["items"]}
    assert "2 repairs made" in run(*shlex.split(command)[1:]).out
    assert len(tables.rows(context)) == 3 and not plan_repair(context).steps


def test_a_young_lost_commit_is_left_alone_even_if_it_is_asked_for(tmp_path: Path) -> None:
    """Its writer may still be running, and would commit it a second time."""
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    for number in range(2):
        tables.write(context, [{"n": number}])
    shutil.rmtree(context.layout.snapshot_directory)
    tables.write(context, [{"n": 2}])
    for min_age, kind in ((3_600_000, RepairKind.BY_HAND), (0, RepairKind.LOST_COMMITS)):
        plan = plan_repair(context, (RepairKind.LOST_COMMITS,), min_age)
        assert {step.kind for step in plan.steps} == {kind} and bool(plan.commits) == (not min_age)


def test_a_hint_without_any_history_is_deleted(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    hint = Path(context.layout.latest_hint)
    hint.parent.mkdir(exist_ok=True)
    hint.write_text("4")
    repaired(context, "hints")
    assert not hint.exists()


def test_what_cannot_be_mended(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    bench = Bench(Path(context.url))
    bench.delta_manifest(4).write_bytes(b"")
    plan = plan_repair(context)
    assert plan.changes == 0 and plan.steps[-1].command.endswith("rollback " + context.url + " --to 3 --yes")


def test_command(run: Run, tmp_path: Path) -> None:  # noqa: F811
    context = plain_table(tmp_path)
    (Path(context.url) / min(tables.live_files(context))).unlink()
    text = run("repair", context.url).out
    assert "1 to make" in text and "lost: 2 rows" in text and "nothing was changed" in text
    items = run("repair", context.url, "-o", "json").json["items"]
    assert items[0]["kind"] == "dead-files"
    run("repair", context.url, "--apply", code=7)
    assert "1 to make" in run("repair", context.url, "--apply", "--yes", "--dry-run").out
    assert run("repair", context.url, "--apply", "--yes", "--dry-run", "-o", "json").json["kind"] == "RepairPlan"
    assert "new snapshots: 5" in run("repair", context.url, "--apply", "-y").out
    said = run("repair", context.url).out
    assert "0 to make" in said and f"paimon-cli repair {context.url} --only damaged-files,file-index,hash-index" in said
    run("verify", context.url, "--level", "full")
    run("repair", context.url, "--only", "everything", code=2)
    run("repair", context.url, "--older-than", "soon", code=2)


def test_programs_are_told_what_was_repaired(run: Run, tmp_path: Path) -> None:  # noqa: F811
    context = plain_table(tmp_path)
    (Path(context.url) / min(tables.live_files(context))).unlink()
    (planned,) = run("repair", context.url, "-o", "json").json["items"]
    done = run("repair", context.url, "--apply", "-y", "-o", "json").json
    assert (done["kind"], done["made"], done["snapshots"], done["items"]) == ("RepairSummary", 1, [5], [planned])
    again = run("repair", context.url, "--apply", "-y", "-o", "json").json
    assert (again["kind"], again["made"], again["snapshots"], again["items"]) == ("RepairSummary", 0, [], [])


def test_a_gap_that_no_longer_exists(tmp_path: Path) -> None:
    """Another job rolls back between plan and repair."""
    context = plain_table(tmp_path)
    Path(context.layout.snapshot(2)).unlink()
    plan = plan_repair(context)
    for number in (3, 4):
        Path(context.layout.snapshot(number)).unlink()
    with pytest.raises(Conflict, match=r"snapshot 2 .* no longer between two snapshots"):
        apply_repair(context, plan)


def test_a_restored_snapshot_that_lost_the_race_leaves_no_metadata(tmp_path: Path) -> None:
    """Another process restores the same number first; the metadata of this one could later be taken for a lost commit."""
    context = plain_table(tmp_path)
    path = Path(context.layout.snapshot(3))
    theirs = path.read_bytes().replace(b'"commitUser" : "', b'"commitUser" : "their ')
    path.unlink()
    plan = plan_repair(context, ("chain",))
    manifests = sorted(Path(context.layout.manifest_directory).iterdir())
    put = LocalStorage.put_if_absent

    def late(self: LocalStorage, path: str, data: bytes) -> PutOutcome:
        put(self, path, theirs)
        return put(self, path, data)

    with mock.patch.object(LocalStorage, "put_if_absent", late), pytest.raises(StorageUnavailable, match="snapshot 3"):
        apply_repair(context, plan)
    assert sorted(Path(context.layout.manifest_directory).iterdir()) == manifests and path.read_bytes() == theirs
    assert errors(context) == [] and plan_repair(context).steps == []


def test_a_restored_snapshot_of_unknown_fate_keeps_its_metadata(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    Path(context.layout.snapshot(3)).unlink()
    plan = plan_repair(context, ("chain",))
    count = len(list(Path(context.layout.manifest_directory).iterdir()))
    patient = context.with_options({"commit.min-retry-wait": "0 ms"})
    silent = mock.patch.object(LocalStorage, "put_if_absent", lambda *_: PutOutcome.UNKNOWN)
    with silent, pytest.raises(CommitUnknown):
        apply_repair(patient, plan)
    assert len(list(Path(context.layout.manifest_directory).iterdir())) > count


def cut(path: str) -> bytes:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:60])
    return content[:60]


def kinds(plan: RepairPlan) -> list[str]:
    return [step.kind for step in plan.steps]


def applied(context: TableContext, *only: str) -> RepairPlan:
    plan = plan_repair(context, only)
    apply_repair(context, plan)
    assert errors(context) == []
    return plan


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_older_snapshot_that_cannot_be_read(tmp_path: Path, number: int) -> None:
    context = plain_table(tmp_path)
    expected = tables.rows(context)
    left = cut(context.layout.snapshot(number))
    plan = applied(context)
    assert kinds(plan) == (["damaged-versions"] if number == 1 else ["damaged-versions", "chain"])
    assert tables.rows(context) == expected and plan_repair(context).steps == []
    assert context.snapshots.ids() == [1, 2, 3, 4][number == 1 :]
    (kept,) = (tmp_path / "t/damaged").iterdir()
    assert kept.read_bytes() == left and kept.name.startswith(f"snapshot-{number}-")


def test_the_newest_snapshot_cannot_be_read(tmp_path: Path) -> None:
    """Its commit is found by the files that it left, and made again."""
    context = plain_table(tmp_path)
    expected = tables.rows(context)
    cut(context.layout.snapshot(4))
    plan = applied(context)
    assert kinds(plan) == ["damaged-versions", "hints", "lost-commits"]
    assert tables.rows(context) == expected and context.snapshots.latest_id() == 4


def test_a_tag_and_a_changelog_that_cannot_be_read(tmp_path: Path) -> None:
    context = TableContext.open(str(keyed_table(tmp_path)))
    cut(context.layout.tag("kept"))
    cut(context.layout.changelog(1))
    plan = applied(context)
    assert kinds(plan) == ["damaged-versions", "damaged-versions"] and "tag kept" in plan.steps[0].loss
    assert context.tags.names() == [] and len(list((tmp_path / "keyed/damaged").iterdir())) == 2


def test_what_is_whole_by_then_is_not_set_aside(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    path = Path(context.layout.snapshot(4))
    content = path.read_bytes()
    cut(str(path))
    plan = plan_repair(context, ("damaged-versions",))
    path.write_bytes(content)
    with pytest.raises(Conflict, match="no longer damaged"):
        apply_repair(context, plan)
    assert path.read_bytes() == content and not (tmp_path / "t/damaged").exists()


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_data_file_that_is_not_whole(tmp_path: Path, damage: str) -> None:
    """It may come back from a copy, so it is left out only on request."""
    context = plain_table(tmp_path)
    newest = sorted(tables.live_files(context), key=lambda name: (Path(context.url) / name).stat().st_mtime_ns)[-1]
    path = Path(context.url) / newest
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:50])
        step = plan_repair(context).steps[0]
        assert step.kind == RepairKind.BY_HAND and "it has 50 bytes" in step.action
        assert step.command == f"paimon-cli repair {context.url} --only damaged-files --apply --yes"
    else:
        flip(path, 40)
        assert plan_repair(context).steps == [], "only the look at every row sees it"
    before = path.read_bytes()
    plan = applied(context, "damaged-files")
    assert kinds(plan) == ["damaged-files"] and "2 rows" in plan.steps[0].loss
    assert path.read_bytes() == before and [row["k"] for row in tables.rows(context)] == [0, 1, 10, 2]


def test_consumers_and_branches_are_repaired_by_the_suggested_commands(run: Run, tmp_path: Path) -> None:  # noqa: F811
    context = TableContext.open(str(keyed_table(tmp_path)))
    Path(context.layout.consumer("reader")).write_text("x")
    cut(context.layout.of_branch("b").snapshot(1))
    plan = plan_repair(context)
    assert kinds(plan) == [RepairKind.BY_HAND, RepairKind.BY_HAND]
    for step in plan.steps:
        run(*step.command.split()[1:], *(["-y"] if " branches rm " in step.command else []))
    assert errors(context) == [] and plan_repair(context).steps == []


DAMAGED_INDEXES = [damages.an_index_file_is_missing, damages.an_index_file_is_longer, damages.a_vector_is_flipped]


@pytest.mark.parametrize("plant", DAMAGED_INDEXES)
def test_index_files_come_back_from_a_copy_only(tmp_path: Path, plant: Callable[[Bench], None]) -> None:
    bench = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    path = damages.index_path(bench, damages.vector_entry(bench))
    plant(bench)
    (step,) = plan_repair(bench.context).steps
    assert (step.kind, step.path) == (RepairKind.BY_HAND, str(path)) and "from a backup" in step.action


def test_hints_are_right_although_a_listing_hides_the_newest(tmp_path: Path) -> None:
    context = plain_table(tmp_path)
    with mock.patch.object(SnapshotHistory, "ids", lambda self: [1, 2, 3]):
        assert plan_repair(context, ("hints",)).steps == []
    Path(context.layout.earliest_hint).write_text("4")
    assert kinds(plan_repair(context, ("hints",))) == ["hints"]


def dynamic_table(folder: Path) -> TableContext:
    """Two partitions with three and two dynamic buckets; a key of the first is deleted."""
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL"}
    options = {"dynamic-bucket.target-row-num": "10", "write-only": "true"}
    context = tables.make_table(folder / "t", columns, ["p", "k"], ["p"], bucket=-1, options=options)
    tables.write(context, [{"p": p, "k": k} for p, count in (("a", 25), ("b", 15)) for k in range(count)])
    tables.write(context, [{"p": "a", "k": 3}], op="delete")
    return context


def index_paths(context: TableContext) -> list[Path]:
    latest = context.snapshots.latest()
    assert latest is not None
    return [Path(context.layout.index(entry.index_file.file_name)) for entry in context.manifests.index_entries(latest)]


def lose_index(paths: list[Path]) -> None:
    paths[0].unlink()


def cut_index(paths: list[Path]) -> None:
    paths[1].write_bytes(paths[1].read_bytes()[:-2])


def forget_a_hash(paths: list[Path]) -> None:
    paths[4].write_bytes(b"\1\2\3\4" + paths[4].read_bytes()[4:])


def share_a_hash(paths: list[Path]) -> None:
    paths[2].write_bytes(paths[0].read_bytes()[:4] + paths[2].read_bytes()[4:])


@pytest.mark.parametrize("damage", [lose_index, cut_index, forget_a_hash, share_a_hash])
def test_hash_indexes_are_made_again_from_the_keys(tmp_path: Path, damage: Callable[[list[Path]], None]) -> None:
    context = dynamic_table(tmp_path)
    before = [sorted(hashes_of(context, str(path)).tolist()) for path in index_paths(context)]
    assert repair_steps(context) == []
    damage(index_paths(context))
    assert errors(context)
    only = ("hash-index",) if damage is forget_a_hash else ()  # that it lacks a key shows only in the rows
    repaired(context, *only)
    assert [sorted(hashes_of(context, str(path)).tolist()) for path in sorted_paths(context)] == before
    tables.write(context, [{"p": "a", "k": k} for k in range(30)])
    assert len(tables.rows(context)) == 45 and errors(context) == []


def repair_steps(context: TableContext) -> list[str]:
    return [step.action for only in ((), ("hash-index",)) for step in plan_repair(context, only).steps]


def sorted_paths(context: TableContext) -> list[Path]:
    """Paths by partition and bucket, initially in the order of the index manifest."""
    latest = context.snapshots.latest()
    assert latest is not None
    entries = sorted(context.manifests.index_entries(latest), key=lambda entry: entry.bucket_id)
    return [Path(context.layout.index(entry.index_file.file_name)) for entry in entries]


def test_buckets_without_an_index_get_one(tmp_path: Path) -> None:
    """As after a writer that did not support dynamic buckets."""
    context = dynamic_table(tmp_path)
    latest = context.snapshots.latest()
    assert latest is not None
    entries = context.manifests.index_entries(latest)
    gone = [CommitMessage(*e.bucket_id, -1, append=FileChanges(removed_indexes=(e.index_file,))) for e in entries]
    Committer(context).commit(gone, fresh_identity(context))
    with pytest.raises(DamagedFile, match="rows but no hash index") as failure:
        tables.write(context, [{"p": "a", "k": 1}])
    assert failure.value.hint.endswith(f": paimon-cli repair {context.url} --only hash-index --apply --yes")
    assert len(repaired(context).steps) == 5
    tables.write(context, [{"p": "a", "k": k} for k in range(30)])
    assert len(tables.rows(context)) == 45 and errors(context) == []


def test_a_key_with_rows_in_two_buckets_is_for_the_user_to_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = dynamic_table(tmp_path)
    monkeypatch.setattr("paimon_cli.commit.committer.check_hash_indexes", lambda *given: None)
    rows = [{"p": "b", "k": k} for k in (100, 101, 102)]
    tables.write(beside(context, lambda: tables.write(context, rows)), [{"p": "b", "k": k} for k in (90, 91, 92, 93, 94, 100)])
    plan = plan_repair(context, ("hash-index",))
    assert [step.action[:36] for step in plan.steps if step.kind == RepairKind.BY_HAND] == [
        "1 key may have rows in two buckets, "
    ]
    assert plan.changes
    apply_repair(context, plan)
    assert {v.split()[0] for v in errors(context)} == {"PV042"}


def test_a_rebuilt_index_gives_way_to_a_writer(tmp_path: Path) -> None:
    context = dynamic_table(tmp_path)
    paths = index_paths(context)
    forget_a_hash(paths)
    plan = plan_repair(context, ("hash-index",))
    tables.write(context, [{"p": "b", "k": 50}])
    files = set(Path(context.layout.index_directory).iterdir())
    with pytest.raises(Conflict):
        apply_repair(context, plan)
    assert set(Path(context.layout.index_directory).iterdir()) == files


@pytest.mark.parametrize(
    ("spoil", "only"),
    [
        (lambda content: content[:20], ()),
        (lambda content: content[:200] + bytes(len(content) - 200), ("file-index",)),
    ],
    ids=["cut", "wrong"],
)
def test_wrong_file_indexes_are_no_longer_listed(tmp_path: Path, spoil: Callable[[bytes], bytes], only: tuple[str, ...]) -> None:
    """An index of zeros hides rows from every read with a condition on its column."""
    options = {
        "file-index.bloom-filter.columns": "v",
        "file-index.in-manifest-threshold": "1 b",
        "deletion-vectors.enabled": "true",
    }
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    tables.write(context, [{"k": k, "v": "x"} for k in range(50)])
    tables.write(context, [{"k": 3, "v": "y"}])
    rows = tables.rows(context)
    found = list(Path(context.url).glob("bucket-0/*.index"))
    for path in found:
        path.write_bytes(spoil(path.read_bytes()))
    plan = repaired(context, *only)
    assert {step.kind for step in plan.steps} == {"file-index"} and len(plan.steps) == len(found)
    assert tables.rows(context) == rows
    latest = context.snapshots.latest()
    assert latest is not None and all(not entry.file.extra_files for entry in context.manifests.live_entries(latest))


def test_a_lost_file_and_a_wrong_index_of_one_bucket_are_repaired_together(tmp_path: Path) -> None:
    options = {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b", "write-only": "true"}
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    for number in range(2):
        tables.write(context, [{"k": number, "v": "x"}])
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    gone, other = sorted(context.manifests.live_entries(snapshot), key=lambda entry: entry.file.min_sequence_number)
    bucket = Path(context.url) / "bucket-0"
    (bucket / gone.file.file_name).unlink()
    (bucket / other.file.extra_files[0]).write_bytes(b"no index")
    plan = repaired(context)
    assert {step.kind for step in plan.steps} == {RepairKind.DEAD_FILES, RepairKind.FILE_INDEX}
    assert tables.rows(context) == [{"k": 1, "v": "x"}]


def test_a_hint_is_no_reason_to_delete(tmp_path: Path) -> None:
    """Good history below a gap, and an EARLIEST above it: a copy of a table that was made by hand."""
    context = plain_table(tmp_path)
    Path(context.layout.earliest_hint).write_text("4")
    Path(context.layout.snapshot(3)).unlink()
    plan = plan_repair(context)
    assert [step.kind for step in plan.steps] == [RepairKind.BY_HAND, RepairKind.BY_HAND] and plan.changes == 0
    expire_snapshots(context)
    assert all(Path(context.layout.snapshot(number)).exists() for number in (1, 2, 4))


def test_a_gap_where_a_history_begins_anew_is_not_filled(tmp_path: Path) -> None:
    """Main has become a branch that had lost its oldest snapshots. What is missing between has expired with its files: a snapshot
    that named them again could not be read.
    """
    table = Table(plain_table(tmp_path))
    table.branches.create("dev", snapshot=2)
    other = Table(table.context.at_branch("dev"))
    for number in range(4):
        other.write([{"k": number, "v": "dev"}], compact="none")
    other.compact(strategy="full")
    other.expire(retain_max=1, retain_min=1)
    (first,) = other.snapshot_ids()
    assert first > 5
    table.branches.fast_forward("dev")
    (gap,) = plan_repair(table.context).steps
    assert gap.kind == RepairKind.BY_HAND and f"begins anew at snapshot {first}" in gap.action
    assert not apply_repair(table.context, plan_repair(table.context)).snapshots
    assert {row["v"] for row in table.scan(where="k < 4").to_arrow().to_pylist()} == {"dev"}
