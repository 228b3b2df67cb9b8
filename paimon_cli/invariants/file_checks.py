"""Checks of files without reading rows: existence, size, and the row count in the footer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paimon_cli.bucket.data_file_reader import stored_shape
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.moved_partitions import moved_file
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import FILES, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import ROW_ID, ManifestEntry
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, FileLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.column_options import STORAGE_LAYOUT

declare(
    Invariant("PV012", CheckGroup.STORED, FILES, "every live data file exists", of_unreadable_file=True),
    Invariant("PV013", CheckGroup.STORED, FILES, "every live data file has the size of its metadata"),
    Invariant("PV055", CheckGroup.REFERENCES, FILES, "the statistics file of a snapshot exists", of_unreadable_file=True),
    Invariant(
        "PV056",
        CheckGroup.STORED,
        FILES,
        "every changelog file of a snapshot exists with the size of its metadata",
        of_unreadable_file=True,
    ),
    Invariant("PV067", CheckGroup.SCHEMAS, FILES, "a data file holds no column that its schema lacks"),
)

_MAX_SHOWN = 5


@dataclass(frozen=True)
class StoredFiles:
    """The files on storage; each directory is listed once."""

    context: TableContext
    _sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    def size(self, directory: str, name: str) -> int | None:
        """The size in bytes, None if the file does not exist."""
        sizes = self._sizes.get(directory)
        if sizes is None:
            listed = self.context.storage.list_directory(directory)
            sizes = self._sizes[directory] = {status.name: status.size for status in listed if not status.is_directory}
        return sizes.get(name)


def live_files_exist(version: Version, stored: StoredFiles | None = None) -> Iterator[Violation]:
    """PV012 and PV013. Files at places that the user does not allow are not checked (PV028)."""
    known = stored or StoredFiles(version.context)
    for entry in version.fresh:
        if version.context.can_open(entry.file):
            yield from _file_violations(version, entry, known, "PV012", "PV013")


def changelog_files_exist(version: Version, stored: StoredFiles) -> Iterator[Violation]:
    """PV056: the changelog files of a snapshot."""
    name = version.snapshot.changelog_manifest_list
    if name is None:
        return
    manifests = version.context.manifests
    try:
        entries = [e for found in manifests.entries(manifests.manifest_list(name)) for e in found]
    except (DamagedFile, NotFound) as error:
        yield Violation("PV005", error.path or version.path, f"snapshot {version.snapshot.id}: {error}")
        return
    for entry in entries:
        yield from _file_violations(version, entry, stored, "PV056", "PV056")


def _file_violations(
    version: Version, entry: ManifestEntry, stored: StoredFiles, missing: str, wrong_size: str
) -> Iterator[Violation]:
    file, path = entry.file, version.file_path(entry)
    directory = path.rpartition("/")[0]
    for name in file.extra_files:
        if stored.size(directory, name) is None:
            yield Violation(missing, path, f"is named by snapshot {version.snapshot.id}, but its extra file {name} is missing")
    size = stored.size(directory, file.file_name)
    if size is None:
        moved = moved_file(version.context, path, entry.partition)
        reason, hint = ("", "") if moved is None else (f": {moved.why}; {moved.hint}", moved.hint)
        yield Violation(missing, path, f"is named by snapshot {version.snapshot.id} and is missing{reason}", hint)
    elif size != file.file_size:
        yield Violation(wrong_size, path, f"has {size} bytes, but its metadata says {file.file_size}")


def file_can_be_opened(context: TableContext, entry: ManifestEntry) -> Iterator[Violation]:
    """PV031 and PV067: the row count and the columns in the file's footer or headers, without reading values."""
    path = context.data_file_path(entry.partition, entry.bucket, entry.file)
    try:
        rows, names = stored_shape(context, entry.bucket_id, entry.file)
    except (DamagedFile, NotFound) as error:
        yield Violation("PV031", path, str(error))
        return
    if rows != entry.file.row_count:
        yield Violation("PV031", path, f"holds {rows} rows, but its metadata says {entry.file.row_count}")
    with suppress(DamagedFile, NotFound):  # the checks of schemas say that one is missing
        yield from unknown_columns(context.schemas.get(entry.file.schema_id), names, path)


def file_holds_columns_of_its_schema(context: TableContext, entry: ManifestEntry) -> Iterator[Violation]:
    """PV067 alone, for a file whose rows are checked as well; what cannot be read is reported there."""
    with suppress(DamagedFile, NotFound):
        _, names = stored_shape(context, entry.bucket_id, entry.file)
        schema, path = context.schemas.get(entry.file.schema_id), context.data_file_path(*entry.bucket_id, entry.file)
        yield from unknown_columns(schema, names, path)


def unknown_columns(schema: TableSchema, names: Sequence[str], path: str) -> Iterator[Violation]:
    """PV067. Writers store the columns of one schema, whose file never changes: a column that it lacks was taken out later."""
    if any(STORAGE_LAYOUT in key for key in schema.options):
        return  # one column is stored as several
    known = {*(column.name for column in FileLayout.of(schema).fields), ROW_ID, SEQUENCE_NUMBER}
    unknown = [name for name in names if name not in known and not name.startswith(KEY_PREFIX)]
    if unknown:
        shown = ", ".join(unknown[:_MAX_SHOWN]) + (f" and {len(unknown) - _MAX_SHOWN} more" if len(unknown) > _MAX_SHOWN else "")
        yield Violation("PV067", path, f"holds {shown}, which schema {schema.id}, by which it was written, does not have")


def statistics_exist(version: Version, stored: StoredFiles) -> Iterator[Violation]:
    """PV055: the statistics file of a snapshot."""
    name, layout = version.snapshot.statistics, version.context.layout
    if name is not None and stored.size(layout.statistics_directory, name) is None:
        yield Violation(
            "PV055", f"{layout.statistics_directory}/{name}", f"snapshot {version.snapshot.id} refers to it, but it is missing"
        )
