"""`demo`: a tour of the main features in a few seconds, with the commands that a user would type, on a temporary table."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paimon_cli.catalog.metastore.settings import PROFILE_VARIABLE
from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.results import human_size, say
from paimon_cli.cli.terminal import NO_PAGER_VARIABLE, is_traced, progress_on_stderr
from paimon_cli.errors import PaimonError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.api.table import Table

commands = top_level()

ACCOUNTS, _CHANGES, COMMITS = 200_000, 10_000, 30
"""Rows of the first commit, rows of each further commit, and the number of commits."""
ACCOUNT, BALANCE, DEPOSIT, WITHDRAWAL = 42, 1000, 50, 30
_READS = 3
_WIDTH, INDENT = 78, "   "
TABLE = "bank.db/accounts"


@dataclass(frozen=True)
class Measure:
    """The table as a reader sees it. `read_seconds`: the fastest of `_READS` reads of all rows."""

    files: int
    sorted_runs: int
    size: int
    read_seconds: float
    rows: int


@dataclass(frozen=True)
class DemoResult:
    """The result of the demo. `table`: its path if it was kept, else None; `refused`: commits that would have lost an update."""

    table: str | None
    commits: int
    refused: int
    balance: int
    before: Measure
    after: Measure
    seconds: float


@command(commands, "demo")
def demo(
    call: Call,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the table in this directory, which must be new or empty."),
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="Print no colours; the same as NO_COLOR=1.")] = False,
) -> None:
    """Run a short tour: create a table, commit thirty times, prevent a lost update, show the LSM tree, and compact it.

    The demo runs the commands that it prints, on a table in a temporary directory. It reads nothing else and uses no network.

    paimon-cli demo

    paimon-cli demo --keep ./bank
    """
    if call.options or call.catalog_options or call.warehouse is not None:
        raise UsageError(
            "the demo takes no warehouse and no options", "it creates its own table", "paimon-cli demo --keep ./bank"
        )
    os.environ[NO_PAGER_VARIABLE] = "1"  # a pager would interrupt the tour
    if no_color:
        os.environ["NO_COLOR"] = "1"
    os.environ.pop(PROFILE_VARIABLE, None)
    with _folder(keep) as folder, inside(folder):
        result = _Tour(call, folder).run()
    if keep is not None:
        result = replace(result, table=f"{keep}/{TABLE}")
    if call.is_for_people:
        _farewell(result, keep)
    else:
        call.show(Item("DemoResult", None, result))


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        from paimon_cli.storage.whole_file import ScratchDirectory

        with ScratchDirectory("demo") as folder:
            yield folder
        return
    if keep.exists() and not (keep.is_dir() and not any(keep.iterdir())):
        raise UsageError(f"{keep} is not empty", "the demo does not change existing files", "name a new directory")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Change to the folder during the block, so that a `paimon.yaml` of the user does not apply."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class _Tour:
    """The steps of the demo. Commands run in this process, through the command group of the command line."""

    def __init__(self, call: Call, folder: Path) -> None:
        self._folder = folder
        self._is_shown = call.is_for_people

    def run(self) -> DemoResult:
        from paimon_cli.api.table import Table

        began = time.perf_counter()
        if self._is_shown:
            self._print(("cd", str(self._folder)))
        self._create()
        opened = Table.open(TABLE)  # without progress bars for each call
        self._commit(opened)
        refused = self._prevent_a_lost_update(opened)
        self._say("3. The LSM tree. Each commit added a sorted run to each bucket, and a reader has to merge all of them:")
        self._run("lsm", "show", TABLE, "--bucket", "0")
        before, rows = self._measure(opened)
        self._say("4. A compaction merges the runs. Next to writers, run it as a separate job: compact --dedicated --watch.")
        self._run("compact", TABLE, "--dedicated", "--strategy", "full", "--engine", "local")
        self._run("lsm", "show", TABLE, "--bucket", "0")
        after, same_rows = self._measure(opened)
        if not rows.equals(same_rows):
            raise PaimonError("the compaction changed the rows", "this is a bug of paimon-cli", f"paimon-cli verify {TABLE}")
        balance = opened.scan(["balance"], f"id = {ACCOUNT}").to_arrow()["balance"][0].as_py()
        self._compare(before, after)
        seconds = time.perf_counter() - began
        return DemoResult(None, len(opened.snapshot_ids()), refused, balance, before, after, seconds)

    def _create(self) -> None:
        self._say("1. A table with a primary key, in two buckets. It is a directory; any Paimon reader can use it.")
        columns = ("-C", "id BIGINT NOT NULL", "-C", "owner STRING", "-C", "balance BIGINT")
        self._run("create", TABLE, *columns, "--primary-key", "id", "--bucket", "2", "--option", "write-only=true")

    def _commit(self, table: Table) -> None:
        self._say(f"   Thirty commits: {ACCOUNTS:,} accounts, then twenty-nine batches of {_CHANGES:,} changes.")
        progress, began = progress_on_stderr(), time.perf_counter()
        progress.start("Committing", COMMITS)
        try:
            for number in range(COMMITS):
                table.write(batch(number, ACCOUNTS, _CHANGES), commit_user="payments", commit_id=number)
                progress.advance()
        finally:
            progress.finish()
        self._say(f"   {COMMITS} commits took {time.perf_counter() - began:.1f} s. These are the last of them:")
        self._run("snapshots", "ls", TABLE, "--limit", "3")

    def _prevent_a_lost_update(self, table: Table) -> int:
        """Let two writers read and write the same account; returns the number of refused commits."""
        read_at = str(table.snapshot_ids()[-1])
        checked = ("--data-conflict-check", "key", "--read-snapshot", read_at)
        self._say(f"2. A lost update, prevented. Ann and Bob read account {ACCOUNT} at the same time, and both see {BALANCE}:")
        self._run("read", TABLE, "-w", f"id = {ACCOUNT}")
        self._say(f"   Ann deposits {DEPOSIT} and writes {BALANCE + DEPOSIT}. She names the snapshot that she has read:")
        self._run("write", TABLE, self._file("ann", BALANCE + DEPOSIT), *checked)
        self._say(f"   Bob withdraws {WITHDRAWAL} and writes {BALANCE - WITHDRAWAL}. Ann's {DEPOSIT} would be lost:")
        refused = self._run("write", TABLE, self._file("bob", BALANCE - WITHDRAWAL), *checked)
        self._say("   Bob uses `update` instead, which runs under the same check and starts again after a conflict:")
        self._run("update", TABLE, "--set", f"balance = balance - {WITHDRAWAL}", "-w", f"id = {ACCOUNT}")
        self._run("read", TABLE, "-w", f"id = {ACCOUNT}")
        return int(refused)

    def _file(self, name: str, balance: int) -> str:
        path = f"{name}.json"
        Path(path).write_text(json.dumps({"id": ACCOUNT, "owner": f"owner {ACCOUNT}", "balance": balance}) + "\n")
        return path

    def _measure(self, table: Table) -> tuple[Measure, pa.Table]:
        buckets, taken = table.buckets(), []
        for _ in range(_READS):
            began = time.perf_counter()
            rows = table.scan().to_arrow()
            taken.append(time.perf_counter() - began)
        files, size = sum(bucket.files for bucket in buckets), sum(bucket.size for bucket in buckets)
        runs = max(bucket.sorted_runs or 0 for bucket in buckets)
        return Measure(files, runs, size, min(taken), rows.num_rows), rows.sort_by("id")

    def _compare(self, before: Measure, after: Measure) -> None:
        if not self._is_shown:
            return
        from paimon_cli.cli.text_view import print_table

        self._say(f"5. What changed for readers. Both read the same {after.rows:,} rows:")
        rows = [
            ["live data files", f"{before.files}", f"{after.files}"],
            ["sorted runs to merge in a bucket", f"{before.sorted_runs}", f"{after.sorted_runs}"],
            ["bytes of these files", human_size(before.size), human_size(after.size)],
            ["reading all rows", f"{before.read_seconds * 1000:,.0f} ms", f"{after.read_seconds * 1000:,.0f} ms"],
        ]
        print_table([("", False), ("before", True), ("after", True)], rows)

    def _say(self, text: str) -> None:
        if self._is_shown:
            first = INDENT if text.startswith(" ") else ""
            say("\n" + textwrap.fill(text.strip(), _WIDTH, initial_indent=first, subsequent_indent=INDENT))

    def _print(self, words: Sequence[str]) -> None:
        from paimon_cli.cli.results import bold

        print(bold("\n".join(command_lines(words))))

    def _run(self, *words: str) -> bool:
        """Print a command and run it; returns whether it was refused because of a conflict. Other errors end the demo."""
        from paimon_cli.cli.app import report_failure
        from paimon_cli.errors import Conflict

        if self._is_shown:
            self._print(("paimon-cli", *words))
        arguments = [*words, *(() if self._is_shown else ("-o", "json")), *(("--trace",) if is_traced() else ())]
        group: Any = _whole_application()
        with open(os.devnull, "w") as null, contextlib.ExitStack() as streams:
            if not self._is_shown:
                streams.enter_context(contextlib.redirect_stdout(null))
            try:
                with group.make_context("paimon-cli", arguments) as context:
                    group.invoke(context)
            except Conflict as refusal:
                with contextlib.redirect_stderr(sys.stdout):
                    code = report_failure(refusal, arguments)
                self._say(f"   The exit code is {code}, and nothing was written.")
                return True
        return False


def _whole_application() -> Any:
    from typer.main import get_command

    from paimon_cli.cli.app import app

    return get_command(app)


def batch(number: int, accounts: int, changes: int) -> pa.Table:
    """The rows of commit `number`: first all accounts, then changes in a window of ids that moves on with each commit.

    Every fifth commit changes accounts up to the last id.
    """
    import numpy as np
    import pyarrow as pa

    generator = np.random.default_rng(number)
    ids, begin = np.arange(accounts), (accounts - 2 * changes) * number // COMMITS
    if number > 0:
        wide = accounts - begin if number % 5 == 0 else 2 * changes
        window = ids[begin : begin + wide]
        ids = np.sort(generator.choice(window, min(changes, len(window)), replace=False))
    balances = generator.integers(0, 5000, len(ids))
    balances[ids == ACCOUNT] = BALANCE
    return pa.table({"id": ids, "owner": [f"owner {number}" for number in ids.tolist()], "balance": balances})


def command_lines(words: Sequence[str], width: int = _WIDTH) -> list[str]:
    """A command for the shell, with line breaks before arguments and options if it is longer than `width`."""
    lines = ["$"]
    for part in _parts(words):
        if len(f"{lines[-1]} {part} \\") > width and lines[-1] != "$":
            lines[-1] += " \\"
            lines.append(f"      {part}")
        else:
            lines[-1] += f" {part}"
    return lines


def _parts(words: Sequence[str]) -> list[str]:
    """The quoted words, each option together with its value."""
    parts: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        if before.startswith("-") and not word.startswith("-"):
            parts[-1] += f" {shlex.quote(word)}"
        else:
            parts.append(shlex.quote(word))
    return parts


def _farewell(result: DemoResult, keep: Path | None) -> None:
    from paimon_cli.cli.results import bold

    say(f"\n{result.commits} commits, one lost update prevented, {result.seconds:.0f} s.")
    if keep is None:
        say("The table has been deleted. To keep it and try more:\n")
        print(bold("$ paimon-cli demo --keep ./bank"))
        return
    table = str(result.table)
    say(f"The table is in {table}. Try next:\n")
    for words, purpose in _next_steps(table, keep):
        print(bold(f"$ {shlex.join(('paimon-cli', *words))}"))
        say(f"      {purpose}")


def _next_steps(table: str, keep: Path) -> list[tuple[tuple[str, ...], str]]:
    return [
        (("describe", table), "the table on one screen"),
        (("blame", table, "--key", f"id={ACCOUNT}"), "every stored version of a row: who wrote it, and when"),
        (("read", table, "--snapshot", "30", "-w", f"id = {ACCOUNT}"), "the row before Ann and Bob changed it"),
        (("report", table, "--html", f"{keep}/report.html"), "a page with charts"),
        (("verify", table, "--level", "full"), "check every file, key and sequence number"),
        (("lab", "ls"), "other anomalies between concurrent writers, reproduced step by step"),
    ]
