"""What `health --fix` does about findings: the fewest steps that mend them, none of which discards anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_cli.inspect.findings.finding import NOT_SHOWN, Finding, Remedy


class FixState:
    """How far a step has come."""

    PLANNED = "planned"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class FixStep:
    """A command that mends the findings with these `codes`. `message`: why it failed."""

    table: str
    command: str
    codes: tuple[str, ...]
    state: str = FixState.PLANNED
    message: str = ""
    remedy: Remedy | None = field(default=None, metadata=NOT_SHOWN)


def steps_of(table: str, findings: Sequence[Finding]) -> list[FixStep]:
    """The steps for a table, in order: options, which decide what is compacted; one compaction; manifests.

    One compaction mends all findings that call for one: in full if any of them needs that. What discards something is no step.
    """
    remedies = [(found.remedy, found.code) for found in findings if found.remedy is not None and not found.remedy.discards]
    compactions = [remedy for remedy, _ in remedies if remedy.strategy is not None]
    compaction = next((remedy for remedy in compactions if remedy.strategy == "full"), next(iter(compactions), None))
    chosen: dict[str, Remedy] = {}
    codes: dict[str, list[str]] = {}
    for remedy, code in sorted(remedies, key=lambda one: _place(one[0])):
        step = compaction if remedy.strategy is not None and compaction is not None else remedy
        chosen.setdefault(step.command, step)
        codes.setdefault(step.command, []).append(code)
    return [FixStep(table, command, tuple(dict.fromkeys(codes[command])), remedy=step) for command, step in chosen.items()]


def _place(remedy: Remedy) -> int:
    if remedy.options:
        return 0
    return 1 if remedy.strategy is not None else 2
