"""Bugs planted in writes by `format("paimon")` whose rows get their buckets when they are committed."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from paimon_cli.commit import committer
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.spark import source_writing
from tests.simulation.mutation import Patch, nothing, planted_in


@planted_in("source-writers-of-a-new-key")
def hash_indexes_of_a_source_unchecked() -> Patch:
    """A key gets two buckets."""
    return patch.object(committer, "check_hash_indexes", nothing)


@planted_in("source-writers-across-partitions")
def homes_of_keys_of_a_source_unchecked() -> Patch:
    """Two writers take a key out of one partition, each into another."""
    return patch.object(committer.Committer, "_checks_of_locations", lambda self, identity, messages: [])


@planted_in("source-writer-compactor")
def temporary_files_stay() -> Patch:
    return patch.object(NewFiles, "delete_all_but", nothing)


@planted_in("source-restart")
def temporary_files_have_the_stamp_of_the_commit() -> Patch:
    """Where random digits are equal, the files of the commit are deleted with them."""
    return patch.object(source_writing, "OF_COMMIT", source_writing.OF_TASKS)


@planted_in("source-restart")
def used_files_of_a_batch_deleted() -> Patch:
    """The sweep of earlier attempts does not look for what snapshots name."""

    class NoNames:
        names: frozenset[str] = frozenset()

        def __init__(self, context: Any) -> None: ...

        def refresh(self) -> None: ...

    return patch.object(source_writing, "UsedNames", NoNames)
