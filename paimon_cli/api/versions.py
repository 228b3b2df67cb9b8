"""The tags, branches and consumers of a table: references that keep snapshots."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.requests.versions import BranchOptions, ConsumerOptions, TagOptions, TagPlace

if TYPE_CHECKING:
    from paimon_cli.inspect.version_report import BranchRow, TagRow
    from paimon_cli.maintain.branches import FastForwardPlan
    from paimon_cli.maintain.named_files import FileToDelete
    from paimon_cli.maintain.retention import Consumer
    from paimon_cli.maintain.tags import TagRemoval


_MAX_NAMED = 10
"""The most names that a `repr` shows."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_Named)


@checks_arguments
class References(ABC, Generic[Named]):
    """References of a table by their names, as a collection: `in`, `len`, `[name]` and iteration."""

    def __init__(self, table: OpenedTable) -> None:
        self._table = table

    @abstractmethod
    def ls(self) -> builtins.list[Named]:
        """All of them."""

    @abstractmethod
    def show(self, name: str) -> Named:
        """One of them. Raises `NotFound` if it does not exist."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is one with this name."""

    def list(self) -> builtins.list[Named]:
        """The same as `ls`."""
        return self.ls()

    def __iter__(self) -> Iterator[Named]:
        return iter(self.ls())

    def __len__(self) -> int:
        return len(self.ls())

    def __contains__(self, one: object) -> bool:
        return self.exists(one) if isinstance(one, str) else one in self.ls()

    def __getitem__(self, name: str) -> Named:
        if not isinstance(name, str):
            raise UsageError(f"[{name!r}]", "they are found by name", f"list({type(self).__name__.lower()})[{name!r}]")
        return self.show(name)

    def _repr_html_(self) -> str:
        from paimon_cli.read.html_text import table_of_results

        return table_of_results(type(self).__name__.lower(), self.ls())

    def __repr__(self) -> str:
        names = [one.name for one in self.ls()]
        more = f", ... {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        return f"{type(self).__name__}({', '.join(map(repr, names[:_MAX_NAMED]))}{more})"


@checks_arguments
class Tags(References["TagRow"]):
    """Named snapshots, which are protected from expiry. Iterating gives all tags by snapshot.


    >>> table = example_table()
    >>> table.tags.create("year-end", time_retained="365d").snapshot_id
    1
    >>> "year-end" in table.tags, len(table.tags), table.tags["year-end"].snapshot_id, table.tags
    (True, 1, 1, Tags('year-end'))
    >>> [tag.name for tag in table.tags]
    ['year-end']
    >>> table.tags.rm("year-end")
    0
    """

    def ls(self) -> list[TagRow]:
        """All tags by snapshot. Those that cannot be read are left out, with a warning."""
        from paimon_cli.inspect.version_report import tag_rows

        return tag_rows(self._table.context, self._table._warn_of_damage)

    def show(self, name: str) -> TagRow:
        """One tag. Raises `NotFound` if it does not exist."""
        from paimon_cli.inspect.version_report import read_tag

        return read_tag(self._table.context, name)

    def exists(self, name: str) -> bool:
        """Whether there is a tag with this name."""
        return self._table.context.tags.content(name) is not None

    @takes(TagOptions)
    def create(self, options: TagOptions) -> TagRow:
        """Create the tag `name` for a snapshot. Raises `UsageError` if it exists, unless `replace` is set, which moves it."""
        from paimon_cli.maintain.tags import create_tag, replace_tag

        change = replace_tag if options.replace and self.exists(options.name) else create_tag
        change(self._table.supported, options.name, self._table._snapshot_id(options.snapshot), options.time_retained)
        return self.show(options.name)

    @takes(TagPlace)
    def replace(self, place: TagPlace) -> TagRow:
        """Point the existing tag `name` at another snapshot."""
        from paimon_cli.maintain.tags import replace_tag

        replace_tag(self._table.supported, place.name, self._table._snapshot_id(place.snapshot), place.time_retained)
        return self.show(place.name)

    def rename(self, name: str, new_name: str) -> TagRow:
        """Rename a tag."""
        from paimon_cli.maintain.tags import rename_tag

        rename_tag(self._table.supported, name, new_name)
        return self.show(new_name)

    def plan_rm(self, *names: str) -> Planned[TagRemoval, int]:
        """Plan to delete tags, and the files that only they need. Raises `NotFound` for a missing tag."""
        from paimon_cli.jobs.reclaim_job import deletion
        from paimon_cli.maintain.named_files import FileToDelete, measured
        from paimon_cli.maintain.tags import files_removed_with_tags, plan_removal, remove_tags

        self._table.check_call()
        context = self._table.supported
        removal = plan_removal(context, list(dict.fromkeys(names)))

        def files() -> list[FileToDelete]:
            tags = [FileToDelete(context.layout.tag(name), "tag") for name in removal.names]
            return measured(context, [*tags, *files_removed_with_tags(context, removal)])

        def run() -> int:
            return remove_tags(context, removal, deletion(context, None, self._table.runtime.new_progress()))

        return Planned(removal, run, files)

    def rm(self, *names: str) -> int:
        """Delete tags, and the files that only they need; returns the number of deleted files."""
        return self.plan_rm(*names).run()

    def delete(self, *names: str) -> int:
        """The same as `rm`."""
        return self.rm(*names)


@checks_arguments
class Branches(References["BranchRow"]):
    """Separate histories over shared files. Iterating gives all branches, main first.

    >>> table = example_table()
    >>> table.branches.create("try", snapshot=1).latest_snapshot
    1
    >>> [branch.name for branch in table.branches]
    ['main', 'try']
    >>> Table.open(table.url, branch="try").delete(where="id = 1").rows
    1
    >>> table.branches.fast_forward("try").latest_snapshot
    2
    """

    def ls(self) -> list[BranchRow]:
        """All branches, main first. Those that cannot be read are left out, with a warning."""
        from paimon_cli.inspect.version_report import branch_rows

        return branch_rows(self._table.context, self._table._warn_of_damage)

    def show(self, name: str) -> BranchRow:
        """One branch."""
        from paimon_cli.inspect.version_report import branch_row

        return branch_row(self._table.context, name)

    def exists(self, name: str) -> bool:
        """Whether there is a branch with this name; main always is."""
        return name == MAIN_BRANCH or name in self._table.context.branches.names()

    @takes(BranchOptions)
    def create(self, options: BranchOptions) -> BranchRow:
        """Create the branch `name` from a tag or a snapshot, or an empty one with the table's schema.

        As in Paimon, a branch from a tag or a snapshot has the schema of that snapshot, without later changes of columns and
        options. `rescale` changes the bucket count last: call it on a branch of its snapshot, too.
        """
        from paimon_cli.maintain.branches import create_branch

        create_branch(self._table.supported, options.name, options.tag, self._table._snapshot_id(options.snapshot))
        return self.show(options.name)

    def rename(self, name: str, new_name: str) -> BranchRow:
        """Rename a branch."""
        from paimon_cli.maintain.branches import rename_branch

        rename_branch(self._table.supported, name, new_name)
        return self.show(new_name)

    def plan_rm(self, name: str) -> Planned[Sequence[int], None]:
        """Plan to delete a branch; the plan has the ids of its snapshots. Raises `NotFound` for a missing branch."""
        from paimon_cli.maintain.branches import remove_branch

        opened = self._table.context
        if name not in opened.branches.directories():
            raise opened.branches.missing(name)
        ids = replace(opened, place=opened.place.at_branch(name)).snapshots.ids()
        return Planned(ids, lambda: remove_branch(self._table.supported, name))

    def rm(self, name: str) -> None:
        """Delete a branch with its commits. Files that only the branch needed become orphans."""
        self.plan_rm(name).run()

    def delete(self, name: str) -> None:
        """The same as `rm`."""
        self.rm(name)

    def plan_fast_forward(self, name: str) -> Planned[FastForwardPlan, BranchRow]:
        """Plan to replace the history of main with that of a branch. Raises `NotFound` for a missing branch."""
        from paimon_cli.history.tiered_rows import expect_not_tiered
        from paimon_cli.jobs.reclaim_job import deletion
        from paimon_cli.maintain.branches import fast_forward, files_removed_by_fast_forward, plan_fast_forward
        from paimon_cli.maintain.named_files import measured

        context = self._table.supported
        expect_not_tiered(context, "replace the history of")
        if name not in context.branches.names():
            raise context.branches.missing(name)
        plan = plan_fast_forward(context, name)

        def run() -> BranchRow:
            self._table.check_commit()
            if not plan.is_needless:
                fast_forward(context, plan, deletion(context, None, self._table.runtime.new_progress()))
            self._table.refresh()
            return self.show("main")

        return Planned(plan, run, lambda: measured(context, files_removed_by_fast_forward(context, plan)))

    def fast_forward(self, name: str) -> BranchRow:
        """Replace the history of main since the branch was created with that of the branch. Later commits to main are lost."""
        self._table.check_commit()
        return self.plan_fast_forward(name).run()


@dataclass(frozen=True)
class ConsumerRow:
    """A streaming reader. `behind`: the number of snapshots that it has not read yet; `modified`: epoch millis."""

    name: str
    next_snapshot: int
    behind: int
    modified: int


@checks_arguments
class Consumers(References[ConsumerRow]):
    """Streaming readers, for which snapshots are kept. Iterating gives all consumers by name.


    >>> table = example_table()
    >>> table.consumers.reset("nightly-export", next_snapshot=1).behind
    1
    >>> [consumer.name for consumer in table.consumers]
    ['nightly-export']
    >>> table.consumers.rm("nightly-export")
    """

    def ls(self) -> list[ConsumerRow]:
        """All consumers by name."""
        from paimon_cli.maintain.retention import consumers

        latest = self._latest_id()
        return [_row(consumer, latest) for consumer in consumers(self._table.supported)]

    def show(self, name: str) -> ConsumerRow:
        """One consumer. Raises `NotFound` if it does not exist."""
        from paimon_cli.maintain.retention import check_consumer

        check_consumer(self._table.supported, name)
        return next(row for row in self.ls() if row.name == name)

    def exists(self, name: str) -> bool:
        """Whether there is a consumer with this name."""
        return any(row.name == name for row in self.ls())

    @takes(ConsumerOptions)
    def reset(self, options: ConsumerOptions) -> ConsumerRow:
        """Set the next snapshot of the consumer `name`, creating the consumer if needed."""
        from paimon_cli.history.points_in_time import first_after
        from paimon_cli.maintain.retention import reset_consumer

        context, latest, chosen = self._table.supported, self._latest_id(), options.next_snapshot
        number = latest + 1 if chosen is None else first_after(context, str(chosen))
        return _row(reset_consumer(context, options.name, number), latest)

    def plan_rm(self, name: str) -> Planned[str, None]:
        """Plan to delete a consumer. Raises `NotFound` if it does not exist."""
        from paimon_cli.maintain.retention import check_consumer, remove_consumer

        context = self._table.supported
        check_consumer(context, name)
        return Planned(name, lambda: remove_consumer(context, name))

    def rm(self, name: str) -> None:
        """Delete a consumer, so that snapshots are no longer kept for it."""
        self.plan_rm(name).run()

    def delete(self, name: str) -> None:
        """The same as `rm`."""
        self.rm(name)

    def _latest_id(self) -> int:
        return self._table.context.snapshots.latest_id() or 0


def _row(consumer: Consumer, latest: int) -> ConsumerRow:
    behind = max(latest - consumer.next_snapshot + 1, 0)
    return ConsumerRow(consumer.name, consumer.next_snapshot, behind, consumer.modified_millis)
