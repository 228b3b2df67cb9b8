"""What must hold after a run, checked through a healthy storage. The result is a list of complaints."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_cli.commit.commit_records import all_records
from paimon_cli.errors import BeingDropped, PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList, ChangelogHistory
from paimon_cli.invariants.check import check_table
from paimon_cli.maintain.retention import tagged_snapshots
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, VALUE_KIND
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.increments import CHANGES, IncrementRange, RangeEnd, plan_increment
from paimon_cli.read.split_reader import read_split
from tests.faults.bench import Actor, Bench, Rows, digest
from tests.faults.operation import Operation

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-[0-9]+)?")
AGAIN = 50
"""The life in which an operation is repeated."""


class Outcome(enum.Enum):
    """How the operation ended for its caller."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Run:
    """One run of an operation: `rival`: whether the rival came; `clean`: whether every delete took effect."""

    operation: Operation
    before: Rows
    rival: bool
    outcome: Outcome
    must_be_clean: bool

    @property
    def undone(self) -> Rows:
        return self.operation.rival_effect(self.before) if self.rival else self.before

    def rows(self, done: bool) -> Rows:
        return self.operation.effect(self.undone) if done else self.undone


def complaints(bench: Bench, run: Run, continued: dict[object, list[str]]) -> list[str]:
    """Check the table, repeat the operation, continue to work, remove orphans, and check again.

    `continued`: what was complained of after the check, by the files of the table and the kinds of others. Which of a job's files
    are left over, and how much of them, is nothing to the jobs after it.
    """
    try:
        found = [*_look(bench, run)]
        key = (run.rival, *_what_counts(bench))
        if key not in continued:
            continued[key] = [*_go_on(bench, run)]
        return found + continued[key]
    except (PaimonError, FileNotFoundError) as error:
        return [f"{type(error).__name__}: {error}"]


def _what_counts(bench: Bench) -> tuple[str, frozenset[str]]:
    """A digest of the files that belong to the table, and the paths of all others without the ids of their jobs."""
    image = bench.save()
    exists = bench.inner.exists(bench.layout.schema(0))
    own = reachable(bench.healthy().context()) if exists else image.keys()
    kept = {path: data for path, data in image.items() if path in own}
    return digest(kept), frozenset(_ID.sub("", path) for path in image.keys() - kept.keys())


def _look(bench: Bench, run: Run) -> Iterator[str]:
    actor = bench.healthy()
    done = run.operation.done(actor)
    if done > 1 and not run.operation.may_be_needless:
        yield f"done {done} times"
    if run.outcome is Outcome.DONE and not (done or run.operation.may_be_needless or run.operation.is_gradual):
        yield "said to be done, and is not"
    if run.outcome is Outcome.REFUSED and done and not run.operation.is_gradual:
        yield "said to be refused, and was done"
    if not bench.inner.exists(bench.layout.schema(0)):
        return
    context = actor.context()
    yield from _violations(context, "PV001" if run.operation.is_gradual else "")
    orphans = bench.paths() - reachable(context)
    if run.operation.reopens_records:
        orphans -= {path for record in all_records(context) if record.snapshot is None for path in record.paths(context.layout)}
    if run.must_be_clean and orphans:
        yield f"left over: {sorted(orphans)}"
    if context.mode.hides_files:
        actor.compact()
    yield from _compare(actor.rows(level_0=True), run.rows(bool(done)))


def _go_on(bench: Bench, run: Run) -> Iterator[str]:
    """The next job finds a table to work with."""
    operation = run.operation
    if operation.is_repeatable or not operation.done(bench.healthy()):
        operation.act(Actor(bench, bench.inner, AGAIN))
    if operation.done(bench.healthy()) != 1 and not operation.may_be_needless:
        yield f"done {operation.done(bench.healthy())} times after it was repeated"
    expected = run.rows(True)
    if bench.healthy().context().mode.hides_files:
        bench.healthy().compact()
    yield from _compare(bench.healthy().rows(), expected)
    bench.healthy().write({11: "next"}, commit_user="next", commit_id=1)
    bench.healthy().compact()
    context = bench.healthy().context()
    if context.options.changelog_producer.writes_files:
        bench.healthy().compact(strategy="full")
        yield from _changelog(bench, {**expected, 11: "next"})
    for orphan in bench.paths() - reachable(context):
        bench.inner.delete(orphan)
    yield from _violations(context)
    yield from _compare(bench.healthy().rows(), {**expected, 11: "next"})
    yield from _old_versions(bench, context)


def _violations(context: TableContext, excused: str = "") -> Iterator[str]:
    """PV023 is what two unchecked writers of one bucket do to each other, faults or not."""
    yield from (str(violation) for violation in check_table(context, rows=True) if violation.code not in ("PV023", excused))


def _compare(actual: Rows, expected: Rows) -> Iterator[str]:
    if actual != expected:
        yield f"rows are {actual}, not {expected}"


def _old_versions(bench: Bench, context: TableContext) -> Iterator[str]:
    """Every snapshot and tag can be read to its last row."""
    for tag in tagged_snapshots(context):
        missing = _files_of(context, tag) - bench.paths()
        if missing:
            yield f"tag of snapshot {tag.id} lacks {sorted(missing)}"
    for number in context.snapshots.ids():
        bench.healthy().rows(number)


def reachable(context: TableContext) -> set[str]:
    """All files that belong to the table; all others may be deleted."""
    found = _reachable(context)
    for name in BranchList(context.storage, context.layout).names():
        with contextlib.suppress(BeingDropped):  # nobody can read it any more, and who drops it again deletes the rest
            found |= _reachable(context.at_branch(name))
    return found


def _reachable(context: TableContext) -> set[str]:
    layout = context.layout
    found = {layout.latest_hint, layout.earliest_hint, *(layout.schema(number) for number in context.schemas.ids())}
    for entry in context.storage.list_directory(layout.tag_directory):
        found.add(entry.path)
    records = all_records(context)
    found |= {path for record in records if record.snapshot is not None for path in record.paths(layout)}
    for snapshot in context.snapshots.newest_first():
        # A record that could not be completed stays open; one of a commit that was not published must not be left.
        own = [r for r in records if r.is_of(snapshot.commit_user) and r.identifier == snapshot.commit_identifier]
        found |= {path for record in own for path in record.paths(layout)}
        found.add(layout.snapshot(snapshot.id))
        found |= _files_of(context, snapshot)
    for tag in tagged_snapshots(context):
        found |= _files_of(context, tag)
    found |= {entry.path for entry in context.storage.list_directory(layout.changelog_directory)}
    changelogs = ChangelogHistory(context.storage, layout).all()
    for version in [*changelogs, *context.snapshots.newest_first()] if changelogs else ():
        # What a later snapshot took away lives until that one is an expired changelog.
        found |= _metadata_of(context, version) | _changelog_of(context, version)
        found |= _data_files(context, context.manifests.delta_entries(version))
    return found


def _files_of(context: TableContext, snapshot: Snapshot) -> set[str]:
    live = _data_files(context, context.manifests.live_entries(snapshot))
    return _metadata_of(context, snapshot) | live | _changelog_of(context, snapshot) | _indexes_of(context, snapshot)


def _metadata_of(context: TableContext, snapshot: Snapshot) -> set[str]:
    return _listed(context, snapshot.base_manifest_list, snapshot.delta_manifest_list)


def _changelog_of(context: TableContext, snapshot: Snapshot) -> set[str]:
    name = snapshot.changelog_manifest_list
    if name is None:
        return set()
    changes = context.manifests.entries(context.manifests.manifest_list(name))
    return _listed(context, name) | _data_files(context, [entry for entries in changes for entry in entries])


def _indexes_of(context: TableContext, snapshot: Snapshot) -> set[str]:
    if snapshot.index_manifest is None:
        return set()
    layout, entries = context.layout, context.manifests.index_entries(snapshot)
    return {layout.manifest(snapshot.index_manifest), *(layout.index(entry.index_file.file_name) for entry in entries)}


def _listed(context: TableContext, *lists: str) -> set[str]:
    manifests = [meta.file_name for name in lists for meta in context.manifests.manifest_list(name)]
    return {context.layout.manifest(name) for name in (*lists, *manifests)}


def _data_files(context: TableContext, entries: Sequence[ManifestEntry]) -> set[str]:
    """The data files of entries, with their index files."""
    named = ((entry, name) for entry in entries for name in (entry.file.file_name, *entry.file.extra_files))
    return {context.data_file_path_of(entry.partition, entry.bucket, name) for entry, name in named}


def _changelog(bench: Bench, rows: Rows) -> Iterator[str]:
    """The changelog, replayed, gives the rows; where a compaction has written it, it tells each row as it was before."""
    context = bench.healthy().context()
    producer = context.options.changelog_producer.name
    if producer == "none":
        return
    state: dict[int, str | None] = {}
    for kind, key, value in _changes(context):
        if kind in ("-U", "-D"):
            if (was := state.pop(key, None)) != value and producer != "input":
                yield f"the changelog takes {value} of key {key} back, which was {was}"
        elif key in state and kind == "+I" and producer != "input":
            yield f"the changelog inserts key {key} again"
        else:
            state[key] = value
    if state != rows:
        yield f"the changelog gives {state}, not {rows}"


def _changes(context: TableContext) -> Iterator[tuple[str, int, str | None]]:
    whole = IncrementRange(RangeEnd(0), RangeEnd(context.snapshots.latest_id() or 0))
    plan = plan_increment(context, whole, whole.mode(context, CHANGES), None)
    for split in plan.splits:
        for batch in read_split(context, split, ["k", "v", VALUE_KIND], keep_kinds=True):
            for row in batch.to_pylist():
                yield KIND_TEXTS[row[VALUE_KIND]], row["k"], row["v"]
