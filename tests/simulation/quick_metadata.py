"""Remembers what metadata files decode to, by content: thousands of schedules read and write the same few files.

Only for simulations: the functions are those shipped, called once for each different content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from paimon_cli.commit import prepared_snapshot
from paimon_cli.history import file_table, manifest_reader, table_context
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata import manifest_table, partition_ranges
from paimon_cli.metadata.data_file import ALL_FILES, FileFilter
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.metadata.manifests import encode_manifest_list, encode_manifests
from paimon_cli.metadata.partition_ranges import partition_stats
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_schema import TableSchema

MAX_KEPT = 200_000


@contextmanager
def quick_metadata() -> Iterator[None]:
    """Inside, repeated encoding and decoding of metadata costs a look-up."""
    with ExitStack() as stack:
        for module, name in (
            (manifest_reader, "decode_manifest"),
            (manifest_reader, "decode_manifest_list"),
            (manifest_reader, "decode_index_manifest"),
        ):
            stack.enter_context(mock.patch.object(module, name, _by_content(getattr(module, name))))
        tables = _by_contents(manifest_table.decode_manifests)
        stack.enter_context(mock.patch.object(manifest_table, "decode_manifests", tables))
        stack.enter_context(mock.patch.object(ManifestTable, "of", staticmethod(_by_entries(ManifestTable.of))))
        stack.enter_context(mock.patch.object(FileTable, "of", staticmethod(_of_all(FileTable.of))))
        of_partition = _by_pieces({}, FileTable.of_partition)
        stack.enter_context(mock.patch.object(FileTable, "of_partition", staticmethod(of_partition)))
        for name in ("live", "live_entries", "by_partition"):
            stack.enter_context(mock.patch.object(FileTable, name, _once(name, getattr(FileTable, name))))
        stack.enter_context(mock.patch.object(file_table, "encode_manifests", _by_entries(encode_manifests)))
        listed = _by_entries(encode_manifest_list)
        stack.enter_context(mock.patch.object(prepared_snapshot, "encode_manifest_list", listed))
        for kind in (Snapshot, TableSchema):
            stack.enter_context(mock.patch.object(kind, "from_json", staticmethod(_value_by_content(kind.from_json))))
        stack.enter_context(mock.patch.object(Snapshot, "to_json", _by_value(Snapshot.to_json)))
        stats = _by_partitions(partition_stats)
        stack.enter_context(mock.patch.object(file_table, "partition_stats", stats))
        for reader in (partition_ranges, table_context):
            stack.enter_context(mock.patch.object(reader, "deserialize_row", _rows(reader.deserialize_row)))
        stack.enter_context(mock.patch.object(TableContext, "key_of", _keys(TableContext.key_of)))
        yield


def _by_content(decode: Callable[[bytes, str], list[Any]]) -> Callable[[bytes, str], list[Any]]:
    known: dict[bytes, list[Any]] = {}

    def decoded(data: bytes, path: str) -> list[Any]:
        found = known.get(data)
        if found is None:
            found = _keep(known, data, decode(data, path))
        return list(found)

    return decoded


def _by_contents(decode: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    known: dict[Any, list[Any]] = {}

    def decoded(manifests: Sequence[tuple[str, bytes]], partitions: Collection[bytes] | None = None) -> list[Any]:
        key = (*(data for _, data in manifests), None if partitions is None else frozenset(partitions))
        found = known.get(key)
        return found if found is not None else _keep(known, key, decode(manifests, partitions))

    return decoded


def _value_by_content(decode: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    known: dict[Any, Any] = {}

    def decoded(data: Any, path: str = "") -> Any:
        found = known.get(data)
        return found if found is not None else _keep(known, data, decode(data, path))

    return decoded


def _by_value(encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: dict[Any, Any] = {}

    def encoded(value: Any) -> Any:
        found = known.get(value)
        return found if found is not None else _keep(known, value, encode(value))

    return encoded


def _by_entries(encode: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def encoded(entries: Sequence[Any], *sizes: int) -> Any:
        key = (tuple(entries), *sizes)
        found = known.get(key)
        if found is None:
            found = encode(entries, *sizes)
            found = _keep(known, key, found if isinstance(found, (bytes, ManifestTable)) else list(found))
        return found

    return encoded


def _by_pieces(known: dict[Any, FileTable], make: Callable[..., FileTable]) -> Callable[..., FileTable]:
    """`make` takes something that compares as it is, and pieces. The tables hold these, so that their ids stay theirs."""

    def made(first: Any, pieces: Iterable[ManifestTable]) -> FileTable:
        held = tuple(pieces)
        key = (first, *map(id, held))
        found = known.get(key)
        return found if found is not None else _keep(known, key, make(first, held))

    return made


def _of_all(of: Callable[..., FileTable]) -> Callable[..., FileTable]:
    """`FileTable.of`, which is asked each time where a filter may count files or leave some out."""
    whole = _by_pieces({}, lambda _, pieces: of(pieces))

    def table(pieces: Iterable[ManifestTable], wanted: FileFilter = ALL_FILES) -> FileTable:
        return whole(None, pieces) if wanted is ALL_FILES else of(pieces, wanted)

    return table


def _once(name: str, ask: Callable[[FileTable], Any]) -> Callable[[FileTable], Any]:
    """A table does not change; its lists are copied, because callers may."""
    place = f"_quick_{name}"

    def asked(table: FileTable) -> Any:
        found = table.__dict__.get(place)
        if found is None:
            found = table.__dict__[place] = ask(table)
        return list(found) if isinstance(found, list) else found

    return asked


def _by_partitions(stats_of: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def stats(entry_counts: Mapping[bytes, int], types: Sequence[Any]) -> Any:
        key = (tuple(entry_counts.items()), tuple(types))
        found = known.get(key)
        return found if found is not None else _keep(known, key, stats_of(entry_counts, types))

    return stats


def _rows(decode: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def row(data: bytes, types: Sequence[Any]) -> Any:
        key = (data, tuple(types))
        found = known.get(key)
        return found if found is not None else _keep(known, key, decode(data, types))

    return row


def _keys(key_of: Callable[[TableContext, bytes], Any]) -> Callable[[TableContext, bytes], Any]:
    known: dict[bytes, Any] = {}

    def key(context: TableContext, data: bytes) -> Any:
        found = known.get(data)
        return found if found is not None else _keep(known, data, key_of(context, data))

    return key


def _keep(known: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(known) >= MAX_KEPT:
        known.clear()
    known[key] = value
    return value
