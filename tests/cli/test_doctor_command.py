"""`doctor`: facts of the machine, a race on the storage, rules over the table, a command for each finding."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table, processor
from paimon_cli.api import health
from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings import bucket_rules, history_rules
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import ERROR, Finding
from paimon_cli.inspect.findings.runner import findings_of
from paimon_cli.jobs import doctor_job
from paimon_cli.jobs.doctor_job import Fact, examine_machine, examine_sort, examine_table
from paimon_cli.processor import VARIABLE
from paimon_cli.storage.guarded_storage import PROBE_PREFIX, race_probes
from paimon_cli.storage.injected import BelatedClock, SystemRandom
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome
from tests import tables
from tests.cli.calling import Run
from tests.storage.unsafe_stores import CheckThenWrite

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def made(folder: Path, commits: int = 1, **options: str) -> TableContext:
    context = tables.make_table(folder / "t", COLUMNS, ["k"], options={k.replace("__", "-"): v for k, v in options.items()})
    for number in range(commits):
        tables.write(context, [{"k": number, "v": "x"}], compact="none")
    return context


def reopened(context: TableContext, **options: str) -> TableContext:
    path = Path(context.layout.schema(0))
    content = json.loads(path.read_text())
    content["options"].update(options)
    path.write_text(json.dumps(content))
    return TableContext.open(context.url)


def findings(context: TableContext) -> dict[str, Finding]:
    return {item.code: item for item in examine_table(context, "T") if isinstance(item, Finding)}


def test_a_healthy_table(run: Run, tmp_path: Path) -> None:
    context = made(tmp_path)
    assert findings(context) == {}
    before = sorted(str(path) for path in Path(context.url).rglob("*"))
    text = run("doctor", context.url).out
    assert "put-if-absent had exactly one winner in each of 8 races" in text and "0 findings" in text and "pyarrow" in text
    assert before == sorted(str(path) for path in Path(context.url).rglob("*")), "the probes are gone"
    assert run("doctor", "-o", "json").json["items"] == []


def test_programs_see_which_checks_passed(run: Run, tmp_path: Path) -> None:
    """Without them, a check that was not made would look like one that found nothing."""
    context = made(tmp_path)
    shown = run("doctor", context.url).out
    answer = run("doctor", context.url, "-o", "json").json
    assert (answer["kind"], answer["items"]) == ("DiagnosisList", [])
    assert {"python", "pyarrow", "memory", "storage"} <= {fact["subject"] for fact in answer["passed"]}
    versions = [fact for fact in answer["passed"] if fact["subject"] in ("python", "pyarrow")]
    assert all(f"ok       {fact['subject']}: {fact['message']}" in shown for fact in versions)
    assert run("doctor", context.url, "-o", "csv").out == "code,severity,subject,message,command,topic,figures,threshold\n"


def test_the_machine() -> None:
    assert {item.subject for item in examine_machine() if isinstance(item, Fact)} >= {"python", "pyarrow", "pyspark", "java"}


def test_a_store_with_two_winners(tmp_path: Path) -> None:
    assert race_probes(LocalStorage(), str(tmp_path), SystemRandom(), 3)
    assert not race_probes(CheckThenWrite("doctor"), str(tmp_path), SystemRandom(), 3)


def test_sorted_runs_and_small_files(tmp_path: Path) -> None:
    context = made(tmp_path, 12)
    found = findings(context)
    assert found.keys() == {"PD011", "PD012"}
    assert found["PD012"].command == "paimon-cli compact T --strategy minor" and "12 sorted runs" in found["PD012"].message
    tables.compact(context)
    assert findings(context) == {}


def test_small_files_without_a_key(tmp_path: Path, run: Run) -> None:
    table = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    for number in range(12):
        tables.write(table, [{"n": number}])
    command = findings(table)["PD011"].command.replace(" T ", f" {table.url} ")
    run(*command.split()[1:], "--engine", "local")
    assert findings(reopened(table)) == {}


def test_a_table_that_nothing_compacts(tmp_path: Path) -> None:
    context = reopened(made(tmp_path, 20), **{"write-only": "true"})
    assert findings(context)["PD013"].command == "paimon-cli compact T --dedicated --watch"


def test_snapshots_and_retention(tmp_path: Path) -> None:
    context = reopened(
        made(tmp_path, 4),
        **{"snapshot.num-retained.max": "3", "snapshot.num-retained.min": "10", "snapshot.time-retained": "1 s"},
    )
    found = [item for item in examine_table(context, "T") if isinstance(item, Finding)]
    assert sorted(item.code for item in found) == ["PD018", "PD018"], "expiry keeps ten snapshots in any case"


def test_more_snapshots_than_are_kept(tmp_path: Path, run: Run) -> None:
    context = reopened(made(tmp_path, 4), **{"snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"})
    command = findings(context)["PD015"].command
    assert command == "paimon-cli expire T --retain-max 3 --yes"
    run(*command.replace(" T ", f" {context.url} ").split()[1:], "--retain-min", "1", "--yes")
    assert len(reopened(context).snapshots.ids()) == 3


def test_a_busy_table_that_a_job_expires_has_no_finding(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has more than a limit between two expiries, and many within the time for which it keeps them."""
    context = reopened(made(tmp_path, 4), **{"snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"})
    run("expire", context.url, "--yes")
    for number in range(3):
        tables.write(context, [{"k": number, "v": "y"}], compact="none")
    assert len(context.snapshots.ids()) == 6 and "PD015" not in findings(context)
    tomorrow = BelatedClock(context.clock, -90_000_000)
    found = findings_of(ExaminedTable(replace(context, clock=tomorrow), "T"))
    assert "PD015" in {finding.code for finding in found}, "the job does not run any more"
    monkeypatch.setattr(history_rules, "MANY_SNAPSHOTS", 5)
    kept = reopened(context, **{"snapshot.num-retained.max": "1000", "snapshot.time-retained": "1 h"})
    assert "PD015" not in findings(kept)
    past = reopened(context, **{"snapshot.time-retained": "1 ms"})
    command = findings(past)["PD015"].command
    assert command == "paimon-cli expire T --yes"
    run(*command.replace(" T ", f" {context.url} ").split()[1:])
    assert len(context.snapshots.ids()) == 1


def test_consumers_and_hints(tmp_path: Path) -> None:
    context = made(tmp_path)
    path = Path(context.layout.consumer("gone"))
    path.parent.mkdir()
    path.write_text('{"nextSnapshot": 1}')
    os.utime(path, (0, 0))
    Path(context.layout.latest_hint).write_text("7")
    found = findings(context)
    assert found["PD016"].command == "paimon-cli consumers rm T gone --yes"
    assert found["PD021"].command == "paimon-cli repair T --only hints --apply --yes"


def test_a_hint_that_shows_a_lost_commit_is_not_corrected_alone(tmp_path: Path) -> None:
    """Without the hint `repair` would no longer know that the snapshot had been published."""
    context = made(tmp_path, 3)
    Path(context.layout.snapshot(3)).unlink()
    found = findings(reopened(context))["PD021"]
    assert found.command == "paimon-cli repair T" and "a commit was lost" in found.message


def test_a_hint_alone_is_not_corrected_where_it_cannot_be_told_whether_a_commit_was_lost(tmp_path: Path) -> None:
    """Lists that are left may be about changelog files or data files."""
    context = made(tmp_path, 3, **{"changelog-producer": "input", "changelog-file.prefix": "data-"})
    Path(context.layout.snapshot(3)).unlink()
    assert findings(TableContext.open(context.url))["PD021"].command == "paimon-cli repair T"


def test_a_snapshot_number_that_does_not_follow(run: Run, tmp_path: Path) -> None:
    context = made(tmp_path, 3)
    folder = Path(context.layout.snapshot_directory)
    shutil.copy(folder / "snapshot-3", folder / "snapshot-300000000")
    found = findings(context)["PD022"]
    assert found.command == "paimon-cli verify T"
    assert "snapshot-4 and 299,999,995 after it are missing between snapshots 3 and 300000000" in found.message
    assert "PD022" in [item["code"] for item in run("describe", context.url, "-o", "json").json["item"]["health"]]


def test_a_table_without_its_snapshots_has_lost_them(tmp_path: Path) -> None:
    context = made(tmp_path, 2)
    shutil.rmtree(context.layout.snapshot_directory)
    found = findings(TableContext.open(context.url))["PD022"]
    assert found.subject == "snapshots" and found.command == "paimon-cli verify T"


def test_a_value_under_an_older_key_is_looked_at(tmp_path: Path) -> None:
    found = findings(reopened(made(tmp_path), **{"changelog-producer.lookup-wait": "perhaps"}))["PD018"]
    assert "changelog-producer.lookup-wait" in found.message


def test_files_of_jobs_that_died(run: Run, tmp_path: Path) -> None:
    context = made(tmp_path)
    for name, days in (("bucket-0/data-lost-0.parquet", 2), ("manifest/manifest-lost", 2), ("bucket-0/data-young-0.parquet", 0)):
        path = Path(context.url) / name
        path.write_bytes(b"12345")
        if days:
            os.utime(path, (0, 0))
    found = findings(context)
    assert found.keys() == {"PD017"} and "2 files older than a day (10 B)" in found["PD017"].message
    run(*found["PD017"].command.replace(" T", f" {context.url}").split()[1:], "-y")
    assert findings(context) == {}


def test_buckets_that_are_too_big(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = made(tmp_path, 5)
    before = tables.rows(context)
    monkeypatch.setattr(bucket_rules, "HUGE_BUCKET", 10)
    command = findings(context)["PD020"].command.replace(" T ", f" {context.url} ")
    run(*command.split()[1:], "-y", "--engine", "local")
    rewritten = TableContext.open(context.url)
    assert rewritten.options.bucket == 2 * context.options.bucket and tables.rows(rewritten) == before
    run("verify", context.url, "--level", "full")


def test_a_bucket_count_that_writers_refuse(run: Run, tmp_path: Path) -> None:
    """As after `alter TABLE set bucket=3`, a rescale of single partitions, or a rollback past a rescale."""
    context = reopened(made(tmp_path, 2), bucket="3")
    rows = tables.rows(context)
    with pytest.raises(UsageError, match="was written with 1 bucket"):
        tables.write(context, [{"k": 9, "v": "x"}], compact="none")
    found = findings(context)["PD024"]
    assert (found.severity, found.message) == (
        "error",
        "another bucket count than bucket=3 in 1 of 1 partition; writers refuse it",
    )
    assert "PD024" in run("health", context.url, code=4).out
    run(*found.command.replace(" T ", f" {context.url} ").split()[1:], "-y", "--engine", "local")
    mended = TableContext.open(context.url)
    assert "PD024" not in findings(mended) and tables.rows(mended) == rows
    tables.write(mended, [{"k": 9, "v": "x"}], compact="none")
    for bucket in ("-1", "-2"):
        assert "PD024" not in findings(reopened(made(tmp_path / bucket), bucket=bucket))


@pytest.mark.parametrize(
    "options",
    [
        {"num-sorted-run.stop-trigger": "2"},
        {"snapshot.num-retianed.max": "2"},
        {"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"},
        {"write-only": "true", "changelog-producer": "lookup"},
        {"file.format": "avro", "file.compression": "none"},
        {"file.format.per.level": "0:avro", "file.compression.per.level": "0:none,5:null"},
    ],
)
def test_options_that_conflict(tmp_path: Path, options: dict[str, str]) -> None:
    assert findings(reopened(made(tmp_path), **options))["PD018"].command


def test_damaged_metadata_is_a_finding(run: Run, tmp_path: Path) -> None:
    context = made(tmp_path)
    for path in Path(context.layout.manifest_directory).iterdir():
        path.write_bytes(b"")
    assert findings(context)["PD030"].command == "paimon-cli verify T --all-snapshots"
    run("doctor", context.url, code=4)
    run("doctor", tmp_path / "nothing", code=3)
    hint = run("describe", context.url, code=10).err.splitlines()[-1]
    assert hint.startswith("hint: restore the file, or see what is damaged and what can be done: ")
    assert hint.endswith(f": paimon-cli verify {context.url} --all-snapshots")


def test_one_damaged_file_is_one_finding(tmp_path: Path) -> None:
    context = made(tmp_path)
    Path(context.layout.snapshot(1)).write_text("{")
    metadata = [finding for finding in findings_of(ExaminedTable(reopened(context), "T")) if finding.code == "PD030"]
    assert len(metadata) == 1 and re.search(r"; [0-9]+ checks could not run: .*, .*, .* and [0-9]+ more$", metadata[0].message)


class ReadOnly(LocalStorage):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise StorageUnavailable(f"the file system refused {path}", "Read-only file system")


def test_a_read_only_storage_is_a_finding(tmp_path: Path) -> None:
    context = TableContext.open(made(tmp_path).url, storage=ReadOnly())
    found = [item for item in examine_table(context, "t") if isinstance(item, Finding)]
    assert found[0].code == "PD007" and "Read-only file system" in found[0].message
    assert {item.code for item in found} == {"PD007"}, "the rules look all the same"


def test_a_java_home_without_java_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    found = [item for item in examine_machine() if isinstance(item, Finding) and item.subject == "java"]
    assert [(item.code, item.command) for item in found][-1] == ("PD004", "unset JAVA_HOME")
    assert "/nowhere" in found[-1].message


def test_memory_and_disk_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"memory", "disk", "pandas"} <= {item.subject for item in examine_machine() if isinstance(item, Fact)}
    monkeypatch.setattr(doctor_job, "LITTLE_DISK", 1 << 60)
    monkeypatch.setattr(doctor_job, "LITTLE_MEMORY", 1 << 60)
    assert {"PD005", "PD006"} <= {item.code for item in examine_machine() if isinstance(item, Finding)}


def test_the_time_of_a_sort_is_measured_as_commands_have_it() -> None:
    found = examine_sort({name: value for name, value in os.environ.items() if name != VARIABLE})
    assert found.subject == "sort" and re.fullmatch(r"\d+ ns a row.*", found.message)
    assert {item.subject for item in examine_machine()} >= {"sort"}


@pytest.mark.parametrize(
    ("given", "name", "why", "command"),
    [
        ("AVX9", "X86_V4", f"{VARIABLE} is 'AVX9', so numpy uses its AVX-512 sort", f"export {VARIABLE}=X86_V4"),
        ("X86_V3 X86_V4", "X86_V4", f"{VARIABLE} is 'X86_V3 X86_V4', so numpy uses neither", f"export {VARIABLE}=X86_V4"),
        ("X86_V4,X86_V3", "X86_V4", "nor the one with AVX2, which is the fast one", f"export {VARIABLE}=X86_V4"),
        ("X86_V3", "X86_V4", "so numpy uses its AVX-512 sort", f"export {VARIABLE}=X86_V4"),
        ("X86_V4 AVX512_ICL", "X86_V4", "something else slows", ""),
        ("X86_V4", "X86_V4", "something else slows", ""),
        (None, "X86_V4", "something else slows", ""),
        ("", None, "this release of numpy has no switch", ""),
    ],
)
def test_a_slow_sort_says_why(
    monkeypatch: pytest.MonkeyPatch, given: str | None, name: str | None, why: str, command: str
) -> None:
    monkeypatch.setattr(doctor_job, "_MEASURE", "print(36.2)")
    monkeypatch.setattr(processor, "numpy_version", lambda: (2, 4))
    monkeypatch.setattr(doctor_job, "fast_sort", lambda environment: {} if name is None else {VARIABLE: name})
    environment = {**os.environ, **({} if given is None else {VARIABLE: given})}
    for slow_processor in (False, True):
        monkeypatch.setattr(doctor_job, "sorts_slowly_with_avx512", lambda value=slow_processor: value)
        found = examine_sort({key: value for key, value in environment.items() if given is not None or key != VARIABLE})
        assert isinstance(found, Finding) is slow_processor and found.message.startswith("36 ns a row")
    assert isinstance(found, Finding) and (found.code, found.command) == ("PD033", command)
    assert why in found.message and "where 7 are possible" in found.message


def test_damage_of_an_old_snapshot_is_found_by_the_command_of_its_finding(run: Run, tmp_path: Path) -> None:
    context = made(tmp_path, 3)
    Path(context.layout.manifest(context.snapshots.get(1).delta_manifest_list)).unlink()
    found = examine_table(TableContext.open(context.url), context.url)
    program, *words = shlex.split(next(item.command for item in found if isinstance(item, Finding)))
    assert (program, words[0]) == ("paimon-cli", "verify")
    run(*words, code=4)


def test_what_is_not_supported_is_not_called_damaged(run: Run, tmp_path: Path) -> None:
    """`verify` would end with 8 as well, so that it is not proposed."""
    context = made(tmp_path)
    path = Path(context.layout.schema(0))
    content = json.loads(path.read_text())
    content["options"]["manifest.format"] = "orc"
    path.write_text(json.dumps(content))
    run("read", context.url, code=8)
    (row,) = json.loads(run("health", context.url, "-o", "json", code=4).out)["items"]
    (finding,) = row["findings"]
    assert "not supported" in finding["message"] and finding["command"] == ""


def test_a_lost_snapshot_of_a_branch_is_found_from_the_table(run: Run, tmp_path: Path) -> None:
    context = made(tmp_path)
    table = Table.open(context.url)
    table.branches.create("side")
    for number in range(2):
        tables.write(context.at_branch("side"), [{"k": number, "v": "x"}])
    newest = context.seen_from("side").snapshots.latest_id()
    assert newest is not None and findings(TableContext.open(context.url)) == {}
    Path(context.layout.of_branch("side").snapshot(newest)).unlink()
    found = findings(TableContext.open(context.url))["PD021"]
    assert found.subject == "branch side" and found.message == f"LATEST says {newest}, but the newest snapshot is {newest - 1}"
    _, *words = shlex.split(found.command)
    (row,) = json.loads(run(*words, "-o", "json", code=4).out)["items"]
    assert [each["code"] for each in row["findings"]] == ["PD021"]
    assert "PV053" in run("verify", context.url, code=4).out


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "cut"])
def test_the_schema_of_an_earlier_snapshot_is_missed(tmp_path: Path, lost: bool) -> None:
    context = made(tmp_path)
    Table.open(context.url).alter.add_column("n INT")
    Table.open(context.url).compact()
    tables.write(TableContext.open(context.url), [{"k": 7, "v": "y", "n": 1}])
    Table.open(context.url).compact()
    assert findings(TableContext.open(context.url)) == {}
    path = Path(context.layout.schema(0))
    path.unlink() if lost else path.write_text("{")
    assert findings(TableContext.open(context.url))["PD030"].command == "paimon-cli verify T --all-snapshots"


def test_the_store_is_listed_and_its_clock_compared(tmp_path: Path) -> None:
    context = made(tmp_path)
    passed = {(item.subject, item.message) for item in examine_table(context, "T") if isinstance(item, Fact)}
    assert ("storage", "a new file is listed at once, and gone when it is deleted") in passed
    assert ("clock", "within 1 s of the store's") in passed
    wrong = replace(context, clock=BelatedClock(context.clock, 3_600_000))
    found = {item.code: item for item in examine_table(wrong, "T") if isinstance(item, Finding)}
    assert "3,600 s behind the store's" in found["PD009"].message


class Forgetful(LocalStorage):
    """A store whose listings lag behind."""

    def list_directory(self, path: str) -> list[FileStatus]:
        return [] if PROBE_PREFIX in path else super().list_directory(path)


def test_a_store_that_does_not_list_what_was_just_written(tmp_path: Path) -> None:
    context = TableContext.open(made(tmp_path).url, storage=Forgetful())
    found = {item.code: item for item in examine_table(context, "T") if isinstance(item, Finding)}
    assert "not listed at once" in found["PD008"].message


def test_the_table_itself_is_the_matter_of_health(run: Run, tmp_path: Path) -> None:
    """Programs still get its findings, and the exit code counts them."""
    context = made(tmp_path, 12)
    shown = run("doctor", context.url, code=4).out
    assert f"the table itself: 2 findings; see: paimon-cli health {context.url}" in shown and "PD011" not in shown
    assert {item["code"] for item in run("doctor", context.url, "-o", "json", code=4).json["items"]} == {"PD011", "PD012"}


def test_a_finding_about_the_machine_alone_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that asks before it begins reads only the exit code."""
    monkeypatch.setattr(health, "examine_installation", lambda: [Finding("PD001", ERROR, "disk", "it is full")])
    assert "it is full" in run("doctor", code=4).out
    assert len(run("doctor", "-o", "json", code=4).json["items"]) == 1


def test_small_files_that_no_compaction_changes_are_no_finding(tmp_path: Path) -> None:
    """Its command would do nothing, and the finding would stay for ever."""
    table = Table.create(tmp_path / "t", columns=["k BIGINT NOT NULL", "v STRING"], primary_key=["k"], options={"bucket": "1"})
    small = Table.open(table.url, {"target-file-size": "1 kb"})
    small.write([{"k": number, "v": f"{number * 7919 % 1000003}" * 8} for number in range(1000)], compact="none")
    assert small.compact("full").snapshots
    table = Table.open(table.url)
    assert len(table.files()) > 10 and not table.plan_compaction("full").has_work
    assert "PD011" not in {finding.code for finding in table.health().findings}
