"""Finds lost commits, whose files exist without a snapshot, and version files that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.errors import Conflict, DamagedFile, NotFound, NotSupported
from paimon_cli.history.lost_history import LIST_PREFIX, lists_named_in, version_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants.version import Version
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.options.option_text import plain_number
from paimon_cli.storage.capabilities import keep_deleted


@dataclass(frozen=True)
class LostCommit:
    """A delta list at `path` that only adds files, all of which exist, and none of which belongs to any version.

    `is_sure`: the LATEST hint names a missing snapshot, so a published snapshot was lost. `changelog`: the changelog files of the
    same commit.
    """

    path: str
    entries: tuple[ManifestEntry, ...]
    modified_millis: int
    is_sure: bool
    changelog: tuple[ManifestEntry, ...] = ()


def lost_commits(context: TableContext, newest: Version) -> Iterator[LostCommit]:
    """Candidates, oldest first, no two with the same file. Unreadable lists, and lists that also delete files (compactions), are
    left to orphan cleaning, and so are changelogs without a candidate. Raises `DamagedFile` for an unreadable version of another
    branch, and `NotSupported` if data files cannot be told from changelog files.
    """
    named = _named_lists(context)
    seen = {entry.file.file_name for entry in newest.live} | _named_files(context, named)
    deltas, changelogs, names = [], dict[str, tuple[ManifestEntry, ...]](), FileNames.of(context)
    for status in context.storage.list_directory(context.layout.manifest_directory):
        if not status.name.startswith(LIST_PREFIX) or status.name in named:
            continue
        entries = tuple(_entries(context, status.name))
        if not entries or not all(_can_be_added(context, entry, seen) for entry in entries):
            continue
        if names.are_changelogs(status.path, entries):
            changelogs[status.name] = entries
        else:
            deltas.append(LostCommit(status.path, entries, status.modified_millis, _was_published(context)))
    for lost in sorted(_without_base_lists(deltas), key=_age):
        yield replace(lost, changelog=changelogs.get(_list_after(lost.path), ()))


def _list_after(path: str) -> str:
    """The name of the list that the same commit wrote next. After the delta list that is the one of its changelog, if it has one:
    in Java after `manifest-list-U-7` with the delta comes `manifest-list-U-8`.
    """
    prefix, _, number = path.rpartition("/")[2].rpartition("-")
    following = plain_number(number)
    return "" if following is None else f"{prefix}-{following + 1}"


@dataclass(frozen=True)
class FileNames:
    """How the names of data files and of changelog files begin, by all schemas of a table."""

    of_data: tuple[str, ...]
    of_changelogs: tuple[str, ...]

    @staticmethod
    def of(context: TableContext) -> FileNames:
        of_data, of_changelogs = {context.options.data_file_prefix}, {context.options.changelog_file_prefix}
        for number in context.schemas.ids():
            try:
                options = context.schemas.get(number).typed_options
            except (DamagedFile, NotFound, NotSupported):
                continue
            of_data.add(options.data_file_prefix)
            of_changelogs.add(options.changelog_file_prefix)
        return FileNames(tuple(of_data), tuple(of_changelogs))

    def are_changelogs(self, path: str, entries: Sequence[ManifestEntry]) -> bool:
        """Whether a list is about changelog files: entries do not say so. Committed as data, their rows would count twice."""
        kinds = {
            (entry.file.file_name.startswith(self.of_data), entry.file.file_name.startswith(self.of_changelogs))
            for entry in entries
        }
        if kinds == {(True, False)} or kinds == {(False, True)}:
            return kinds == {(False, True)}
        why = "by their names its files may be data files or changelog files (data-file.prefix, changelog-file.prefix)"
        raise NotSupported(f"{path} may hold a lost commit", why, path=path)


def _age(lost: LostCommit) -> tuple[int, str]:
    return lost.modified_millis, lost.path


def _without_base_lists(found: Sequence[LostCommit]) -> Iterator[LostCommit]:
    """The lists that share no file with a shorter one, or an older one of the same length.

    The base list of a commit names the files of all commits before it: committed as well, it would add their rows again.
    """
    taken = set[str]()
    for lost in sorted(found, key=lambda lost: (len(lost.entries), *_age(lost))):
        names = {entry.file.file_name for entry in lost.entries}
        if taken.isdisjoint(names):
            taken |= names
            yield lost


def _entries(context: TableContext, name: str) -> list[ManifestEntry]:
    """The entries of a manifest list; none if it, or one of its manifests, cannot be read."""
    manifests = context.manifests
    try:
        return [entry for entries in manifests.entries(manifests.manifest_list(name)) for entry in entries]
    except (DamagedFile, NotFound, NotSupported):
        return []


def _can_be_added(context: TableContext, entry: ManifestEntry, seen: set[str]) -> bool:
    file = entry.file
    if entry.kind != EntryKind.ADD or file.level != 0 or file.external_path is not None or file.file_name in seen:
        return False
    path = context.data_file_path(entry.partition, entry.bucket, file)
    try:
        return context.storage.file_size(path) == file.file_size
    except FileNotFoundError:
        return False


def _was_published(context: TableContext) -> bool:
    hint = context.snapshots.latest_hint()
    return hint is not None and hint > max(context.snapshots.ids(), default=0)


def _named_lists(context: TableContext) -> set[str]:
    """The manifest lists that the versions of all branches name.

    Unreadable versions of this branch are skipped, so that their commits can be made again. Raises `DamagedFile` for those of
    other branches, whose commits would look lost.
    """
    named: set[str] = set()
    for branch in (MAIN_BRANCH, *context.branches.directories()):
        for path in version_files(context.storage, context.layout.of_branch(branch)):
            try:
                named.update(lists_named_in(context.storage, path))
            except DamagedFile:
                if branch != context.branch:
                    raise
    return named


def _named_files(context: TableContext, named: set[str]) -> set[str]:
    """Names of the data files in these lists, in ADD or DELETE entries. Unreadable lists and manifests are skipped."""
    manifests: dict[str, None] = {}
    for name in named:
        try:
            manifests.update((meta.file_name, None) for meta in context.manifests.manifest_list(name))
        except (DamagedFile, NotFound, NotSupported):
            continue
    files: set[str] = set()
    for name in manifests:
        try:
            files.update(entry.file.file_name for entry in context.manifests.manifest(name))
        except (DamagedFile, NotFound, NotSupported):
            continue
    return files


DIRECTORY = "damaged"


@dataclass(frozen=True)
class DamagedVersion:
    """An unreadable file in `snapshot/`, `tag/` or `changelog/`. `loss`: what is lost if it is set aside; `snapshot_id`: only for
    files in `snapshot/`.
    """

    path: str
    why: str
    loss: str
    snapshot_id: int | None = None


def damaged_versions(context: TableContext, ids: Sequence[int]) -> list[DamagedVersion]:
    """Damaged snapshots of these ids, then tags, then changelogs."""
    changelogs = ChangelogHistory(context.storage, context.layout)
    found: list[DamagedVersion] = []
    for number in ids:
        loss = "what only this snapshot records"
        found += _look(context.layout.snapshot(number), loss, lambda n=number: context.snapshots.find(n), number)  # type: ignore[misc]
    for name in context.tags.names():
        loss = f"tag {name}; files that only it needs are orphans then"
        found += _look(context.layout.tag(name), loss, lambda n=name: context.tags.find(n))  # type: ignore[misc]
    for number in changelogs.ids():
        loss = f"the changes of snapshot {number}; files that only they need are orphans then"
        found += _look(context.layout.changelog(number), loss, lambda n=number: changelogs.find(n))  # type: ignore[misc]
    return found


def _look(path: str, loss: str, read: Callable[[], object], number: int | None = None) -> Iterator[DamagedVersion]:
    try:
        read()
    except DamagedFile as error:
        yield DamagedVersion(path, error.why or error.what, loss, number)


def set_aside(context: TableContext, damaged: DamagedVersion) -> None:
    """Copy the file to `damaged/`, then delete it. Raises `Conflict` if it has changed since the plan was made."""
    if damaged not in damaged_versions(context, context.snapshots.ids()):
        raise Conflict(
            f"{damaged.path} is no longer damaged, or damaged in another way",
            "it was misread, or has changed since",
            "plan again",
        )
    directory, _, name = damaged.path.rpartition("/")
    content = context.storage.read_bytes(damaged.path)
    context.storage.write_new(f"{context.layout.root}/{DIRECTORY}/{name}-{context.random.uuid()}", content)
    context.storage.delete(damaged.path)
    keep_deleted(context.storage, directory)
