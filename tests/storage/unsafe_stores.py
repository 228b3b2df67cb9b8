"""Stores for tests of what guards them: with a primitive that lies, or with none."""

from __future__ import annotations

from collections.abc import Callable

from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import PutOutcome


class NoPrimitive(MemoryStorage):
    """As any file system that only fsspec knows. `before_put`, `before_overwrite`: what happens just before."""

    def __init__(self, space: str) -> None:
        super().__init__(space)
        self.before_exists: Callable[[], None] = lambda: None
        self.before_overwrite: Callable[[], None] = lambda: None

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        self.before_exists()
        return found

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise Refused("no primitive")

    def overwrite(self, path: str, data: bytes) -> None:
        self.before_overwrite()
        super().overwrite(path, data)


class CheckThenWrite(NoPrimitive):
    """Believes that it created what it overwrites."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        MemoryStorage.overwrite(self, path, data)
        return PutOutcome.CREATED


class LastWins(NoPrimitive):
    """One writer gets the answer that it won, and another's content stays."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = PutOutcome.EXISTS if MemoryStorage.exists(self, path) else PutOutcome.CREATED
        MemoryStorage.overwrite(self, path, data)
        return outcome


class NeverAnswers(NoPrimitive):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return PutOutcome.UNKNOWN


class AnswersAtTheSecondTry(NeverAnswers):
    """The first trial is lost, all later ones are clear."""

    lost = 3

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if self.lost:
            self.lost -= 1
            return PutOutcome.UNKNOWN
        return MemoryStorage.put_if_absent(MemoryStorage(self._name), path, data)


class Broken(NoPrimitive):
    def overwrite(self, path: str, data: bytes) -> None:
        raise StorageUnavailable("the answer got lost")
