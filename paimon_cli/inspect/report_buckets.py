"""The sections of `report` about buckets: bytes by level, key ranges of the sorted runs, and what a compaction would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from paimon_cli.inspect.charts import (
    LONGEST_TEXT,
    Bar,
    Part,
    Range,
    bars,
    binned,
    escape,
    figure,
    level_class,
    ranges,
    table_of,
)
from paimon_cli.inspect.report_figures import BucketLevels, ReportFigures, Tree
from paimon_cli.options.option_text import counted, human_size


def level_bars(buckets: Sequence[BucketLevels]) -> list[Bar]:
    """The bytes of each level of each bucket."""
    return [
        Bar(
            bucket.bucket,
            [
                Part(size, level_class(level), f"L{level}: {human_size(size)} in {counted(bucket.files_by_level[level], 'file')}")
                for level, size in sorted(bucket.size_by_level.items())
            ],
            f"{human_size(bucket.size)}, {_runs_or_files(bucket)}",
        )
        for bucket in buckets
    ]


def _runs_or_files(bucket: BucketLevels) -> str:
    return counted(bucket.files, "file") if bucket.runs is None else counted(bucket.runs, "run")


def levels_of_buckets(figures: ReportFigures) -> Iterator[str]:
    if not figures.buckets:
        return
    yield "<h2>Levels of the buckets</h2>" if figures.has_keys else "<h2>Buckets</h2>"
    left = figures.bucket_count - len(figures.buckets)
    if left:
        yield f'<p class="faint">The {len(figures.buckets)} buckets with the most to merge, of {figures.bucket_count:,}.</p>'
    levels = sorted({level for bucket in figures.buckets for level in bucket.size_by_level})
    legend = [(level_class(level), f"L{level}") for level in levels]
    total = sum(bucket.size for bucket in figures.buckets)
    description = f"{counted(len(figures.buckets), 'bucket')} with {human_size(total)}, bytes of each level"
    yield figure("levels", "Bytes by level", description, partial(bars, level_bars(figures.buckets)), legend)
    yield table_of(
        ("Bucket", "Size", "Files", "Runs", *(f"L{level}" for level in levels)),
        (
            [
                bucket.bucket,
                human_size(bucket.size),
                f"{bucket.files:,}",
                "-" if bucket.runs is None else f"{bucket.runs}",
                *(human_size(bucket.size_by_level[level]) if level in bucket.size_by_level else "" for level in levels),
            ]
            for bucket in figures.buckets
        ),
        numbers=range(1, len(levels) + 4),
    )
    if left:
        yield from _spread(figures)


def _spread(figures: ReportFigures) -> Iterator[str]:
    what = "sorted run" if figures.has_keys else "file"
    spread = sorted(figures.runs_of_buckets.items())
    rows = []
    for group in binned(spread, 20):
        low, high = group[0][0], group[-1][0]
        count = sum(buckets for _, buckets in group)
        label = counted(low, what) if low == high else f"{low:,} to {counted(high, what)}"
        rows.append(Bar(label, [Part(count, "bar", f"{label}: {counted(count, 'bucket')}")], counted(count, "bucket")))
    description = f"{sum(figures.runs_of_buckets.values()):,} buckets by their number of {what}s"
    yield figure("spread", f"All buckets by number of {what}s", description, partial(bars, rows))


def tree_ranges(tree: Tree) -> list[Range]:
    """The key range of each sorted run of a bucket, newest first."""
    return [
        Range(
            f"run {run.run}, L{run.level}",
            *run.span,
            level_class(run.level),
            f"{counted(run.rows, 'stored record')} from {_key(run.min_key)} to {_key(run.max_key)}, overlaps {run.overlap - 1}",
            human_size(run.size),
        )
        for run in tree.runs
    ]


def key_ranges(figures: ReportFigures) -> Iterator[str]:
    if not figures.trees:
        return
    yield "<h2>Key ranges of the sorted runs</h2>"
    legend_text = "From the lowest to the highest key of a bucket, newest run first. A reader merges overlapping runs."
    yield f'<p class="faint">{legend_text}</p>'
    for number, tree in enumerate(figures.trees):
        levels = sorted({run.level for run in tree.runs})
        omitted = f"; {counted(tree.runs_left, 'run')} before the oldest not shown" if tree.runs_left else ""
        summary = f"{counted(len(tree.runs) + tree.runs_left, 'sorted run')}, key ranges{omitted}"
        legend = [(level_class(level), f"L{level}") for level in levels]
        heading = f"{tree.bucket}: {summary}"
        yield figure(f"tree{number}", tree.bucket, summary, partial(ranges, tree_ranges(tree)), legend, heading)
        yield table_of(
            ("Run", "Level", "Files", "Size", "Stored records", "Lowest key", "Highest key", "Overlaps"),
            (
                [
                    *(f"{run.run}", f"L{run.level}", f"{run.files:,}", human_size(run.size), f"{run.rows:,}"),
                    *(_key(run.min_key), _key(run.max_key), f"{run.overlap - 1}"),
                ]
                for run in tree.runs
            ),
            numbers=(0, 1, 2, 3, 4, 7),
        )


def compaction_debt(figures: ReportFigures) -> Iterator[str]:
    debt = figures.debt
    yield "<h2>Compaction debt</h2>"
    if debt.refusal is not None:
        yield f"<p>What a compaction would do cannot be told: {escape(debt.refusal)}.</p>"
        return
    new = f" Level 0 holds {human_size(debt.level_0_bytes)}." if figures.has_keys else ""
    if not debt.due:
        yield f"<p>No compaction is due in {counted(debt.buckets, 'bucket')}.{new}</p>"
        return
    yield (
        f"<p>A compaction is due in {debt.due:,} of {counted(debt.buckets, 'bucket')}. It would read "
        f"{human_size(debt.read_bytes)} and write about {human_size(debt.write_bytes)}.{new}</p>"
    )
    rows = [
        Bar(
            f"{row.partition} / bucket {row.bucket}" if row.partition else f"bucket {row.bucket}",
            [Part(row.read_bytes, "bar", f"{row.reason}: reads {human_size(row.read_bytes)}")],
            human_size(row.read_bytes),
        )
        for row in debt.rows
    ]
    description = "; ".join(f"{row.label} {row.note}" for row in rows)
    yield figure("debt", "Bytes to read, by bucket", description, partial(bars, rows))
    yield table_of(
        ("Partition", "Bucket", "Why", "Runs now", "Runs after", "To read", "To write"),
        (
            [
                *(row.partition or "-", f"{row.bucket}", row.reason, f"{row.runs_before}", f"{row.runs_after}"),
                *(human_size(row.read_bytes), human_size(row.write_bytes)),
            ]
            for row in debt.rows
        ),
        numbers=(1, 3, 4, 5, 6),
    )


def _key(values: Sequence[object]) -> str:
    text = ", ".join(map(str, values))
    return text if len(text) <= LONGEST_TEXT // 4 else f"{text[: LONGEST_TEXT // 4]}…"
