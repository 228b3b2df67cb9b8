"""Checks of the sequence of snapshots and schemas, and of what refers to snapshots: tags, branches, consumers, changelogs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from paimon_cli.errors import DamagedFile, NotFound, NotSupported, StorageUnavailable
from paimon_cli.history.snapshot_history import gaps
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants.file_checks import StoredFiles, live_files_exist
from paimon_cli.invariants.scopes import OF_HISTORY, OF_REFERENCES, OF_STEP, OF_VERSION, WITHOUT_SCHEMA
from paimon_cli.invariants.version import FileFacts, Version
from paimon_cli.invariants.violation import FILES, LOST_SNAPSHOTS, META, WARNING, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import EntryKind
from paimon_cli.metadata.table_layout import (
    BACKUP_CONSUMER,
    CONSUMER_PREFIX,
    MAIN_BRANCH,
    SNAPSHOT_PREFIX,
    parse_hint,
    parse_numbered,
)
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import OPTIONS

declare(
    Invariant("PV011", CheckGroup.CHAIN, META, "a commit deletes only live files and adds only new ones"),
    Invariant("PV014", CheckGroup.CHAIN, META, "record counts of snapshots add up"),
    Invariant("PV050", CheckGroup.REFERENCES, META, "every tag can be read, with all its manifests", of_unreadable_file=True),
    Invariant("PV051", CheckGroup.REFERENCES, FILES, "every data file of a tag exists", of_unreadable_file=True),
)

BLOBS = ("blob-field", "blob-descriptor-field", "blob-view-field")
NAMES_COLUMNS = ("bucket-key", "partition", "primary-key", "rowkind.field", *BLOBS)
"""Fixed options whose text changes where a column is renamed."""
FIXED_OPTIONS = tuple(option for option in OPTIONS if option.immutable and option.key not in NAMES_COLUMNS)


@OF_HISTORY.check(Invariant("PV001", CheckGroup.CHAIN, META, "snapshot ids have no gap"))
def ids_have_no_gap(context: TableContext) -> Iterator[Violation]:
    """PV001. No snapshot between the oldest and the newest is missing; otherwise streaming readers would miss commits."""
    for gap in gaps(context.snapshots.ids()):
        around = f"missing between snapshots {gap.start - 1} and {gap.stop}"
        message = f"is {around}" if len(gap) == 1 else f"and {len(gap) - 1:,} after it are {around}"
        yield Violation("PV001", context.layout.snapshot(gap.start), message)


@OF_HISTORY.check(
    Invariant(LOST_SNAPSHOTS, CheckGroup.CHAIN, META, "a table with tags, changelogs, or commits and a hint has a snapshot")
)
def snapshots_are_kept(context: TableContext) -> Iterator[Violation]:
    """PV069. Tags and changelogs are made of snapshots, and commits are built on them: without any, their files are lost."""
    if (left := context.snapshots.left_without_snapshot()) is not None:
        message = f"holds no snapshot, but {left} is there: the files are lost"
        yield Violation(LOST_SNAPSHOTS, context.layout.snapshot_directory, message)


@WITHOUT_SCHEMA.check()
def snapshots_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV002. Each snapshot file can be parsed and holds the id of its name."""
    for number in context.snapshots.ids():
        try:
            context.snapshots.find(number)
        except DamagedFile as error:
            yield Violation("PV002", context.layout.snapshot(number), str(error))


@OF_HISTORY.check(Invariant("PV003", CheckGroup.HINTS, META, "hint files do not point beyond the newest snapshot"))
def hints_are_not_ahead(context: TableContext) -> Iterator[Violation]:
    """PV003. LATEST and EARLIEST may be missing or lag, but never name a snapshot that does not exist yet or hide one."""
    for path, limit_of, what in ((context.layout.latest_hint, max, "newest"), (context.layout.earliest_hint, min, "oldest")):
        try:
            text = context.storage.read_bytes(path)
        except FileNotFoundError:
            continue
        except (DamagedFile, StorageUnavailable) as error:
            if isinstance(error, StorageUnavailable) and not isinstance(error.__cause__, IsADirectoryError):
                raise  # whether the hint is right is not known
            yield Violation("PV003", path, f"cannot be read: {error.why}")
            continue
        hint = parse_hint(text)
        ids = context.snapshots.ids()  # listed after the hint was read: other jobs may commit and expire meanwhile
        limit = limit_of(ids, default=0)
        if hint is None:
            yield Violation("PV003", path, f"holds {text.strip()[:20].decode(errors='replace')!r}, which is not a snapshot id")
        elif hint > limit:
            yield Violation("PV003", path, f"says {hint}, but the {what} snapshot is {limit}")


@OF_HISTORY.check(Invariant("PV008", CheckGroup.CHAIN, META, "no expired snapshot has reappeared"))
def no_snapshot_has_come_back(context: TableContext) -> Iterator[Violation]:
    """PV008. A slow writer may publish a snapshot under an expired id, and be killed before it can withdraw it."""
    for number in context.snapshots.resurrected_ids():
        yield Violation(
            "PV008",
            context.layout.snapshot(number),
            "is below a gap below EARLIEST: if a writer published it after its number had expired, and died, its rows were never "
            "in the table, and `paimon-cli expire` removes it; if EARLIEST is wrong, delete that hint",
        )


@OF_STEP.check(Invariant("PV004", CheckGroup.CHAIN, META, "snapshot times do not go back", severity=WARNING))
def times_do_not_go_back(before: Version, version: Version) -> Iterator[Violation]:
    """PV004. Snapshot times ascend, because time travel finds snapshots by binary search."""
    if version.snapshot.time_millis < before.snapshot.time_millis:
        yield Violation("PV004", version.path, f"is older than snapshot {before.snapshot.id} by its time")


def metadata_is_readable(version: Version) -> Iterator[Violation]:
    """PV005. Every list and manifest of the snapshot exists and can be decoded."""
    for read in ("base", "delta", "live", "index_entries"):
        try:
            getattr(version, read)
        except (DamagedFile, NotFound) as error:
            yield Violation("PV005", error.path or version.path, f"snapshot {version.snapshot.id}: {error}")
            return


@OF_VERSION.check()
def schemas_exist(version: Version) -> Iterator[Violation]:
    """PV006: the schemas of the snapshot and of each data file."""
    for number in {version.snapshot.schema_id, *(entry.file.schema_id for entry in version.fresh)}:
        try:
            version.context.schemas.get(number)
        except NotFound as error:
            yield Violation("PV006", version.context.layout.schema(number), f"snapshot {version.snapshot.id}: {error}")
        except DamagedFile:  # PV007 reports it
            continue


@WITHOUT_SCHEMA.check()
def schemas_of_snapshots_exist(table: TableContext) -> Iterator[Violation]:
    """PV006 by snapshot files alone: without a readable schema, manifests cannot be decoded."""
    known, is_named = set(table.schemas.ids()), False
    for number in table.snapshots.ids():
        try:
            snapshot = table.snapshots.find(number)
        except DamagedFile:  # PV002 reports it
            continue
        if snapshot is not None and snapshot.schema_id not in known:
            path, is_named = table.layout.schema(snapshot.schema_id), True
            yield Violation("PV006", path, f"snapshot {number}: no schema {snapshot.schema_id}, {path} does not exist")
    if not known and not is_named:  # nothing tells which ones are lost
        yield Violation("PV006", table.layout.schema_directory, str(table.schemas.missing()))


@OF_HISTORY.check(Invariant("PV007", CheckGroup.SCHEMAS, META, "every schema file holds its own schema, with unique field ids"))
def schemas_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV007. A new column gets an id above the highest: an id that repeats would read old files with the wrong columns."""
    for number in context.schemas.ids():
        path = context.layout.schema(number)
        try:
            schema = context.schemas.get(number)
        except DamagedFile as error:
            yield Violation("PV007", path, str(error))
            continue
        greatest = max((field.id for field in schema.fields), default=-1)
        if greatest > schema.highest_field_id:
            yield Violation(
                "PV007", path, f"has a field with id {greatest}, but says that {schema.highest_field_id} is the highest"
            )


@OF_HISTORY.check(
    Invariant(
        "PV068",
        CheckGroup.SCHEMAS,
        META,
        "keys, and options that cannot change once there is data, stay as they are",
        severity=WARNING,
    )
)
def schemas_keep_what_is_fixed(context: TableContext) -> Iterator[Violation]:
    """PV068. No ALTER changes the keys of a table, or, once it has snapshots, an option by which its files were written: only an
    edited schema file does, and rows are then merged or looked for in another way. Columns may be renamed: ids are compared.
    """
    before: TableSchema | None = None
    for number in context.schemas.ids():
        try:
            schema = context.schemas.get(number)
        except DamagedFile:  # PV007 reports it
            before = None
            continue
        if before is not None and (changed := list(_changed_facts(before, schema))) and _is_in_use(context, before.id):
            yield Violation("PV068", context.layout.schema(number), f"differs from schema {before.id} in {'; '.join(changed)}")
        before = schema


def _changed_facts(before: TableSchema, schema: TableSchema) -> Iterator[str]:
    for what, old, new in (
        ("its primary key", before.primary_keys, schema.primary_keys),
        ("its partition keys", before.partition_keys, schema.partition_keys),
    ):
        if [before.field(name).id for name in old] != [schema.field(name).id for name in new]:
            yield f"{what}: {', '.join(old) or 'none'} became {', '.join(new) or 'none'}"
    for option in FIXED_OPTIONS:
        was, now = (part.options.get(option.key, option.default) for part in (before, schema))
        if was != now:
            yield f"option {option.key}: {was} became {now}"


def _is_in_use(context: TableContext, schema_id: int) -> bool:
    """Whether a snapshot that still exists, the oldest one, was committed under this schema or an earlier one."""
    for number in context.snapshots.ids():
        try:
            snapshot = context.snapshots.find(number)
        except DamagedFile:  # PV002 reports it
            continue
        if snapshot is not None:
            return snapshot.schema_id <= schema_id
    return False


@OF_STEP.check(Invariant("PV010", CheckGroup.CHAIN, META, "the base of a snapshot equals the live files of the one before"))
def base_is_what_lived_before(before: Version, version: Version) -> Iterator[Violation]:
    """PV010. live(N) = live(N - 1) + delta(N): no commit adds or removes files beyond its delta, or alters their facts."""
    lost, unexpected = version.base_differences(before)
    for entry in lost:
        yield Violation("PV010", version.path, f"has lost {version.label(entry)}")
    for entry in unexpected:
        yield Violation("PV010", version.path, f"has {version.label(entry)} that no commit added")
    for entry, now in version.changed_in_base(before):
        differences = FileFacts.of(entry).differences(FileFacts.of(now))
        yield Violation("PV010", version.path, f"says of {version.label(entry)} what its commit did not: {differences}")


def delta_fits(before: Version | None, version: Version) -> Iterator[Violation]:
    """PV011. A DELETE refers to a live file, an ADD to a new one, and no file is changed twice."""
    seen: set[tuple[object, ...]] = set()
    for entry in version.delta:
        if entry.identity in seen:
            yield Violation("PV011", version.path, f"changes {version.label(entry)} twice")
        elif before is not None and entry.kind == EntryKind.ADD and before.holds(entry):
            yield Violation("PV011", version.path, f"adds {version.label(entry)}, which is already live")
        elif before is not None and entry.kind != EntryKind.ADD and not before.holds(entry):
            yield Violation("PV011", version.path, f"deletes {version.label(entry)}, which is not live")
        seen.add(entry.identity)


def record_counts_add_up(before: Version | None, version: Version) -> Iterator[Violation]:
    """PV014. Record counts of a snapshot equal the sum of the row counts of its files, before merging."""
    snapshot = version.snapshot
    delta = sum(e.file.row_count if e.kind == EntryKind.ADD else -e.file.row_count for e in version.delta)
    if snapshot.delta_record_count != delta:
        yield Violation(
            "PV014", version.path, f"says that it added {snapshot.delta_record_count} records, but its delta has {delta}"
        )
    if snapshot.total_record_count != version.row_count:
        recorded = snapshot.total_record_count
        yield Violation("PV014", version.path, f"says that it holds {recorded} records, but its files have {version.row_count}")
    if before is not None and snapshot.total_record_count - before.snapshot.total_record_count != snapshot.delta_record_count:
        yield Violation("PV014", version.path, f"does not continue the count of snapshot {before.snapshot.id}")


def tagged_versions(context: TableContext) -> Iterator[Version | Violation]:
    """PV050: the version of each tag, or why it cannot be read."""
    for name in context.tags.names():
        path = context.layout.tag(name)
        try:
            tag = context.tags.find(name)
        except DamagedFile as error:
            yield Violation("PV050", path, str(error))
            continue
        if tag is None:
            continue
        version = Version(context, tag.snapshot)
        broken = next(metadata_is_readable(version), None)
        yield version if broken is None else Violation("PV050", path, broken.message)


def tagged_files_exist(version: Version, stored: StoredFiles) -> Iterator[Violation]:
    """PV051: the data files of a tag."""
    for violation in live_files_exist(version, stored):
        yield Violation("PV051", violation.path, f"{violation.message} (a tag holds snapshot {version.snapshot.id})")


@OF_REFERENCES.check(
    Invariant("PV057", CheckGroup.REFERENCES, META, "a table with manifests has a snapshot, tag or changelog", severity=WARNING)
)
def manifests_have_a_version(context: TableContext) -> Iterator[Violation]:
    """PV057. Manifests without a snapshot mean that the history is lost, unless the first commit is still in progress."""
    storage, layout = context.storage, context.layout
    histories = [layout.of_branch(name).snapshot_directory for name in (MAIN_BRANCH, *context.branches.directories())]
    if any(_holds_versions(context, directory) for directory in (layout.snapshot_directory, *histories)):
        return
    manifests = [status for status in storage.list_directory(layout.manifest_directory) if not status.is_directory]
    if manifests:
        yield Violation("PV057", layout.snapshot_directory, f"there is no snapshot, but there are {len(manifests)} manifests")


def _holds_versions(context: TableContext, directory: str) -> bool:
    return any(parse_numbered(SNAPSHOT_PREFIX, s.name) is not None for s in context.storage.list_directory(directory))


@OF_REFERENCES.check(
    Invariant("PV052", CheckGroup.REFERENCES, META, "every consumer points at an existing snapshot, or at the next one")
)
def consumers_stand_somewhere(context: TableContext) -> Iterator[Violation]:
    """PV052. A consumer before the oldest snapshot has lost changes; one after the next snapshot protects nothing.

    Those of backups may stand anywhere: one that has ended keeps nothing, a rollback of Java leaves one behind, and the next
    backup finds out itself what it has copied.
    """
    ids = context.snapshots.ids()
    for status in context.storage.list_directory(context.layout.consumer_directory):
        if not status.name.startswith(CONSUMER_PREFIX) or status.is_directory:
            continue
        try:
            following = json.loads(context.storage.read_bytes(status.path))["nextSnapshot"]
        except FileNotFoundError:
            continue
        except DamagedFile as error:
            yield Violation("PV052", status.path, f"cannot be read: {error.why}")
            continue
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            yield Violation("PV052", status.path, f"cannot be read: {type(error).__name__}")
            continue
        if not isinstance(following, int) or isinstance(following, bool):
            yield Violation("PV052", status.path, f"names {following!r}, no snapshot")
        elif status.name.startswith(f"{CONSUMER_PREFIX}{BACKUP_CONSUMER}"):
            continue
        elif ids and not ids[0] <= following <= ids[-1] + 1:
            yield Violation("PV052", status.path, f"points at snapshot {following}, but the table has {ids[0]} to {ids[-1]}")


@OF_REFERENCES.check(Invariant("PV053", CheckGroup.REFERENCES, META, "every branch can be read"))
def branches_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV053: schemas, snapshots, tags and the newest version of each branch.

    A branch that this version does not support is not checked: it is no damage, and this table can be checked without it.
    """
    for name in context.branches.directories():
        root = context.layout.of_branch(name).version_root
        try:
            broken = [] if context.branches.newest(name) is None else list(_broken_in_branch(context, name))
        except NotSupported:
            continue
        except (DamagedFile, NotFound) as error:
            yield Violation("PV053", error.path or root, f"branch {name}: {error}")
            continue
        for violation in broken:
            yield Violation("PV053", violation.path, f"branch {name}: {violation.message}")


def _broken_in_branch(context: TableContext, name: str) -> Iterator[Violation]:
    branch = context.at_branch(name)
    yield from hints_are_not_ahead(branch)
    snapshots = [branch.snapshots.find(number) for number in branch.snapshots.ids()]
    newest = next((snapshot for snapshot in reversed(snapshots) if snapshot is not None), None)
    branch.tags.all()
    if newest is not None:
        yield from metadata_is_readable(Version(branch, newest))


@OF_REFERENCES.check(
    Invariant(
        "PV054", CheckGroup.REFERENCES, META, "every changelog that outlived its snapshot can be read", of_unreadable_file=True
    )
)
def changelogs_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV054. Each changelog that outlived its snapshot can be parsed and holds the id of its name."""
    history = ChangelogHistory(context.storage, context.layout)
    for number in history.ids():
        try:
            history.find(number)
        except DamagedFile as error:
            yield Violation("PV054", context.layout.changelog(number), f"{error}: {error.why}")
