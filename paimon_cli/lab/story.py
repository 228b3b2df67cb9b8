"""What happened in a case, step by step, told so that a person can follow it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StoryStep:
    """`who` did `what`, and how that came out; numbered from 1."""

    step: int
    who: str
    what: str
    outcome: str = ""


@dataclass
class Story:
    """One run of a case on one kind of store. `checks`: the granularities of the data conflict check that it is true for.

    `rows`: what readers see in the end, as text. `violations`: what a check of the table finds. `is_correct`: whether every
    acknowledged change is there and nothing is broken.
    """

    case: str
    checks: tuple[str, ...]
    store: str = "put-if-absent"
    steps: list[StoryStep] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    is_correct: bool = True
    verdict: str = ""
    _labels: dict[str, str] = field(default_factory=dict, repr=False)

    def tells_the_same_as(self, other: Story) -> bool:
        return (self.store, self.steps, self.rows, self.verdict) == (other.store, other.steps, other.rows, other.verdict)

    def tell(self, who: str, what: str, outcome: str = "") -> None:
        self.steps.append(StoryStep(len(self.steps) + 1, who, self.named(what), self.named(outcome)))

    def name_file(self, file_name: str, owner: str) -> None:
        """Data files get short names: A1 is the first of writer A, C1 the first of a compactor."""
        last = owner.rpartition(" ")[2]
        initial = last if last.isalpha() and len(last) == 1 else owner[0].upper()
        count = sum(label.startswith(initial) for label in self._labels.values())
        self._labels[file_name] = f"{initial}{count + 1}"

    def named(self, text: str) -> str:
        for name, label in self._labels.items():
            text = text.replace(name, label)
        return text

    def end(self, is_correct: bool, verdict: str) -> Story:
        self.is_correct, self.verdict = is_correct, verdict
        return self
