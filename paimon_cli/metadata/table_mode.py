"""The kind of a table, and what work this version does on it (FORMAT.md, section 12; Java BucketMode, CoreOptions).

All gates ask here, so that one place decides which kinds of tables can be read, written and compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from paimon_cli.errors import NotSupported
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options import option_catalog
from paimon_cli.options.option_catalog import COMMIT, COMPACT, OPEN, WRITE
from paimon_cli.options.table_options import SNAPSHOT_ORDERING, TableOptions

INPUT, LOOKUP, FULL_COMPACTION = "input", "lookup", "full-compaction"
"""Changelog producers: files hold what a flush takes in, what changes above level 0, or what changes at the top level."""
RESCALE = "rescale"
"""Moving rows into another number of buckets."""
CHANGE_ROWS = "change rows of"
"""`update` and `delete`."""
LIMITED_WORK = (WRITE, COMPACT, RESCALE, CHANGE_ROWS)
"""Work that depends on what kind of table it is; other work depends only on options without a gate."""
DYNAMIC_BUCKET = -1
KEYED_FILE_SIZE, APPEND_FILE_SIZE = 128 << 20, 256 << 20
"""Default of `target-file-size`, with a primary key and without."""


class BucketMode(Enum):
    """How a row finds its bucket. The values describe the buckets in messages."""

    FIXED = "a fixed number of buckets"
    DYNAMIC = "dynamic buckets"
    CROSS_PARTITION = "dynamic buckets across partitions"
    POSTPONED = "postponed buckets"
    UNAWARE = "no buckets"


@dataclass(frozen=True)
class Limit:
    """Why this version does not do some work on a table."""

    kind: str
    """The property of the table that is the reason, such as `with bucket=-1`."""
    why: str
    hint: str


@dataclass(frozen=True)
class TableMode:
    """How a table is read, written and compacted, as its schema and options say."""

    has_keys: bool
    bucket_mode: BucketMode
    merge_engine: str
    changelog_producer: str
    deletion_vectors: bool
    merge_on_read: bool
    """Whether rows of level 0 are merged in where deletion vectors mark the others."""
    shows_level_0: bool
    """Whether reads show rows of level 0 that plain reads hide: for work on all rows."""
    bucket: int
    target_file_size: int
    raw_options: Mapping[str, str]
    force_lookup: bool = False
    batches_have_buckets: bool = False
    """Whether buckets are postponed, but batch writes choose them: the rows of a new partition are counted first."""
    postpone_merge_on_read: bool = False
    keeps_deleted_rows: bool = False
    """Whether the newest row of a key wins, but deletes are ignored."""

    @classmethod
    def of(cls, schema: TableSchema, options: TableOptions, shows_level_0: bool = False) -> TableMode:
        return cls(
            bool(schema.primary_keys),
            _bucket_mode(schema, options.bucket),
            options.merge_engine,
            options.changelog_producer,
            options.deletion_vectors_enabled,
            options.deletion_vectors_merge_on_read,
            shows_level_0,
            options.bucket,
            options.target_file_size or (KEYED_FILE_SIZE if schema.primary_keys else APPEND_FILE_SIZE),
            options.raw,
            options.force_lookup,
            options.bucket == POSTPONE_BUCKET and options.postpone_batch_write_fixed_bucket,
            options.postpone_merge_on_read,
            options.merge_engine == "deduplicate" and options.ignore_delete,
        )

    @property
    def postpones_rows(self) -> bool:
        """Whether written rows wait in `bucket-postpone`."""
        return self.bucket_mode is BucketMode.POSTPONED and not self.batches_have_buckets

    @property
    def merges_postponed(self) -> bool:
        """Whether a read shows rows that wait in `bucket-postpone`, too."""
        return self.bucket_mode is BucketMode.POSTPONED and self.postpone_merge_on_read

    @property
    def reads_merge(self) -> bool:
        """Whether a read merges sorted runs; if not, every row above level 0 that no vector marks is its key's current row."""
        return self.has_keys and (self.merge_on_read or self.shows_level_0 or not self.deletion_vectors)

    @property
    def looks_up_old_rows(self) -> bool:
        """Whether a compaction of level 0 has to find the older rows of its keys above the level that it writes."""
        return self.has_keys and (
            self.deletion_vectors or self.force_lookup or self.merge_engine == "first-row" or self.changelog_producer == LOOKUP
        )

    @property
    def lower_level_shadows(self) -> bool:
        """Whether a row above level 0 holds what lies below it in higher levels, so that a merge must leave those out (Java
        LookupMergeFunction). It makes no difference where the newest row wins, or where vectors mark the older ones.
        """
        return self.looks_up_old_rows and self.merge_engine in ("aggregation", "partial-update") and not self.deletion_vectors

    @property
    def hides_level_0(self) -> bool:
        """Whether plain reads skip level 0 until it is compacted (FORMAT.md, section 11.1)."""
        if not self.has_keys or self.shows_level_0:
            return False
        return not self.merge_on_read if self.deletion_vectors else self.merge_engine == "first-row"

    @property
    def awaits_compaction(self) -> bool:
        """Whether readers or streams see new rows only once level 0 is compacted, so that writers usually do that at once."""
        return self.hides_level_0 or (self.has_keys and self.changelog_producer == LOOKUP)

    def check(self, work: str, table: str) -> None:
        """Raise `NotSupported` if this version does not do `work` on such a table, whatever other options say; `table` names it
        in the message.
        """
        for limit in self._limits(work):
            raise NotSupported(f"cannot {work} table {table} {limit.kind}", limit.why, limit.hint)

    def limits(self, work: str) -> list[str]:
        """One sentence for each reason why this version does not do `work` on such a table."""
        named = [sentence for gate in gates_of(work) for sentence in option_catalog.refusals(gate, self.raw_options)]
        return [*named, *(limit.why for limit in self._limits(work))]

    def hint(self, work: str) -> str:
        """How to make `work` possible if the kind of table prevents it; else empty."""
        return next((limit.hint for limit in self._limits(work)), "")

    def _limits(self, work: str) -> Iterator[Limit]:
        if self.bucket_mode is BucketMode.UNAWARE and work == RESCALE:
            hint = "use `paimon-cli compact` to put small files together"
            yield Limit("without buckets", "its rows belong to partitions alone", hint)
        elif self.bucket_mode is BucketMode.POSTPONED and self.raw_options.get(SNAPSHOT_ORDERING, "").lower() == "true":
            why = f"with {SNAPSHOT_ORDERING} rows that wait would count from their compaction, not from their own snapshot"
            yield Limit(f"with bucket={self.bucket} and {SNAPSHOT_ORDERING}", why, f"leave {SNAPSHOT_ORDERING} out")
        elif self.bucket == 0 and work != COMPACT:
            yield Limit("with bucket=0", "0 is not a number of buckets", "set a number of buckets, such as --bucket 4")
        elif self.bucket_mode is BucketMode.CROSS_PARTITION and self.keeps_deleted_rows and work in (WRITE, CHANGE_ROWS):
            why = "with ignore-delete=true a row that moves to another partition could not be deleted where it was"
            hint = "set ignore-delete=false on a new table, or add the partition columns to the primary key"
            yield Limit("whose primary key leaves partition columns out, with ignore-delete=true", why, hint)
        elif self.bucket_mode is BucketMode.CROSS_PARTITION and work == RESCALE:
            why = "a fixed number of buckets needs all partition columns in the primary key"
            hint = "compact it instead; dynamic-bucket.target-row-num says how many keys a new bucket takes"
            yield Limit("whose primary key leaves partition columns out", why, hint)


def _bucket_mode(schema: TableSchema, bucket: int) -> BucketMode:
    if bucket == POSTPONE_BUCKET:
        return BucketMode.POSTPONED
    if bucket != DYNAMIC_BUCKET:
        return BucketMode.FIXED
    if not schema.primary_keys:
        return BucketMode.UNAWARE
    return BucketMode.DYNAMIC if set(schema.partition_keys) <= set(schema.primary_keys) else BucketMode.CROSS_PARTITION


def gates_of(work: str) -> tuple[str, ...]:
    """The gates of the option catalog that must be passed before `work`, which is one of `LIMITED_WORK`."""
    return (COMPACT, COMMIT) if work == COMPACT else (OPEN, WRITE, COMMIT)
