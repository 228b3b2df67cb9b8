"""Cases about who writes where: own buckets are safe, shared ones lose updates and order unless the data conflict check is on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from paimon_cli.commit.data_conflict import OFF
from paimon_cli.invariants.violation import ERROR
from paimon_cli.lab.actors import Compactor, Writer, writers_of
from paimon_cli.lab.lab_table import LabSetting, LabTable
from paimon_cli.lab.story import Story

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
SHARED_KEYS, SHARED_BUCKETS = 8, 2
"""What the writers of topology 2 choose from."""


def topology_1(setting: LabSetting) -> list[Story]:
    """Each writer has a bucket of its own and commits by itself; the seed decides who interrupts whom."""
    chance = random.Random(setting.seed or 0)
    table = LabTable(Story("topology-1", (setting.check,)), setting, COLUMNS, "k", {"bucket": str(setting.writers)})
    writers, keys = writers_of(table, setting.writers), table.keys_of_buckets()
    expected: dict[int, str] = {}
    for round_number in range(1, setting.rounds + 1):
        order = chance.sample(range(setting.writers), setting.writers)
        for number in order:
            value = f"{writers[number].name[-1]}{round_number}"
            writers[number].prepare([{"k": keys[number], "v": value}])
            expected[keys[number]] = value
        committed = _commit_in_pairs([writers[number] for number in order])
        while len(committed) < len(writers):  # a check of whole partitions refuses writers of other buckets, too
            for number in (n for n in order if writers[n] not in committed):
                writers[number].prepare([{"k": keys[number], "v": expected[keys[number]]}])
                if writers[number].commit():
                    committed.append(writers[number])
    attempts = sum(writer.attempts for writer in writers)
    seen = {row["k"]: row["v"] for row in table.rows()}
    correct = not table.end() and seen == expected
    commits = setting.writers * setting.rounds
    good = f"{commits} commits in {attempts} attempts; what readers see is what was written last by each"
    return [table.story.end(correct, good if correct else "rows are wrong")]


def topology_2(setting: LabSetting) -> list[Story]:
    """Any writer writes any bucket and commits by itself; the seed decides what they write and who interrupts whom."""
    chance = random.Random(setting.seed or 0)
    table = LabTable(Story("topology-2", (setting.check,)), setting, COLUMNS, "k", {"bucket": str(SHARED_BUCKETS)})
    writers = writers_of(table, setting.writers)
    last: dict[int, str] = {}
    refused = 0
    for round_number in range(1, setting.rounds + 1):
        order = chance.sample(writers, setting.writers)
        values: dict[str, dict[int, str]] = {}
        for writer in order:
            # a row's sequence number is its place among the rows that its writer brings to the bucket
            chosen = chance.sample(range(SHARED_KEYS), chance.randint(2, SHARED_KEYS))
            values[writer.name] = dict.fromkeys(chosen, f"{writer.name[-1]}{round_number}")
            writer.prepare([{"k": key, "v": value} for key, value in values[writer.name].items()])
        for writer in order:
            while not writer.commit():
                refused += 1
                writer.prepare([{"k": key, "v": value} for key, value in values[writer.name].items()])
            last |= values[writer.name]
    Compactor(table, "compactor").compact()
    seen = {row["k"]: row["v"] for row in table.rows()}
    wrong = [
        f"k={key} is {seen.get(key)}, committed last was {value}" for key, value in sorted(last.items()) if seen.get(key) != value
    ]
    broken = [violation for violation in table.end() if violation.severity == ERROR]
    commits = setting.writers * setting.rounds
    good = f"{commits} commits, {refused} refused on the way; each key has the value that was committed last"
    bad = f"merge disorder in {len(wrong)} of {len(last)} keys: {'; '.join(wrong)}"
    return [table.story.end(not wrong and not broken, bad if wrong else good)]


def _commit_in_pairs(order: Sequence[Writer]) -> list[Writer]:
    """The second of two gets in between the first one's check and its put; who has committed."""
    committed = []

    def commit(writer: Writer) -> None:
        if writer.commit():
            committed.append(writer)

    for slow, fast in zip(order[::2], order[1::2], strict=False):
        slow.storage.before_put = lambda fast=fast: commit(fast)
        commit(slow)
    if len(order) % 2:
        commit(order[-1])
    return committed


def merge_disorder(setting: LabSetting) -> list[Story]:
    """Topology 2: writers number their rows without knowing of each other, and a later commit loses."""
    table = LabTable(Story("merge-disorder", (setting.check,)), setting, {"k": "INT NOT NULL", "v": "INT"}, "k")
    writers = setting.ordered(writers_of(table, setting.writers))
    written: dict[int, Writer] = {}
    newest = 7
    for _ in range(setting.rounds):
        values = range(newest + 1, newest + 1 + len(writers))
        for place, (writer, value) in enumerate(zip(writers, values, strict=True)):
            # each has fewer rows before the shared one than the writer before it, hence a lower number
            before = [{"k": 5 + number, "v": 0} for number in range(2 * (len(writers) - 1 - place))]
            writer.prepare([*before, {"k": 1, "v": value}])
        for writer, value in zip(writers, values, strict=True):
            if not writer.commit():
                writer.write([{"k": 1, "v": value}])
            written[value], newest = writer, value
    last = writers[-1]
    last.tell(f"committed k=1, v={newest} last", f"readers see {_value(table, 1)}")
    Compactor(table, "compactor").compact()
    seen = _value(table, 1)
    table.end()
    name, winner = last.name[-1], written[seen].name[-1]
    bad = f"{name} committed last and was acknowledged, readers see {winner}'s {seen}: its sequence numbers are higher"
    good = f"{name} began again on what the others had committed, and its row wins"
    return [table.story.end(seen == newest, good if seen == newest else bad)]


def _value(table: LabTable, key: int) -> Any:
    return next(row["v"] for row in table.rows() if row["k"] == key)


def lost_update_columns(setting: LabSetting) -> list[Story]:
    """Two read-modify-writes of one row change different columns; each writes the whole row."""
    columns = {"name": "STRING NOT NULL", "fav_color": "STRING", "fav_hobby": "STRING"}
    row = {"name": "jack", "fav_color": "Red", "fav_hobby": "Football"}
    changes: list[tuple[str, Callable[[Any], Any]]] = [("fav_color", lambda old: "Blue"), ("fav_hobby", lambda old: "Cycling")]
    table = LabTable(Story("lost-update-columns", (setting.check,)), setting, columns, "name")
    refused = _changes(table, setting, row, changes)
    seen = [(found["fav_color"], found["fav_hobby"]) for found in table.rows()]
    bad = f"a change is lost: readers see {', '.join(map(str, seen[0]))}"
    return [_judged(table, seen == [("Blue", "Cycling")], "both changes are there", refused, bad)]


def lost_update_counter(setting: LabSetting) -> list[Story]:
    """Increments of one counter: in each round all writers read it, then each writes it back, one higher."""
    columns = {"name": "STRING NOT NULL", "points": "INT"}
    add_one: list[tuple[str, Callable[[Any], Any]]] = [("points", lambda old: old + 1)] * setting.writers
    table = LabTable(Story("lost-update-counter", (setting.check,)), setting, columns, "name")
    refused = _changes(table, setting, {"name": "jack", "points": 1}, add_one)
    points, increments = table.rows()[0]["points"], setting.writers * setting.rounds
    bad = f"{increments} increments of 1 were acknowledged, readers see {points}"
    return [_judged(table, points == 1 + increments, f"all {increments} changes are there", refused, bad)]


def _changes(
    table: LabTable, setting: LabSetting, row: dict[str, Any], changes: Sequence[tuple[str, Callable[[Any], Any]]]
) -> int:
    """All read the same snapshot before any of them commits; who is refused reads and tries again. How often that was."""
    Writer(table, "setup").write([row])
    refused = 0
    actors = list(zip(writers_of(table, len(changes)), changes, strict=True))
    for _ in range(setting.rounds):
        for writer, _change in actors:
            writer.read()
        for writer, (column, new_value) in actors:
            writer.change("name", "jack", column, new_value)
        for writer, (column, new_value) in setting.ordered(actors):
            while not writer.commit():
                refused += 1
                writer.read()
                writer.change("name", "jack", column, new_value)
    return refused


def _judged(table: LabTable, correct: bool, good: str, refused: int, bad: str) -> Story:
    broken = [violation for violation in table.end() if violation.severity == ERROR]
    subject = "1 commit was" if refused == 1 else f"{refused} commits were"
    again = "" if table.story.checks == (OFF,) else f": {subject} refused, read again and tried again"
    return table.story.end(correct and not broken, good + again if correct else bad)
