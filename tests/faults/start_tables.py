"""The tables that operations start with. Each function returns the rows of its table."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.tags import create_tag
from tests.faults.bench import Bench, Rows

LITTER = ("bucket-0/data-litter.parquet", "manifest/manifest-list-litter-0", "index/index-litter")


def two_writes(bench: Bench, partitioned: bool = False, options: Mapping[str, str] | None = None) -> Rows:
    """A compacted file and a newer one of level 0 in each bucket; keys 0 to 5."""
    bench.make_table(partitioned, options)
    actor = bench.healthy()
    actor.write({k: "a" for k in range(4)}, commit_user="setup", commit_id=1)
    actor.compact()
    actor.write({k: "b" for k in range(2, 6)}, commit_user="setup", commit_id=2)
    return {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "b"}


def empty_table(bench: Bench) -> Rows:
    bench.make_table()
    return {}


def without_hints(bench: Bench) -> Rows:
    rows = two_writes(bench)
    bench.inner.delete(bench.layout.latest_hint)
    return rows


def partitioned_table(bench: Bench) -> Rows:
    return two_writes(bench, partitioned=True)


def merging_table(bench: Bench) -> Rows:
    """A commit rewrites its manifests."""
    return two_writes(bench, options={"manifest.merge-min-count": "2"})


def long_history(bench: Bench) -> Rows:
    """Eight snapshots: files that only old ones need, one of those held by a tag."""
    rows = two_writes(bench)
    bench.healthy().compact()
    bench.inner.write_new(bench.layout.tag("kept"), bench.inner.read_bytes(bench.layout.snapshot(3)))
    for number in (3, 4):
        bench.healthy().write({1: f"c{number}"}, commit_user="setup", commit_id=number)
    bench.healthy().compact()
    bench.healthy().write({2: "d"}, commit_user="setup", commit_id=5)
    return {**rows, 1: "c4", 2: "d"}


def with_later_versions(bench: Bench) -> Rows:
    """After snapshot 3 a write and a compaction, which no rollback passes with other rows; the newest has a tag."""
    rows = two_writes(bench)
    actor = bench.healthy()
    actor.write({1: "later"}, commit_user="setup", commit_id=3)
    actor.compact()
    create_tag(actor.context(), "newest")
    return {**rows, 1: "later"}


def branched(bench: Bench) -> Rows:
    """A branch of snapshot 3 with a write of its own, and a tag."""
    rows = two_writes(bench)
    create_branch(bench.healthy().context(), "b", snapshot_id=3)
    branch = bench.healthy()
    branch.write({8: "branch"}, branch="b", commit_user="branch")
    create_tag(branch.context(branch="b"), "done")
    return rows


def parted(bench: Bench) -> Rows:
    """Main has diverged since."""
    rows = branched(bench)
    bench.healthy().write({9: "main"}, commit_user="main")
    return {**rows, 9: "main"}


def littered(bench: Bench) -> Rows:
    rows = long_history(bench)
    for path in LITTER:
        bench.inner.write_new(f"{bench.root}/{path}", b"litter")
    return rows
