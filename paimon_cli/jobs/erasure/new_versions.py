"""The versions that take the place of those that name erased rows, and how they are put there: one atomic step each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, user_properties
from paimon_cli.commit.snapshot_publish import publish, rewrite_snapshot, write_latest_hint
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.inventory import SNAPSHOT, StoredVersion
from paimon_cli.jobs.erasure.metadata_rewrite import MetadataRewrite
from paimon_cli.metadata.manifests import LISTS_PROPERTY
from paimon_cli.metadata.snapshot import COMPACT, SEQUENCE_PROPERTY, Snapshot, renamed_files
from paimon_cli.storage.deletions import delete_all

_USER = "paimon-cli-erase"
Change = tuple[StoredVersion, Mapping[str, Any]]
"""A version, and the fields of it that change."""


def changed_versions(versions: Iterable[StoredVersion], rewrite: MetadataRewrite, *, any_erased: bool) -> list[Change]:
    """The versions that are to be replaced, each with its new values."""
    return [(version, values) for version in versions if (values := _new_values(version, rewrite, any_erased))]


def _new_values(version: StoredVersion, rewrite: MetadataRewrite, any_erased: bool) -> dict[str, Any]:
    """The fields of a version that change, by their names; none if it names only files that stay."""
    snapshot, values, lost = version.stored.snapshot, dict[str, Any](), dict[str, int]()
    for name, listed in version.lists.items():
        new = rewrite.new_list(listed)
        lost[name] = new.lost
        if new.is_new:
            values.update({name: new.name, f"{name}_size": new.size})
    if version.indexes is not None and (index := rewrite.new_index_manifest(version.indexes)) != version.indexes:
        values["index_manifest"] = index
    if any_erased and snapshot.statistics is not None:
        values["statistics"] = None  # they hold the least and the greatest value of each column
    if values:
        base, delta, changes = (lost.get(f"{name}_manifest_list") for name in ("base", "delta", "changelog"))
        if delta is not None:
            values["delta_record_count"] = snapshot.delta_record_count - delta
            if base is not None:
                values["total_record_count"] = snapshot.total_record_count - base - delta
        if changes is not None and snapshot.changelog_record_count is not None:
            values["changelog_record_count"] = snapshot.changelog_record_count - changes
    return values


def take_number(version: StoredVersion, values: Mapping[str, Any], rewrite: MetadataRewrite) -> Snapshot | None:
    """Publish a snapshot after the newest one, `version`, over its new lists; None if another commit was faster."""
    base, history = version.stored.snapshot, version.history
    following = _following(history, base, values, rewrite)
    if not publish(history, following, base):
        lists = (following.base_manifest_list, following.delta_manifest_list)
        delete_all(history.storage, [history.layout.manifest(name) for name in lists])
        return None
    write_latest_hint(history, following)
    return following


def _following(history: TableContext, base: Snapshot, values: Mapping[str, Any], rewrite: MetadataRewrite) -> Snapshot:
    """A snapshot on top of `base` with the same rows as its replacement, and without changes."""
    state = replace(base, **values)
    manifests = rewrite.context.manifests
    metas = [*manifests.manifest_list(state.base_manifest_list), *manifests.manifest_list(state.delta_manifest_list)]
    base_list, base_size = rewrite.writer.manifest_list(metas, "base")
    delta_list, delta_size = rewrite.writer.manifest_list([], "delta")
    identity = CommitIdentity(f"{_USER}-{history.random.uuid()}", BATCH_IDENTIFIER)
    number = (base.properties or {}).get(SEQUENCE_PROPERTY)
    return Snapshot(
        id=base.id + 1,
        schema_id=history.schemas.newest_id(history.schema.id),
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        index_manifest=state.index_manifest,
        commit_user=identity.user,
        commit_identifier=identity.identifier,
        commit_kind=COMPACT,
        time_millis=max(history.clock.now_millis(), base.time_millis),
        total_record_count=state.total_record_count,
        delta_record_count=0,
        watermark=base.watermark,
        properties={**user_properties(history, base, identity), **({} if number is None else {SEQUENCE_PROPERTY: number})},
        next_row_id=base.next_row_id,
        uuid=history.random.uuid(),
    )


def replace_version(version: StoredVersion, values: Mapping[str, Any]) -> bool:
    """Replace the file of a version; one that was removed or changed meanwhile is left to the next round (False)."""
    history, stored = version.history, version.stored
    content = renamed_files(stored.content, values, LISTS_PROPERTY)
    if version.kind == SNAPSHOT:
        return rewrite_snapshot(history.storage, history.layout, stored.snapshot.id, stored.content, content)
    unchanged = _is_still(history, stored.path, stored.content)
    if unchanged:
        history.storage.overwrite(stored.path, content)
    return unchanged


def _is_still(context: TableContext, path: str, content: bytes) -> bool:
    try:
        return context.storage.read_bytes(path) == content
    except FileNotFoundError:
        return False
