"""The bugs of planted.yaml as mutants. The suite must find each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from scripts.mutation.mutants import Change, Mutant
from scripts.mutation.session import ROOT

LIST = ROOT / "scripts" / "mutation" / "planted.yaml"


def planted() -> Iterator[Mutant]:
    """Raises `ValueError` if the code has changed so that a bug can no longer be planted."""
    for bug in yaml.safe_load(LIST.read_text()):
        yield _mutant(bug)


def _mutant(bug: Mapping[str, str]) -> Mutant:
    path = ROOT / bug["file"]
    source = path.read_text()
    lines, wanted = source.splitlines(), bug["before"].splitlines()
    bare, last = [line.strip() for line in lines], f"def {bug['function'].rpartition('.')[2]}("
    start = next((number for number, line in enumerate(bare) if line.startswith(last)), len(bare))
    sought = [line.strip() for line in wanted]
    place = next((place for place in range(start, len(bare)) if bare[place : place + len(sought)] == sought), None)
    if place is None:
        raise ValueError(f"{bug['file']} has no longer what this planted bug changes: {bug['name']}")
    indentation = lines[place][: -len(bare[place])]
    lines[place : place + len(sought)] = [indentation + line for line in bug["after"].splitlines()]
    code = "\n".join(lines) + "\n"
    compile(code, bug["file"], "exec")
    change = Change.between(source, code)
    names = (change.before, change.after, code, change.first_line, change.last_line)
    return Mutant(path.relative_to(ROOT), bug["function"], *names, operator=bug["name"])
