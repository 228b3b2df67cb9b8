"""`stage commit --watch`: shows what becomes of each checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from paimon_cli.cli.results import counted, note, say, warn
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import json_text
from paimon_cli.storage.redaction import redact, redacted

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.cli.command import Call
    from paimon_cli.cli.parameters import Given
    from paimon_cli.jobs.staging.stage_watch import CheckpointDone


def refuse_with_watch(files: Sequence[str] | None, identity: Given) -> None:
    """Raise `UsageError` for arguments that a committer process does not take."""
    if files:
        raise UsageError(
            f"--watch cannot be combined with {files[0]}", "it commits what lands in a directory", "leave one of them out"
        )
    if identity:
        why = "each checkpoint has the identity of its writers, by which it is recognised"
        raise UsageError("--watch takes no --commit-user, --commit-id and --assume-new", why, "leave them out")


def run_watch(call: Call, directory: str, table: str | None, allow_unsafe_commit: bool, how: Mapping[str, Any]) -> None:
    """Commit what lands in a directory, and show it, until that ends or is stopped. `how`: options of `Stage.watch`."""
    from paimon_cli.api.staging import StageWatchCall, watch_directory
    from paimon_cli.jobs.process import StopSignals, Terminated

    def opened(name: str) -> Table:
        return call.open(table or name, allow_unsafe_commit)

    try:
        with StopSignals() as signals:
            show = partial(_show_checkpoint, call)
            asked = StageWatchCall(directory, on_checkpoint=show, shield=signals.shield, **how)
            watch_directory(asked, opened, call.runtime)
    except Terminated:
        note("stopped")


def _show_checkpoint(call: Call, done: CheckpointDone) -> None:
    """Print what became of a checkpoint: a line of text, or of JSON."""
    summary, error = done.summary, done.error
    if not call.is_for_people:
        item = {
            "name": done.name,
            "state": done.state,
            "table": done.table,
            "files": done.files,
            "rows": done.rows,
            "snapshots": [snapshot.id for snapshot in summary.snapshots],
            "compacted": summary.compacted,
            "waiting_records": summary.waiting_records,
            "error": None if error is None else {"code": error.code, "message": redact(str(error.message))},
        }
        print(json_text(redacted(item)), flush=True)
        return
    if error is not None:
        warn(f"{done.name}: {done.state}: {error.message}")
        return
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    content = f"{counted(done.rows, 'stored record')} of {counted(done.files, 'writer')}"
    say(f"{done.name}: {f'snapshot {ids}: {content}' if ids else done.state}")
