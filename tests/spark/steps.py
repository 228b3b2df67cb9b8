"""Random steps of what docs/spark.md shows, on tables of every kind, in any session, beside a table in plain Python."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import spark
from paimon_cli.errors import BadInput
from tests.spark.world import AT, ODD, SQL, K, N, P, V, Values, World, ordered

SETTINGS: dict[str, tuple[str, ...]] = {
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.caseSensitive": ("true", "false"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("3", "10000"),
    "spark.sql.sources.partitionOverwriteMode": ("dynamic", "static"),
    "spark.sql.shuffle.partitions": ("1", "3"),
    "spark.sql.session.timeZone": ("UTC", "America/New_York", "Asia/Kolkata"),
}
SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("p", pa.string()),
        ("v", pa.string()),
        ("n", pa.int64()),
        ("Odd Name", pa.int32()),
        ("at", pa.timestamp("us")),
    ]
)
Fault = Callable[[], None]


def set_at_random(session: SparkSession, dice: random.Random) -> dict[str, str]:
    chosen = {key: dice.choice(values) for key, values in SETTINGS.items()}
    for key, value in chosen.items():
        session.conf.set(key, value)
    return chosen


def this_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def this_executor() -> None:
    """With all that it has started: a Python worker that outlives its executor may still finish a file."""
    os.kill(parent_of(os.getppid()), signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


def parent_of(process: int) -> int:
    """0 where it has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def fails() -> None:
    raise ValueError("the function fails once")


def through_a_fault(world: World, rows: DataFrame) -> DataFrame:
    """The rows, through a function that fails once, or whose worker or executor dies once, in the middle of a partition."""
    if not world.faults or world.dice.random() < 0.7:
        return rows
    marker, fault = world.folder / f"fault-{world.next()}", world.dice.choice(world.faults)
    return rows.mapInArrow(passing_on(str(marker), fault), SQL)


def passing_on(marker: str, fault: Fault) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 1)
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                time.sleep(0.3)
                fault()
            yield batch.slice(1)

    return pass_on


def write(world: World) -> None:
    rows = world.some_rows()
    frame = through_a_fault(world, world.frame(rows))
    if world.dice.random() < 0.5:
        spark.write(frame, world.url)
    else:
        frame.write.format("paimon").mode("append").save(world.url)
    world.upsert(rows)


def write_repeated_keys(world: World) -> None:
    """The last row of the last partition wins."""
    rows = [*world.some_rows(5), *world.some_rows(5)]
    frame = world.frame(rows).coalesce(1) if world.kind.key else world.frame(rows)
    frame = world.session.createDataFrame(rows, SQL).coalesce(1) if world.kind.key else frame
    if world.dice.random() < 0.5:
        world.table.write(frame)
    else:
        frame.write.format("paimon").mode("append").save(world.url)
    world.upsert(rows)


def write_twice(world: World) -> None:
    """The same commit again."""
    rows, number = world.some_rows(), world.next()
    frame = world.frame(rows)
    for _ in range(2):
        if world.dice.random() < 0.5:
            spark.write(frame, world.url, commit_user="twice", commit_id=number)
        else:
            options = {"commit_user": "twice", "commit_id": str(number)}
            frame.write.format("paimon").options(**options).mode("append").save(world.url)
    world.upsert(rows)


def write_kinds(world: World) -> None:
    rows = world.some_rows()
    kinds = [world.dice.choice(("+I", "+U", "-D")) for _ in rows]
    frame = world.frame([(*row, op) for row, op in zip(rows, kinds, strict=True)], f"{SQL}, op string")
    if world.dice.random() < 0.5:
        spark.write(frame, world.url, op_column="op")
    else:
        frame.write.format("paimon").option("op_column", "op").mode("append").save(world.url)
    gone = {world.key_of(row) for row, op in zip(rows, kinds, strict=True) if op == "-D"}
    world.remove(lambda row: world.key_of(row) in gone)
    world.upsert(row for row, op in zip(rows, kinds, strict=True) if op != "-D")


def overwrite(world: World) -> None:
    rows = world.some_rows()
    frame, whole = world.frame(rows), world.dice.random() < 0.4
    options = {"dynamic-partition-overwrite": "false"} if whole else {}
    if world.dice.random() < 0.5:
        spark.write(frame, world.url, overwrite=True, options=options)
    else:
        frame.write.format("paimon").options(**options).mode("overwrite").save(world.url)
    replaced = {row[P] for row in rows}
    world.remove(lambda row: whole or not world.kind.partition or row[P] in replaced)
    world.upsert(rows)


def merge(world: World) -> None:
    rows = [(*row, world.dice.choice("uud")) for row in world.some_rows()]
    frame = world.frame(rows, f"{SQL}, op string")
    on = ["p", "k"] if world.kind.partition and world.dice.random() < 0.5 and "p" in (world.kind.key or ("p",)) else ["k"]
    begun = spark.merge(frame, world.url, on=on).when_matched_delete(condition="source.op = 'd'")
    begun = begun.when_matched_update({"n": "n + source.n", "Odd Name": "source.`Odd Name`"}, condition="source.v = 'x'")
    begun.when_matched_update({"v": "source.v", "at": "source.at"}).when_not_matched_insert_all(condition="op <> 'd'").execute()
    by_key = {tuple(row[K if name == "k" else P] for name in on): row for row in rows}
    met, after = set(), []
    for row in world.rows:
        key = tuple(row[K if name == "k" else P] for name in on)
        new = by_key.get(key)
        if new is None:
            after.append(row)
            continue
        met.add(key)
        if new[-1] == "d":
            continue
        if new[V] == "x":
            total = None if row[N] is None or new[N] is None else row[N] + new[N]
            after.append((row[K], row[P], row[V], total, new[ODD], row[AT]))
        else:
            after.append((row[K], row[P], new[V], row[N], row[ODD], new[AT]))
    world.rows = [*after, *(row[:-1] for key, row in by_key.items() if key not in met and row[-1] != "d")]


def merge_new(world: World) -> None:
    """In any table, rows that are not there can be inserted."""
    rows = world.some_rows()
    spark.merge(world.frame(rows), world.url, on="k").when_not_matched_insert_all().execute()
    there = {row[K] for row in world.rows}
    world.rows += [row for row in rows if row[K] not in there]


def update(world: World) -> None:
    most = world.dice.randrange(12)
    world.table.update({"n": "coalesce(n, 0) + 1", "v": "concat(v, '!')"}, where=f"k < {most}")
    world.rows = [
        (*row[:V], None if row[V] is None else f"{row[V]}!", (row[N] or 0) + 1, *row[ODD:]) if row[K] < most else row
        for row in world.rows
    ]


def delete(world: World) -> None:
    key = world.dice.randrange(14)
    world.table.delete(where=f"k BETWEEN {key} AND {key + 1}")
    world.remove(lambda row: key <= row[K] <= key + 1)


def compact(world: World) -> None:
    world.table.compact(strategy=world.dice.choice(("full", "minor")))


def stream(world: World) -> None:
    """A batch of a stream, now and then after one that is repeated; by the data source or by a function."""
    rows, source, checkpoint = world.some_rows(), world.folder / "source", world.folder / "checkpoint"
    source.mkdir(exist_ok=True)
    file = source / f"{world.next()}.parquet"
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table([pa.array(column, t.type) for column, t in zip(columns, SCHEMA, strict=True)], SCHEMA), file)
    os.utime(file, (10**9 + world.number, 10**9 + world.number))
    notes = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda note: int(note.name))
    if notes and world.dice.random() < 0.4:
        notes[-1].unlink()
        notes[-1].with_name(f".{notes[-1].name}.crc").unlink(missing_ok=True)
    frame = world.session.readStream.schema(SQL).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = through_a_fault(world, frame).writeStream.option("checkpointLocation", str(checkpoint))
    by_function = world.folder.name.endswith("function")
    writer = writer.foreachBatch(partial(add, world.url)) if by_function else writer.format("paimon").option("path", world.url)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    world.upsert(rows)


def add(url: str, rows: DataFrame, batch: int) -> None:
    spark.write(rows, url, commit_user="function", commit_id=batch)


def follow(world: World) -> None:
    """A stream of changes from the table, replayed, leads to what the table holds."""
    if world.kind.options.get("changelog-producer") == "full-compaction":
        world.table.compact(strategy="full")
    rows = world.session.readStream.format("paimon").options(row_kind="true", maxRowsPerTrigger="1").load(world.url)
    copy = world.folder / "copy"
    copy.mkdir(exist_ok=True)
    writer = rows.writeStream.foreachBatch(partial(keep, str(copy)))
    query = writer.option("checkpointLocation", str(world.folder / "followed")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    held: dict[Values, Values] = {}
    for file in sorted(copy.glob("*.parquet"), key=lambda file: int(file.stem)):
        for kind, *row in (tuple(row.values()) for row in pq.read_table(file).to_pylist()):
            key = world.key_of(tuple(row))
            if kind in ("-D", "-U"):
                held.pop(key, None)
            else:
                held[key] = tuple(row)
    found, expected = ordered(held.values()), ordered(world.rows)
    assert found == expected, f"the changelog leads to {found}, expected {expected}"


def keep(folder: str, rows: DataFrame, batch: int) -> None:
    pq.write_table(rows.toArrow(), f"{folder}/{batch}.parquet")


def refused(world: World) -> None:
    """Rows that do not fit: an error of ours, and no file."""
    rows = world.session.sql("SELECT 99999999999 AS k, 'a' AS p")
    with pytest.raises(BadInput, match="column 'k' cannot take"):
        spark.write(rows, world.url)
    with pytest.raises(Exception, match=r"paimon_cli\.errors\.BadInput.*column 'k' cannot take"):
        rows.write.format("paimon").mode("append").save(world.url)


ALWAYS = (write, write, write_repeated_keys, write_twice, merge_new, compact, stream, refused)
OF_CHANGES = (merge, merge, update, delete)


def steps_of(world: World) -> list[Callable[[World], None]]:
    kind = world.kind
    steps: list[Callable[[World], None]] = [*ALWAYS]
    if kind.changes:
        steps += OF_CHANGES
        steps += [write_kinds] if kind.key else []
        steps += [] if kind.follows else [overwrite]
    return steps + ([follow] if kind.follows else [])


def play(session: SparkSession, folder: Path, kind: str, seed: str, steps: int, faults: Iterable[Fault] = ()) -> int:
    """Make some steps on a new table. Returns how many. Raises `AssertionError` with the story.

    `faults`: what happens to some tasks, once; Spark must try these again.
    """
    story: list[str] = []
    try:
        world = World(session, folder / f"{kind.replace(' ', '-')}-{seed}", kind, seed, faults)
        for _ in range(steps):
            if world.dice.random() < 0.3:
                story.append(f"set {set_at_random(session, world.dice)}")
            step = world.dice.choice(steps_of(world))
            story.append(step.__name__)
            before = [row for row in world.rows]
            step(world)
            if world.kind.waits:
                world.table.compact()
            story[-1] += f": {len(before)} to {len(world.rows)} rows"
            world.check(story.append)
        world.check_all()
    except Exception as problem:
        story.append(f"{type(problem).__name__}: {str(problem)[:3000]}")
        raise AssertionError(f"table {kind}:{seed}\n" + "\n".join(story)) from problem
    return steps
