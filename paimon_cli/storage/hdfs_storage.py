"""HDFS. A snapshot is published by a rename, which the name node does in one step and never over an existing file.

Not tested against a real cluster: the tests put a stand-in behind the rename. It rests on what Hadoop promises of
`FileSystem.rename` on HDFS (false when the target exists) and on libhdfs, which turns that false into `EIO`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.clock_and_names import Names
from paimon_cli.storage.fsspec_storage import FsspecStorage
from paimon_cli.storage.storage import PutOutcome

Rename = Callable[[str, str], bool]
"""Rename from, to: False if the target exists. `OSError`: the outcome is unknown."""


class HdfsStorage(FsspecStorage):
    """`Storage` over `hdfs://` (pyarrow and libhdfs) and `webhdfs://` (REST) URLs.

    pyarrow's own `move` is of no use for commits: where the target is a file, it deletes that and renames once more.
    """

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, names: Names | None = None, rename: Rename | None = None
    ) -> None:
        super().__init__(url, options, names)
        self._given_rename = rename

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        temporary = self._temporary(path)
        self.write_new(temporary, data)
        try:
            if self._rename(temporary, path):
                return PutOutcome.CREATED
            outcome = PutOutcome.EXISTS
        except OSError:
            outcome = PutOutcome.UNKNOWN
        with contextlib.suppress(StorageUnavailable):
            self.delete(temporary)
        return outcome

    def _rename(self, source: str, target: str) -> bool:
        if self._given_rename is None:
            self._given_rename = self._rename_of_protocol()
        return self._given_rename(self._inner(source), self._inner(target))

    def _rename_of_protocol(self) -> Rename:
        if self._protocol == "webhdfs":
            return self._rename_by_rest
        from paimon_cli.storage.libhdfs import LibhdfsRename

        return LibhdfsRename(self._url, self._options)

    def _rename_by_rest(self, source: str, target: str) -> bool:
        """WebHDFS answers `{"boolean": false}` when the target exists."""
        try:
            return bool(self._fs._call("RENAME", method="put", path=source, destination=target).json()["boolean"])
        except (RuntimeError, ValueError) as error:  # how fsspec reports the answer of the name node
            raise OSError(str(error)) from error
