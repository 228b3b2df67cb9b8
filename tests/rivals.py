"""Other jobs that commit at the worst moment, and the files that they leave."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paimon_cli import Table
from paimon_cli.history.table_context import TableContext
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome

Act = Callable[[], object]


class RivalStorage(LocalStorage):
    """A storage on which one rival acts before each of our first publications. `puts` counts our publications."""

    def __init__(self, *acts: Act) -> None:
        super().__init__()
        self.acts = list(acts)
        self.puts = 0

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[()]]:
        """Tasks elsewhere commit nothing, so they meet no rivals."""
        return LocalStorage, ()

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.puts += 1
        if self.acts:
            self.acts.pop(0)()
        return super().put_if_absent(path, data)


def beside(context: TableContext, *acts: Act, options: Mapping[str, str] | None = None) -> TableContext:
    """The table on a storage in which these rivals act before the commits of a job."""
    return TableContext.open(context.url, options, storage=RivalStorage(*acts))


def files_of(context: TableContext) -> set[str]:
    """Every file of the table, relative to its root; the hint of the newest snapshot aside."""
    root = Path(context.url)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"snapshot/LATEST"}


class Meddler(LocalStorage):
    """At calls of one method on paths with an ending a rival acts first; its result, unless None, is the answer.

    `calls` says on which of them: 1 is the first one.
    """

    def __init__(self, method: str, ending: str, act: Act, *calls: int) -> None:
        super().__init__()
        self._method, self._ending, self._act, self._calls = method, ending, act, calls or (1,)
        self.count = 0

    def _met(self, method: str, path: str) -> object:
        if method != self._method or not path.endswith(self._ending):
            return None
        self.count += 1
        return self._act() if self.count in self._calls else None

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        answer = self._met("put_if_absent", path)
        return answer if isinstance(answer, PutOutcome) else super().put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._met("overwrite", path)
        super().overwrite(path, data)

    def read_bytes(self, path: str) -> bytes:
        answer = self._met("read_bytes", path)
        return answer if isinstance(answer, bytes) else super().read_bytes(path)

    def exists(self, path: str) -> bool:
        answer = self._met("exists", path)
        return answer if isinstance(answer, bool) else super().exists(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        answer = self._met("list_directory", path)
        return answer if isinstance(answer, list) else super().list_directory(path)

    def delete(self, path: str) -> None:
        self._met("delete", path)
        super().delete(path)


def raising(error: Exception) -> Act:
    """A function that raises this error."""

    def act() -> object:
        raise error

    return act


class Busy(LocalStorage):
    """A storage on which another job acts before call number `number`."""

    def __init__(self, number: int, act: Act) -> None:
        super().__init__()
        self._left, self._act = number, act

    @property
    def has_acted(self) -> bool:
        return self._left <= 0

    def _met(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()

    def read_bytes(self, path: str) -> bytes:
        self._met()
        return super().read_bytes(path)

    def exists(self, path: str) -> bool:
        self._met()
        return super().exists(path)

    def list_directory(self, path: str) -> Any:
        self._met()
        return super().list_directory(path)

    def open_input(self, *given: Any, **named: Any) -> Any:
        self._met()
        return super().open_input(*given, **named)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._met()
        return super().put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._met()
        super().overwrite(path, data)

    def delete(self, path: str) -> None:
        self._met()
        super().delete(path)


def on_storage(table: Table, storage: Busy) -> Table:
    """The table on this storage."""
    seen = Table.open(table.url)
    seen.context = replace(seen.context, storage=storage)
    return seen


def copies(folder: Path, step: int) -> Iterator[tuple[Table, int]]:
    """Copies of the table t in the folder, and the numbers of the calls before which another job is to act."""
    for number in range(1, 1000, step):
        yield Table.open(shutil.copytree(folder / "t", folder / str(number))), number
    raise AssertionError("the command never ends")


class Killed(BaseException):
    """The process was killed: no call reaches the storage any more."""


class Mortal(LocalStorage):
    """A storage of a process that is killed at one of its calls that change something."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def _met(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def put_if_absent(self, path: str, data: bytes) -> Any:
        self._met()
        return super().put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._met()
        super().overwrite(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        self._met()
        super().write_new(path, data)

    def open_output(self, path: str) -> Any:
        self._met()
        return super().open_output(path)

    def delete(self, path: str) -> None:
        self._met()
        super().delete(path)
