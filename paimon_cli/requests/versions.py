"""The options of tags, branches and consumers, of a rollback, and of the search for a snapshot."""

from dataclasses import KW_ONLY
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.requests.conditions import Conditional
from paimon_cli.requests.fields import Option, Partitions, Request, Texts, Time, VersionName


class TagPlace(Request):
    """The snapshot that the tag `name` keeps, and for how long."""

    name: str
    _: KW_ONLY
    snapshot: Annotated[VersionName, Option("The snapshot; default the latest.")] = VersionName()
    time_retained: Annotated[Time, Option("How long to keep the tag, such as 7d; default the table's option.", metavar="AGE")] = (
        Time()
    )


class TagOptions(TagPlace):
    """A new tag, or a tag to be moved."""

    _: KW_ONLY
    replace: Annotated[bool, Option("Move the tag to this snapshot if it exists.")] = False


class BranchOptions(Request):
    """Where the branch `name` starts."""

    name: str
    _: KW_ONLY
    tag: Annotated[str | None, Option("Start from this tag.", metavar="TAG")] = None
    snapshot: Annotated[VersionName, Option("Start from this snapshot.")] = VersionName()


class ConsumerOptions(Request):
    """What the consumer `name` reads next."""

    name: str
    _: KW_ONLY
    next_snapshot: Annotated[
        VersionName,
        Option(
            "The next snapshot to read, or the first one made after a time; default the one after the latest.", flags=("--next",)
        ),
    ] = VersionName()


class RollbackOptions(Request):
    """The snapshot to go back to, and how."""

    to: Annotated[
        VersionName,
        Option("A snapshot, a tag, or a time, for the newest snapshot at that time.", flags=("--to",), written=str),
    ] = VersionName(is_required=True)
    _: KW_ONLY
    as_new: Annotated[bool, Option("Keep the history: commit the old state as a new snapshot.")] = False
    compact: Annotated[
        Literal["none", "after"] | None,
        Option(
            "With --as-new: whether to compact the restored buckets, after the commit, where that is due. Default after, "
            "for write-only tables none."
        ),
    ] = None

    def check(self) -> None:
        if self.compact is not None and not self.as_new:
            raise UsageError("--compact needs --as-new", "otherwise nothing is committed", "leave out --compact")


class BisectOptions(Conditional):
    """What to look for, and in which snapshots."""

    where: Annotated[str, Option("The condition, over the current columns.", metavar="SQL", flags=("-w", "--where"))]
    _: KW_ONLY
    expect: Annotated[Literal["some", "none"], Option("Find the first snapshot in which some row matches, or none.")] = "some"
    first: Annotated[VersionName, Option("The first snapshot to search.", flags=("--from",))] = VersionName()
    last: Annotated[VersionName, Option("The last one, in which it must hold.", flags=("--to",))] = VersionName()


class MarkOptions(Request):
    """Which partitions to mark as done, and how."""

    partition: Annotated[Partitions, Option("Only this partition; repeatable for several.", library="The partitions")] = (
        Partitions()
    )
    _: KW_ONLY
    actions: Annotated[
        Texts,
        Option(
            "success-file, http-report, done-partition or mark-event; repeatable; default partition.mark-done-action.",
            metavar="NAME",
            flags=("--action",),
            library="`success-file`, `http-report`, `done-partition` or `mark-event`; default those of "
            "`partition.mark-done-action`",
        ),
    ] = Texts()
