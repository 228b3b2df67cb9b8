"""A typed, checked view of a table's options with Paimon's defaults (FORMAT.md, section 14.3; Java CoreOptions)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress

from paimon_cli.errors import BadOption, UsageError
from paimon_cli.options import option_text as read
from paimon_cli.options.changelog_producers import CHANGELOG_PRODUCERS, NO_CHANGELOG
from paimon_cli.options.choices import ExternalPathStrategy, TagCreation, TagPeriod, TagPeriodFormat, values_of
from paimon_cli.options.merge_engines import DEFAULT_ENGINE, MERGE_ENGINES
from paimon_cli.options.option_text import TypedOption, parse_size, read_option
from paimon_cli.options.own_options import OwnOptions
from paimon_cli.pieces import PIECES

MB = 1024 * 1024
_MAX_LONG = 2**63 - 1
HASHED, MODULO, HIVE = "default", "mod", "hive"
BUCKET_FUNCTIONS = (HASHED, MODULO, HIVE)
"""Values of `bucket-function.type`: the hash of the binary row, an integer modulo the bucket count, the hash of Hive."""
NULLABLE_KEYS = "primary-key.nullable"
VECTORS_ENABLED = "deletion-vectors.enabled"
SNAPSHOT_ORDERING = "sequence.snapshot-ordering"
ROW_TRACKING = "row-tracking.enabled"
BATCH_WRITE_FIXED_BUCKET = "postpone.batch-write-fixed-bucket"
MAX_BUCKETS = 2**31 - 1
_STATS_MODE = re.compile(r"none|counts|full|truncate\(([1-9][0-9]*)\)")


def _stats_mode(value: str) -> str:
    mode = value.strip().lower()
    if not _STATS_MODE.fullmatch(mode):
        raise ValueError("none, counts, full or truncate(n)")
    return mode


def _positive_size(value: str) -> int:
    number = parse_size(value)
    if number < 1:
        raise ValueError("a size of at least 1 byte, like 128 mb")
    return number


def _bucket_count(value: str) -> int:
    number = read.integer(-2)(value)
    if number == 0:
        raise ValueError("a whole number from 1, -1 for dynamic buckets, or -2 for postponed ones")
    return number


def _positive_duration(value: str) -> int:
    duration = read.parse_duration(value)
    if duration < 1:
        raise ValueError("a duration of at least 1 ms")
    return duration


def _unlimited_or_positive(value: str) -> int:
    number = read.integer(-1)(value)
    if number == 0:
        raise ValueError("-1 for no limit, or a whole number from 1")
    return number


def unset_command(table: str, key: str) -> str:
    """The command that removes an option from a table, named by an argument, so that its default applies.

    Empty for an option that says how the files are to be read: its default might be wrong for them.
    """
    return "" if is_of_files(key) else f"paimon-cli alter {table} unset {shlex.quote(key)}"


NAMES_OF_PARTITIONS = ("partition.default-name", "partition.legacy-name")
"""The options that name the directories of partitions: manifests do not, so with other values files are not found."""


def names_of_partitions(options: TableOptions) -> dict[str, str]:
    """The effective values of these options, as texts. Raises `UsageError` for one that cannot be read."""
    legacy = "true" if options.partition_legacy_name else "false"
    return dict(zip(NAMES_OF_PARTITIONS, (options.partition_default_name, legacy), strict=True))


def is_of_files(key: str) -> bool:
    """Whether an option says how the files of a table are to be read, so that only one value is right."""
    from paimon_cli.options.option_catalog import find_option  # only errors, findings and changes of a schema need it

    known = find_option(key)
    named = ("bucket", "changelog-producer", VECTORS_ENABLED, *NAMES_OF_PARTITIONS)
    return key in named or (known is not None and known.immutable)


class TableOptions(OwnOptions):
    """The options of one table, parsed once; sizes in bytes, durations in milliseconds. Immutable.

    An invalid value raises `UsageError` when its attribute is read, so that a bad option prevents only the operations that
    depend on it.
    """

    raw: Mapping[str, str]
    table: str
    """The table as an argument of commands, for hints; empty if there is none yet."""
    given: frozenset[str]
    """The options that are not the table's own, but of one call."""

    def __init__(self, mapping: Mapping[str, str], table: str = "", given: Iterable[str] = ()) -> None:
        names = {*_DEPENDENT, *(_NAME_OF_KEY[key] for key in _NAME_OF_KEY.keys() & mapping.keys())}
        self.__dict__.update({name: value for name, value in _DEFAULTS.items() if name not in names}, raw=dict(mapping))
        self.__dict__.update(table=table, given=frozenset(given))
        for name in names:
            with suppress(UsageError):
                self.__dict__[name] = getattr(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"TableOptions is immutable: {name}")

    def __reduce__(self) -> tuple[type[TableOptions], tuple[Mapping[str, str], str, frozenset[str]]]:
        return TableOptions, (self.raw, self.table, self.given)

    def with_overrides(self, mapping: Mapping[str, str]) -> TableOptions:
        """A copy in which these options are replaced, as by dynamic options of one call."""
        return TableOptions({**self.raw, **mapping}, self.table, self.given.union(mapping))

    def of_table(self, argument: str) -> TableOptions:
        """A copy whose errors say how to change the options of the table with this argument in commands."""
        return TableOptions(self.raw, argument, self.given)

    def explain(self, error: BadOption) -> None:
        """Give the error about an invalid value its origin, and the command that changes it, if it is the table's own."""
        if error.key in self.given:
            error.blame(call=True)
            error.set_hint(f"it is an option of this call, not of the table: {error.hint}, or leave it out")
        elif self.table:
            error.blame(table=self.table)
            command = unset_command(self.table, error.key)
            allowed = error.why.removeprefix("allowed: ")
            change = f"`alter {self.table} set {error.key}=...` with one of: {allowed}"
            said = f"restore the value with which the table was written: {change}"
            error.set_hint(command or said)

    def check(self) -> None:
        """Raise `UsageError` for the first option, in order of declaration, with an invalid value."""
        for name in TYPED_OPTIONS:
            getattr(self, name)

    # keys and buckets
    bucket = TypedOption("bucket", -1, _bucket_count)
    cross_partition_index_ttl = TypedOption("cross-partition-upsert.index-ttl", None, read.parse_duration)
    cross_partition_bootstrap_parallelism = TypedOption("cross-partition-upsert.bootstrap-parallelism", 10, read.integer(1))
    primary_key_nullable = TypedOption(NULLABLE_KEYS, False, read.boolean)
    bucket_keys = TypedOption[tuple[str, ...]]("bucket-key", (), read.names)
    bucket_function = TypedOption("bucket-function.type", HASHED, read.one_of(*BUCKET_FUNCTIONS))
    postpone_default_bucket_num = TypedOption("postpone.default-bucket-num", None, read.integer(1, MAX_BUCKETS))
    postpone_target_rows = TypedOption("postpone.target-row-num-per-bucket", None, read.integer(1, _MAX_LONG))
    postpone_target_size = TypedOption("postpone.target-size-per-bucket", 1024 * MB, _positive_size)
    postpone_batch_write_fixed_bucket = TypedOption(BATCH_WRITE_FIXED_BUCKET, True, read.boolean)
    postpone_most_buckets = TypedOption("postpone.batch-write-fixed-bucket.max-parallelism", 2048, read.integer(1))
    postpone_merge_on_read = TypedOption("postpone.merge-on-read", False, read.boolean)
    dynamic_bucket_target_row_num = TypedOption("dynamic-bucket.target-row-num", 2_000_000, read.integer(1, _MAX_LONG))
    dynamic_bucket_initial_buckets = TypedOption("dynamic-bucket.initial-buckets", None, read.integer(1))
    dynamic_bucket_max_buckets = TypedOption("dynamic-bucket.max-buckets", -1, _unlimited_or_positive)
    dynamic_bucket_assigner_parallelism = TypedOption("dynamic-bucket.assigner-parallelism", None, read.integer(1))

    # files
    file_format = TypedOption("file.format", "parquet", str.lower)
    file_format_per_level = TypedOption[dict[int, str]]("file.format.per.level", {}, read.per_level)
    file_compression = TypedOption("file.compression", "zstd", str.lower)
    file_compression_per_level = TypedOption[dict[int, str]]("file.compression.per.level", {}, read.per_level)
    zstd_level = TypedOption("file.compression.zstd-level", 1, read.integer(-7, 22))
    parquet_writer_version = TypedOption("parquet.writer.version", "v1", read.one_of("v1", "v2", "parquet_1_0", "parquet_2_0"))
    parquet_page_rows = TypedOption("parquet.page.row.count.limit", None, read.integer(1))
    file_block_size = TypedOption("file.block-size", None, _positive_size)
    data_file_path_directory = TypedOption("data-file.path-directory", None, read.inner_directory)
    pk_clustering_override = TypedOption("pk-clustering-override", False, read.boolean)
    data_file_external_paths = TypedOption("data-file.external-paths", (), read.locations)
    external_path_strategy = TypedOption(
        "data-file.external-paths.strategy", ExternalPathStrategy.NONE, read.one_of(*values_of(ExternalPathStrategy))
    )
    external_paths_specific_fs = TypedOption("data-file.external-paths.specific-fs", None, str.lower)
    external_paths_weights = TypedOption("data-file.external-paths.weights", (), read.weights)
    target_file_size = TypedOption("target-file-size", None, _positive_size)
    target_file_row_num = TypedOption("target-file-row-num", _MAX_LONG, read.integer(1, _MAX_LONG))
    data_file_prefix = TypedOption("data-file.prefix", "data-", read.part_of_file_name)
    changelog_file_prefix = TypedOption("changelog-file.prefix", "changelog-", read.part_of_file_name)
    changelog_file_format = TypedOption("changelog-file.format", None, str.lower)
    changelog_file_compression = TypedOption("changelog-file.compression", None, str.lower)
    changelog_file_stats_mode = TypedOption("changelog-file.stats-mode", None, _stats_mode)
    file_index_read_enabled = TypedOption("file-index.read.enabled", True, read.boolean)
    file_index_in_manifest_threshold = TypedOption("file-index.in-manifest-threshold", 500, read.parse_size)

    _table_stats_mode = TypedOption("metadata.stats-mode", "truncate(16)", _stats_mode)
    _level_stats_modes = TypedOption[dict[int, str]]("metadata.stats-mode.per.level", {}, read.per_level)

    # writing and merging
    write_only = TypedOption("write-only", False, read.boolean, ("write.compaction-skip",))
    write_buffer_size = TypedOption("write-buffer-size", 256 * MB, _positive_size)
    write_buffer_spillable = TypedOption("write-buffer-spillable", True, read.boolean)
    write_buffer_spill_max_disk_size = TypedOption("write-buffer-spill.max-disk-size", _MAX_LONG, read.parse_size)
    write_max_writers_to_spill = TypedOption("write-max-writers-to-spill", 10, read.integer(0))
    local_sort_max_file_handles = TypedOption("local-sort.max-num-file-handles", 128, read.integer(2))
    sort_spill_threshold = TypedOption("sort-spill-threshold", None, read.integer(2))
    merge_engine = TypedOption("merge-engine", DEFAULT_ENGINE, read.one_in(MERGE_ENGINES))
    sequence_fields = TypedOption[tuple[str, ...]]("sequence.field", (), read.names)
    write_sequence_number_init_mode = TypedOption("write.sequence-number-init-mode", "scan", read.one_of("scan", "snapshot"))
    sequence_snapshot_ordering = TypedOption(SNAPSHOT_ORDERING, False, read.boolean)
    sequence_sort_order = TypedOption("sequence.field.sort-order", "ascending", read.one_of("ascending", "descending"))
    rowkind_field = TypedOption("rowkind.field", None, read.text)
    ignore_delete = TypedOption(
        "ignore-delete",
        False,
        read.boolean,
        ("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
    )
    ignore_update_before = TypedOption("ignore-update-before", False, read.boolean)
    partial_update_remove_record_on_delete = TypedOption("partial-update.remove-record-on-delete", False, read.boolean)
    partial_update_remove_record_on_sequence_group = TypedOption[tuple[str, ...]](
        "partial-update.remove-record-on-sequence-group", (), read.names
    )
    aggregation_remove_record_on_delete = TypedOption("aggregation.remove-record-on-delete", False, read.boolean)
    record_level_expire_time = TypedOption("record-level.expire-time", None, read.parse_duration)
    record_level_time_field = TypedOption("record-level.time-field", None, read.text)
    default_aggregate_function = TypedOption("fields.default-aggregate-function", None, read.text)
    changelog_producer = TypedOption("changelog-producer", NO_CHANGELOG, read.one_in(CHANGELOG_PRODUCERS))
    changelog_row_deduplicate = TypedOption("changelog-producer.row-deduplicate", False, read.boolean)
    changelog_row_deduplicate_ignore_fields = TypedOption[tuple[str, ...]](
        "changelog-producer.row-deduplicate-ignore-fields", (), read.names
    )
    streaming_read_overwrite = TypedOption("streaming-read-overwrite", False, read.boolean)
    streaming_read_append_overwrite = TypedOption("streaming-read-append-overwrite", False, read.boolean)
    full_compaction_delta_commits = TypedOption("full-compaction.delta-commits", None, read.integer(1))
    deletion_vectors_enabled = TypedOption(VECTORS_ENABLED, False, read.boolean)
    data_evolution_enabled = TypedOption("data-evolution.enabled", False, read.boolean)
    row_tracking_enabled = TypedOption(ROW_TRACKING, False, read.boolean)
    deletion_vectors_merge_on_read = TypedOption("deletion-vectors.merge-on-read", False, read.boolean)
    deletion_vectors_bitmap64 = TypedOption("deletion-vectors.bitmap64", False, read.boolean)
    deletion_vector_index_file_target_size = TypedOption("deletion-vector.index-file.target-size", 2 * MB, _positive_size)
    force_lookup = TypedOption("force-lookup", False, read.boolean)

    # compaction
    compaction_trigger = TypedOption("num-sorted-run.compaction-trigger", 5, read.integer(1))
    num_levels = TypedOption[int]("num-levels", lambda options: options.compaction_trigger + 1, read.integer(2))
    _stop_trigger = TypedOption[int](
        "num-sorted-run.stop-trigger", lambda options: options.compaction_trigger + 3, read.integer(0)
    )
    max_size_amplification_percent = TypedOption("compaction.max-size-amplification-percent", 200, read.integer(0))
    size_ratio = TypedOption("compaction.size-ratio", 1, read.integer(0))
    optimization_interval = TypedOption("compaction.optimization-interval", None, read.parse_duration)
    total_size_threshold = TypedOption("compaction.total-size-threshold", None, read.parse_size)
    incremental_size_threshold = TypedOption("compaction.incremental-size-threshold", None, read.parse_size)
    compaction_min_file_num = TypedOption("compaction.min.file-num", 5, read.integer(1))
    compaction_file_num_limit = TypedOption("compaction.file-num-limit", 100_000, read.integer(1))
    compaction_delete_ratio_threshold = TypedOption("compaction.delete-ratio-threshold", 0.2, read.share)
    sort_range_strategy = TypedOption("sort-compaction.range-strategy", "size", read.one_of("size", "quantity"))
    sort_sample_magnification = TypedOption("sort-compaction.local-sample.magnification", 1000, read.integer(1))
    zorder_text_bytes = TypedOption("zorder.var-length-contribution", 8, read.integer(1))
    small_file_ratio = TypedOption("compaction.small-file-ratio", 0.7, read.share)
    force_up_level0 = TypedOption("compaction.force-up-level-0", False, read.boolean)
    force_rewrite_all_files = TypedOption("compaction.force-rewrite-all-files", False, read.boolean)
    offpeak_start_hour = TypedOption("compaction.offpeak.start.hour", -1, read.integer(-1, 23))
    offpeak_end_hour = TypedOption("compaction.offpeak.end.hour", -1, read.integer(-1, 23))
    offpeak_ratio = TypedOption("compaction.offpeak-ratio", 0, read.integer(0))
    lookup_compact_max_interval = TypedOption[int](
        "lookup-compact.max-interval", lambda options: 2 * options.compaction_trigger, read.integer(1)
    )
    lookup_wait = TypedOption("lookup-wait", True, read.boolean, ("changelog-producer.lookup-wait",))
    lookup_compact = TypedOption("lookup-compact", "radical", read.one_of("radical", "gentle"))

    # partitions
    partition_default_name = TypedOption("partition.default-name", "__DEFAULT_PARTITION__", read.text)
    partition_legacy_name = TypedOption("partition.legacy-name", True, read.boolean)
    dynamic_partition_overwrite = TypedOption("dynamic-partition-overwrite", True, read.boolean)

    # commits, manifests, expiry
    commit_max_retries = TypedOption("commit.max-retries", 10, read.integer(0))
    commit_timeout = TypedOption("commit.timeout", None, read.parse_duration)
    commit_min_retry_wait = TypedOption("commit.min-retry-wait", 10, read.parse_duration)
    commit_max_retry_wait = TypedOption("commit.max-retry-wait", 10_000, read.parse_duration)
    commit_user_prefix = TypedOption("commit.user-prefix", None, read.text)
    commit_force_create_snapshot = TypedOption("commit.force-create-snapshot", False, read.boolean)
    manifest_target_file_size = TypedOption("manifest.target-file-size", 8 * MB, _positive_size)
    manifest_full_compaction_threshold_size = TypedOption("manifest.full-compaction-threshold-size", 16 * MB, read.parse_size)
    manifest_merge_min_count = TypedOption("manifest.merge-min-count", 30, read.integer(1))
    snapshot_num_retained_min = TypedOption("snapshot.num-retained.min", 10, read.integer(1))
    snapshot_num_retained_max = TypedOption("snapshot.num-retained.max", 2**31 - 1, read.integer(1))
    snapshot_time_retained = TypedOption("snapshot.time-retained", 3_600_000, read.parse_duration)
    changelog_num_retained_min = TypedOption[int](
        "changelog.num-retained.min", lambda options: options.snapshot_num_retained_min, read.integer(1)
    )
    changelog_num_retained_max = TypedOption[int](
        "changelog.num-retained.max", lambda options: options.snapshot_num_retained_max, read.integer(1)
    )
    changelog_time_retained = TypedOption[int](
        "changelog.time-retained", lambda options: options.snapshot_time_retained, read.parse_duration
    )
    snapshot_expire_limit = TypedOption("snapshot.expire.limit", 50, read.integer(1))
    snapshot_clean_empty_directories = TypedOption("snapshot.clean-empty-directories", False, read.boolean)
    tag_time_expire_enabled = TypedOption("tag.time-expire-enabled", True, read.boolean)
    tag_default_time_retained = TypedOption("tag.default-time-retained", None, read.parse_duration)
    tag_automatic_creation = TypedOption("tag.automatic-creation", TagCreation.NONE, read.one_of(*values_of(TagCreation)))
    tag_creation_period = TypedOption("tag.creation-period", TagPeriod.DAILY, read.one_of(*values_of(TagPeriod)))
    tag_creation_period_duration = TypedOption("tag.creation-period-duration", None, _positive_duration)
    tag_creation_delay = TypedOption("tag.creation-delay", 0, read.parse_duration)
    tag_period_formatter = TypedOption(
        "tag.period-formatter", TagPeriodFormat.WITH_DASHES, read.one_of(*values_of(TagPeriodFormat))
    )
    tag_automatic_completion = TypedOption("tag.automatic-completion", False, read.boolean)
    tag_num_retained_max = TypedOption("tag.num-retained-max", None, read.integer(1))
    tag_batch_customized_name = TypedOption("tag.batch.customized-name", None, read.text)
    sink_process_time_zone = TypedOption("sink.process-time-zone", None, read.text)
    sink_watermark_time_zone = TypedOption("sink.watermark-time-zone", "UTC", read.text)
    consumer_expiration_time = TypedOption("consumer.expiration-time", None, read.parse_duration)
    partition_expiration_time = TypedOption("partition.expiration-time", None, read.parse_duration)
    partition_expiration_strategy = TypedOption(
        "partition.expiration-strategy", "values-time", read.one_of("values-time", "update-time")
    )
    compaction_skip_expired_partitions = TypedOption("compaction.skip-expired-partitions", False, read.boolean)
    partition_expiration_max_num = TypedOption("partition.expiration-max-num", 100, read.integer(1))
    partition_mark_done_actions = TypedOption[tuple[str, ...]]("partition.mark-done-action", ("success-file",), read.names)
    partition_end_input_to_done = TypedOption("partition.end-input-to-done", False, read.boolean)
    partition_mark_done_url = TypedOption("partition.mark-done-action.http.url", None, read.text)
    metastore_partitioned_table = TypedOption("metastore.partitioned-table", False, read.boolean)
    partition_mark_done_params = TypedOption("partition.mark-done-action.http.params", None, read.text)
    partition_sink_strategy = TypedOption("partition.sink-strategy", "none", read.one_of("none", "hash", "partition_dynamic"))
    partition_timestamp_pattern = TypedOption("partition.timestamp-pattern", None, read.text)
    partition_timestamp_formatter = TypedOption("partition.timestamp-formatter", None, read.text)
    split_target_size = TypedOption("source.split.target-size", 128 * MB, _positive_size)
    split_open_file_cost = TypedOption("source.split.open-file-cost", 4 * MB, read.parse_size)

    @property
    def changelogs_outlive_snapshots(self) -> bool:
        """Whether expired snapshots live on as changelogs (FORMAT.md, section 13.4; Java ExpireConfig.isChangelogDecoupled)."""
        return (
            self.changelog_num_retained_min > self.snapshot_num_retained_min
            or self.changelog_num_retained_max > self.snapshot_num_retained_max
            or self.changelog_time_retained > self.snapshot_time_retained
        )

    @property
    def of_changelog_files(self) -> TableOptions:
        """The options for writing changelog files, with their own prefix and, if set, their own format, codec and statistics.

        They have no file indexes and are rolled by size only. Keys are never looked up in them, so pages need not be small.
        """
        without = ("target-file-row-num", *(key for key in self.raw if key.startswith("file-index.")))
        own = {key: value for key, value in self.raw.items() if key not in without}
        own["data-file.prefix"] = self.changelog_file_prefix
        own.setdefault("parquet.page.row.count.limit", str(PIECES.page_rows))
        for value, key in (
            (self.changelog_file_format, "file.format"),
            (self.changelog_file_compression, "file.compression"),
            (self.changelog_file_stats_mode, "metadata.stats-mode"),
        ):
            if value is not None:
                own = {**own, key: value}
                own.pop(f"{key}.per.level", None)
        return TableOptions(own)

    def of_postponed_files(self, file_format: str, prefix: str) -> TableOptions:
        """The options for writing files to `bucket-postpone`: without statistics and file indexes."""
        left_out = ("file.format.per.level", "metadata.stats-mode.per.level")
        own = {key: value for key, value in self.raw.items() if key not in left_out and not key.startswith("file-index.")}
        own = {key: value for key, value in own.items() if not (key.startswith("fields.") and key.endswith(".stats-mode"))}
        return TableOptions({**own, "file.format": file_format, "metadata.stats-mode": "none", "data-file.prefix": prefix})

    @property
    def readable(self) -> TableOptions:
        """The options without those whose values cannot be read, so that their defaults apply."""
        invalid = [option for name, option in TYPED_OPTIONS.items() if self._is_invalid(name)]
        unread = {key for option in invalid for key in (option.key, *option.older_keys)}
        return TableOptions({key: value for key, value in self.raw.items() if key not in unread}, self.table, self.given)

    def _is_invalid(self, name: str) -> bool:
        try:
            getattr(self, name)
        except UsageError:
            return True
        return False

    @property
    def looks_up_keys(self) -> bool:
        """Whether compactions look up the previous row of a key in files that they do not rewrite."""
        looks_up = self.deletion_vectors_enabled or self.changelog_producer.looks_up_old_rows or self.force_lookup
        return looks_up or self.merge_engine.oldest_wins

    @property
    def sequence_descending(self) -> bool:
        """Whether the row with the smallest value of the sequence fields is the newest."""
        return self.sequence_sort_order == "descending"

    @property
    def stop_trigger(self) -> int:
        """Number of sorted runs at which writers wait: at least the compaction trigger; by default three above it."""
        return max(self._stop_trigger, self.compaction_trigger)

    def format_at(self, level: int) -> str:
        """File format of a new file at `level`."""
        return self.file_format_per_level.get(level, self.file_format).lower()

    def compression_at(self, level: int) -> str:
        """Codec of a new file at `level`."""
        return self.file_compression_per_level.get(level, self.file_compression).lower()

    def column_option(self, column: str, name: str) -> str | None:
        """The value of `fields.<column>.<name>`, for example of its `aggregate-function`; None if unset."""
        return self.raw.get(f"fields.{column}.{name}")

    @property
    def sequence_groups(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Sequence fields and grouped columns of each `fields.<s1,s2>.sequence-group=<c1,c2>`, by key of the option."""
        prefix, suffix = "fields.", ".sequence-group"
        keys = [key for key in self.raw if key.startswith(prefix) and key.endswith(suffix)]
        return {key: (read.names(key[len(prefix) : -len(suffix)]), read.names(self.raw[key])) for key in keys}

    def stats_mode(self, column: str, level: int | None = None) -> str:
        """`none`, `counts`, `full` or `truncate(n)`: the mode of the column, else of the level, else of the table."""
        own = self.column_option(column, "stats-mode")
        if own is not None:
            return read_option(f"fields.{column}.stats-mode", own, _stats_mode)
        if level in self._level_stats_modes:
            return read_option("metadata.stats-mode.per.level", self._level_stats_modes[level], _stats_mode)
        return self._table_stats_mode


TYPED_OPTIONS = {
    name: option
    for declared in (TableOptions, OwnOptions)
    for name, option in vars(declared).items()
    if isinstance(option, TypedOption)
}
"""The options that paimon-cli reads, by attribute of `TableOptions`."""
_NAME_OF_KEY = {key: name for name, option in TYPED_OPTIONS.items() for key in (option.key, *option.older_keys)}
_DEPENDENT = {name for name, option in TYPED_OPTIONS.items() if callable(option.default)}
_DEFAULTS = {name: option.default for name, option in TYPED_OPTIONS.items() if name not in _DEPENDENT}
