"""Staged commits come back exactly from their file, and no other text passes for one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import (
    CommitMessage,
    DataFileMeta,
    DeletionVectorRange,
    FileChanges,
    IndexFileMeta,
    SimpleStats,
)
from paimon_cli.metadata.staged_commit import COMMITTED, StagedCommit, check_records, record_from_json, record_to_json
from tests.commit.commit_tables import data_file

numbers = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1, max_size=8).filter(
    lambda text: text not in (".", "..")
)
rows = st.binary(max_size=24)
stats = st.builds(SimpleStats, rows, rows, st.none() | st.lists(st.none() | numbers, max_size=3).map(tuple))
files = st.builds(
    DataFileMeta,
    names,
    numbers,
    numbers,
    rows,
    rows,
    stats,
    stats,
    numbers,
    numbers,
    numbers,
    st.integers(0, 5),
    st.lists(names, max_size=2).map(tuple),
    st.none() | numbers,
    st.none() | numbers,
    st.none() | rows,
    st.none() | st.sampled_from([0, 1]),
    st.none() | st.lists(names, max_size=2).map(tuple),
)
ranges = st.builds(DeletionVectorRange, names, numbers, numbers, st.none() | numbers)
indexes = st.builds(
    IndexFileMeta, st.sampled_from(["HASH", "DELETION_VECTORS"]), names, numbers, numbers, st.none() | st.lists(ranges).map(tuple)
)
some_files = st.lists(files, max_size=2).map(tuple)
some_indexes = st.lists(indexes, max_size=1).map(tuple)
changes = st.builds(FileChanges, some_files, some_files, some_files, some_indexes, some_indexes)
messages = st.builds(CommitMessage, rows, numbers, numbers, changes, changes, read_snapshot_id=st.none() | numbers)
STAGED = StagedCommit(
    table="/wh/shop.db/orders",
    schema_id=3,
    schema_time_millis=1_700_000_000_000,
    commit_user="jürgen\ud800",
    commit_identifier=2**63 - 2,
    read_snapshot_id=None,
    data_conflict_check="bucket",
    messages=(CommitMessage(b"\0\xff", 1, 2, append=FileChanges(added=(data_file("data-1.parquet"),))),),
    overwrite=True,
    static_partition=("dt=a=b", "hour=7"),
)


@settings(max_examples=25)
@given(st.lists(messages, max_size=2).map(tuple))
def test_messages_come_back_as_they_were(given_messages: tuple[CommitMessage, ...]) -> None:
    staged = replace(STAGED, messages=given_messages)
    assert StagedCommit.from_json(staged.to_json()) == staged


def test_everything_else_comes_back_too() -> None:
    assert StagedCommit.from_json(STAGED.to_json().encode()) == STAGED
    decided = replace(STAGED, state=COMMITTED, snapshot_ids=(4, 5))
    assert StagedCommit.from_json(decided.to_json()) == decided


@pytest.mark.parametrize(
    ("values", "version"),
    [
        (None, 2),
        ({"a": "1", "b": "x=y"}, 2),
        ({"a": None, "b": "1"}, 3),
        ({"a": "__NULL__"}, 3),
        ({"a": None, "b": "__NULL__"}, 3),
    ],
)
def test_a_static_partition_comes_back(values: dict[str, str | None] | None, version: int) -> None:
    staged = STAGED.with_static_values(values, "__NULL__")
    assert json.loads(staged.to_json())["version"] == version  # the newer one only where earlier readers would be wrong
    assert StagedCommit.from_json(staged.to_json()).static_values("__NULL__") == values


def test_a_static_partition_of_version_2() -> None:
    old = replace(STAGED, static_partition=("a=__NULL__", "b=1"))
    assert json.loads(old.to_json())["version"] == 2
    assert StagedCommit.from_json(old.to_json()).static_values("__NULL__") == {"a": None, "b": "1"}


def test_bytes_are_hex_and_nothing_is_lost_on_the_way_through_other_tools() -> None:
    document = json.loads(STAGED.to_json())
    assert document["content"]["messages"][0]["partition"] == "00ff"
    assert StagedCommit.from_json(json.dumps(document, indent=7, sort_keys=True)) == STAGED


def test_every_cut_and_every_changed_character_is_found() -> None:
    text = STAGED.to_json()
    for length in range(0, len(text) - 1, 97):
        with pytest.raises(DamagedFile, match=r"f\.stage"):
            StagedCommit.from_json(text[:length], "f.stage")
    for place in [i for i, character in enumerate(text) if character.isalnum()][::31]:
        other = "1" if text[place] != "1" else "2"
        with pytest.raises(DamagedFile):
            StagedCommit.from_json(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "Other"}, "not of kind"),
        ({"version": 1}, "version 1"),
        ({"sha256": "0"}, "checksum"),
        ({"sha256": None}, "checksum"),
        ({"content": None}, "checksum"),
    ],
)
def test_other_documents(change: dict[str, Any], why: str) -> None:
    with pytest.raises(DamagedFile, match=why) as failure:
        StagedCommit.from_json(json.dumps({**json.loads(STAGED.to_json()), **change}), "f.stage")
    assert failure.value.exit_code == 10


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '"a"', "\xff", "[" * 100_000])
def test_texts_that_are_not_a_staged_commit(text: str) -> None:
    with pytest.raises(DamagedFile):
        StagedCommit.from_json(text, "f.stage")


@pytest.mark.parametrize("name", ["../data", "a/b", "", "..", "a\\b"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    files = (data_file(name),)
    for message in (
        CommitMessage(b"", 0, 1, append=FileChanges(added=files)),
        CommitMessage(b"", 0, 1, append=FileChanges(removed=files)),
        CommitMessage(b"", 0, 1, append=FileChanges(changelog=files)),
        CommitMessage(b"", 0, 1, compact=FileChanges(added=files)),
        CommitMessage(b"", 0, 1, compact=FileChanges(removed=files)),
        CommitMessage(b"", 0, 1, compact=FileChanges(changelog=files)),
        CommitMessage(b"", 0, 1, append=FileChanges(added=(replace(data_file("data-1.parquet"), extra_files=(name,)),))),
        CommitMessage(b"", 0, 1, append=FileChanges(added_indexes=(IndexFileMeta("HASH", name, 1, 1, None),))),
        CommitMessage(b"", 0, 1, compact=FileChanges(added_indexes=(IndexFileMeta("HASH", name, 1, 1, None),))),
    ):
        with pytest.raises(DamagedFile, match="must not lead to another directory"):
            StagedCommit.from_json(replace(STAGED, messages=(message,)).to_json())


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize("field", ["schema_id", "commit_identifier", "read_snapshot_id", "snapshot_ids"])
def test_every_number_has_at_most_64_bits(field: str, number: int) -> None:
    changed: dict[str, Any] = {field: (1, number, 2) if field == "snapshot_ids" else number}
    with pytest.raises(DamagedFile, match="more than 64 bits"):
        StagedCommit.from_json(replace(STAGED, **changed).to_json())


@dataclass(frozen=True)
class Inner:
    code: bytes
    marks: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Outer:
    name: str
    flag: bool
    parts: tuple[Inner, ...]


OUTER = Outer("x", True, (Inner(b"\x01", (1, None)), Inner(b"", None)))


def test_records_of_any_shape() -> None:
    json_value = {"name": "x", "flag": True, "parts": [{"code": "01", "marks": [1, None]}, {"code": "", "marks": None}]}
    assert record_to_json(OUTER) == json_value
    assert record_from_json(Outer, json_value) == OUTER


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], "Outer must be an object"),
        ({"name": "x", "flag": True}, "Outer lacks 'parts'"),
        ({"name": "x", "flag": True, "parts": [], "more": 1}, "Outer has an unknown 'more'"),
        ({"name": 1, "flag": True, "parts": []}, "Outer.name must be of type str"),
        ({"name": "x", "flag": 1, "parts": []}, "Outer.flag must be of type bool"),
        ({"name": "x", "flag": True, "parts": {}}, "Outer.parts must be a list"),
        ({"name": "x", "flag": True, "parts": [{"code": "0", "marks": None}]}, r"Outer.parts\[0\].code must be bytes"),
        ({"name": "x", "flag": True, "parts": [{"code": "AB", "marks": None}]}, r"Outer.parts\[0\].code must be bytes"),
        ({"name": "x", "flag": True, "parts": [{"code": 1, "marks": None}]}, r"Outer.parts\[0\].code must be bytes"),
        ({"name": "x", "flag": True, "parts": [{"code": "", "marks": [True]}]}, r"marks\[0\] must be of type int"),
    ],
)
def test_records_that_do_not_fit(content: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        record_from_json(Outer, content)


def test_values_that_are_not_part_of_a_record() -> None:
    with pytest.raises(TypeError, match="float"):
        record_to_json((1.5,))


def test_another_state_than_the_three_is_refused() -> None:
    with pytest.raises(DamagedFile) as found:
        StagedCommit.from_json(replace(STAGED, state="done").to_json(), "f.stage")
    assert "unknown state 'done'" in found.value.why


def test_a_commit_that_gets_another_static_partition_gets_its_version() -> None:
    apart = STAGED.with_static_values({"a": None}, "__NULL__")
    assert apart.version == 3
    assert [apart.with_static_values(values, "__NULL__").version for values in (None, {}, {"a": "1"}, {"a": None})] == [
        2,
        2,
        2,
        3,
    ]


BAD_FILE, BAD_INDEX = replace(data_file("data-1.parquet"), level=-1), IndexFileMeta("HASH", "index-1", -1, 1, None)


@pytest.mark.parametrize(
    "message",
    [
        *(
            CommitMessage(b"", 0, 1, changes if is_append else FileChanges(), FileChanges() if is_append else changes)
            for is_append in (True, False)
            for changes in (FileChanges((BAD_FILE,)), FileChanges((), (BAD_FILE,)), FileChanges((), (), (BAD_FILE,)))
        ),
        CommitMessage(b"", 0, 1, append=FileChanges(added_indexes=(BAD_INDEX,))),
        CommitMessage(b"", 0, 1, compact=FileChanges(added_indexes=(BAD_INDEX,))),
        CommitMessage(b"", 2**40, 1, append=FileChanges(added=(data_file("data-1.parquet"),))),
    ],
)
def test_records_that_no_reader_would_accept_are_refused_before_a_commit(message: CommitMessage) -> None:
    good = CommitMessage(b"", 0, 1, append=FileChanges(added=(data_file("data-2.parquet"),)))
    check_records((good,), "f.stage")
    with pytest.raises(DamagedFile, match=r"f\.stage"):
        check_records((good, message), "f.stage")
