"""Finding snapshots, even if hints are wrong, and while other jobs delete some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile, NotFound, StorageUnavailable
from paimon_cli.history.snapshot_history import SnapshotHistory, gaps
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus

SAMPLE = Snapshot(1, 0, "b", "d", "me", 1, "APPEND", 0, 0, 0)


class CountingStorage(LocalStorage):
    """Counts calls; its listings may be stale: without the newest `hidden` snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.hidden = 0

    def read_bytes(self, path: str) -> bytes:
        self.calls.append("read " + path.rpartition("/")[2])
        return super().read_bytes(path)

    def exists(self, path: str) -> bool:
        self.calls.append("exists " + path.rpartition("/")[2])
        return super().exists(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        self.calls.append("list")
        found = sorted(super().list_directory(path), key=lambda status: (len(status.name), status.name))
        return found[: len(found) - self.hidden]


def history(folder: Path, ids: list[int], latest: str | None = None, earliest: str | None = None) -> SnapshotHistory:
    directory = folder / "snapshot"
    directory.mkdir(parents=True, exist_ok=True)
    for number in ids:
        text = replace(SAMPLE, id=number, time_millis=number * 100).to_json()
        (directory / f"snapshot-{number}").write_text(text)
    for name, hint in (("LATEST", latest), ("EARLIEST", earliest)):
        if hint is not None:
            (directory / name).write_text(hint)
    return SnapshotHistory(CountingStorage(), TableLayout(str(folder)))


def test_a_snapshot_is_parsed_once_and_again_when_its_file_is_another(tmp_path: Path) -> None:
    """A commit reads the newest file several times, and another table may have its place meanwhile."""
    past = history(tmp_path, [1, 2], latest="2")
    found = past.find(2)
    assert found is not None and past.latest() is found
    history(tmp_path, [3], latest="3")
    assert past.latest() == replace(SAMPLE, id=3, time_millis=300) and past.find(2) == found
    (tmp_path / "snapshot/snapshot-2").write_text(replace(SAMPLE, id=2, commit_user="you").to_json())
    assert past.find(2) == replace(SAMPLE, id=2, commit_user="you")
    (tmp_path / "snapshot/snapshot-1").write_text(replace(SAMPLE, id=2, commit_user="you").to_json())
    with pytest.raises(DamagedFile, match="it holds the id 2"):
        past.find(1)


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("latest", ["9", "8", "7", "4", "3", "12", None, "", "x", "0", "-1", "99999999999999999999999", "9\n"])
def test_the_latest_snapshot_is_found_whatever_the_hint_says(tmp_path: Path, latest: str | None, is_remote: bool) -> None:
    past = history(tmp_path, list(range(4, 10)), latest=latest)
    past.storage.is_remote = is_remote  # type: ignore[misc]
    assert past.latest_id() == 9
    assert past.latest() == replace(SAMPLE, id=9, time_millis=900)


@pytest.mark.parametrize("hint", ["LATEST", "EARLIEST"])
def test_a_hint_that_cannot_be_read_is_ignored(tmp_path: Path, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    past = history(tmp_path, list(range(4, 10)))
    (tmp_path / "snapshot" / hint).mkdir()
    assert (past.earliest_id(), past.latest_id(), past.latest_hint()) == (4, 9, None)

    def refuse(self: LocalStorage, path: str) -> bytes:
        raise StorageUnavailable(f"cannot read {path}")

    monkeypatch.setattr(CountingStorage, "read_bytes", refuse)
    assert (past.earliest_id(), past.latest_id()) == (4, 9)
    with pytest.raises(StorageUnavailable):
        past.latest_hint()  # a caller that wants the hint itself, after a rollback, must see the failure


def test_a_good_hint_costs_three_calls(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(1, 100)), latest="99")
    assert past.latest_id() == 99
    assert past.storage.calls == ["read LATEST", "exists snapshot-99", "exists snapshot-100"]  # type: ignore[attr-defined]


def test_a_very_stale_hint_leads_to_a_listing(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(1, 500)), latest="1")
    assert past.latest_id() == 499
    assert len(past.storage.calls) < 50 and "list" in past.storage.calls  # type: ignore[attr-defined]


def test_a_stale_listing_does_not_hide_new_snapshots(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(1, 10)))
    past.storage.hidden = 3  # type: ignore[attr-defined]
    assert past.latest_id() == 9


@pytest.mark.parametrize("meanwhile", ["forgotten", "published"])
def test_a_snapshot_that_was_fetched_ahead_is_not_planned_with_after_a_commit(tmp_path: Path, meanwhile: str) -> None:
    class Remote(CountingStorage):
        is_remote = True

    past = replace(history(tmp_path, [1], latest="1"), storage=Remote())
    past.fetch_latest()
    assert past.latest_to_plan() == replace(SAMPLE, id=1, time_millis=100)
    past.fetch_latest()
    begun = past._latest_ahead._begun
    assert begun is not None and begun[1].result() is not None
    history(tmp_path, [1, 2], latest="2")
    if meanwhile == "forgotten":
        past.forget_fetched()
    else:
        past.remembered(past.find(2))
    assert past.latest_to_plan() == replace(SAMPLE, id=2, time_millis=200)


@pytest.mark.parametrize("earliest", ["4", "5", "6", "7", "9", "2", "17", None, "x"])
def test_the_earliest_snapshot_is_found_whatever_the_hint_says(tmp_path: Path, earliest: str | None) -> None:
    past = history(tmp_path, list(range(4, 10)), earliest=earliest)
    assert past.earliest_id() == 4


def test_nothing_is_searched_before_the_first_snapshot(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2, 3], earliest="1")
    assert past.earliest_id() == 1
    assert past.storage.calls == ["read EARLIEST", "exists snapshot-1"]  # type: ignore[attr-defined]


def test_a_table_without_snapshots(tmp_path: Path) -> None:
    past = SnapshotHistory(LocalStorage(), TableLayout(str(tmp_path)))
    assert (past.latest_id(), past.earliest_id(), past.latest(), past.ids()) == (None, None, None, [])
    assert list(past.newest_first()) == [] and past.at_time(10**18) is None
    with pytest.raises(NotFound, match="has no snapshots yet"):
        past.get(1)


def test_foreign_names_are_ignored(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2])
    for name in (".snapshot-3.uuid.tmp", "snapshot-x", "snapshot-", "snapshot-3.bak", "snapshot-03", "snapshot-00", "other"):
        (tmp_path / "snapshot" / name).write_text("")
    assert past.ids() == [1, 2] and past.latest_id() == 2


def test_a_missing_snapshot_says_what_there_is(tmp_path: Path) -> None:
    past = history(tmp_path, [4, 5, 6])
    with pytest.raises(NotFound, match="it has probably expired: the table has snapshots 4 to 6"):
        past.get(3)
    with pytest.raises(NotFound) as failure:
        past.get(7)
    assert failure.value.why == "the table has snapshots 4 to 6" and failure.value.exit_code == 3


def test_a_file_that_holds_another_snapshot_is_damaged(tmp_path: Path) -> None:
    past = history(tmp_path, [1])
    (tmp_path / "snapshot" / "snapshot-2").write_text((tmp_path / "snapshot" / "snapshot-1").read_text())
    with pytest.raises(DamagedFile, match="holds the id 1"):
        past.get(2)


def test_the_newest_snapshot_of_a_good_hint_costs_three_calls(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2], latest="2")
    newest = past.latest()
    assert newest is not None and newest.id == 2
    assert past.storage.calls == ["read LATEST", "exists snapshot-3", "read snapshot-2"]  # type: ignore[attr-defined]


def test_newest_first_reads_no_more_than_asked_for(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(1, 1000)), latest="999")
    assert [snapshot.id for snapshot in past.newest_first(3)] == [999, 998, 997]
    assert len(past.storage.calls) == 5  # type: ignore[attr-defined]
    assert list(past.newest_first(0)) == []


def test_newest_first_walks_over_gaps_and_stops_at_expired_ones(tmp_path: Path) -> None:
    past = history(tmp_path, [2, 5, 6, 7])
    assert [snapshot.id for snapshot in past.newest_first()] == [7, 6, 5, 2]
    walk = past.newest_first()
    assert next(walk).id == 7
    for number in (2, 5, 6):
        (tmp_path / "snapshot" / f"snapshot-{number}").unlink()
    assert list(walk) == []


def test_the_snapshot_of_a_time(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(3, 40)))
    for millis, expected in ((299, None), (300, 3), (301, 3), (399, 3), (400, 4), (3_850, 38), (10**9, 39)):
        found = past.at_time(millis)
        assert (found.id if found else None) == expected


def test_the_latest_is_searched_again_when_it_vanishes(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2, 3], latest="3")
    storage = past.storage
    read = storage.read_bytes

    def roll_back_first(path: str) -> bytes:
        if path.endswith("snapshot-3"):
            (tmp_path / "snapshot" / "snapshot-3").unlink(missing_ok=True)
        return read(path)

    storage.read_bytes = roll_back_first  # type: ignore[method-assign]
    latest = past.latest()
    assert latest is not None and latest.id == 2


def test_gaps_and_likely_ids(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2, 5, 300_000_000])
    assert list(gaps(past.ids())) == [range(3, 5), range(6, 300_000_000)]
    assert past.likely_ids(1, 6) == [1, 2, 3, 4, 5, 6], "a listing may be stale"
    assert past.likely_ids(1, 300_000_000) == [1, 2, 3, 4, 5, 300_000_000]
    assert past.likely_ids(4, 3) == []


# ---- walks, hints and listings that do not tell all -------------------------------------------------------------------------


def ids_of(snapshots: Iterable[Snapshot]) -> list[int]:
    return [snapshot.id for snapshot in snapshots]


@pytest.mark.parametrize(
    ("ids", "earliest", "walk"),
    [
        ([1, 2, 3], None, [3, 2, 1]),
        ([1, 2, 3], "1", [3, 2, 1]),
        ([1, 2, 3], "2", [3, 2]),
        ([1, 3, 4], "1", [4, 3]),
        ([3, 4, 5], "3", [5, 4, 3]),
        ([3, 4, 5], None, [5, 4, 3]),
        ([5], "5", [5]),
    ],
)
def test_an_unbroken_walk_ends_at_the_earliest_snapshot_or_a_gap(
    tmp_path: Path, ids: list[int], earliest: str | None, walk: list[int]
) -> None:
    past = history(tmp_path, ids, earliest=earliest)
    newest, calls = past.latest(), past.storage.calls  # type: ignore[attr-defined]
    calls.clear()
    assert ids_of(past.unbroken(newest)) == walk
    assert list(past.unbroken(None)) == []
    assert calls.count("read EARLIEST") == 1, "what it says later does not matter"
    assert f"read snapshot-{walk[-1] - 1}" not in calls or walk[-1] - 1 not in ids


def test_snapshots_that_keep_vanishing_are_given_up(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2], latest="2")
    reads: list[str] = []

    def gone(path: str) -> bytes:
        reads.append(path)
        if path.endswith("LATEST"):
            return b"2"
        raise FileNotFoundError(path)

    past.storage.read_bytes = gone  # type: ignore[method-assign]
    with pytest.raises(
        NotFound, match=r"the newest snapshot of .* disappears each time it is read: another job is deleting snapshots"
    ):
        past.latest()
    assert sum(path.endswith("snapshot-2") for path in reads) == 4, "by the hint, then three times"


def test_a_listing_that_shows_nothing_is_not_believed_where_the_hints_say_otherwise(tmp_path: Path) -> None:
    past = history(tmp_path, [4, 5, 6], earliest="4")
    past.storage.hidden = 9  # type: ignore[attr-defined]
    assert past.ids() == [] and past.latest_id() == 6 and past.earliest_id() == 4
    (tmp_path / "snapshot/EARLIEST").unlink()
    assert past.latest_id() is None and past.earliest_id() is None
    first = history(tmp_path / "first", [1, 2])
    first.storage.hidden = 9  # type: ignore[attr-defined]
    assert first.latest_id() == 2, "a new table begins with 1"
    only = history(tmp_path / "only", [1])
    only.storage.hidden = 9  # type: ignore[attr-defined]
    assert only.latest_id() == 1


@pytest.mark.parametrize(("behind", "listed"), [(31, False), (32, True)])
def test_a_hint_is_followed_up_to_a_limit_and_then_the_directory_is_listed(tmp_path: Path, behind: int, listed: bool) -> None:
    past = history(tmp_path, list(range(1, 2 + behind)), latest="1")
    assert past.latest_id() == 1 + behind and ("list" in past.storage.calls) == listed  # type: ignore[attr-defined]


def test_the_latest_hint_is_returned_unchecked(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2], latest="7")
    assert past.latest_hint() == 7
    for text in ("", "x", "-1"):
        (tmp_path / "snapshot/LATEST").write_text(text)
        assert past.latest_hint() is None
    (tmp_path / "snapshot/LATEST").unlink()
    assert past.latest_hint() is None

    def away(path: str) -> bytes:
        raise StorageUnavailable("the storage is away")

    past.storage.read_bytes = away  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        past.latest_hint()
    assert past.latest_id() == 2, "who only looks for the newest snapshot does without"


def test_a_missing_snapshot_is_reported_with_its_number_and_a_command(tmp_path: Path) -> None:
    past = history(tmp_path / "a b", [4, 5])
    there = "the table has snapshots 4 to 5"
    expired = f"it has probably expired: {there}"
    for number, why in ((3, expired), (1, expired), (6, there), (0, there), (-1, there)):
        error = past.missing(number)
        assert (error.why, error.details) == (why, {"snapshot_id": number})
        assert error.hint == f"paimon-cli snapshots ls {past.layout.argument}"
    assert history(tmp_path / "one", [4]).missing(5).why == "the table has only snapshot 4"
    none = history(tmp_path / "none", []).missing(1)
    assert (none.why, none.hint, none.details) == ("the table has no snapshots yet", "write to it first", {"snapshot_id": 1})


def test_resurrected_snapshots_are_not_part_of_the_history(tmp_path: Path) -> None:
    past = history(tmp_path, [2, 3, 6, 7, 8], earliest="7")
    assert (past.resurrected_ids(), past.ids()) == ([2, 3], [6, 7, 8])
    assert past.in_history(3) is None and past.in_history(9) is None
    found = past.in_history(6)
    assert found is not None and found.id == 6
    with pytest.raises(NotFound, match="probably expired"):
        past.get(2)
    for hint in ("5", "9", "x"):
        (tmp_path / "snapshot/EARLIEST").write_text(hint)
        assert (past.resurrected_ids(), past.ids()) == ([], [2, 3, 6, 7, 8]), "a hint at nothing tells nothing"


def test_a_time_is_searched_among_the_remaining_snapshots(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(1, 10)))
    find = type(past).find
    (tmp_path / "snapshot/snapshot-5").unlink()
    listed = list(range(1, 10))
    past.storage.list_directory = lambda path: [  # type: ignore[method-assign]
        FileStatus(f"{path}/snapshot-{number}", f"snapshot-{number}", 1, False, 0) for number in listed
    ]
    found = past.at_time(700)
    assert found is not None and found.id == 7 and find(past, 5) is None
    newest = past.at_time(899)
    assert newest is not None and newest.id == 8


def test_a_walk_continues_below_a_gap_although_the_next_one_vanishes(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2, 5, 8])
    walk = past.newest_first()
    assert next(walk).id == 8
    listing = past.storage.list_directory(past.layout.snapshot_directory)
    past.storage.list_directory = lambda path: listing  # type: ignore[method-assign]
    (tmp_path / "snapshot/snapshot-5").unlink()
    assert ids_of(walk) == [2, 1]


def test_likely_numbers_end_where_gaps_are_too_long(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 1002, 2004])
    assert past.likely_ids(1, 1001) == list(range(1, 1002)), "a short range needs no listing"
    assert past.likely_ids(1, 1002) == list(range(1, 1003)), "a gap of a thousand may be hidden"
    assert past.likely_ids(1, 2004) == [*range(1, 1003), 2004], "one more may not"
