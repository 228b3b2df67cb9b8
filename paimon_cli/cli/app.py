"""The Typer application, and the one error boundary: every failure becomes a message and an exit code."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from paimon_cli import __version__
from paimon_cli.cli import (
    advise_command,
    alter_command,
    blame_command,
    branch_commands,
    catalog_commands,
    changelog_commands,
    compact_command,
    consumer_commands,
    create_command,
    diff_command,
    doctor_command,
    drop_commands,
    expire_command,
    file_commands,
    index_commands,
    lab_commands,
    lock_commands,
    lsm_commands,
    orphans_commands,
    read_command,
    repair_command,
    rescale_command,
    rollback_command,
    schema_commands,
    simulate_command,
    snapshot_commands,
    stage_commands,
    tag_commands,
    update_commands,
    verify_command,
    version_command,
    write_command,
)
from paimon_cli.cli.command import HelpfulGroup
from paimon_cli.cli.failure_report import report_failure
from paimon_cli.cli.standard_streams import discard_stdout, flush_stderr, flush_stdout, prepare_streams
from paimon_cli.jobs.pandas_on_demand import keep_pandas_out
from paimon_cli.jobs.stop_signals import end_as_interrupted

INTERRUPTED = 130
SYSTEM_MEMORY = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""As fast as Arrow's own pool, and it returns freed memory: a write needs two thirds of the memory."""


class BoundedGroup(HelpfulGroup):
    """The outermost group: turns every outcome into an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit(0) from None
        except (KeyboardInterrupt, typer.Abort):
            raise typer.Exit(INTERRUPTED) from None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *positional: Any, **settings: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        settings["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name or "paimon-cli", *positional, **settings)
        except Exception as error:
            code = report_failure(error, arguments)
        if code == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        lost = flush_stdout()
        if lost is not None and not code:
            code = report_failure(lost, arguments)
        sys.exit(code)


app = typer.Typer(
    name="paimon-cli",
    cls=BoundedGroup,
    help="Create, write, read, compact and inspect Apache Paimon tables, without a Paimon installation.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"paimon-cli {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that precede the command."""


DATA, INSPECT, MAINTAIN, SAFETY, OTHER = "Data", "Inspect", "Maintain", "Safety", "Other"

for _command in (create_command, write_command, update_commands, read_command, compact_command, drop_commands):
    _command.register(app, DATA)
app.add_typer(alter_command.alter, name="alter", rich_help_panel=DATA)
app.add_typer(changelog_commands.changelog, name="changelog", rich_help_panel=DATA)
for _command in (expire_command, rescale_command, rollback_command):
    _command.register(app, MAINTAIN)
app.add_typer(orphans_commands.orphans, name="orphans", rich_help_panel=MAINTAIN)
app.add_typer(stage_commands.stage, name="stage", rich_help_panel=DATA)
catalog_commands.register(app, INSPECT)
for _name, _group in (
    ("tables", catalog_commands.tables),
    ("db", catalog_commands.databases),
    ("snapshots", snapshot_commands.snapshots),
    ("tags", tag_commands.tags),
    ("branches", branch_commands.branches),
    ("consumers", consumer_commands.consumers),
    ("manifests", file_commands.manifests),
    ("files", file_commands.files),
    ("lsm", lsm_commands.lsm),
    ("partitions", file_commands.partitions),
    ("buckets", file_commands.buckets),
    ("indexes", index_commands.indexes),
    ("dv", index_commands.vectors),
    ("schemas", schema_commands.schemas),
    ("options", schema_commands.options),
):
    app.add_typer(_group, name=_name, rich_help_panel=INSPECT)
blame_command.register(app, INSPECT)
diff_command.register(snapshot_commands.snapshots)
verify_command.register(app, SAFETY)
repair_command.register(app, SAFETY)
doctor_command.register(app, SAFETY)
advise_command.register(app, SAFETY)
app.add_typer(lock_commands.locks, name="locks", rich_help_panel=SAFETY)
simulate_command.register(app, OTHER)
app.add_typer(lab_commands.lab, name="lab", rich_help_panel=OTHER)
version_command.register(app, OTHER)


def main() -> None:
    """Run the command and leave the process at once; `paimon_cli.__main__` calls it.

    Arrow's thread pools sometimes abort a process that tears itself down with readers of Python files (apache/arrow#34314):
    all output is written and closed by then, so that a finished read does not end in a crash.
    """
    prepare_streams()
    end_as_interrupted()
    keep_pandas_out()
    os.environ.setdefault(*SYSTEM_MEMORY)
    try:
        app()
    except SystemExit as end:
        atexit._run_exitfuncs()  # temporary files go
        flush_stderr()
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
