"""Cases about the commit itself: lost races, contradicting compactions, crashes, and a store that overwrites."""

from __future__ import annotations

import contextlib
import functools
import itertools
from itertools import pairwise

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.identity import CommitIdentity, fresh_identity
from paimon_cli.invariants.violation import ERROR
from paimon_cli.lab.actors import Compactor, Writer, writers_of
from paimon_cli.lab.lab_table import LabSetting, LabTable
from paimon_cli.lab.narrated_storage import CONDITIONAL, RENAMING, ActorCrashed
from paimon_cli.lab.story import Story

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def _rows(keys: range, value: str) -> list[dict[str, object]]:
    return [{"k": key, "v": value} for key in keys]


def _ended(table: LabTable, expected: dict[int, str], good: str, bad: str) -> Story:
    """Compare what readers see in the end with what was acknowledged."""
    seen = {row["k"]: row["v"] for row in table.rows()}
    errors = [violation for violation in table.end() if violation.severity == ERROR]
    correct = seen == expected and not errors
    return table.story.end(correct, good if correct else bad)


def snapshot_conflict(setting: LabSetting) -> list[Story]:
    """Writers of different buckets reach for the same snapshot number: each gets in between the other's check and its put."""
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
    good = f"{count} commits are there, once each: the losers wrote their metadata again on top of the winner's snapshot"
    return [_ended(table, expected, good, "a commit is missing")]


def files_conflict(setting: LabSetting) -> list[Story]:
    """Two full compactions of one bucket begin at the same snapshot."""
    table = LabTable(Story("files-conflict", (setting.check,)), setting, COLUMNS, "k")
    writer = Writer(table, "writer")
    writer.write(_rows(range(3), "old"))
    writer.write(_rows(range(1, 4), "new"))
    first, second = Compactor(table, "compactor 1"), Compactor(table, "compactor 2")
    first.prepare()
    second.prepare()
    first.commit()
    if not second.commit():
        second.tell("begins again from the latest snapshot")
        second.compact()
    expected = {0: "old", 1: "new", 2: "new", 3: "new"}
    return [_ended(table, expected, "the second job failed and left no file; no row is lost or doubled", "rows are wrong")]


def single_committer(setting: LabSetting) -> list[Story]:
    """Concurrent write, serial commit: a writer per bucket, one committer for all."""
    options = {"bucket": str(setting.writers)}
    table = LabTable(Story("single-committer", (setting.check,)), setting, COLUMNS, "k", options)
    writers, keys = writers_of(table, setting.writers), table.keys_of_buckets()
    committer = Writer(table, "committer")
    for round_number in range(1, setting.rounds + 1):
        for writer, key in zip(writers, keys, strict=True):
            writer.prepare([{"k": key, "v": f"{writer.name[-1]}{round_number}"}])
        messages = [message for writer in writers for message in writer.messages]
        committer.tell("receives the commit messages of all writers", f"{len(messages)} buckets")
        Committer(committer.context).commit(messages, fresh_identity(committer.context))
    expected = {key: f"{writer.name[-1]}{setting.rounds}" for writer, key in zip(writers, keys, strict=True)}
    return [_ended(table, expected, "one snapshot a round for all buckets, no race", "rows are wrong")]


def write_only(setting: LabSetting) -> list[Story]:
    """Writers only add level-0 files (write-only), one dedicated job compacts: nobody deletes what another one needs."""
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
    good = f"no conflict in {setting.rounds} rounds: appends and a compaction of older files never contradict each other"
    return [_ended(table, expected, good, f"{conflicts} conflicts")]


def crash(setting: LabSetting) -> list[Story]:
    """A writer dies before each of its storage calls in turn, and its job is run again under the same user and identifier."""
    story = Story("crash", (setting.check,))
    whole: list[bool] = []
    for call in itertools.count():
        table = LabTable(Story("crash", (setting.check,)), setting, COLUMNS, "k")
        Writer(table, "before").write([{"k": 1, "v": "old"}])
        has_crashed = _crash(table, call, story, whole)
        table.end()
        if not has_crashed:
            break
    good = f"{len(whole)} runs: the table was whole after each crash, and the row of the repeated job is there once"
    return [story.end(all(whole), good if all(whole) else "a crash broke the table")]


def _crash(table: LabTable, call: int, story: Story, whole: list[bool]) -> bool:
    """Die behind so many calls of the commit, then repeat the job; False if the commit makes no more calls than that."""
    writer, identity = Writer(table, "writer"), CommitIdentity("job", 1)
    writer.prepare([{"k": 1, "v": "new"}])
    writer.storage.calls.clear()
    writer.storage.calls_left = call
    has_crashed = True
    with contextlib.suppress(ActorCrashed):
        Committer(writer.context).commit(writer.messages, identity)
        has_crashed = False
    seen = "; ".join(str(row["v"]) for row in table.rows())
    orphans = len(table.orphans())
    again = Writer(table, "again")
    again.prepare([{"k": 1, "v": "new"}])
    result = Committer(again.context).commit(again.messages, identity)
    commits = [snapshot.commit_user for snapshot in table.context.snapshots.newest_first()].count("job")
    whole.append(commits == 1 and [row["v"] for row in table.rows()] == ["new"])
    last = writer.storage.calls[-1] if call else "nothing done yet"
    what = f"dies behind call {call}: {last}" if has_crashed else "lives"
    after = "is recognised as made" if result.already_committed else f"makes snapshot {result.snapshots[0].id}"
    story.tell("writer", what, f"readers see {seen}, {orphans} files are nobody's; the job, repeated, {after}")
    return has_crashed


def unsafe_rename(setting: LabSetting) -> list[Story]:
    """An object store whose rename is a look and an overwrite, against one with a conditional put."""
    stories = []
    for store in (RENAMING, CONDITIONAL):
        table = LabTable(Story("unsafe-rename", (setting.check,), store), setting, COLUMNS, "k", {"bucket": "2"})
        a, b = Writer(table, "writer A"), Writer(table, "writer B")
        own, other = table.keys_of_buckets()
        a.prepare([{"k": own, "v": "A"}])
        b.prepare([{"k": other, "v": "B"}])
        a.storage.before_put = b.commit
        a.commit()
        bad = "B was told that its commit was made, and its snapshot is gone"
        stories.append(_ended(table, {own: "A", other: "B"}, "both commits are there", bad))
    return stories
