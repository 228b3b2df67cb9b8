"""After each clean-up, the table has exactly the files that its versions need, according to an independent reader."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import (
    create_branch,
    fast_forward,
    files_removed_by_fast_forward,
    plan_fast_forward,
    remove_branch,
    rename_branch,
)
from paimon_cli.maintain.expire_changelogs import expire_changelogs, files_removed_with_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import ExpirySummary, carry_out, files_to_delete_now, plan_expiry
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import measured
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import files_removed_by_rollback, plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag, files_removed_with_tags, plan_removal, remove_tags
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from tests.maintain.plain_files import needed, on_disk
from tests.tables import compact, make_table, write

COLUMNS = {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
KEPT_CHANGES = {"changelog.num-retained.min": "1000", "changelog.num-retained.max": "1000"}
KINDS = {
    "plain": {},
    "changes outlive snapshots": KEPT_CHANGES,
    "bloom filters": {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"},
}


class Story:
    """A table, its branches, and what was done to them."""

    def __init__(self, folder: Path, options: dict[str, str], seed: int) -> None:
        self.dice = random.Random(seed)
        self.main = make_table(folder / "t", COLUMNS, ["p", "k"], ["p"], 1, {"write-only": "true", **options})
        self.main = replace(self.main, read_threads=1)
        self.root = Path(self.main.url)
        self.extra = "file-index.bloom-filter.columns" in options
        self.count = 0

    def branch(self) -> TableContext:
        return self.main.at_branch(self.dice.choice([MAIN_BRANCH, *self.main.branches.names()]))

    def add(self) -> None:
        """A few commits, now and then with a compaction, a tag or a branch."""
        for _ in range(self.dice.randint(1, 4)):
            context = self.branch()
            self.count += 1
            step = self.dice.choice(["write", "write", "write", "compact", "overwrite", "tag", "branch"])
            rows = [{"p": self.dice.randint(1, 2), "k": k, "v": str(self.count)} for k in self.dice.sample(range(5), 2)]
            if step in ("write", "overwrite") or context.snapshots.latest_id() is None:
                write(context, rows, overwrite=step == "overwrite" and context.snapshots.latest_id() is not None)
            elif step == "compact":
                compact(context, strategy=self.dice.choice(["minor", "full"]))
            elif step == "tag":
                create_tag(context, f"t{self.count}", self.dice.choice(context.snapshots.ids()))
            elif len(self.main.branches.names()) < 2:
                create_branch(self.main, f"b{self.count}", snapshot_id=self.dice.choice(self.main.snapshots.ids()))

    def clean(self) -> None:
        context = self.branch()
        if context.snapshots.latest_id() is None:
            return
        step = self.dice.choice(["expire", "expire", "changelogs", "untag", "back", "forward"])
        before, expected = on_disk(self.root), getattr(self, step)(context)
        gone = before - on_disk(self.root)
        assert gone == expected, step

    def expire(self, context: TableContext) -> set[str]:
        most = self.dice.randint(1, 4)
        read: list[int] = []
        plan = plan_expiry(context, Retention(1, most, 0, self.dice.choice([None, 1, 2])), read.append)
        if plan is None:
            assert carry_out(context, plan, delete_files(context)) == ExpirySummary()
            return set()
        planned = files_to_delete_now(context, plan)
        sized = [file for file in planned if file.size is not None]
        assert all(file.size == Path(file.path).stat().st_size for file in sized) and len(read) == len(plan.snapshots)
        assert {file.kind for file in planned if file.size is None} <= {"snapshot", "index", "index manifest"}
        done = carry_out(context, plan, delete_files(context))
        data = [file for file in planned if "/bucket-" in file.path]
        assert done.snapshots == tuple(snapshot.id for snapshot in plan.snapshots) and done.data_files == len(data)
        assert done.metadata_files == len(planned) - len(data) - len(done.snapshots)
        assert done.size == sum(file.size or 0 for file in sized) and {file.size is None for file in data} <= {False, self.extra}
        assert [Path(file.path).name for file in planned[: len(done.snapshots)]] == [f"snapshot-{i}" for i in done.snapshots]
        assert Path(context.layout.earliest_hint).read_text() == str(plan.kept.id)
        return self.below(file.path for file in planned)

    def changelogs(self, context: TableContext) -> set[str]:
        plan = plan_changelogs(context, Retention(1, self.dice.randint(1, 5), 0, self.dice.choice([None, 1])))
        if plan is None:
            return set()
        planned = files_removed_with_changelogs(context, plan)
        expire_changelogs(context, plan, delete_files(context))
        return self.below(file.path for file in planned)

    def untag(self, context: TableContext) -> set[str]:
        names = context.tags.names()
        if not names:
            return set()
        chosen = self.dice.sample(names, self.dice.randint(1, len(names)))
        removal = plan_removal(context, chosen)
        tags = {context.layout.tag(name) for name in chosen}
        before = on_disk(self.root)
        remove_tags(context, removal, delete_files(context))
        assert before - on_disk(self.root) >= self.below(tags)
        return (before - on_disk(self.root)) | self.below(file.path for file in files_removed_with_tags(context, removal))

    def back(self, context: TableContext) -> set[str]:
        ids = [*context.snapshots.ids(), *(tag.snapshot.id for tag in context.tags.all().values())]
        plan = plan_rollback(context, rollback_target(context, self.dice.choice(ids)))
        planned = measured(context, files_removed_by_rollback(context, plan))
        roll_back(context, plan, delete_files(context))
        return self.below(file.path for file in planned)

    def forward(self, _: TableContext) -> set[str]:
        names = self.main.branches.names()
        if not names:
            return set()
        try:
            plan = plan_fast_forward(self.main, self.dice.choice(names))
        except PaimonError:
            return set()
        planned = measured(self.main, files_removed_by_fast_forward(self.main, plan))
        fast_forward(self.main, plan, delete_files(self.main))
        taken_over = {self.main.layout.snapshot(number) for number in plan.added}
        return self.below(file.path for file in planned if file.path not in taken_over)

    def below(self, paths: Iterable[str]) -> set[str]:
        return {str(Path(path).relative_to(self.root)) for path in paths}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_missing_and_nothing_left(tmp_path: Path, kind: str, seed: int) -> None:
    story = Story(tmp_path, KINDS[kind], seed)
    for _ in range(7):
        story.add()
        story.clean()
        assert on_disk(story.root) == needed(story.root)
    for name in story.main.branches.names():
        rename_branch(story.main, name, f"new-{name}")
        assert needed(story.root) <= on_disk(story.root)
        remove_branch(story.main, f"new-{name}")
    remove_orphans(story.main, find_orphans(story.main, 1 << 60, force=True), delete_files(story.main))
    assert on_disk(story.root) == needed(story.root)
