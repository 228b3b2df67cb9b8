"""The story of a case, step by step; actors record it through their storage."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX
from paimon_cli.storage.storage import PutOutcome, Storage, WrappedStorage


@dataclass(frozen=True)
class StoryStep:
    """One step of a story: the actor, what it did, and the outcome; numbered from 1."""

    step: int
    who: str
    what: str
    outcome: str = ""


@dataclass
class Story:
    """One run of a case on one kind of store. `checks`: the granularities of the data conflict check that it holds for.

    `rows`: what readers see in the end, as text. `violations`: findings of the checks of the table. `is_correct`: every
    acknowledged change is there and nothing is damaged.
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
        """Give data files short names: A1 is the first of writer A, C1 the first of a compactor."""
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


RENAMING, CONDITIONAL = "rename", "put-if-absent"
"""Kinds of store: one that checks whether a name is free and then renames, and one that does both in one step."""

_UNIQUE_PART = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+")


class ActorCrashed(BaseException):
    """The process died: whatever it would still do has no effect."""


class NarratedStorage(WrappedStorage):
    """A storage that records the calls of one actor. `before_put` is called once, before the next snapshot is put; `calls_left`
    calls are made before the actor dies.
    """

    def __init__(self, inner: Storage, story: Story, actor: str, store: str = CONDITIONAL) -> None:
        super().__init__(inner)
        self._story = story
        self._actor = actor
        self._store = store
        self.before_put: Callable[[], object] | None = None
        self.calls_left: int | None = None
        self.calls: list[str] = []
        self.is_quiet = False

    def before(self, call: str, path: str) -> None:
        if self.calls_left is not None and len(self.calls) >= self.calls_left:
            raise ActorCrashed
        self.calls.append(f"{call} {_UNIQUE_PART.sub('', path.rpartition('/')[2])}")

    def _tell(self, what: str, outcome: str = "") -> None:
        if not self.is_quiet:
            self._story.tell(self._actor, what, outcome)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.before("put_if_absent", path)
        name = path.rpartition("/")[2]
        if self._store == RENAMING:
            return self._put_by_renaming(path, data, name)
        self._let_others_go_first()
        outcome = self.inner.put_if_absent(path, data)
        if name.startswith(SNAPSHOT_PREFIX):
            self._tell(f"puts {name}", "it is published" if outcome is PutOutcome.CREATED else "the number is taken")
        return outcome

    def _put_by_renaming(self, path: str, data: bytes, name: str) -> PutOutcome:
        """Create a file the way a rename on an object store does: in two steps."""
        taken = self.inner.exists(path)
        self._tell(f"looks for {name}", "the number is taken" if taken else "the number is free")
        if taken:
            return PutOutcome.EXISTS
        self._let_others_go_first()
        overwritten = self.inner.exists(path)
        self.inner.overwrite(path, data)
        self._tell(
            f"renames its file to {name}", "another writer's snapshot is overwritten" if overwritten else "it is published"
        )
        return PutOutcome.CREATED

    def _let_others_go_first(self) -> None:
        if self.before_put is not None:
            others, self.before_put = self.before_put, None
            others()

    def open_output(self, path: str) -> BinaryIO:
        self.before("open_output", path)
        directory, _, name = path.rpartition("/")
        self._story.name_file(name, self._actor)
        self._tell(f"writes data file {name}", directory.rpartition("/")[2])
        return self.inner.open_output(path)

    def delete(self, path: str) -> None:
        self.before("delete", path)
        name = path.rpartition("/")[2]
        if name.endswith(".parquet"):
            self._tell(f"deletes data file {name}")
        self.inner.delete(path)
