"""What each merge engine does to the rows of a key (FORMAT.md, section 11.3): the only list of merge engines.

The rest of the program asks for these properties, never for a name. `lsm/engines` has a module for each engine, of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MergeResult(Enum):
    """Which row the versions of a key give."""

    NEWEST = "the newest version; a key moves to the partition of its newest row"
    OLDEST = "the oldest version; later ones are dropped"
    COMBINED = "a row that may differ from all versions, so that each of them is needed in its order, and where the key lives"


@dataclass(frozen=True)
class MergeRules:
    """What a merge engine does. No property has a default, so that a new engine must set each."""

    name: str
    """The value of the option `merge-engine`."""
    result: MergeResult
    missing_columns_stay: bool
    """Whether a column that an input lacks keeps its value in existing rows; otherwise it becomes null."""
    deleting_options: str
    """Options with which a -D removes its row, for hints; empty if it always does, or never."""

    @property
    def newest_wins(self) -> bool:
        return self.result is MergeResult.NEWEST

    @property
    def oldest_wins(self) -> bool:
        return self.result is MergeResult.OLDEST

    @property
    def combines_versions(self) -> bool:
        return self.result is MergeResult.COMBINED


DEFAULT_ENGINE = MergeRules(
    name="deduplicate",
    result=MergeResult.NEWEST,
    missing_columns_stay=False,
    deleting_options="",
)
MERGE_ENGINES = {
    rules.name: rules
    for rules in (
        DEFAULT_ENGINE,
        MergeRules(
            name="partial-update",
            result=MergeResult.COMBINED,
            missing_columns_stay=True,
            deleting_options="partial-update.remove-record-on-delete=true (or partial-update.remove-record-on-sequence-group)",
        ),
        MergeRules(
            name="aggregation",
            result=MergeResult.COMBINED,
            missing_columns_stay=False,
            deleting_options="aggregation.remove-record-on-delete=true",
        ),
        MergeRules(
            name="first-row",
            result=MergeResult.OLDEST,
            missing_columns_stay=False,
            deleting_options="",
        ),
    )
}
"""Name -> rules, in the order of messages and help."""
