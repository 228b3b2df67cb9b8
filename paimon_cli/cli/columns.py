"""The columns of results: which fields of a row are shown, with which titles, and in which format.

The columns of a result are the fields of its dataclass. A field name has the same title and kind in every result; both are
declared here once, with exceptions by dataclass and field.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from paimon_cli.cli.results import (
    CHANGE,
    COUNT,
    DECIMAL,
    FLAG,
    ID,
    JSON,
    KEY,
    LEVEL,
    LONG,
    NAMES,
    NUMBERS,
    PERCENT,
    SECONDS,
    SETTINGS,
    SIZE,
    SNAPSHOT_IDS,
    SPAN,
    TEXT,
    TIME,
    WALL_CLOCK,
    WHOLE_TEXT,
    Kind,
)
from paimon_cli.storage.redaction import without_login

_PLACE = Kind(without_login, without_login)
"""A path or URL as the user wrote it, without its password."""
_RECORD = Kind(lambda row: {name: getattr(row, name) for name in field_names(type(row))}, str)
"""A nested record: an object in JSON."""
RECORDS = Kind(lambda rows: [_RECORD.json(row) for row in rows], str)
"""A list of nested records: a list of objects in JSON, a separate table in text."""
TO_DO = Kind(lambda findings: [{**_RECORD.json(row), "finding": row.message} for row in findings], str)
"""Findings as `describe` shows them: `finding` is an older name of their message."""

NAMES_OF_KIND = {
    COUNT: "events_behind "
    "changelogs_expired consumers_expired files_expired left_buckets orphans partitions_expired snapshots_expired "
    "avg_length distinct_count max_length null_count "
    "tags_expired files_deleted read_files_after read_files_before read_requests round_requests runs_removed "
    "added anomalies attempts bad_cells behind buckets buckets_skipped changelog_record_count columns commits compacted "
    "compaction_trigger compactions conflicts count delete_rows deleted deletion_vector_rows duration_ms dv_cardinality "
    "fanout files files_added files_after files_before files_deleted files_skipped_as_unchanged files_skipped_by_bucket "
    "files_skipped_by_index files_skipped_by_key files_skipped_by_level files_skipped_by_partition files_skipped_by_value "
    "flushes full_compactions hash_count levels lost_updates manifests manifests_after manifests_before manifests_skipped "
    "most_runs needless new_buckets other_bucket_rows overlap own_calls partitions partitions_skipped picked_runs "
    "preemptions records refused rewrites rewritten rounds rows rows_after rows_before rows_read "
    "rows_skipped_by_level runs_after runs_before schedules skipped_rows snapshots_removed sorted_runs "
    "space_amplification_after space_amplification_before space_amplification_percent space_limit_percent spills splits "
    "splits_to_combine "
    "splits_to_merge stalls states stop_trigger storage_calls tables total_record_count trigger upgraded vector_rows "
    "delete_requests ranges "
    "delete_files deleted_rows files_to_read requests row_groups row_groups_skipped rows_returned splits_raw splits_with_vectors "
    "changelogs different expired expiring files_searched keys unfinished unnamed only_here only_there rows_here rows_there "
    "biggest_bucket_rows earlier_tables regrouped stale_files target_rows unseen_records vectors visible_rows waiting_records "
    "fitting_buckets rescaled_to unordered_deletes writers",
    ID: "bucket earliest_snapshot_id first_snapshot highest_field_id id last_full_snapshot latest_snapshot level max_bucket "
    "max_level min_bucket min_level next_row_id next_snapshot offset output_level read read_amplification read_snapshot_id "
    "rewrite run skew schema_id snapshot snapshot_id space_amplification space_amplification_at_end target total_buckets until "
    "version last_snapshot restored watermark write write_amplification",
    SIZE: "budget_left history_written triggers_written "
    "read_bytes_after read_bytes_before added_bytes freed_later left_bytes orphan_bytes removed_bytes "
    "average_flush_bytes biggest_bucket_bytes bucket_size bucket_size_after buffer_peak buffer_size bytes_after "
    "bytes_before bytes_read bytes_written upkeep_bytes kept "
    "compacted_bytes copied flushed_bytes index_size length level_1_bytes next_rewrites next_rewrites_leveled "
    "read_bytes rewritten_bytes size spilled_size target_bytes uncompressed_size write_bytes",
    FLAG: "already_committed earlier immutable is_complete is_conflict is_correct is_expired is_held is_safe is_set "
    "is_continued is_new is_unfinished option_changed overwrite",
    NAMES: "older_keys choices actions actors branches bucket_after bucket_before calls_before checks extra_files honours left "
    "because causes consumers found gaps outside orphan_files partition_keys primary_keys removed set_aside story "
    "table_names tags tags_removed violations columns_only_here columns_only_there",
    LONG: "commit_identifier max_seq min_seq sequence",
    TIME: "done dropped last_full modified opens time",
    WALL_CLOCK: "created updated",
    SECONDS: "age_seconds expires_in_seconds uncompacted_seconds lag_seconds",
    KEY: "max_key min_key",
    JSON: "options properties reasons seen values",
    SNAPSHOT_IDS: "snapshots",
    CHANGE: "delta_record_count",
    PERCENT: "abort_rate",
    SPAN: "span",
    RECORDS: "differences tried fields findings finds readers runs steps strategies",
    TO_DO: "health",
    _RECORD: "lookup",
    _PLACE: "certificate copy destination external_path file html output_path path table url",
}
KIND_OF_NAME = {name: kind for kind, names in NAMES_OF_KIND.items() for name in names.split()} | {
    "AdoptionPlan.columns": NAMES,
    "BackupRow.branches": COUNT,
    "BackupRow.run": ID,
    "BackupRow.snapshots": COUNT,
    "BackupRow.tags": COUNT,
    "BackupSummary.branches": COUNT,
    "BackupSummary.run": ID,
    "BackupSummary.snapshots": COUNT,
    "BackupSummary.tags": COUNT,
    "Finding.figures": JSON,
    "CompactedBucketRow.levels": TEXT,
    "LedgerRow.round": ID,
    "LedgerRow.score": DECIMAL,
    "RoundDecision.score": DECIMAL,
    "LedgerRow.seconds": DECIMAL,
    "LedgerRow.upkeep_seconds": DECIMAL,
    "PolicyRow.level": TEXT,
    "PolicyRow.line": ID,
    "PolicySummary.settings": COUNT,
    "RoundDecision.policy": NAMES,
    "LedgerTotal.failed": COUNT,
    "LedgerTotal.history_runs": DECIMAL,
    "LedgerTotal.score": DECIMAL,
    "LedgerTotal.seconds": DECIMAL,
    "LedgerTotal.steps": COUNT,
    "LedgerTotal.triggers_runs": DECIMAL,
    "CompactionRow.levels": TEXT,
    "CompactionRow.partitions": NAMES,
    "DatabaseMade.created": FLAG,
    "DecisionRow.write_amplification": TEXT,
    "DemoResult.after": _RECORD,
    "DemoResult.before": _RECORD,
    "ErasePlan.branches": COUNT,
    "ErasePlan.snapshots": COUNT,
    "ErasePlan.tags": COUNT,
    "EraseSummary.versions": COUNT,
    "ExportSummary.files": RECORDS,
    "MergeSummary.deleted": COUNT,
    "MergeSummary.inserted": COUNT,
    "MergeSummary.source_rows": COUNT,
    "MergeSummary.updated": COUNT,
    "Bisection.before": ID,
    "Bisection.first_snapshot": ID,
    "Bisection.last_snapshot": ID,
    "Comparison.columns": NAMES,
    "Comparison.differing_columns": JSON,
    "Comparison.renamed_columns": JSON,
    "Comparison.equal": COUNT,
    "Comparison.key": NAMES,
    "Analysis.columns": RECORDS,
    "FileDetails.columns": RECORDS,
    "Anomaly.files": NAMES,
    "Anomaly.snapshots": JSON,
    "Anomaly.users": NAMES,
    "Anomaly.key": WHOLE_TEXT,
    "HealthRow.snapshots": COUNT,
    "Invariant.level": TEXT,
    "IcebergExport.format_version": ID,
    "LsmRow.read_amplification": COUNT,
    "OperationCost.checks": COUNT,
    "OperationCost.reads": COUNT,
    "OperationCost.writes": COUNT,
    "OptionExplanation.refused": NAMES,
    "OptionRow.key": WHOLE_TEXT,
    "PlanLine.buckets": ID,
    "PlanLine.files": TEXT,
    "PlanLine.level": TEXT,
    "PlanLine.read_amplification": TEXT,
    "PlanLine.space_amplification": TEXT,
    "Restored.snapshots": COUNT,
    "TableDropped.until": TIME,
    "TrashRow.snapshots": COUNT,
    "TrashRow.until": TIME,
    "Undropped.snapshots": COUNT,
    "RunRow.level": LEVEL,
    "RunRow.picked": FLAG,
    "ScanAnalysis.bytes": SIZE,
    "ScanPlan.most_runs_merged": COUNT,
    "ScanStage.bytes": SIZE,
    "ScanAnalysis.stages": RECORDS,
    "ScanPlan.levels": TEXT,
    "JointDetails.buckets": RECORDS,
    "JointDetails.snapshots": NUMBERS,
    "JointDetails.writers": RECORDS,
    "StagedDetails.buckets": RECORDS,
    "StagedDetails.snapshots": NUMBERS,
    "Story.rows": NAMES,
    "StoryStep.step": ID,
    "TableDescription.columns": RECORDS,
    "RowGroupRow.row_group": ID,
    "TableState.due": COUNT,
    "TableDescription.options": SETTINGS,
    "TableDescription.snapshots": COUNT,
    "TableDropped.snapshots": COUNT,
    "WrittenStories.runs": COUNT,
    "WrittenReport.findings": COUNT,
    "WrittenReport.snapshots": COUNT,
}
"""The kind of values, by field name, or by dataclass and field name; the default is text."""

TITLES: dict[str, str | None] = {
    "age_seconds": "Age",
    "uncompacted_seconds": "Uncompacted for",
    "lag_seconds": "Behind by",
    "anomaly": "Anomaly without check",
    "base_manifest_list": "Base list",
    "befalls": "Fault",
    "changelog_manifest_list": "Changelog list",
    "changelog_record_count": "Changelog records",
    "commit_identifier": "Identifier",
    "commit_kind": "Commit",
    "commit_user": "User",
    "compacted_bytes": "Compacted",
    "delete_rows": "Deletes",
    "delta_manifest_list": "Delta list",
    "delta_record_count": "+Stored records",
    "duration_ms": "Commit took (ms)",
    "dv_cardinality": "DV",
    "earliest_snapshot_id": "Earliest",
    "expires_in_seconds": "Expires in",
    "files_added": "+Files",
    "files_deleted": "-Files",
    "first_snapshot": "First",
    "flushed_bytes": "Flushed",
    "full_compactions": "Full",
    "health": "To do",
    "highest_field_id": "Highest field ID",
    "id": "ID",
    "is_expired": "Expired",
    "is_held": "Held",
    "is_set": "Set",
    "latest_snapshot": "Latest",
    "length": "Bytes",
    "lock_id": "Lock",
    "modified": "Updated (UTC)",
    "needless": "Needlessly",
    "order_by": "Order",
    "origin": "Looks like",
    "SettingRow.origin": "Origin",
    "partition_keys": "Partition by",
    "primary_keys": "Primary key",
    "read_amplification": "Read amp",
    "read_snapshot_id": "Read snapshot",
    "rewritten_bytes": "Rewritten",
    "records": "Stored records",
    "rows": "Stored records",
    "schema_id": "Schema",
    "snapshot_id": "Snapshot",
    "space_amplification": "Space amp",
    "space_amplification_at_end": "At end",
    "span": "Key range",
    "strategy": "Compaction",
    "time": "Time (UTC)",
    "time_retained": "Retained (s)",
    "total_record_count": "Stored records",
    "uuid": "UUID",
    "visible_rows": "Rows",
    "waiting_records": "Waiting",
    "write_amplification": "Write amp",
    "BranchRow.name": "Branch",
    "BucketPlanRow.biggest_bucket_bytes": "Largest",
    "BucketPlanRow.biggest_bucket_rows": None,
    "BucketPlanRow.bucket_size_after": "Largest after",
    "BucketPlanRow.command": None,
    "BucketPlanRow.rewritten_bytes": "To rewrite",
    "BucketPlanRow.seconds": "Takes (s)",
    "BucketPlanRow.target_bytes": "Target",
    "BucketPlanRow.target_rows": "Target rows",
    "BucketRow.advice": None,
    "BucketRow.code": None,
    "BucketRow.findings": None,
    "BucketRow.max_level": "Top level",
    "BucketRow.reason": None,
    "BucketRow.sorted_runs": "Runs",
    "BucketRow.total_buckets": "Of",
    "CompactionRow.bytes_after": "Written",
    "CompactionRow.bytes_before": "Read",
    "CompactionRow.files_after": "Files after",
    "CompactionRow.files_before": "Files before",
    "CompactionRow.seconds": "Took (s)",
    "Case.honours": "Options",
    "Case.name": "Case",
    "Case.title": "What happens",
    "ConsumerRow.name": "Consumer",
    "EntryRow.total_buckets": "Buckets",
    "IndexRow.path": None,
    "IndexRow.rows": "Rows",
    "Invariant.meaning": "What must hold",
    "KeyVersion.earlier": None,
    "KeyVersion.missing": None,
    "ManifestRow.file": "Manifest",
    "ManifestRow.max_bucket": None,
    "ManifestRow.max_level": None,
    "ManifestRow.min_bucket": None,
    "ManifestRow.min_level": None,
    "LedgerTotal.files_deleted": "Files deleted",
    "OptionExplanation.description": "Meaning",
    "OptionExplanation.effect": "Here",
    "OptionExplanation.immutable": "Fixed once there is data",
    "OptionExplanation.key": "Option",
    "OptionExplanation.origin": "Value from",
    "OptionExplanation.refused": "Refused work",
    "OptionExplanation.since": "Since Paimon",
    "OptionExplanation.status": None,
    "OptionRow.description": "Meaning",
    "OptionRow.immutable": "Fixed",
    "OptionRow.key": "Option",
    "OptionRow.is_set": None,
    "OptionRow.origin": "From",
    "OptionRow.reason": None,
    "OrphanRow.modified": "Modified (UTC)",
    "PlanLine.buckets": "Bucket",
    "PlanLine.level": "->",
    "PlanLine.picked": "Runs in",
    "PlanLine.rewrite": "Rewrite/new",
    "RowChange.values": "Row",
    "ScanAnalysis.bytes": "Bytes fetched",
    "ExportSummary.rows": "Rows",
    "IcebergExport.rows": "Rows",
    "MergeSummary.rows": "Rows",
    "ScanPlan.rows": "Rows at most",
    "ScanStage.rows": "Rows",
    "UpdateSummary.rows": "Rows",
    "ScanPlan.size": "Bytes at most",
    "ScenarioRow.options": None,
    "ScenarioRow.reasons": None,
    "ScenarioRow.scenario": "Options",
    "SchemaDetails.fields": "Columns",
    "SnapshotRow.commit_identifier": None,
    "SnapshotRow.watermark": None,
    "TableDescription.bucket": "Buckets",
    "TableDescription.buckets": "Buckets with files",
    "TableDescription.files": "Data files",
    "TableDescription.sorted_runs": "Most sorted runs",
    "TableDescription.time": "Last commit (UTC)",
    "TableRow.bucket": "Buckets",
    "StoryStep.call": None,
    "StoryStep.calls_before": None,
    "StoryStep.is_conflict": None,
    "TableRow.comment": None,
    "TableRow.path": None,
    "TableRow.time": "Last commit (UTC)",
    "TagRow.name": "Tag",
    "VectorRow.file": "Data file",
    "VectorRow.rows": "Rows",
}
"""Titles by field name, or by dataclass and field name, if the title is not the name itself; None: not in text tables."""

SHOWN_FIELDS = {
    "Case": "name title anomaly writers rounds honours",
    "CompactedTable": "table buckets files_before files_after bytes_before bytes_after snapshots conflicts waiting_records "
    "engine engine_reason seconds",
    "DecisionRow": "partition bucket reason arithmetic runs_before runs_after picked_runs files files_after upgraded size "
    "read_bytes write_bytes write_amplification space_amplification_before space_amplification_after output_level ranges commits",
    "EntryRow": "kind partition bucket level file rows delete_rows size min_key max_key min_seq max_seq source schema_id created "
    "total_buckets",
    "ExportSummary": "output_path rows size engine engine_reason seconds files",
    "FileToDelete": "kind path size",
    "Invariant": "code check level severity meaning",
    "MergeSummary": "source_rows rows inserted updated deleted files size buckets snapshots attempts conflicts already_committed "
    "compacted compaction_lost compaction_repeated unseen_records waiting_records engine engine_reason seconds",
    "RescaledPartition": "partition buckets new_buckets rows size files files_after bucket_size bucket_size_after",
    "RunRow": "run level files size rows delete_rows min_key max_key span overlap picked",
    "Story": "case checks store is_correct verdict rows violations steps bucket_before bucket_after",
    "TableState": "time snapshot_id files size buckets most_runs due",
    "TableRow": "table primary_keys partition_keys bucket columns records waiting_records snapshot_id time comment path problem "
    "problem_code",
    "UpdateSummary": "rows files size buckets snapshots attempts conflicts already_committed compacted compaction_lost "
    "compaction_repeated unseen_records waiting_records engine engine_reason seconds",
    "Violation": "code severity check path message",
    "WriteSummary": "source_table source_snapshot source_waiting_records rows_read rows delete_rows files size buckets snapshots "
    "attempts rewrites already_committed compacted compaction_lost compaction_repeated waiting_records stalls stall_seconds "
    "skipped_rows bad_cells missing_columns other_bucket_rows unordered_deletes compaction_wait_seconds buffer_size buffer_peak "
    "flushes spills spilled_size preemptions engine engine_reason seconds",
}
"""Columns of dataclasses whose columns are not simply their fields in order."""

HIDDEN_FIELDS = {
    "CompactionRow": "commit_user manifests_after manifests_before rows_after rows_before upgraded partitions bytes_after "
    "bytes_before files_after files_before levels",
    "BucketRow": "waiting_records visible_rows max_seq delete_rows updated max_level total_buckets",
    "HealthRow": "events_behind read_bytes read_requests buckets size snapshots uncompacted_seconds files",
    "MaintainedTable": "error_code uncompacted seconds consumers_expired tags_expired changelogs_expired partitions_expired "
    "left_bytes "
    "orphan_bytes files_expired bytes_written files_after files_before",
    "IndexedBucketRow": "waiting_records visible_rows index_size max_seq delete_rows updated max_level total_buckets skew",
    "FileRow": "dv_cardinality schema_id source created min_seq max_seq delete_rows min_key max_key partition bucket level",
    "KeyVersion": "file commit_user partition bucket until level sequence",
    "ManifestRow": "schema_id",
    "OptionRow": "immutable origin status default description",
    "PartitionRow": "visible_rows done updated",
    "PlanLine": "files figures rewrite space_amplification picked write read",
    "RunRow": "overlap delete_rows max_key min_key files",
    "SchemaRow": "highest_field_id comment partition_keys primary_keys",
    "SnapshotRow": "commit_user schema_id files_deleted files_added",
    "TableRow": "columns snapshot_id bucket partition_keys time primary_keys",
    "TagRow": "time_retained schema_id created",
}
"""Columns hidden on a narrow terminal, in this order; also for subclasses."""


@dataclass(frozen=True)
class Column:
    """One column. `name`: the attribute of a row, and its JSON name; a column without `title` is not in text tables.

    `hide`: on a narrow terminal, columns with lower numbers are hidden first; 0 is never hidden.
    """

    name: str
    title: str | None = None
    kind: Kind = TEXT
    hide: int = 0

    def shown(self) -> Column:
        """This column, shown in every text table."""
        return replace(self, title=self.title or self.name.replace("_", " ").capitalize(), hide=0)


def columns_of(row: type) -> list[Column]:
    """The columns of a dataclass."""
    names = SHOWN_FIELDS[row.__name__].split() if row.__name__ in SHOWN_FIELDS else field_names(row)
    hidden = next((HIDDEN_FIELDS[base.__name__].split() for base in row.__mro__ if base.__name__ in HIDDEN_FIELDS), [])
    return [_column(row, name, hidden.index(name) + 1 if name in hidden else 0) for name in names]


def _column(row: type, name: str, hide: int) -> Column:
    """The column for one field; subclasses inherit the titles and kinds of a dataclass."""
    keys = [*(f"{base.__name__}.{name}" for base in row.__mro__), name]
    title = next((TITLES[key] for key in keys if key in TITLES), name.replace("_", " ").capitalize())
    return Column(name, title, next((KIND_OF_NAME[key] for key in keys if key in KIND_OF_NAME), TEXT), hide)


def field_names(row: type) -> list[str]:
    return [field.name for field in dataclasses.fields(row) if field.metadata.get("shown", True)]
