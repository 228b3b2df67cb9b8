"""What `changelog read` shows: the changes of all commits, overwrites and expired snapshots included, as a stream needs them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.api.table import Table
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.errors import NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.row_scan import FollowedChanges, ReadRequest
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from tests.tables import compact, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "p": "STRING NOT NULL"}
PRODUCERS = ["input", "lookup", "full-compaction"]
Change = tuple[str, int, str]


def table(folder: Path, producer: str, **options: str) -> TableContext:
    given = {"changelog-producer": producer, **options}
    return make_table(folder / "t", COLUMNS, ["p", "k"], partition_by=["p"], bucket=2, options=given)


def row(key: int, value: str, place: str = "a") -> dict[str, Any]:
    return {"k": key, "v": value, "p": place}


def changes(context: TableContext, begin: int = 1, end: int | None = None) -> list[Change]:
    found = Table.open(context.url).changelog(begin, end).to_arrow()
    return list(zip(*(found.column(name).to_pylist() for name in ("rowkind", "k", "v")), strict=True))


def replayed(complete: list[Change]) -> dict[int, str]:
    state: dict[int, str] = {}
    for kind, key, value in complete:
        if kind in ("-U", "-D"):
            assert state.pop(key) == value
        else:
            state[key] = value
    return state


@pytest.mark.parametrize(
    ("producer", "vectors"), [*((producer, False) for producer in PRODUCERS), ("input", True), ("lookup", True)]
)
def test_overwrites_are_recognised_by_what_they_changed(producer: str, vectors: bool, tmp_path: Path) -> None:
    context = table(tmp_path, producer, **{"deletion-vectors.enabled": str(vectors).lower()})
    write(context, [row(1, "one"), row(2, "two"), row(3, "three", "b")])
    compact(context, strategy="full")
    write(context, [row(1, "one"), row(4, "four")], overwrite=True)
    if producer == "input":
        last = context.snapshots.latest_id() or 0
        assert changes(context, last - vectors) == [("-D", 2, "two"), ("+I", 4, "four")]
    write(context, [row(4, "FOUR")])
    compact(context, strategy="full")
    assert replayed(changes(context)) == {1: "one", 4: "FOUR", 3: "three"} == {r["k"]: r["v"] for r in rows(context)}
    # the increment leaves overwrites out, as Paimon does
    newest = context.snapshots.latest_id()
    increment = Table.open(context.url).scan(incremental=f"0..{newest}", row_kind=True).to_arrow()
    assert ("-D", 2) not in set(zip(*(increment.column(name).to_pylist() for name in ("rowkind", "k")), strict=True))


@pytest.mark.parametrize("vectors", [False, True])
def test_overwrites_of_tables_without_changelog_are_shown_if_an_option_says_so(vectors: bool, tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": str(vectors).lower()}
    context = table(tmp_path, "none", **options)
    write(context, [row(1, "one"), row(2, "two"), row(3, "three", "b")])
    write(context, [row(1, "one"), row(4, "four")], overwrite=True)
    write(context, [row(4, "FOUR")])
    appends = {1: "one", 2: "two", 3: "three", 4: "FOUR"}
    assert {key: value for _, key, value in changes(context)} == appends
    opened = Table.open(context.url, {"streaming-read-overwrite": "true"})
    found = opened.changelog(1).to_arrow()
    shown = list(zip(*(found.column(name).to_pylist() for name in ("rowkind", "k", "v")), strict=True))
    assert sorted(shown[3:]) == [("+I", 4, "FOUR"), ("+I", 4, "four"), ("-D", 2, "two")]
    assert shown[-1] == ("+I", 4, "FOUR")


def test_overwrites_of_append_tables_are_shown_if_an_option_says_so(tmp_path: Path) -> None:
    opened = Table.create(tmp_path / "t", columns=["k INT", "v STRING"])
    opened.write(pa.table({"k": pa.array([1, 2, 3], pa.int32()), "v": ["one", "two", "three"]}))
    opened.delete(where="k = 2")
    opened.write(pa.table({"k": pa.array([1, 5], pa.int32()), "v": ["one", "five"]}), overwrite=True)
    assert opened.changelog(1).count() == 3
    found = Table.open(opened.url, {"streaming-read-append-overwrite": "true"}).changelog(1).to_arrow().to_pylist()
    assert [(one["rowkind"], one["k"]) for one in found[:3]] == [("+I", 1), ("+I", 2), ("+I", 3)]
    assert [(one["rowkind"], one["k"]) for one in found[3:]] == [("-D", 2), ("-D", 3), ("+I", 5)]
    keyed = make_table(tmp_path / "keyed", COLUMNS, ["k"], options={"streaming-read-append-overwrite": "true"})
    write(keyed, [row(1, "one")])
    write(keyed, [row(2, "two")], overwrite=True)
    assert changes(keyed) == [("+I", 1, "one")]


def test_changes_outlive_their_snapshots(tmp_path: Path) -> None:
    context = table(tmp_path, "input", **{"changelog.num-retained.max": "100", "changelog.time-retained": "2 h"})
    for number in range(6):
        write(context, [row(number % 3, f"{number}")], compact="none")
    complete = changes(context)
    expire_snapshots(context, Retention(2, 2, 0, None))
    assert context.snapshots.ids() == [5, 6] and changes(context) == complete and len(complete) == 6
    write(context, [row(9, "nine")], overwrite=True)
    expire_snapshots(context, Retention(1, 1, 0, None))
    with pytest.raises(NotFound, match="the rows that snapshot 7 overwrote have expired"):
        changes(context)
    assert changes(context, 1, 6) == complete


def test_changes_that_have_expired_are_missed(tmp_path: Path) -> None:
    context = table(tmp_path, "input")
    for number in range(4):
        write(context, [row(number, f"{number}")], compact="none")
    expire_snapshots(context, Retention(2, 2, 0, None))
    with pytest.raises(NotFound, match=r"no snapshot 1 .* it has probably expired"):
        changes(context)
    assert changes(context, 3) == [("+I", 2, "2"), ("+I", 3, "3")]


def test_changes_are_followed_until_the_last_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, "input")
    write(context, [row(0, "0")])
    waits = itertools.count(1)

    def wait(seconds: float) -> None:
        write(context, [row(next(waits), f"{seconds}")], compact="none")

    opened = open_table(locate_table(context.url))
    monkeypatch.setattr(type(opened.clock), "sleep", lambda self, seconds: wait(seconds))
    followed = FollowedChanges(opened, ReadRequest(columns="k,v", row_kind=True), 1, 3, 0.5)
    assert [field.name for field in followed.fields] == ["rowkind", "k", "v"]
    found = [tuple(r.values()) for batch in followed.rows() for r in batch.to_pylist()]
    assert found == [("+I", 0, "0"), ("+I", 1, "0.5"), ("+I", 2, "0.5")]
    limited = FollowedChanges(opened, ReadRequest(row_kind=True, limit=4), 1)
    assert sum(batch.num_rows for batch in limited.rows()) == 4


def test_changelog_files_are_listed(tmp_path: Path) -> None:
    context = table(tmp_path, "full-compaction")
    write(context, [row(1, "one"), row(2, "two", "b")], compact="none")
    opened = Table.open(context.url)
    assert opened.files(kind="changelog") == []
    compact(context, strategy="full")
    write(context, [row(1, "ONE")], compact="none")
    found = opened.files(kind="changelog")
    assert [(file.partition, file.rows, file.level, file.source) for file in found] == [
        ("p=a", 1, 5, "APPEND"),
        ("p=b", 1, 5, "APPEND"),
    ]
    assert all(file.file.startswith("changelog-") for file in found)
    assert opened.files(kind="changelog", snapshot=2, partition={"p": "b"}) == found[1:]
    assert opened.files(kind="changelog", snapshot=3) == []
