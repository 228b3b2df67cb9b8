"""The history of a table: snapshots, compactions, schemas and options, and the versions of a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.requests.fields import Point, check_choice, check_limit, point_text
from paimon_cli.requests.selections import text_of
from paimon_cli.requests.versions import BisectOptions

if TYPE_CHECKING:
    from paimon_cli.inspect.compaction_history import CompactedBucketRow, CompactionRow
    from paimon_cli.inspect.schema_report import OptionExplanation, OptionRow, SchemaChange, SchemaDetails, SchemaRow
    from paimon_cli.inspect.version_report import SnapshotDetails, SnapshotRow
    from paimon_cli.jobs.bisection import Bisection
    from paimon_cli.read.difference import FileChange, RowChange
    from paimon_cli.read.key_history import KeyVersion


@checks_arguments
class History(OpenedTable):
    """The methods of `Table` about its history. They are read-only, and raise `NotFound` for a missing snapshot or schema."""

    def snapshots(self, *, limit: int | None = None, kind: str | None = None, user: str | None = None) -> list[SnapshotRow]:
        """Snapshots, newest first: at most `limit`, and only of one `kind` (APPEND, COMPACT, OVERWRITE, ANALYZE) or `user`.

        Those that cannot be read are left out, with a warning.
        """
        from paimon_cli.inspect.version_report import snapshot_rows
        from paimon_cli.metadata.snapshot import COMMIT_KINDS

        check_limit(limit)
        if kind is not None:
            check_choice("kind", kind, COMMIT_KINDS)
        found = snapshot_rows(self.context, limit, kind, user, self._warn_of_damage)
        if not found:
            self._expect_a_history()
        return found

    def snapshot(self, snapshot: Point = "latest") -> SnapshotDetails:
        """All fields of one snapshot, named by its id, a tag, a time, `latest` or `earliest`."""
        from paimon_cli.history.points_in_time import named_snapshot
        from paimon_cli.inspect.version_report import snapshot_details

        return snapshot_details(self.context, named_snapshot(self.context, str(point_text(snapshot))))

    def compactions(self, *, limit: int | None = None, user: str | None = None) -> list[CompactionRow]:
        """The compactions recorded by snapshots, newest first: at most `limit`, and only of one `user`.

        Snapshots that cannot be read are left out, with a warning.
        """
        from paimon_cli.inspect.compaction_history import compaction_rows

        check_limit(limit)
        found = compaction_rows(self.supported, limit, user, self._warn_of_damage)
        if not found:
            self._expect_a_history()
        return found

    def _expect_a_history(self) -> None:
        """Raise `NotFound` or `DamagedFile` if the table was dropped, or has lost its snapshots, so that it only looks new."""
        if self.context.snapshots.latest_id() is None:
            self.context.expect_existing()

    def compaction(self, snapshot: Point = "latest") -> list[CompactedBucketRow]:
        """What one compaction did to each bucket; `latest` is the newest COMPACT snapshot."""
        from paimon_cli.inspect.compaction_history import compacted_buckets, compaction_snapshot

        return compacted_buckets(self.context, compaction_snapshot(self.context, str(point_text(snapshot))))

    def snapshot_ids(self) -> Sequence[int]:
        """The ids of all snapshots, ascending."""
        return self.context.snapshots.ids()

    def file_changes(self, before: Point, after: Point = "latest") -> list[FileChange]:
        """The data files that differ between two snapshots (`snapshots diff --files`)."""
        from paimon_cli.history.points_in_time import named_snapshot
        from paimon_cli.read.difference import file_changes

        return file_changes(self.context, *(named_snapshot(self.context, str(point_text(name))) for name in (before, after)))

    def row_changes(self, before: Point, after: Point = "latest", *, limit: int | None = None) -> Iterator[RowChange]:
        """The rows that differ between two snapshots (`snapshots diff --rows`), read lazily."""
        from paimon_cli.history.points_in_time import named_snapshot
        from paimon_cli.read.difference import row_changes

        check_limit(limit)
        one, other = (named_snapshot(self.context, str(point_text(name))) for name in (before, after))
        return islice(row_changes(self.context, one, other), limit)

    @takes(BisectOptions)
    def bisect(self, options: BisectOptions) -> Bisection:
        """The first snapshot in which some row matches a condition, or none does, by binary search.

        `params`: values of parameters, which are written as `:name` in the condition.

        Raises `NotFound` if this does not hold in the last snapshot.
        """
        from paimon_cli.jobs.bisection import bisect_snapshots

        first, last = self._snapshot_id(options.first), self._snapshot_id(options.last)
        within = BisectOptions.of(options, first=first, last=last)
        progress = self.runtime.new_progress()
        progress.start("Reading snapshots", None)
        try:
            return bisect_snapshots(self.context, within, progress.advance)
        finally:
            progress.finish()

    def schemas(self) -> list[SchemaRow]:
        """Schemas, newest first: one for each change of the table's definition."""
        from paimon_cli.inspect.schema_report import schema_rows

        return schema_rows(self.context)

    def schema(self, schema: Point = "latest") -> SchemaDetails:
        """The columns, keys and options of one schema, named by its id or `latest`."""
        from paimon_cli.inspect.schema_report import schema_details

        return schema_details(self.context.named_schema(str(schema)))

    @property
    def options(self) -> Mapping[str, str]:
        """The options set in the latest schema."""
        return dict(self.context.schemas.latest().options)

    def option_rows(self, *, every: bool = False) -> list[OptionRow]:
        """The options that are set, with meanings and defaults; `every`: including those not set (`options ls --all`)."""
        from paimon_cli.inspect.schema_report import option_rows

        opened = self.context
        return option_rows(opened.schemas.latest().options, opened.given, every=every)

    def explain_option(self, key: str) -> OptionExplanation:
        """What an option means, whether paimon-cli honours it, and its value in this table (`options explain`).

        Raises `NotFound` for an unknown option.
        """
        from paimon_cli.inspect.schema_report import explain_option

        opened = self.context
        return explain_option(key, opened.schemas.latest().options, opened.given)

    def schema_changes(self, before: int | str | None = None, after: Point = "latest") -> list[SchemaChange]:
        """How two schemas differ (`schemas diff`). `before`: default the schema that `after` replaced."""
        from paimon_cli.inspect.schema_report import schema_below, schema_changes

        new = self.context.named_schema(str(after))
        old = schema_below(self.context, new) if before is None else self.context.named_schema(str(before))
        return schema_changes(old, new)

    def blame(self, key: Mapping[str, Any], *, html: str | None = None, force: bool = False) -> list[KeyVersion]:
        """Every stored version of a key, or of all keys that match part of one: commit, engine, file, level, sequence number,
        values, and what readers saw after that commit.

        `html`: also write them as a timeline, one page, to a file or URL; `force`: replace an existing file.
        """
        from paimon_cli.read.key_history import key_history, key_predicate

        table = self.context
        texts = {name: text_of(value) for name, value in key.items()}
        predicate = key_predicate(table, texts)
        if html is None:
            return key_history(table, predicate).versions
        from paimon_cli import __version__
        from paimon_cli.inspect.blame_page import blame_page
        from paimon_cli.storage.whole_file import whole_file

        with whole_file(html, table.place.store_options, table.random, replace=force) as sink:
            found = key_history(table, predicate)
            sink.write(blame_page(self.name, texts, found, __version__).encode(errors="replace"))
        return found.versions


def all_options() -> list[OptionRow]:
    """All table options, with meanings and defaults (`options ls --all`)."""
    from paimon_cli.inspect.schema_report import option_rows

    return option_rows({}, {}, every=True)


def explain_option(key: str) -> OptionExplanation:
    """What an option means, and whether paimon-cli honours it (`options explain`). Raises `NotFound` for an unknown one."""
    from paimon_cli.inspect.schema_report import explain_option

    return explain_option(key)
