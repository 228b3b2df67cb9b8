"""Progress of a job as a bar on stderr, if stderr is a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from paimon_cli.jobs.progress import NoProgress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from paimon_cli.jobs.progress import Progress


def progress_on_stderr() -> Progress:
    """A progress bar on a terminal; nothing in a pipe or file."""
    return ProgressBar() if sys.stderr.isatty() else NoProgress()


class ProgressBar:
    """One phase at a time; the bar vanishes when its phase ends, so that only the summary stays."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None

    def start(self, description: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self.finish()
        known = (BarColumn(), MofNCompleteColumn())
        steps = known if total is not None else (TextColumn("{task.fields[so_far]}"),)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), *steps, TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._bar.add_task(description, total=total, so_far="")

    def advance(self, n: int = 1) -> None:
        if self._bar is not None:
            task = self._bar.tasks[0]
            self._bar.update(task.id, advance=n, so_far=f"{task.completed + n:,.0f}")

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
