"""Every number that cuts work into pieces is in `paimon_cli.pieces`, so that tests can make the pieces small."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import paimon_cli
from paimon_cli.pieces import PIECES, Pieces
from tests.pieces import injected, small

PACKAGE = Path(paimon_cli.__file__).parent
SMALLEST = 16
"""Numbers below this are arities, digits and tries."""
OTHER_ROOMS = ("cli", "lab")
"""Rooms in which nothing is cut into pieces: the display, and cases of a few rows."""
NO_SIZE = re.compile(r"\w*(MILLIS|SECONDS|SLEEP|DIGITS|PRECISION|BITS|DAYS|NANOS)\w*|maxsize=")
"""Times, digits, and results that functions remember."""
CUTS_NOTHING = {
    "widths, precisions and versions": {
        "datatypes/cast_numbers": "_WIDE",
        "datatypes/variant_casts": "_WIDEST",
        "datatypes/canonical_form": "context.prec",
        "datatypes/internal_values": "context.prec",
        "datatypes/space_curves": "_DECIMAL_WIDTH",
        "jobs/spark/java_runtime": "OLDEST_JAVA",
        "jobs/spark/session_engine": "CONNECT_PORT",
        "catalog/metastore/hive_client": "_PORT",
        "storage/commit_lock": "_ROUNDING",
    },
    "the greatest value of a type, and marks outside of it": {
        "bucket/hash_index": "NOWHERE",
        "bucket/key_blocks": "_NO_LIMIT",
        "bucket/nanosecond_range": "LARGEST",
        "datatypes/cast_from_text": "_MAX_INT _MAX_DIGITS",
        "commit/deduplication": "BATCH_IDENTIFIER",
        "datatypes/arrow_types": "_LARGEST_CELL _LARGEST_NUMBER",
        "ingest/changes/event_values": "_MAX_SCALE",
        "ingest/changes/json_shapes": "EXACT_INTEGER _INT64",
        "ingest/source_files": "MAX_ARRIVALS",
        "invariants/changelog_comparison": "NUMBER_AFTER",
        "jobs/backup_job": "_ALL",
        "jobs/process": "_UNLIMITED",
        "jobs/source_rows": "HASHES",
        "jobs/spark/chunks": "END_OF_ROWS",
        "jobs/staging/writer_order": "MAX_NUMBER",
        "lsm/aggregators/collected_values": "_NO_LIMIT",
        "lsm/aggregators/sketches": "NOT_TRIMMED NO_CHILD",
        "lsm/sorted_runs": "_MOST_BYTES",
        "metadata/possible_values": "_MAX_INT",
        "options/option_text": "_MAX_LONG",
        "options/table_options": "MAX_BUCKETS _MAX_LONG",
        "read/scan_plan": "_BUCKETS _MAX",
        "requests/compaction": "NEVER",
        "sql/expression_sql": "LARGEST_WHOLE",
        "write/bucket_assigner": "_MAX_BUCKETS",
    },
    "what a format prescribes": {
        "__main__": "INTERRUPTED",
        "bucket/column_statistics": "point",
        "bucket/bloom_index": "DEFAULT_ITEMS _STRIPE",
        "bucket/parquet_bloom": "_BLOCK_BYTES _HEADER_BYTES",
        "bucket/stitched_files": "MAX_GROUPS",
        "datatypes/arrow_types": "NESTED_ID_BASE",
        "datatypes/byte_slices": "_PADDING",
        "datatypes/variant_building": "_MOST_DIGITS",
        "datatypes/variant_times": "_MOST_HOURS",
        "datatypes/variant_nodes": "LONGEST_SHORT_TEXT MOST_SHORT_CHILDREN",
        "datatypes/value_texts": "_SAMPLE",
        "datatypes/variant_leaf_texts": "_PER_MILLI _MOST_DIGITS",
        "datatypes/variant_shapes": "_DEEPEST_PATH _NESTED",
        "bucket/shredded_variants": "_LARGE_COUNT",
        "bucket/map_shredding": "_DEFAULT_COLUMNS",
        "datatypes/data_type": "MAX_LENGTH",
        "datatypes/key_order": "_MAX_COLUMNS _MAX_LENGTH",
        "processor": "_OF_ONE_CORE",
        "ingest/changes/base64_cells": "DECIMAL_BYTES",
        "ingest/changes/geometry_text": "_OF_DIMENSION _WITH_M _WITH_SRID _WITH_Z",
        "ingest/source_files": "MAX_DEFLATE_RATIO MIN_ARCHIVE_ROWS",
        "jobs/analyze_job": "_HASHES",
        "jobs/iceberg_metadata": "FILE_PATH_ID FIRST_PARTITION_FIELD POSITION_ID",
        "jobs/spark/submit": "entry.external_attr",
        "lsm/aggregators/sketches": "BITMAP_BYTES LONGEST_ARRAY",
        "metadata/avro_columns": "_MAX_SHORT_BYTES",
        "metadata/compact_thrift": "_LAST_SHIFT",
        "metadata/avro_records": "_ONE_BYTE",
        "bucket/nanosecond_range": "_EPOCH _MICROS_PER_DAY",
        "bucket/orc_converters": "MILLI SECOND",
        "metadata/avro_writer": "SYNC_SIZE",
        "metadata/data_file": "AFTER_ALL_NUMBERS",
        "metadata/data_file_schema": "KEY_ID_OFFSET ROW_ID_ID SEQUENCE_NUMBER_ID VALUE_KIND_ID",
        "metadata/index_files": "FILE_INDEX_MAGIC MAGIC_32 MAGIC_64",
        "metadata/table_mode": "APPEND_FILE_SIZE KEYED_FILE_SIZE",
        "catalog/metastore/jdbc": "_column(length)",
        "options/option_text": "integer(high)",
        "options/table_options": "MB",
        "spark/reading": "MAX_LISTED_FILES",
        "spark/source_writing": "ROWS_OF_TASK",
        "spark/task_rows": "ROWS_OF_PARTITION",
        "storage/bounded_mysql": "_PACKET_BYTES",
        "storage/bounded_postgres": "_BYTES_RECEIVED",
        "storage/catalog_options": "key_length",
        "storage/read_bounds": "_GB _KB _MB",
        "storage/simulated_store": "BUSY CONFLICT DENIED EXISTS",
        "write/bucket_assigner": "capacity",
    },
    "bounds of what others send or store": {
        "invariants/past_commits": "REMEMBERED_COMMITS",
        "bucket/parquet_bloom": "_MAX_BYTES",
        "bucket/shredded_maps": "LARGEST_DICTIONARY",
        "bucket/parquet_pages": "MEMORY_PER_FOOTER_BYTE",
        "bucket/postponed_files": "_MAX_USER_LENGTH",
        "commit/commit_records": "MAX_OLD_FILES _MAX_DELETED _MAX_NAME_LENGTH _TIDY_FROM",
        "commit/deduplication": "MAX_NAMED_USERS _FILTER_BYTES _LOOK_BACK",
        "datatypes/data_type": "MAX_NESTING",
        "datatypes/variant_building": "MAX_VARIANT_BYTES",
        "datatypes/variant_nodes": "MAX_VARIANT_DEPTH MAX_VARIANT_NODES",
        "datatypes/variant_columns": "MAX_VARIANT_TEXT _BYTES_OF_NUMBER",
        "datatypes/type_text": "MAX_DEPTH",
        "history/lost_history": "_MOST_LISTS",
        "maintain/ledger": "LONGEST_REASON MAX_OBJECT MAX_OBJECTS MOST_STEPS",
        "catalog/metastore/configuration_files": "_MAX_OWN_FILE",
        "catalog/own_reads": "MOST_COUNTED MOST_PARTITIONS",
        "catalog/warehouse_policy": "COUNTS_EVERY MAX_KEPT_TABLES _VERSION_LENGTH",
        "maintain/read_rates": "LONGEST_READS_NAME MAX_READS_FILE MAX_READS_LINES MOST_READS_OBJECTS _MOST_COMPLAINTS",
        "maintain/policy": "LONGEST_PATTERN MAX_MISTAKES MAX_PATTERNS _MOST",
        "maintain/policy_effect": "_MOST",
        "maintain/policy_text": "_LONGEST_VALUE MAX_NODES MAX_POLICY _SHOWN_KEY",
        "maintain/time_windows": "MAX_WINDOWS _DAY_MINUTES _LONGEST_ZONE",
        "history/points_in_time": "_LONGEST",
        "history/snapshot_history": "LONGEST_GAP",
        "catalog/metastore/metastore": "SEARCHED_DATABASES",
        "options/option_text": "_MOST_BUCKETS",
        "api/dead_letters": "MAX_LETTERS",
        "api/sql_variants": "_MOST_FAILURES",
        "api/ingest_places": "MAX_NAME",
        "api/ingest_run": "BLOCK_SHARE COLUMN_BYTES _LEAST_COLUMNS _MOST_REFUSED",
        "ingest/changes/table_reader": "MAX_TABLES",
        "ingest/changes/event_lines": "MAX_EVENT_BYTES",
        "ingest/changes/json_shapes": "MAX_KEYS",
        "ingest/changes/kafka_client": "_LEAST_FETCH",
        "ingest/changes/whole_numbers": "MAX_NAME_CHARACTERS",
        "requests/ingesting": "MAX_SETTINGS_BYTES",
        "ingest/changes/read_marks": "MAX_SOURCES _DIGEST_CHARACTERS",
        "ingest/faults": "MAX_VALUE_LENGTH",
        "ingest/type_evidence": "MAX_ROW_FIELDS",
        "jobs/backup_records": "_MAX_SHOWN",
        "jobs/erasure/certificate": "_SECRET_BYTES",
        "jobs/erasure/erase_job": "MOST_KEYS _ROUNDS _SHORT_TRIES",
        "jobs/service/table_round": "MAX_SHOWN_TABLES",
        "jobs/service/commit_hook": "MOST_ANSWER_BYTES MOST_EVENT_BYTES MOST_QUEUED",
        "jobs/service/metrics_server": "MOST_CONNECTIONS MOST_REQUEST_BYTES",
        "jobs/spark/failures": "MAX_CAUSES",
        "jobs/staging/stage_job": "_MAX_BYTES",
        "maintain/mark_done": "_MOST_BYTES",
        "metadata/avro_columns": "_FEW_CELLS _MAX_COPIED_BYTES _MAX_GAPS _MAX_PARTS",
        "metadata/avro_records": "_MOST_PIECES",
        "metadata/avro_reader": "_MAX_BLOCK_BYTES _MAX_DEPTH _MAX_EXPANSION _MAX_PIECE_BYTES _SMALL_BLOCK_BYTES",
        "lsm/compaction_simulation": "MAX_PARTS",
        "metadata/index_files": "MAX_SORTED",
        "metadata/manifests": "_MAX_COPIED _MAX_DECOMPRESSED",
        "metadata/possible_values": "MAX_LEVEL",
        "metadata/table_schema": "MAX_COLUMNS",
        "catalog/metastore/hive": "_LONGEST_CHAR _LONGEST_COMMENT _LONGEST_VARCHAR",
        "catalog/metastore/hive_client": "_MOST_BYTES MOST_ITEMS MOST_STRUCTS",
        "catalog/metastore/rest_client": "_MOST_BYTES MOST_ITEMS MOST_PAGES",
        "spark/native_files": "MAX_BELIEVED_ROWS",
        "spark/stream_reading": "MAX_IDS",
        "sql/sql_text": "MAX_DEPTH",
        "storage/bounded_exchange": "MOST_BYTES",
        "storage/local_storage": "_MAX_REMOVALS",
        "storage/object_storage": "_MAX_COPIED_AT_ONCE",
        "storage/redaction": "_MOST_ENDS _MOST_SECRETS",
        "storage/sql_database": "MAX_TEXT",
    },
    "how much a message or a report shows": {
        "api/dead_letters": "MOST_SHOWN",
        "api/ingest_target": "MAX_LISTED",
        "inspect/stored_bytes": "SHOWN_COMBINATIONS",
        "inspect/report_cost": "SHOWN_OWNERS",
        "jobs/service/ledger_watcher": "MAX_WARNINGS",
        "jobs/service/service_turn": "_LEAST_GROWTH _MOST_GROWTH",
        "inspect/daily_growth": "MAX_GROWTH_SNAPSHOTS",
        "inspect/operation_cost": "_HOUR REPLAN_SECONDS",
        "inspect/price_table": "_GB MAX_PRICE_FILE _PER",
        "api/notebook": "_MAX_FILES _MAX_READ",
        "read/html_text": "_MAX_CELL _MAX_COLUMNS _MAX_ROWS",
        "api/arguments": "_MAX_SHOWN",
        "datatypes/type_text": "_SHOWN",
        "ingest/faults": "MAX_SHOWN_FAULTS SHOWN_LENGTH",
        "inspect/bucket_report": "MAX_MARKS",
        "inspect/charts": "LABELS LONGEST_LABEL LONGEST_TEXT _MAX_COLUMNS MAX_POINTS NOTES WIDTH _BOTTOM axis height row",
        "history/unfinished_rescale": "LOOK_BACK_SNAPSHOTS",
        "inspect/bucket_plan": "LOOK_BACK_COMPACTIONS",
        "inspect/compaction_report": "LOOK_BACK",
        "inspect/findings/bucket_rules": "HUGE_BUCKET MANY_BUCKETS",
        "inspect/findings/examined_table": "RECENT",
        "inspect/findings/history_rules": "MANY_MANIFESTS MANY_SNAPSHOTS",
        "inspect/findings/topology_rules": "LOOKED_AT",
        "inspect/report_figures": "_MAX_BUCKETS MAX_CHANGES MAX_RUNS _MAX_SNAPSHOTS",
        "inspect/report_page": "_MAX_LINES MAX_VALUES",
        "jobs/doctor_job": "LITTLE_DISK LITTLE_MEMORY",
        "jobs/verify_job": "MAX_PER_CODE",
        "storage/directories": "MAX_EXAMINED MAX_SIMILAR",
        "lsm/compaction_simulation": "SPACE_SAMPLES",
        "metadata/snapshot": "_SHOWN",
        "options/option_text": "LONGEST_NAME MAX_QUOTED",
        "metadata/table_schema": "_SHOWN",
        "storage/local_storage": "_SHOWN",
    },
    "how often something is tried or looked for": {
        "requests/writing": "max_attempts",
        "jobs/service/compaction_service": "MAX_DOUBLINGS",
        "jobs/moved_rows": "MOST_MOVES",
        "jobs/online_rescale": "MOST_ROUNDS",
        "jobs/table_change": "MAX_ATTEMPTS",
        "maintain/end_of_history": "_TRIES",
    },
    "threads": {
        "catalog/table_listing": "OPENED_AT_ONCE",
        "jobs/service/compaction_service": "PROBES_AT_ONCE",
        "catalog/metastore/filesystem": "LISTED_AT_ONCE",
        "storage/object_storage": "_DELETING_THREADS",
        "storage/ranged_file": "_FETCH_THREADS",
    },
    "memory, estimates and defaults of what is simulated": {
        "datatypes/key_order": "MEASURED_ROWS ROWS_PER_RUN",
        "inspect/bucket_plan": "LEAST_MEASURED_BYTES USUAL_BYTES_PER_SECOND",
        "inspect/findings/history_rules": "MANY_CHANGELOGS MERGED_BY_DEFAULT",
        "bucket/hash_index": "_DENSE_RATIO _LINEAR_STEPS",
        "history/manifest_cache": "_ENTRY_BYTES",
        "ingest/source_files": "BEGINNING_BYTES",
        "jobs/service/compaction_service": "SMALL_BYTES SMALL_MEMORY",
        "jobs/export_job": "MIN_FILE_SIZE",
        "jobs/reclaim_job": "DELETIONS_PER_READ",
        "jobs/sort_job": "MIN_MAGNIFICATION",
        "jobs/table_copy": "COPIES_PER_READ",
        "requests/compaction": "MIN_MEMORY",
        "requests/lab": "keys",
        "jobs/spark/session": "LARGEST_HEAP SMALLEST_HEAP",
        "lsm/aggregators/arithmetic": "LONG_KEY",
        "lsm/compaction_simulation": "commit_interval commits row_bytes rows",
        "inspect/findings/compaction_rules": "MIN_COMMITS",
        "api/ledger": "MOST_REPLAYED",
        "jobs/replayed_history": "MOST_FILES MOST_ENTRIES",
        "jobs/trigger_replays": "MOST_REPLAYS",
        "inspect/against_triggers": "MOST_SNAPSHOTS",
        "inspect/replayed_commits": "MEASURED_COMPACTIONS",
        "jobs/service/upkeep": "VERSION_BYTES",
        "lsm/rent_or_buy": "bytes_per_merge most_runs",
        "lsm/replayed_merges": "LEAST_COMMITS MOST_COMMITS",
        "lsm/universal_compaction": "max_size_amplification_percent",
        "metadata/avro_columns": "_CACHE_LINE _MAX_WIDTH",
        "storage/catalog_options": "acquire_timeout max_sleep",
    },
    "which of several ways is taken": {
        "compact/bucket_counts": "MOST_WAYS",
        "jobs/engine_choice": "files size",
        "spark/native_files": "FEW_FILES MAX_MERGED_ROWS MAX_WORD_BYTES SMALL_FILE",
        "spark/reading": "MAX_LITERAL_ROWS",
    },
}
"""Reason -> module -> numbers. A new number that cuts work, however, belongs into `Pieces`."""


def _whole(node: ast.expr) -> int:
    """The value of a constant expression such as `8 << 20`; 0 for all others."""
    parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(part, parts) for part in ast.walk(node)):
        return 0
    value = eval(compile(ast.Expression(node), "", "eval"), {})  # numbers and operators of our own source
    return value if type(value) is int else 0


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names of constants, fields, parameters and arguments, and their values; and the steps of ranges."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(map(ast.unparse, target.elts), node.value.elts, strict=True)
                else:
                    yield ast.unparse(target), node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            last = [*node.args.posonlyargs, *node.args.args][-len(node.args.defaults) or sys.maxsize :]
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            for argument, value in [*zip(last, node.args.defaults, strict=True), *named]:
                if value is not None:
                    yield f"{node.name}({argument.arg})", value
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            for keyword in node.keywords:
                if re.search("size|chunk|batch|limit|rows|bytes", keyword.arg or ""):
                    yield from ((f"{keyword.arg}=", part) for part in ast.walk(keyword.value) if isinstance(part, ast.expr))
            if called in ("range", "islice", "read", "copyfileobj", "to_batches", "iter_batches") and node.args:
                yield f"{called}()", node.args[-1] if called != "range" or len(node.args) == 3 else node.func


@functools.cache
def _numbers(source: str) -> set[tuple[str, int]]:
    return {(name, value) for name, node in _named(ast.parse(source)) if (value := _whole(node)) >= SMALLEST}


def _unexplained(module: str, source: str) -> set[str]:
    explained = {name for modules in CUTS_NOTHING.values() for name in modules.get(module, "").split()}
    return {name for name, _ in _numbers(source) if name not in explained and not NO_SIZE.fullmatch(name)}


def _bodies(node: ast.AST) -> list[ast.AST]:
    """What of a function runs when it is called."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [*node.body]
    return [node.body] if isinstance(node, ast.Lambda) else []


def _modules() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.rglob("*.py"):
        if path.name != "pieces.py" and path.relative_to(PACKAGE).parts[0] not in OTHER_ROOMS:
            yield path.relative_to(PACKAGE).with_suffix("").as_posix(), path.read_text(encoding="utf-8")


def test_numbers_that_cut_work_into_pieces_are_injected() -> None:
    found = {module: names for module, source in _modules() if (names := _unexplained(module, source))}
    assert not found, "a size of pieces belongs into paimon_cli/pieces.py; for another number, add the reason to CUTS_NOTHING"


def test_no_reason_is_left_of_a_number_that_is_gone() -> None:
    there = {(module, name) for module, source in _modules() for name, _ in _numbers(source)}
    listed = {(module, name) for modules in CUTS_NOTHING.values() for module, names in modules.items() for name in names.split()}
    gone = listed - there
    assert not gone


@pytest.mark.parametrize(
    "source",
    [
        "BATCH_ROWS = 1 << 16",
        "SMALLEST, LARGEST = 2, 500",
        "class Listing:\n    page: int = 100",
        "def deleted(names, most=1000): ...",
        "def deleted(names, *, most=1000): ...",
        "batches = rows.to_batches(max_chunksize=limit or 4096)",
        "for start in range(0, len(names), 300): ...",
        "page = list(islice(names, 300))",
        "block = source.read(8 << 20)",
    ],
)
def test_a_new_size_is_noticed(source: str) -> None:
    assert _unexplained("bucket/new_module", source)


def test_each_size_is_used_where_it_is_needed_and_not_before() -> None:
    """A size that a module reads when it is imported, such as a default, stays what it was when a test sets another."""
    used: set[str] = set()
    for module, source in _modules():
        if "PIECES" not in source:
            continue
        tree = ast.parse(source)
        later = {id(part) for node in ast.walk(tree) for begun in _bodies(node) for part in ast.walk(begun)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "PIECES":
                assert id(node) in later, f"{module}: {node.attr}"
                used.add(node.attr)
    assert used == {field.name for field in fields(Pieces)}


def test_processes_of_a_test_have_its_sizes() -> None:
    shown = "from paimon_cli.pieces import PIECES; print(PIECES.batch_rows, PIECES.sort_bytes)"
    with injected(3):
        small_sizes = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout.split()
        assert small_sizes == ["3", str(small(3)["sort_bytes"])]
    assert (PIECES.batch_rows, PIECES.sort_bytes) == (Pieces().batch_rows, Pieces().sort_bytes)
