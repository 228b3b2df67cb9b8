"""Verdicts of earlier runs, so that an interrupted run goes on where it was.

A mutant that was killed need not be judged again as long as its module and the test that killed it are the same, whichever tests
are to judge it now. One that survived must be, as soon as any test has changed, or other tests or more time are allowed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from scripts.mutation.judge import Verdict
from scripts.mutation.mutants import Mutant
from scripts.mutation.session import ROOT, WORK

KEPT = WORK / "verdicts.jsonl"


@cache
def _digest_of_tests(test: str) -> str:
    """Of the file of this test; without one, of all tests and all modules."""
    if test:
        files = [ROOT / test.partition("::")[0]]
    else:
        files = sorted(path for folder in ("tests", "paimon_cli") for path in (ROOT / folder).glob("**/*.py"))
    content = hashlib.sha256()
    for file in files:
        content.update(file.read_bytes() if file.exists() else b"")
    return content.hexdigest()[:24]


class KeptVerdicts:
    """The verdicts in a file. `limits` says what the judges were told, such as the seconds for a mutant."""

    def __init__(self, limits: str, path: Path = KEPT, tests: Callable[[str], str] = _digest_of_tests) -> None:
        self._limits = limits
        self._path = path
        self._tests = tests
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known = {one["mutant"]: one for one in map(json.loads, lines)}

    def find(self, mutant: Mutant) -> Verdict | None:
        known = self._known.get(self._name(mutant))
        if known is None or known["tests"] != self._tests(known["test"]):
            return None
        if known["result"] != "killed" and known["limits"] != self._limits:
            return None
        return Verdict(known["result"], known["test"], known["seconds"])

    def keep(self, mutant: Mutant, verdict: Verdict) -> None:
        test = verdict.test if verdict.result == "killed" else ""
        name = self._name(mutant)
        line = {"mutant": name, "result": verdict.result, "test": test, "seconds": verdict.seconds, "limits": self._limits}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line | {"tests": self._tests(test)}) + "\n")

    def _name(self, mutant: Mutant) -> str:
        return hashlib.sha256("\0".join([*mutant.key, mutant.code]).encode()).hexdigest()[:24]
