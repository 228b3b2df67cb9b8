"""Operations that remove something, or repair a damaged history, and how the table shows that they were done."""

from __future__ import annotations

from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants.repair_plan import plan_repair
from paimon_cli.jobs.metadata_jobs import plan_drop, run_drop
from paimon_cli.jobs.repair_job import apply_repair
from paimon_cli.maintain.branches import create_branch, remove_branch
from paimon_cli.maintain.expire_changelogs import expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags
from paimon_cli.metadata.snapshot import OVERWRITE
from tests.faults.bench import Actor, Bench, Rows
from tests.faults.start_tables import long_history, two_writes

KEEP_TWO = Retention(at_least=2, at_most=2, millis=0, limit=None)
PARTITION = {"p": "0"}


def drop_partition(actor: Actor) -> None:
    _drop(actor, [PARTITION])


def truncate(actor: Actor) -> None:
    _drop(actor, [])


def _drop(actor: Actor, partitions: list[dict[str, str]]) -> None:
    context = actor.context()
    identity = CommitIdentity("job", 7)
    run_drop(context, partitions, plan_drop(context, partitions, identity), identity)


def times_dropped(actor: Actor) -> int:
    return sum(snapshot.commit_kind == OVERWRITE for snapshot in actor.context().snapshots.newest_first())


def with_an_old_tag(bench: Bench) -> Rows:
    """Only the tag holds files of a snapshot that has expired."""
    rows = long_history(bench)
    context = bench.healthy().context()
    create_tag(context, "old", 1)
    expire_snapshots(bench.healthy().context(), KEEP_TWO)
    return rows


def remove_old_tag(actor: Actor) -> None:
    context = actor.context()
    if not is_untagged(actor):
        remove_tags(context, plan_removal(context, ["old"]), delete_files(context))


def is_untagged(actor: Actor) -> int:
    return int(actor.context().tags.find("old") is None)


def branch_off(actor: Actor) -> None:
    """What an earlier life has begun is deleted first, as the error would advise."""
    context = actor.context()
    if not is_branched(actor):
        if "made" in context.branches.directories():
            remove_branch(context, "made")
        create_branch(context, "made", snapshot_id=2)


def is_branched(actor: Actor) -> int:
    return int(actor.bench.inner.exists(actor.bench.layout.of_branch("made").snapshot(2)))


def remove_the_branch(actor: Actor) -> None:
    if not is_pruned(actor):
        remove_branch(actor.context(), "b")


def is_pruned(actor: Actor) -> int:
    return int("b" not in actor.context().branches.directories())


def without_snapshot_2(bench: Bench) -> Rows:
    rows = two_writes(bench)
    bench.inner.delete(bench.layout.snapshot(2))
    return rows


def repair_chain(actor: Actor) -> None:
    context = actor.context()
    apply_repair(context, plan_repair(context))


def is_repaired(actor: Actor) -> int:
    return int(actor.context().snapshots.find(2) is not None)


def with_changelogs(bench: Bench) -> Rows:
    """Two snapshots are left, the older ones live on as changelogs."""
    rows = long_history(bench)
    options = {"changelog.time-retained": "2 h", "changelog.num-retained.max": "1000"}
    expire_snapshots(bench.healthy().context(options), KEEP_TWO)
    return rows


def forget_changelogs(actor: Actor) -> None:
    context = actor.context({"changelog.time-retained": "2 h", "changelog.num-retained.max": "1000"})
    plan = plan_changelogs(context, Retention(3, 3, 0, None))
    if plan is not None:
        expire_changelogs(context, plan, delete_files(context))


def is_forgotten(actor: Actor) -> int:
    return int(len(ChangelogHistory(actor.storage, actor.bench.layout).ids()) == 1)
