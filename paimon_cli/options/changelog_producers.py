"""Where the rows of changelog files come from (FORMAT.md, section 9): the only list of changelog producers.

The rest of the program asks for these properties, never for a name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangelogProducer:
    """What a changelog producer does. No property has a default, so that a new one must set each."""

    name: str
    """The value of the option `changelog-producer`."""
    records_input: bool
    """Whether writers record each row as it comes."""
    looks_up_old_rows: bool
    """Whether each compaction of level 0 looks up the older rows of its keys, and reports what changes above level 0."""
    compares_top_levels: bool
    """Whether each full compaction reports what changes at the top level."""

    @property
    def writes_files(self) -> bool:
        return self.records_input or self.reports_compactions

    @property
    def reports_compactions(self) -> bool:
        """Whether the changelog of a row is written by a compaction, after the commit that adds the row."""
        return self.looks_up_old_rows or self.compares_top_levels

    def lowest_level(self, levels: int) -> int:
        """The lowest of this number of levels whose rows are in a changelog, or in the delta of their commit."""
        if self.compares_top_levels:
            return levels - 1
        return 1 if self.looks_up_old_rows else 0


NO_CHANGELOG = ChangelogProducer(
    name="none",
    records_input=False,
    looks_up_old_rows=False,
    compares_top_levels=False,
)
CHANGELOG_PRODUCERS = {
    producer.name: producer
    for producer in (
        NO_CHANGELOG,
        ChangelogProducer(
            name="input",
            records_input=True,
            looks_up_old_rows=False,
            compares_top_levels=False,
        ),
        ChangelogProducer(
            name="full-compaction",
            records_input=False,
            looks_up_old_rows=False,
            compares_top_levels=True,
        ),
        ChangelogProducer(
            name="lookup",
            records_input=False,
            looks_up_old_rows=True,
            compares_top_levels=False,
        ),
    )
}
"""Name -> producer, in the order of messages and help."""
