"""`verify`: checks metadata in this process, then the content of files in engine tasks."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import changelog_checks, check, hash_indexes, row_checks, snapshot_checks
from paimon_cli.invariants.check import INVARIANTS
from paimon_cli.invariants.file_checks import StoredFiles
from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import BY_CODE, CHECK_GROUPS, FILES, FULL, MERGE_DISORDER, META, WARNING, Violation
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.maintain.needed_files import NeededFiles
from paimon_cli.metadata.data_file import BucketId, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.pieces import PIECES
from paimon_cli.read.html_text import ShownAsTable
from paimon_cli.requests.integrity import VerifyOptions

MAX_PER_CODE = 1000
LEVELS = (META, FILES, FULL)


class VerifyRequest(VerifyOptions):
    """What to check. `only`: names of checks or codes; None or empty for all."""

    @property
    def snapshot_id(self) -> int | None:
        """The id of the snapshot. Who makes the request looks up a name of one."""
        assert not isinstance(self.snapshot, str)
        return self.snapshot

    def check(self) -> None:
        """Raise `UsageError` for an unknown check or code, too."""
        super().check()
        for name in self.only or ():
            if name not in CHECK_GROUPS and name not in BY_CODE:
                hint = f"{did_you_mean(name, (*CHECK_GROUPS, *BY_CODE))}paimon-cli verify --list"
                raise UsageError(f"no check '{name}'", f"the checks are {', '.join(CHECK_GROUPS)}", hint)

    def wants(self, code: str) -> bool:
        return not self.only or code in self.only or BY_CODE[code].check in self.only

    def looks_inside(self) -> bool:
        """Whether files have to be opened."""
        return self.level != META and any(self.wants(i.code) for i in INVARIANTS if i.level in (FILES, FULL))


@dataclass(frozen=True)
class VerifyTask:
    """Data files to check one by one or, with `bucket_id`, all files and index files of a bucket together: `merged` or not."""

    snapshot: Snapshot
    entries: tuple[ManifestEntry, ...]
    bucket_id: BucketId | None = None
    indexes: tuple[IndexManifestEntry, ...] = ()
    merged: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(entry.file.file_size for entry in self.entries)


@dataclass(frozen=True)
class CheckResult:
    """One line of a report: the name of a check and its result (`ok`, `WARN`, `ERROR`)."""

    check: str
    result: str
    findings: int


@dataclass
class VerifyReport(ShownAsTable):
    """The findings, and what was checked."""

    level: str
    snapshot_id: int | None = None
    snapshots: int = 0
    manifests: int = 0
    data_files: int = 0
    size: int = 0
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)
    omitted: dict[str, int] = field(default_factory=dict)
    """The number of further findings of each code, beyond the first thousand."""
    expired_files: int = 0
    """Files that could not be checked, because they were deleted with their snapshot or tag during the verification."""
    request: VerifyRequest = field(default_factory=VerifyRequest, repr=False)
    not_run: str | None = field(default=None, metadata={"shown": False})
    """Why the checks of versions could not run; None if they have."""
    limits: dict[str, str] = field(default_factory=dict, metadata={"shown": False})
    """Why invariants cannot be checked in tables of this kind, by code."""

    @property
    def not_checked(self) -> dict[str, str]:
        """Why the checks that could not run, of those that were wanted, did not, by code."""
        reasons = dict(self.limits)
        if self.not_run is not None:
            ran = {code for each in (*check.WITHOUT_SCHEMAS, *check.REFERENCE_CHECKS) for code in each.codes}
            reasons |= {invariant.code: self.not_run for invariant in INVARIANTS if invariant.code not in ran}
        depth, found = LEVELS.index(self.level), {violation.code for violation in self.violations}
        wanted = {i.code for i in INVARIANTS if LEVELS.index(i.level) <= depth and self.request.wants(i.code)}
        return {code: why for code, why in reasons.items() if code in wanted and code not in found}

    @property
    def errors(self) -> int:
        return len(self.violations) - self.warnings

    @property
    def warnings(self) -> int:
        return sum(violation.severity == WARNING for violation in self.violations)

    @property
    def checks(self) -> list[CheckResult]:
        """The checks of this level and their results."""
        depth = LEVELS.index(self.level)
        included = {i.check for i in INVARIANTS if LEVELS.index(i.level) <= depth and self.request.wants(i.code)}
        results = []
        for name in CHECK_GROUPS:
            if name in included:
                found = [violation.severity for violation in self.violations if violation.check == name]
                result = "ok" if not found else "WARN" if set(found) == {WARNING} else "ERROR"
                results.append(CheckResult(name, result, len(found)))
        return results


@dataclass
class _Gathered:
    """What the walk through the history collects: tasks, the newest version, and of all snapshots those of tags."""

    tasks: list[VerifyTask] = field(default_factory=list)
    newest: Version | None = None
    tagged: list[Version] = field(default_factory=list)


def run_verify(context: TableContext, request: VerifyRequest, engine: Engine, progress: Progress) -> VerifyReport:
    """Check the table. Damage is reported as findings, never raised. Raises `NotFound` if the requested snapshot is missing."""
    started, context = context.clock.now_millis(), context.unread()
    report = VerifyReport(request.level, request=request, limits=check.not_checked(context))
    gathered = _Gathered()
    _keep(report, _of_the_table(context, request))
    _keep(report, _of_the_history(context, request, report, gathered))
    if request.snapshot_id is None:
        _keep(report, _of_the_tags(context, request, gathered))
    if request.looks_inside() and gathered.newest is not None:
        _keep(report, hash_indexes.hashes_are_in_one_bucket(gathered.newest))
        tasks = [*gathered.tasks, *_merging_tasks(context, request, [gathered.newest, *gathered.tagged])]
        _keep(report, _inside(context, request, tasks, engine, progress))
        if request.level == FULL and request.wants("PV060"):
            _keep(report, row_checks.keys_live_in_one_bucket(gathered.newest))
        if request.level == FULL and request.wants("PV058"):
            _keep(report, _replayed(context, request, engine, progress))
        report.engine, report.engine_reason = engine.name, engine.reason
    _leave_out_expired(context, report)
    report.data_files = sum(len(task.entries) for task in gathered.tasks if task.bucket_id is None)
    report.size = sum(task.size for task in gathered.tasks if task.bucket_id is None)
    report.seconds = (context.clock.now_millis() - started) / 1000
    return report


def run_without_schemas(table: TableContext, request: VerifyRequest) -> VerifyReport:
    """Check a table whose schemas cannot be read, without decoding what its manifests contain."""
    if request.snapshot_id is not None and request.snapshot_id not in table.snapshots.ids():
        raise table.snapshots.missing(request.snapshot_id)
    report = VerifyReport(request.level, request=request, not_run="no schema of the table can be read")
    for find in check.WITHOUT_SCHEMAS:
        _keep(report, find(table))
    return report


def _keep(report: VerifyReport, violations: Iterable[Violation]) -> None:
    """Add each requested finding to the report once, up to a limit per code."""
    count_by_code = Counter(violation.code for violation in report.violations)
    reported = set(report.violations)
    for violation in violations:
        if not report.request.wants(violation.code) or violation in reported:
            continue
        if count_by_code[violation.code] < MAX_PER_CODE:
            count_by_code[violation.code] += 1
            reported.add(violation)
            report.violations.append(violation)
        else:
            report.omitted[violation.code] = report.omitted.get(violation.code, 0) + 1


def _leave_out_expired(context: TableContext, report: VerifyReport) -> None:
    """Drop findings about missing files that no version needs any more: they have expired since the verification began."""
    paths = {violation.path for violation in report.violations if violation.invariant.of_unreadable_file}
    missing = {path for path in paths if not context.storage.exists(path)}
    if not missing:
        return
    needed = NeededFiles()
    try:
        needed.need_history(context)
    except (DamagedFile, NotFound):
        return  # a version that cannot be read may need the files
    names = {name for _, _, name in needed.data}
    expired = {path for path in missing - needed.metadata if path.rpartition("/")[2] not in names}
    report.violations = [v for v in report.violations if not v.invariant.of_unreadable_file or v.path not in expired]
    report.expired_files = len(expired)


def _of_the_table(context: TableContext, request: VerifyRequest) -> Iterator[Violation]:
    if request.snapshot_id is not None:
        yield from snapshot_checks.schemas_are_readable(context)
        return
    for of_history in check.TABLE_CHECKS:
        yield from of_history(context)
    for of_references in check.REFERENCE_CHECKS:
        yield from of_references(context)


def _of_the_history(
    context: TableContext, request: VerifyRequest, report: VerifyReport, gathered: _Gathered
) -> Iterator[Violation]:
    """Walk the snapshots in order; a single requested snapshot is checked against the previous one."""
    ids, wanted, stored = context.snapshots.ids(), request.snapshot_id, StoredFiles(context)
    if wanted is not None:
        if wanted not in ids:
            raise context.snapshots.missing(wanted)
        ids = [number for number in ids if number in (wanted - 1, wanted)]
    last: WalkedVersion | None = None
    disorder: list[Violation] = []
    for version in walk(context, ids):
        if isinstance(version, Violation):
            last = None
            yield version
            continue
        last = version
        if wanted is not None and version.snapshot.id != wanted:
            continue
        report.snapshot_id = version.snapshot.id
        report.snapshots += 1
        report.manifests += len(version.new_manifests)
        for violation in check.check_walked(version):
            if violation.code == MERGE_DISORDER:
                disorder.append(violation)
            else:
                yield violation
        if request.all_snapshots:
            yield from _of_the_state(version if version.before is not None else version.whole(), request, stored, gathered)
    if last is None and ids:
        report.not_run = "no version of the table can be read to its end"
    if last is not None:
        gathered.newest = last.whole()
        live = {last.file_path(entry) for entry in gathered.newest.live}
        yield from (violation for violation in disorder if request.all_snapshots or violation.path in live)
        if not request.all_snapshots:
            yield from _of_the_state(gathered.newest, request, stored, gathered)


def _of_the_state(version: Version, request: VerifyRequest, stored: StoredFiles, gathered: _Gathered) -> Iterator[Violation]:
    """Check live files by their metadata and on storage. Files that must be opened become tasks."""
    yield from check.check_state(version)
    if request.level == META:
        return
    yield from check.check_stored(version, stored)
    if request.looks_inside():
        gathered.tasks += _tasks(version)


def _of_the_tags(context: TableContext, request: VerifyRequest, gathered: _Gathered) -> Iterator[Violation]:
    stored = StoredFiles(context)
    for version in snapshot_checks.tagged_versions(context):
        if isinstance(version, Violation):
            yield version
        elif request.level != META:
            yield from snapshot_checks.tagged_files_exist(version, stored)
            if request.all_snapshots:
                gathered.tagged.append(version)


def _tasks(version: Version) -> list[VerifyTask]:
    """Tasks for portions of the new files, and for each changed bucket that must also be checked as a whole.

    These are buckets with index files, and all buckets in tables that look up old rows, or the bucket of a key.
    """
    tasks: list[VerifyTask] = []
    portion: list[ManifestEntry] = []
    for entry in version.fresh:
        portion.append(entry)
        if len(portion) >= PIECES.verified_task_files or sum(e.file.file_size for e in portion) >= PIECES.verified_task_bytes:
            tasks.append(VerifyTask(version.snapshot, tuple(portion)))
            portion = []
    if portion:
        tasks.append(VerifyTask(version.snapshot, tuple(portion)))
    options = version.context.options
    indexed = {entry.bucket_id for entry in version.index_entries}
    is_each = version.context.mode.looks_up_old_rows or options.bucket == -1
    as_a_whole = version.changed_buckets if is_each else indexed & set(version.changed_buckets)
    for bucket_id in sorted(as_a_whole):
        indexes = tuple(e for e in version.index_entries if e.bucket_id == bucket_id)
        tasks.append(VerifyTask(version.snapshot, tuple(version.at(bucket_id)), bucket_id, indexes))
    return tasks


def _merging_tasks(context: TableContext, request: VerifyRequest, versions: Sequence[Version]) -> list[VerifyTask]:
    """Tasks for the buckets whose rows are merged: each state of a bucket once, also if several versions have it."""
    is_wanted = request.level == FULL and any(request.wants(code) for one in check.MERGED_CHECKS for code in one.codes)
    if not is_wanted or not context.mode.has_keys or not context.mode.merge_engine.combines_versions:
        return []
    tasks: dict[object, VerifyTask] = {}
    for version in versions:
        for bucket_id, entries in sorted(version.buckets.items()):
            indexes = tuple(e for e in version.index_entries if e.bucket_id == bucket_id)
            state = (bucket_id, frozenset(e.identity for e in entries), frozenset(e.index_file.file_name for e in indexes))
            tasks.setdefault(state, VerifyTask(version.snapshot, tuple(entries), bucket_id, indexes, merged=True))
    return list(tasks.values())


def _inside(
    context: TableContext, request: VerifyRequest, tasks: Sequence[VerifyTask], engine: Engine, progress: Progress
) -> list[Violation]:
    if request.level == FULL:
        engine.prepare(Work.of(entry.file for task in tasks if task.bucket_id is None for entry in task.entries), progress)
    check_file = functools.partial(check_one_file, context, request.level == FULL)
    with phase(progress, "Reading data files" if request.level == FULL else "Opening data files", len(tasks)) as done:
        sizes = [sum(entry.file.file_size for entry in task.entries) for task in tasks]
        found = engine.run_tasks(check_file, tasks, done, sizes)
    return [violation for violations in found for violation in violations]


def check_one_file(context: TableContext, rows: bool, task: VerifyTask) -> list[Violation]:
    """Run one task on an engine. `rows`: check the rows as well."""
    version = Version(context, task.snapshot)
    version.live, version.index_entries = list(task.entries), list(task.indexes)
    if task.bucket_id is not None and task.merged:
        return list(check.check_merged(version, task.bucket_id))
    if task.bucket_id is not None:
        return list(check.check_bucket(version, task.bucket_id, rows=rows))
    return [violation for entry in task.entries for violation in check.check_file(version, entry, rows=rows)]


def _replayed(context: TableContext, request: VerifyRequest, engine: Engine, progress: Progress) -> list[Violation]:
    replays = list(changelog_checks.replays(context, request.snapshot_id))
    if not replays:
        return []
    engine.prepare(Work.of(file for replay in replays for file in replay.files), progress)
    with phase(progress, "Replaying changelogs", len(replays)) as done:
        found = engine.run_tasks(functools.partial(replay_one, context), replays, done)
    return [violation for violations in found for violation in violations]


def replay_one(context: TableContext, replay: changelog_checks.Replay) -> list[Violation]:
    """Check one replay of changelogs on an engine."""
    return list(changelog_checks.check_replay(context, replay))
