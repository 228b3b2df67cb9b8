"""Tables whose primary key does not include all partition columns: each key is in one partition, whichever writer adds it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import BadInput, BucketsConflict, DamagedFile, NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.update_job import UpdateRequest, UpdateSummary, run_update
from paimon_cli.jobs.write_job import write_input
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.data_file import DELETION_VECTORS
from paimon_cli.storage.injected import Clock
from paimon_cli.write.table_writer import Written
from tests.nightly import at_night
from tests.tables import Row, compact, data_files, live_files, make_table, rows, write

COLUMNS = {"p": "STRING", "k": "INT NOT NULL", "v": "INT", "w": "INT"}


def cross_table(folder: Path, options: dict[str, str] | None = None, columns: dict[str, str] | None = None) -> TableContext:
    return make_table(folder, columns or COLUMNS, ["k"], ["p"], -1, {"dynamic-bucket.target-row-num": "5", **(options or {})})


Fold = Callable[[Row | None, Row], Row | None]


def _replaced(old: Row | None, new: Row) -> Row | None:
    return new


def _patched(old: Row | None, new: Row) -> Row | None:
    return new if old is None else {n: old[n] if n == "p" or new[n] is None else new[n] for n in new}


def _summed(old: Row | None, new: Row) -> Row | None:
    if old is None:
        return new
    return {**old, "v": (old["v"] or 0) + (new["v"] or 0) if (old["v"], new["v"]) != (None, None) else None, "w": new["w"]}


def _first(old: Row | None, new: Row) -> Row | None:
    return old or new


ENGINES: dict[str, tuple[Fold, dict[str, str]]] = {
    "deduplicate": (_replaced, {}),
    "partial-update": (_patched, {"merge-engine": "partial-update"}),
    "aggregation": (
        _summed,
        {
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.w.aggregate-function": "last_value",
        },
    ),
    "first-row": (_first, {"merge-engine": "first-row"}),
}
WAYS: dict[str, dict[str, str]] = {
    "merged": {},
    "vectors": {"deletion-vectors.enabled": "true"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "spilled": {"write-buffer-size": "1 kb", "local-sort.max-num-file-handles": "2"},
    "snapshot-ordering": {"sequence.snapshot-ordering": "true", "write-only": "true"},
    "orc": {"file.format": "orc"},
    "avro": {"file.format": "avro"},
}


COMBINATIONS = [
    *(("deduplicate", way) for way in WAYS),
    *(("partial-update", way) for way in ("merged", "vectors", "spilled")),
    *(("aggregation", way) for way in ("merged", "lookup", "avro")),
    *(("first-row", way) for way in ("merged", "lookup", "spilled")),
]
EACH_TIME = [
    ("deduplicate", "vectors"),
    ("deduplicate", "input"),
    ("deduplicate", "snapshot-ordering"),
    ("deduplicate", "orc"),
    ("partial-update", "merged"),
    ("aggregation", "lookup"),
    ("aggregation", "avro"),
    ("first-row", "spilled"),
]
"""Each engine and each way; all combinations at night."""
AT_NIGHT = [combination for combination in COMBINATIONS if combination not in EACH_TIME]


@pytest.mark.in_part(8)
@pytest.mark.parametrize(("engine", "way"), [*EACH_TIME, *(at_night(*both) for both in AT_NIGHT)])
def test_random_rows_beside_an_oracle(engine: str, way: str, tmp_path: Path) -> None:
    fold, options = ENGINES[engine]
    context = cross_table(tmp_path / "t", {**options, **WAYS[way], "num-sorted-run.compaction-trigger": "3"})
    dice = random.Random(f"{engine}-{way}")
    expected: dict[int, Row] = {}
    for number in range(7):
        changes = [_change(dice, deletes=engine == "deduplicate") for _ in range(dice.choice((1, 5, 40)))]
        write(context, [{**row, "_op": kind} for kind, row in changes], compact=dice.choice(("none", "inline")))
        for kind, row in changes:
            merged = fold(expected.get(row["k"]), row) if kind == "+I" else None
            if merged is None:
                expected.pop(row["k"], None)
            else:
                expected[row["k"]] = merged
        if number % 3 == 2:
            compact(context, strategy=dice.choice(("minor", "full")))
        assert _texts(rows(context.with_level_0())) == _texts(expected.values())
    compact(context, strategy="full")
    assert _texts(rows(context)) == _texts(expected.values())
    assert not list(check_table(context, rows=True))


def _change(dice: random.Random, deletes: bool) -> tuple[str, Row]:
    row = {
        "p": dice.choice((None, "a", "b", "c")),
        "k": dice.randrange(40),
        "v": dice.choice((None, *range(9))),
        "w": dice.randrange(9),
    }
    return ("-D" if deletes and dice.random() < 0.2 else "+I"), row


def _texts(found: Any) -> list[str]:
    return sorted(repr(list(row.values())) for row in found)


def test_rows_of_another_partition_are_deleted_where_they_were(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": "a", "k": k, "v": k, "w": 0} for k in range(3)])
    summary = write(context, [{"p": "b", "k": 1, "v": 9, "w": 0}])
    assert (summary.rows, summary.delete_rows, summary.buckets) == (2, 1, 2)
    assert [(row["p"], row["k"]) for row in rows(context)] == [("a", 0), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_a_key_that_returns_to_a_partition_gets_the_bucket_that_it_had_there(tmp_path: Path, producer: str) -> None:
    """Otherwise the changes of one commit would delete and insert the key in two buckets, and have no order."""
    context = cross_table(tmp_path / "t", {"changelog-producer": producer, "dynamic-bucket.target-row-num": "2"})
    write(context, [{"p": "a", "k": k, "v": 0, "w": 0} for k in range(6)])
    roomy = context.with_options({"dynamic-bucket.target-row-num": "5000"})
    write(roomy, [{"p": p, "k": k, "v": v, "w": 0} for v, p in enumerate("bcbab", 1) for k in range(6) if v < 5 or k < 3])
    table, copy = Table.open(context.url), dict[tuple[str, int], int]()
    for change in table.changelog(1).to_arrow().to_pylist():
        if change["rowkind"] in ("+I", "+U"):
            copy[change["p"], change["k"]] = change["v"]
        else:
            copy.pop((change["p"], change["k"]), None)
    assert copy == {**{("b", k): 5 for k in range(3)}, **{("a", k): 4 for k in range(3, 6)}}
    assert copy == {(row["p"], row["k"]): row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert not list(check_table(context, rows=True))


def test_partitions_are_dropped_after_the_first_snapshot_has_expired(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    for p in "abc":
        write(context, [{"p": p, "k": ord(p), "v": 0, "w": 0}])
    table = Table.open(context.url)
    table.expire(retain_max=1, retain_min=1, older_than="0s")
    assert len(table.snapshot_ids()) == 1
    table.drop_partition({"p": "a"})
    assert [row["p"] for row in rows(context)] == ["b", "c"]
    table.truncate()
    assert rows(context) == []


def test_deletes_need_the_primary_key_only(tmp_path: Path) -> None:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}
    context = cross_table(tmp_path / "t", columns=columns)
    write(context, [{"p": "a", "k": k, "v": k} for k in range(3)])
    summary = write(context, [{"k": 1}, {"k": 77}], op="delete")
    assert [row["k"] for row in rows(context)] == [0, 2] and (summary.rows, summary.buckets) == (1, 1)
    assert write(context, [{"k": 78}], op="delete").files == 0
    assert not list(check_table(context, rows=True))


def test_retractions_do_not_empty_the_partition_column(tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "sum"}
    context = cross_table(tmp_path / "t", options)
    write(context, [{"p": "a", "k": 1, "v": 5, "w": 5}])
    write(context, [{"_op": "-D", "p": "b", "k": 1, "v": 2, "w": 1}])
    compact(context)
    assert rows(context) == [{"p": "a", "k": 1, "v": 3, "w": 4}]
    assert not list(check_table(context, rows=True))


def test_a_recorded_delete_names_the_partition_where_its_key_lives(tmp_path: Path) -> None:
    """Whatever partition the input names; that of an unknown key stays as it is."""
    context = cross_table(tmp_path / "t", {"changelog-producer": "input"})
    write(context, [{"p": "a", "k": k, "v": 5, "w": 5} for k in range(2)])
    write(context, [{"_op": "-D", "p": "b", "k": k, "v": 5, "w": 5} for k in (1, 7)])
    assert [row["k"] for row in rows(context)] == [0]
    changes = Table.open(context.url).changelog(2).to_arrow().to_pylist()
    assert sorted((change["p"], change["k"], change["rowkind"]) for change in changes) == [("a", 1, "-D"), ("b", 7, "-D")]


def test_keys_that_hold_some_partition_columns_are_different_there(tmp_path: Path) -> None:
    columns = {"r": "STRING NOT NULL", "p": "STRING", "k": "INT NOT NULL", "v": "INT"}
    context = make_table(tmp_path / "t", columns, ["k", "r"], ["r", "p"], -1)
    write(context, [{"r": r, "p": "a", "k": 1, "v": 0} for r in "xy"])
    write(context, [{"r": "x", "p": "b", "k": 1, "v": 1}])
    assert sorted((row["r"], row["p"], row["v"]) for row in rows(context)) == [("x", "b", 1), ("y", "a", 0)]


def test_two_writers_do_not_leave_a_key_in_two_partitions(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": "a", "k": 1, "v": 0, "w": 0}])
    for begin in ([{"p": "b", "k": 1, "v": 1, "w": 0}], [{"p": "b", "k": 2, "v": 1, "w": 0}]):
        written, identity = _written_but_not_committed(context, begin)
        write(context, [{**begin[0], "p": "c", "v": 2}])
        with pytest.raises(BucketsConflict, match="key k="):
            Committer(context).commit(written.messages, identity)
    assert sorted((row["p"], row["k"]) for row in rows(context)) == [("c", 1), ("c", 2)]


def test_writers_that_update_keys_where_they_are_do_not_conflict(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": "a", "k": k, "v": 0, "w": 0} for k in range(3)])
    written, identity = _written_but_not_committed(context, [{"p": "a", "k": 1, "v": 1, "w": 0}])
    write(context, [{"p": "a", "k": 1, "v": 2, "w": 0}, {"p": "b", "k": 7, "v": 2, "w": 0}])
    Committer(context).commit(written.messages, identity)
    assert len(rows(context)) == 4


def test_a_write_that_was_overtaken_looks_up_its_keys_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": "a", "k": 1, "v": 0, "w": 0}])
    commit, overtaken = Committer.commit, [False]

    def after_another(self: Committer, *messages: Any, **options: Any) -> CommitResult:
        if not overtaken[0]:
            overtaken[0] = True
            write(context, [{"p": "c", "k": 1, "v": 2, "w": 0}])
        return commit(self, *messages, **options)

    monkeypatch.setattr(Committer, "commit", after_another)
    write(context, [{"p": "b", "k": 1, "v": 1, "w": 0}])
    assert [(row["p"], row["v"]) for row in rows(context)] == [("b", 1)]
    assert data_files(context) == live_files(context)


def _written_but_not_committed(context: TableContext, incoming: list[Row]) -> tuple[Written, CommitIdentity]:
    source = Path(context.layout.root).parent / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in incoming))
    request = WriteRequest(FileRows((str(source),), "json"), compact="none")
    written, _ = write_input(plan_write(context, request), request, LocalEngine(), NoProgress())
    return written, fresh_identity(context)


def test_overwrites(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": p, "k": k, "v": 0, "w": 0} for k, p in enumerate("aabbc")])
    write(context, [{"p": "b", "k": 0, "v": 1, "w": 0}], overwrite=True)
    assert [(row["p"], row["k"], row["v"]) for row in rows(context)] == [("a", 1, 0), ("b", 0, 1), ("c", 4, 0)]
    write(context, [{"p": "c", "k": 1, "v": 2, "w": 0}], overwrite=True, partition={"p": "c"})
    assert [(row["p"], row["k"], row["v"]) for row in rows(context)] == [("b", 0, 1), ("c", 1, 2)]
    with pytest.raises(BadInput, match="outside the partition"):
        write(context, [{"p": "b", "k": 1, "v": 2, "w": 0}], overwrite=True, partition={"p": "c"})
    whole = TableContext.open(context.url, {"dynamic-partition-overwrite": "false"})
    write(whole, [{"p": "a", "k": 9, "v": 3, "w": 0}], overwrite=True)
    assert [(row["p"], row["k"], row["v"]) for row in rows(context)] == [("a", 9, 3)]
    assert not list(check_table(context, rows=True))


def test_overwrites_of_hidden_rows_are_shown(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t", {"deletion-vectors.enabled": "true"})
    write(context, [{"p": p, "k": k, "v": 0, "w": 0} for k, p in enumerate("aab")])
    done = write(context, [{"p": "b", "k": 0, "v": 1, "w": 0}], overwrite=True)
    assert [(row["p"], row["k"], row["v"]) for row in rows(context)] == [("a", 1, 0), ("b", 0, 1)]
    assert (done.snapshots[-1], done.compacted) == (context.snapshots.latest(), 2), "what it has compacted belongs to it"


def test_what_cannot_be_right_is_refused(tmp_path: Path) -> None:
    deaf = cross_table(tmp_path / "deaf", {"ignore-delete": "true"})
    with pytest.raises(NotSupported, match="ignore-delete"):
        write(deaf, [{"p": "a", "k": 1, "v": 1, "w": 0}])
    patched = cross_table(tmp_path / "patched", {"merge-engine": "partial-update"})
    with pytest.raises(NotSupported, match="overwrite"):
        write(patched, [{"p": "a", "k": 1, "v": 1, "w": 0}], overwrite=True)


def test_old_keys_are_forgotten_after_the_time_to_live(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t", {"cross-partition-upsert.index-ttl": "1 h"})
    write(context, [{"p": "a", "k": 1, "v": 0, "w": 0}])
    later = replace(context, clock=_Later(context.clock, 2 * 3_600_000))
    write(later, [{"p": "b", "k": 1, "v": 1, "w": 0}])
    assert [(row["p"], row["k"]) for row in rows(context)] == [("a", 1), ("b", 1)]


class _Later:
    """A clock that is ahead."""

    def __init__(self, clock: Clock, millis: int) -> None:
        self._clock = clock
        self._millis = millis

    def now_millis(self) -> int:
        return self._clock.now_millis() + self._millis

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def test_a_key_in_two_partitions_is_named(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": "a", "k": 1, "v": 0, "w": 0}])
    forgetting = TableContext.open(context.url, {"cross-partition-upsert.index-ttl": "1 h"})
    later = replace(forgetting, clock=_Later(context.clock, 2 * 3_600_000))
    write(later, [{"p": "b", "k": 1, "v": 1, "w": 0}])
    with pytest.raises(DamagedFile, match="k = 1 lives in two buckets"):
        write(context, [{"p": "c", "k": 1, "v": 2, "w": 0}])
    (found,) = check_table(context, rows=True)
    assert found.code == "PV060" and "such as k = 1 in p=a/bucket-0 and p=b/bucket-0" in found.message
    write(forgetting, [{"p": "c", "k": 1, "v": 2, "w": 0}])
    assert len(rows(context)) == 2
    _update(context, "k = 1 AND p <> 'c'")
    assert [(row["p"], row["k"]) for row in rows(context)] == [("c", 1)]
    assert not list(check_table(context, rows=True))


def _update(context: TableContext, where: str, *assignments: str) -> UpdateSummary:
    return run_update(context, UpdateRequest(where, assignments), LocalEngine(), NoProgress())


def test_an_update_of_the_partition_moves_rows(tmp_path: Path) -> None:
    context = cross_table(tmp_path / "t")
    write(context, [{"p": "ab"[k % 2], "k": k, "v": k, "w": 0} for k in range(6)])
    summary = _update(context, "k < 3", "p = 'b'", "v = v + 10")
    assert summary.rows == 3
    assert [(row["p"], row["k"], row["v"]) for row in sorted(rows(context), key=lambda row: row["k"])] == [
        ("b", 0, 10),
        ("b", 1, 11),
        ("b", 2, 12),
        ("b", 3, 3),
        ("a", 4, 4),
        ("b", 5, 5),
    ]
    assert _update(context, "k = 77", "p = 'c'").snapshots == ()
    assert _update(context, "p = 'b' AND k = 5").rows == 1 and len(rows(context)) == 5
    assert not list(check_table(context, rows=True))
    patched = cross_table(tmp_path / "patched", {"merge-engine": "partial-update"})
    with pytest.raises(UsageError, match="cannot be set"):
        _update(patched, "k = 1", "p = 'b'")


def test_keys_whose_rows_are_marked_where_they_lived_have_moved_on(tmp_path: Path) -> None:
    """Deletion vectors hide their old rows, which stay in the files of partitions that the keys have left."""
    context = cross_table(tmp_path / "t", WAYS["vectors"] | {"dynamic-bucket.target-row-num": "5000"})
    held = {k: {"p": "a", "k": k, "v": k * 7919 % 1013, "w": k * 104729} for k in range(3000)}
    write(context, [*held.values()])
    compact(context, strategy="full")
    for place in "bcab":
        held |= {k: {**held[k], "p": place, "v": ord(place)} for k in range(5)}
        write(context, [held[k] for k in range(5)])
        compact(context, strategy="minor")
        marks = [i for bucket in bucket_files(context, context.snapshots.latest()).values() for i in bucket.index_files]
        assert any(index.index_type == DELETION_VECTORS for index in marks)
        assert sorted(rows(context), key=lambda row: row["k"]) == [*held.values()]
    assert [finding for finding in check_table(context, rows=True)] == []


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_values_are_set_without_a_move_of_their_keys(tmp_path: Path, engine: str) -> None:
    context = cross_table(tmp_path / "t", ENGINES[engine][1])
    write(context, [{"p": p, "k": k, "v": 1, "w": 1} for k, p in enumerate("abab")])
    assert _update(context, "k in (1, 2)", "v = 5").rows == 2
    expected = [{"p": p, "k": k, "v": 5 if k in (1, 2) else 1, "w": 1} for k, p in enumerate("abab")]
    assert sorted(rows(context), key=lambda row: row["k"]) == expected
