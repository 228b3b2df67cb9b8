"""Creating tables: what is written, and which nonsense is refused before anything is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import AddColumn
from paimon_cli.catalog.create_table import CreatedTable, create_table
from paimon_cli.catalog.ddl import definition_of
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.option_values import check_option_values, codecs_unknown_to_java
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.datatypes.data_type import MAX_NESTING
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.options.table_options import TYPED_OPTIONS, TableOptions
from paimon_cli.sql.column_definitions import parse_column
from tests.tables import make_table


def definition(
    columns: Sequence[str],
    key: Sequence[str] = ("id",),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
) -> TableDefinition:
    declared = definition_of([parse_column(column) for column in columns], "the columns")
    return TableDefinition(
        declared.fields,
        tuple(key),
        tuple(partition_by),
        {"bucket": "1", **(options or {})},
        declared_null=declared.declared_null,
        if_not_exists=if_not_exists,
    )


HOURLY_TAGS = {"tag.automatic-creation": "process-time", "tag.creation-period": "hourly"}
NESTED_GROUP = {"merge-engine": "partial-update", "fields.a.sequence-group": "b"}
BY_SNAPSHOT = {"sequence.snapshot-ordering": "true", "write-only": "true"}
CROSSED_GROUPS = {"merge-engine": "partial-update", "fields.g.sequence-group": "v", "fields.h.sequence-group": "g"}


def create(folder: Path, *columns: str, **clauses: object) -> CreatedTable:
    return create_table(TableLocation(str(folder), "t"), definition(columns, **clauses))  # type: ignore[arg-type]


def test_schema_file(tmp_path: Path) -> None:
    created = create(tmp_path / "t", "id BIGINT", "v STRING COMMENT 'x'", options={"write-only": "true"})
    assert created.created and created.warnings == ()
    written = json.loads((tmp_path / "t" / "schema" / "schema-0").read_text())
    assert written["version"] == 3
    assert written["fields"] == [
        {"id": 0, "name": "id", "type": "BIGINT NOT NULL"},
        {"id": 1, "name": "v", "type": "STRING", "description": "x"},
    ]
    assert written["options"] == {"bucket": "1", "file.format": "parquet", "write-only": "true"}
    assert (written["primaryKeys"], written["partitionKeys"], written["highestFieldId"]) == (["id"], [], 1)
    assert written["timeMillis"] > 1_700_000_000_000
    assert TableContext.open(str(tmp_path / "t")).schema == created.schema


def test_nothing_but_the_schema_is_made(tmp_path: Path) -> None:
    create(tmp_path / "t", "id INT")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == ["t/schema/schema-0"]


def test_options_of_keys_become_key_lists(tmp_path: Path) -> None:
    created = create(tmp_path / "t", "id INT", "dt DATE", key=(), options={"primary-key": "id, dt", "partition": "dt"})
    assert (created.schema.primary_keys, created.schema.partition_keys) == (("id", "dt"), ("dt",))
    assert "primary-key" not in created.schema.options


def test_an_existing_table_stays(tmp_path: Path) -> None:
    create(tmp_path / "t", "id INT")
    with pytest.raises(UsageError, match="already exists"):
        create(tmp_path / "t", "id INT")
    again = create(tmp_path / "t", "id INT", "more INT", if_not_exists=True)
    assert not again.created
    assert again.schema.field_names == ("id",)


def test_of_many_that_create_at_once_one_wins(tmp_path: Path) -> None:
    def attempt(number: int) -> bool:
        try:
            return create(tmp_path / "t", "id INT", f"v{number} INT").created
        except UsageError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1


@pytest.mark.parametrize(
    ("columns", "clauses", "message"),
    [
        ([], {"key": ()}, "at least one column"),
        (["id INT", "id STRING"], {}, "column 'id' is given twice"),
        (["id INT"], {"key": ("nope",)}, "unknown column 'nope'"),
        (["id INT"], {"key": ("id", "id")}, "given twice"),
        (["id INT"], {"partition_by": ("dt",)}, "unknown column 'dt'"),
        (["id INT NULL"], {}, "declared NULL"),
        (["id ARRAY<INT>"], {}, "ARRAY<INT>"),
        (["id INT", "_KEY_id INT"], {}, "reserved"),
        (["id INT", "rowkind STRING"], {}, "reserved"),
        (["id INT", "_VALUE_KIND INT"], {}, "reserved"),
        (["id INT"], {"options": {"bucket": "0"}}, "'bucket' cannot be '0'"),
        (["id INT"], {"options": {"bucket": "-3"}}, "bucket"),
        (["id INT"], {"options": {"bucket": "many"}}, "bucket"),
        (["id INT", "dt DATE"], {"key": ("dt",), "partition_by": ("dt",)}, "has only partition columns"),
        (["id INT", "dt DATE"], {"partition_by": ("dt",)}, "lacks partition column dt"),
        (["id INT", "v INT"], {"options": {"bucket-key": "v"}}, "not in the primary key"),
        (["id INT", "v INT"], {"options": {"bucket-key": "w"}}, "unknown column 'w'"),
        (["id INT"], {"options": {"bucket": "-1", "bucket-key": "id"}}, "without a bucket count"),
        (["id INT"], {"key": ()}, "without a key"),
        (["id INT"], {"key": (), "options": {"bucket": "-2"}}, "needs a primary key"),
        (["id INT"], {"options": {"sequence.field": "at"}}, "unknown column 'at'"),
        (["id INT"], {"options": {"fields.nope.aggregate-function": "sum"}}, "unknown column 'nope'"),
        (["id INT"], {"options": {"rowkind.field": "op"}}, "unknown column 'op'"),
        (["id INT"], {"options": {"sequence.snapshot-ordering": "true"}}, "needs write-only=true"),
        (["id INT", "v INT"], {"options": {**BY_SNAPSHOT, "sequence.field": "v"}}, "cannot be combined with sequence.field"),
        (["id INT"], {"key": (), "options": {**BY_SNAPSHOT, "bucket": "-1"}}, "needs a primary key"),
        (["id INT"], {"options": {"merge-engine": "magic"}}, "merge-engine"),
        (["id INT"], {"options": {"target-file-size": "big"}}, "target-file-size"),
        (["id INT"], {"options": {"write-only": "maybe"}}, "write-only"),
        (["id INT"], {"options": {"snapshot.time-retained": "soon"}}, "snapshot.time-retained"),
        (["id INT"], {"options": {"file.format": "xls"}}, "file.format"),
        (["id INT"], {"options": {"merge-engine": "first-row", "changelog-producer": "input"}}, "first-row"),
        (["id INT"], {"key": (), "options": {"bucket": "-1", "merge-engine": "aggregation"}}, "needs a primary key"),
        (["id INT", "v INT"], {"options": {"primary-key": "v"}}, "'primary-key' is given twice"),
        (["id INT", "v INT"], {"options": {"rowkind.field": "v"}}, "rowkind.field 'v' is INT"),
        (["id INT"], {"options": {"file.format.per.level": "0:xls"}}, "file.format.per.level"),
        (["id INT", "g INT", "h INT", "v INT"], {"options": CROSSED_GROUPS}, "orders another sequence group"),
        (["id INT"], {"options": {"snapshot.num-retained.max": "5"}}, r"min=10 \(the default\) is above snapshot\.num-ret"),
        (["id INT"], {"options": {"manifest.compression": "bogus"}}, "manifest.compression"),
        (["id INT"], {"options": {"changelog.num-retained.min": "3", "changelog.num-retained.max": "2"}}, "min=3 is above"),
        (["id INT"], {"options": {**HOURLY_TAGS, "tag.creation-delay": "1 h"}}, "delay is not shorter than the period"),
        (
            ["id INT"],
            {"options": {**HOURLY_TAGS, "sink.process-time-zone": "Atlantis"}},
            "sink.process-time-zone is no time zone",
        ),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, columns: list[str], clauses: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        create(tmp_path / "t", *columns, **clauses)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("columns", "clauses", "reason"),
    [
        (["id INT", "f DOUBLE"], {"key": ("id", "f"), "partition_by": ("f",)}, "DOUBLE NOT NULL partition columns"),
        (["id INT", "f BYTES"], {"key": ("id", "f"), "partition_by": ("f",)}, "BYTES NOT NULL partition columns"),
        (["id INT"], {"options": {"file.format": "csv"}}, "file.format=csv"),
        (["id INT", "a ARRAY<INT>"], {"options": {"sequence.field": "a"}}, "sequence.field with a ARRAY<INT>"),
        (["id INT", "a MAP<INT, INT>", "b INT"], {"options": NESTED_GROUP}, "sequence-group with a MAP<INT, INT>"),
        (["id INT", "at TIMESTAMP(9)"], {"options": {"file.format": "avro"}}, "TIMESTAMP\\(9\\)"),
        (["id INT", "t TIMESTAMP(6)", "a ARRAY<ROW<at TIMESTAMP_LTZ(7)>>"], {}, "column 'a'"),
    ],
)
def test_tables_that_no_write_could_fill_are_not_created(
    tmp_path: Path, columns: list[str], clauses: dict[str, object], reason: str
) -> None:
    with pytest.raises(NotSupported) as refused:
        create(tmp_path / "t", *columns, **clauses)
    assert re.search(reason, refused.value.why) and refused.value.hint
    assert not (tmp_path / "t").exists()


def test_if_not_exists_accepts_an_existing_unwritable_table(tmp_path: Path) -> None:
    make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"], bucket=-1)
    found = create(tmp_path / "t", "id INT", options={"bucket": "-1"}, if_not_exists=True)
    assert not found.created


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"file.format.per.level": "99:orc"}, "level 99; the highest is 5"),
        ({"num-sorted-run.compaction-triger": "7"}, "did you mean 'num-sorted-run.compaction-trigger'"),
    ],
)
def test_likely_mistakes_are_reported_at_creation(tmp_path: Path, options: dict[str, str], warning: str) -> None:
    created = create(tmp_path / "t", "id INT", options=options)
    assert created.created
    (found,) = created.warnings
    assert re.search(warning, found)


def test_foreign_options_are_kept(tmp_path: Path) -> None:
    created = create(tmp_path / "t", "id INT", options={"owner": "me", "parquet.page.size": "1"})
    assert created.warnings == ("option 'owner' is unknown to Paimon and has no effect here",)
    assert created.schema.options["owner"] == "me"


@pytest.mark.parametrize(
    "key", ["secret.key", "my.password", "fs.s3a.secret.key", "s3.endpoint", "token", "dlf.access-key-secret"]
)
def test_secrets_and_what_belongs_to_the_catalog_are_not_stored(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=f"'{key}' is not stored in a table") as refused:
        create(tmp_path / "t", "id INT", options={key: "S3CR3T"})
    assert "S3CR3T" not in f"{refused.value} {refused.value.hint}"
    assert not (tmp_path / "t").exists()


def test_keys_that_only_look_like_secrets_are_stored(tmp_path: Path) -> None:
    options = {"bucket-key": "id", "cross-partition-upsert.index-ttl": "1 d", "fields.token.stats-mode": "none"}
    made = create(tmp_path / "t", "id INT", "token STRING", options=options)
    assert options.items() <= made.schema.options.items() and made.warnings == ()


def test_rows_of_a_new_table_with_postponed_buckets_are_postponed(tmp_path: Path) -> None:
    """Unless it says otherwise: without the option Paimon's batch engines write into buckets."""
    option = "postpone.batch-write-fixed-bucket"
    assert create(tmp_path / "t", "id INT", options={"bucket": "-2"}).schema.options[option] == "false"
    assert create(tmp_path / "u", "id INT", options={"bucket": "-2", option: "true"}).schema.options[option] == "true"
    assert option not in create(tmp_path / "v", "id INT", options={"bucket": "2"}).schema.options


@pytest.mark.parametrize(
    ("columns", "options", "hint"),
    [
        (["p STRING"], {"ignore-delete": "true"}, "set ignore-delete=false on a new table, or add the partition columns"),
        (["p DOUBLE"], {}, "change the definition, or use another Paimon engine"),
    ],
)
def test_the_hint_removes_the_obstacle(tmp_path: Path, columns: list[str], options: dict[str, str], hint: str) -> None:
    with pytest.raises(NotSupported) as refused:
        create(tmp_path / "t", "id INT", *columns, partition_by=["p"], options={"bucket": "-1", **options})
    assert refused.value.hint is not None and refused.value.hint.startswith(hint)


@pytest.mark.parametrize("text", ["ARRAY<{}>", "MAP<STRING, {}>", "ROW<f {}>"])
def test_types_that_files_cannot_be_read_back_with_are_refused(text: str, tmp_path: Path) -> None:
    fits = reduce(lambda inner, _: text.format(inner), range(MAX_NESTING), "INT")
    assert create(tmp_path / "fits", "id INT", f"v {fits}").created
    with pytest.raises(NotSupported, match="nested 31 levels deep; file formats are read back to 30 levels"):
        create(tmp_path / "deep", "id INT", f"v {text.format(fits)}")
    assert not (tmp_path / "deep").exists()
    table = open_table(TableLocation(str(tmp_path / "fits"), "t"), {})
    with pytest.raises(NotSupported, match=r"column 'w'.*nested 31 levels deep"):
        alter_table(table, [AddColumn(("w",), parse_sql_type(text.format(fits)))])


@pytest.mark.parametrize("value", ["x", "0", "-9", "99999999999999999999", "2.5"])
def test_what_an_option_may_be_is_told_alike_for_a_table_and_for_a_call(value: str) -> None:
    """`create` and `alter` check options before they are stored, `--option` when they are used."""
    told = 0
    for name, option in TYPED_OPTIONS.items():
        try:
            getattr(TableOptions({option.key: value}), name)
        except UsageError as of_call:
            with pytest.raises(UsageError) as of_table:
                check_option_values({option.key: value})
            assert (of_table.value.what, of_table.value.why) == (of_call.what, of_call.why)
            told += 1
    assert told > 20


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({"file.format": "avro", "file.compression": "none"}, "file.compression", "null"),
        ({"file.format": "orc", "file.compression": "GZIP"}, "file.compression", "zlib"),
        ({"file.compression": "null"}, "file.compression", "none"),
        ({"file.compression": "brotli"}, "file.compression", "zstd"),
        (
            {"file.format.per.level": "0:avro", "file.compression.per.level": "0:none,5:zstd"},
            "file.compression.per.level",
            "0:null,5:zstd",
        ),
        ({"changelog-file.format": "avro", "changelog-file.compression": "none"}, "changelog-file.compression", "null"),
    ],
)
def test_codecs_that_only_others_do_not_know_are_warned_of(tmp_path: Path, options: dict[str, str], key: str, value: str) -> None:
    """By Paimon 1.4.2 as a judge: its writers end with an error. Its readers take the files, but for brotli."""
    created = create(tmp_path / "t", "id INT", options=options)
    assert [key in warning and "Paimon's own writers" in warning for warning in created.warnings] == [True]
    assert codecs_unknown_to_java(TableOptions(options))[key][1] == value
    assert codecs_unknown_to_java(TableOptions({**options, key: value})) == {}
    assert create(tmp_path / "plain", "id INT").warnings == ()
    with pytest.warns(UserWarning, match="Paimon's own writers"):
        Table.open(str(tmp_path / "plain")).alter.set(options)


def test_vectors_are_read_as_a_type_and_not_written(tmp_path: Path) -> None:
    for text in ("v VECTOR<FLOAT, 3>", "v ARRAY<vector<FLOAT NOT NULL, 3> NOT NULL>"):
        with pytest.raises(NotSupported, match="cannot write column 'v': only the newest versions of Paimon can read VECTOR"):
            create(tmp_path / "t", "id INT", text)
    with pytest.raises(UsageError, match="a number from 1"):
        create(tmp_path / "t", "id INT", "v VECTOR<FLOAT, 0>")
