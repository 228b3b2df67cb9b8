"""Planted damages of a table: the code that must be found, and from which level on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DeletionVectorRange, EntryKind, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.metadata.index_files import decode_deletion_vector
from paimon_cli.metadata.manifests import lists_property
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.storage.capabilities import open_sized
from tests import tables
from tests.invariants.damaged_tables import Bench, flip

INT = parse_type("INT NOT NULL")
TOP = 3
"""The greatest level of the table `keyed`."""


@dataclass(frozen=True)
class Damage:
    """`table`: which of `damaged_tables.SOUND`."""

    code: str
    level: str
    table: str
    plant: Callable[[Bench], None]

    def __str__(self) -> str:
        return f"{self.code}-{self.plant.__name__}"


DAMAGES: list[Damage] = []


def damage(code: str, level: str = "meta", table: str = "keyed") -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    def register(plant: Callable[[Bench], None]) -> Callable[[Bench], None]:
        DAMAGES.append(Damage(code, level, table, plant))
        return plant

    return register


def key(number: int) -> bytes:
    return serialize_row([number], [INT])


def first(bench: Bench, **wanted: object) -> ManifestEntry:
    return bench.live(None, **wanted)[0]


# metadata


@damage("PV001")
def a_snapshot_in_the_middle_is_gone(bench: Bench) -> None:
    (bench.root / "snapshot/snapshot-3").unlink()


@damage("PV002")
def a_snapshot_file_is_cut_off(bench: Bench) -> None:
    path = bench.root / "snapshot/snapshot-3"
    path.write_bytes(path.read_bytes()[:100])


@damage("PV002")
def a_snapshot_file_holds_another(bench: Bench) -> None:
    (bench.root / "snapshot/snapshot-3").write_bytes((bench.root / "snapshot/snapshot-2").read_bytes())


@damage("PV003")
def the_latest_hint_is_ahead(bench: Bench) -> None:
    (bench.root / "snapshot/LATEST").write_text("9")


@damage("PV003")
def a_hint_is_no_number(bench: Bench) -> None:
    (bench.root / "snapshot/EARLIEST").write_text("one")


@damage("PV008")
def a_late_writer_brought_an_expired_snapshot_back(bench: Bench) -> None:
    (bench.root / "snapshot/EARLIEST").write_text("3")
    (bench.root / "snapshot/snapshot-2").unlink()


@damage("PV004")
def time_goes_back(bench: Bench) -> None:
    bench.reforge(time_millis=1)


@damage("PV005")
def a_manifest_is_missing(bench: Bench) -> None:
    bench.delta_manifest(4).unlink()


@damage("PV005")
def a_manifest_is_flipped(bench: Bench) -> None:
    path = bench.delta_manifest(4)
    flip(path, path.stat().st_size - 20)


@damage("PV005")
def a_manifest_is_longer_than_its_list_says(bench: Bench) -> None:
    path = bench.delta_manifest(4)
    path.write_bytes(path.read_bytes() + b"\0")


@damage("PV005")
def a_manifest_list_is_missing(bench: Bench) -> None:
    (bench.root / "manifest" / bench.newest.base_manifest_list).unlink()


@damage("PV005")
def a_manifest_names_a_file_elsewhere(bench: Bench) -> None:
    bench.lie(first(bench), file_name="../../../etc/passwd")


@damage("PV005")
def a_list_names_a_manifest_elsewhere(bench: Bench) -> None:
    bench.reforge(listed=lambda meta: replace(meta, file_name="/etc/passwd"))


@damage("PV006")
def the_schema_of_a_snapshot_is_missing(bench: Bench) -> None:
    bench.reforge(schema_id=7)


@damage("PV006")
def the_schema_of_a_file_is_missing(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], schema_id=7)


@damage("PV007")
def an_older_schema_is_garbage(bench: Bench) -> None:
    content = json.loads((bench.root / "schema/schema-0").read_text())
    (bench.root / "schema/schema-1").write_text(json.dumps({**content, "id": 1}))
    (bench.root / "schema/schema-0").write_text("{}")


@damage("PV007")
def two_fields_have_one_id(bench: Bench) -> None:
    content = json.loads((bench.root / "schema/schema-0").read_text())
    (bench.root / "schema/schema-1").write_text(json.dumps({**content, "id": 1}))
    content["fields"][1]["id"] = content["fields"][0]["id"]
    (bench.root / "schema/schema-0").write_text(json.dumps(content))


@damage("PV007")
def the_highest_id_is_too_low(bench: Bench) -> None:
    content = json.loads((bench.root / "schema/schema-0").read_text())
    (bench.root / "schema/schema-0").write_text(json.dumps({**content, "highestFieldId": 0}))


def _edited(bench: Bench, number: int, change: Callable[[dict[str, Any]], None], as_number: int | None = None) -> None:
    """Edit a schema file, or make another one of it."""
    content = json.loads((bench.root / f"schema/schema-{number}").read_text())
    change(content)
    as_number = number if as_number is None else as_number
    (bench.root / f"schema/schema-{as_number}").write_text(json.dumps({**content, "id": as_number}))


@damage("PV067", "files")
def a_schema_has_lost_a_column(bench: Bench) -> None:
    _edited(bench, 0, lambda content: content["fields"].pop())


@damage("PV067", "full")
def a_schema_names_another_column(bench: Bench) -> None:
    _edited(bench, 0, lambda content: content["fields"][-1].update(name="other"))


@damage("PV068")
def an_option_of_an_older_schema_is_switched(bench: Bench) -> None:
    _edited(bench, 0, lambda content: None, as_number=1)
    _edited(bench, 0, lambda content: content["options"].update({"merge-engine": "first-row"}))


@damage("PV068")
def the_primary_key_changes(bench: Bench) -> None:
    _edited(bench, 0, lambda content: content["fields"].reverse() or content.update(primaryKeys=["dt", "v"]), as_number=1)


@damage("PV057")
def every_snapshot_is_gone(bench: Bench) -> None:
    for name in ("snapshot", "branch"):
        shutil.rmtree(bench.root / name)


@damage("PV069")
def every_snapshot_is_gone_but_the_hint_is_left(bench: Bench) -> None:
    for name in ("tag", "branch"):
        shutil.rmtree(bench.root / name)
    for path in (bench.root / "snapshot").glob("snapshot-*"):
        path.unlink()
    (bench.root / "snapshot" / "LATEST").write_text("2")


@damage("PV069")
def every_snapshot_is_gone_but_tags_are_left(bench: Bench) -> None:
    shutil.rmtree(bench.root / "snapshot")


# chain


@damage("PV010")
def a_commit_loses_a_file(bench: Bench) -> None:
    bench.reforge(base=lambda entries: entries[1:])


@damage("PV010")
def a_commit_smuggles_a_file_in(bench: Bench) -> None:
    extra = replace(first(bench), file=replace(first(bench).file, file_name="data-strange-0.parquet"))
    bench.reforge(base=lambda entries: [*entries, extra])


@damage("PV010")
def a_commit_says_something_else_of_a_file(bench: Bench) -> None:
    bench.reforge(base=lambda entries: [replace(entries[0], file=replace(entries[0].file, max_sequence_number=77)), *entries[1:]])


@damage("PV011")
def a_commit_deletes_what_is_not_there(bench: Bench) -> None:
    gone = replace(first(bench), kind=EntryKind.DELETE, file=replace(first(bench).file, file_name="data-gone-0.parquet"))
    bench.reforge(more=[gone])


@damage("PV011")
def a_commit_adds_what_is_there(bench: Bench) -> None:
    bench.reforge(more=[first(bench, level=TOP)])


@damage("PV014")
def the_total_count_is_wrong(bench: Bench) -> None:
    bench.reforge(total_record_count=1)


@damage("PV014")
def the_delta_count_is_wrong(bench: Bench) -> None:
    bench.reforge(delta_record_count=1)


@damage("PV029")
def a_file_lives_at_two_levels(bench: Bench) -> None:
    entry = first(bench, level=TOP)
    bench.reforge(more=[replace(entry, file=entry.file.upgraded(4))])


# files


@damage("PV012", "files")
def a_data_file_is_missing(bench: Bench) -> None:
    bench.path(first(bench)).unlink()


@damage("PV012", "files")
def a_file_index_is_missing(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], extra_files=("data-x.index",))


@damage("PV013", "files")
def a_data_file_is_cut_off(bench: Bench) -> None:
    path = bench.path(first(bench))
    path.write_bytes(path.read_bytes()[:-10])


@damage("PV028")
def a_file_lies_outside(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], external_path="/etc/passwd")


@damage("PV071", "meta", "dv")
def an_index_file_lies_outside(bench: Bench) -> None:
    entry = vector_entry(bench)
    outside = replace(entry, index_file=replace(entry.index_file, external_path="/etc/passwd"))
    bench.reforge(indexes=lambda entries: [outside if one == entry else one for one in entries])


@damage("PV031", "files")
def a_file_holds_other_rows_than_said(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    bench.lie(entry, row_count=entry.file.row_count + 1)


@damage("PV031", "files")
def a_file_is_of_another_format(bench: Bench) -> None:
    path = bench.path(first(bench))
    path.write_bytes(b"x" * path.stat().st_size)


@damage("PV031", "full")
def a_page_is_flipped(bench: Bench) -> None:
    path = bench.path(first(bench))
    row_group = pq.read_metadata(path).row_group(0)
    values = next(c for c in map(row_group.column, range(row_group.num_columns)) if c.path_in_schema == "v")
    flip(path, values.data_page_offset + values.total_compressed_size - 5)


@damage("PV055", "files")
def the_statistics_file_is_missing(bench: Bench) -> None:
    (bench.root / "statistics/stat-1").unlink()


@damage("PV056", "files", "changelog")
def a_changelog_file_is_missing(bench: Bench) -> None:
    for path in bench.root.glob("bucket-*/changelog-*"):
        path.unlink()
    with_changelog = next(s for s in bench.context.snapshots.newest_first() if s.changelog_manifest_list is not None)
    bench.reforge(changelog_manifest_list=with_changelog.changelog_manifest_list)


# manifests and levels


@damage("PV018")
def a_list_hides_deletes(bench: Bench) -> None:
    bench.reforge(listed=lambda meta: replace(meta, num_added_files=meta.num_added_files + 1))


@damage("PV061")
def a_snapshot_repeats_another_list(bench: Bench) -> None:
    newest, before = bench.newest, bench.context.snapshots.get(bench.newest.id - 1)
    others = bench.context.manifests.manifest_list(before.delta_manifest_list)
    bench.publish(replace(newest, properties=lists_property({newest.delta_manifest_list: others})))


@damage("PV019")
def a_list_says_another_partition(bench: Bench) -> None:
    stats = serialize_row(["zz"], [parse_type("STRING")])
    wrong = lambda meta: replace(meta, partition_stats=replace(meta.partition_stats, min_values=stats, max_values=stats))  # noqa: E731
    bench.reforge(listed=wrong)


@damage("PV019")
def a_list_says_another_level(bench: Bench) -> None:
    bench.reforge(listed=lambda meta: replace(meta, min_level=3, max_level=4))


@damage("PV020")
def a_level_overlaps_itself(bench: Bench) -> None:
    entry = first(bench, level=TOP)
    twin = replace(entry.file, file_name="data-twin-0.parquet")
    bench.reforge(more=[replace(entry, file=twin)])


@damage("PV021")
def a_key_range_is_none(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], min_key=key(99), max_key=key(1))


@damage("PV022")
def bucket_counts_differ(bench: Bench) -> None:
    newest = bench.live(level=0)[-1]
    bench.reforge(lambda e: replace(e, total_buckets=3) if e.identity == newest.identity else e)


@damage("PV023")
def sequence_numbers_overlap(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], min_sequence_number=0)


@damage("PV024")
def a_bucket_is_none_of_the_table(bench: Bench) -> None:
    newest = bench.live(level=0)[-1]
    waiting = replace(newest, bucket=POSTPONE_BUCKET, total_buckets=POSTPONE_BUCKET)
    bench.reforge(lambda e: waiting if e.identity == newest.identity else e)


@damage("PV005")
def more_deletes_than_rows(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], delete_row_count=10_000)


@damage("PV026")
def a_key_is_garbage(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], min_key=b"\0\0\0\x01\xff")


@damage("PV066")
def a_partition_is_written_in_two_ways(bench: Bench) -> None:
    newest = bench.live(level=0)[-1]
    bench.reforge(lambda e: replace(e, partition=e.partition + bytes(8)) if e.identity == newest.identity else e)


# rows


@damage("PV030", "full")
def rows_are_out_of_order(bench: Bench) -> None:
    entry = first(bench, level=TOP)
    bench.refill(entry, lambda rows: rows.take(list(reversed(range(rows.num_rows)))))


@damage("PV032", "full")
def keys_go_beyond_the_range(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], max_key=bench.live(level=0)[-1].file.min_key)


@damage("PV032", "full")
def sequence_numbers_go_beyond_the_range(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    bench.lie(entry, min_sequence_number=entry.file.max_sequence_number)


@damage("PV034", "full")
def the_number_of_deletes_is_wrong(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], delete_row_count=1)


@damage("PV035", "full")
def a_file_is_in_the_wrong_bucket(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    other = replace(entry, bucket=1 - entry.bucket)
    bench.path(entry).rename(bench.path(other))
    bench.reforge(lambda e: other if e.identity == entry.identity else e)


@damage("PV036", "full")
def a_file_is_in_the_wrong_partition(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    other = replace(entry, partition=next(e.partition for e in bench.live() if e.partition != entry.partition))
    bench.path(entry).rename(bench.path(other))
    bench.reforge(lambda e: other if e.identity == entry.identity else e)


@damage("PV037", "full")
def statistics_hide_values(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    stats = replace(entry.file.value_stats, min_values=entry.file.value_stats.max_values)
    bench.refill(entry, lambda rows: rows, value_stats=stats)


@damage("PV037", "full")
def a_key_maximum_is_too_small(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    bench.lie(entry, key_stats=replace(entry.file.key_stats, max_values=entry.file.key_stats.min_values))


@damage("PV037", "full")
def a_key_minimum_is_too_great(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    bench.lie(entry, key_stats=replace(entry.file.key_stats, min_values=entry.file.key_stats.max_values))


@damage("PV038", "full")
def key_null_counts_are_wrong(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    bench.lie(entry, key_stats=replace(entry.file.key_stats, null_counts=(1,)))


@damage("PV038", "full")
def null_counts_are_wrong(bench: Bench) -> None:
    entry = bench.live(level=0)[-1]
    bench.lie(entry, value_stats=replace(entry.file.value_stats, null_counts=(0, 0, 3, 0)))


@damage("PV044", "full")
def deletes_are_not_counted(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], delete_row_count=0)


@damage("PV045", "full")
def the_greatest_key_is_not_there(bench: Bench) -> None:
    bench.lie(bench.live(level=0)[-1], max_key=key(1000))


@damage("PV047", "full")
def a_column_that_must_not_be_is_null(bench: Bench) -> None:
    def with_null(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("n")
        return rows.set_column(place, "n", pa.nulls(rows.num_rows, pa.int32()))

    bench.refill(bench.live(level=0)[-1], with_null)


@damage("PV049", "full")
def a_key_column_is_another(bench: Bench) -> None:
    def shifted(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("_KEY_k")
        return rows.set_column(place, rows.schema.field(place), pc.add(rows.column(place), 1).cast(pa.int32()))

    bench.refill(bench.live(level=0)[-1], shifted)


# index files


def vector_entry(bench: Bench) -> IndexManifestEntry:
    entries = bench.context.manifests.index_entries(bench.newest)
    return max(entries, key=lambda e: len(e.index_file.deletion_vector_ranges or ()))


def index_path(bench: Bench, entry: IndexManifestEntry) -> Path:
    return bench.root / "index" / entry.index_file.file_name


def with_ranges(entry: IndexManifestEntry, *ranges: DeletionVectorRange) -> IndexManifestEntry:
    return replace(entry, index_file=replace(entry.index_file, deletion_vector_ranges=ranges, row_count=len(ranges)))


def relist(bench: Bench, entry: IndexManifestEntry, other: IndexManifestEntry) -> None:
    bench.reforge(indexes=lambda entries: [other if e == entry else e for e in entries])


@damage("PV015", "files", "dv")
def an_index_file_is_missing(bench: Bench) -> None:
    index_path(bench, vector_entry(bench)).unlink()


@damage("PV015", "files", "dv")
def an_index_file_is_longer(bench: Bench) -> None:
    path = index_path(bench, vector_entry(bench))
    path.write_bytes(path.read_bytes() + b"\0")


@damage("PV039", "meta", "dv")
def two_vectors_overlap(bench: Bench) -> None:
    entry = vector_entry(bench)
    first, *others = entry.index_file.deletion_vector_ranges or ()
    relist(bench, entry, with_ranges(entry, first, *others, replace(first, data_file_name="data-gone-0.parquet")))


@damage("PV016", "meta", "dv")
def a_vector_dangles(bench: Bench) -> None:
    entry = vector_entry(bench)
    ranges = entry.index_file.deletion_vector_ranges or ()
    relist(bench, entry, with_ranges(entry, *(replace(r, data_file_name="data-gone-0.parquet") for r in ranges)))


@damage("PV065", "meta", "dv")
def a_commit_marks_rows_of_a_replaced_file(bench: Bench) -> None:
    bench.publish(replace(bench.newest, id=bench.newest.id + 1, commit_kind=COMPACT))
    a_vector_dangles(bench)


@damage("PV033", "full", "dv")
def vectors_are_lost(bench: Bench) -> None:
    bench.reforge(indexes=lambda entries: [])


@damage("PV048", "meta", "dv")
def vectors_are_put_back(bench: Bench) -> None:
    """The commit of the slower of two compactions forgets the vectors of the other."""
    bench.publish(replace(bench.newest, id=bench.newest.id + 1, commit_kind=COMPACT))
    entry = vector_entry(bench)
    bench.reforge(lambda e: e, indexes=lambda entries: [e for e in entries if e != entry])


@damage("PV039", "meta", "dv")
def a_bucket_has_two_index_files(bench: Bench) -> None:
    entry = vector_entry(bench)
    bench.reforge(indexes=lambda entries: [*entries, entry])


@damage("PV005", "meta", "dv")
def a_vector_ends_behind_its_file(bench: Bench) -> None:
    entry = vector_entry(bench)
    ranges = entry.index_file.deletion_vector_ranges or ()
    relist(bench, entry, with_ranges(entry, *(replace(r, offset=r.offset + 100_000) for r in ranges)))


@damage("PV040", "files", "dv")
def a_vector_is_flipped(bench: Bench) -> None:
    entry = vector_entry(bench)
    flip(index_path(bench, entry), (entry.index_file.deletion_vector_ranges or ())[0].offset + 12)


@damage("PV040", "files", "dv")
def a_vector_marks_another_number_of_rows(bench: Bench) -> None:
    entry = vector_entry(bench)
    ranges = entry.index_file.deletion_vector_ranges or ()
    relist(bench, entry, with_ranges(entry, *(replace(r, cardinality=1000) for r in ranges)))


@damage("PV040", "files", "dv")
def a_vector_marks_the_row_after_the_last(bench: Bench) -> None:
    entry = vector_entry(bench)
    marked = (entry.index_file.deletion_vector_ranges or ())[0]
    path = index_path(bench, entry)
    vector = decode_deletion_vector(path.read_bytes(), marked.offset, marked.length, str(path))
    file = next(e for e in bench.live() if e.file.file_name == marked.data_file_name)
    bench.lie(file, row_count=max(vector.positions))


@damage("PV046", "full", "dv")
def a_retraction_has_climbed(bench: Bench) -> None:
    def deleted(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("_VALUE_KIND")
        kinds = pa.array([3, *[0] * (rows.num_rows - 1)], pa.int8())
        return rows.set_column(place, pa.field("_VALUE_KIND", pa.int8(), False), kinds)

    entry = next(e for e in bench.live() if e.file.level > 0)
    bench.refill(entry, deleted)


@damage("PV043", "files", "dynamic")
def a_hash_index_is_cut_off(bench: Bench) -> None:
    path = index_path(bench, vector_entry(bench))
    path.write_bytes(path.read_bytes()[:-2])


@damage("PV043", "files", "dynamic")
def a_hash_index_is_missing(bench: Bench) -> None:
    index_path(bench, vector_entry(bench)).unlink()


@damage("PV041", "full", "dynamic")
def a_hash_index_forgets_a_key(bench: Bench) -> None:
    path = index_path(bench, vector_entry(bench))
    path.write_bytes(b"\1\2\3\4" + path.read_bytes()[4:])


@damage("PV042", "files", "dynamic")
def a_hash_is_in_two_buckets(bench: Bench) -> None:
    entries = bench.context.manifests.index_entries(bench.newest)
    partition = next(e.partition for e in entries if sum(o.partition == e.partition for o in entries) > 1)
    one, other = [index_path(bench, e) for e in entries if e.partition == partition][:2]
    other.write_bytes(one.read_bytes()[:4] + other.read_bytes()[4:])


# references


@damage("PV050")
def a_tag_is_garbage(bench: Bench) -> None:
    (bench.root / "tag/tag-kept").write_text("[]")


@damage("PV050")
def a_tag_names_a_manifest_that_is_gone(bench: Bench) -> None:
    bench.edit_json("tag/tag-kept", deltaManifestList="manifest-list-gone-0")


@damage("PV051", "files")
def a_file_of_a_tag_is_gone(bench: Bench) -> None:
    tagged = bench.context.tags.get("kept").snapshot
    only_there = {e.file.file_name for e in bench.live(tagged)} & {e.file.file_name for e in bench.live()}
    bench.path(next(e for e in bench.live() if e.file.file_name in only_there)).unlink()


@damage("PV052")
def a_consumer_is_garbage(bench: Bench) -> None:
    (bench.root / "consumer/consumer-reader").write_text('{"nextSnapshot": "soon"}')


@damage("PV052")
def a_consumer_is_ahead(bench: Bench) -> None:
    (bench.root / "consumer/consumer-reader").write_text('{"nextSnapshot": 50}')


@damage("PV052")
def a_consumer_is_a_pipe(bench: Bench) -> None:
    os.mkfifo(bench.root / "consumer/consumer-pipe")


@damage("PV053")
def a_branch_is_garbage(bench: Bench) -> None:
    (bench.root / "branch/branch-b/snapshot/snapshot-1").write_text("{")


@damage("PV054")
def a_changelog_is_garbage(bench: Bench) -> None:
    (bench.root / "changelog/changelog-1").write_text("null")


@damage("PV054")
def a_changelog_is_a_copy_of_another(bench: Bench) -> None:
    folder = bench.root / "changelog"
    shutil.copy(folder / "changelog-1", folder / "changelog-9")


assert EntryKind.ADD == 0


# changelogs


def without(kind: int) -> Callable[[pa.Table], pa.Table]:
    """The rows of a changelog but those of one kind."""
    return lambda rows: rows.filter(pc.not_equal(rows.column("_VALUE_KIND"), kind))


def of_kind(kind: int) -> Callable[[pa.Table], pa.Table]:
    """The rows of a changelog, all of one kind."""

    def changed(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("_VALUE_KIND")
        return rows.set_column(at, rows.schema.field(at), pa.array([kind] * rows.num_rows, pa.int8()))

    return changed


def with_other_values(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("v")
    return rows.set_column(at, rows.schema.field(at), pa.array(["other"] * rows.num_rows))


@damage("PV058", "full", "lookup")
def a_changelog_hides_a_row_that_has_come(bench: Bench) -> None:
    bench.rechange(4, without(RowKind.INSERT))


@damage("PV058", "full", "lookup")
def a_changelog_hides_a_delete(bench: Bench) -> None:
    bench.rechange(4, without(RowKind.DELETE))


@damage("PV058", "full", "full-compaction")
def a_changelog_shows_half_an_update(bench: Bench) -> None:
    bench.rechange(4, without(RowKind.UPDATE_BEFORE))


@damage("PV058", "full", "full-compaction")
def a_changelog_ends_with_half_an_update(bench: Bench) -> None:
    bench.rechange(6, without(RowKind.UPDATE_AFTER))


@damage("PV058", "full", "full-compaction")
def a_changelog_shows_other_values(bench: Bench) -> None:
    bench.rechange(2, with_other_values)


@damage("PV058", "full", "lookup")
def a_changelog_takes_back_what_was_never_there(bench: Bench) -> None:
    bench.rechange(2, of_kind(RowKind.DELETE))


@damage("PV058", "full", "lookup")
def a_commit_has_lost_its_changelog(bench: Bench) -> None:
    bench.publish(replace(bench.context.snapshots.get(2), changelog_manifest_list=None))


@damage("PV058", "full", "changelog")
def a_changelog_of_the_input_lacks_rows(bench: Bench) -> None:
    bench.rechange(1, lambda rows: rows.slice(1))


@damage("PV058", "full", "changelog")
def a_changelog_of_the_input_has_other_values(bench: Bench) -> None:
    bench.rechange(1, lambda rows: rows.set_column(*_shuffled(rows)))


def _shuffled(rows: pa.Table) -> tuple[int, pa.Field, pa.ChunkedArray]:
    at = rows.num_columns - 1
    return at, rows.schema.field(at), rows.column(at).take(pa.array([*range(1, rows.num_rows), 0]))


@damage("PV059", "full", "lookup")
def a_lower_level_is_older(bench: Bench) -> None:
    """The levels of two files change places."""
    first, last = bench.live()
    levels = {first.file.file_name: last.file.level, last.file.file_name: first.file.level}
    bench.reforge(
        lambda e: (
            replace(e, file=replace(e.file, level=levels.get(e.file.file_name, e.file.level))) if e.kind == EntryKind.ADD else e
        )
    )


@damage("PV060", "full", "crossing")
def a_key_lives_in_two_partitions(bench: Bench) -> None:
    """A writer did not know where the key is."""
    forgetting = TableContext.open(str(bench.root), {"cross-partition-upsert.index-ttl": "1 ms"})
    time.sleep(0.01)
    tables.write(forgetting, [{"p": "d", "k": 4}])


@damage("PV062", "full", "indexed")
def a_file_index_denies_values(bench: Bench) -> None:
    (path,) = bench.root.glob("bucket-0/*.index")
    content = path.read_bytes()
    path.write_bytes(content[:200] + bytes(len(content) - 200))


@damage("PV062", "full", "indexed")
def a_file_index_is_cut(bench: Bench) -> None:
    (path,) = bench.root.glob("bucket-0/*.index")
    path.write_bytes(path.read_bytes()[:20])


def _inside(bench: Bench, change: Callable[[bytes], bytes]) -> None:
    """Change what a Parquet file holds after its rows: filters, page indexes, footer."""
    path = bench.path(bench.live()[0])
    content = path.read_bytes()
    end = content.rindex(b"value-0299", 0, content.index(b"value-0299") + 10) + 10  # of the last page
    changed = content[:end] + change(content[end:])
    assert changed != content and len(changed) == len(content)
    path.write_bytes(changed)


@damage("PV063", "full", "indexed")
def a_page_index_denies_values(bench: Bench) -> None:
    _inside(bench, lambda rest: rest.replace(b"value-0049", b"value-0020", 1))


@damage("PV063", "full", "indexed")
def a_row_group_denies_values(bench: Bench) -> None:
    _inside(bench, lambda rest: rest[::-1].replace(b"value-0299"[::-1], b"value-0280"[::-1], 1)[::-1])


@damage("PV064", "full", "indexed")
def a_filter_inside_of_a_file_denies_values(bench: Bench) -> None:
    path = bench.path(bench.live()[0])
    with open_sized(bench.context.storage, str(path), path.stat().st_size) as source:
        offset = read_footer(source).chunk(0, 4).required(3).value(14)
    content = path.read_bytes()
    path.write_bytes(content[: offset + 40] + bytes(64) + content[offset + 104 :])


@damage("PV070", "full", "summed")
def a_sum_leaves_its_type(bench: Bench) -> None:
    tables.write(bench.context, [{"k": 4, "v": 100}])
