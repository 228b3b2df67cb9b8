"""The steps: each call of the library that changes a table, with what it makes of the changes behind the rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from paimon_cli import Table
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.metadata.table_mode import CHANGE_ROWS, RESCALE
from tests.model.lines import Line, folded
from tests.model.world import Changes, Step, World
from tests.properties.oracle import Change, Row
from tests.properties.shapes import random_changes

ARROW = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string(), "BOOLEAN": pa.bool_()}
BRANCHES = (MAIN_BRANCH, "dev", "try")
TAGS = ("one", "two")
CHANCE_OF_CRASH = 0.2
CHANCE_OF_RIVAL = 0.25
CHANCE_OF_THIRD = 0.6
CHANCE_OF_COMPARISON = 0.1


@dataclass
class Steps:
    """Random steps of one world. `numbers` names the commit users, so that a step that is repeated is done once."""

    world: World
    dice: random.Random
    count: int = 0

    def random_step(self) -> None:
        """One step, or none where the chosen one does not apply to the table as it is."""
        branch = self.dice.choice(sorted(self.world.lines))
        chance, line = self.dice.random(), self.world.lines[branch]
        if chance < 0.62:
            step = self.change_of_rows(branch)
            rival = self.rival_of(step, branch) if step is not None and self.dice.random() < CHANCE_OF_RIVAL else None
            third = self.third_of(step, rival, branch) if step is not None and rival is not None else None
            if step is not None:
                self.world.play(step, rival, CHANCE_OF_CRASH, third)
        elif chance < 0.72:
            self.expire(branch, line)
        elif chance < 0.80:
            self.change_tags(branch, line)
        elif chance < 0.86:
            self.change_branches()
        elif chance < 0.91:
            self.roll_back(branch, line)
        elif chance < 0.95:
            self.alter(line)
        elif chance < 0.97:
            self.rescale()
        elif chance < 0.985:
            self.world.clone(self.write(MAIN_BRANCH) if self.dice.random() < CHANCE_OF_RIVAL else None)
        else:
            self.world.check()
        if self.dice.random() < CHANCE_OF_COMPARISON:
            self.world.compare_versions(self.dice)

    # steps that commit

    def change_of_rows(self, branch: str) -> Step | None:
        """A step that may meet others."""
        makers = (self.write, self.write, self.write, self.compact, self.compact, self.update, self.overwrite, self.stage)
        more = (self.drop_partition, self.restore, self.compact_manifests)
        return self.dice.choice((*makers, *more))(branch)

    def rival_of(self, step: Step, branch: str) -> Step | None:
        """A step that Paimon's model allows beside another: of two that write, each with a data conflict check."""
        makers = [self.compact]
        if step.user is None or not self.world.context(branch).mode.bucket_mode.postpones:
            makers.append(self.update)  # which is refused while rows of the other wait for their buckets
        if self._is_checked(step):
            makers += [self.write, self.stage] if self.is_plain or step.user is None else makers[1:]
        rival = self.dice.choice(makers)(branch)
        return rival if (rival is not None and rival.user is not None) or step.user is not None else None

    def third_of(self, step: Step, rival: Step, branch: str) -> Step | None:
        """A step that Paimon's model allows beside both."""
        if self.dice.random() < CHANCE_OF_THIRD:
            third = self.rival_of(rival, branch)
            is_free = third is None or third.user is None or (self.world.layout.key and self._is_checked(step))
            return third if is_free else None
        return None

    @staticmethod
    def _is_checked(step: Step) -> bool:
        return step.user is None or "checked" in step.text or "update" in step.text

    @property
    def is_plain(self) -> bool:
        return self.world.layout.shape.name == "plain"

    def _user(self) -> str:
        self.count += 1
        return f"step-{self.count}"

    def _rows(self, branch: str) -> list[Change]:
        """New rows that this table takes with a result that does not depend on when compactions happen."""
        layout, line = self.world.layout, self.world.lines[branch]
        changes = random_changes(layout, self.dice)
        extra = [column for column in line.names if column not in layout.columns]
        for change in changes:
            change.row.update({column: self.dice.choice((None, 1, 2)) for column in extra})
        there = {self._key(row) for row in self._now(line)}
        if layout.shape.name == "retracting":
            changes = [change for change in changes if change.is_add or self._key(change.row) in there]
        if layout.crosses and layout.options["merge-engine"] == "first-row":
            changes = [change for change in changes if self._key(change.row) not in there]
        return changes

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.world.layout.key)

    def _now(self, line: Line) -> list[Row]:
        return folded(line.changes, line.names, self.world.layout)

    def _arrow(self, changes: Iterable[Change], line: Line) -> pa.Table:
        types = {**{name: ARROW[text.split()[0]] for name, text in self.world.layout.columns.items()}}
        schema = pa.schema(
            [(name, types.get(column, pa.int32())) for column, name in line.names.items()] + [("_op", pa.string())]
        )
        rows = [{**{n: c.row.get(column) for column, n in line.names.items()}, "_op": c.kind} for c in changes]
        return pa.Table.from_pylist(rows, schema=schema)

    def write(self, branch: str) -> Step | None:
        changes, user = self._rows(branch), self._user()
        if not changes:
            return None
        data, check = self._arrow(changes, self.world.lines[branch]), self._check()
        how: dict[str, Any] = {"op_column": "_op", "commit_user": user, "commit_id": 1, "data_conflict_check": check}
        told = f"write{' checked' if check else ''}({[(c.kind, c.row) for c in changes]})"
        return Step(told, branch, lambda table: table.write(data, **how), lambda old: (*old, *changes), user)

    def _check(self) -> str | None:
        has_keys = bool(self.world.layout.key)
        return self.dice.choice((None, "bucket", "key" if has_keys else "partition"))

    def overwrite(self, branch: str) -> Step | None:
        layout, user, line = self.world.layout, self._user(), self.world.lines[branch]
        replaces_all = not layout.partitioned or layout.options.get("dynamic-partition-overwrite") == "false"
        if layout.crosses and not (replaces_all or layout.options["merge-engine"] == "deduplicate"):
            return None
        changes = [change for change in self._rows(branch) if change.is_add]
        if layout.crosses:
            changes = list({self._key(change.row): change for change in changes}.values())
        if not changes:
            return None
        partitions = {change.row.get("p") for change in changes}

        def effect(old: Changes) -> Changes:
            if replaces_all:
                return tuple(changes)
            return (*self._without(old, partitions, line), *changes)

        data = self._arrow(changes, line)
        how: dict[str, Any] = {"op_column": "_op", "overwrite": True, "commit_user": user, "commit_id": 1}
        told = f"overwrite({[c.row for c in changes]})"
        return Step(told, branch, lambda table: table.write(data, **how), effect, user)

    def _without(self, old: Changes, partitions: set[Any], line: Line) -> Changes:
        """What is left once these partitions are empty; a row that moved out of one before must not return to it."""
        if self.world.layout.crosses:
            gone = [row for row in folded(old, line.names, self.world.layout) if row["p"] in partitions]
            return (*old, *(Change("-D", row) for row in gone))
        return tuple(change for change in old if change.row.get("p") not in partitions)

    def drop_partition(self, branch: str) -> Step | None:
        layout, user, line = self.world.layout, self._user(), self.world.lines[branch]
        if not line.versions or (layout.crosses and layout.options["merge-engine"] != "deduplicate"):
            return None
        how: dict[str, Any] = {"commit_user": user, "commit_id": 1}
        there = sorted({row["p"] for row in self._now(line) if row["p"] is not None}) if layout.partitioned else []
        if not there:
            return Step("truncate()", branch, lambda table: table.truncate(**how), lambda old: (), user)
        p = self.dice.choice(there)

        def act(table: Table) -> object:
            return table.drop_partition({"p": str(p)}, **how)

        return Step(f"drop_partition({p})", branch, act, lambda old: self._without(old, {p}, line), user)

    def update(self, branch: str) -> Step | None:
        """SET n or p, or delete the rows of one key."""
        layout, line, user = self.world.layout, self.world.lines[branch], self._user()
        mode = self.world.context(branch).mode
        can = self.is_plain and (not layout.key or layout.options["merge-engine"] == "deduplicate")
        if not can or not line.versions or mode.limits(CHANGE_ROWS):
            return None
        if mode.bucket_mode.postpones and line.is_hidden:
            return None
        key, value = self.dice.choice((None, *range(8))), self.dice.choice((None, 1, 7))
        new: Row = {} if value is None else {"p": 1} if value == 7 and layout.crosses else {"n": value}
        where = "k IS NULL" if key is None else f"k = {key}"
        how: dict[str, Any] = {"commit_user": user, "commit_id": 1}

        def act(table: Table) -> object:
            return table.update(new, where, **how) if new else table.delete(where, **how)

        def effect(old: Changes) -> Changes:
            if not layout.key:
                kept = (change for change in old if new or change.row["k"] != key)
                return tuple(replace(c, row={**c.row, **new}) if c.row["k"] == key else c for c in kept)
            rows = [row for row in folded(old, line.names, layout) if row["k"] == key]
            return (*old, *(Change("+U" if new else "-D", {**row, **new}) for row in rows))

        return Step(f"update({where}, {new or 'delete'})", branch, act, effect, user)

    def stage(self, branch: str) -> Step | None:
        """Both phases of a write; a process that died goes on with the second if the first was done."""
        changes, user, line = self._rows(branch), self._user(), self.world.lines[branch]
        if not changes or self.world.layout.crosses:
            return None
        data, file = self._arrow(changes, line), self.world.folder / f"{user}.json"
        how: dict[str, Any] = {"op_column": "_op", "commit_user": user, "commit_id": 1}

        def act(table: Table) -> object:
            if not file.exists():
                table.write(data, stage=str(file), **how)
            return table.stage.commit(str(file))

        return Step(f"stage({[(c.kind, c.row) for c in changes]})", branch, act, lambda old: (*old, *changes), user)

    def compact(self, branch: str) -> Step | None:
        strategy = self.dice.choice(("minor", "minor", "full"))
        context = self.world.context(branch)
        order = "k,v" if strategy == "full" and not context.mode.bucket_mode.has_buckets and self.dice.random() < 0.5 else None
        how: dict[str, Any] = {"strategy": strategy, **({"order_by": order} if order else {})}
        return Step(f"compact({strategy}, {order})", branch, lambda table: table.compact(**how))

    def compact_manifests(self, branch: str) -> Step | None:
        return Step("compact_manifests()", branch, lambda table: table.compact_manifests())

    def restore(self, branch: str) -> Step | None:
        """An old state as a new version."""
        line = self.world.lines[branch]
        if not line.targets():
            return None
        number = self.dice.choice(line.targets())
        version = line.versions[number]
        if self.world.layout.crosses or version.names != line.names:
            return None
        step = Step(f"restore({number})", branch, lambda table: table.rollback(number, as_new=True, compact="none"))
        return replace(step, effect=lambda old: version.changes)

    # steps that commit nothing

    def expire(self, branch: str, line: Line) -> None:
        keep = self.dice.randrange(1, 5)
        # A write may commit twice; what it commits must not be gone before it was looked at.
        rival = self.write(branch) if keep > 2 and self.dice.random() < CHANCE_OF_RIVAL else None
        step = Step(f"expire({keep})", branch, lambda table: table.expire(retain_max=keep, retain_min=keep))
        before = sorted(line.versions)
        self.world.play(step, rival, CHANCE_OF_CRASH)
        there = set(self.world.table(branch).snapshot_ids())
        gone = set(line.versions) - there
        allowed = [set(before[:-keep]), set(sorted(line.versions)[:-keep])]
        assert gone in allowed, self.world.story("expired", gone, before)
        for number in gone:
            del line.versions[number]

    def change_tags(self, branch: str, line: Line) -> None:
        name = self.dice.choice(TAGS)
        if name in line.tags and self.dice.random() < 0.5:
            step = Step(f"tags.rm({name})", branch, lambda table: table.tags.exists(name) and table.tags.rm(name))
            self.world.play(step, None, CHANCE_OF_CRASH)
            del line.tags[name]
        elif line.versions:
            number = self.dice.choice(sorted(line.versions))
            act: Callable[[Table], object] = lambda table: table.tags.create(name, snapshot=number, replace=True)  # noqa: E731
            self.world.play(Step(f"tags.create({name}, {number})", branch, act), None, CHANCE_OF_CRASH)
            line.tags[name] = number, line.versions[number]

    def change_branches(self) -> None:
        lines, name = self.world.lines, self.dice.choice(BRANCHES[1:])
        main = lines[MAIN_BRANCH]
        if name not in lines:
            schema = self.world.context().schema.id
            numbers = [number for number in main.targets() if main.versions[number].schema == schema]
            if numbers:
                number = self.dice.choice(numbers)
                self.world.steps.append(f"branches.create({name}, {number})")
                self.world.table().branches.create(name, snapshot=number)
                lines[name] = main.copy_of(number)
        elif self.dice.random() < 0.6:
            self.world.steps.append(f"branches.rm({name})")
            self.world.table().branches.rm(name)
            del lines[name]
        else:
            self._fast_forward(main, name)

    def _fast_forward(self, main: Line, name: str) -> None:
        """Main becomes the branch, after what both share. If the branch has lost that, older versions of main stay before a gap,
        which must not look like what the branch's first version was built on.
        """
        branch = self.world.lines[name]
        same = [number for number, version in branch.versions.items() if main.versions.get(number) is version]
        if not branch.versions or branch.newest == max(same, default=0):
            return
        self.world.steps.append(f"branches.fast_forward({name})")
        self.world.table().branches.fast_forward(name)
        begin = max(same) + 1 if same else min(branch.versions)
        kept = {n: v for n, v in main.versions.items() if n < begin}
        lost = set(main.versions) - set(kept)
        before = kept.get(begin - 1)
        if before is not None and before is not branch.past.get(begin - 1):
            there = begin - 1 in self.world.table().snapshot_ids()
            assert not there or before.rows == branch.past[begin - 1].rows, self.world.story("false neighbour", begin - 1)
            if not there:
                del kept[begin - 1]
        tags = {tag: held for tag, held in main.tags.items() if held[0] not in lost}
        main.versions = {**kept, **{n: v for n, v in branch.versions.items() if n >= begin}}
        main.past = dict(branch.past)
        main.tags = {**tags, **branch.tags}

    def roll_back(self, branch: str, line: Line) -> None:
        tags = [name for name, (number, _) in line.tags.items() if number >= line.floor]
        targets: list[int | str] = [*line.targets(), *tags]
        if not targets:
            return
        to = self.dice.choice(targets)
        number, version = line.tags[to] if isinstance(to, str) else (to, line.versions[to])
        self.world.play(Step(f"rollback({to})", branch, lambda table: table.rollback(to)), None, CHANCE_OF_CRASH)
        line.versions = {**{n: v for n, v in line.versions.items() if n < number}, number: version}
        line.past = {**line.past_of(number), number: version}
        line.tags = {name: held for name, held in line.tags.items() if held[0] <= number}

    def alter(self, line: Line) -> None:
        """Add, rename or drop a column that no option names; only while there is one branch."""
        if len(self.world.lines) > 1 or not self.is_plain:
            return
        extra = [column for column in line.names if column not in self.world.layout.columns]
        what, table = self.dice.random(), self.world.table()
        self.count += 1
        if not extra or (what < 0.4 and len(extra) < 3):
            name = f"x{self.count}"
            self.world.steps.append(f"alter.add_column({name})")
            table.alter.add_column(f"{name} INT")
            line.names[name] = name
            return
        column = self.dice.choice(extra)
        if what < 0.75:
            self.world.steps.append(f"alter.rename_column({line.names[column]}, y{self.count})")
            table.alter.rename_column(line.names[column], f"y{self.count}")
            line.names[column] = f"y{self.count}"
        else:
            self.world.steps.append(f"alter.drop_column({line.names[column]})")
            table.alter.drop_column(line.names[column])
            del line.names[column]

    def rescale(self) -> None:
        line, mode = self.world.lines[MAIN_BRANCH], self.world.context().mode
        if len(self.world.lines) > 1 or mode.limits(RESCALE) or not line.versions:
            return
        buckets = self.dice.choice((1, 2, 3))
        self.world.play(Step(f"rescale({buckets})", MAIN_BRANCH, lambda table: table.rescale(buckets)), None)
        line.floor = line.newest
