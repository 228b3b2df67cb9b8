"""The kind of a table, and which operations this version supports on it (FORMAT.md, section 12; Java BucketMode, CoreOptions).

This is the only place that decides which kinds of tables can be read, written and compacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from paimon_cli.datatypes.data_type import TIMESTAMP_ROOTS, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.metadata.bucket_modes import BucketMode, bucket_mode_of
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options import option_catalog
from paimon_cli.options.changelog_producers import ChangelogProducer
from paimon_cli.options.merge_engines import MergeRules
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.table_options import ROW_TRACKING, SNAPSHOT_ORDERING, TableOptions

RESCALE = "rescale"
"""The operation that moves rows into another number of buckets."""
CHANGE_ROWS = "change rows of"
"""The operations `update` and `delete`, worded for messages."""
LIMITED_WORK = (Operation.WRITE, Operation.COMPACT, RESCALE, CHANGE_ROWS)
"""Operations that some kinds of tables do not support."""
KEYED_FILE_SIZE, APPEND_FILE_SIZE = 128 << 20, 256 << 20
"""Defaults of `target-file-size` in bytes, with a primary key and without."""


@dataclass(frozen=True)
class Limit:
    """A reason why this version does not support an operation on a table."""

    kind: str
    """The property of the table that prevents it, such as `with bucket=-1`."""
    why: str
    hint: str


@dataclass(frozen=True)
class TableMode:
    """How a table is read, written and compacted according to its schema and options."""

    has_keys: bool
    bucket_mode: BucketMode
    merge_engine: MergeRules
    changelog_producer: ChangelogProducer
    deletion_vectors: bool
    merge_on_read: bool
    """Whether reads of a table with deletion vectors merge the rows of level 0, too."""
    shows_level_0: bool
    """Whether to show rows of level 0 that ordinary reads hide, for operations on all rows."""
    bucket: int
    options: TableOptions = field(repr=False)
    looks_up_keys: bool = False
    batches_have_buckets: bool = False
    """Whether buckets are postponed, but batch writes assign them at once, after counting the rows of a new partition."""
    postpone_merge_on_read: bool = False
    tracks_rows: bool = False
    """Whether each row keeps an id and the number of the snapshot that last changed it (FORMAT.md, section 7.5)."""
    combines_columns: bool = False
    """Whether columns of a row may be in several files, of which the newest with a column counts (FORMAT.md, section 7.6)."""
    clusters_rows: bool = False
    """Whether files above level 0 are sorted by `clustering.columns`, of which their bounds are, too, instead of by the key."""
    keeps_deleted_rows: bool = False
    """Whether the newest row of a key wins, but deletes are ignored."""

    @classmethod
    def of(
        cls, schema: TableSchema, options: TableOptions, shows_level_0: bool = False, ignores_vectors: bool = False
    ) -> TableMode:
        return cls(
            bool(schema.primary_keys),
            bucket_mode_of(schema.primary_keys, schema.partition_keys, options.bucket),
            options.merge_engine,
            options.changelog_producer,
            options.deletion_vectors_enabled and not ignores_vectors,
            options.deletion_vectors_merge_on_read,
            shows_level_0,
            options.bucket,
            options,
            options.looks_up_keys,
            options.bucket == POSTPONE_BUCKET and options.postpone_batch_write_fixed_bucket,
            options.postpone_merge_on_read,
            options.row_tracking_enabled and not schema.primary_keys,
            options.data_evolution_enabled and not schema.primary_keys,
            options.pk_clustering_override and bool(schema.primary_keys),
            options.merge_engine.newest_wins and options.ignore_delete,
        )

    @property
    def target_file_size(self) -> int:
        """In bytes. Raises `UsageError` for an invalid option, on which no read depends."""
        return self.options.target_file_size or (KEYED_FILE_SIZE if self.has_keys else APPEND_FILE_SIZE)

    @property
    def postpones_rows(self) -> bool:
        """Whether written rows first go to `bucket-postpone`."""
        return self.bucket_mode.postpones and not self.batches_have_buckets

    @property
    def merges_postponed(self) -> bool:
        """Whether reads also show the rows in `bucket-postpone`."""
        return self.bucket_mode.postpones and self.postpone_merge_on_read

    @property
    def reads_merge(self) -> bool:
        """Whether reads merge sorted runs; otherwise each row above level 0 that is not marked as deleted is current."""
        if self.clusters_rows:
            return False
        return self.has_keys and (self.merge_on_read or self.shows_level_0 or not self.deletion_vectors)

    @property
    def bounds_are_keys(self) -> bool:
        """Whether data files are sorted by key, and their bounds are keys."""
        return self.has_keys and not self.clusters_rows

    @property
    def tracks_keyed_rows(self) -> bool:
        """Whether rows with a key have ids, too. Only pypaimon makes such tables; where it writes them, manifests record numbers
        of snapshots instead of the sequence numbers of rows, and these may start too low."""
        return self.has_keys and self.options.raw.get(ROW_TRACKING, "").lower() == "true"

    @property
    def looks_up_old_rows(self) -> bool:
        """Whether a compaction of level 0 must look up the older rows of its keys above its output level."""
        return self.has_keys and self.looks_up_keys

    @property
    def lower_level_shadows(self) -> bool:
        """Whether a row above level 0 already includes the rows of its key in higher levels, so that a merge must ignore these.

        See Java's LookupMergeFunction. False where that makes no difference: the newest row wins, or older ones are marked.
        """
        return self.looks_up_old_rows and self.merge_engine.combines_versions and not self.deletion_vectors

    @property
    def hides_level_0(self) -> bool:
        """Whether ordinary reads skip level 0 until it is compacted (FORMAT.md, section 11.1)."""
        if not self.has_keys or self.shows_level_0:
            return False
        if self.clusters_rows:
            return True
        return not self.merge_on_read if self.deletion_vectors else self.merge_engine.oldest_wins

    @property
    def hides_postponed(self) -> bool:
        """Whether ordinary reads skip `bucket-postpone` until its rows are distributed."""
        return self.bucket_mode.postpones and not self.merges_postponed

    def hides(self, bucket: int, level: int) -> bool:
        """Whether ordinary reads skip the files in a level of a bucket until a compaction."""
        return self.hides_postponed if bucket == POSTPONE_BUCKET else self.hides_level_0 and level == 0

    @property
    def hides_files(self) -> bool:
        """Whether ordinary reads may skip files that wait for a compaction."""
        return self.hides_level_0 or self.hides_postponed

    @property
    def awaits_compaction(self) -> bool:
        """Whether reads or streams see new rows only after level 0 is compacted, so that writers usually do so at once."""
        return self.hides_level_0 or (self.has_keys and self.changelog_producer.looks_up_old_rows)

    def check(self, work: str, table: str) -> None:
        """Raise `NotSupported` if this version does not support `work` on this kind of table, called `table` in the message.

        Options with a gate in the option catalog are checked elsewhere.
        """
        for limit in self._limits(work):
            raise NotSupported(f"cannot {work} table {table} {limit.kind}", limit.why, limit.hint)

    def limits(self, work: str) -> list[str]:
        """One sentence for each reason why this version does not support `work` on this table, including its options."""
        options, keys = self.options.raw, self.has_keys
        named = [sentence for gate in gates_of(work) for sentence in option_catalog.refusals(gate, options, keys)]
        return [*named, *(limit.why for limit in self._limits(work))]

    def hint(self, work: str) -> str:
        """How to make `work` possible if the kind of table prevents it; otherwise empty."""
        return next((limit.hint for limit in self._limits(work)), "")

    def _limits(self, work: str) -> Iterator[Limit]:
        if self.tracks_keyed_rows or (self.tracks_rows and self.bucket_mode.has_buckets):
            kind = "a primary key" if self.has_keys else f"bucket={self.bucket}"
            yield Limit(
                f"with {ROW_TRACKING} and {kind}", f"{ROW_TRACKING} is for append tables without buckets", "use bucket=-1"
            )
        elif not self.bucket_mode.has_buckets and work == RESCALE:
            hint = "use `paimon-cli compact` to combine small files"
            yield Limit("without buckets", "its rows belong to partitions alone", hint)
        elif self.bucket_mode.postpones and self.options.raw.get(SNAPSHOT_ORDERING, "").lower() == "true":
            why = f"with {SNAPSHOT_ORDERING} postponed rows would be ordered by the snapshot of their compaction, not their own"
            yield Limit(f"with bucket={self.bucket} and {SNAPSHOT_ORDERING}", why, f"remove the option {SNAPSHOT_ORDERING}")
        elif self.bucket_mode.moves_keys and self.keeps_deleted_rows and work in (Operation.WRITE, CHANGE_ROWS):
            why = "with ignore-delete=true a row that moves to another partition could not be deleted from the old one"
            hint = "set ignore-delete=false on a new table, or add the partition columns to the primary key"
            yield Limit("whose primary key lacks partition columns, with ignore-delete=true", why, hint)
        elif self.bucket_mode.moves_keys and work == RESCALE:
            why = "a fixed number of buckets needs all partition columns in the primary key"
            hint = "compact it instead; dynamic-bucket.target-row-num sets the number of keys per new bucket"
            yield Limit("whose primary key lacks partition columns", why, hint)


def gates_of(work: str) -> tuple[str, ...]:
    """The gates of the option catalog that apply to `work`, one of `LIMITED_WORK`."""
    return (
        (Operation.COMPACT, Operation.COMMIT)
        if work == Operation.COMPACT
        else (Operation.OPEN, Operation.WRITE, Operation.COMMIT)
    )


def check_time_field(name: str, column_type: DataType) -> None:
    """Raise `UsageError` unless rows can have an age by this column (`record-level.time-field`)."""
    if column_type.root not in TIMESTAMP_ROOTS | {"INT", "BIGINT"}:
        raise UsageError(
            f"record-level.time-field '{name}' is {type_to_sql(column_type)}",
            "it must be INT, BIGINT (epoch seconds) or TIMESTAMP",
            "name a column of such a type, or remove record-level.expire-time",
        )
