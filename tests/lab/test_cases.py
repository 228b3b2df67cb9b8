"""Each case shows its anomaly with the check off and none with it on, in every run."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from paimon_cli.errors import UsageError
from paimon_cli.lab.case_catalog import BOTH, CASES, Case, explain_case, run_case
from paimon_cli.lab.story import Story
from paimon_cli.lab.theory import THEORIES

pytestmark = pytest.mark.xdist_group("lab")  # they share stories

HARMLESS = [case for case in CASES if case.anomaly == "none"]
TWOFOLD = ("snapshot-ordering", "restart-loop", "back-pressure", "dynamic-bucket-race")
"""Cases that show each table twice: what cures them is the way of working, not the check."""
CURED = [case for case in CASES if case.anomaly not in ("none", "lost snapshot") and case.name not in TWOFOLD]

WITH_OPTIONS = [case for case in CASES if "--option" in case.honours]
CURES = {
    "partial-update": ("lost-update-columns",),
    "sequence.snapshot-ordering": ("topology-2", "merge-disorder"),
}
HONEST: list[dict[str, str]] = [
    {"merge-engine": "partial-update"},
    {"changelog-producer": "input"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
    {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    {"write-only": "true"},
    {"write-only": "false"},
    {"sequence.snapshot-ordering": "true", "write-only": "true"},
    {"num-sorted-run.compaction-trigger": "1"},
    {"num-sorted-run.stop-trigger": "1"},
    {"full-compaction.delta-commits": "1"},
    {"force-lookup": "true"},
    {"num-levels": "3"},
    {"file.format": "avro"},
]
DISHONEST: list[dict[str, str]] = [
    {"merge-engine": "aggregation"},
    {"merge-engine": "first-row"},
    {"fields.v.aggregate-function": "max"},
    {"sequence.field": "v"},
    {"sequence.field": "v", "sequence.field.sort-order": "descending"},
    {"rowkind.field": "v"},
    {"record-level.expire-time": "1 s"},
    {"deletion-vectors.enabled": "true"},
    {"bucket": "2"},
    {"bucket-function.type": "mod"},
    {"snapshot.num-retained.max": "1"},
]


@functools.cache
def stories_of(name: str, checks: tuple[str, ...] = BOTH, seed: int | None = None) -> list[Story]:
    """The stories of a case that several tests look at: every run gives equal ones, as one of them shows."""
    return run_case(name, checks, seed)


def only(stories: list[Story], check: str) -> Story:
    (story,) = [story for story in stories if check in story.checks]
    return story


@pytest.mark.in_part(2)
@pytest.mark.parametrize("case", HARMLESS, ids=lambda case: case.name)
def test_no_anomaly_whatever_the_check(case: Case) -> None:
    stories = stories_of(case.name)
    assert all(story.is_correct and story.steps and not story.violations for story in stories)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("case", CURED, ids=lambda case: case.name)
@pytest.mark.parametrize("check", ["bucket", "partition"])
def test_an_anomaly_that_the_check_cures(case: Case, check: str) -> None:
    stories = [*stories_of(case.name, ("off",)), *stories_of(case.name, (check,))]
    assert not only(stories, "off").is_correct and only(stories, "off").steps
    assert only(stories, check).is_correct


@pytest.mark.parametrize("name", TWOFOLD)
def test_an_anomaly_that_another_way_of_working_cures(name: str) -> None:
    sick, cured = stories_of(name, ("off",))
    assert not sick.is_correct and cured.is_correct and sick.steps and cured.steps and not cured.violations


@pytest.mark.in_part(10)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_in_every_run(case: Case) -> None:
    seed = 4 if case.is_seeded else None
    assert run_case(case.name, seed=seed) == stories_of(case.name, seed=seed)


def test_the_seed_decides_the_order() -> None:
    assert run_case("topology-1", ("off",), 1)[0].steps != run_case("topology-1", ("off",), 2)[0].steps


class TestChoices:
    @pytest.mark.in_part(4)
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_writers_and_rounds_are_honoured_or_refused(self, case: Case) -> None:
        choices: dict[str, Callable[[], list[Story]]] = {
            "writers": lambda: run_case(case.name, writers=5),
            "rounds": lambda: run_case(case.name, rounds=4),
        }
        for flag, chosen in choices.items():
            if getattr(case, flag) is None:
                with pytest.raises(UsageError, match=f"{flag} does not apply to the case {case.name}"):
                    chosen()
            else:
                changed, usual = chosen(), stories_of(case.name)
                assert changed != usual
                assert flag != "writers" or "writer E" in {step.who for story in changed for step in story.steps}

    @pytest.mark.parametrize("case", [case for case in CASES if not case.is_seeded], ids=lambda case: case.name)
    def test_a_seed_that_decides_nothing_is_refused(self, case: Case) -> None:
        with pytest.raises(UsageError, match="seed does not apply"):
            run_case(case.name, seed=1)

    @pytest.mark.parametrize("case", [case for case in CASES if case.own_options], ids=lambda case: case.name)
    def test_options_that_the_case_itself_sets_are_refused(self, case: Case) -> None:
        for key in case.own_options:
            with pytest.raises(UsageError, match=f"option {key} does not apply to the case {case.name}"):
                run_case(case.name, options={key: "4"})

    @pytest.mark.parametrize("case", [case for case in CASES if "--option" not in case.honours], ids=lambda case: case.name)
    def test_options_are_refused_where_none_apply(self, case: Case) -> None:
        with pytest.raises(UsageError, match=f"option does not apply to the case {case.name}"):
            run_case(case.name, options={"write-only": "true"})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"bucket": "7"}, "option bucket is not supported"),
            ({"no.such": "1"}, "option no.such is not supported"),
            ({"snapshot.time-retained": "1 h"}, "option snapshot.time-retained is not supported"),
            ({"commit.data-conflict-check": "off"}, "option commit.data-conflict-check is not supported"),
            ({"merge-engine": "nonsense"}, "merge-engine"),
        ],
    )
    def test_options_that_mean_nothing_are_refused(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            run_case("merge-disorder", options=options)

    @pytest.mark.in_part(60)
    @pytest.mark.parametrize("options", HONEST, ids=str)
    @pytest.mark.parametrize("case", WITH_OPTIONS, ids=lambda case: case.name)
    def test_the_verdict_of_a_case_holds_with_an_option(self, case: Case, options: dict[str, str]) -> None:
        """The anomaly is there as without the option, unless the option cures it."""
        if set(case.own_options) & set(options):
            return
        is_cured = any(case.name in CURES.get(word, ()) for option in options.items() for word in option)
        for check in BOTH:
            usual = [(story.store, story.is_correct or is_cured) for story in stories_of(case.name, (check,))]
            stories = run_case(case.name, (check,), options=options)
            assert [(story.store, story.is_correct) for story in stories] == usual, [story.verdict for story in stories]

    @pytest.mark.parametrize("options", DISHONEST, ids=str)
    @pytest.mark.parametrize("case", WITH_OPTIONS, ids=lambda case: case.name)
    def test_options_that_would_falsify_a_verdict_are_refused(self, case: Case, options: dict[str, str]) -> None:
        if set(options) <= set(case.orders_rows):
            (story,) = run_case(case.name, ("off",), options=options)
            assert story.is_correct
            return
        with pytest.raises(UsageError, match=r"not supported here|does not apply"):
            run_case(case.name, options=options)

    @pytest.mark.parametrize("case", ["topology-1", "snapshot-conflict", "unsafe-rename"])
    def test_options_with_which_commits_fail_are_refused(self, case: str) -> None:
        with pytest.raises(UsageError, match=r"does not work with option commit.max-retries: nothing was committed"):
            run_case(case, options={"commit.max-retries": "0"})

    def test_the_table_of_a_case_must_be_valid(self) -> None:
        with pytest.raises(UsageError, match="nowhere"):
            run_case("merge-disorder", options={"sequence.field": "nowhere"})

    @pytest.mark.nightly
    def test_crashes_of_a_writer_that_compacts(self) -> None:
        (story,) = run_case("crash", ("off",), options={"changelog-producer": "lookup"})
        assert story.is_correct and len(story.steps) > len(stories_of("crash")[0].steps)
        assert "0 files are orphans" in story.steps[-1].outcome, "the files of a changelog are named by a snapshot"

    @pytest.mark.in_part(3)
    @pytest.mark.parametrize("case", [case for case in CASES if case.is_seeded], ids=lambda case: case.name)
    def test_a_seed_changes_the_story(self, case: Case) -> None:
        first, *others = (stories_of(case.name, ("off",), seed) for seed in range(4))
        assert any(stories != first for stories in others)

    def test_hyphens_may_be_left_out(self) -> None:
        assert run_case("topology1", ("off",)) == stories_of("topology-1", ("off",))

    @pytest.mark.parametrize("check", ["range", "key"])
    def test_cases_of_all_orders_know_whole_buckets(self, check: str) -> None:
        with pytest.raises(UsageError, match=f"has no granularity {check}"):
            run_case("lost-deletion-vectors", (check,))

    @pytest.mark.parametrize(("case", "sign"), [("lost-deletion-vectors", "PV033"), ("dangling-deletion-vectors", "PV065")])
    def test_vectors_are_lost_without_a_check(self, case: str, sign: str) -> None:
        """Two compactions that interrupt each other, on the shipped code without the check of vectors."""
        unchecked, checked = stories_of(case)
        assert not unchecked.is_correct and unchecked.steps and any(sign in found for found in unchecked.violations)
        assert checked.is_correct and checked.verdict.startswith("no damage in any of ") and not checked.violations

    def test_partial_update_cures_the_columns_not_the_counter(self) -> None:
        partial = {"merge-engine": "partial-update"}
        columns, counter = (run_case(f"lost-update-{what}", ("off",), options=partial)[0] for what in ("columns", "counter"))
        assert columns.rows == ["name=jack, fav_color=Blue, fav_hobby=Cycling"] and columns.is_correct
        assert counter.rows == ["name=jack, points=2"] and not counter.is_correct

    def test_a_sequence_field_cures_merge_disorder(self) -> None:
        (story,) = run_case("merge-disorder", ("off",), options={"sequence.field": "v"})
        assert story.rows[0] == "k=1, v=9" and story.is_correct

    def test_the_order_of_snapshots_cures_merge_disorder(self) -> None:
        by_number, by_snapshot = stories_of("snapshot-ordering", ("off",))
        assert not by_number.is_correct and by_number.rows[0] == "k=1, v=8"
        assert by_snapshot.is_correct and by_snapshot.rows[0] == "k=1, v=9" and "committed last" in by_snapshot.verdict
        for many in (run_case("snapshot-ordering", ("off",), 5, 4, 3), run_case("snapshot-ordering", ("bucket",))):
            assert many[1].is_correct

    def test_topologies_with_many_writers(self) -> None:
        for check in ("off", "partition", "key"):
            (story,) = run_case("topology-1", (check,), 3, 5, 2)
            assert story.is_correct and story.verdict.startswith("10 commits")
        off, on = run_case("topology-2", ("off", "range"), 3, 4, 2)
        assert not off.is_correct and "merge disorder" in off.verdict
        assert on.is_correct and any("PC-CONFLICT-DATA" in step.what for step in on.steps)

    def test_a_counter_of_many_writers(self) -> None:
        off, on = run_case("lost-update-counter", writers=4, rounds=3)
        assert (off.rows, on.rows) == (["name=jack, points=4"], ["name=jack, points=13"])
        assert "9 commits were refused" in on.verdict

    def test_the_same_choices_print_the_same_bytes(self) -> None:
        arguments = ["lab", "run", "topology-2", "--writers", "4", "--rounds", "3", "--seed", "9", "-o", "json"]
        assert CliRunner().invoke(app, arguments).stdout == CliRunner().invoke(app, arguments).stdout


class TestGranularity:
    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(app, ["lab", *arguments, "-o", "json"], catch_exceptions=False)
        assert done.exit_code == 0
        return json.loads(done.stdout)["items"]

    @pytest.mark.nightly
    def test_the_finer_the_fewer_are_refused(self) -> None:
        rows = self.rows("granularity", "--writers", "5", "--rounds", "6", "--keys", "40", "--seed", "1")
        assert [row["granularity"] for row in rows] == ["off", "partition", "bucket", "range", "key"]
        rates = [row["abort_rate"] for row in rows[1:]]
        assert rates == sorted(rates, reverse=True) and rates[0] > rates[2] > rates[3] > 0
        assert rows[0]["refused"] == 0 and rows[0]["lost_updates"] > 0
        assert all(row["lost_updates"] == 0 for row in rows[1:])
        assert rows[1]["needless"] > rows[-1]["needless"] == 0

    @pytest.mark.nightly
    def test_it_is_a_case_too(self) -> None:
        choices = ("--writers", "2", "--rounds", "2", "--seed", "5")
        assert self.rows("run", "granularity", *choices) == self.rows("granularity", *choices)

    @pytest.mark.nightly
    def test_more_buckets_help_the_check_by_bucket(self) -> None:
        shape = ("--writers", "6", "--rounds", "2")
        one, many = (self.rows("granularity", *shape, "--buckets", count) for count in ("1", "16"))
        refused = {row["granularity"]: (row["refused"], more["refused"]) for row, more in zip(one, many, strict=True)}
        assert refused["bucket"][0] == refused["partition"][0] == refused["partition"][1] > refused["bucket"][1]


class TestStories:
    def test_merge_disorder(self) -> None:
        off, on = stories_of("merge-disorder")
        assert off.rows[0] == "k=1, v=8" and off.violations[0].startswith("PV023 warning")
        assert on.rows[0] == "k=1, v=9" and not on.violations
        assert any("PC-CONFLICT-DATA" in step.what for step in on.steps)

    def test_lost_updates(self) -> None:
        off, on = stories_of("lost-update-columns")
        assert off.rows == ["name=jack, fav_color=Red, fav_hobby=Cycling"]
        assert on.rows == ["name=jack, fav_color=Blue, fav_hobby=Cycling"]
        assert [story.rows for story in stories_of("lost-update-counter")] == [["name=jack, points=2"], ["name=jack, points=3"]]

    def test_a_lost_race_rewrites_metadata_only(self) -> None:
        (story,) = stories_of("snapshot-conflict")
        steps = [(step.who, step.what) for step in story.steps]
        assert steps.count(("writer A", "puts snapshot-1")) == 1 and ("writer A", "puts snapshot-2") in steps
        assert sum("writes data file" in what for _, what in steps) == 2, "one each, none for the second attempt"

    def test_files_conflict_names_file_and_remover(self) -> None:
        (story,) = stories_of("files-conflict")
        (abort,) = [step for step in story.steps if "exit 5" in step.what]
        assert "data file W1 of bucket-0 is no longer in the table" in abort.outcome
        assert "user compactor 1" in abort.outcome
        assert any(step.what == "deletes data file C2" for step in story.steps)

    def test_a_store_that_overwrites_loses_a_snapshot(self) -> None:
        rename, conditional = stories_of("unsafe-rename")
        assert (rename.store, rename.is_correct) == ("rename", False)
        assert (conditional.store, conditional.is_correct) == ("put-if-absent", True)

    def test_jobs_that_restart_each_other_in_turn(self) -> None:
        loop, cured = run_case("restart-loop", ("off",), rounds=5)
        failed = [step.who for step in loop.steps if step.what.startswith("fails")]
        assert failed == ["job B", "job A", "job B", "job A", "job B"] and loop.verdict.startswith("5 restarts in 5 checkpoints")
        assert sum("exit 5 PC-CONFLICT-FILE" in step.what for step in loop.steps) == 5
        assert loop.rows == cured.rows, "the restarts cost time, not rows"
        assert not any("exit 5" in step.what for step in cured.steps) and {"compactor", "job A"} <= {s.who for s in cured.steps}

    def test_only_a_writer_with_a_stop_trigger_waits(self) -> None:
        grows, bounded = run_case("back-pressure", ("off",), rounds=5)
        assert not any("had to wait" in step.what for step in grows.steps)
        waits = [step.outcome for step in bounded.steps if step.who == "writer B" and "had to wait" in step.what]
        assert len(waits) == 5 and all(outcome.endswith("stop trigger 4") for outcome in waits)
        most = [int(re.findall(r"(\d+) sorted runs", story.verdict)[0]) for story in (grows, bounded)]
        assert most[0] > most[1] and grows.rows == bounded.rows

    def test_a_key_in_two_dynamic_buckets(self) -> None:
        java, ours = stories_of("dynamic-bucket-race", ("off",))
        assert [row for row in java.rows if row.startswith("k=7")] == ["k=7, v=B", "k=7, v=A"]
        assert any(found.startswith("PV042") for found in java.violations)
        (refusal,) = [step for step in ours.steps if "exit 5" in step.what]
        assert refusal.who == "writer B" and refusal.what.endswith("PC-CONFLICT-BUCKETS")
        homes = [step.outcome for step in ours.steps if step.who == "writer B" and "assigned" in step.what]
        assert homes == ["1 to bucket-0", "1 to bucket-1"] and "k=7, v=B" in ours.rows and "k=7, v=A" not in ours.rows

    def test_lost_vectors_say_who_marks_which_row_of_which_file(self) -> None:
        off, on = stories_of("lost-deletion-vectors")
        assert off.bucket_before == [
            "level 0   S3   k=2 new",
            "level 4   S2   k=1 new",
            "level 5   S1   [k=1 old]  k=2 old  k=3 old",
        ]
        assert off.bucket_after == ["level 3   S3   k=2 new", "level 4   S2   k=1 new", "level 5   C1   k=2 old  k=3 old"]
        told = [(step.who, step.what, step.outcome) for step in off.steps]
        assert ("compactor 1", "marks rows of S1 (level 5) in vector file V2", "k=2 old") in told
        assert ("compactor 2", "leaves out the marked rows of S1", "k=1 old") in told
        assert told[-1][2] == "it is published; the vector file V2, which it has not read, is replaced"
        assert on.steps[-1].what == "aborts, exit 5 PC-CONFLICT-FILE" and "wrote or removed V1" in on.steps[-1].outcome

    def test_dangling_vectors_are_drawn(self) -> None:
        off, on = stories_of("dangling-deletion-vectors")
        assert off.bucket_after[-1] == "a vector marks 2 rows of S1, which is not in the bucket"
        assert off.violations[0] == "PV016 V2: marks rows of S1, which is not in the bucket"
        assert [line.split()[2] for line in on.bucket_after] == ["S3", "C1"], "the marking job is refused, so S3 stays at level 0"

    def test_an_older_row_below_is_drawn(self) -> None:
        off, on = stories_of("older-row-below")
        assert off.bucket_after[:2] == ["level 3   S2   k=1 old", "level 4   S3   k=1 new"]
        assert on.bucket_after[:2] == ["level 0   S2   k=1 old", "level 4   S3   k=1 new"]
        assert "looked for older rows" in on.steps[-1].outcome

    @pytest.mark.parametrize("case", [case for case in CASES if not case.has_table], ids=lambda case: case.name)
    def test_no_step_shows_a_raw_call_or_a_file_name(self, case: Case) -> None:
        for story in stories_of(case.name):
            lines = [f"{step.what} {step.outcome}" for step in story.steps] + story.bucket_before + story.bucket_after
            assert lines and not any(
                sign in line for line in lines for sign in ("read_bytes", "put_if_absent", "data-", "index-")
            )

    def test_each_remedy_of_a_store_without_put_if_absent(self) -> None:
        stories = {story.store: story for story in stories_of("no-put-if-absent")}
        refused, unsafe, alone, locked, conditional = stories.values()
        assert [story.is_correct for story in stories.values()] == [True, False, True, True, True]
        assert sum("exit 7 PC-REFUSED" in step.what for step in refused.steps) == 2 and refused.rows == []
        assert any(step.outcome == "another writer's snapshot is overwritten" for step in unsafe.steps) and unsafe.rows == [
            "k=1, v=A"
        ]
        assert any(step.what == "is warned" for step in alone.steps)
        waits = [step.what for step in locked.steps if step.who == "writer B" and "lock" in step.what]
        assert waits[:2] == ["wants the lock", "takes the lock"]
        assert all(story.rows == ["k=0, v=B", "k=1, v=A"] for story in (alone, locked, conditional))

    def test_a_lock_that_is_lost_while_its_holder_sleeps(self) -> None:
        noticed, too_late, harmless = stories_of("lost-lock")
        assert noticed.is_correct and noticed.rows == ["k=0, v=B"]
        assert (
            noticed.steps[-1].what == "fails, exit 6 PC-UNAVAILABLE"
            and "another writer took it over" in noticed.steps[-1].outcome
        )
        assert not too_late.is_correct and too_late.verdict == "B's commit was acknowledged, but its snapshot is gone"
        assert harmless.is_correct and harmless.store == "lock and put-if-absent" and len(harmless.rows) == 2
        for story in (noticed, too_late, harmless):
            assert ("writer B", "removes the expired lock") in [(step.who, step.what) for step in story.steps]

    def test_crashes_at_every_call(self) -> None:
        (story,) = stories_of("crash")
        before, after = (sum(f"readers see {value}" in step.outcome for step in story.steps) for value in ("old", "new"))
        assert before > 10 and after >= 3 and len(story.steps) == before + after


class TestCommands:
    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["lab", *arguments], catch_exceptions=False)

    def test_ls(self) -> None:
        done = self.run("ls", "-o", "json")
        assert [item["name"] for item in json.loads(done.stdout)["items"]] == [case.name for case in CASES]

    @pytest.mark.in_part(6)
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_run_as_text(self, case: Case) -> None:
        done = self.run("run", case.name)
        assert done.exit_code == 0
        assert done.stdout.startswith(case.name) and ("correct: " in done.stdout or "ANOMALY: " in done.stdout)

    def test_the_bucket_is_drawn_before_and_after(self) -> None:
        text = self.run("run", "dangling-deletion-vectors", "--data-conflict-check", "off").stdout
        before, steps, after = (text.index(part) for part in ("the bucket before", "Step", "the bucket after"))
        assert before < steps < after and "  level 5   C1   k=1 new  k=2 old  k=3 old\n" in text[after:]

    def test_ls_shows_the_options_of_each_case(self) -> None:
        (line,) = [line for line in self.run("ls").stdout.splitlines() if line.startswith("snapshot-conflict ")]
        assert line.endswith("--writers, --seed, --option, --data-conflict-check") and "--rounds" not in line

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_explain(self, case: Case) -> None:
        text = self.run("explain", case.name.replace("-", "")).stdout
        assert text.startswith(f"{case.name}: {case.title}\n") and f"paimon-cli lab run {case.name} " in text
        item = json.loads(self.run("explain", case.name, "-o", "json").stdout)["item"]
        assert len(item["theory"]) > 200 and item["honours"] == case.honours
        for name, field in (("Delta Lake", "delta_lake"), ("Hudi", "hudi"), ("Iceberg", "iceberg")):
            assert any(line.startswith(name) and item[field].startswith(line[12:]) for line in text.splitlines())

    def test_every_theory_has_its_case(self) -> None:
        assert list(THEORIES) == [case.name for case in CASES]

    def test_explaining_an_unknown_case(self) -> None:
        with pytest.raises(UsageError, match="no case 'crush'"):
            explain_case("crush")

    def test_run_as_json(self) -> None:
        done = self.run("run", "merge-disorder", "-o", "json", "--data-conflict-check", "bucket")
        (item,) = json.loads(done.stdout)["items"]
        assert item["checks"] == ["bucket"] and item["is_correct"] is True
        step = item["steps"][0]
        assert "list_directory snapshot" in step.pop("calls_before") and not step.pop("is_conflict")
        expected = {"step": 1, "who": "writer A", "what": "writes data file A1", "outcome": "bucket-0", "call": "open_output A1"}
        assert step == expected

    def test_an_unknown_case(self) -> None:
        with pytest.raises(UsageError, match="no case 'nothing'"):
            run_case("nothing")
