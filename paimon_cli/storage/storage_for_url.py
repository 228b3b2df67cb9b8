"""Opens the storage for a path or URL, and normalises the path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from paimon_cli.errors import UsageError, importing
from paimon_cli.storage.catalog_options import EXTRAS, OBJECT_STORES, file_system_options, lock_settings, store_options
from paimon_cli.storage.confined_storage import ConfinedPlace, ConfinedStorage
from paimon_cli.storage.counted_storage import counted, counts_requests
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.redaction import without_login
from paimon_cli.storage.storage import Storage

if TYPE_CHECKING:
    from paimon_cli.storage.external_storage import AllowedPlaces

_LOCAL, _HDFS = {"", "file", "local"}, {"hdfs", "webhdfs"}
_TRUSTED = _LOCAL | {"memory"}
"""Schemes whose storage always supports exclusive creation, so that no probe is needed."""


def storage_for_url(
    url: str,
    options: Mapping[str, Any] | None = None,
    allow_unsafe_commit: bool = False,
    *,
    confined: bool = False,
    external: AllowedPlaces | None = None,
) -> tuple[Storage, str]:
    """The storage of a path or URL, and the root in it: an absolute path, or a URL without credentials or trailing slash.

    `options`: catalog options (`catalog_options`); for schemes served by fsspec also options of its file system.
    `allow_unsafe_commit`: allow commits even if the storage cannot detect concurrent ones. `confined`: the URL is a table, and
    symbolic links that lead outside raise `DamagedFile`. `external`: places outside of the table that the user allows. Raises
    `UsageError` for invalid options or missing packages.
    """
    options = options or {}
    scheme = _scheme_of(url)
    root = _local_root(scheme, url) if scheme in _LOCAL else _root_in_store(url)
    storage = ConfinedStorage(root) if confined and scheme in _LOCAL else _storage(scheme, url, options)
    if not counts_requests(url):
        storage = counted(storage)
    if external is not None and external.places:
        from paimon_cli.storage.external_storage import ExternalStorage

        storage = ExternalStorage(storage, root, external, partial(_place, store_options(options)))
    has_lock = "lock.enabled" in options or "metastore" in options
    if scheme in _TRUSTED and not has_lock and not allow_unsafe_commit:
        return storage, root
    from paimon_cli.storage.commit_lock import CommitLock
    from paimon_cli.storage.guarded_storage import GuardedStorage

    settings = lock_settings(options)
    if settings is None and scheme in _TRUSTED and not allow_unsafe_commit:
        return storage, root
    lock = None if settings is None else CommitLock(settings, root)
    return GuardedStorage(storage, root, lock, allow_unsafe_commit), root


def _place(options: Mapping[str, Any], location: str) -> Storage:
    """The storage of a place outside of a table."""
    scheme = _scheme_of(location)
    return counted(ConfinedPlace(_local_root(scheme, location))) if scheme in _LOCAL else storage_for_url(location, options)[0]


def _scheme_of(url: str) -> str:
    """The scheme of a URL, empty for a path. Hadoop and Spark write local paths as `file:/a`, with a single slash."""
    if url.startswith("file:/"):
        return "file"
    return url.partition("://")[0] if "://" in url else ""


def _storage(scheme: str, url: str, options: Mapping[str, Any]) -> Storage:
    """Import the storage of a scheme lazily, so that local tables do not load the client libraries of object stores."""
    if scheme in _LOCAL:
        return LocalStorage()
    if scheme == "memory":
        from paimon_cli.storage.memory_storage import MemoryStorage

        return MemoryStorage()
    if scheme in OBJECT_STORES:
        with importing(f"{scheme}:// needs the package obstore", EXTRAS[OBJECT_STORES[scheme]]):
            from paimon_cli.storage.object_storage import ObjectStorage
            from paimon_cli.storage.object_stores import StoreSettings
            from paimon_cli.storage.overlapped_storage import OverlappedStorage

        return OverlappedStorage(ObjectStorage(StoreSettings.from_options(OBJECT_STORES[scheme], options)))
    if scheme in _HDFS:
        from paimon_cli.storage.fsspec_storage import HdfsStorage

        return HdfsStorage(url, file_system_options(scheme, options))
    from paimon_cli.storage.fsspec_storage import FsspecStorage

    return FsspecStorage(url, file_system_options(scheme, options))


def _root_in_store(url: str) -> str:
    """The URL without credentials. What follows `?` may be one as well, and without it the URL is that of another table."""
    root = without_login(url)
    if not url.endswith(root.partition("://")[2]):
        hint = "credentials are options of the catalog, and * stands for ? in a pattern"
        raise UsageError(f"the URL {root} is followed by ?", "names in a store may not contain it", hint)
    return root.rstrip("/")


def _local_root(scheme: str, url: str) -> str:
    path = unquote(_path_in(url.removeprefix(f"{scheme}:"), url)) if scheme else url
    return os.path.abspath(os.path.expanduser(path))


def _path_in(address: str, url: str) -> str:
    """The path of a local URL, as Java reads it: `?` and `#` are parts of names, and begin no query or fragment."""
    if not address.startswith("//"):
        return address
    host, slash, path = address[2:].partition("/")
    if host.rpartition("@")[2].lower() not in ("", "localhost"):
        why = "files of another machine cannot be reached"
        raise UsageError(f"'{without_login(url)}' names a host", why, "write file:/// before an absolute path")
    return slash + path
