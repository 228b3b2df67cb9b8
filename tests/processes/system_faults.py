"""Commands in processes whose calls to the system fail: EIO, a full disk, a disk that goes away, a directory that is read-only.

A small library that is loaded before the C library lets the n-th call on the table's files fail. What the command says then
must be true: after exit code 0 it has been done, after an error that is not "unknown" nothing was committed, and no error is
a traceback. Afterwards, with a sound disk, the same holds as after a kill.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paimon_cli.cli.app import app
from paimon_cli.errors import PaimonError
from tests.processes.killed_commands import COMMANDS, Command, CommandKills, CommandTrial, newest_rows
from tests.processes.kills import PROCESSES

SOURCE = Path(__file__).with_name("faulty_calls.c")
ROWS = Path(__file__).with_name("more_rows.ndjson")
WRITE = Command("write", f"{ROWS} --format json --commit-user u --commit-id 1 --engine local")
READ = Command("read", "-o ndjson")
VERIFY = Command("verify", "--level full --engine local")
ALL = (WRITE, READ, VERIFY, *COMMANDS)
COMMITS = {"write", "drop-partition", "truncate"}
"""These change rows in one commit: an error means that nothing was committed."""
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EROFS": errno.EROFS, "EACCES": errno.EACCES}
PATIENCE = 300.0
UNKNOWN, DOCUMENTED = 11, {0, 1, 2, 5, 6, 7, 9, 10, 11}


def compiler() -> str | None:
    """A C compiler of this machine."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def compiled(folder: Path) -> Path:
    """The library, made of its source."""
    library = folder / "faulty_calls.so"
    command = [compiler() or "cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True)
class Fault:
    """The call that fails, the first being 0, and with what; `lasting`: all after it fail, too.

    `is_bound`: the process has no more rights than the owner of the files, who cannot write to a read-only directory.
    """

    call: int
    error: str
    lasting: bool
    is_bound: bool = False


NO_FAULT = Fault(-1, "EIO", False)


@dataclass
class SystemFaults:
    """`needless`: the command could do without the call that failed. `unknown`: it ended with exit code 11."""

    seed: int
    faults: int = 0
    read_only: int = 0
    needless: int = 0
    refused: int = 0
    unknown: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        figures = {
            "faults": self.faults,
            "read_only": self.read_only,
            "needless": self.needless,
            "refused": self.refused,
            "unknown": self.unknown,
        }
        return {**figures, "commands": len(self.calls), "calls": self.calls.total(), "seed": self.seed, "seconds": self.seconds}


class FaultTrial(CommandTrial):
    """One command on one table; each fault begins with the table as it was."""

    def __init__(self, command: Command, folder: Path, library: Path, figures: SystemFaults) -> None:
        self._kills = CommandKills(0)
        super().__init__(command, folder, self._kills)
        self._library, self._faults = library, figures
        self._count, self._says = folder / "count", folder / "says"
        self._restore()
        if self._run(NO_FAULT):
            raise AssertionError(f"{command.name}: {self._says.read_text()}")
        self.calls = int(self._count.read_text())
        figures.calls[command.words] += self.calls

    def try_one(self, fault: Fault) -> None:
        self._restore()
        self._tell(self._run(fault), f"call {fault.call} of {self.calls}, {fault.error}{' from then on' * fault.lasting}")

    def try_read_only(self, dice: random.Random) -> None:
        """Some directories, or all, take no new files and give none away; what only reads must not mind."""
        self._restore()
        directories = [self._root, *(path for path in sorted(self._root.rglob("*")) if path.is_dir())]
        chosen = directories if dice.random() < 0.3 else dice.sample(directories, dice.randint(1, 3))
        for directory in chosen:
            directory.chmod(0o555)
        code = self._run(replace(NO_FAULT, is_bound=True))
        for directory in chosen:
            directory.chmod(0o755)
        self._faults.read_only += 1
        names = "all directories" if chosen == directories else ", ".join(path.name for path in chosen)
        self._tell(code, f"{names} read-only")
        if self._command in (READ, VERIFY) and code:
            self._faults.wrong.append(f"{self._command.name}: exit code {code} where directories are read-only")

    def _tell(self, code: int, what: str) -> None:
        figures = self._faults
        figures.faults += 1
        figures.codes[code] += 1
        figures.needless += code == 0
        figures.unknown += code == UNKNOWN
        figures.refused += code not in (0, UNKNOWN)
        name = f"{self._command.name}, {what}"
        try:
            figures.wrong += [f"{name}: {complaint}" for complaint in (*self._judge(code), *self._look())]
        except (PaimonError, FileNotFoundError) as error:
            figures.wrong.append(f"{name}: {type(error).__name__}: {error}")

    def _judge(self, code: int) -> list[str]:
        said = self._says.read_text(errors="replace")
        wrong = [f"exit code {code}: {said[-2000:]}"] if code not in DOCUMENTED or "Traceback" in said else []
        rows = newest_rows(self._root)
        if code == 0 and rows != self._after:
            wrong.append("said to be done, and is not")
        if self._command.words in COMMITS and code not in (0, UNKNOWN) and rows != self._before:
            wrong.append(f"done although the exit code was {code}: {said[-600:]}")
        return wrong

    def _run(self, fault: Fault) -> int:
        """The exit code of the command in a process with the fault."""
        given = (self._command.line(self._root), str(self._root), fault, str(self._library), str(self._says), str(self._count))
        process = PROCESSES.Process(target=run_faulty, args=given, daemon=True)
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
        return int(process.exitcode or 0)


def run_faulty(line: list[str], root: str, fault: Fault, library: str, says: str, count: str) -> None:
    """Become the command; what it prints goes to the file `says`, the number of calls that it made to `count`."""
    sink = os.open(says, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(sink, stream)
    loaded = ctypes.CDLL(library)
    if fault.is_bound:
        give_up_rights()
    loaded.fault_arm(root.encode(), fault.call, ERRORS[fault.error], fault.lasting)
    code = 99
    try:
        app(line)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    loaded.fault_arm(b"", -1, 0, 0)
    Path(count).write_text(str(loaded.fault_seen()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def give_up_rights() -> None:
    """Root writes where it may not: give up that right, and that of changing others' files (CAP_DAC_*, CAP_FOWNER)."""
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~0b1110  # effective, of the first 32
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def try_faults(folder: Path, library: Path, faults: int, seed: int, only: str = "") -> SystemFaults:
    """This many faults, spread over the commands; `library` is loaded in this process already."""
    figures, begun = SystemFaults(seed), time.monotonic()
    commands = [command for command in ALL if only in command.name]
    for number, command in enumerate(commands):
        trial = FaultTrial(command, folder / str(number), library, figures)
        for place in range(number, faults, len(commands)):
            dice = random.Random(f"{seed}/{place}")
            if dice.random() < 0.15:
                trial.try_read_only(dice)
                continue
            trial.try_one(Fault(dice.randrange(trial.calls), dice.choice([*ERRORS, "EIO"]), dice.random() < 0.3))
    figures.seconds = round(time.monotonic() - begun, 1)
    return figures
