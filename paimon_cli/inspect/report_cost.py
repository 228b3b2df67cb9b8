"""What the page of `report` says about bytes: what is stored and what keeps it, and what services spent on the table."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.inspect.charts import escape, table_of
from paimon_cli.inspect.report_figures import ReportFigures
from paimon_cli.options.option_text import counted, human_size

SHOWN_OWNERS = 30
"""The most rows of the table of owners: a table may have thousands of tags. The others are added up in one."""


def stored_bytes(figures: ReportFigures) -> Iterator[str]:
    """The rows of `cost`: each file counts once, so they add up to what the directory of the table holds."""
    yield "<h2>What is stored, and what keeps it</h2>"
    if figures.stored.problem:
        yield f"<p>It cannot be told what keeps the files: {escape(figures.stored.problem)}.</p>"
        return
    rows = figures.stored.rows
    total, files = sum(row.bytes for row in rows), sum(row.files for row in rows)
    command = f"paimon-cli cost {figures.argument}"
    now = " They are those of now, not of the snapshot of this page." if figures.at_snapshot is not None else ""
    yield (
        f"<p>All files below the directory of the table, orphans too: {counted(files, 'file')} of {human_size(total)}.{now} "
        f"<code>{escape(command)}</code> says what each removal would free.</p>"
    )
    shown = [(row.owner, row.files, row.bytes) for row in rows[:SHOWN_OWNERS]]
    if others := rows[SHOWN_OWNERS:]:
        shown.append((f"{len(others):,} others", sum(row.files for row in others), sum(row.bytes for row in others)))
    yield table_of(
        ("Kept by", "Files", "Size", "Bytes", "Part"),
        (
            [owner, f"{count:,}", human_size(size), f"{size:,}", f"{100 * size / total:.1f}%" if total else "-"]
            for owner, count, size in shown
        ),
        numbers=(1, 2, 3, 4),
        summary="Bytes by what keeps them",
        is_open=True,
    )


def spent_by_services(figures: ReportFigures) -> Iterator[str]:
    """The sums of the ledger, if the warehouse has one."""
    spent = figures.spent
    if spent is None:
        return
    yield f"<h2>What services did in the last {spent.days} days</h2>"
    if spent.problem:
        yield f"<p>{escape(spent.problem)}.</p>"
    if not spent.steps:
        yield "<p>The ledger of the warehouse has nothing about this table for that time.</p>"
        return
    yield table_of(
        ("Rounds", "Failed", "Read", "Written", "Seconds", "Runs merged away", "Snapshots expired", "Files deleted"),
        [
            [
                f"{spent.steps:,}",
                f"{spent.failed:,}",
                human_size(spent.bytes_read),
                human_size(spent.bytes_written),
                f"{spent.seconds:,.1f}",
                f"{spent.runs_removed:,}",
                f"{spent.snapshots_expired:,}",
                f"{spent.files_deleted:,}",
            ]
        ],
        numbers=range(8),
        summary="By the ledger of the warehouse",
        is_open=True,
    )
