"""The cases by name, in the order of the documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paimon_cli.commit.data_conflict import BUCKET, OFF
from paimon_cli.errors import UsageError
from paimon_cli.lab import commit_cases, topology_cases, vector_cases
from paimon_cli.lab.story import Story

BOTH = (OFF, BUCKET)


@dataclass(frozen=True)
class Case:
    """`run` takes the granularity of the data conflict check and a seed. `anomaly`: what goes wrong without the check."""

    name: str
    title: str
    anomaly: str
    run: Callable[[str, int], list[Story]]


CASES = (
    Case("single-committer", "A writer per bucket, one committer for all", "none", commit_cases.single_committer),
    Case("topology-1", "Each writer has its own bucket and commits by itself", "none", topology_cases.topology_1),
    Case("snapshot-conflict", "Two commits reach for one snapshot number", "none", commit_cases.snapshot_conflict),
    Case("files-conflict", "Two full compactions of one bucket", "none", commit_cases.files_conflict),
    Case("write-only", "Write-only writers and one dedicated compactor", "none", commit_cases.write_only),
    Case(
        "merge-disorder", "Topology 2: sequence numbers of two writers overlap", "merge disorder", topology_cases.merge_disorder
    ),
    Case(
        "lost-update-columns",
        "Topology 2: two writers change two columns of one row",
        "lost update",
        topology_cases.lost_update_columns,
    ),
    Case("lost-update-counter", "Topology 2: two increments of one counter", "lost update", topology_cases.lost_update_counter),
    Case(
        "lost-deletion-vectors",
        "Topology 2: two compactors replace one bucket's deletion vectors (model)",
        "two live rows of a key",
        vector_cases.lost_vectors,
    ),
    Case(
        "dangling-deletion-vectors",
        "Topology 2: a compactor marks rows of a file that another one merges away (model)",
        "dangling deletion vector",
        vector_cases.dangling_vectors,
    ),
    Case("crash", "A writer dies at every one of its storage calls", "none", commit_cases.crash),
    Case(
        "unsafe-rename",
        "A store without atomic rename, beside one with a conditional put",
        "lost snapshot",
        commit_cases.unsafe_rename,
    ),
)


def find_case(name: str) -> Case:
    """UsageError lists the names if there is no such case."""
    for case in CASES:
        if case.name == name:
            return case
    raise UsageError(f"no case '{name}'", f"there are {', '.join(case.name for case in CASES)}", "see `paimon-cli lab ls`")


def run_case(name: str, checks: Sequence[str] = BOTH, seed: int = 0) -> list[Story]:
    """The case under each granularity, told once where that makes no difference; the same stories for the same seed."""
    case = find_case(name)
    told: list[Story] = []
    for story in (story for check in checks for story in case.run(check, seed)):
        same = [index for index, other in enumerate(told) if story.tells_the_same_as(other)]
        if same:
            told[same[0]] = replace(told[same[0]], checks=told[same[0]].checks + story.checks)
        else:
            told.append(story)
    return told
