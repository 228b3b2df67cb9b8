"""Which snapshots there are, whatever the hints say and whoever deletes them meanwhile."""

from __future__ import annotations

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


@pytest.mark.parametrize("latest", ["9", "7", "3", "12", None, "", "x", "0", "-1", "99999999999999999999999", "9\n"])
def test_the_latest_snapshot_is_found_whatever_the_hint_says(tmp_path: Path, latest: str | None) -> None:
    past = history(tmp_path, list(range(4, 10)), latest=latest)
    assert past.latest_id() == 9
    assert past.latest() == replace(SAMPLE, id=9, time_millis=900)


@pytest.mark.parametrize("hint", ["LATEST", "EARLIEST"])
def test_a_hint_that_cannot_be_read_is_none(tmp_path: Path, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    past = history(tmp_path, list(range(4, 10)))
    (tmp_path / "snapshot" / hint).mkdir()
    assert (past.earliest_id(), past.latest_id(), past.latest_hint()) == (4, 9, None)

    def refuse(self: LocalStorage, path: str) -> bytes:
        raise StorageUnavailable(f"cannot read {path}")

    monkeypatch.setattr(CountingStorage, "read_bytes", refuse)
    assert (past.earliest_id(), past.latest_id()) == (4, 9)
    with pytest.raises(StorageUnavailable):
        past.latest_hint()  # whoever asks for the hint itself, after a roll-back, must know


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


@pytest.mark.parametrize("earliest", ["4", "2", "17", None, "x"])
def test_the_earliest_snapshot_is_found_whatever_the_hint_says(tmp_path: Path, earliest: str | None) -> None:
    past = history(tmp_path, list(range(4, 10)), earliest=earliest)
    assert past.earliest_id() == 4


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


def test_newest_first_reads_no_more_than_asked_for(tmp_path: Path) -> None:
    past = history(tmp_path, list(range(1, 1000)), latest="999")
    assert [snapshot.id for snapshot in past.newest_first(3)] == [999, 998, 997]
    assert len(past.storage.calls) == 6  # type: ignore[attr-defined]
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


def test_the_latest_is_looked_for_again_when_it_vanishes(tmp_path: Path) -> None:
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
