"""A file of the user's that appears whole or not at all, on a local disk or in a store."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.storage.clock_and_names import Names
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url

FORCE = "--force replaces it"


@contextlib.contextmanager
def whole_file(
    url: str, options: Mapping[str, Any], names: Names, *, replace: bool = False, make_parents: bool = False
) -> Iterator[BinaryIO]:
    """What is written within the block becomes the file when it ends; an error, and nothing of it stays.

    Raises `UsageError` if something is there already that is no file, or that is one and not to be replaced.
    """
    storage, path = storage_for_url(url, options)
    if isinstance(storage, LocalStorage):
        if make_parents:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with _local_file(url, os.path.realpath(path), names, replace) as sink:
            yield sink
        return
    if not replace and storage.exists(path):
        raise _exists(url)
    with tempfile.TemporaryFile(prefix="paimon-cli-output-") as spool:
        yield spool  # a store publishes what was sent when its writer is closed, complete or not
        spool.seek(0)
        _send(spool, storage, path, replace)


@contextlib.contextmanager
def _local_file(url: str, path: str, names: Names, replace: bool) -> Iterator[BinaryIO]:
    """Under another name beside it first. `path` is where links lead: they stay links."""
    _check_place(url, path, replace)
    directory, name = os.path.split(path)
    temporary = f"{directory}/.{name}.{names.uuid()}.tmp"
    try:
        sink = open(temporary, "xb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot write {url}", error.strerror or str(error)) from error
    try:
        with sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    except FileExistsError:
        raise _exists(url) from None
    except OSError as error:
        raise StorageUnavailable(f"cannot write {url}", error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _check_place(url: str, path: str, replace: bool) -> None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise UsageError(f"cannot write {url}", f"it is {what}", "name a file")
    if not replace:
        raise _exists(url)


def _send(spool: BinaryIO, storage: Storage, path: str, replace: bool) -> None:
    """An upload replaces the old file when it is complete: a failed one leaves the old file as it was."""
    try:
        with storage.open_output(path) as sink:
            shutil.copyfileobj(spool, sink, 1 << 20)
    except BaseException:
        if not replace:
            storage.delete(path)
        raise


def _exists(url: str) -> UsageError:
    return UsageError(f"{url} exists", "nothing was written", FORCE)
