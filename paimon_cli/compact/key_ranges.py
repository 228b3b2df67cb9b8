"""Divides the full compaction of a large bucket into key ranges, which are compacted at the same time.

No key is in two sections, so a section can be replaced by files of the top level while newer rows of other sections wait: every
snapshot has valid levels and the same rows. Files of upper levels that span many files of the top level are cut first, at the
least keys of some of these: a commit of its own, after which each range is a section, or several, with a commit of its own. What
is committed stays if the job is killed; the next one finds the ranges that are left.

Where cutting does not pay, a large section is merged by several tasks, each of which reads its range of keys from all files of
the section; they end in one commit, because a file cannot be removed for a part of its keys. They begin at row groups of the
largest run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import GROUP_BOUNDS
from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.decoding import decoding
from paimon_cli.bucket.key_range import KeyRange, first_key
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.data_type import FLOATING_ROOTS
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import Section, SortedRun, key_sections
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized

_PARQUET = "parquet"
_COMPRESSED = 4
"""About the bytes of a row group in memory, divided by those in a file."""


@dataclass(frozen=True)
class KeyRanges:
    """How a compaction is divided. `cut`: the task to be committed first, None if there is none. `parts`: what can be committed
    one by one of the files as they are, each as one task or several.

    For reports, both after the cut: `count` and `commits`, the numbers of ranges and of their commits; `begins`: the serialised
    keys with which ranges inside of a section begin.
    """

    cut: CompactionTask | None
    parts: tuple[tuple[CompactionTask, ...], ...]
    count: int
    commits: int
    begins: tuple[bytes, ...]


def why_whole(context: TableContext, task: CompactionTask) -> str | None:
    """Why the compaction is carried out and committed as a whole, however large it is; None for a full one that only merges."""
    mode, options = context.mode, context.options
    if not mode.has_keys:
        return "the table has no primary key"
    if task.output_level != task.max_level or not task.drop_deletes or task.one_by_one:
        return "not all runs are merged"
    if mode.deletion_vectors:
        return "deletion vectors belong to the whole bucket"
    if mode.changelog_producer.compares_top_levels:
        return "its changelog belongs to one snapshot"
    if mode.looks_up_old_rows:
        return "older rows are looked up in the whole bucket"
    if options.sequence_snapshot_ordering:
        return "sequence.snapshot-ordering compares the snapshots of all files"
    return "all files are rewritten" if task.rewrite_all else None


def key_ranges(context: TableContext, task: CompactionTask) -> KeyRanges:
    """Divide a task that `why_whole` has no objection to."""
    parts: list[tuple[CompactionTask, ...]] = []
    uppers: set[str] = set()
    cuts: list[bytes] = []
    begins: list[bytes] = []
    commits = 0
    for part in _parts(task, key_sections(task.files, context.key_of)):
        parts.append(tuple(_tasks(context, task, part)))
        if found := [cut for section in part for cut in _cuts(context, task, section)]:
            cuts += found
            uppers.update(file.file_name for section in part for file in _files(section) if file.level != task.max_level)
        else:
            begins += [part.within.low for part in parts[-1] if part.within is not None and part.within.low is not None]
        commits += 1 + len(found)
    cut = None
    if cuts:
        cut = replace(
            task,
            files=tuple(file for file in task.files if file.file_name in uppers),
            output_level=task.max_level - 1,
            drop_deletes=False,
            rewrite_all=True,
            cuts=tuple(cuts),
        )
    return KeyRanges(cut, tuple(parts), commits + len(begins), commits, (*cuts, *begins))


def _range_bytes(task: CompactionTask) -> int:
    return max(1, min(PIECES.key_range_bytes, task.size // PIECES.least_key_ranges))


def _cuts(context: TableContext, task: CompactionTask, section: Section) -> list[bytes]:
    """The least keys of the files of the top level at which the upper files of a section should be cut.

    Cutting reads and writes the upper files once more. It pays only if they are small beside the section.
    """
    base = sorted((f for f in _files(section) if f.level == task.max_level), key=lambda file: context.key_of(file.min_key))
    base_size = sum(file.file_size for file in base)
    size, of_range = sum(run.size for run in section), _range_bytes(task)
    if task.max_level < 2 or size < 2 * of_range or (size - base_size) * 2 > base_size:
        return []
    cuts, filled, left = [], 0, base_size
    for file in base:
        if filled >= of_range and left >= of_range // 2:
            cuts.append(file.min_key)
            filled = 0
        filled += file.file_size
        left -= file.file_size
    return cuts


def _parts(task: CompactionTask, sections: Sequence[Section]) -> list[list[Section]]:
    """Neighbouring sections that together are about a range, and larger ones alone, without what is at the top level only."""
    parts: list[list[Section]] = [[]]
    filled, of_range = 0, _range_bytes(task)
    for section in sections:
        size = sum(run.size for run in section)
        if parts[-1] and (filled >= of_range or size >= 2 * of_range):
            parts.append([])
            filled = 0
        parts[-1].append(section)
        filled += size
    return [part for part in parts if any(file.level != task.max_level for section in part for file in _files(section))]


def _tasks(context: TableContext, task: CompactionTask, part: Sequence[Section]) -> Iterator[CompactionTask]:
    names = {file.file_name for section in part for file in _files(section)}
    whole = replace(task, files=tuple(file for file in task.files if file.file_name in names))
    ranges = _ranges(context, task, part[0]) if len(part) == 1 else []
    yield from (replace(whole, within=within) for within in ranges) if len(ranges) > 1 else [whole]


@dataclass(frozen=True)
class _Begin:
    """A row group with which a range can begin, and the bytes of the run before it."""

    file: DataFileMeta
    group: int
    before: int


def _ranges(context: TableContext, task: CompactionTask, section: Section) -> list[KeyRange]:
    """Ranges of about equal size in a section of several runs; empty if it is small, or if its files or keys do not say
    where keys are.
    """
    size, largest = sum(run.size for run in section), max(section, key=lambda run: run.size)
    smaller = [max(file.file_size for file in run.files) for run in section if run is not largest]
    decoded_twice = sum(min(PIECES.row_group_bytes // _COMPRESSED, size) for size in smaller)
    count = min(size // _range_bytes(task), 1 + size // max(1, PIECES.least_groups_of_range * decoded_twice))
    first, *keys = context.schema.fields_of(context.schema.trimmed_primary_keys)
    if count < 2 or len(section) < 2 or any(file_format(file.file_name) != _PARQUET for file in _files(section)):
        return []
    if first.type.root not in GROUP_BOUNDS or any(field.type.root in FLOATING_ROOTS for field in keys):
        return []
    chosen: list[_Begin] = []
    try:
        for begin in islice(_begins(context, task, largest), 1, None):
            if begin.before * count >= largest.size * (len(chosen) + 1):
                chosen.append(begin)
        bounds = [None, *(first_key(context, task.bucket_id, begin.file, begin.group) for begin in chosen), None]
    except (DamagedFile, FileNotFoundError):
        return []  # merging reports what is wrong with it
    sizes, at = [], 0
    for end in (*(begin.before for begin in chosen), largest.size):
        sizes.append(size * (end - at) // max(1, largest.size))
        at = end
    return [KeyRange(low, high, part) for (low, high), part in zip(pairwise(bounds), sizes, strict=True)]


def _begins(context: TableContext, task: CompactionTask, run: SortedRun) -> Iterator[_Begin]:
    before = 0
    for file in run.files:
        path = context.data_file_path(*task.bucket_id, file)
        with decoding(path), open_sized(context.storage, path, file.file_size) as source:
            footer = pq.read_metadata(source)
            sizes = [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]
        done = 0
        for number, size in enumerate(sizes):
            yield _Begin(file, number, before + file.file_size * done // max(1, sum(sizes)))
            done += size
        before += file.file_size


def _files(section: Section) -> list[DataFileMeta]:
    return [file for run in section for file in run.files]
