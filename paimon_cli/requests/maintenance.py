"""The options of expiry, of orphans, of statistics, and of a change of the bucket count."""

from dataclasses import KW_ONLY
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Names, Option, Partitions, PointInTime, Request

What = Literal["snapshots", "partitions", "changelogs", "tags", "consumers"]
WHOLE_EXPIRY: tuple[What, ...] = ("consumers", "tags", "partitions", "snapshots", "changelogs")
"""Everything that may expire, in this order: what protects snapshots comes before them."""


class ExpireOptions(Request):
    """What to expire. Limits that are not given come from the table's options."""

    what: Annotated[What, Option("What to expire.")] = "snapshots"
    _: KW_ONLY
    retain_max: Annotated[int | None, Option("Keep at most the newest N, regardless of age.", metavar="N", min=1)] = None
    retain_min: Annotated[int | None, Option("Keep at least the newest N, regardless of age.", metavar="N", min=1)] = None
    older_than: Annotated[
        PointInTime,
        Option("Expire only items older than this, such as 1d, '12 hours ago' or 2024-01-31T12:00:00Z.", metavar="AGE|TIME"),
    ] = PointInTime()
    limit: Annotated[int | None, Option("Expire at most N in this run.", metavar="N", min=1)] = None


class OrphanOptions(Request):
    """Which orphans to find."""

    _: KW_ONLY
    older_than: Annotated[
        PointInTime, Option("Only files last modified before this: 1d, '12 hours ago', 2024-01-31.", metavar="AGE|TIME")
    ] = PointInTime("1d")
    external_paths: Annotated[
        bool,
        Option(
            "Also look where data-file.external-paths puts new data files. Only if no other table keeps files there, which would "
            "all be orphans.",
            library="Also look where `data-file.external-paths` puts new data files; only if no other table keeps files there",
        ),
    ] = False
    force: Annotated[bool, Option("Allow --older-than to be less than a day; only safe while no job writes.")] = False


class RemoveOrphans(OrphanOptions):
    """Which orphans to delete, and where to keep them."""

    _: KW_ONLY
    quarantine: Annotated[str | None, Option("Copy the files to this directory first.", metavar="DIR")] = None


class RescaleOptions(Request):
    """The new number of buckets, for all partitions or some."""

    buckets: Annotated[int | None, Option("The new bucket count; default the table's bucket option.", metavar="N", min=1)] = None
    _: KW_ONLY
    partition: Annotated[Partitions, Option("Only this partition; repeatable for several.", library="Only these partitions")] = (
        Partitions()
    )
    online: Annotated[
        bool,
        Option(
            "While writers of paimon-cli go on, which move their rows when they commit. Only for tables to which no other engine "
            "writes, and a multiple or a part of the present count.",
            library="While writers of paimon-cli go on; no other engine may write to the table",
        ),
    ] = False

    def check(self) -> None:
        super().check()
        if self.online and self.partition:
            what = "--online cannot be combined with --partition"
            raise UsageError(what, "writers would refuse the partition from then on, because its count differs from the option")


class AnalyzeOptions(Request):
    """What to count."""

    _: KW_ONLY
    columns: Annotated[
        Names, Option("Only these columns besides the rows; default all.", metavar="COLUMN,...", library="Only these columns")
    ] = Names()
    only_rows: Annotated[bool, Option("Count the rows alone, which reads as little as possible.")] = False

    def check(self) -> None:
        super().check()
        if self.only_rows and self.columns:
            raise UsageError("--only-rows cannot be combined with --columns")
