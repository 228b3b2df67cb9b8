"""What a write says of its input: all that is wrong with it at once, the file of rejects, and that it is empty."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.errors import BadInput
from paimon_cli.ingest.rejects import RejectFile, RejectingTally, Tally
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.engine import Engine, TasksFailed, phase
from paimon_cli.jobs.progress import Progress
from paimon_cli.write.write_plan import Tallies, WritePlan


def with_all_faults(error: BadInput, plan: WritePlan, engine: Engine, progress: Progress) -> BadInput:
    """The error about the first bad row, with all others of the input: they are looked for only now that one is known."""
    if "row" not in error.details or not isinstance(plan.incoming, IncomingRows):
        return error
    with phase(progress, "Looking for all bad rows", len(plan.splits)) as done:
        try:
            tallies = engine.run_tasks(plan.incoming.judge, plan.splits, done)
        except TasksFailed:
            return error
    total = Tally.of(tallies)
    return total.error() if total.bad_cells else error


def write_rejects(file: RejectFile, plan: WritePlan, tallies: Tallies) -> None:
    """All bad cells in the order of the input. Their splits are read once more, so that nobody holds all of them at once."""
    assert isinstance(plan.incoming, IncomingRows)
    with file:
        for number, split in enumerate(plan.splits):
            if tallies[number].bad_cells:
                seen = plan.incoming.judge(split, RejectingTally(file=file))
                if (seen.rows, seen.bad_cells) != (tallies[number].rows, tallies[number].bad_cells):
                    raise BadInput(
                        f"{split.name} changed while it was being read",
                        f"it had {tallies[number].bad_cells:,} bad cells, and then {seen.bad_cells:,}",
                        "run again when nothing writes to it",
                        source=split.name,
                    )


def empty_overwrite(partition: Mapping[str, str] | None, dynamic: bool, tallies: Tallies) -> BadInput:
    """An overwrite that has nothing to write: mostly a failed command in front of the pipe. `dynamic`: of the partitions that get
    rows, unless `partition` names one."""
    skipped = sum(tally.bad_rows for tally in tallies.values())
    place = ",".join(f"{key}={value}" for key, value in (partition or {}).items())
    bad = "the only row of the input is bad" if skipped == 1 else f"all {skipped:,} rows of the input are bad"
    found = bad if skipped else "the input is empty"
    if dynamic and not place:
        what = f"{found}, so that --overwrite has no partition to replace"
    else:
        what = f"{found}, and --overwrite would delete all rows{f' of partition {place}' if place else ''}"
    return BadInput(
        what,
        "nothing was changed",
        "add --allow-empty if that is intended",
    )
