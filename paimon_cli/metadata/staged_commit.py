"""Stage files: a commit whose data files are written and that no snapshot names yet (FORMAT.md, section 10.7).

They are JSON with a checksum: a file that was changed by hand or by a bad disk must neither become a snapshot nor decide what is
deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.file_names import plain_name
from paimon_cli.metadata.record_json import record_from_json, record_to_json

KIND, VERSION = "paimon-cli/StagedCommit", 1
STAGED, COMMITTED, ABORTED = "staged", "committed", "aborted"


@dataclass(frozen=True)
class StagedCommit:
    """Everything that the commit phase needs later.

    `table` is its root URL; `schema_id` and `schema_time_millis` distinguish it from another table in the same directory. With
    `overwrite` the new files replace the live files of `static_partition` (key=value texts), of the partitions that got rows
    (`dynamic_overwrite`), or of the table. `snapshot_ids`: the snapshots that the commit made.
    """

    table: str
    schema_id: int
    schema_time_millis: int
    commit_user: str
    commit_identifier: int
    read_snapshot_id: int | None
    data_conflict_check: str
    messages: tuple[CommitMessage, ...]
    overwrite: bool = False
    dynamic_overwrite: bool = False
    static_partition: tuple[str, ...] | None = None
    state: str = STAGED
    snapshot_ids: tuple[int, ...] = ()

    def to_json(self) -> str:
        content = record_to_json(self)
        document = {"kind": KIND, "version": VERSION, "sha256": _digest(content), "content": content}
        return json.dumps(document, indent=1) + "\n"

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> StagedCommit:
        """Raises `DamagedFile` that names `path`."""
        try:
            staged = record_from_json(StagedCommit, _content(json.loads(text)))
            if staged.state not in (STAGED, COMMITTED, ABORTED):
                raise ValueError(f"unknown state {staged.state!r}")
        except (ValueError, RecursionError) as error:
            hint = "write the rows again; the files of the damaged one will be found as orphans"
            raise DamagedFile(f"{path} holds no staged commit", str(error), hint, path=path) from error
        for name in _file_names(staged.messages):
            plain_name(name, path)
        return staged


def _content(document: Any) -> Any:
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError(f"it is not of kind {KIND}")
    if document.get("version") != VERSION:
        raise ValueError(f"it is of version {document.get('version')!r}, this program supports version {VERSION}")
    content = document.get("content")
    if document.get("sha256") != _digest(content):
        raise ValueError("its checksum is wrong: it was changed or truncated")
    return content


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _file_names(messages: tuple[CommitMessage, ...]) -> Iterator[str]:
    for message in messages:
        for file in (*message.created_files(), *message.deleted_files, *message.compact_before):
            yield from (file.file_name, *file.extra_files)
        for index in (*message.new_index_files, *message.compact_new_index_files):
            yield index.file_name
