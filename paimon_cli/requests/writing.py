"""The options of changes to rows: write, update, delete, truncate."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, Literal

from paimon_cli.errors import UsageError
from paimon_cli.options.choices import OnError
from paimon_cli.requests.conditions import Conditional
from paimon_cli.requests.fields import Buckets, Option, Parsed, Partitions, Request, Time

COMMIT, STAGE_WATCH = "Commit", "Committer process"
DataConflictCheck = Annotated[
    Literal["off", "partition", "bucket", "range", "key"] | None,
    Option(
        "Exit with 5 if another commit wrote to the same partition, bucket, key range of a bucket, or key since the rows "
        "were read; default the table's option.",
        panel=COMMIT,
        library="Raise `DataConflict` if another commit wrote to the same partition, bucket, key range of a bucket, or key since "
        "the rows were read; default the table's option",
    ),
]
WHERE = Option('Condition that selects the rows, such as "id = 7"; true selects all.', metavar="SQL", flags=("-w", "--where"))
Assignments = str | Sequence[str] | Mapping[str, Any]


class Identity(Request):
    """The identity of a commit. A commit with the same `commit_user` and `commit_id` is made only once, even if it is repeated.

    The identifiers of a user must increase: a commit is taken for repeated if a later one of its user was made.
    """

    _: KW_ONLY
    commit_user: Annotated[str | None, Option("Commit user; default a random one.", metavar="NAME", panel=COMMIT)] = None
    commit_id: Annotated[
        int | None,
        Option(
            "Identifier, which must increase with each commit of the user. A commit that was already made is not repeated, "
            "even after its snapshot has expired; if that can no longer be determined, the commit is refused (exit 7).",
            metavar="N",
            min=0,
            panel=COMMIT,
            library="Identifier, which must increase with each commit of the user. A commit that was already made is not "
            "repeated, even after its snapshot has expired; if that can no longer be determined, the commit is `Refused`",
        ),
    ] = None
    assume_new: Annotated[
        bool,
        Option(
            "With --commit-id: commit even if it can no longer be determined whether the commit was already made.", panel=COMMIT
        ),
    ] = False


class ErrorHandling(Parsed[str, str]):
    """What to do with rows that do not fit: `fail`, `skip`, or skip them and write their bad cells to a file."""

    metavar = "fail|skip|FILE"

    def parse(self, given: str) -> str:
        if not given:
            raise UsageError("--on-error is empty", "it names no file", "fail, skip, or a file such as bad.csv")
        return given.lower() if given.lower() in (OnError.FAIL, OnError.SKIP) else given


class WriteOptions(Identity):
    """What a write does with its rows."""

    _: KW_ONLY
    op: Annotated[Literal["upsert", "delete"], Option("Insert or replace the rows, or delete the rows with the same keys.")] = (
        "upsert"
    )
    op_column: Annotated[str | None, Option("Input column that holds the row kind: +I, +U, -U or -D.", metavar="NAME")] = None
    overwrite: Annotated[bool, Option("Replace the rows of the partitions that get new rows, or of --partition.")] = False
    partition: Annotated[Partitions, Option("With --overwrite: the partition to replace.")] = Partitions()
    allow_empty: Annotated[
        bool, Option("With --overwrite: accept input without rows, which only deletes the rows to be replaced.")
    ] = False
    on_error: Annotated[
        ErrorHandling,
        Option(
            "What to do with rows that do not fit the table: fail with an error that lists them, skip them, or skip them "
            "and write their bad cells to FILE (.csv, otherwise ndjson)."
        ),
    ] = ErrorHandling(OnError.FAIL)
    missing_columns: Annotated[
        Literal["null", "error"], Option("What to do if the input, or a JSON row, lacks a nullable column.")
    ] = "null"
    bucket: Annotated[
        Buckets,
        Option(
            "The buckets that this writer owns, such as 0,3,5-7; repeatable. For one writer per bucket across processes, in "
            "tables with a fixed number of buckets.",
            library="The buckets that this writer owns, for one writer per bucket across processes, in tables with a fixed "
            "number of buckets",
        ),
    ] = Buckets()
    other_buckets: Annotated[
        Literal["refuse", "skip"],
        Option("With --bucket: refuse rows of other buckets, or leave them out and count them."),
    ] = "refuse"
    read_snapshot: Annotated[
        int | None,
        Option(
            "The snapshot from which the rows were computed, for the data conflict check; default the latest.",
            metavar="N",
            min=0,
            panel=COMMIT,
        ),
    ] = None
    compact: Annotated[
        Literal["none", "inline", "async", "after"] | None,
        Option(
            "How to compact the buckets that get rows. inline: in the writer tasks, pausing the write; async: in the writer "
            "tasks, in parallel; after: in a job after the commit; none: not at all. Default inline, for write-only tables none."
        ),
    ] = None
    parallelism: Annotated[
        int | None, Option("Number of concurrent Spark tasks, or local threads, that write.", metavar="N", min=1)
    ] = None

    def check(self) -> None:
        super().check()
        if self.bucket is None and self.other_buckets != "refuse":
            raise UsageError("no bucket is named", "--other-buckets needs --bucket", "name the buckets that this writer owns")
        if self.bucket is not None and self.overwrite:
            raise UsageError(
                "--bucket cannot be combined with --overwrite",
                "an overwrite replaces the rows of all buckets of a partition, including the rows of other writers",
                "leave out one of the two",
            )
        if self.op_column is not None and self.op != "upsert":
            raise UsageError("--op cannot be combined with --op-column", "the column already determines what each row does")
        if self.op == "delete" and self.overwrite:
            raise UsageError(
                "--op delete cannot be combined with --overwrite",
                "the rows would only delete what the overwrite has replaced already",
                "leave out one of the two; `delete` with a condition removes rows, `drop-partition` and `truncate` remove all",
            )
        if self.partition is not None and not self.overwrite:
            raise UsageError(
                "--partition needs --overwrite", "otherwise each row goes to the partition of its own values", "add --overwrite"
            )
        if self.partition is not None and len(self.partition) > 1:
            raise UsageError(
                "--partition names several partitions",
                "one call overwrites a single partition",
                "omit --partition to overwrite every partition that gets rows",
            )


class WriteCall(WriteOptions):
    """A write into a table, which may be staged."""

    _: KW_ONLY
    data_conflict_check: DataConflictCheck = None
    stage: Annotated[
        str | None,
        Option(
            "Write only the data files; `stage commit FILE` commits them later.",
            metavar="FILE",
            panel=COMMIT,
            library="A file. Write only the data files; `table.stage.commit(file)` commits them later",
        ),
    ] = None

    def check(self) -> None:
        super().check()
        if self.stage is not None and self.compact not in (None, "none"):
            raise UsageError(
                f"--stage cannot be combined with --compact {self.compact}",
                "a staged write has nothing to compact before its commit",
            )


class ChangeOptions(Identity):
    """How an update or delete commits."""

    _: KW_ONLY
    max_attempts: Annotated[
        int, Option("Give up after N attempts that fail because of other commits.", metavar="N", min=1, panel=COMMIT)
    ] = 100
    compact: Annotated[
        Literal["none", "inline", "after"] | None,
        Option(
            "How to compact the changed buckets, where that is due. inline: in the tasks that change them; after: in a job "
            "after the commit; none: not at all. Default inline, for write-only tables none."
        ),
    ] = None


class ChangeCall(ChangeOptions, Conditional):
    """A change of the rows that match a condition."""

    _: KW_ONLY
    data_conflict_check: DataConflictCheck = None


class DeleteCall(ChangeCall):
    """A delete of the rows that match a condition."""

    where: Annotated[str, WHERE]


class UpdateCall(ChangeCall):
    """An update of the rows that match a condition. `values`: new values by column, which are data: a text is that text."""

    set: Annotated[
        Assignments | None,
        Option(
            'New value of a column, computed from the old values of the row, such as "points = points + 1"; repeatable.',
            metavar="COLUMN=EXPRESSION",
            flags=("--set",),
            written=list[str],
            library='New values, computed from the old values of the row: `"points = points + 1"`, a list of such assignments, '
            'or a mapping of columns to expressions: `{"points": "points + 1"}`. Texts are SQL, also in a mapping: `"city"` is '
            "the column city. Other values are themselves. Give texts of users in `values`, or as `:name` with `params`",
        ),
    ] = None
    where: Annotated[str | None, WHERE] = None
    _: KW_ONLY
    values: Mapping[str, Any] | None = None

    def check(self) -> None:
        super().check()
        if self.where is None:
            raise UsageError("no condition", "an update without --where would change all rows", "name it; 'true' selects all")
        if not self.set and not self.values:
            raise UsageError("nothing to set", "update needs at least one column", 'such as {"points": "points + 1"}')


class TruncateCall(Identity):
    """A deletion of all rows."""

    _: KW_ONLY
    partition: Annotated[
        Partitions, Option("Only this partition; repeatable for several.", library="Only the rows of these partitions")
    ] = Partitions()


class StagedTogether(Request):
    """How staged writes are committed."""

    _: KW_ONLY
    order: Annotated[
        Literal["refuse", "given"],
        Option(
            "What to do with several files that hold rows of the same bucket: refuse them, because nothing says which rows "
            "are newer; or number the rows in the order of the files, so that later files win, which writes their data again."
        ),
    ] = "refuse"
    compact: Annotated[
        Literal["none", "after"] | None,
        Option("Whether to compact the buckets that get rows, after the commit. Default after, for write-only tables none."),
    ] = None


class StageRounds(Request):
    """How a committer process looks for staged writes."""

    _: KW_ONLY
    interval: Annotated[Time, Option("Pause between rounds; default 30 s.", panel=STAGE_WATCH, tells_default=True)] = Time("30 s")
    max_rounds: Annotated[int | None, Option("Stop after N rounds.", metavar="N", min=1, panel=STAGE_WATCH)] = None
    keep: Annotated[bool, Option("Leave committed files where they are, instead of in DIR/done.", panel=STAGE_WATCH)] = False


class StageCommitOptions(StagedTogether, Identity):
    """A commit of staged writes, with an identity of its own."""


class StageWatchOptions(StageRounds, StagedTogether):
    """Commits of the staged writes that land in a directory."""
