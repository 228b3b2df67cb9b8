"""The recorded steps of a case, and the storage that records them for each actor."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.storage import PutOutcome, Storage


@dataclass(frozen=True)
class StoryStep:
    """One step of a story: the actor, its action and the outcome. Steps are numbered from 1.

    `call`: the storage call that it is, empty for other steps; `is_conflict`: whether it runs into the work of another actor.
    `calls_before`: the calls of this actor since its step before, in order.
    """

    step: int
    who: str
    what: str
    outcome: str = ""
    call: str = ""
    is_conflict: bool = False
    calls_before: tuple[str, ...] = field(default=(), compare=False)


@dataclass
class Story:
    """One run of a case on one kind of store. `checks`: the granularities of the data conflict check that give this story.

    `rows`: the rows that readers see at the end, as text. `violations`: what verifying the table reports. `is_correct`: every
    acknowledged change is in the table, and nothing is damaged. `bucket_before`, `bucket_after`: the files of the bucket and
    their rows at the beginning and at the end, one line per file, marked rows in brackets; empty where levels do not matter.
    """

    case: str
    checks: tuple[str, ...]
    store: str = "put-if-absent"
    steps: list[StoryStep] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    is_correct: bool = True
    verdict: str = ""
    bucket_before: list[str] = field(default_factory=list)
    bucket_after: list[str] = field(default_factory=list)
    _labels: dict[str, str] = field(default_factory=dict, repr=False)
    _calls: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list), repr=False, compare=False)
    """The calls of each actor since its last step."""

    def is_same_as(self, other: Story) -> bool:
        return (self.store, self.steps, self.rows, self.verdict) == (other.store, other.steps, other.rows, other.verdict)

    def record(self, who: str, what: str, outcome: str = "", *, call: str = "", is_conflict: bool = False) -> None:
        before = [_UNIQUE_PART.sub("", self.named(made)) for made in self._calls.pop(who, ())]
        call = _UNIQUE_PART.sub("", self.named(call))
        if call and before[-1:] == [call]:
            del before[-1]
        step = StoryStep(len(self.steps) + 1, who, self.named(what), self.named(outcome), call, is_conflict, tuple(before))
        self.steps.append(step)

    def called(self, who: str, call: str) -> None:
        """An actor makes a storage call, which belongs to its next step."""
        self._calls[who].append(call)

    def name_file(self, file_name: str, owner: str) -> None:
        """Give a data file a short name: A1 is the first file of writer A, C1 the first file of a compactor."""
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
"""Kinds of store: one checks whether a name is free and then renames, the other does both atomically."""
PUBLISHED, TAKEN, OVERWRITTEN = "it is published", "the number is taken", "another writer's snapshot is overwritten"
"""Outcomes of a put of a snapshot."""

_UNIQUE_PART = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+")


class ActorCrashed(BaseException):
    """The process of an actor died; nothing that it does afterwards has an effect."""


class NarratedStorage(WrappedStorage):
    """A storage that records the calls of one actor.

    `before_put` is called once, before the next file is put. `calls_left`: the number of calls after which the actor crashes.
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
        name = path.rpartition("/")[2]
        self.calls.append(f"{call} {_UNIQUE_PART.sub('', name)}")
        self._story.called(self._actor, f"{call} {name}")

    def _record(self, call: str, what: str, outcome: str = "", is_conflict: bool = False) -> None:
        if not self.is_quiet:
            self._story.record(self._actor, what, outcome, call=call, is_conflict=is_conflict)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.before("put_if_absent", path)
        name = path.rpartition("/")[2]
        if self._store == RENAMING:
            return self._put_by_renaming(path, data, name)
        self._let_others_go_first()
        outcome = self.inner.put_if_absent(path, data)
        if name.startswith(SNAPSHOT_PREFIX):
            is_taken = outcome is not PutOutcome.CREATED
            self._record(f"put_if_absent {name}", f"puts {name}", TAKEN if is_taken else PUBLISHED, is_taken)
        return outcome

    def _put_by_renaming(self, path: str, data: bytes, name: str) -> PutOutcome:
        """Create a file in two steps, as a rename does on an object store."""
        taken = self.inner.exists(path)
        self._record(f"exists {name}", f"looks for {name}", TAKEN if taken else "the number is free", taken)
        if taken:
            return PutOutcome.EXISTS
        self._let_others_go_first()
        overwritten = self.inner.exists(path)
        self.inner.overwrite(path, data)
        self._record(f"rename {name}", f"renames its file to {name}", OVERWRITTEN if overwritten else PUBLISHED, overwritten)
        return PutOutcome.CREATED

    def _let_others_go_first(self) -> None:
        if self.before_put is not None:
            others, self.before_put = self.before_put, None
            others()

    def open_output(self, path: str) -> BinaryIO:
        self.before("open_output", path)
        directory, _, name = path.rpartition("/")
        self._story.name_file(name, self._actor)
        self._record(f"open_output {name}", f"writes data file {name}", directory.rpartition("/")[2])
        return self.inner.open_output(path)

    def delete(self, path: str) -> None:
        self.before("delete", path)
        name = path.rpartition("/")[2]
        if name.endswith(".parquet"):
            self._record(f"delete {name}", f"deletes data file {name}")
        self.inner.delete(path)
