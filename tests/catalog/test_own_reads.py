"""Counts of a process's own reads: only where the user asks for them, bounded, and of no consequence but for goals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.catalog import own_reads
from paimon_cli.catalog.own_reads import KEPT_DAYS, MOST_COUNTED, MOST_PARTITIONS, OwnReads
from paimon_cli.catalog.warehouse_policy import policy_of_place
from paimon_cli.maintain.policy import Policy
from paimon_cli.maintain.read_rates import MOST_READS_OBJECTS, ReadCounts
from tests.jobs.test_leases import HandClock

DAY = 86_400_000
NOON = 1_796_000_000_000 // DAY * DAY + DAY // 2
UUID = "00000000-0000-0000-0000-{:012}"


class Dice:
    """Random numbers that are given, and names in order."""

    def __init__(self, *numbers: float) -> None:
        self.numbers, self.named = [*numbers], 0

    def jitter(self) -> float:
        return self.numbers.pop(0) if self.numbers else 0.0

    def uuid(self) -> str:
        self.named += 1
        return UUID.format(self.named)


def orders(directory: Path) -> Table:
    columns = ["id BIGINT NOT NULL", "dt STRING NOT NULL"]
    table = Table.create(
        directory / "wh/shop.db/orders", columns=columns, primary_key=["id", "dt"], partition_by=["dt"], options={"bucket": "1"}
    )
    table.write([{"id": number, "dt": f"d{number % 3}"} for number in range(6)])
    return table


def written(directory: Path) -> dict[str, list[dict[str, object]]]:
    found = sorted((directory / "wh/.paimon-cli/reads").glob("*"))
    return {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in found}


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnReads]:
    """The reads of this process, with a user's file that asks for all of them."""
    reads = OwnReads(HandClock(NOON), Dice())
    monkeypatch.setattr(own_reads, "_of_process", lambda: reads)
    own = tmp_path / "own.yaml"
    own.write_text("policy: {tables: {shop.*: {count-reads: 100%}}}")
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    yield reads


def test_reads_are_counted_by_partition_and_found_by_a_goal(tmp_path: Path, counted: OwnReads) -> None:
    table = orders(tmp_path)
    assert table.scan(where="dt = 'd1'").to_arrow().num_rows == 2
    table.scan(where="dt = 'd1'").count()
    table.to_arrow()
    assert written(tmp_path) == {}, "one object for the whole process"
    counted.write()
    ((name, lines),) = written(tmp_path).items()
    day = datetime.fromtimestamp(NOON / 1000, timezone.utc).date()
    assert name == f"reads-{day}-{UUID.format(1)}.ndjson" and {line["table"] for line in lines} == {"shop.orders"}
    assert [(line["partition"], line["reads"]) for line in lines] == [("dt=d0", 1), ("dt=d1", 3), ("dt=d2", 1)]
    counted.write()
    assert len(written(tmp_path)) == 1, "nothing was read since"
    (tmp_path / "wh/.paimon-cli/policy.yaml").write_text("catalog: {goal: cost}")
    (explained,) = Catalog(str(tmp_path / "wh")).policy.explain("shop.orders")
    assert explained.reads_from == "reads/"


def test_what_others_counted_adds_up(tmp_path: Path, counted: OwnReads) -> None:
    table = orders(tmp_path)
    (tmp_path / "wh/.paimon-cli").mkdir(exist_ok=True)
    (tmp_path / "wh/.paimon-cli/reads.ndjson").write_text('{"table": "shop.orders", "partition": "dt=d1", "reads": 40}')
    for _ in range(2):
        table.scan(where="dt = 'd1'")
        counted.write()
    place = policy_of_place(table.context.place)
    assert place is not None and place.reads() == ReadCounts({("shop.orders", "dt=d1"): 42.0}, "reads.ndjson, reads/")


def test_changes_and_older_snapshots_are_no_reads_of_what_merges_make(tmp_path: Path, counted: OwnReads) -> None:
    table = orders(tmp_path)
    table.scan(snapshot=1).to_arrow()
    table.scan(incremental="1..1")
    counted.write()
    assert written(tmp_path) == {}


def test_nothing_is_counted_unless_the_user_asks(tmp_path: Path, counted: OwnReads, monkeypatch: pytest.MonkeyPatch) -> None:
    table = orders(tmp_path)
    for text in ("{}", "policy: {tables: {other.*: {count-reads: 100%}}}"):
        (tmp_path / "own.yaml").write_text(text)
        table.to_arrow()
    monkeypatch.setenv("PAIMON_CLI_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    table.to_arrow()
    counted.write()
    assert written(tmp_path) == {}
    warehouse = Policy.read(b"catalog: {count-reads: 100%}", "policy.yaml")
    assert [setting.key for setting in warehouse.refused] == ["count-reads"]


def test_a_share_is_counted_by_chance_and_not_scaled_up(tmp_path: Path, counted: OwnReads) -> None:
    (tmp_path / "own.yaml").write_text("policy: {catalog: {count-reads: 5%}}")
    table = orders(tmp_path)
    counted.random = Dice(0.5, 0.049, 0.05, 0.01)
    for _ in range(4):
        table.scan(where="dt = 'd2'")
    counted.write()
    assert [line["reads"] for lines in written(tmp_path).values() for line in lines] == [2]


def test_each_day_has_an_object_of_its_own_and_old_ones_go(tmp_path: Path, counted: OwnReads) -> None:
    table, clock = orders(tmp_path), counted.clock
    assert isinstance(clock, HandClock)
    for _ in range(KEPT_DAYS + 3):
        table.scan(where="dt = 'd1'")
        clock.millis += DAY
    (tmp_path / "wh/.paimon-cli/reads/others.txt").write_text("")
    counted.write()
    names = [name for name in written(tmp_path) if name != "others.txt"]
    assert len(names) == KEPT_DAYS + 1 and (tmp_path / "wh/.paimon-cli/reads/others.txt").exists()


def test_counts_are_bounded(tmp_path: Path, counted: OwnReads) -> None:
    place = orders(tmp_path).context.place
    for begin in range(0, MOST_COUNTED + 10, 10):
        paths = [f"dt={begin + number}" for number in range(10)]
        counted.count(place, 1.0, paths.copy, pytest.fail)
    counted.write()
    assert [len(lines) for lines in written(tmp_path).values()] == [MOST_COUNTED]
    counted.count(place, 1.0, lambda: ["dt=x"] * (MOST_PARTITIONS + 1), pytest.fail)
    counted.write()
    assert {"table": "shop.orders", "reads": 1} in [line for lines in written(tmp_path).values() for line in lines]
    directory = tmp_path / "wh/.paimon-cli/reads"
    for number in range(100, 100 + MOST_READS_OBJECTS):
        (directory / f"reads-{counted._today()}-{UUID.format(number)}.ndjson").touch()
    before = len(written(tmp_path))
    counted.count(place, 1.0, lambda: ["dt=x"], pytest.fail)
    counted.write()
    assert len(written(tmp_path)) == before


def test_a_store_that_takes_nothing_is_a_warning(tmp_path: Path, counted: OwnReads) -> None:
    table, said = orders(tmp_path), list[str]()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "wh/.paimon-cli").mkdir(exist_ok=True)
    (tmp_path / "wh/.paimon-cli/reads").symlink_to(outside)
    counted.count(table.context.place, 1.0, lambda: [""], said.append)
    counted.write()
    assert len(said) == 1 and "is a link" in said[0] and not [*outside.iterdir()]


@pytest.mark.parametrize("text", ["0%", "101%", "5", "0.5%", "x%", "-1%"])
def test_a_share_is_a_percentage_and_a_mistake_fails_no_read(tmp_path: Path, counted: OwnReads, text: str) -> None:
    table = orders(tmp_path)
    (tmp_path / "own.yaml").write_text(f"policy: {{catalog: {{count-reads: '{text}'}}}}")
    with pytest.warns(UserWarning, match="reads are not counted: .*no share of reads"):
        assert table.to_arrow().num_rows == 6
