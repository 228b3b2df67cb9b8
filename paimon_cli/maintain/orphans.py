"""Orphan files: files in the directories of a table that no version of any branch names (FORMAT.md, section 13.5).

Candidates are listed first and must be old; what is in use is read afterwards, so that the files of a commit in between count as
used. All versions are read again before each portion is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.errors import Refused, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.orphan_candidates import Candidate, list_candidates
from paimon_cli.maintain.side_by_side import DeleteFiles
from paimon_cli.maintain.used_names import UsedNames
from paimon_cli.storage.capability_probe import PROBE_PREFIX
from paimon_cli.storage.clock_and_names import BelatedClock
from paimon_cli.storage.directories import remove_empty_directory

DAY_MILLIS = 86_400_000
TOLERATED_MILLIS = 1000
"""Times of files are rounded, and a storage may take a moment to answer."""
FILES_OF_A_PORTION = 1000
SetAside = Callable[[str], None]
"""Keeps a copy of a file, by its path."""


@dataclass(frozen=True)
class Orphans:
    """Files that no version uses, in the order of their paths, and empty directories; `used` is what was known then."""

    files: list[Candidate]
    empty_directories: list[str]
    used: UsedNames
    older_than: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def not_ahead_of_the_storage(context: TableContext) -> TableContext:
    """The context with a clock that is not ahead of the clock of the storage, as the time of a probe file shows.

    On a machine whose clock is ahead, files of a commit in progress would look old.
    """
    directory = f"{context.layout.root}/{PROBE_PREFIX}{context.names.uuid()}"
    try:
        context.storage.write_new(f"{directory}/time", b"")
        now = context.clock.now_millis()
        ahead = max((now - probe.modified_millis for probe in context.storage.list_directory(directory)), default=0)
    finally:
        with cleaning_up():
            context.storage.delete_directory(directory)
    return context if ahead <= TOLERATED_MILLIS else replace(context, clock=BelatedClock(context.clock, ahead))


def find_orphans(context: TableContext, older_than: int, force: bool = False) -> Orphans:
    """Nothing is changed. `Refused` for an age of less than a day, or where nothing at all is used, unless forced.

    `DamagedFile` if what some version uses cannot be read.
    """
    young = context.clock.now_millis() - DAY_MILLIS
    if older_than > young and not force:
        what = "files younger than a day may belong to a commit in progress"
        raise Refused("orphans must be at least a day old", what, "--force includes younger files; only safe while no job writes")
    candidates = list_candidates(context, older_than)
    used = UsedNames(context)
    versions = used.look()
    if not versions and candidates.files and not force:
        what = f"{context.url} has no snapshot, tag or changelog, so every file would be an orphan"
        raise Refused("the table refers to no files", what, "use --force if the table is meant to be empty")
    files = sorted((file for file in candidates.files if file.name not in used.names), key=lambda file: file.path)
    return Orphans(files, candidates.empty_directories, used, older_than)


def remove_orphans(
    context: TableContext, orphans: Orphans, delete: DeleteFiles, set_aside: SetAside | None = None
) -> list[Candidate]:
    """Delete portion by portion; what went. Directories that are empty then go, too, where the storage has any."""
    gone: list[Candidate] = []
    for portion in _portions(orphans.files):
        orphans.used.look()
        doomed = [file for file in portion if file.name not in orphans.used.names]
        if set_aside is not None:
            for file in doomed:
                set_aside(file.path)
        delete(file.path for file in doomed)
        gone += doomed
    emptied = {file.path.rpartition("/")[0] for file in gone if file.kind == "data"}
    for directory in sorted({*orphans.empty_directories, *emptied}, key=lambda path: (-path.count("/"), path)):
        remove_empty_directory(context.storage, directory)
    return gone


def _portions(files: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    for first in range(0, len(files), FILES_OF_A_PORTION):
        yield files[first : first + FILES_OF_A_PORTION]
