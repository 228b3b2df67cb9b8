"""Runs the commands in pages of the documentation, and compares their output with the pages.

    python -m scripts.run_snippets README.md docs/tutorial.md            # exits with 1 if an output differs
    python -m scripts.run_snippets --renew README.md docs/tutorial.md    # writes the outputs into the pages

Blocks marked `console` contain commands after `$` and their output; blocks marked `python` are run, too. All blocks of a page run
one after the other in a directory of their own. Times, sizes and random names differ from run to run and are not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typer.testing import CliRunner

from paimon_cli.cli.app import app
from paimon_cli.cli.demo_command import inside

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("tutorial", "loading", "change-streams", "reading", "sql", "kinds-of-tables", "merge-engines")
    ),
    *(f"docs/{name}.md" for name in ("compaction", "concurrency", "lab", "operations", "library", "outputs", "backup")),
)
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CHANGING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b[\d.,]+ (ms|s|kB|MB|GB|B)\b"), "N"),
    (re.compile(r"amplification \d+%"), "amplification N%"),
)
PROGRAM = "paimon-cli "
HOME = "/home/ada"
"""The name that the pages show for the directory in which the commands ran."""


@dataclass
class Session:
    """A directory in which the commands of a page run. Python blocks share their variables."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    last_code: int = 0

    def run(self, line: str) -> str:
        if line == "echo $?":
            return f"{self.last_code}\n"
        before, pipe, after = line.rpartition(f" | {PROGRAM}")
        if pipe:
            return self._ours(after, self._shell(before))
        return self._ours(line.removeprefix(PROGRAM), "") if line.startswith(PROGRAM) else self._shell(line)

    def _ours(self, arguments: str, stdin: str) -> str:
        answer = CliRunner().invoke(app, shlex.split(arguments), input=stdin)
        self.last_code = answer.exit_code
        return answer.output

    def _shell(self, line: str) -> str:
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, capture_output=True, text=True)
        self.last_code = done.returncode
        return done.stdout + done.stderr

    def python(self, source: str) -> None:
        exec(compile(source, "page", "exec"), self.names)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block as written, each with the output below it."""
    for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        count = next((number for number, line in enumerate(lines, start=1) if not line.rstrip().endswith("\\")), len(lines))
        if lines:
            yield "".join(lines[:count]), "".join(lines[count:])


def rewritten(page: str, folder: Path) -> str:
    """The page with the current output of its commands."""
    session, done = Session(folder), []
    with inside(folder):
        position = 0
        for block in BLOCK.finditer(page):
            done.append(page[position : block.start(2)])
            if block[1] == "python":
                session.python(block[2])
                done.append(block[2])
            else:
                for shown, _ in commands(block[2]):
                    output = session.run(shown.removeprefix("$ ").replace("\\\n", " ").strip()).replace(str(folder), HOME)
                    done.append(shown + "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines()))
            position = block.end(2)
        done.append(page[position:])
    return "".join(done)


def comparable(page: str) -> str:
    for pattern, name in CHANGING:
        page = pattern.sub(name, page)
    return re.sub(r"[ ]+", " ", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("pages", nargs="*", default=[str(ROOT / page) for page in PAGES], type=Path)
    arguments = parser.parse_args()
    os.environ["NO_COLOR"] = "1"
    wrong = []
    for path in map(Path, arguments.pages):
        page = path.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder:
            now = rewritten(page, Path(folder))
        if comparable(now) != comparable(page):
            wrong.append(str(path))
            if arguments.renew:
                path.write_text(now, encoding="utf-8")
    if wrong:
        sys.exit(f"{'renewed' if arguments.renew else 'not true'}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
