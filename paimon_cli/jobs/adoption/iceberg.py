"""Finds the files of an Iceberg table's current snapshot, if no row of them is deleted by other files.

All metadata is read through the confined storage of the source. Locations in it are followed only below the table's directory,
also if that was moved since they were written.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from paimon_cli.bucket.decoding import DECODE_ERRORS, first_line
from paimon_cli.datatypes.internal_values import date_text
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import Conflict, DamagedFile, NotFound, NotSupported, Refused, importing
from paimon_cli.jobs.adoption.source import CHANGED_HINT, METADATA_SUFFIXES, AdoptedFile, Source
from paimon_cli.metadata.avro_reader import uncompressed_container
from paimon_cli.options.option_text import plain_number
from paimon_cli.storage.external_storage import location_of
from paimon_cli.storage.storage import Storage

_KEY_TYPES = {"boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "string": "STRING", "date": "DATE"}
"""Iceberg's name of a type -> Paimon's, of partition columns that both spell alike."""

_KEPT_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""Column names that are written into files as they are (Iceberg's `AvroSchemaUtil.makeCompatibleName` changes others)."""
_COMPRESSED = (".gz.metadata.json", ".metadata.json.gz")
_HINT = "version-hint.text"
_MOST_NAMED = 3
_REPAIR = "restore the Iceberg table with its own engine, then adopt it"


def iceberg_source(storage: Storage, root: str, metadata_names: Sequence[str], chosen: str = "") -> Source:
    """The files of the current snapshot, according to the metadata file `chosen` or else the newest one.

    Raises `NotSupported` for deletes, evolved columns or partitions, partitions by other transforms than identity, columns that
    have another name in the files, and locations outside of the directory; `Refused` if only the catalog knows the newest
    metadata; `DamagedFile` for metadata that cannot be read, or is older than the hint of the version; `Conflict` if the table
    changes or is dropped meanwhile.
    """
    with importing("reading Iceberg tables needs the package pyiceberg", "iceberg"):
        from pyiceberg.exceptions import NotInstalledError, ValidationError
        from pyiceberg.table.metadata import TableMetadataUtil

    malformed: tuple[type[Exception], ...] = (*DECODE_ERRORS, AssertionError, NotInstalledError, ValidationError)
    newest = chosen or _newest(storage, root, metadata_names)
    path = f"{root}/metadata/{newest}"
    if newest.endswith(_COMPRESSED):
        why = "metadata that is compressed by gzip is not read"
        hint = "set write.metadata.compression-codec of the Iceberg table to none, commit to it once, and adopt it then"
        raise NotSupported(f"{path} cannot be read", why, hint)
    try:
        metadata: Any = TableMetadataUtil.parse_raw(storage.read_bytes(path).decode())
        return _source(storage, root, metadata)
    except FileNotFoundError as error:
        if not chosen and _newest(storage, root, _listed(storage, root)) != newest:
            why = f"{error.filename or path} was deleted while it was read"
            raise Conflict(f"the Iceberg table {root} has a new snapshot", why, CHANGED_HINT, path=path) from error
        raise DamagedFile(f"{error.filename or root} is missing", f"{path} leads to it", _REPAIR, path=path) from error
    except malformed as error:
        raise DamagedFile(f"{path} cannot be read", first_line(error), _REPAIR, path=path) from error


def _newest(storage: Storage, root: str, names: Sequence[str]) -> str:
    """The current metadata file. Raises `Refused` if several have the greatest number, `DamagedFile` if the hint is above all of
    them, `Conflict` if there is none any more.

    Hadoop catalogs: the one of the hint, which may be late, or the last of those that follow it without a gap. Others have
    the name in a catalog, which is not asked; each of their commits that lost leaves a file, too.
    """
    hinted = _hinted(storage, root) if _HINT in names else None
    if hinted is not None and hinted > max(map(_number, _metadata_files(names)), default=0):
        names = _listed(storage, root)  # a commit may have come between the list and the hint
    files = _metadata_files(names)
    if not files:
        raise Conflict(f"the Iceberg table {root} has just been dropped", "its metadata files are gone", "check the path")
    greatest = max(map(_number, files))
    if hinted is not None and hinted > greatest:
        path, why = (
            f"{root}/metadata/v{hinted}{METADATA_SUFFIXES[0]}",
            f"{_HINT} names it, and the newest one is of version {greatest}",
        )
        raise DamagedFile(f"{path} is missing", why, f"{_REPAIR}, or adopt an older metadata file by its name", path=path)
    versions = {
        _number(name): name for name in sorted(files, key=len, reverse=True) if name.startswith("v")
    }  # of two, the plain one
    if hinted is not None and hinted in versions:
        while hinted + 1 in versions:
            hinted += 1
        return versions[hinted]
    newest = sorted(name for name in files if _number(name) == greatest)
    if len(newest) > 1:
        what = f"the Iceberg table {root} has {len(newest)} metadata files of version {greatest}"
        why = f"only its catalog knows which of them counts: {', '.join(newest[:_MOST_NAMED])}"
        raise Refused(what, why, "adopt the metadata file that the catalog names, instead of the directory")
    return newest[0]


def _hinted(storage: Storage, root: str) -> int | None:
    """The version in the hint, if it is a number. Raises `Conflict` if the hint is gone: writers replace it in two steps."""
    path = f"{root}/metadata/{_HINT}"
    try:
        return plain_number(storage.read_bytes(path).decode(errors="replace"))
    except FileNotFoundError as error:
        why = f"{path} was deleted while it was read"
        raise Conflict(f"the Iceberg table {root} has changed", why, CHANGED_HINT, path=path) from error


def _listed(storage: Storage, root: str) -> list[str]:
    return [entry.name for entry in storage.list_directory(f"{root}/metadata")]


def _metadata_files(names: Sequence[str]) -> set[str]:
    return {name for name in names if name.endswith(METADATA_SUFFIXES)}


def _number(name: str) -> int:
    """The version in the name of a metadata file: `v3.metadata.json`, or `00003-ID.metadata.json`."""
    return plain_number(name.removeprefix("v").split("-")[0].split(".")[0]) or 0


def _source(storage: Storage, root: str, metadata: Any) -> Source:
    keys = _keys(root, metadata)
    snapshot = metadata.current_snapshot()
    if snapshot is None and metadata.current_snapshot_id is not None:
        raise ValueError(f"its current snapshot {metadata.current_snapshot_id} is not in it")
    if snapshot is None:
        raise NotFound(f"the Iceberg table {root} has no snapshot", "it has no rows", "create the table with paimon-cli create")
    own = metadata.location.rstrip("/")
    names = [name for name, _ in keys]
    files: list[AdoptedFile] = []
    for entry in _entries(storage, root, own, snapshot, metadata.default_spec_id):
        file = entry.data_file
        if file.file_format.value not in ("PARQUET", "ORC"):
            raise NotSupported(f"the Iceberg table {root} has {file.file_format.value} files", "Parquet and ORC can be adopted")
        values = tuple(_text(file.partition[number], kind) for number, (_, kind) in enumerate(keys))
        files.append(AdoptedFile(_below(root, own, file.file_path), file.file_size_in_bytes, values, file.record_count))
    if not files:
        raise NotFound(f"the Iceberg table {root} has no rows", "its current snapshot has no data files", "create an empty table")
    types = {name: _KEY_TYPES[kind] for name, kind in keys}
    rows, order = sum(file.rows or 0 for file in files), tuple(column.name for column in metadata.schema().fields)
    return Source(
        "iceberg", storage, root, tuple(names), tuple(sorted(files, key=lambda file: file.path)), types, rows, order=order
    )


def _keys(root: str, metadata: Any) -> list[tuple[str, str]]:
    """The partition columns with Iceberg's names of their types."""
    schemas = [{(f.field_id, f.name, str(f.field_type)) for f in schema.fields} for schema in metadata.schemas]
    if any(schema != schemas[0] for schema in schemas[1:]):
        raise _evolved(root, "columns", "older files may hold columns under other names or with other meanings")
    schema, keys = metadata.schema(), list[tuple[str, str]]()
    renamed = next((name for name in _names(schema.as_struct()) if not _KEPT_NAME.fullmatch(name)), None)
    if renamed is not None:
        what = f"the Iceberg table {root} has a column {quoted_name(renamed)}"
        raise NotSupported(
            what, "Iceberg writes such a name in another form into its files", "write the rows, or rename the column"
        )
    for part in metadata.spec().fields:
        column = schema.find_field(part.source_id)
        kind = str(column.field_type)
        if str(part.transform) != "identity" or kind not in _KEY_TYPES:
            what = f"the Iceberg table {root} is partitioned by {part.transform}({column.name})"
            known = ", ".join(_KEY_TYPES)
            raise NotSupported(what, f"a table of Paimon is partitioned by columns, here of the types {known}", "write the rows")
        keys.append((column.name, kind))
    return keys


def _names(kind: Any) -> Iterator[str]:
    """The names of all fields of a type of Iceberg, and of the types within it."""
    inner = [getattr(kind, name, None) for name in ("element_field", "key_field", "value_field")]
    for field in (*getattr(kind, "fields", ()), *filter(None, inner)):
        yield field.name
        yield from _names(field.field_type)


def _entries(storage: Storage, root: str, own: str, snapshot: Any, spec_id: int) -> Iterator[Any]:
    """The live entries of data files. Raises `NotSupported` if some are divided into other partitions than those of this spec."""
    from pyiceberg.io import FileIO, InputFile
    from pyiceberg.manifest import ManifestContent

    class Stored(InputFile):
        """A file of the source."""

        def __init__(self, location: str) -> None:
            super().__init__(location)
            self.path = f"{root}/{_below(root, own, location)}"

        def __len__(self) -> int:
            return storage.file_size(self.path)

        def exists(self) -> bool:
            return storage.exists(self.path)

        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(uncompressed_container(storage.read_bytes(self.path)))  # pyiceberg bounds no block

    class ConfinedFiles(FileIO):
        """Opens what is below the table, and nothing else."""

        def new_input(self, location: str) -> InputFile:
            return Stored(location)

        def new_output(self, location: str) -> Any:
            raise NotSupported(f"{location} cannot be written", "the files of a source are only read")

        def delete(self, location: Any) -> None:
            raise NotSupported(f"{location} cannot be deleted", "the files of a source are only read")

    files = ConfinedFiles()
    for manifest in snapshot.manifests(files):
        entries = manifest.fetch_manifest_entry(files, discard_deleted=True)
        if entries and manifest.content == ManifestContent.DELETES:
            what, why = f"the Iceberg table {root} has delete files", "rows in its data files do not count any more"
            raise NotSupported(what, why, "compact it with its own engine first (rewrite_data_files), or write the rows")
        if entries and manifest.partition_spec_id != spec_id:
            raise _evolved(root, "partitions", "older files are divided in another way")
        yield from entries


def _below(root: str, own: str, location: str) -> str:
    """The path of a location below the table. Raises `NotSupported` for one elsewhere."""
    plain, base = location_of(location), location_of(own)
    for above in (base, location_of(root)):
        if plain is not None and above is not None and plain.startswith(f"{above}/"):
            return plain[len(above) + 1 :]
    why = f"its metadata names {location}, which is not below the directory of the table"
    raise NotSupported(f"files of the Iceberg table {root} lie elsewhere", why, "write the rows into a table of Paimon")


def _text(value: Any, kind: str) -> str | None:
    if value is None:
        return None
    if kind == "date" and isinstance(value, int):
        return date_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _evolved(root: str, what: str, why: str) -> NotSupported:
    return NotSupported(f"the {what} of the Iceberg table {root} have changed", why, "write the rows into a table of Paimon")
