"""`blame` as moments: at which commits the rows of keys changed for readers, and what they saw."""

from __future__ import annotations

from pathlib import Path

from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_partitions import drop_partitions
from paimon_cli.read.key_history import key_history, key_predicate
from tests.tables import compact, make_table, write

COLUMNS = {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def made(folder: Path) -> TableContext:
    return make_table(folder / "t", COLUMNS, ["p", "k"], ["p"], options={"write-only": "true"})


def test_a_row_that_becomes_what_it_was_has_changed_again(tmp_path: Path) -> None:
    context = made(tmp_path)
    for value in ("a", "b", "a"):
        write(context, [{"p": 1, "k": 7, "v": value}])
    compact(context, strategy="full")
    found = key_history(context, key_predicate(context, {"k": "7"})).moments
    assert [(m.snapshot_id, m.has_changed, m.seen[0]["v"]) for m in found] == [
        (1, True, "a"),
        (2, True, "b"),
        (3, True, "a"),
        (4, False, "a"),
    ]


def test_a_commit_that_only_removes_versions_is_a_moment(tmp_path: Path) -> None:
    context = made(tmp_path)
    write(context, [{"p": 1, "k": 7, "v": "a"}, {"p": 2, "k": 7, "v": "b"}])
    live = context.manifests.live_entries(context.snapshots.get(1))
    (gone,) = (entry.partition for entry in live if context.partition_path_of(entry.partition) == "p=1/")
    drop_partitions(context, [gone], 1)
    found = key_history(context, key_predicate(context, {"k": "7"})).moments
    assert [(m.snapshot_id, m.has_changed, [row["v"] for row in m.seen]) for m in found] == [
        (1, True, ["a", "b"]),
        (2, True, ["b"]),
    ]


def test_each_version_of_several_keys_has_the_row_of_its_own(tmp_path: Path) -> None:
    """The condition meets keys that share some of their columns."""
    context = made(tmp_path)
    write(context, [{"p": p, "k": k, "v": f"{p}{k}"} for p in (1, 2) for k in (1, 2, 3)])
    write(context, [{"p": 1, "k": 2, "v": "new", "_op": "+I"}, {"p": 2, "k": 2, "v": "gone", "_op": "-D"}])
    for key in ({"p": "1"}, {"k": "2"}):
        versions = key_history(context, key_predicate(context, key)).versions
        assert len(versions) == 4
        for version in versions:
            assert version.values is not None
            assert version.seen == (None if version.kind == "-D" else version.values)
