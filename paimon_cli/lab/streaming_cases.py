"""Cases of jobs that run on: restarts without end, back pressure, and the race on the index of dynamic buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paimon_cli.commit.commit_messages import SnapshotChanges
from paimon_cli.commit.committer import CommitStep, Committer
from paimon_cli.history.live_files import bucket_files
from paimon_cli.invariants.violation import ERROR
from paimon_cli.lab.lab_table import Compactor, LabSetting, LabTable, Writer, writers_of
from paimon_cli.lab.story import Story
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.metadata.snapshot import Snapshot

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
WRITE_ONLY = "write-only"
TRIGGER, STOP_TRIGGER = "num-sorted-run.compaction-trigger", "num-sorted-run.stop-trigger"


def _table(case: str, setting: LabSetting, options: Mapping[str, str]) -> LabTable:
    story = Story(case, (setting.check,))
    story.record("table", f"has the options {', '.join(f'{key}={value}' for key, value in options.items())}")
    return LabTable(story, setting, COLUMNS, "k", options)


def restarts(setting: LabSetting) -> list[Story]:
    """Two streaming jobs that both compact one bucket, and the same jobs as write-only writers beside one dedicated compactor."""
    return [_restarting_jobs(setting), _writers_and_compactor(setting)]


def _restarting_jobs(setting: LabSetting) -> Story:
    table = _table("restart-loop", setting, {WRITE_ONLY: "false"})
    Writer(table, "setup").write([{"k": 0, "v": "old"}])
    names = ("job A", "job B")
    jobs = [(Writer(table, name), Compactor(table, name)) for name in names]
    expected, count = {0: "old"}, 0
    for checkpoint in range(1, setting.rounds + 1):
        for writer, _compactor in jobs:
            key, value = names.index(writer.name) + 1, f"{writer.name[-1]}{checkpoint}"
            writer.write([{"k": key, "v": value}])
            expected[key] = value
        for _writer, compactor in jobs:
            compactor.prepare()
        for _writer, compactor in jobs:
            if not compactor.commit():
                count += 1
                compactor.record("fails, and restarts from its last checkpoint", f"restart {count}", is_conflict=True)
        jobs.reverse()  # the job that has just started again reads the table first, and commits first
    correct = _rows_are(table, expected)
    bad = f"{count} restarts in {setting.rounds} checkpoints: at each one the job that commits first makes the other one fail"
    return table.story.end(correct and not count, "no restart" if correct and not count else bad if correct else "rows are wrong")


def _writers_and_compactor(setting: LabSetting) -> Story:
    table = _table("restart-loop", setting, {WRITE_ONLY: "true"})
    Writer(table, "setup").write([{"k": 0, "v": "old"}])
    jobs, compactor = [Writer(table, "job A"), Writer(table, "job B")], Compactor(table, "compactor")
    expected, conflicts = {0: "old"}, 0
    for checkpoint in range(1, setting.rounds + 1):
        compactor.prepare()
        for key, writer in enumerate(jobs, 1):
            expected[key] = f"{writer.name[-1]}{checkpoint}"
            writer.write([{"k": key, "v": expected[key]}])
        conflicts += not compactor.commit()
    correct = _rows_are(table, expected) and not conflicts
    good = f"no restart in {setting.rounds} checkpoints: the jobs only add files, and no other job removes files of the compactor"
    return table.story.end(correct, good if correct else f"{conflicts} conflicts, or rows are wrong")


def _rows_are(table: LabTable, expected: Mapping[int, str]) -> bool:
    visible = {row["k"]: row["v"] for row in table.rows()}
    errors = [violation for violation in table.end() if violation.severity == ERROR]
    return visible == expected and not errors


COMMITS_OF_A = 4
"""How often writer A commits in a round. A round of writer B is one commit; one of the slow compactor takes two rounds."""
LIMIT = 4


def back_pressure(setting: LabSetting) -> list[Story]:
    """Two writers beside a compactor that is too slow: once neither waits, once writer B waits at the stop trigger."""
    return [_under_pressure(setting, waits=waits) for waits in (False, True)]


def _under_pressure(setting: LabSetting, *, waits: bool) -> Story:
    options = {WRITE_ONLY: "true", TRIGGER: str(LIMIT), STOP_TRIGGER: str(LIMIT)}
    table = _table("back-pressure", setting, options)
    first, second = Writer(table, "writer A"), Writer(table, "writer B", {WRITE_ONLY: "false"} if waits else None)
    second.record(
        f"runs with write-only={'false' if waits else 'true'}", "it waits at the stop trigger" if waits else "it never waits"
    )
    compactor = Compactor(table, "compactor")
    expected: dict[int, str] = {}
    most = stalls = 0
    for number in range(1, setting.rounds + 1):
        if number % 2:
            compactor.record("is busy elsewhere")
        else:
            compactor.compact()
        for writer in (*[first] * COMMITS_OF_A, second):
            key = len(expected) + 1
            expected[key] = f"{writer.name[-1]}{number}"
            before = _run_count(table)
            writer.prepare([{"k": key, "v": expected[key]}])
            if writer.stalls:
                stalls += writer.stalls
                writer.record(
                    "had to wait for a compaction before its rows were taken", f"{before} sorted runs, stop trigger {LIMIT}"
                )
            writer.commit()
            most = max(most, _run_count(table))
        second.record(f"ends round {number}", f"each read merges {_run_count(table)} sorted runs")
    correct = _rows_are(table, expected)
    good = f"never more than {most} sorted runs: writer B waited {stalls} times for a compaction"
    bad = f"up to {most} sorted runs: no writer waits, so they grow with the delay of the compactor"
    return table.story.end(correct and waits, "rows are wrong" if not correct else good if waits else bad)


def _run_count(table: LabTable) -> int:
    latest = table.context.snapshots.latest()
    if latest is None:
        return 0
    return max(count_runs(bucket.files) for bucket in bucket_files(table.context, latest).values())


class UncheckedIndexes(Committer):
    """Commits without a look at the hash indexes that assigned the rows to buckets, as Java does."""

    def _check(self, step: CommitStep, changes: SnapshotChanges, latest: Snapshot | None, attempt: int) -> None:
        super()._check(step, replace(changes, read_hash_indexes=frozenset()), latest, attempt)


def dynamic_buckets(setting: LabSetting) -> list[Story]:
    """Two writers read one hash index and assign a new key to two buckets: without the comparison of indexes, and with it."""
    return [_race_of_indexes(setting, committer) for committer in (UncheckedIndexes, Committer)]


def _race_of_indexes(setting: LabSetting, committer: type[Committer]) -> Story:
    table = _table("dynamic-bucket-race", setting, {"bucket": "-1", "dynamic-bucket.target-row-num": "3"})
    compares = "does not compare the hash indexes, as in Java" if committer is UncheckedIndexes else "compares the hash indexes"
    table.story.record("commit", compares)
    Writer(table, "setup").write([{"k": 0, "v": "old"}, {"k": 1, "v": "old"}])
    writers = writers_of(table, 2)
    rows = [[{"k": 2, "v": "A"}, {"k": 7, "v": "A"}], [{"k": 7, "v": "B"}]]
    for writer, batch in zip(writers, rows, strict=True):
        writer.prepare(batch)
        _record_buckets(writer)
    for writer, batch in zip(writers, rows, strict=True):
        while not writer.commit(committer):
            writer.record(
                "writes its rows again", "from the latest snapshot; if only the index has changed, `write` does so by itself"
            )
            writer.prepare(batch)
            _record_buckets(writer)
    visible = [row for row in table.rows() if row["k"] == 7]
    is_correct = not [violation for violation in table.end() if violation.severity == ERROR] and len(visible) == 1
    good = "key 7 is in one bucket: the refused writer has found it in the index"
    bad = f"key 7 is in {len(visible)} buckets, readers see {len(visible)} rows of it, and no compaction will merge them"
    return table.story.end(is_correct, good if is_correct else bad)


def _record_buckets(writer: Writer) -> None:
    counts = "; ".join(f"{message.append.added[0].row_count} to bucket-{message.bucket}" for message in writer.messages)
    writer.record("has assigned its rows by the hash index", counts)
