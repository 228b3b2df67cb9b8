"""Cases about who writes where: own buckets are safe, shared ones lose updates and order unless the data conflict check is on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from paimon_cli.commit.data_conflict import OFF
from paimon_cli.invariants.violation import ERROR
from paimon_cli.lab.actors import Compactor, Writer
from paimon_cli.lab.lab_table import LabTable
from paimon_cli.lab.story import Story

WRITERS, ROUNDS = 4, 3


def topology_1(check: str, seed: int) -> list[Story]:
    """Each writer has a bucket of its own and commits by itself; the seed decides who interrupts whom."""
    chance = random.Random(seed)
    table = LabTable(Story("topology-1", (check,)), {"k": "INT NOT NULL", "v": "STRING"}, "k", {"bucket": str(WRITERS)})
    writers = [Writer(table, f"writer {name}") for name in "ABCD"]
    keys = table.keys_of_buckets()
    expected: dict[int, str] = {}
    for round_number in range(1, ROUNDS + 1):
        order = chance.sample(range(WRITERS), WRITERS)
        for number in order:
            value = f"{writers[number].name[-1]}{round_number}"
            writers[number].prepare([{"k": keys[number], "v": value}])
            expected[keys[number]] = value
        for slow, fast in (order[:2], order[2:]):
            writers[slow].storage.before_put = writers[fast].commit
            writers[slow].commit()
    attempts = sum(writer.attempts for writer in writers)
    seen = {row["k"]: row["v"] for row in table.rows()}
    correct = not table.end() and seen == expected
    commits = WRITERS * ROUNDS
    good = f"{commits} commits in {attempts} attempts; what readers see is what was written last by each"
    return [table.story.end(correct, good if correct else "rows are wrong")]


def merge_disorder(check: str, seed: int) -> list[Story]:
    """Topology 2: two writers number their rows without knowing of each other, and the later commit loses."""
    table = LabTable(Story("merge-disorder", (check,)), {"k": "INT NOT NULL", "v": "INT"}, "k")
    a, b = Writer(table, "writer A"), Writer(table, "writer B")
    a.prepare([{"k": 5, "v": 0}, {"k": 6, "v": 0}, {"k": 1, "v": 8}])
    b.prepare([{"k": 1, "v": 9}])
    a.commit()
    if not b.commit():
        b.write([{"k": 1, "v": 9}])
    b.tell("committed k=1, v=9 last", f"readers see {_value(table, 1)}")
    Compactor(table, "compactor").compact()
    seen = _value(table, 1)
    table.end()
    bad = f"B committed last and was acknowledged, readers see A's {seen}: its sequence numbers are higher"
    return [table.story.end(seen == 9, "B began again on A's snapshot, and its row wins" if seen == 9 else bad)]


def _value(table: LabTable, key: int) -> Any:
    return next(row["v"] for row in table.rows() if row["k"] == key)


def lost_update_columns(check: str, seed: int) -> list[Story]:
    """Two read-modify-writes of one row change different columns; each writes the whole row."""
    columns = {"name": "STRING NOT NULL", "fav_color": "STRING", "fav_hobby": "STRING"}
    row = {"name": "jack", "fav_color": "Red", "fav_hobby": "Football"}
    changes: list[tuple[str, Callable[[Any], Any]]] = [("fav_color", lambda old: "Blue"), ("fav_hobby", lambda old: "Cycling")]
    table = _two_changes("lost-update-columns", check, columns, row, changes)
    seen = [(found["fav_color"], found["fav_hobby"]) for found in table.rows()]
    return [_judged(table, seen == [("Blue", "Cycling")], f"A's Blue is lost: readers see {', '.join(map(str, seen[0]))}")]


def lost_update_counter(check: str, seed: int) -> list[Story]:
    """Two increments of one counter."""
    columns = {"name": "STRING NOT NULL", "points": "INT"}
    add_one: list[tuple[str, Callable[[Any], Any]]] = [("points", lambda old: old + 1)] * 2
    table = _two_changes("lost-update-counter", check, columns, {"name": "jack", "points": 1}, add_one)
    points = table.rows()[0]["points"]
    return [_judged(table, points == 3, f"two increments of 1 were acknowledged, readers see {points}")]


def _two_changes(
    case: str, check: str, columns: dict[str, str], row: dict[str, Any], changes: list[tuple[str, Callable[[Any], Any]]]
) -> LabTable:
    """Both read the same snapshot before either commits; whoever is refused reads again and tries again."""
    table = LabTable(Story(case, (check,)), columns, "name")
    Writer(table, "setup").write([row])
    writers = [Writer(table, f"writer {name}") for name in "AB"]
    for writer in writers:
        writer.read()
    for writer, (column, new_value) in zip(writers, changes, strict=True):
        writer.change("name", "jack", column, new_value)
    for writer, (column, new_value) in zip(writers, changes, strict=True):
        while not writer.commit():
            writer.read()
            writer.change("name", "jack", column, new_value)
    return table


def _judged(table: LabTable, correct: bool, bad: str) -> Story:
    broken = [violation for violation in table.end() if violation.severity == ERROR]
    unchecked = table.story.checks == (OFF,)
    good = "both changes are there" + ("" if unchecked else ": the second writer was refused, read again and tried again")
    return table.story.end(correct and not broken, good if correct else bad)
