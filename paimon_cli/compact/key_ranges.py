"""Divides the full compaction of a large bucket into key ranges, which are compacted and committed one by one.

No key is in two sections, so a section can be replaced by files of the top level while newer rows of other sections wait: every
snapshot has valid levels and the same rows. Files of upper levels that span many files of the top level are cut first, at the
least keys of some of these: a commit of its own, after which each range is a section, or several. What is committed stays if the
job is killed; the next one finds the ranges that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import Section, key_sections
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class KeyRanges:
    """How a compaction is divided. `cut`: the task to be committed first, None if there is none; `count`: the ranges that there
    are after it. `parts`: a task for each range of the files as they are.
    """

    cut: CompactionTask | None
    count: int
    parts: tuple[CompactionTask, ...]


def can_divide(context: TableContext, task: CompactionTask, threshold: int) -> bool:
    """Whether the compaction may be committed range by range: a full one of more than `threshold` bytes that only merges.

    Changelogs of full compactions belong to one snapshot, and lookups and deletion vectors to the whole bucket.
    """
    return (
        task.size > threshold
        and context.mode.has_keys
        and task.output_level == task.max_level
        and task.drop_deletes
        and not task.rewrite_all
        and not task.one_by_one
        and not context.mode.looks_up_old_rows
        and not context.mode.deletion_vectors
        and not context.mode.changelog_producer.compares_top_levels
        and not context.options.sequence_snapshot_ordering
    )


def key_ranges(context: TableContext, task: CompactionTask) -> KeyRanges:
    """Divide a task for which `can_divide` holds."""
    sections = key_sections(task.files, context.key_of)
    uppers: list[DataFileMeta] = []
    cuts: list[bytes] = []
    for section in sections:
        if found := _cuts(context, task, section):
            cuts += found
            uppers += [file for file in _files(section) if file.level != task.max_level]
    parts = tuple(_parts(task, sections))
    cut = None
    if cuts:
        names = {file.file_name for file in uppers}
        cut = replace(
            task,
            files=tuple(file for file in task.files if file.file_name in names),
            output_level=task.max_level - 1,
            drop_deletes=False,
            rewrite_all=True,
            cuts=tuple(cuts),
        )
    return KeyRanges(cut, len(parts) + len(cuts), parts)


def _cuts(context: TableContext, task: CompactionTask, section: Section) -> list[bytes]:
    """The least keys of the files of the top level at which the upper files of a section should be cut.

    Cutting reads and writes the upper files once more. It pays only if they are small beside the section.
    """
    base = sorted((f for f in _files(section) if f.level == task.max_level), key=lambda file: context.key_of(file.min_key))
    base_size = sum(file.file_size for file in base)
    size = sum(run.size for run in section)
    if task.max_level < 2 or size < 2 * PIECES.key_range_bytes or (size - base_size) * 2 > base_size:
        return []
    cuts, filled, left = [], 0, base_size
    for file in base:
        if filled >= PIECES.key_range_bytes and left >= PIECES.key_range_bytes // 2:
            cuts.append(file.min_key)
            filled = 0
        filled += file.file_size
        left -= file.file_size
    return cuts


def _parts(task: CompactionTask, sections: Sequence[Section]) -> list[CompactionTask]:
    """Tasks of neighbouring sections, of about `key_range_bytes` each, without those that are at the top level already."""
    parts: list[list[DataFileMeta]] = [[]]
    for section in sections:
        if sum(file.file_size for file in parts[-1]) >= PIECES.key_range_bytes:
            parts.append([])
        parts[-1] += _files(section)
    names = [{file.file_name for file in part} for part in parts if any(file.level != task.max_level for file in part)]
    return [replace(task, files=tuple(file for file in task.files if file.file_name in part)) for part in names]


def _files(section: Section) -> list[DataFileMeta]:
    return [file for run in section for file in run.files]
