"""Creating, moving and deleting tags, and the files that only a deleted tag needed (FORMAT.md, section 13.2; Java TagManager)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paimon_cli.commit.automatic_tags import AutomaticTags, tag_content
from paimon_cli.errors import (
    AlreadyExists,
    CommitUnknown,
    Conflict,
    DamagedFile,
    NotFound,
    StorageUnavailable,
    UsageError,
    cleaning_up,
)
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.file_deletion import DeleteFiles
from paimon_cli.maintain.histories import behind_gaps, without_snapshot
from paimon_cli.maintain.named_files import FileToDelete, changelog_entries, file_paths
from paimon_cli.maintain.needed_files import SharedManifests, all_ids, needed_by_other_branches
from paimon_cli.maintain.removed_versions import (
    TAGS,
    DiscardedVersions,
    delete_named_first,
    discarded_versions,
    finish_removals,
    record_removal,
    unfinished_removals,
)
from paimon_cli.metadata.snapshot import Snapshot, Tag, snapshot_text
from paimon_cli.metadata.table_layout import is_plain_name
from paimon_cli.options.option_catalog import Operation
from paimon_cli.storage.capabilities import ServesVersions, keep_deleted
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.storage import PutOutcome


def create_tag(context: TableContext, name: str, snapshot_id: int | None = None, retained_millis: int | None = None) -> Tag:
    """Tag a snapshot (None: the latest), possibly one that has expired and is held by another tag.

    `UsageError` if the name is taken or invalid, `NotFound` if the snapshot does not exist.
    """
    check_tag_name(name)
    context.check(Operation.TAG)
    if context.tags.content(name) is not None:
        at = "" if snapshot_id is None else f" --snapshot {snapshot_id}"
        command = f"paimon-cli tags replace {context.layout.argument} {shlex.quote(name)}{at}"
        why = "the snapshot that it holds may expire once it holds another one"
        raise AlreadyExists(f"tag '{name}' exists", why, f"to move it: {command}")
    text, holder = snapshot_and_holder(context, snapshot_id)
    if isinstance(context.storage, ServesVersions):
        retained = context.options.tag_default_time_retained if retained_millis is None else retained_millis
        context.storage.create_tag(name, Snapshot.from_json(text, holder).id, retained)
        return context.tags.get(name)
    content = tag_content(context, text, retained_millis)
    path = context.layout.tag(name)
    outcome = context.storage.put_if_absent(path, content)
    if outcome is PutOutcome.EXISTS and context.tags.content(name) != content:
        raise AlreadyExists(f"tag '{name}' exists", "another process has just created it")
    if outcome is PutOutcome.UNKNOWN and context.tags.content(name) != content:
        raise CommitUnknown(f"tag '{name}' may or may not have been created", "the storage gave no clear answer", path=path)
    # Expiry reads the tags after deleting the snapshot file: either it sees this tag, or we see that the file is gone.
    try:
        is_held = context.storage.exists(holder)
    except StorageUnavailable as error:
        what = f"tag '{name}' was created, but possibly too late"
        raise CommitUnknown(what, f"cannot determine whether {holder} still exists: {error}", path=path) from error
    if not is_held:
        gone = NotFound("the snapshot to tag was deleted meanwhile", f"{holder} was deleted", "tag a newer one")
        with cleaning_up(gone):
            context.storage.delete(path)
        raise gone
    return Tag.from_json(content, path)


def replace_tag(context: TableContext, name: str, snapshot_id: int | None = None, retained_millis: int | None = None) -> Tag:
    """Point an existing tag at another snapshot. What only the old one needed stays until orphans are cleaned."""
    context.tags.get(name)
    text, holder = snapshot_and_holder(context, snapshot_id)
    content = tag_content(context, text, retained_millis)
    before, path = context.tags.content(name), context.layout.tag(name)
    context.storage.overwrite(path, content)
    if not context.storage.exists(holder):
        if before is not None:
            context.storage.overwrite(path, before)
        raise NotFound("the snapshot to tag was deleted meanwhile", f"{holder} was deleted", "tag a newer one")
    return Tag.from_json(content, path)


def rename_tag(context: TableContext, name: str, new_name: str) -> None:
    """Rename a tag; at any moment one of the two names holds the snapshot."""
    check_tag_name(new_name)
    context.tags.get(name)
    content = context.tags.content(name)
    if content is not None:
        Tag.from_json(content, context.layout.tag(name))
    if content is None or context.tags.content(new_name) is not None:
        raise UsageError(f"tag '{new_name}' exists" if content is not None else f"tag '{name}' was deleted meanwhile")
    outcome = context.storage.put_if_absent(context.layout.tag(new_name), content)
    if outcome is not PutOutcome.CREATED and context.tags.content(new_name) != content:
        raise Conflict(f"tag '{name}' was not renamed", f"'{new_name}' was created by another process meanwhile")
    context.storage.delete(context.layout.tag(name))


def check_tag_name(name: str) -> None:
    """Raise `UsageError` for names that are no file names, and for digits alone, which would mean a snapshot."""
    if not is_plain_name(name) or not name.strip() or name.isdigit():
        raise UsageError(f"'{name}' cannot be the name of a tag", "it must be a file name and not all digits")


@dataclass(frozen=True)
class TagRemoval:
    """Tags to delete, and the versions that only they hold: an existing snapshot protects its own files."""

    names: tuple[str, ...]
    discarded: DiscardedVersions

    @property
    def affected(self) -> tuple[str, ...]:
        """The names, and those of tags that an interrupted command has deleted without the files."""
        return tuple(dict.fromkeys((*self.names, *(name for record in self.discarded.unfinished for name in record.tags))))


def plan_removal(context: TableContext, names: Sequence[str]) -> TagRemoval:
    """Read which files could be deleted with these tags, and with those whose deletion was interrupted.

    Raises `NotFound` for a tag that neither exists nor was deleted by an interrupted command.
    """
    unfinished = {name for record in unfinished_removals(context, TAGS) for name in record.tags}
    found = {name: context.tags.find(name) if name in unfinished else context.tags.get(name) for name in names}
    tags = {name: tag.snapshot for name, tag in found.items() if tag is not None}
    others = {tag.snapshot.origin for name, tag in context.tags.all().items() if name not in tags}
    held = {snapshot.origin: snapshot for snapshot in tags.values() if snapshot.origin not in others}
    alone = without_snapshot(context, list(held.values()))
    return TagRemoval(tuple(names), discarded_versions(context, TAGS, [], alone))


def files_removed_with_tags(context: TableContext, removal: TagRemoval) -> list[FileToDelete]:
    """The files that only these tags need now."""
    if not (removal.discarded.states or removal.discarded.unfinished):
        return []
    needed = needed_by_other_branches(context)
    needed.need_changelogs(context)
    manifests = SharedManifests(context)
    for neighbour in _neighbours(context, removal):
        needed.need_version(context, neighbour, manifests)
    return removal.discarded.files_to_delete(context, needed)


def remove_tags(context: TableContext, removal: TagRemoval, delete: DeleteFiles) -> int:
    """Delete the tags, then the files that no version needs; returns how many. After a crash, a repetition deletes the rest."""
    files_removed_with_tags(context, removal)  # raises, before anything is changed, if some needed file is unknown
    record = record_removal(context, TAGS, removal.discarded, removal.names)
    for name in removal.names:
        if isinstance(context.storage, ServesVersions):
            context.storage.delete_tag(name)
        else:
            context.storage.delete(context.layout.tag(name))
    keep_deleted(context.storage, context.layout.tag_directory)
    count = delete_named_first(files_removed_with_tags(context, removal), delete)
    finish_removals(context, record, removal.discarded)
    return count


def expired_tags(
    context: TableContext, older_than: int | None = None, limit_of: Callable[[int], int] = lambda own: own
) -> list[str]:
    """Tags older than their own time limit, or created before `older_than` (epoch millis) if given (Java TagTimeExpire), and the
    oldest of the automatic tags above `tag.num-retained-max`.

    Time limits are ignored with `tag.time-expire-enabled=false`. `limit_of`: the limit that counts instead of a tag's own
    one, or of none.
    """
    limits_count = context.options.tag_time_expire_enabled
    now = local_wall_clock(context.clock.now_millis())
    limit = None if older_than is None else local_wall_clock(older_than)
    modified = {status.path: status.modified_millis for status in context.storage.list_directory(context.layout.tag_directory)}
    tags = context.tags.all()
    surplus = set(_surplus_tags(context, list(tags)))
    found, kept = list[str](), limit_of(0)
    for name, tag in tags.items():
        created = tag.created_millis  # Paimon records it with a time limit only
        if created is None:
            written = modified.get(context.layout.tag(name))
            created = now if written is None else local_wall_clock(written)
        retained = None if tag.retained_millis is None else limit_of(tag.retained_millis)
        is_surplus = name in surplus and (not kept or now >= created + kept)
        is_over = limits_count and tag.created_millis is not None and retained is not None and now > created + retained
        if is_surplus or is_over or (limit is not None and created < limit):
            found.append(name)
    return found


def _surplus_tags(context: TableContext, names: Sequence[str]) -> list[str]:
    automatic, most = AutomaticTags.of(context), context.options.tag_num_retained_max
    if automatic is None or most is None:
        return []
    return automatic.names(names)[:-most]


def _neighbours(context: TableContext, removal: TagRemoval) -> list[Snapshot]:
    """All other tags, the oldest snapshot, and those that may have another history before them (`histories`). Not only the
    nearest ones: a tag may be created from any snapshot later on.

    All snapshots if a tag is not older than they are, but of another history; and with the record of an interrupted command: one
    that was gone may have been put back since, and a record in a table that is not to be trusted may name the files of any.
    """
    gone = {context.layout.tag(name) for name in removal.names}
    tags = [tag.snapshot for name, tag in context.tags.all().items() if context.layout.tag(name) not in gone]
    earliest = context.snapshots.earliest_id()
    if removal.discarded.unfinished or any(state.id > (earliest or 0) for state in removal.discarded.states):
        return [*tags, *filter(None, map(context.snapshots.find, all_ids(context)))]
    oldest = None if earliest is None else context.snapshots.find(earliest)
    return [*tags, *([] if oldest is None else [oldest]), *behind_gaps(context)]


def snapshot_and_holder(context: TableContext, snapshot_id: int | None) -> tuple[bytes, str]:
    """The text of the snapshot, and the path of the file that protects its files from deletion."""
    number = context.snapshots.latest_id() if snapshot_id is None else snapshot_id
    if number is None:
        raise NotFound(f"nothing to tag in {context.address}", "the table has no snapshots yet", "write to it first")
    path = context.layout.snapshot(number)
    try:
        text = context.storage.read_bytes(path)
        Snapshot.from_json(text, path)
        return text, path
    except FileNotFoundError:
        holder = next((name for name, tag in context.tags.all().items() if tag.snapshot.id == number), None)
        held = None if holder is None else context.tags.content(holder)
        if holder is None or held is None:
            raise context.snapshots.missing(number) from None
        return text_within_tag(context, held), context.layout.tag(holder)


def text_within_tag(context: TableContext, content: bytes) -> bytes:
    """The snapshot file within a tag file, to be published again.

    A tag keeps the files of a state, not the changelog that led to it, which expires with the snapshot (as in Java): a snapshot
    that still named it could not be read by streams, and would look damaged.
    """
    snapshot = Snapshot.from_json(content)
    try:
        files = [path for entry in changelog_entries(context, snapshot) for path in file_paths(context, entry)]
    except (DamagedFile, NotFound):
        return snapshot_text(content, has_changelog=False)
    return snapshot_text(content, has_changelog=all(map(context.storage.exists, files)))


def tags_above(context: TableContext, snapshot_id: int) -> list[str]:
    """Names of tags on snapshots later than that."""
    return [name for name, tag in context.tags.all().items() if tag.snapshot.id > snapshot_id]
