"""`--trace`: the steps of a command on stderr, one line as each ends, and their number at the end."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from paimon_cli.cli.results import OutputFormat, note, rfc3339
from paimon_cli.storage.clock_and_names import Clock, SystemClock
from paimon_cli.storage.trace import NoTrace, Step, StepTrace, Trace

TRACE_VARIABLE = "PAIMON_CLI_TRACE"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.:/=$%")


def is_traced(arguments: Sequence[str] = ()) -> bool:
    """Whether `--trace` is on the command line, or the environment asks for it."""
    return "--trace" in arguments or os.environ.get(TRACE_VARIABLE, "") not in ("", "0")


@contextlib.contextmanager
def trace_on_stderr(wanted: bool, output: OutputFormat, clock: Clock | None = None) -> Iterator[Trace]:
    """The trace of one command: off, lines of text, or lines of JSON with a JSON output."""
    if not wanted:
        yield NoTrace()
        return
    clock = clock or SystemClock()
    lines = _Lines(clock.now_millis(), is_json=output in (OutputFormat.JSON, OutputFormat.NDJSON))
    trace = StepTrace(clock, lines.tell)
    try:
        yield trace
    finally:
        trace.step("end", **lines.counts)


class _Lines:
    """Times are seconds since the command began."""

    def __init__(self, began: int, is_json: bool) -> None:
        self._began = began
        self._form = self._json if is_json else self._text
        self.counts: Counter[str] = Counter()

    def tell(self, step: Step) -> None:
        self.counts[step.name] += 1
        with contextlib.suppress(OSError):  # a trace that cannot be written must not stop the work
            note(self._form(step))

    def _text(self, step: Step) -> str:
        facts = [f"{name}={_shown(value)}" for name, value in step.facts.items()]
        took = [f"took={step.took / 1000:.3f}s"] if step.took else []
        return " ".join([f"trace {self._seconds(step):9.3f}s {step.name:<14}", *facts, *took]).rstrip()

    def _json(self, step: Step) -> str:
        line = {"trace": step.name, "seconds": self._seconds(step), "time": rfc3339(step.millis), "took": step.took / 1000}
        return json.dumps(line | step.facts, ensure_ascii=False)

    def _seconds(self, step: Step) -> float:
        return (step.millis - self._began) / 1000


def _shown(value: Any) -> str:
    """A logfmt value: quoted if it holds blanks or quotes, so that a line can be parsed again."""
    if isinstance(value, list):
        return ",".join(map(_shown, value)) or "-"
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text, ensure_ascii=False)
