"""The table of all options: against Java's own lists, and whole in itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paimon_cli.errors import NotSupported
from paimon_cli.options import option_catalog
from paimon_cli.options.option_catalog import (
    HARMLESS,
    HONOURED,
    IN_PART,
    OPTIONS,
    OWN_OPTIONS,
    REFUSED_ON_READ,
    REFUSED_ON_WRITE,
    STATUSES,
    TableOption,
    find_option,
    nearest_key,
)
from paimon_cli.options.option_text import parse_duration
from paimon_cli.options.table_options import TYPED_OPTIONS, TableOptions
from tests.vectors import load

KEYS = Path(__file__).parent / "paimon_option_keys.tsv"
AS_DOCUMENTED = {
    **{"Duration.ofSeconds(0)": "0 ms", "PT0S": "0 ms", "PT0.01S": "10 ms", "PT10S": "10 s", "PT30M": "30 min", "PT1H": "1 h"},
    "{}": "",
}
"""What Java's objects print, and how Paimon's documentation writes it."""
READING, WRITING = {option_catalog.Operation.OPEN, option_catalog.Operation.SCAN}, {"write", "compact", "commit", "tag"}


def known(key: str) -> TableOption:
    option = find_option(key)
    assert option is not None, key
    return option


def listed_keys() -> list[tuple[str, str]]:
    lines = KEYS.read_text().splitlines()
    return [(key, pages) for key, _, pages in (line.partition("\t") for line in lines if not line.startswith("#"))]


def test_no_key_of_paimon_is_missing() -> None:
    """Documented or not: every key of the commit that the file names, as a row of its own."""
    keys = [key for key, _ in listed_keys()]
    assert len(keys) == 548 and sum("core" in pages for _, pages in listed_keys()) == 320
    assert [key for key in keys if key not in {option.key for option in OPTIONS}] == []


def test_every_core_option_is_as_java_has_it() -> None:
    for line in load("core_options"):
        key, out = line["in"]["key"], line["out"]
        option = known(key)
        default = AS_DOCUMENTED.get(out["default"], out["default"])
        assert (option.type, option.default, option.immutable) == (out["type"], default, out.get("immutable", False))
        assert list(option.choices) == out.get("values", [])


def test_every_option_has_a_status() -> None:
    for option in OPTIONS:
        check_status(option)


def check_status(option: TableOption) -> None:
    assert option.description and option.group and option.status in STATUSES
    assert option.reason or option.status == HONOURED
    assert option.since is not None
    places = {gate.at for gate in option.gates}
    assert places <= READING | WRITING
    if option.status == REFUSED_ON_READ:
        assert places & READING
    elif option.status == REFUSED_ON_WRITE:
        assert places & WRITING and not places & READING
    else:
        assert option.status in (HONOURED, IN_PART, HARMLESS) and not places & READING
        assert not places or option.choices
    for place in places:
        assert option.passes(place, option.default or "") and not option.passes(place, "something else")


def test_keys_are_sorted_and_their_own() -> None:
    keys = [option.key for option in OPTIONS]
    assert keys == sorted(set(keys))


def test_options_that_the_engine_reads_have_a_status() -> None:
    """The catalog must not call an option honoured if nothing uses its typed attribute."""
    typed = {option.key for option in TYPED_OPTIONS.values()}
    assert {key for key in typed if find_option(key) is None} == set()
    for key in ("manifest.compression", "file.block-size"):
        assert known(key).status == IN_PART


def test_options_of_this_tool_are_found_but_are_not_those_of_paimon() -> None:
    own = known("commit.data-conflict-check")
    assert own in OWN_OPTIONS and own not in OPTIONS
    assert TableOptions({}).commit_data_conflict_check == own.default
    for choice in own.choices:
        assert TableOptions({own.key: choice}).commit_data_conflict_check == choice


def test_older_keys_and_families_lead_to_their_option() -> None:
    assert known("write.compaction-skip").key == "write-only"
    assert find_option("compaction.no-such-thing") is None
    assert known("fields.a.b.aggregate-function").key == "fields.<column>.aggregate-function"
    assert known("fields.default-aggregate-function").key == "fields.default-aggregate-function"
    assert known("file-index.bloom-filter.v.fpp").key == "file-index.bloom-filter.<column>.fpp"
    assert known("parquet.page.size").status == HARMLESS
    assert find_option("fields.") is None and find_option("parquet.") is None


def test_the_nearest_key_is_one_that_can_be_typed() -> None:
    assert nearest_key("merge-enginee", 0.85) == "merge-engine"
    assert nearest_key("owner", 0.85) is None
    assert "<" not in (nearest_key("fields.<colum>.distinct", 0.5) or "")


@pytest.mark.parametrize(
    ("at", "options", "named"),
    [
        ("open", {"bucket": "1", "chain-table.enabled": "TRUE"}, "chain-table.enabled"),
        ("open", {"type": "format-table"}, "type"),
        ("scan", {"scan.bucket": "0"}, "scan.bucket"),
        ("scan", {"scan.fallback-branch": "b"}, "scan.fallback-branch"),
        ("write", {"record-level.time-field-type": "millis-long"}, "record-level.time-field-type"),
        ("commit", {"metadata.iceberg.storage": "hadoop-catalog"}, "metadata.iceberg.storage"),
        ("tag", {"tag.callbacks": "a.B"}, "tag.callbacks"),
    ],
)
def test_work_is_refused_by_the_option_that_stands_in_its_way(at: str, options: dict[str, str], named: str) -> None:
    with pytest.raises(NotSupported) as refused:
        option_catalog.refuse(at, options, "t")
    assert f"{named}=" in refused.value.what and refused.value.why == known(named).reason
    assert refused.value.details == {"option": named, "value": options[named]} and len(option_catalog.refusals(at, options)) == 1


def test_balancing_the_partitions_of_append_tables_is_nothing_to_tables_with_keys() -> None:
    options = {"partition.sink-strategy": "partition_dynamic"}
    assert len(option_catalog.refusals("write", options)) == 1
    assert option_catalog.refusals("write", options, has_keys=True) == []


@pytest.mark.parametrize(
    ("at", "options"),
    [
        ("open", {"type": "TABLE", "branch": " main ", "data-file.external-paths": "", "row-tracking.enabled": "true"}),
        ("open", {"my.own.key": "x", "changelog-producer": "lookup", "deletion-vectors.enabled": "true"}),
        ("write", {"bucket-function.type": "MOD", "deletion-vectors.enabled": "false"}),
        ("compact", {"changelog-producer": "input", "bucket-function.type": "hive"}),
        ("commit", {"metadata.iceberg.storage": "Disabled", "commit.callbacks": ""}),
    ],
)
def test_options_without_effect_are_accepted(at: str, options: dict[str, str]) -> None:
    option_catalog.refuse(at, options, "t")


def test_defaults_are_written_as_paimon_documents_them() -> None:
    """Not as Java prints its objects: PT1H, {}."""
    as_printed_by_java = re.compile(r"-?PT?\d|Duration\.|\{\}$")
    assert [option.key for option in OPTIONS if option.default and as_printed_by_java.match(option.default)] == []
    durations = [option.default for option in OPTIONS if option.type == "Duration" and option.default is not None]
    assert len(durations) > 10 and all(parse_duration(text) >= 0 for text in durations)
