"""The actors of `lab check` that need Parquet files: the shipped code passes, and a slip that only they can meet is found."""

from __future__ import annotations

import json
import re
from typing import Any
from unittest.mock import patch

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.lab import interleavings
from paimon_cli.lab.cast import ACTOR_KINDS, SHARING, Cast
from paimon_cli.lab.interleavings import CheckReport, CheckRequest, check_interleavings, replay_schedule, scenario_of
from paimon_cli.lab.simulation.publication import new_reader
from paimon_cli.lab.simulation.sim_storage import SimDisk
from paimon_cli.metadata.data_file import DELETION_VECTORS, HASH
from tests.lab.test_interleavings import run
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import MUTATIONS

SCHEDULES = 300
WITH_FILES = ("marker", "assigner", "rescaler")
SLIPS = [
    ("base_of_vectors_unchecked", "marker,compactor", "PV033"),
    ("a_write_drops_the_index_manifest", "marker,writer", "PV048"),
    ("hash_indexes_unchecked", "assigner,assigner", "50000: 'new and new'"),
    ("new_keys_are_not_in_the_index", "assigner,compactor", "PV041"),
    ("files_beside_a_split_overlooked", "rescaler,deleter", "PV022"),
    ("counts_of_buckets_unchecked", "rescaler,writer", "PV022"),
    ("expiry_deletes_files_of_the_snapshot_before", "writer,compactor,expirer", "was deleted, but snapshot"),
    ("expiry_deletes_index_files_of_the_oldest_kept_snapshot", "marker,expirer", "index/index-"),
    ("expiry_deletes_files_of_the_snapshot_before", "rescaler,expirer", "was deleted, but snapshot"),
    ("expiry_deletes_shared_manifests", "assigner,expirer", "was deleted, but snapshot"),
]


def request_of(actors: str, **more: Any) -> CheckRequest:
    return CheckRequest(tuple(actors.split(",")), depth=1, schedules=SCHEDULES, **more)


def with_slip(mutation: Mutation, request: CheckRequest) -> CheckReport:
    scenario = scenario_of(request)  # the table is made by the shipped code
    with mutation.plant(), patch.object(interleavings, "scenario_of", lambda request: scenario):
        return check_interleavings(request, lambda: True)


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("slip", "actors", "sign"), SLIPS, ids=lambda value: str(value))
def test_a_slip_is_found_and_its_schedule_passes_without_it(slip: str, actors: str, sign: str) -> None:
    (mutation,) = [mutation for mutation in MUTATIONS if mutation.name == slip]
    request = request_of(actors)
    (find,) = with_slip(mutation, request).finds
    assert any(sign in violation for violation in find.violations), find
    assert not replay_schedule(request, find.schedule).violations


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("actors", "check"),
    [
        ("marker,compactor", "off"),
        ("marker,marker", "off"),
        ("marker,expirer", "off"),
        ("assigner,assigner", "off"),
        ("assigner,compactor,expirer", "off"),
        ("rescaler,writer", "off"),
        ("rescaler,deleter", "bucket"),
        ("rescaler,expirer", "off"),
        ("writer,compactor,expirer", "off"),
    ],
)
def test_the_shipped_code_passes(actors: str, check: str) -> None:
    report = check_interleavings(request_of(actors, data_conflict_check=check), lambda: True)
    assert report.is_safe and report.finds == [] and (report.is_complete or report.schedules == SCHEDULES)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("kind", WITH_FILES)
def test_beside_every_other_kind_and_a_fault(kind: str) -> None:
    for other in ACTOR_KINDS:
        if {kind, other} in ({"marker", "assigner"}, {"assigner", "rescaler"}):
            continue
        request = CheckRequest((kind, other), seed=9, schedules=4, faults=1, data_conflict_check="bucket")
        report = check_interleavings(request, lambda: True)
        assert report.is_safe and report.finds == [] and report.schedules >= 2, other


@pytest.mark.nightly
def test_counters_lose_updates_in_real_files_too() -> None:
    (find,) = check_interleavings(request_of("counter,counter,rescaler"), lambda: True).finds
    assert find.violations[0].startswith("lost update: 2 increments")
    checked = check_interleavings(request_of("counter,counter,rescaler", data_conflict_check="bucket"), lambda: True)
    assert checked.is_safe and not checked.finds


class TestTables:
    """What the actors begin with, so that they can meet what they are for."""

    def last_kinds(self, actors: str) -> tuple[set[str], set[int]]:
        """The kinds of index files and the levels of the table at the beginning."""
        scenario = scenario_of(request_of(actors))
        context = new_reader(scenario, SimDisk(scenario.files).look)
        snapshot = context.snapshots.latest()
        assert snapshot is not None
        indexes = {entry.index_file.index_type for entry in context.manifests.index_entries(snapshot)}
        return indexes, {entry.file.level for entry in context.manifests.live_entries(snapshot)}

    def test_a_marker_finds_marked_rows_at_the_top_and_no_level_0(self) -> None:
        indexes, levels = self.last_kinds("marker,compactor")
        assert indexes == {DELETION_VECTORS} and 0 not in levels and max(levels) == 5

    def test_an_assigner_finds_hash_indexes(self) -> None:
        indexes, _ = self.last_kinds("assigner")
        assert indexes == {HASH}

    def test_writers_have_buckets_of_their_own(self) -> None:
        keys = Cast(("writer",) * 4 + ("marker", "twin"))._keys
        assert len(keys) == 6 and all(len(found) > 30 for found in keys.values()) and next(iter(keys.values()))[0] == 1


@pytest.mark.parametrize("pair", [("marker", "assigner"), ("assigner", "rescaler"), ("counter", "restorer")])
def test_what_cannot_work_together_is_refused_at_once(pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{pair[0]} and {pair[1]} cannot be combined"):
        Cast((*pair, "writer")).check()


def test_only_kinds_that_change_rows_of_others_are_unsafe() -> None:
    for kind in ACTOR_KINDS:
        assert CheckRequest((kind, "rival")).is_safe == (kind not in SHARING)


def test_the_command_names_all_kinds() -> None:
    text = re.sub(r"[│\s]+", " ", run("--help").stdout)
    assert all(re.search(rf"\b{kind}\b", text) for kind in ACTOR_KINDS)


def test_a_find_with_real_files_is_minimized_and_replayed() -> None:
    done = run("--actors", "rival,rival,rescaler", "--depth", "1", "--minimize", "-o", "json")
    (find,) = json.loads(done.stdout)["item"]["finds"]
    assert done.exit_code == 4 and any("rival" in line for line in find["story"])
    request = CheckRequest(("rival", "rival", "rescaler"))
    assert replay_schedule(request, find["schedule"]).violations == find["violations"]
