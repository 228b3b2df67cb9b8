"""The ledger: rounds are written once, packed by day, kept 90 days; hostile objects are named and left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile
from paimon_cli.maintain import ledger as ledgers
from paimon_cli.maintain.ledger import DAY_MILLIS, KEPT_MILLIS, MAX_OBJECT, Ledger, LedgerRound, LedgerStep, decode, encode
from paimon_cli.pieces import PIECES
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus
from tests.jobs.test_leases import HandClock

NOW = 1_795_900_000_000
ONE, OTHER = "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", "5f81cac4-a653-4c3a-81be-2e08ec6d07ae"


def done(number: int, started: int = NOW, service: str = ONE) -> LedgerRound:
    step = LedgerStep("shop.orders", "compacted", bytes_read=number, score=None, budget_left=None, why="2 x size ratio")
    return LedgerRound(service, number, started, 0.5, 3, {"files read": 7}, (step,))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(LocalStorage(), str(tmp_path), HandClock(NOW))


def unexpected(error: DamagedFile) -> None:
    pytest.fail(str(error))


def files(ledger: Ledger) -> list[str]:
    return sorted(path.name for path in Path(ledger.directory).iterdir())


def read(ledger: Ledger, since: int = 0) -> tuple[list[LedgerRound], list[DamagedFile]]:
    damaged: list[DamagedFile] = []
    return ledger.rounds(since, damaged.append), damaged


def test_rounds_are_read_as_they_were_written(ledger: Ledger) -> None:
    assert read(ledger) == ([], [])
    for number in (3, 1, 2):
        ledger.add(done(number, NOW + number))
    assert read(ledger) == ([done(number, NOW + number) for number in (1, 2, 3)], [])
    assert [each.number for each in read(ledger, NOW + 2)[0]] == [2, 3]
    ledger.add(done(1, NOW + 1))  # a repetition
    assert len(files(ledger)) == 3


def test_of_too_many_objects_the_newest_are_read_and_all_are_tidied(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "MAX_OBJECTS", 2)
    for number in range(4):
        ledger.add(done(number, NOW + number))
    assert [each.number for each in read(ledger)[0]] == [2, 3]
    replace(ledger, clock=HandClock(NOW + KEPT_MILLIS + 2)).tidy(ONE, unexpected)
    assert [each.number for each in read(ledger)[0]] == [2, 3] and len(files(ledger)) == 1


def test_a_round_that_began_counts_until_it_is_written(ledger: Ledger) -> None:
    begun = done(1)
    ledger.begin(begun)
    ledger.begin(done(2, NOW - DAY_MILLIS))
    assert ledger.rounds(0, unexpected) == []
    assert ledger.spent(0, unexpected) == ([], [done(2, NOW - DAY_MILLIS), begun])
    assert ledger.spent(NOW, unexpected) == ([], [begun])
    ledger.add(replace(begun, seconds=7.0))
    assert ledger.spent(NOW, unexpected) == ([replace(begun, seconds=7.0)], []), "killed before it was deleted"
    ledger.end(begun)
    ledger.end(begun)
    assert [name.partition("-")[0] for name in files(ledger)] == ["begun", "round"]


def test_a_round_that_ends_while_it_is_read_is_not_missed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.begin(done(1))
    listed = LocalStorage.list_directory

    def then_it_ends(storage: LocalStorage, path: str) -> list[FileStatus]:
        found = [*listed(storage, path)]
        monkeypatch.undo()
        ledger.add(done(1))
        ledger.end(done(1))
        return found

    monkeypatch.setattr(LocalStorage, "list_directory", then_it_ends)
    assert ledger.spent(0, unexpected) == ([done(1)], [])


def test_rounds_that_never_ended_are_not_packed_and_go_after_two_days(ledger: Ledger) -> None:
    for number in range(5):
        ledger.begin(done(number, NOW + number))
    ledger.clock.sleep(86_400)
    ledger.tidy(ONE, unexpected)
    assert len(files(ledger)) == 5
    ledger.clock.sleep(86_401)
    ledger.tidy(ONE, unexpected)
    assert files(ledger) == []


def test_a_begin_of_another_round_than_its_name_says_is_damage(ledger: Ledger) -> None:
    ledger.begin(done(1))
    (Path(ledger.directory) / done(1).begun_name).write_bytes(encode([done(2)]))
    damaged: list[DamagedFile] = []
    assert ledger.spent(0, damaged.append) == ([], [])
    assert len(damaged) == 1


def test_past_days_are_packed_and_lose_nothing(ledger: Ledger) -> None:
    yesterday = NOW - DAY_MILLIS
    rounds = [done(number, yesterday + number) for number in range(20)] + [done(number, NOW, OTHER) for number in (1,)]
    for each in rounds:
        ledger.add(each)
    before = read(ledger)
    ledger.tidy(ONE, lambda error: pytest.fail(str(error)))
    assert [name.partition("-")[0] for name in files(ledger)] == ["day", "round"]
    assert read(ledger) == before
    ledger.tidy(ONE, lambda error: pytest.fail(str(error)))
    assert read(ledger) == before
    assert [each.number for each in read(ledger, yesterday + 18)[0]] == [18, 19, 1]


@pytest.mark.parametrize("size", [1, 3])
def test_days_of_many_rounds_have_several_packs(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(PIECES, "packed_rounds", size)
    for day in (1, 2):
        for number in range(8):
            ledger.add(done(number, NOW - day * DAY_MILLIS + number))
    before = read(ledger)
    ledger.tidy(ONE, unexpected)
    assert read(ledger) == before and len(before[0]) == 16
    kinds = [name.partition("-")[0] for name in files(ledger)]
    assert kinds == (["day"] * 6 if size == 3 else ["round"] * 16), "a single round stays as it is"


def test_rounds_stay_until_their_pack_is_certainly_there(ledger: Ledger) -> None:
    for number in range(3):
        ledger.add(done(number, NOW - DAY_MILLIS + number))
    before, start = read(ledger), NOW - DAY_MILLIS - NOW % DAY_MILLIS
    (Path(ledger.directory) / f"day-{start:013}-{ONE}-{NOW}").write_bytes(encode([]))
    ledger.tidy(ONE, unexpected)
    assert read(ledger) == before
    replace(ledger, clock=HandClock(NOW + 1)).tidy(ONE, unexpected)
    assert read(ledger) == before and len(files(ledger)) == 2


def test_what_cannot_be_read_is_not_deleted_with_what_is_packed(ledger: Ledger) -> None:
    for number in range(3):
        ledger.add(done(number, NOW - DAY_MILLIS + number))
    damaged = Path(ledger.directory) / done(1, NOW - DAY_MILLIS + 1).name
    damaged.write_bytes(b"of a later version")
    ledger.tidy(ONE, lambda error: None)
    assert damaged.exists() and [each.number for each in read(ledger)[0]] == [0, 2] and len(files(ledger)) == 2


def test_a_round_counts_once_even_if_two_services_packed_it(ledger: Ledger) -> None:
    rounds = [done(number, NOW - DAY_MILLIS + number) for number in range(4)]
    for service in (ONE, OTHER):  # the second was listing when the first deleted
        for each in rounds:
            ledger.add(each)
        ledger.tidy(service, lambda error: pytest.fail(str(error)))
    assert len(files(ledger)) == 2
    assert read(ledger) == (rounds, [])


def test_a_pack_that_was_killed_before_it_deleted_loses_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [done(number, NOW - DAY_MILLIS + number) for number in range(4)]
    for each in rounds:
        ledger.add(each)
    with monkeypatch.context() as killed:
        killed.setattr(LocalStorage, "delete", lambda self, path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.tidy(ONE, lambda error: None)
    assert len(files(ledger)) == 5
    assert read(ledger) == (rounds, [])


def test_objects_go_after_ninety_days(ledger: Ledger) -> None:
    ledger.add(done(1, NOW - KEPT_MILLIS - 1))
    ledger.add(done(2, NOW - KEPT_MILLIS + 1))
    ledger.tidy(ONE, lambda error: pytest.fail(str(error)))
    assert [each.number for each in read(ledger)[0]] == [2]


STEP = json.loads(encode([done(1)]))["rounds"][0]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "content",
    (
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"version": 1, "rounds": 5}',
        b'{"version": 2, "rounds": []}',
        b'{"version": 1, "rounds": [null]}',
        json.dumps({"version": 1, "rounds": [{**STEP, "started": -1}]}).encode(),
        json.dumps({"version": 1, "rounds": [{**STEP, "seconds": float("nan")}]}).encode(),
        json.dumps({"version": 1, "rounds": [{**STEP, "service": 5}]}).encode(),
        json.dumps({"version": 1, "rounds": [{**STEP, "requests": {str(n): n for n in range(50)}}]}).encode(),
        json.dumps({"version": 1, "rounds": [{**STEP, "steps": [{"table": "x"}]}]}).encode(),
        json.dumps({"version": 1, "rounds": [{**STEP, "steps": [{**STEP["steps"][0], "why": "x" * 10_000}]}]}).encode(),
        json.dumps({"version": 1, "rounds": [{**STEP, "number": 2}]}).encode(),
        b'{"version": 1, "rounds": [], "x": 1' + b"0" * 5000 + b"}",
        b" " * (MAX_OBJECT + 1),
    ),
)
def test_hostile_objects_are_named_and_left_out(ledger: Ledger, content: bytes) -> None:
    ledger.add(done(1))
    ledger.add(done(2, NOW + 1))
    path = Path(ledger.directory) / done(1).name
    path.write_bytes(content)
    rounds, damaged = read(ledger)
    assert [each.number for each in rounds] == [2]
    assert [error.path for error in damaged] == [str(path)]
    ledger.clock.sleep(86_400)  # packing leaves it where it is
    ledger.tidy(ONE, damaged.append)
    assert path.exists()


def test_foreign_names_and_links_are_named_and_left_out(ledger: Ledger, tmp_path: Path) -> None:
    ledger.add(done(1))
    directory = Path(ledger.directory)
    (directory / "notes").write_text("x")
    (directory / ".round-1.tmp").write_text("an object that is being written")
    (directory / done(2).name).mkdir()
    (directory / done(3).name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(encode([done(3)]))
    rounds, damaged = read(ledger)
    assert [each.number for each in rounds] == [1]
    assert len(damaged) == 3


def test_what_was_cut_off_goes_after_a_day(ledger: Ledger) -> None:
    ledger.add(done(1))
    cut_off = Path(ledger.directory) / ".round-1.0b6f.tmp"
    cut_off.write_text("of a service that was killed")
    millis = cut_off.stat().st_mtime_ns // 1_000_000
    replace(ledger, clock=HandClock(millis + 86_000_000)).tidy(ONE, unexpected)
    assert cut_off.exists()
    (Path(ledger.directory) / ".a.tmp").mkdir()
    replace(ledger, clock=HandClock(millis + 86_500_000)).tidy(ONE, unexpected)
    assert not cut_off.exists()


def test_a_ledger_that_is_a_link_is_not_tidied(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".precious.tmp").write_text("of somebody else")
    (tmp_path / "wh/.paimon-cli").mkdir(parents=True)
    (tmp_path / "wh/.paimon-cli/ledger").symlink_to(outside)
    ledger = Ledger(LocalStorage(), str(tmp_path / "wh"), HandClock(NOW * 2))
    with pytest.raises(DamagedFile):
        ledger.tidy(ONE, unexpected)
    assert (outside / ".precious.tmp").exists()


def test_a_ledger_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".paimon-cli").mkdir()
    (tmp_path / ".paimon-cli" / "ledger").symlink_to(tmp_path / "elsewhere")
    ledger = Ledger(LocalStorage(), str(tmp_path), HandClock(NOW))
    with pytest.raises(DamagedFile, match="is a link"):
        ledger.add(done(1))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_object_is_decoded_as_it_was_encoded() -> None:
    assert decode(encode([done(1), done(2)]), "x") == [done(1), done(2)]
