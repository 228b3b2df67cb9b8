"""The catalog of `lab run` cases, in the order in which `lab ls` prints them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from paimon_cli.errors import BadInput, CommitUnknown, StorageUnavailable, UsageError
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.options.own_options import DATA_CONFLICT_CHECKS

if TYPE_CHECKING:
    from paimon_cli.lab.lab_table import LabSetting
    from paimon_cli.lab.story import Story

BOTH = (ConflictCheck.OFF, ConflictCheck.BUCKET)
WHOLE_BUCKETS = (ConflictCheck.OFF, ConflictCheck.PARTITION, ConflictCheck.BUCKET)
"""The granularities of cases with `has_table=False`."""


@dataclass(frozen=True)
class Case:
    """A case of `lab run`.

    `anomaly`: what goes wrong without the data conflict check; `function`: the module and function that run it, imported on
    demand; `writers`, `rounds`: defaults, None if the number is fixed; `is_seeded`: whether it depends on the seed; `has_table`:
    whether all granularities apply, and table options, if it `takes_options`; `own_options`: those that the case itself sets;
    `orders_rows`: those that replace the order of commits, and agree with it in this case.
    """

    name: str
    title: str
    anomaly: str
    function: str
    writers: int | None = None
    rounds: int | None = None
    is_seeded: bool = False
    has_table: bool = True
    takes_options: bool = True
    own_options: tuple[str, ...] = ()
    orders_rows: tuple[str, ...] = ()

    @property
    def run(self) -> Callable[[LabSetting], list[Story]]:
        module, _, name = self.function.partition(".")
        function: Callable[[LabSetting], list[Story]] = getattr(import_module(f"paimon_cli.lab.{module}"), name)
        return function

    @property
    def honours(self) -> list[str]:
        """The options of `lab run` that apply to this case."""
        choices = {
            "--writers": self.writers is not None,
            "--rounds": self.rounds is not None,
            "--seed": self.is_seeded,
            "--option": self.has_table and self.takes_options,
            "--data-conflict-check": True,
        }
        return [name for name, honoured in choices.items() if honoured]


CASES = (
    Case(
        "single-committer",
        "A writer per bucket, one committer for all",
        "none",
        "cases.single_committer",
        writers=2,
        rounds=1,
    ),
    Case(
        "topology-1",
        "Each writer has its own bucket and commits by itself",
        "none",
        "cases.topology_1",
        writers=4,
        rounds=3,
        is_seeded=True,
    ),
    Case(
        "topology-2",
        "Any writer writes any bucket and commits by itself",
        "merge disorder",
        "cases.topology_2",
        writers=3,
        rounds=2,
        is_seeded=True,
    ),
    Case(
        "snapshot-conflict",
        "Commits compete for one snapshot number",
        "none",
        "cases.snapshot_conflict",
        writers=2,
        is_seeded=True,
    ),
    Case("files-conflict", "Two full compactions of one bucket", "none", "cases.files_conflict"),
    Case(
        "write-only",
        "Write-only writers and one dedicated compactor",
        "none",
        "cases.write_only",
        rounds=3,
        own_options=("write-only",),
    ),
    Case(
        "merge-disorder",
        "Topology 2: sequence numbers of writers overlap",
        "merge disorder",
        "cases.merge_disorder",
        writers=2,
        rounds=1,
        is_seeded=True,
        orders_rows=("sequence.field",),
    ),
    Case(
        "snapshot-ordering",
        "Merge disorder with and without sequence.snapshot-ordering",
        "merge disorder",
        "cases.snapshot_ordering",
        writers=2,
        rounds=1,
        is_seeded=True,
        own_options=("sequence.snapshot-ordering", "write-only"),
    ),
    Case(
        "lost-update-columns",
        "Topology 2: two writers change two columns of one row",
        "lost update",
        "cases.lost_update_columns",
        rounds=1,
        is_seeded=True,
    ),
    Case(
        "lost-update-counter",
        "Topology 2: increments of one counter",
        "lost update",
        "cases.lost_update_counter",
        writers=2,
        rounds=1,
        is_seeded=True,
    ),
    Case(
        "lost-deletion-vectors",
        "Topology 2: two compactors replace one bucket's deletion vectors",
        "two live rows of a key",
        "vector_cases.lost_vectors",
        has_table=False,
    ),
    Case(
        "dangling-deletion-vectors",
        "Topology 2: a compactor marks rows of a file that another one merges away",
        "dangling deletion vector",
        "vector_cases.dangling_vectors",
        has_table=False,
    ),
    Case(
        "older-row-below",
        "Topology 2: two compactors of a lookup table put two rows of a key at levels in the wrong order",
        "shadowed newer row",
        "vector_cases.older_row_below",
        has_table=False,
    ),
    Case(
        "restart-loop",
        "Two streaming jobs that compact one bucket keep restarting each other; write-only and a dedicated job end it",
        "endless restarts",
        "streaming_cases.restarts",
        rounds=3,
        takes_options=False,
    ),
    Case(
        "back-pressure",
        "Two writers beside a slow compactor, without and with a stop trigger at which one of them waits",
        "unbounded sorted runs",
        "streaming_cases.back_pressure",
        rounds=3,
        takes_options=False,
    ),
    Case(
        "dynamic-bucket-race",
        "Two writers assign one new key to two dynamic buckets",
        "a key in two buckets",
        "streaming_cases.dynamic_buckets",
        takes_options=False,
    ),
    Case("crash", "A writer dies at every one of its storage calls", "none", "cases.crash"),
    Case(
        "unsafe-rename",
        "A store without atomic rename, compared with one that has a conditional put",
        "lost snapshot",
        "cases.unsafe_rename",
        own_options=("write-only",),
    ),
    Case(
        "no-put-if-absent",
        "Two commits at once on a store without put-if-absent, under each remedy",
        "lost snapshot",
        "store_cases.remedies",
        takes_options=False,
    ),
    Case(
        "lost-lock",
        "The lock of a commit expires while its holder sleeps",
        "lost snapshot",
        "store_cases.lost_lock",
        takes_options=False,
    ),
)


def find_case(name: str) -> Case:
    """Find a case by name; hyphens may be omitted (`topology2`). Raises `UsageError` with all names if there is none."""
    for case in CASES:
        if case.name.replace("-", "") == name.replace("-", ""):
            return case
    known = [case.name for case in CASES]
    raise UsageError(f"no case '{name}'", f"cases are {', '.join(known)}", f"{did_you_mean(name, known)}paimon-cli lab ls")


@dataclass(frozen=True)
class Explanation:
    """A case with its theory, and what Delta Lake, Hudi and Iceberg call the same thing."""

    case: str
    title: str
    anomaly: str
    theory: str
    delta_lake: str
    hudi: str
    iceberg: str
    honours: list[str]


def explain_case(name: str) -> Explanation:
    """Explain the mechanism of a case. Raises `UsageError` if there is no such case."""
    from paimon_cli.lab.theory import THEORIES

    case = find_case(name)
    theory = THEORIES[case.name]
    names = theory.delta_lake, theory.hudi, theory.iceberg
    return Explanation(case.name, case.title, case.anomaly, theory.theory, *names, case.honours)


def run_case(
    name: str,
    checks: Sequence[str] = BOTH,
    seed: int | None = None,
    writers: int | None = None,
    rounds: int | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Story]:
    """Run a case under each granularity and combine equal stories. Equal arguments give equal stories.

    Raises `UsageError` for an argument that does not apply to the case.
    """
    from paimon_cli.lab.lab_table import LabSetting, check_options

    case = find_case(name)
    chosen = {"--seed": seed, "--writers": writers, "--rounds": rounds, "--option": options or None}
    for flag, value in chosen.items():
        if value is not None and flag not in case.honours:
            raise UsageError(
                f"{flag} does not apply to the case {name}", f"its options are {', '.join(case.honours)}", f"remove {flag}"
            )
    unknown = [check for check in checks if check not in (DATA_CONFLICT_CHECKS if case.has_table else WHOLE_BUCKETS)]
    if unknown:
        raise UsageError(f"the case {name} has no granularity {unknown[0]}", f"choose from {', '.join(WHOLE_BUCKETS)}")
    for key in case.own_options:
        if key in (options or {}):
            raise UsageError(f"--option {key} does not apply to the case {name}", "the case itself sets it", "remove the option")
    check_options(options or {}, case.orders_rows)
    setting = LabSetting(
        seed=seed,
        writers=writers or case.writers or 0,
        rounds=rounds or case.rounds or 0,
        options=options or {},
    )
    stories: list[Story] = []
    for story in _told(case, setting, checks):
        same = [index for index, other in enumerate(stories) if story.is_same_as(other)]
        if same:
            stories[same[0]] = replace(stories[same[0]], checks=stories[same[0]].checks + story.checks)
        else:
            stories.append(story)
    return stories


def _told(case: Case, setting: LabSetting, checks: Sequence[str]) -> list[Story]:
    try:
        return [story for check in checks for story in case.run(replace(setting, check=check))]
    except (StorageUnavailable, CommitUnknown, BadInput) as error:
        if not setting.options:
            raise  # the stores of the lab are available, so only an option, such as a limit of attempts, explains this
        keys = ", ".join(setting.options)
        raise UsageError(f"the case {case.name} does not work with --option {keys}", str(error), "remove the option") from error
