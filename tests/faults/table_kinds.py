"""Operations on other kinds of tables: without a key, with postponed or dynamic buckets, with keys that change partitions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from tests.faults.bench import Actor, Bench, Rows
from tests.faults.operation import IDENTIFIER, USER, Operation, times_compacted, times_job, write_of
from tests.faults.start_tables import two_writes

UNAWARE, FIXED = {"bucket": "-1"}, {"bucket": "2", "bucket-key": "k"}
VECTORS = {"deletion-vectors.enabled": "true"}
MAX_FILES = {"compaction.min.file-num": "2"}
POSTPONED = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
COUNTED = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "true"}

DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "2"}
STAYING = {**DYNAMIC, "merge-engine": "partial-update"}
FIRST = {**DYNAMIC, "merge-engine": "first-row"}

NEW_ROWS = {6: "job", 7: "job"}
NEW_RIVALS = {8: "rival", 9: "rival"}


def three_appends(bench: Bench, options: Mapping[str, str]) -> Rows:
    """A file of each bucket, or of the table, for each write; keys 0 to 5."""
    bench.make_table(options=options, keyed=False)
    actor = bench.healthy()
    for number in range(3):
        actor.write({2 * number: "a", 2 * number + 1: "b"}, commit_user="setup", commit_id=number + 1)
    return {k: "ab"[k % 2] for k in range(6)}


def marked_appends(bench: Bench, options: Mapping[str, str]) -> Rows:
    """An append table of three files, with a vector that marks two rows."""
    rows = three_appends(bench, {**options, **VECTORS})
    request = UpdateRequest("k in (1, 4)", (), commit_user="setup", commit_id=9)
    run_update(bench.healthy().context(), request, LocalEngine(), NoProgress())
    return {k: v for k, v in rows.items() if k not in (1, 4)}


def waiting_rows(bench: Bench, options: Mapping[str, str] = POSTPONED) -> Rows:
    """Rows in buckets, and newer ones of the same keys that wait."""
    bench.make_table(options=options)
    actor = bench.healthy()
    actor.write({k: "a" for k in range(4)}, commit_user="setup", commit_id=1)
    actor.compact()
    actor.write({k: "b" for k in range(2, 6)}, commit_user="setup", commit_id=2)
    return {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "b"}


def append(actor: Actor) -> None:
    actor.write(NEW_ROWS, commit_user=USER, commit_id=IDENTIFIER)


def appended(rows: Rows) -> Rows:
    return {**rows, **NEW_ROWS}


def overwrite(actor: Actor) -> None:
    actor.write(NEW_ROWS, commit_user=USER, commit_id=IDENTIFIER, overwrite=True)


def delete(actor: Actor) -> None:
    run_update(
        actor.context(), UpdateRequest("k in (2, 3, 4)", (), commit_user=USER, commit_id=IDENTIFIER), LocalEngine(), NoProgress()
    )


def deleted(rows: Rows) -> Rows:
    return {k: v for k, v in rows.items() if k not in (2, 3, 4)}


def update(actor: Actor) -> None:
    request = UpdateRequest("k >= 2", ("v = v || '!'",), commit_user=USER, commit_id=IDENTIFIER)
    run_update(actor.context(), request, LocalEngine(), NoProgress())


def updated(rows: Rows) -> Rows:
    return {k: v + "!" if k >= 2 else v for k, v in rows.items()}


def upsert(actor: Actor) -> None:
    actor.write({0: "job", 3: None, 6: "job", 7: "job"}, commit_user=USER, commit_id=IDENTIFIER)


def upserted(rows: Rows) -> Rows:
    after = {**rows, 0: "job", 6: "job", 7: "job"}
    return {k: v for k, v in after.items() if k != 3}


def compact(actor: Actor) -> None:
    actor.compact()


def _written_by_rival(changes: Mapping[int, str]) -> dict[str, Any]:
    return {"rival": functools.partial(write_of, changes=changes), "rival_effect": lambda rows: {**rows, **changes}}


def _append_operations() -> list[Operation]:
    rival = _written_by_rival(NEW_RIVALS)
    compacting: dict[str, Any] = {"rival": lambda bench: bench.healthy().compact()}
    found: list[Operation] = []
    for kind, options in (("append", UNAWARE), ("bucketed-append", FIXED)):
        start = functools.partial(three_appends, options={**options, **MAX_FILES})
        marked = functools.partial(marked_appends, options={**options, **MAX_FILES})
        found += [
            Operation(f"write-{kind}", start, append, times_job, appended),
            Operation(f"write-{kind}-after-rival", start, append, times_job, appended, **rival),
            Operation(f"overwrite-{kind}", start, overwrite, times_job, lambda rows: dict(NEW_ROWS)),
            Operation(f"compact-{kind}", start, compact, times_compacted, may_be_needless=True),
            Operation(f"compact-{kind}-after-rival", start, compact, times_compacted, may_be_needless=True, **rival),
            Operation(f"delete-{kind}", start, delete, times_job, deleted),
            Operation(f"delete-{kind}-after-rival", start, delete, times_job, deleted, **rival),
            Operation(f"update-{kind}-after-compaction", start, update, times_job, updated, **compacting),
            Operation(f"delete-marked-{kind}-after-rival", marked, delete, times_job, deleted, **rival),
            Operation(f"update-marked-{kind}-after-compaction", marked, update, times_job, updated, **compacting),
            Operation(f"compact-marked-{kind}", marked, compact, times_compacted, may_be_needless=True),
        ]
    return found


def _postponed_operations() -> list[Operation]:
    job = Operation("write-postponed", waiting_rows, upsert, times_job, upserted)
    distributed = Operation("compact-postponed", waiting_rows, compact, times_compacted, may_be_needless=True, is_gradual=True)
    counted = functools.partial(waiting_rows, options=COUNTED)
    rival: dict[str, Any] = {"rival": write_of, "rival_effect": lambda rows: _changed_by_rival(rows)}
    compacting: dict[str, Any] = {"rival": lambda bench: bench.healthy().compact()}
    return [
        job,
        replace(job, name="write-postponed-after-compaction", **compacting),
        replace(job, name="write-counted", start=counted, is_gradual=True),
        replace(job, name="write-counted-after-rival", start=counted, is_gradual=True, **rival),
        replace(job, name="overwrite-postponed", act=overwrite, effect=lambda rows: dict(NEW_ROWS)),
        distributed,
        replace(distributed, name="compact-postponed-after-write", **rival),
        replace(distributed, name="compact-postponed-after-compaction", **compacting),
    ]


def _dynamic_operations() -> list[Operation]:
    start = functools.partial(two_writes, options=DYNAMIC)
    rival: dict[str, Any] = {"rival": write_of, "rival_effect": lambda rows: _changed_by_rival(rows)}
    job = Operation("write-dynamic", start, upsert, times_job, upserted, is_gradual=True)
    return [
        job,
        replace(job, name="write-dynamic-after-rival", **rival),
        replace(job, name="overwrite-dynamic", act=overwrite, effect=lambda rows: dict(NEW_ROWS)),
        Operation("update-dynamic-after-rival", start, update, times_job, updated, **rival),
        Operation("compact-dynamic", start, compact, times_compacted, may_be_needless=True),
    ]


def moving_rows(bench: Bench, options: Mapping[str, str] = DYNAMIC) -> Rows:
    """Keys 0 to 3 in partition 1; then 2 and 3 again and 4 and 5, for partition 0."""
    bench.make_table(partitioned=True, options=options, moving=True)
    actor = bench.healthy()
    actor.write({k: "a" for k in range(4)}, commit_user="setup", commit_id=1)
    actor.compact()
    actor.write({k: "bb" for k in range(2, 6)}, commit_user="setup", commit_id=2)
    is_first = options.get("merge-engine") == "first-row"
    return {0: "a", 1: "a", **dict.fromkeys((2, 3), "a" if is_first else "bb"), 4: "bb", 5: "bb"}


MOVES = {0: "back", 2: "job", 6: "job", 7: "more"}
"""A row to the other partition, one back, new ones for both."""
RIVAL_MOVES = {0: "rivals", 1: "rival", 9: "rivals"}
RIVAL_MOVES_THE_SAME = {0: "rivals", 2: "rival"}
"""Key 2 to partition 1, while a job reads it in partition 0."""
RIVAL_STAYS = {1: "rival", 9: "rivals"}
"""Keys of its own: where rows stay, two writers of one key are as unordered as in any other table."""


def move(actor: Actor) -> None:
    actor.write(MOVES, commit_user=USER, commit_id=IDENTIFIER)


def moved(rows: Rows) -> Rows:
    return {**rows, **MOVES}


def move_and_delete(actor: Actor) -> None:
    actor.write({**MOVES, 3: None}, commit_user=USER, commit_id=IDENTIFIER)


def _hiding_operations() -> list[Operation]:
    """Readers skip the new rows until a compaction, so a commit is followed by a look at what waits."""
    start = functools.partial(two_writes, options={**VECTORS, "write-only": "true"})
    job = Operation("write-vectors", start, upsert, times_job, upserted)
    return [
        job,
        replace(job, name="update-vectors", act=update, effect=updated),
        replace(job, name="overwrite-vectors", act=overwrite, effect=lambda rows: dict(NEW_ROWS)),
    ]


def _cross_partition_operations() -> list[Operation]:
    rival, shared, beside = (_written_by_rival(changes) for changes in (RIVAL_MOVES, RIVAL_MOVES_THE_SAME, RIVAL_STAYS))
    job = Operation("write-moving", moving_rows, move_and_delete, times_job, _without_3, is_gradual=True)
    stays = replace(job, name="write-staying", start=functools.partial(moving_rows, options=STAYING), act=move, effect=moved)
    first = replace(stays, start=functools.partial(moving_rows, options=FIRST), effect=lambda rows: {**MOVES, **rows})
    compacts = Operation("compact-moving", moving_rows, compact, times_compacted, may_be_needless=True)
    return [
        job,
        replace(job, name="write-moving-after-rival", **rival),
        replace(job, name="write-moving-after-compaction", rival=lambda bench: bench.healthy().compact()),
        replace(job, name="overwrite-moving", act=overwrite_both, effect=lambda rows: dict(NEW_ROWS)),
        stays,
        replace(stays, name="write-staying-after-rival", **beside),
        replace(first, name="write-first-moving", may_be_needless=True),
        Operation("update-moving-after-rival", moving_rows, update, times_job, updated, **shared),
        Operation("delete-moving-after-rival", moving_rows, delete, times_job, deleted, **shared),
        compacts,
        replace(compacts, name="compact-moving-after-write", **rival),
    ]


def _without_3(rows: Rows) -> Rows:
    return {k: v for k, v in moved(rows).items() if k != 3}


def overwrite_both(actor: Actor) -> None:
    actor.write(NEW_ROWS, {"dynamic-partition-overwrite": "false"}, commit_user=USER, commit_id=IDENTIFIER, overwrite=True)


def _changed_by_rival(rows: Rows) -> Rows:
    after = {**rows, 1: "rival", 9: "rival"}
    return {k: v for k, v in after.items() if k != 5}


def operations() -> list[Operation]:
    of_keys = [*_postponed_operations(), *_dynamic_operations(), *_hiding_operations(), *_cross_partition_operations()]
    return [*_append_operations(), *of_keys]
