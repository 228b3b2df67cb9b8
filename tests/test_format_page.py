"""FORMAT.md says what the code does: its tables are compared with the code, and references to it name sections that exist."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import fastavro
import pytest

from paimon_cli.bucket.file_encoders import CODECS
from paimon_cli.commit.deduplication import MAX_NAMED_USERS, PROPERTY, WRITERS_PROPERTY, CommitUsers
from paimon_cli.datatypes.arrow_types import NESTED_ID_BASE
from paimon_cli.datatypes.binary_row import encode_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import field_to_json, parse_type
from paimon_cli.datatypes.internal_values import Timestamp, decimal_of
from paimon_cli.history.unfinished_rescale import RESCALE_PROPERTY
from paimon_cli.ingest.changes.read_lag import LAG_PROPERTY
from paimon_cli.ingest.changes.read_marks import MARKS_PROPERTY, TABLES_PROPERTY
from paimon_cli.lsm.aggregators.catalog import BUILDERS
from paimon_cli.metadata.data_file_schema import KEY_ID_OFFSET, SEQUENCE_NUMBER_ID, VALUE_KIND_ID
from paimon_cli.metadata.index_files import FILE_INDEX_MAGIC as INDEX_MAGIC
from paimon_cli.metadata.index_files import MAGIC_32, MAGIC_64
from paimon_cli.metadata.manifests import LISTS_PROPERTY, encode_index_manifest, encode_manifest_list
from paimon_cli.metadata.snapshot import (
    ATTEMPTS_PROPERTY,
    DURATION_PROPERTY,
    EXPIRED_CHANGELOG_PROPERTY,
    WORK_PROPERTY,
    Snapshot,
    tag_text,
)
from paimon_cli.metadata.staged_commit import StagedCommit
from paimon_cli.metadata.table_layout import partition_path
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import HONOURED, IN_PART, OPTIONS, find_option
from paimon_cli.options.option_text import parse_size
from paimon_cli.options.own_options import DATA_CONFLICT_CHECKS
from paimon_cli.storage.lock_table import LockTable
from tests.datatypes.one_row_hash import row_hash
from tests.metadata.one_manifest import encode_manifest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "FORMAT.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^###? (\d+(?:\.\d+)?)\.? ", re.MULTILINE)
SECTIONS = HEADING.findall(PAGE)
CODE = re.compile(r"`([^`]+)`")
REFERENCE = re.compile(r"FORMAT\.md,\s+sections? ((?:\d+(?:\.\d+)?)(?:(?:, | and | to )\d+(?:\.\d+)?)*)")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
FOLDERS = ("paimon_cli", "tests", "scripts", "docs")
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")))
    if path.suffix in (".py", ".md") and path != Path(__file__)
}

Table = list[list[str]]


def section(number: str) -> str:
    """The text of one section, without its sub-sections."""
    begin = next(match for match in HEADING.finditer(PAGE) if match[1] == number)
    return re.split(r"^##", PAGE[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def tables(number: str) -> list[Table]:
    """The tables of a section, without their head lines."""
    found: list[Table] = []
    previous = ""
    for line in section(number).splitlines():
        if line.startswith("|"):
            if not previous.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        previous = line
    return [table[2:] for table in found]


def names(table: Table) -> list[str]:
    """What stands in backticks in the first column."""
    return [name for row in table for name in CODE.findall(row[0])]


def samples(number: str) -> list[str]:
    return re.findall(r"^```[a-z]*\n(.*?)\n```", section(number), re.MULTILINE | re.DOTALL)


def references(text: str) -> Iterator[str]:
    for match in REFERENCE.finditer(text):
        yield from NUMBER.findall(match[1])


def test_sections_are_numbered_in_order() -> None:
    assert sorted(set(SECTIONS), key=lambda number: [int(part) for part in number.split(".")]) == SECTIONS
    assert {str(number) for number in range(1, 17)} <= set(SECTIONS)


def test_references_name_sections_that_exist() -> None:
    named = {path: set(references(text)) for path, text in TEXTS.items()}
    assert sum(map(bool, named.values())) > 60
    assert {path: numbers - set(SECTIONS) for path, numbers in named.items() if numbers - set(SECTIONS)} == {}


def test_references_are_spelled_alike() -> None:
    odd = re.compile(r"\bformat sections? \d|FORMAT\.md, sections?\b(?! \d)")
    assert [path for path, text in TEXTS.items() if path != "FORMAT.md" and odd.search(text)] == []


def test_references_inside_the_page_name_sections_that_exist() -> None:
    assert set(re.findall(r"\(([1-9]\d?\.\d)\)", PAGE)) <= set(SECTIONS)


def test_the_page_names_no_machine_path() -> None:
    assert not re.search(r"(?<![\w.])/(work|home|tmp|root)\b", PAGE)


SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="b",
    delta_manifest_list="d",
    commit_user="u",
    commit_identifier=1,
    commit_kind="APPEND",
    time_millis=1,
    total_record_count=1,
    delta_record_count=1,
    base_manifest_list_size=1,
    delta_manifest_list_size=1,
    changelog_manifest_list="c",
    changelog_manifest_list_size=1,
    index_manifest="i",
    changelog_record_count=0,
    watermark=1,
    statistics="s",
    properties={"k": "v"},
    uuid="x",
    next_row_id=1,
    operation="WRITE",
    writer_version="paimon-cli 0.1.0",
)
JSON_TYPES = {"int": int, "long": int, "string": str, "object of strings": dict, "list": list, "list of string": list}


def test_snapshot_fields() -> None:
    assert None not in (getattr(SNAPSHOT, field.name) for field in fields(SNAPSHOT))
    content = json.loads(SNAPSHOT.to_json())
    (table,) = tables("3.1")
    assert names(table) == list(content)
    assert [type(content[name]) for name in content] == [JSON_TYPES[row[1]] for row in table]


def test_the_snapshot_sample_is_written_like_this() -> None:
    (sample,) = samples("3.1")
    assert Snapshot.from_json(sample).to_json() == sample


def test_schema_fields() -> None:
    schema = TableSchema(0, (), 0, (), (), {}, "text", 1)
    content = json.loads(schema.to_json())
    table, columns = tables("2.1")
    assert names(table) == list(content)
    assert [type(content[name]) for name in content] == [JSON_TYPES[row[1]] for row in table]
    assert names(columns) == list(field_to_json(DataField(0, "a", parse_type("INT"), "text", "1")))


def test_the_schema_sample_is_written_like_this() -> None:
    (sample,) = samples("2.1")
    whole = sample.replace("}, ... ]", "} ]")
    assert TableSchema.from_json(whole).to_json() == whole


def test_properties_of_our_snapshots() -> None:
    ours = [
        ATTEMPTS_PROPERTY,
        DURATION_PROPERTY,
        WORK_PROPERTY,
        MARKS_PROPERTY,
        LAG_PROPERTY,
        TABLES_PROPERTY,
        EXPIRED_CHANGELOG_PROPERTY,
        RESCALE_PROPERTY,
    ]
    properties, users = tables("3.2")
    assert names(properties) == [*ours, PROPERTY, WRITERS_PROPERTY, LISTS_PROPERTY]
    remembered = CommitUsers()
    for number in range(MAX_NAMED_USERS + 1):
        remembered = remembered.with_commit(f"user{number}", 1)
    assert names(users) == list(json.loads(remembered.to_text()))
    assert f"at most {MAX_NAMED_USERS} users" in section("3.2")


def test_tag_fields() -> None:
    text = tag_text(SNAPSHOT.to_json().encode(), 1795326413752, 604_800_000).decode()
    (table,) = tables("3.3")
    assert names(table) == list(json.loads(text))[-2:]
    assert samples("3.3")[0] in text


def avro_fields(container: bytes) -> dict[str, Any]:
    schema = json.loads(fastavro.reader(io.BytesIO(container)).metadata["avro.schema"])
    return fields_of(schema)


def fields_of(record: Any) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in record["fields"]}


def avro_text(t: Any) -> str:
    """A type as the page spells it."""
    if isinstance(t, list):
        assert t[0] == "null" and len(t) == 2
        return f"nullable {avro_text(t[1])}"
    if isinstance(t, str):
        return t
    if t["type"] == "array":
        return f"array of {avro_text(t['items'])}"
    if t["type"] == "record":
        return "statistics" if "_MIN_VALUES" in fields_of(t) else "record"
    return str(t["logicalType"])


MANIFEST = avro_fields(encode_manifest([]))
LIST = avro_fields(encode_manifest_list([]))
INDEX = avro_fields(encode_index_manifest([]))


@pytest.mark.parametrize(
    "number, place, written",
    [
        ("4.2", 0, fields_of(LIST["_PARTITION_STATS"])),
        ("4.3", 0, MANIFEST),
        ("4.3", 1, fields_of(MANIFEST["_FILE"])),
        ("4.4", 0, LIST),
        ("4.5", 0, INDEX),
        ("4.5", 1, fields_of(INDEX["_DELETIONS_VECTORS_RANGES"][1]["items"][1])),
    ],
)
def test_avro_fields(number: str, place: int, written: dict[str, Any]) -> None:
    table = tables(number)[place]
    assert [(CODE.findall(row[0])[0], row[1]) for row in table] == [(name, avro_text(t)) for name, t in written.items()]


def test_partition_paths() -> None:
    types = [parse_type(text) for text in ("STRING", "DATE", "TIMESTAMP(3)", "BOOLEAN", "DECIMAL(10, 5)", "TIME(3)")]
    values = ["a b/c", 19723, Timestamp(1704103200000), True, decimal_of(-150000, 5), 36672013]
    paths = [partition_path("sdtbxh", types, values, legacy=legacy) for legacy in (True, False)]
    assert samples("1.2") == ["\n".join(paths)]


def test_hashes_of_keys() -> None:
    (table,) = tables("6.2")
    for key, row, hashed, buckets in table:
        name, _, text = key.partition(" ")
        value = None if text == "null" else int(text) if name == "INT" else text
        content = encode_row([value], [parse_type(name)])
        assert f"`{content.hex()}`" == row
        assert str(row_hash(content)) == hashed
        assert ", ".join(str(abs(row_hash(content)) % total) for total in (4, 5, 16)) == buckets


def test_numbers_in_the_text() -> None:
    for number in (KEY_ID_OFFSET, SEQUENCE_NUMBER_ID, VALUE_KIND_ID, NESTED_ID_BASE):
        assert str(number) in section("7.1")
    assert str(INDEX_MAGIC) in section("7.4")
    assert str(MAGIC_32) in section("8") and str(MAGIC_64) in section("8")


def test_codecs() -> None:
    table = tables("7.2")[1]
    documented: dict[str, set[str]] = {file_format: set() for file_format in CODECS}
    for row in table:
        for file_format, cell in zip(("parquet", "orc", "avro"), row[1:], strict=True):
            documented[file_format] |= {CODE.findall(row[0])[0]} if cell != "no" else set()
    aliases = {"null", "uncompressed", "zstandard", "deflate", "zlib"}
    assert documented == {file_format: set(codecs) - aliases for file_format, codecs in CODECS.items()}


def test_data_conflict_checks() -> None:
    assert tuple(names(tables("10.3")[0])) == DATA_CONFLICT_CHECKS


def test_stage_files() -> None:
    staged = StagedCommit("t", 0, 0, "u", 1, None, "off", ())
    assert names(tables("10.7")[0]) == list(json.loads(staged.to_json()))


def test_aggregate_functions() -> None:
    assert sorted(names(tables("11.3")[0])) == sorted(BUILDERS)


def test_lock_table() -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
    LockTable(engine, 255).connect().close()
    columns = [column["name"] for column in sqlalchemy.inspect(engine).get_columns("paimon_distributed_locks")]
    assert names(tables("14.2")[0]) == columns


def listed_options() -> Iterator[tuple[str, str, str]]:
    """Section, option, default of 14.3."""
    for number, cell in tables("14.3")[0]:
        for key, default in re.findall(r"`([^`]+)`(?: = ([^,]+))?", cell):
            yield number, key, default


@pytest.mark.parametrize("number, key, default", list(listed_options()))
def test_options_are_honoured_with_that_default(number: str, key: str, default: str) -> None:
    option = find_option(key)
    assert option is not None and number in SECTIONS
    assert option.status in (HONOURED, IN_PART)
    assert same_default(option.default, default)


def same_default(known: str | None, documented: str) -> bool:
    """No default on the page means that it is unset, or described in another section; some depend on other options."""
    if known == "" and documented == "{}":  # a mapping without entries
        return True
    if known is None or not documented or known == documented:
        return not documented or known == documented or "trigger" in documented or documented.startswith("128 mb")
    return known[:1].isdigit() and parse_size(known) == parse_size(documented)


def test_refused_options() -> None:
    documented: dict[tuple[str, str], tuple[str, ...]] = {}
    for works, cell in tables("14.4")[0]:
        for key, passing in re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", cell):
            values = dict.fromkeys(works.split(", "), passing)
            if ":" in passing:
                values = dict(part.split(": ") for part in passing.split("; "))
            documented |= {(key, work): tuple(filter(None, texts.split(", "))) for work, texts in values.items()}
    assert documented == {(option.key, gate.at): gate.unless for option in OPTIONS for gate in option.gates}
