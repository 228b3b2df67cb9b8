"""Others who commit at the worst moment, and what they leave on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from paimon_cli.history.table_context import TableContext
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome

Act = Callable[[], object]


class RivalStorage(LocalStorage):
    """Before each of our first publications one rival acts; `puts` counts our publications."""

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
    """The same table for a job that meets these rivals."""
    return TableContext.open(context.url, options, storage=RivalStorage(*acts))


def files_of(context: TableContext) -> set[str]:
    """Every file of the table, relative to its root; the hint of the newest snapshot aside."""
    root = Path(context.url)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"snapshot/LATEST"}
