"""Commands that change a table's history, each in a process that is killed at a moment of chance, and what is left of the table.

The command is the one a user types. After the kill the newest rows must be those from before or those from after, `verify`
must pass, the same command must finish, and the cleaning of orphans must find nothing that is needed.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paimon_cli.cli.app import app
from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.violation import ERROR
from tests import tables
from tests.processes.kills import PROCESSES

Rows = list[dict[str, Any]]
COLUMNS = {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


@dataclass(frozen=True)
class Command:
    """`arguments` follow the words and the table. `prepare` changes the table before. `undo` lets it be repeated after a kill:
    words of a command that takes away what was begun. `midway`: what `verify` may say until then. `steps_back`: whether it goes
    from one snapshot to the one before, so that readers may meet those in between."""

    words: str
    arguments: str = ""
    prepare: Callable[[Path], object] = lambda root: None
    undo: str = ""
    midway: tuple[str, ...] = ("PV001",)
    steps_back: bool = False

    @property
    def name(self) -> str:
        return f"{self.words} {self.arguments}".strip()

    def line(self, root: Path) -> list[str]:
        return [*self.words.split(), str(root), *self.arguments.split()]


def litter(root: Path) -> None:
    for number in range(40):
        for path in (f"p=0/bucket-0/data-litter-{number}.parquet", f"manifest/manifest-litter-{number}"):
            (root / path).write_bytes(b"litter")


def own_branch(root: Path) -> None:
    """A branch of snapshot 5 with commits of its own."""
    call(["branches", "create", str(root), "b", "--snapshot", "5"])
    context = TableContext.open(str(root)).at_branch("b")
    for number in (1, 2):
        tables.write(context, [{"p": 1, "k": 100 + number, "v": "branch"}])


def damage(root: Path) -> None:
    """A snapshot is missing, one cannot be read, a tag neither, hints lie."""
    call(["tags", "create", str(root), "cut", "--snapshot", "2"])
    (root / "snapshot/snapshot-4").unlink()
    for name in ("snapshot/snapshot-6", "tag/tag-cut"):
        (root / name).write_bytes((root / name).read_bytes()[:70])
    (root / "snapshot/LATEST").write_text("99")
    (root / "snapshot/EARLIEST").write_text("one")


def tag_the_first(root: Path) -> None:
    call(["tags", "create", str(root), "first", "--snapshot", "1"])
    call(["expire", str(root), *["--retain-max", "2", "--retain-min", "1", "--older-than", "0s", "-y"]])


def changelogs(root: Path) -> None:
    options = ["--option", "changelog.time-retained=9d", "--option", "changelog.num-retained.max=99"]
    call(["expire", str(root), *["--retain-max", "2", "--retain-min", "1", "--older-than", "0s", "-y"], *options])


COMMANDS = (
    Command("expire", "--retain-max 2 --retain-min 1 --older-than 0s -y"),
    Command("expire", "--what changelogs --retain-max 3 --retain-min 1 --older-than 0s -y", changelogs),
    Command("orphans rm", "--older-than 0s --force --apply -y", litter),
    Command("rollback", "--to 3 -y", steps_back=True),
    Command("rollback", "--to 3 --as-new -y"),
    Command("tags create", "made --snapshot 3 --replace"),
    Command("tags rm", "first -y", tag_the_first, undo="tags create {root} first --replace"),
    Command("branches create", "made --snapshot 3", undo="branches rm {root} made -y"),
    Command("branches fast-forward", "b -y", own_branch, midway=("PV001", "PV010")),
    Command("branches rm", "b -y", own_branch, undo="branches create {root} b"),
    Command("drop-partition", "p=0 -y --commit-user u --commit-id 1"),
    Command("truncate", "-y --commit-user u --commit-id 1"),
    Command("compact", "--strategy full --engine local"),
    Command("repair", "--apply -y", damage),
)


@dataclass
class CommandKills:
    """`ended`: the command had ended before the kill. `changed`: the killed command had done what rows show."""

    seed: int
    kills: int = 0
    ended: int = 0
    changed: int = 0
    left_orphans: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "killed": dict(sorted(self.killed.items())), "wrong": len(self.wrong)}


class CommandTrial:
    """One command; every kill begins with the same table."""

    def __init__(self, command: Command, folder: Path, figures: CommandKills) -> None:
        self._command = command
        self._figures = figures
        self._image, self._root = folder / "image", folder / "t"
        make_table(self._image)
        command.prepare(self._image)
        self._before = newest_rows(self._image)
        self._between = rows_of_all_snapshots(self._image) if command.steps_back else []
        self._longest = min(self._seconds_of_a_run(), self._seconds_of_a_run())
        self._after = newest_rows(self._root)

    def _seconds_of_a_run(self) -> float:
        self._restore()
        begun = time.monotonic()
        process = self._start(self._command.line(self._root))
        process.join()
        if process.exitcode:
            raise AssertionError(f"{self._command.name}: exit code {process.exitcode} without a kill")
        return time.monotonic() - begun

    def kill_once(self, chance: random.Random) -> None:
        self._restore()
        process = self._start(self._command.line(self._root))
        time.sleep(chance.random() * self._longest)
        process.kill()
        process.join()
        self._figures.kills += 1
        self._figures.ended += process.exitcode == 0
        self._figures.killed[self._command.words] += 1
        try:
            self._figures.wrong += [f"{self._command.name}: {complaint}" for complaint in self._look()]
        except (PaimonError, FileNotFoundError) as error:
            self._figures.wrong.append(f"{self._command.name}: {type(error).__name__}: {error}")

    def _look(self) -> list[str]:
        found = newest_rows(self._root)
        self._figures.changed += found == self._after
        expected = (self._before, self._after, *self._between)
        wrong = [] if found in expected else [f"rows are neither those from before nor those from after: {found}"]
        is_repair = self._command.words == "repair"
        wrong += [] if is_repair else violations(self._root, self._command.midway)
        code = call(self._command.line(self._root))
        if code and self._command.undo:
            call(self._command.undo.format(root=self._root).split())
            code = call(self._command.line(self._root))
        wrong += [f"exit code {code} when it was repeated"] if code else []
        wrong += violations(self._root)
        files = sum(len(names) for _, _, names in os.walk(self._root))
        call(["orphans", "rm", str(self._root), *["--older-than", "0s", "--force", "--apply", "-y"]])
        self._figures.left_orphans += files - sum(len(names) for _, _, names in os.walk(self._root))
        wrong += violations(self._root)
        wrong += [] if newest_rows(self._root) == self._after else ["other rows after it was repeated"]
        return wrong

    def _restore(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.copytree(self._image, self._root)

    def _start(self, line: list[str]) -> Any:
        process = PROCESSES.Process(target=call, args=(line, True), daemon=True)
        process.start()
        return process


def make_table(root: Path) -> None:
    """Two partitions, nine snapshots: writes, compactions and a delete."""
    context = tables.make_table(root, COLUMNS, ["p", "k"], ["p"], 2, {"num-sorted-run.compaction-trigger": "9"})
    for number in range(3):
        tables.write(context, [{"p": k % 2, "k": k, "v": f"{number}"} for k in range(number, number + 6)])
        tables.compact(context)
        tables.write(context, [{"p": 0, "k": number, "v": None, "_op": "-D"}])


def newest_rows(root: Path) -> Rows:
    return sorted(tables.rows(TableContext.open(str(root))), key=lambda row: (row["p"], row["k"]))


def rows_of_all_snapshots(root: Path) -> list[Rows]:
    context = TableContext.open(str(root))
    return [
        sorted(tables.rows(context, snapshot_id=number), key=lambda row: (row["p"], row["k"]))
        for number in context.snapshots.ids()
    ]


def violations(root: Path, excused: tuple[str, ...] = ()) -> list[str]:
    """Errors of `verify`, but for codes that are excused while a command is not done."""
    found = check_table(TableContext.open(str(root)), rows=True)
    return [str(v) for v in found if v.severity == ERROR and v.code not in excused]


def call(arguments: list[str], leave: bool = False) -> int:
    """The exit code of `paimon-cli ARGUMENTS`, silently; with `leave` this process ends with it."""
    silence, streams = os.open(os.devnull, os.O_WRONLY), (os.dup(1), os.dup(2))
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        app(arguments)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(silence)
    if leave:
        os._exit(code)
    return code


def kill_commands(folder: Path, kills: int, seed: int, commands: tuple[Command, ...] = COMMANDS) -> CommandKills:
    """This many kills, spread over the commands."""
    figures, begun = CommandKills(seed), time.monotonic()
    for number, command in enumerate(commands):
        trial = CommandTrial(command, folder / str(number), figures)
        for kill in range(number, kills, len(commands)):
            trial.kill_once(random.Random(f"{seed}/{kill}"))
    figures.seconds = round(time.monotonic() - begun, 1)
    return figures
