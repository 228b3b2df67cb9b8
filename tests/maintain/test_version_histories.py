"""Any sequence of writes, compactions, expiries, tags, branches, roll-backs and cleanings against a dict that knows all rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.metadata_jobs import find_target, run_restore
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags, replace_tag
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.memory_storage import MemoryStorage
from tests.faults.bench import Actor, Bench, Rows
from tests.faults.verdict import reachable
from tests.tables import rows as rows_of

FOREVER = 1 << 60
KEYS = st.integers(0, 6)
TAGS, BRANCHES = ("one", "two"), (MAIN_BRANCH, "dev", "try")


class Versions(RuleBasedStateMachine):
    """`known[branch][id]` and `tagged[branch][name]` hold the rows that each version must have."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.bench = Bench(MemoryStorage("versions"), "/versions", Path(self.folder.name))
        self.bench.load({})
        self.known: dict[str, dict[int, Rows]] = {}
        self.tagged: dict[str, dict[str, tuple[int, Rows]]] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.bench.make_table(options={"write-only": "true"})
        self.known, self.tagged = {MAIN_BRANCH: {}}, {MAIN_BRANCH: {}}
        self.write(MAIN_BRANCH, {0, 1}, set())

    def teardown(self) -> None:
        self.folder.cleanup()

    def context(self, branch: str = MAIN_BRANCH) -> TableContext:
        return self.bench.healthy().context(branch=branch)

    def actor(self) -> Actor:
        return self.bench.healthy()

    def newest(self, branch: str) -> tuple[int, Rows]:
        number = max(self.known[branch], default=0)
        return number, self.known[branch].get(number, {})

    def there(self, branch: str) -> bool:
        return branch in self.known

    @rule(
        branch=st.sampled_from(BRANCHES), put=st.sets(st.integers(0, 6), max_size=4), take=st.sets(st.integers(0, 6), max_size=2)
    )
    def write(self, branch: str, put: set[int], take: set[int]) -> None:
        if not self.there(branch) or not put | take:
            return
        self.count += 1
        changes: dict[int, str | None] = {key: f"{self.count}" for key in put} | dict.fromkeys(take)
        number, before = self.newest(branch)
        self.actor().write(changes, branch=branch)
        self.known[branch][number + 1] = {k: v for k, v in {**before, **changes}.items() if v is not None}

    @rule(branch=st.sampled_from(BRANCHES))
    def compact(self, branch: str) -> None:
        if self.there(branch):
            number, before = self.newest(branch)
            if self.actor().compact(branch=branch).snapshots:
                self.known[branch][number + 1] = before

    @rule(branch=st.sampled_from(BRANCHES), keep=st.integers(1, 4))
    def expire(self, branch: str, keep: int) -> None:
        if self.there(branch):
            gone = expire_snapshots(self.context(branch), Retention(keep, keep, 0, None)).snapshots
            number, _ = self.newest(branch)
            assert set(gone) == {i for i in self.known[branch] if i <= number - keep}
            for i in gone:
                del self.known[branch][i]

    @rule(branch=st.sampled_from(BRANCHES), name=st.sampled_from(TAGS), data=st.data())
    def tag(self, branch: str, name: str, data: st.DataObject) -> None:
        if self.there(branch) and self.known[branch]:
            number = data.draw(st.sampled_from(sorted(self.known[branch])))
            change = replace_tag if name in self.tagged[branch] else create_tag
            change(self.context(branch), name, number)
            self.tagged[branch][name] = (number, self.known[branch][number])

    @rule(branch=st.sampled_from(BRANCHES), name=st.sampled_from(TAGS))
    def untag(self, branch: str, name: str) -> None:
        if self.there(branch) and name in self.tagged[branch]:
            del self.tagged[branch][name]
            context = self.context(branch)
            remove_tags(context, plan_removal(context, [name]), delete_files(context))

    @rule(name=st.sampled_from(BRANCHES[1:]), data=st.data())
    def branch(self, name: str, data: st.DataObject) -> None:
        if not self.there(name) and self.known[MAIN_BRANCH]:
            number = data.draw(st.sampled_from(sorted(self.known[MAIN_BRANCH])))
            create_branch(self.context(), name, snapshot_id=number)
            self.known[name], self.tagged[name] = {number: self.known[MAIN_BRANCH][number]}, {}

    @rule(name=st.sampled_from(BRANCHES[1:]))
    def unbranch(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            del self.tagged[name]
            remove_branch(self.context(), name)

    @precondition(lambda self: len(self.known) > 1)
    @rule(data=st.data())
    def forward(self, data: st.DataObject) -> None:
        """Fast-forward main if the branch has snapshots that main lacks."""
        name = data.draw(st.sampled_from(sorted(set(self.known) - {MAIN_BRANCH})))
        main, branch = self.context(), self.context(name)
        same = [i for i in self.known[name] if i in self.known[MAIN_BRANCH] and _text(main, i) == _text(branch, i)]
        if max(self.known[name]) == max(same, default=0):
            return
        fast_forward(main, plan_fast_forward(main, name), delete_files(main))
        common, first = max(same, default=0), min(self.known[name])
        kept = {i: r for i, r in self.known[MAIN_BRANCH].items() if (i <= common if same else i < first)}
        lost = set(self.known[MAIN_BRANCH]) - set(kept)
        tags = {n: held for n, held in self.tagged[MAIN_BRANCH].items() if held[0] not in lost}
        self.known[MAIN_BRANCH] = {**kept, **{i: r for i, r in self.known[name].items() if i > common}}
        self.tagged[MAIN_BRANCH] = {**tags, **self.tagged[name]}

    @rule(branch=st.sampled_from(BRANCHES), data=st.data())
    def back(self, branch: str, data: st.DataObject) -> None:
        if self.there(branch) and self.known[branch]:
            number = data.draw(st.sampled_from(sorted(self.known[branch])))
            context = self.context(branch)
            roll_back(context, plan_rollback(context, find_target(context, str(number))), delete_files(context))
            self.known[branch] = {i: rows for i, rows in self.known[branch].items() if i <= number}
            self.tagged[branch] = {name: held for name, held in self.tagged[branch].items() if held[0] <= number}

    @rule(branch=st.sampled_from(BRANCHES), name=st.sampled_from(TAGS))
    def back_to_tag(self, branch: str, name: str) -> None:
        if self.there(branch) and name in self.tagged[branch]:
            number, rows = self.tagged[branch][name]
            context = self.context(branch)
            roll_back(context, plan_rollback(context, find_target(context, name)), delete_files(context))
            self.known[branch] = {**{i: r for i, r in self.known[branch].items() if i <= number}, number: rows}
            self.tagged[branch] = {n: held for n, held in self.tagged[branch].items() if held[0] <= number}

    @rule(branch=st.sampled_from(BRANCHES), data=st.data())
    def restore(self, branch: str, data: st.DataObject) -> None:
        if self.there(branch) and self.known[branch]:
            number = data.draw(st.sampled_from(sorted(self.known[branch])))
            newest, _ = self.newest(branch)
            context = self.context(branch)
            done = run_restore(context, find_target(context, str(number)).snapshot, LocalEngine(), NoProgress())
            if done.snapshot != newest:
                self.known[branch][newest + 1] = self.known[branch][number]

    @rule()
    def clean(self) -> None:
        context = self.context()
        if any(self.known.values()):
            remove_orphans(context, find_orphans(context, FOREVER, force=True), delete_files(context))
            assert self.bench.paths() == reachable(context) & self.bench.paths()

    @invariant()
    def all_rows_are_there(self) -> None:
        names = [MAIN_BRANCH, *BranchList(self.bench.inner, self.bench.layout).names()]
        assert sorted(names) == sorted(self.known or {MAIN_BRANCH: {}})
        for branch, versions in self.known.items():
            context = self.context(branch)
            assert context.snapshots.ids() == sorted(versions) and context.snapshots.latest_id() == max(versions, default=None)
            for number, rows in versions.items():
                assert {row["k"]: row["v"] for row in rows_of(context, snapshot_id=number)} == rows
            assert {name: tag.snapshot.id for name, tag in context.tags.all().items()} == {
                name: number for name, (number, _) in self.tagged[branch].items()
            }
            hints = {context.layout.of_branch(b).latest_hint for b in names} | {
                context.layout.of_branch(b).earliest_hint for b in names
            }
            assert reachable(context) - hints <= self.bench.paths()
            assert not list(check_table(context, rows=False))


def _text(context: TableContext, number: int) -> bytes:
    return context.storage.read_bytes(context.layout.snapshot(number))


TestVersions = Versions.TestCase
TestVersions.settings = settings(max_examples=12, stateful_step_count=16, suppress_health_check=list(HealthCheck))
