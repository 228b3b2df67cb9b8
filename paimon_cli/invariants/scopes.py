"""What a check looks at. A check of one of these scopes is called for each such thing: no list names it.

To add an invariant: a function in one of the modules that `check` imports, below `@OF_VERSION.check(Invariant(...))` or the like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, ParamSpec

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Invariant, Violation, declare
from paimon_cli.metadata.data_file import BucketId

P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Scope(Generic[P]):
    """What checks of this scope are called with."""

    name: str

    def check(self, *invariants: Invariant) -> Callable[[Callable[P, Iterator[Violation]]], Check[P]]:
        """Make a check of a function, and declare the invariants that no other one reports."""
        declare(*invariants)
        return lambda run: Check(self, run, tuple(invariant.code for invariant in invariants))

    def checks_in(self, modules: Iterable[ModuleType]) -> tuple[Check[P], ...]:
        """All checks of this scope, in the order of their modules."""
        found = (value for module in modules for value in vars(module).values() if isinstance(value, Check))
        return tuple(check for check in found if check.scope is self)


@dataclass(frozen=True, eq=False)
class Check(Generic[P]):
    """A check that its scope calls; it can also be called by name. `codes`: of the invariants that it declares."""

    scope: Scope[P]
    run: Callable[P, Iterator[Violation]]
    codes: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Violation]:
        return self.run(*args, **kwargs)


OF_HISTORY: Scope[[TableContext]] = Scope("the files of snapshots, schemas and hints")
WITHOUT_SCHEMA: Scope[[TableContext]] = Scope("the same, where no schema can be read, so that nothing else can be checked")
OF_REFERENCES: Scope[[TableContext]] = Scope("other references to snapshots")
OF_VERSION: Scope[[Version]] = Scope("the metadata of a version")
OF_STEP: Scope[[Version, Version]] = Scope("the metadata of a version, and of the one before")
OF_BUCKET: Scope[[Version, BucketId]] = Scope("the rows of a bucket, across all its files")
OF_MERGED: Scope[[Version, BucketId]] = Scope("the same in the newest version and in tags: each of these checks merges all rows")
