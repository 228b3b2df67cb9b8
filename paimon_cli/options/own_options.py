"""Options that only paimon-cli has, beside those of Paimon. Each is declared here once, and known wherever Paimon's are.

`TableOptions` has their values as attributes; the catalog of options has their types and meanings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from paimon_cli.options.choices import ConflictCheck, values_of
from paimon_cli.options.option_text import TypedOption, one_of

T = TypeVar("T")
DATA_CONFLICT_CHECK = "commit.data-conflict-check"
"""Paimon's writers never check whether the rows that they replace have changed meanwhile."""
DATA_CONFLICT_CHECKS = values_of(ConflictCheck)
"""Its values: the unit that concurrent commits must not both write to. Later ones cause fewer conflicts, but read more."""


@dataclass(frozen=True, eq=False)
class OwnOption(TypedOption[T]):
    """An option of paimon-cli. `type`: as Java would name it; `meaning`: for the user; `choices`: its values, if they are few."""

    type: str = "String"
    meaning: str = ""
    choices: tuple[str, ...] = ()

    @property
    def default_text(self) -> str | None:
        """The default as a user would write it; None if the option is unset."""
        return None if self.default is None else str(self.default).lower()


class OwnOptions:
    """The options of paimon-cli in the options of a table."""

    commit_data_conflict_check = OwnOption(
        DATA_CONFLICT_CHECK,
        "off",
        one_of(*DATA_CONFLICT_CHECKS),
        meaning="commits fail if others have written to the same partition, bucket, key range or keys since its read",
        choices=DATA_CONFLICT_CHECKS,
    )


DECLARED = tuple(option for option in vars(OwnOptions).values() if isinstance(option, OwnOption))
