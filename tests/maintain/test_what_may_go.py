"""Which snapshots, changelogs, tags and consumers may be removed, compared with a plain rule for each."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_changelogs import changelog_retention, plan_changelogs
from paimon_cli.maintain.expire_snapshots import carry_out, plan_expiry
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Consumer, Retention, consumers, expire_consumers, expiring_range
from paimon_cli.maintain.tags import create_tag, expired_tags
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.memory_storage import MemoryStorage
from tests.faults.bench import table_schema

NOW = 1_700_000_000_000
SPACES = count()


@dataclass
class FixedClock:
    """It is always `millis`."""

    millis: int = NOW

    def now_millis(self) -> int:
        return self.millis

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def bare_table(options: dict[str, str] | None = None) -> TableContext:
    """A table without versions, in memory, on a clock that does not move."""
    clock = FixedClock()
    storage = MemoryStorage(f"bare-{next(SPACES)}", clock)
    storage.write_new("/t/schema/schema-0", table_schema(False, options or {}).to_json().encode())
    return replace(TableContext.open("/t", storage=storage, clock=clock), read_threads=1)


def bare_snapshot(number: int, millis: int) -> Snapshot:
    return Snapshot(number, 0, "manifest-list-a-0", "manifest-list-a-1", "me", number, "APPEND", millis, 0, 0)


def put(context: TableContext, path: str, snapshot: Snapshot) -> None:
    context.storage.overwrite(path, snapshot.to_json().encode())


ages = st.lists(st.integers(0, 6), min_size=1, max_size=9)
small = st.integers(0, 10)


@settings(max_examples=120)
@given(
    first=st.integers(1, 4),
    ages=ages,
    least=st.integers(0, 5),
    more=st.integers(0, 5),
    keep=st.integers(0, 6),
    limit=st.none() | st.integers(1, 4),
    consumed=st.none() | st.integers(1, 12),
    hint=st.booleans(),
)
def test_snapshots(
    first: int, ages: list[int], least: int, more: int, keep: int, limit: int | None, consumed: int | None, hint: bool
) -> None:
    context = bare_table()
    times = {first + place: NOW - age for place, age in enumerate(sorted(ages, reverse=True))}
    for number, millis in times.items():
        put(context, context.layout.snapshot(number), bare_snapshot(number, millis))
    if hint:
        context.storage.overwrite(context.layout.earliest_hint, str(first).encode())
    for name, number in (("slow", consumed), ("fast", (consumed or 0) + 3)) if consumed is not None else ():
        context.storage.overwrite(context.layout.consumer(name), json.dumps({"nextSnapshot": number}).encode())
    latest = max(times)
    going: list[int] = []
    for number in times:
        stays = latest - number < max(least, 1)
        stays |= limit is not None and len(going) == limit
        stays |= consumed is not None and number >= consumed
        stays |= latest - number < least + more and times.get(number + 1, NOW) >= NOW - keep
        if stays:
            break
        going.append(number)
    found = expiring_range(context, Retention(least, least + more, keep, limit))
    assert list(found) == going and (found.stop == first + len(going) or not going)


@settings(max_examples=120)
@given(
    ages=ages,
    beyond=st.integers(1, 3),
    least=st.integers(0, 6),
    more=st.integers(0, 6),
    keep=st.integers(0, 6),
    limit=st.none() | st.integers(1, 4),
    consumed=st.none() | st.integers(1, 12),
    outlive=st.booleans(),
    gap=st.none() | st.integers(1, 9),
)
def test_changelogs(
    ages: list[int],
    beyond: int,
    least: int,
    more: int,
    keep: int,
    limit: int | None,
    consumed: int | None,
    outlive: bool,
    gap: int | None,
) -> None:
    context = bare_table({"changelog.num-retained.min": "1000"} if outlive else {})
    times = {1 + place: NOW - age for place, age in enumerate(sorted(ages, reverse=True)) if 1 + place != gap}
    for number, millis in times.items():
        put(context, context.layout.changelog(number), bare_snapshot(number, millis))
    latest = len(ages) + beyond
    for number in range(len(ages) + 1, latest + 1):
        put(context, context.layout.snapshot(number), bare_snapshot(number, NOW))
    if consumed is not None:
        context.storage.overwrite(context.layout.consumer("me"), json.dumps({"nextSnapshot": consumed}).encode())
    going: list[int] = []
    for number in times:
        stays = latest - number < max(least, 1)
        stays |= limit is not None and number >= min(times) + limit
        stays |= consumed is not None and number >= consumed
        stays |= outlive and number == max(times)
        stays |= latest - number < least + more and times[number] >= NOW - keep
        if stays:
            break
        going.append(number)
    plan = plan_changelogs(context, Retention(least, least + more, keep, limit))
    left = [number for number in times if number not in going]
    assert (plan is not None) == bool(going)
    if plan is not None:
        assert [changelog.id for changelog in plan.expiring] == going
        assert (plan.kept.id if plan.kept else None) == (left[0] if left else None)


def test_no_changelogs_without_any() -> None:
    context = bare_table()
    assert plan_changelogs(context, Retention(1, 1, 0, None)) is None
    put(context, context.layout.changelog(1), bare_snapshot(1, 0))
    assert plan_changelogs(context, Retention(1, 1, 0, None)) is None, "without a snapshot the number of newer ones is unknown"


def test_retention_of_changelogs_is_that_of_snapshots_by_default() -> None:
    said = {"snapshot.num-retained.min": "3", "snapshot.num-retained.max": "7", "snapshot.time-retained": "2 h"}
    assert changelog_retention(bare_table(said)) == Retention(3, 7, 7_200_000, 50)
    own = {"changelog.num-retained.min": "4", "changelog.num-retained.max": "9", "changelog.time-retained": "3 h"}
    assert changelog_retention(bare_table({**said, **own, "snapshot.expire.limit": "5"})) == Retention(4, 9, 10_800_000, 5)
    assert Retention.of(bare_table({**said, "snapshot.expire.limit": "5"}).options) == Retention(3, 7, 7_200_000, 5)


def test_a_request_overrides_the_options() -> None:
    context = bare_table({"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "9"})
    own = Retention.of(context.options)
    assert own.asking(context, None, None, None, None) == Retention(5, 9, 3_600_000, None)
    assert own.asking(context, 3, None, None, None) == Retention(3, 3, 3_600_000, None)
    assert own.asking(context, 7, None, None, None) == Retention(5, 7, 3_600_000, None)
    assert own.asking(context, None, 12, None, 4) == Retention(12, 12, 3_600_000, 4)
    assert own.asking(context, 4, 4, NOW - 250, None) == Retention(4, 4, 250, None)
    contradictory = bare_table({"snapshot.num-retained.max": "4"})
    with pytest.raises(UsageError, match=r"num-retained.min=10 is above num-retained.max=4"):
        Retention.of(contradictory.options).asking(contradictory, None, None, None, None)
    assert Retention.of(contradictory.options).asking(contradictory, 3, None, None, None).at_least == 3
    limited = bare_table({"snapshot.expire.limit": "6"})
    assert Retention.of(limited.options).asking(limited, None, None, None, None).limit == 6
    assert Retention.of(limited.options).asking(limited, None, None, None, 2).limit == 2


@settings(max_examples=60)
@given(ages=st.dictionaries(st.sampled_from("abcd"), small, max_size=4), limit=small, own=st.booleans())
def test_consumers(ages: dict[str, int], limit: int, own: bool) -> None:
    context = bare_table({"consumer.expiration-time": f"{limit} ms"} if own else {})
    clock = context.clock
    assert isinstance(clock, FixedClock)
    for name, age in ages.items():
        clock.millis = NOW - age
        context.storage.overwrite(context.layout.consumer(name), b'{"nextSnapshot": 7}')
    clock.millis = NOW
    context.storage.overwrite(f"{context.layout.consumer_directory}/other", b"no consumer")
    assert consumers(context) == [Consumer(name, 7, NOW - ages[name]) for name in sorted(ages)]
    gone = expire_consumers(context) if own else expire_consumers(context, NOW - limit)
    old = [name for name in sorted(ages) if ages[name] > limit]
    assert [consumer.name for consumer in gone] == old
    assert [consumer.name for consumer in consumers(context)] == [name for name in sorted(ages) if name not in old]
    assert own or expire_consumers(context) == []


@settings(max_examples=60)
@given(made=st.lists(st.tuples(small, st.none() | small), max_size=5), limit=st.none() | small)
def test_tags(made: list[tuple[int, int | None]], limit: int | None) -> None:
    """A tag with a time limit goes when that is over; `older_than` takes all that were made before, if need be by their files."""
    context = bare_table()
    clock = context.clock
    assert isinstance(clock, FixedClock)
    put(context, context.layout.snapshot(1), bare_snapshot(1, NOW))
    expected = []
    for place, (age, retained) in enumerate(made):
        clock.millis = NOW - age
        tag = create_tag(context, f"t{place}", 1, retained)
        assert tag.created_millis == (None if retained is None else local_wall_clock(NOW - age))
        if (retained is not None and age > retained) or (limit is not None and age > limit):
            expected.append(f"t{place}")
    clock.millis = NOW
    assert expired_tags(context, None if limit is None else NOW - limit) == expected


def test_an_expiry_with_nothing_to_do_makes_the_missing_hint_and_leaves_another() -> None:
    context = bare_table()
    for number in (3, 4):
        put(context, context.layout.snapshot(number), bare_snapshot(number, NOW))
    plan = plan_expiry(context, Retention(9, 9, 0, None))
    assert plan is None
    carry_out(context, plan, delete_files(context))
    assert context.storage.read_bytes(context.layout.earliest_hint) == b"3"
    context.storage.overwrite(context.layout.earliest_hint, b"4")
    carry_out(context, plan, delete_files(context))
    assert context.storage.read_bytes(context.layout.earliest_hint) == b"4"
