"""How many modules a reader of the code has to pass through to follow a write, its commit, and whole commands.

A switch is a call whose module differs from that of the call before it. Comprehensions, lambdas and module code do not count. The
engine is local, and the write has two rows and compacts nothing.

    python -m scripts.bench.hops
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import paimon_cli
from paimon_cli.commit.committer import Committer
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest

PACKAGE = str(Path(paimon_cli.__file__).parent)
ANONYMOUS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>", "<module>"}
GOALS = {
    "write, from the job on": (45, 250),
    "commit of that write": (15, 60),
    "paimon-cli write": (95, 420),
    "paimon-cli read": (85, None),
    "paimon-cli snapshots ls": (45, None),
}


@dataclass(frozen=True)
class Hops:
    """What a call has passed through."""

    modules: int
    functions: int
    switches: int


def hops_of(work: Callable[[], Any]) -> Hops:
    """Run the work and count in all its threads."""
    calls: list[tuple[str, int]] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in ANONYMOUS:
            calls.append((code.co_filename, code.co_firstlineno))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    switches = sum(before[0] != after[0] for before, after in pairwise(calls))
    return Hops(len({module for module, _ in calls}), len(set(calls)), switches)


def command(*arguments: str) -> Hops:
    """Run a whole command in a new process, from `main` on, and discard its output."""
    done = subprocess.run([sys.executable, "-m", "scripts.bench.hops", "--of", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return Hops(**json.loads(done.stderr.splitlines()[-1]))


def show_hops_of_command(arguments: list[str]) -> None:
    """Run the command in this process. Its figures are the last line of standard error."""

    def run() -> None:
        from paimon_cli.cli.app import app

        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            app(arguments)

    print(json.dumps(asdict(hops_of(run))), file=sys.stderr)


def measure(folder: Path) -> dict[str, Hops]:
    """Measure the job and its commit in a process that has written before, and each whole command in a new one."""
    table, rows = str(folder / "t"), folder / "rows.json"
    rows.write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    columns = ("-C", "id INT NOT NULL", "-C", "v STRING")
    command("create", table, *columns, "--primary-key", "id", "--bucket", "1", "--option", "write-only=true")
    commits: list[Hops] = []
    commit = Committer.commit

    def counted(self: Committer, *arguments: Any, **named: Any) -> Any:
        results: list[Any] = []
        commits.append(hops_of(lambda: results.append(commit(self, *arguments, **named))))
        return results[0]

    def write() -> None:
        run_write(TableContext.open(table), WriteRequest(FileRows((str(rows),))), LocalEngine(), NoProgress())

    write()
    found = {"write, from the job on": hops_of(write)}
    with mock.patch.object(Committer, "commit", counted):
        write()
    found["commit of that write"] = commits[0]
    for name, arguments in (
        ("paimon-cli write", ("write", table, str(rows), "--engine", "local")),
        ("paimon-cli read", ("read", table)),
        ("paimon-cli snapshots ls", ("snapshots", "ls", table)),
    ):
        found[name] = command(*arguments)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--of"]:
        show_hops_of_command(sys.argv[2:])
        return
    print(f"{'path':<26}{'modules':>8}{'goal':>6}{'functions':>11}{'switches':>10}{'goal':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, hops in measure(Path(folder)).items():
            modules, switches = GOALS[name]
            print(f"{name:<26}{hops.modules:>8}{modules:>6}{hops.functions:>11}{hops.switches:>10}{switches or '-':>6}")


if __name__ == "__main__":
    main()
