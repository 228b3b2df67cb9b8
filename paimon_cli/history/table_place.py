"""Where a table is, and what it is called: the identity of an opened table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.storage.catalog_options import store_options

if TYPE_CHECKING:
    from typing_extensions import Self

BRANCH_MARK = "branch_"


@dataclass(frozen=True)
class TablePlace:
    """The place of a table, or of one of its branches; `catalog.table_location` has the places that a catalog knows.

    `url`: the root, normalised once the table is opened. `name`: as the user wrote it, without secrets; it ends in
    `$branch_NAME` for any branch but main. `read_optimized`: the view of what is compacted. `storage_options`: the options of the
    catalog. `argument`: the table in commands of hints, shell-quoted; None for its path. Pickled without catalog and its options.
    """

    url: str
    name: str
    read_optimized: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    branch: str = MAIN_BRANCH
    argument: str | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return TablePlace, (self.url, self.name, self.read_optimized, {}, self.branch, self.argument)

    @property
    def layout(self) -> TableLayout:
        return TableLayout(self.url, self.branch, self.argument)

    @property
    def store_options(self) -> dict[str, str]:
        """The options for other files on the same store."""
        return store_options(self.storage_options)

    def at_branch(self, branch: str) -> Self:
        """The place of another branch of the table."""
        if branch == self.branch:
            return self
        plain = self.name.removesuffix(f"${BRANCH_MARK}{self.branch}")
        name = plain if branch == MAIN_BRANCH else f"{plain}${BRANCH_MARK}{branch}"
        return replace(self, branch=branch, name=name, argument=self.layout.of_branch(branch).given_argument)
