"""`buckets plan`: the bucket count of each partition, which one it should have, who would change it, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.partition_spec import PartitionSpec, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import UnfinishedRescale
from paimon_cli.inspect.bucket_report import skews
from paimon_cli.inspect.compaction_history import DATA_FILES, compaction_rows
from paimon_cli.inspect.findings.bucket_rules import GOOD_BUCKET, better_bucket_count, rescaled
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.metadata.table_layout import natural_order
from paimon_cli.options.option_text import counted

KEEP, SPLIT, MERGE, RESCALE = "keep", "split", "merge", "rescale"
"""What becomes of the buckets of a partition. A rescale is left to the owner of the table, and may change the option only."""
BY_SERVICE, BY_OWNER = "next round of maintain or compact --watch", "when you run the command, while no writer runs"
"""Who changes a bucket count, and when."""
LOOK_BACK_COMPACTIONS = 20
"""How many of the latest compactions show how fast this table is rewritten."""
LEAST_MEASURED_BYTES = 1 << 20
"""Compactions of fewer bytes show what a commit costs, not how fast rows are rewritten."""
USUAL_BYTES_PER_SECOND = 40 << 20
"""How fast data files are rewritten if no compaction has shown it: what one core does with narrow rows."""


@dataclass(frozen=True)
class BucketPlanRow:
    """The bucket count of one partition and what should become of it.

    `action`: `keep`, `split`, `merge` or `rescale`; `new_buckets`: the count afterwards. `size`: bytes of all buckets;
    `biggest_bucket_bytes`, `biggest_bucket_rows`: what the largest one holds, and `bucket_size_after`: an estimate of its bytes
    afterwards. `target_bytes` or `target_rows`: what a bucket should hold by the options of the table. `skew`: the largest bucket
    divided by the average one. `rewritten_bytes`: what the change reads, and writes again; `seconds`: an estimate, by the latest
    compactions of this table if paimon-cli made some. `when`: who does it, and when; empty if there is nothing to do. `command`:
    what to run instead of waiting, None if there is nothing to do.
    """

    partition: str
    buckets: int
    new_buckets: int
    action: str
    reason: str
    rows: int
    size: int
    biggest_bucket_bytes: int
    biggest_bucket_rows: int
    bucket_size_after: int
    target_bytes: int | None
    target_rows: int | None
    skew: float
    rewritten_bytes: int
    seconds: float
    when: str
    command: str | None


def bucket_plan(table: ExaminedTable, chosen: PartitionSpec | None = None) -> list[BucketPlanRow]:
    """A row for each partition with buckets, in natural order; none for tables whose buckets are dynamic, or absent.

    `table`: the whole table, all of whose partitions decide about a fixed bucket count; `chosen`: only rows of these partitions.
    """
    mode, chosen = table.context.mode.bucket_mode, chosen or PartitionSpec.everything()
    held: dict[bytes, list[BucketFiles]] = {}
    for bucket in table.buckets:
        if chosen.matches(bucket.partition):
            held.setdefault(bucket.partition, []).append(bucket)
    rows = _postponed(table, held) if mode.postpones else _fixed(table, held) if table.context.options.bucket > 0 else iter(())
    speed: float | None = None
    planned: list[BucketPlanRow] = []
    for row in rows:
        if row.new_buckets != row.buckets:
            speed = bytes_per_second(table.context) if speed is None else speed
            row = replace(row, rewritten_bytes=row.size, seconds=round(row.size / speed, 1))
        planned.append(row)
    return sorted(planned, key=lambda row: natural_order(row.partition))


def _postponed(table: ExaminedTable, held: Mapping[bytes, Sequence[BucketFiles]]) -> Iterator[BucketPlanRow]:
    options, decisions = table.context.options, {decision.partition: decision for decision in table.count_decisions}
    by_rows = options.postpone_target_rows
    for partition, buckets in held.items():
        decision = decisions.get(partition)
        if decision is None:
            yield _kept(table, buckets, table.why_not_compactable or "")
            continue
        kept = replace(
            _kept(table, buckets, decision.reason),
            target_bytes=options.postpone_target_size if by_rows is None else None,
            target_rows=by_rows,
        )
        new = decision.new_buckets
        if new == decision.buckets:
            yield kept
            continue
        yield replace(
            kept,
            action=SPLIT if decision.is_split else MERGE,
            new_buckets=new,
            bucket_size_after=kept.biggest_bucket_bytes * decision.buckets // new,
            when=BY_SERVICE,
            command=rescaled(table, new, decision.partition),
        )


def _fixed(table: ExaminedTable, held: Mapping[bytes, Sequence[BucketFiles]]) -> Iterator[BucketPlanRow]:
    """All partitions have one count, which only the owner of the table changes."""
    total, left = table.context.options.bucket, table.unfinished_rescale
    if left is not None:
        yield from _rest_of_rescale(table, held, left)
        return
    better = better_bucket_count(total, list(table.partition_sizes.values()))
    refused = {bucket.partition for bucket in table.other_counts}
    new = total if better is None else better
    for partition, buckets in held.items():
        kept = replace(_kept(table, buckets, "the largest partition needs no other count"), target_bytes=GOOD_BUCKET)
        if partition in table.mixed_partitions or (new == kept.buckets and partition not in refused):
            yield kept
            continue
        reason = "the largest partition decides, because one count holds for all"
        yield replace(
            kept,
            action=RESCALE,
            new_buckets=new,
            reason=f"the option says bucket={total}, so writers refuse it" if partition in refused else reason,
            bucket_size_after=(kept.biggest_bucket_bytes * kept.buckets if kept.buckets > 0 else kept.size) // new,
            when=BY_OWNER,
            command=rescaled(table, new),
        )


def _rest_of_rescale(
    table: ExaminedTable, held: Mapping[bytes, Sequence[BucketFiles]], left: UnfinishedRescale
) -> Iterator[BucketPlanRow]:
    """What the service makes of a rescale that was interrupted."""
    why = f"a rescale to {counted(left.buckets, 'bucket')} was interrupted"
    for partition, buckets in held.items():
        kept = replace(_kept(table, buckets, why), target_bytes=GOOD_BUCKET)
        if partition not in left.partitions or partition in table.mixed_partitions:
            yield kept
            continue
        yield replace(
            kept,
            action=RESCALE,
            new_buckets=left.buckets,
            bucket_size_after=kept.size // left.buckets,
            when=BY_SERVICE,
            command=rescaled(table, left.buckets),
        )


def _kept(table: ExaminedTable, held: Sequence[BucketFiles], reason: str) -> BucketPlanRow:
    """The row of a partition whose buckets stay as they are: for this reason, unless its files have several counts."""
    mixed = table.mixed_partitions.get(held[0].partition)
    sizes = [sum(file.file_size for file in bucket.files) for bucket in held]
    rows = [sum(file.row_count for file in bucket.files) for bucket in held]
    return BucketPlanRow(
        partition=partition_text(table.context, held[0].partition),
        buckets=held[0].total_buckets,
        new_buckets=held[0].total_buckets,
        action=KEEP,
        reason=f"it holds files for {' and '.join(map(str, mixed))} buckets; see health" if mixed else reason,
        rows=sum(rows),
        size=sum(sizes),
        biggest_bucket_bytes=max(sizes),
        biggest_bucket_rows=max(rows),
        bucket_size_after=max(sizes),
        target_bytes=None,
        target_rows=None,
        skew=max(skews(held)),
        rewritten_bytes=0,
        seconds=0.0,
        when="",
        command=None,
    )


def bytes_per_second(context: TableContext) -> float:
    """How fast the latest compactions of paimon-cli rewrote the data files of this table; a usual speed without any."""
    rows = compaction_rows(context, LOOK_BACK_COMPACTIONS, on_damage=lambda damage: None)
    timed = [(row.bytes_before, row.seconds) for row in rows if row.what == DATA_FILES and row.seconds]
    known = [(size, seconds) for size, seconds in timed if seconds and size >= LEAST_MEASURED_BYTES]
    total = sum(seconds for _, seconds in known)
    return sum(size for size, _ in known) / total if total else float(USUAL_BYTES_PER_SECOND)
