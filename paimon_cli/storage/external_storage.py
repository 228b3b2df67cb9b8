"""Data files outside of a table's directory, below the places that the user allows (`external-paths.allowed`).

A table says itself where its files are, and a table is not trusted. So only the configuration of the user opens other places, and
each of them is confined: neither `..` nor a symbolic link leads out of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from paimon_cli.errors import Refused, UsageError
from paimon_cli.storage.capabilities import (
    WrappedStorage,
    first_entries,
    keep_deleted,
    open_sized,
    overlapping_writes,
    remove_empty_directory,
    settle,
    will_open,
)
from paimon_cli.storage.catalog_options import EXTERNAL_PLACES, OBJECT_STORES
from paimon_cli.storage.deletions import delete_all, deleted_together
from paimon_cli.storage.redaction import without_login
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage
from paimon_cli.storage.threads import cached_property

_ODD = {"", ".", ".."}
_BUCKET = re.compile(r"bucket-(-?[0-9]+|postpone)")
OpenPlace = Callable[[str], Storage]
"""Opens the storage of a place by its location, so that no link leads out of it; picklable."""


def location_of(text: str) -> str | None:
    """A path or URL as storages take it: `file:/a` and `file:///a` as `/a`, without a trailing slash.

    None unless it is absolute and plain: relative parts, empty ones, NUL and backslashes may mean other files to other readers.
    """
    scheme, path = "", text
    if text.startswith("file:"):
        path = text.removeprefix("file:")
        path = path[2:] if path.startswith("///") else path
    elif "://" in text:
        scheme, _, path = text.partition("://")
        path = f"/{path}"
    path = path.rstrip("/")
    is_plain = path.startswith("/") and not _ODD.intersection(path[1:].split("/")) and "\0" not in path and "\\" not in path
    return (f"{scheme}:/{path}" if scheme else path) if is_plain else None


def _comparable(location: str) -> str:
    """The location with one scheme for all that mean the same store: `s3a://` is `s3://`."""
    scheme, mark, rest = location.partition("://")
    return f"{OBJECT_STORES[scheme].value}://{rest}" if mark and scheme in OBJECT_STORES else location


@dataclass(frozen=True)
class AllowedPlaces:
    """The places outside of tables where the user lets them keep data files: absolute paths or URLs."""

    places: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str | None) -> AllowedPlaces:
        """A list with commas. Raises `UsageError` for what is no absolute path or URL below a root or bucket."""
        found = []
        for entry in filter(str.strip, (text or "").split(",")):
            location = location_of(os.path.expanduser(entry.strip()))
            if location is None:
                why = "an absolute path or a URL is expected, not the root, and without .. in it"
                raise UsageError(f"{EXTERNAL_PLACES}: '{without_login(entry.strip())}' is no place", why)
            found.append(location)
        return AllowedPlaces(tuple(found))


@dataclass(frozen=True)
class _Place:
    """One allowed place. Its storage is opened when it is first needed: few tables use it."""

    location: str
    open: OpenPlace = field(repr=False, compare=False)

    @cached_property
    def storage(self) -> Storage:
        return self.open(self.location)

    def holds(self, path: str) -> bool:
        return path.startswith(f"{self.location}/")


class ExternalStorage(WrappedStorage):
    """The storage of a table together with the places where the user lets it keep data files.

    `root`: the table, whose own files stay with `inner` even if one of the places is above it. Equal to others with an equal
    `inner`, so that they share the result of a probe.
    """

    def __init__(self, inner: Storage, root: str, allowed: AllowedPlaces, open_place: OpenPlace) -> None:
        super().__init__(inner)
        self._root = root
        self._allowed = allowed
        self._open_place = open_place
        self._places = tuple(_Place(location, open_place) for location in allowed.places)

    def __reduce__(self) -> tuple[Any, ...]:
        return ExternalStorage, (self.inner, self._root, self._allowed, self._open_place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExternalStorage) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    def resolve(self, recorded: str) -> str | None:
        """Where a recorded path is, as this storage takes it; None if the user does not allow the place."""
        location = location_of(recorded)
        if location is None:
            return None
        wanted = _comparable(location)
        for place in self._places:
            above = _comparable(place.location)
            if wanted == above or wanted.startswith(f"{above}/"):
                return place.location + wanted[len(above) :]
        return None

    def _at(self, path: str) -> Storage:
        if path == self._root or path.startswith(f"{self._root}/"):
            return self.inner
        return next((place.storage for place in self._places if place.holds(path)), self.inner)

    def _opened(self) -> list[Storage]:
        """The storages that were used: of the table, and of places."""
        return [self.inner, *(place.storage for place in self._places if "storage" in vars(place))]

    @property
    def is_remote(self) -> bool:
        return any(storage.is_remote for storage in self._opened())

    def overlapping_writes(self) -> AbstractContextManager[None]:
        """See `capabilities.OverlapsWrites`."""
        return self._overlapping()

    @contextmanager
    def _overlapping(self) -> Iterator[None]:
        with ExitStack() as stack:
            for storage in self._opened():
                stack.enter_context(overlapping_writes(storage))
            yield

    def settle(self) -> None:
        """See `capabilities.OverlapsWrites`."""
        for storage in self._opened():
            settle(storage)

    def will_open(self, files: Iterable[tuple[str, int]]) -> None:
        """See `capabilities.Prefetches`."""
        by_storage: dict[int, tuple[Storage, list[tuple[str, int]]]] = {}
        for path, size in files:
            storage = self._at(path)
            by_storage.setdefault(id(storage), (storage, []))[1].append((path, size))
        for storage, found in by_storage.values():
            will_open(storage, _given(found))

    def read_bytes(self, path: str) -> bytes:
        return self._at(path).read_bytes(path)

    def open_input(self, path: str) -> BinaryIO:
        return self._at(path).open_input(path)

    def open_sized(self, path: str, size: int) -> BinaryIO:
        return open_sized(self._at(path), path, size)

    def open_output(self, path: str) -> BinaryIO:
        return self._at(path).open_output(path)

    def write_new(self, path: str, data: bytes) -> None:
        self._at(path).write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See `storage.Storage`. What the file names may be at another place, and must be there first."""
        self.settle()
        return self._at(path).put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._at(path).overwrite(path, data)

    def exists(self, path: str) -> bool:
        return self._at(path).exists(path)

    def file_size(self, path: str) -> int:
        return self._at(path).file_size(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._at(path).list_directory(path)

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        return first_entries(self._at(path), path, limit)

    def delete(self, path: str) -> None:
        self._at(path).delete(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """See `capabilities.DeletesMany`."""
        by_storage: dict[int, tuple[Storage, list[str]]] = {}
        for path in paths:
            storage = self._at(path)
            by_storage.setdefault(id(storage), (storage, []))[1].append(path)
        for storage, found in by_storage.values():
            if not deleted_together(storage, found):
                delete_all(storage, found, in_order=True)

    def delete_directory(self, path: str) -> None:
        self._at(path).delete_directory(path)

    def remove_empty_directory(self, path: str) -> bool:
        return remove_empty_directory(self._at(path), path)

    def sync_directory(self, path: str) -> None:
        keep_deleted(self._at(path), path)


def _given(files: list[tuple[str, int]]) -> Callable[[], list[tuple[str, int]]]:
    return lambda: files


def external_path(storage: Storage, recorded: str) -> str | None:
    """Where a file outside of the table is, as `storage` takes it; None if the user's configuration does not allow the place."""
    while isinstance(storage, WrappedStorage):
        if isinstance(storage, ExternalStorage):
            return storage.resolve(recorded)
        storage = storage.inner
    return None


def _place_above(path: str) -> str:
    """The place of a data file `PLACE/[k=v/]bucket-0/NAME`, and no wider one; the path itself if it is none of a data file."""
    parts = path.split("/")[:-1]
    if not parts or not _BUCKET.fullmatch(parts.pop()):
        return path
    while parts and "=" in parts[-1]:
        parts.pop()
    return "/".join(parts) or path


def place_not_allowed(what: str, recorded: str) -> Refused:
    """The error for a file, or a place of new ones, that the user's configuration does not allow."""
    shown = without_login(recorded)
    return Refused(
        f"{what} lies outside of the table, at {shown}",
        "a table cannot give itself access to other places: your own configuration must allow them",
        f"if you trust the table, add `{EXTERNAL_PLACES}: {_place_above(shown)}` to your own file: paimon-cli config show",
        external_path=shown,
    )
