"""Bugs planted in the check for changes of rows beside a rescale, an overwrite and a restore."""

from __future__ import annotations

from unittest.mock import patch

from paimon_cli.commit import committer, files_conflict
from paimon_cli.history.manifest_reader import ManifestReader
from tests.simulation.mutation import Patch, nothing, planted_in


def _marks_overlooked() -> Patch:
    """The check sees only the files that other commits added and deleted, not the rows that they marked."""
    return patch.object(ManifestReader, "changed_vectors", lambda self, before, after: {})


@planted_in("append-bucket-vectors-deleter-rescaler")
def marks_beside_a_rescale_overlooked() -> Patch:
    return _marks_overlooked()


@planted_in("append-bucket-vectors-deleter-rewriter")
def marks_beside_an_overwrite_of_a_bucket_overlooked() -> Patch:
    return _marks_overlooked()


@planted_in("append-vectors-deleter-rewriter")
def marks_beside_an_overwrite_overlooked() -> Patch:
    return _marks_overlooked()


@planted_in("append-vectors-deleter-restorer")
def marks_beside_a_restore_overlooked() -> Patch:
    return _marks_overlooked()


@planted_in("append-buckets-deleter-rescaler")
def files_beside_a_rescale_overlooked() -> Patch:
    return patch.object(committer, "check_of_partitions", lambda *arguments: nothing)


@planted_in("fixed-deleter-rescaler")
def files_beside_a_split_overlooked() -> Patch:
    """A split replaces all files of the partition that it has read; others have another bucket count."""
    return patch.object(files_conflict, "check_bucket_counts", nothing)
