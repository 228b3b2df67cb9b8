"""The cases of `lab run`: lost races, conflicting compactions, crashes, and assignments of writers to buckets."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, fresh_identity
from paimon_cli.invariants.violation import ERROR
from paimon_cli.lab.lab_table import Compactor, LabSetting, LabTable, Writer, writers_of
from paimon_cli.lab.story import CONDITIONAL, RENAMING, ActorCrashed, Story
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.options.choices import ConflictCheck

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def _rows(keys: range, value: str) -> list[dict[str, object]]:
    return [{"k": key, "v": value} for key in keys]


def _ended(table: LabTable, expected: dict[int, str], good: str, bad: str) -> Story:
    """Compare the rows that readers see at the end with the acknowledged ones."""
    visible = {row["k"]: row["v"] for row in table.rows()}
    errors = [violation for violation in table.end() if violation.severity == ERROR]
    correct = visible == expected and not errors
    return table.story.end(correct, good if correct else bad)


def snapshot_conflict(setting: LabSetting) -> list[Story]:
    """Writers of different buckets try to publish the same snapshot number: each commits just before the put of another."""
    options = {"bucket": str(setting.writers)}
    table = LabTable(Story("snapshot-conflict", (setting.check,)), setting, COLUMNS, "k", options)
    writers, keys = writers_of(table, setting.writers), table.keys_of_buckets()
    for writer, key in zip(writers, keys, strict=True):
        writer.prepare([{"k": key, "v": writer.name[-1]}])
    order = setting.ordered(writers)
    refused: list[Writer] = []

    def commit(writer: Writer) -> None:
        if not writer.commit():
            refused.append(writer)

    for slow, fast in pairwise(order):
        slow.storage.before_put = functools.partial(commit, fast)
    commit(order[0])
    expected = {key: writer.name[-1] for writer, key in zip(writers, keys, strict=True)}
    for writer in refused:
        writer.write([{"k": keys[writers.index(writer)], "v": writer.name[-1]}])
    count = "both" if len(writers) == 2 else f"all {len(writers)}"
    good = f"{count} commits are in the table exactly once: the losers rewrote their metadata on top of the winner's snapshot"
    return [_ended(table, expected, good, "a commit is missing")]


def files_conflict(setting: LabSetting) -> list[Story]:
    """Two full compactions of one bucket start at the same snapshot."""
    table = LabTable(Story("files-conflict", (setting.check,)), setting, COLUMNS, "k")
    writer = Writer(table, "writer")
    writer.write(_rows(range(3), "old"))
    writer.write(_rows(range(1, 4), "new"))
    first, second = Compactor(table, "compactor 1"), Compactor(table, "compactor 2")
    first.prepare()
    second.prepare()
    first.commit()
    if not second.commit():
        second.record("starts again from the latest snapshot")
        second.compact()
    expected = {0: "old", 1: "new", 2: "new", 3: "new"}
    return [_ended(table, expected, "the second job failed and left no file; no row is lost or doubled", "rows are wrong")]


def single_committer(setting: LabSetting) -> list[Story]:
    """Concurrent writes, serial commits: one writer per bucket, and a single committer."""
    options = {"bucket": str(setting.writers)}
    table = LabTable(Story("single-committer", (setting.check,)), setting, COLUMNS, "k", options)
    writers, keys = writers_of(table, setting.writers), table.keys_of_buckets()
    committer = Writer(table, "committer")
    for round_number in range(1, setting.rounds + 1):
        for writer, key in zip(writers, keys, strict=True):
            writer.prepare([{"k": key, "v": f"{writer.name[-1]}{round_number}"}])
        messages = [message for writer in writers for message in writer.messages]
        committer.record("receives the commit messages of all writers", f"{len(messages)} buckets")
        Committer(committer.context).commit(messages, fresh_identity(committer.context))
    expected = {key: f"{writer.name[-1]}{setting.rounds}" for writer, key in zip(writers, keys, strict=True)}
    return [_ended(table, expected, "one snapshot a round for all buckets, no race", "rows are wrong")]


def write_only(setting: LabSetting) -> list[Story]:
    """Writers only add level-0 files and a dedicated job compacts, so no job deletes files that another job needs."""
    table = LabTable(Story("write-only", (setting.check,)), setting, COLUMNS, "k", {"write-only": "true"})
    writer, compactor = Writer(table, "writer"), Compactor(table, "compactor")
    expected: dict[int, str] = {}
    conflicts = 0
    for round_number in range(1, setting.rounds + 1):
        value = f"round {round_number}"
        writer.write(_rows(range(round_number, round_number + 2), value))
        expected |= {round_number: value, round_number + 1: value}
        compactor.prepare()
        writer.write([{"k": 0, "v": value}])
        expected[0] = value
        conflicts += not compactor.commit()
    good = f"no conflict in {setting.rounds} rounds: appends never conflict with a compaction of older files"
    return [_ended(table, expected, good, f"{conflicts} conflicts" if conflicts else "rows are wrong")]


def crash(setting: LabSetting) -> list[Story]:
    """A writer crashes before each of its storage calls in turn, and its job is repeated with the same user and identifier."""
    story = Story("crash", (setting.check,))
    whole: list[bool] = []
    for call in itertools.count():
        table = LabTable(Story("crash", (setting.check,)), setting, COLUMNS, "k")
        Writer(table, "before").write([{"k": 1, "v": "old"}])
        has_crashed = _crash(table, call, story, whole)
        table.end()
        if not has_crashed:
            break
    good = f"{len(whole)} runs: the table was intact after each crash, and the row of the repeated job is there exactly once"
    return [story.end(all(whole), good if all(whole) else "a crash damaged the table")]


def _crash(table: LabTable, call: int, story: Story, whole: list[bool]) -> bool:
    """Crash after this number of the commit's calls, then repeat the job; returns False if the commit finished before."""
    writer, identity = Writer(table, "writer"), CommitIdentity("job", 1)
    writer.prepare([{"k": 1, "v": "new"}])
    writer.storage.calls.clear()
    writer.storage.calls_left = call
    has_crashed = True
    with contextlib.suppress(ActorCrashed):
        Committer(writer.context).commit(writer.messages, identity)
        has_crashed = False
    visible = "; ".join(str(row["v"]) for row in table.rows())
    orphans = len(table.orphans())
    again = Writer(table, "again")
    again.prepare([{"k": 1, "v": "new"}])
    result = Committer(again.context).commit(again.messages, identity)
    written = [s.commit_user for s in table.context.snapshots.newest_first() if s.commit_kind != COMPACT]
    whole.append(written.count("job") == 1 and [row["v"] for row in table.rows()] == ["new"])
    last = writer.storage.calls[-1] if call else "nothing done yet"
    what = f"crashes after call {call}: {last}" if has_crashed else "finishes without a crash"
    after = "is recognised as committed" if result.already_committed else f"publishes snapshot {result.snapshots[0].id}"
    story.record("writer", what, f"readers see {visible}, {orphans} files are orphans; the job, repeated, {after}")
    return has_crashed


def unsafe_rename(setting: LabSetting) -> list[Story]:
    """A store whose rename is a check followed by an overwrite, compared with one that has a conditional put."""
    stories = []
    for store in (RENAMING, CONDITIONAL):
        # write-only, as the case is about the first snapshot of two writers, not about what their compactions publish after it
        options = {"bucket": "2", "write-only": "true"}
        table = LabTable(Story("unsafe-rename", (setting.check,), store), setting, COLUMNS, "k", options)
        a, b = Writer(table, "writer A"), Writer(table, "writer B")
        own, other = table.keys_of_buckets()
        a.prepare([{"k": own, "v": "A"}])
        b.prepare([{"k": other, "v": "B"}])
        a.storage.before_put = b.commit
        a.commit()
        bad = "B's commit was acknowledged, but its snapshot is gone"
        stories.append(_ended(table, {own: "A", other: "B"}, "both commits are there", bad))
    return stories


SHARED_KEYS, SHARED_BUCKETS = 8, 2
"""The numbers of keys and buckets in topology 2, all shared by its writers."""


def topology_1(setting: LabSetting) -> list[Story]:
    """Each writer has a bucket of its own and commits on its own; the seed decides which writers interrupt each other."""
    generator = random.Random(setting.seed or 0)
    table = LabTable(Story("topology-1", (setting.check,)), setting, COLUMNS, "k", {"bucket": str(setting.writers)})
    writers, keys = writers_of(table, setting.writers), table.keys_of_buckets()
    expected: dict[int, str] = {}
    for round_number in range(1, setting.rounds + 1):
        order = generator.sample(range(setting.writers), setting.writers)
        for number in order:
            value = f"{writers[number].name[-1]}{round_number}"
            writers[number].prepare([{"k": keys[number], "v": value}])
            expected[keys[number]] = value
        committed = _commit_in_pairs([writers[number] for number in order])
        while len(committed) < len(writers):  # a check of whole partitions refuses writers of other buckets too
            for number in (n for n in order if writers[n] not in committed):
                writers[number].prepare([{"k": keys[number], "v": expected[keys[number]]}])
                if writers[number].commit():
                    committed.append(writers[number])
    attempts = sum(writer.attempts for writer in writers)
    visible = {row["k"]: row["v"] for row in table.rows()}
    correct = not table.end() and visible == expected
    commits = setting.writers * setting.rounds
    good = f"{commits} commits in {attempts} attempts; readers see the last row of each writer"
    return [table.story.end(correct, good if correct else "rows are wrong")]


def topology_2(setting: LabSetting) -> list[Story]:
    """Any writer writes to any bucket and commits on its own; the seed decides what they write and in which order they commit."""
    generator = random.Random(setting.seed or 0)
    table = LabTable(Story("topology-2", (setting.check,)), setting, COLUMNS, "k", {"bucket": str(SHARED_BUCKETS)})
    writers = writers_of(table, setting.writers)
    last: dict[int, str] = {}
    refused = 0
    for round_number in range(1, setting.rounds + 1):
        order = generator.sample(writers, setting.writers)
        values: dict[str, dict[int, str]] = {}
        for writer in order:
            # the sequence number of a row is its position among the rows of its writer in the bucket
            chosen = generator.sample(range(SHARED_KEYS), generator.randint(2, SHARED_KEYS))
            values[writer.name] = dict.fromkeys(chosen, f"{writer.name[-1]}{round_number}")
            writer.prepare([{"k": key, "v": value} for key, value in values[writer.name].items()])
        for writer in order:
            while not writer.commit():
                refused += 1
                writer.prepare([{"k": key, "v": value} for key, value in values[writer.name].items()])
            last |= values[writer.name]
    Compactor(table, "compactor").compact()
    visible = {row["k"]: row["v"] for row in table.rows()}
    wrong = [
        f"k={key} is {visible.get(key)}, the last commit wrote {value}"
        for key, value in sorted(last.items())
        if visible.get(key) != value
    ]
    broken = [violation for violation in table.end() if violation.severity == ERROR]
    commits = setting.writers * setting.rounds
    good = f"{commits} commits and {refused} refusals; each key has the value of the last commit"
    bad = f"merge disorder in {len(wrong)} of {len(last)} keys: {'; '.join(wrong)}"
    return [table.story.end(not wrong and not broken, bad if wrong else good)]


def _commit_in_pairs(order: Sequence[Writer]) -> list[Writer]:
    """Of each pair, the second writer commits just before the put of the first. Returns the writers that committed."""
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
    """Topology 2: writers assign sequence numbers independently, so the row of a later commit can lose."""
    return [_disorder(setting, Story("merge-disorder", (setting.check,)))]


def snapshot_ordering(setting: LabSetting) -> list[Story]:
    """The merge disorder in a table that orders rows by sequence number, and in one that orders them by snapshot first."""
    stories = []
    for ordering in ("false", "true"):
        options = {**setting.options, "write-only": "true", "sequence.snapshot-ordering": ordering}
        story = Story("snapshot-ordering", (setting.check,))
        story.record("table", f"has the option sequence.snapshot-ordering={ordering}")
        stories.append(_disorder(replace(setting, options=options), story))
    return stories


def _disorder(setting: LabSetting, story: Story) -> Story:
    table = LabTable(story, setting, {"k": "INT NOT NULL", "v": "INT"}, "k")
    writers = setting.ordered(writers_of(table, setting.writers))
    written: dict[int, Writer] = {}
    newest = 7
    for _ in range(setting.rounds):
        values = range(newest + 1, newest + 1 + len(writers))
        for position, (writer, value) in enumerate(zip(writers, values, strict=True)):
            # each writes fewer rows before the shared one than the previous writer, hence a lower sequence number
            before = [{"k": 5 + number, "v": 0} for number in range(2 * (len(writers) - 1 - position))]
            writer.prepare([*before, {"k": 1, "v": value}])
        for writer, value in zip(writers, values, strict=True):
            if not writer.commit():
                writer.write([{"k": 1, "v": value}])
            written[value], newest = writer, value
    last = writers[-1]
    last.record(f"committed k=1, v={newest} last", f"readers see {_value(table, 1)}")
    Compactor(table, "compactor").compact()
    visible = _value(table, 1)
    table.end()
    name, winner = last.name[-1], written[visible].name[-1]
    bad = f"{name} committed last and was acknowledged, readers see {winner}'s {visible}: its sequence numbers are higher"
    good = f"{name} wrote its row again after the other commits, and its row wins"
    if setting.check == ConflictCheck.OFF:
        good = f"{name} committed last, and its row wins, although its sequence number is lower"
    return table.story.end(visible == newest, good if visible == newest else bad)


def _value(table: LabTable, key: int) -> Any:
    return next(row["v"] for row in table.rows() if row["k"] == key)


def lost_update_columns(setting: LabSetting) -> list[Story]:
    """Two read-modify-writes change different columns of one row; each writes the whole row."""
    columns = {"name": "STRING NOT NULL", "fav_color": "STRING", "fav_hobby": "STRING"}
    row = {"name": "jack", "fav_color": "Red", "fav_hobby": "Football"}
    changes: list[tuple[str, Callable[[Any], Any]]] = [("fav_color", lambda old: "Blue"), ("fav_hobby", lambda old: "Cycling")]
    table = LabTable(Story("lost-update-columns", (setting.check,)), setting, columns, "name")
    refused = _changes(table, setting, row, changes)
    visible = [(found["fav_color"], found["fav_hobby"]) for found in table.rows()]
    bad = f"a change is lost: readers see {', '.join(map(str, visible[0]))}"
    return [_judged(table, visible == [("Blue", "Cycling")], "both changes are there", refused, bad)]


def lost_update_counter(setting: LabSetting) -> list[Story]:
    """Increments of one counter: in each round all writers read it, then each writes it back, incremented by one."""
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
    """All writers read the same snapshot before any of them commits; a refused one retries. Returns the number of refusals."""
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
    again = "" if table.story.checks == (ConflictCheck.OFF,) else f": {subject} refused, read again and tried again"
    return table.story.end(correct and not broken, good + again if correct else bad)
