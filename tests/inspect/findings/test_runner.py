"""The room of rules: codes, what a failing rule becomes, and what a new rule costs."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.errors import (
    BadOption,
    BeingDropped,
    DamagedFile,
    NotFound,
    NotSupported,
    PaimonError,
    TookTooLong,
    UnsupportedOption,
    UsageError,
)
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings import bucket_rules, history_rules, runner
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import (
    ADVICE,
    ERROR,
    LISTING,
    METADATA,
    OK,
    REPLAY,
    TOPICS,
    TOPOLOGY,
    WARNING,
    Code,
    Finding,
    Rule,
    Topic,
    rule,
)
from paimon_cli.inspect.findings.option_rules import unreadable_option
from paimon_cli.inspect.findings.runner import RULES, findings_of
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.inspect.findings.odd_tables import (
    BUILDERS,
    WRITE_ONLY,
    a_damaged_older_snapshot,
    keyed,
    seven_runs_over_five,
    tiny,
    with_options,
)
from tests.tables import compact, write

ALL = (METADATA, LISTING, REPLAY, TOPOLOGY)
OF_THE_MACHINE = {f"PD{number:03}" for number in (1, 2, 3, 4, 5, 6, 7, 10, 33)}
"""Codes of `jobs/doctor_job`."""
OF_SEVERAL_RULES = {"PD018", "PD021"}
NEXT_CODE = "PD036"
"""What the next rule takes: adding one means to write its function, and to raise this number."""


def test_codes_are_never_used_twice() -> None:
    codes = Counter(code for rule in RULES for code in rule.codes)
    assert [code for code, count in codes.items() if count > 1 and code not in OF_SEVERAL_RULES] == []
    taken = {*codes, *OF_THE_MACHINE, Code.DROPPED, Code.UNREADABLE, Code.NO_ANSWER, Code.FAILED, Code.POLICY}
    newest = max(code for code in taken if code.startswith("PD"))
    assert f"PD{int(newest[2:]) + 1:03}" == NEXT_CODE
    assert all(re.fullmatch(r"P[DA]\d{3}", code) for code in taken)
    page = (Path(__file__).parents[3] / "docs" / "findings.md").read_text()
    assert set(re.findall(r"^\| (P[DA]\d{3}) ", page, re.MULTILINE)) == taken - OF_THE_MACHINE


@pytest.mark.in_part(3)
@pytest.mark.parametrize("name", BUILDERS)
def test_every_finding_is_whole(name: str, tmp_path: Path) -> None:
    declared = {code: rule for rule in RULES for code in rule.codes}
    for found in findings_of(ExaminedTable(BUILDERS[name](tmp_path / name), "T"), OK, costs=ALL):
        assert found.code != Code.FAILED, found.message
        assert found.topic in TOPICS and found.subject and found.message
        assert bool(found.code) == (found.severity != OK) and (found.code[:2] == "PA") == (found.severity == ADVICE)
        if found.code in (Code.DROPPED, Code.UNREADABLE):
            continue
        assert not found.code or found.topic == declared[found.code].topic
        assert found.command.startswith("paimon-cli ") == bool(found.code)


def test_a_rule_is_one_function_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @rule(Topic.HISTORY, "PD999")
    def a_new_rule(table: ExaminedTable) -> Iterator[Finding]:
        yield Finding("PD999", WARNING, "new", f"{len(table.ids)} snapshots", f"paimon-cli describe {table.argument}")

    monkeypatch.setattr(runner, "RULES", (*RULES, a_new_rule))
    (found,) = findings_of(ExaminedTable(tiny(tmp_path / "t"), "T"))
    assert (found.code, found.message, found.topic) == ("PD999", "1 snapshots", Topic.HISTORY)


def test_a_check_with_a_bug_is_a_finding_and_the_others_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    @rule(Topic.HISTORY, "PD999")
    def nothing_is_odd(table: ExaminedTable) -> Iterator[Finding]:
        yield Finding("PD999", WARNING, "figure", "lost with the rest of this check", "paimon-cli describe T")
        raise KeyError(table.latest)

    url = seven_runs_over_five(tmp_path / "t").url
    monkeypatch.setattr(runner, "RULES", (nothing_is_odd, *RULES))
    for command in ("health", "doctor", "advise"):
        shown = run(command, url, "-o", "json", code=None)
        assert "PD032" in shown.out and "PD027" in shown.out and "PD999" not in shown.out
    shown = run("health", url, "--trace", code=None)
    assert "check 'nothing is odd': this check failed: KeyError" in shown.out
    assert "check-failed" in shown.err and "in nothing_is_odd" in shown.err


def test_what_is_damaged_is_named_once_with_the_rules_that_it_stops(tmp_path: Path) -> None:
    table = ExaminedTable(a_damaged_older_snapshot(tmp_path / "t"), "T")
    found = {finding.code: finding for finding in findings_of(table)}
    assert found.keys() == {"PD027", "PD030"}, "what does not depend on the damage is found"
    assert found["PD030"].message.endswith("; 1 check could not run: no file is left over")
    assert found["PD030"].command == "paimon-cli verify T --all-snapshots"


def test_a_file_that_is_damaged_in_two_ways_is_named_once(tmp_path: Path) -> None:
    """A list that was cut off has another size than it should, and is no Avro file either: one cause, one finding."""
    context = keyed(tmp_path / "t", 7, WRITE_ONLY)
    path = Path(context.layout.manifest(context.snapshots.get(3).delta_manifest_list))
    path.write_bytes(path.read_bytes()[:40])
    found = findings_of(ExaminedTable(TableContext.open(context.url), "T"), costs=ALL)
    assert [finding.code for finding in found].count("PD030") == 1


def test_an_option_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    """Other rules need it, too; `verify` would find nothing."""
    found = findings_of(ExaminedTable(BUILDERS["a_trigger_that_is_no_number"](tmp_path / "t"), "T"), costs=ALL)
    assert [finding.code for finding in found] == ["PD018"]


def test_the_evidence_is_given(tmp_path: Path) -> None:
    (found,) = findings_of(ExaminedTable(seven_runs_over_five(tmp_path / "t"), "T"))
    assert found.figures == {"due": 1, "buckets": 1, "most_sorted_runs": 7, "trigger": 5}
    assert found.threshold == "5 sorted runs (num-sorted-run.compaction-trigger)"
    assert found.message == "due in 1 of 1 bucket, by size-amplification; up to 7 sorted runs, trigger 5"


def test_only_writers_that_compact_wait_for_a_compaction(tmp_path: Path) -> None:
    def found(name: str) -> dict[str, str]:
        return {f.code: f.command for f in findings_of(ExaminedTable(BUILDERS[name](tmp_path / name), "T"))}

    assert found("at_the_stop_trigger") == {"PD012": "paimon-cli compact T --strategy minor"}
    assert found("write_only_beyond_the_stop_trigger") == {"PD027": "paimon-cli compact T --strategy minor"}


def test_a_table_that_nothing_compacts_is_found_however_few_snapshots_it_keeps(tmp_path: Path) -> None:
    context = BUILDERS["nothing_compacts_and_few_snapshots_are_kept"](tmp_path / "t")
    found = {finding.code: finding for finding in findings_of(ExaminedTable(context, "T"))}
    assert found["PD013"].message.startswith("write-only=true, and none of the last 20 commits was a compaction")
    compact(context, strategy="full")
    for number in range(20):
        write(context, [{"id": number, "v": "x"}])
    Table.open(context.url).expire(retain_max=5, retain_min=5)
    later = ExaminedTable(TableContext.open(context.url), "T")
    assert "PD013" not in {finding.code for finding in findings_of(later)}, "its compaction has expired, but not its files"


def test_a_huge_bucket_is_split_by_the_command_of_its_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:  # noqa: F811
    monkeypatch.setattr(bucket_rules, "HUGE_BUCKET", 100)
    context = keyed(tmp_path / "t", 1)
    (found,) = findings_of(ExaminedTable(context, context.layout.argument))
    assert found.code == "PD020"
    run(*shlex.split(found.command)[1:], "--engine", "local")
    assert TableContext.open(context.url).options.bucket == 2


def test_rows_of_several_bucket_counts_are_moved_by_the_command_of_their_finding(tmp_path: Path, run: Run) -> None:  # noqa: F811
    """It repairs nothing else: a file that is lost stays listed, until someone decides to leave it out."""
    context = BUILDERS["stale_buckets"](tmp_path / "t")
    (found,) = [f for f in findings_of(ExaminedTable(context, context.layout.argument)) if f.code == "PD026"]
    run(*shlex.split(found.command)[1:])
    assert "--only stale-buckets" in found.command
    assert "PD026" not in {f.code for f in findings_of(ExaminedTable(TableContext.open(context.url), "T"))}


@pytest.mark.parametrize("least", ["2", "40"])
def test_many_manifests_are_merged_by_the_command_of_their_finding(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
    least: str,
) -> None:
    monkeypatch.setattr(history_rules, "MANY_MANIFESTS", 5)
    monkeypatch.setattr(history_rules, "MERGED_BY_DEFAULT", 3)
    context = keyed(tmp_path / "t", 8, {"manifest.merge-min-count": "99", **WRITE_ONLY})
    if least == "40":
        monkeypatch.setattr(history_rules, "max", lambda *limits: 5, raising=False)
    Table.open(context.url).alter.set({"manifest.merge-min-count": least})

    def advised() -> list[str]:
        table = ExaminedTable(TableContext.open(context.url), context.layout.argument)
        return [found.command for found in findings_of(table, ADVICE, ("options",)) if found.code == "PA004"]

    (command,) = advised()
    run(*shlex.split(command)[1:])
    if least == "40":
        write(TableContext.open(context.url), [{"id": 1, "v": "x"}])
    assert advised() == []


def test_a_bad_bucket_count_is_told_until_someone_chooses_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_rules, "MANY_BUCKETS", 2)
    context = keyed(tmp_path / "t", 1, WRITE_ONLY, bucket=4)

    def advised() -> list[str]:
        table = ExaminedTable(TableContext.open(context.url), "T")
        return [found.command for found in findings_of(table, ADVICE, ("buckets",))]

    assert advised() == ["paimon-cli rescale T --buckets 1 --yes"]
    Table.open(context.url).rescale(3)
    assert advised() == [], "whoever rescales knows better"
    rescaled = TableContext.open(context.url)
    for number in range(20):
        write(rescaled, [{"id": number, "v": "x"}])
    assert advised() == ["paimon-cli rescale T --buckets 1 --yes"]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("line", ["describe", "buckets ls", "lsm show", "read", "verify", "compact -n"])
def test_a_table_without_buckets_is_an_option_that_cannot_be_read(run: Run, tmp_path: Path, line: str) -> None:  # noqa: F811
    """No engine writes `bucket=0`, but an editor does; the right count may be restored."""
    url = tiny(tmp_path / "t").url
    schema = Path(url, "schema", "schema-0")
    before = json.loads(schema.read_text())
    schema.write_text(json.dumps({**before, "options": {**before["options"], "bucket": "0"}}))
    for command in ("health", "doctor", "advise"):
        shown = run(command, url, "-o", "json", code=None)
        assert "PD018" in shown.out and Code.FAILED not in shown.out and Code.UNREADABLE not in shown.out
    assert "option 'bucket' cannot be '0'" in run(*line.split(), url, code=2).err
    run("alter", url, "set", f"bucket={before['options'].get('bucket', '-1')}")
    run(*line.split(), url)


BAD_VALUES = {
    "manifest.format": "xml",
    "file.format": "xml",
    "changelog-file.format": "xml",
    "file.format.per.level": "1:xml",
    "file.compression": "foo",
    "file.compression.per.level": "0:foo",
    "changelog-file.compression": "foo",
    "spill-compression.zstd-level": "x",
    "tag.period-formatter": "foo",
    "num-levels": "x",
}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("key", BAD_VALUES)
def test_every_bad_value_is_found_and_can_be_taken_back(run: Run, tmp_path: Path, key: str) -> None:  # noqa: F811
    url = tiny(tmp_path / "t").url
    schema = Path(url, "schema", "schema-0")
    before = json.loads(schema.read_text())
    schema.write_text(json.dumps({**before, "options": {**before["options"], key: BAD_VALUES[key]}}))
    for command in ("health", "doctor", "advise"):
        shown = run(command, url, "-o", "json", code=None).out
        assert "PD018" in shown and f"option '{key}' cannot be '{BAD_VALUES[key]}'" in shown
        assert Code.FAILED not in shown and Code.UNREADABLE not in shown
    run("alter", url, "unset", key)
    assert "PD018" not in run("health", url, "-o", "json", code=None).out


def test_one_of_something_is_singular(tmp_path: Path) -> None:
    said = "; ".join(found.message for found in findings_of(ExaminedTable(keyed(tmp_path / "t", 1), "T"), OK, costs=ALL))
    assert "1 of 1 file is smaller" in said and "to replay other triggers: 1 snapshot;" in said and "1 manifest of" in said
    assert not re.search(r"\b1 (snapshots|manifests|files|buckets|options|commits)\b", said)


def test_a_value_that_only_the_user_knows_is_no_line_to_paste(run: Run, tmp_path: Path) -> None:  # noqa: F811
    url = tiny(tmp_path / "t").url
    schema = Path(url, "schema", "schema-0")
    before = json.loads(schema.read_text())
    schema.write_text(json.dumps({**before, "options": {**before["options"], "merge-engine": "foo"}}))
    shown = run("read", url, code=2).err
    assert (
        "set merge-engine=...` with one of: deduplicate, " in shown and "=VALUE" not in shown and "paimon-cli alter" not in shown
    )


def test_a_short_retention_of_a_call_is_no_fault_of_the_table(tmp_path: Path) -> None:
    """So a service counts what `health` shows, whatever the user's policy says about retention."""
    context = keyed(tmp_path / "t", 1)
    short = {"snapshot.time-retained": "1 s"}
    assert [each.code for each in findings_of(ExaminedTable(context.with_options(short), "T"))] == []
    own = with_options(context, **short)
    assert [each.code for each in findings_of(ExaminedTable(own, "T"))] == ["PD018"]


def stopping(code: str, error: Exception, topic: str = Topic.HISTORY, cost: str = METADATA) -> Rule[ExaminedTable]:
    """A rule that an error stops."""

    def check(table: ExaminedTable) -> Iterator[Finding]:
        if table.argument:
            raise error
        yield Finding("", OK, "never", "said")

    check.__name__ = f"rule_{code}"
    return rule(topic, code, f"{code}x", cost=cost)(check)


def found_by(table: ExaminedTable, monkeypatch: pytest.MonkeyPatch, *rules: Rule[ExaminedTable], **asked: Any) -> list[Finding]:
    monkeypatch.setattr(runner, "RULES", rules)
    return findings_of(table, **asked)


def test_each_error_is_one_finding_that_names_what_it_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = DamagedFile("data-1 is cut off", path="data-1")
    table = ExaminedTable(tiny(tmp_path / "t"), "T", failures=[met, NotFound("that is no damage")])
    lost, same = DamagedFile("manifest-1 is gone", path="manifest-1"), DamagedFile("manifest-1 is gone")
    option = BadOption("option 'x' is odd", key="x", value="?", of_table="T")
    rules = [stopping(f"PX{number}", lost) for number in range(1, 5)]
    rules += [stopping("PX5", same), stopping("PX6", option), stopping("PX7", option), stopping("PX8", KeyError("k"))]
    rules += [stopping("PX9", NotSupported("column c is odd", hint="drop it"), Topic.COMPACTION)]
    found = found_by(table, monkeypatch, *rules)
    assert [(each.code, each.subject) for each in found] == [
        *((Code.FAILED, "check 'rule PX8'"), ("PD018", "options")),
        *((Code.UNREADABLE, "files"), (Code.UNREADABLE, "metadata"), (Code.UNREADABLE, "metadata")),
    ]
    bug, bad, cut_off, gone, odd = found
    assert [each.prevents for each in (bug, bad, cut_off, odd)] == [
        ("PX8", "PX8x"),
        ("PX6", "PX6x", "PX7", "PX7x"),
        (),
        ("PX9", "PX9x"),
    ]
    assert gone.prevents == tuple(f"PX{number}{end}" for number in range(1, 6) for end in ("", "x"))
    assert gone.message == "manifest-1 is gone; 5 checks could not run: rule PX1, rule PX2, rule PX3 and 2 more"
    assert odd.message == "not supported: column c is odd; drop it; 1 check could not run: rule PX9" and not odd.command
    assert (cut_off.command, gone.command) == ("paimon-cli verify T --level files", "paimon-cli verify T --all-snapshots")
    assert (bug.command, bug.topic) == ("paimon-cli health T --trace", Topic.HISTORY)
    only = found_by(ExaminedTable(table.context, "T"), monkeypatch, *rules, topics=[Topic.COMPACTION])
    assert [each.prevents for each in only] == [("PX9", "PX9x")]
    assert found_by(ExaminedTable(table.context, "T"), monkeypatch, stopping("PX1", lost, cost=LISTING), costs=[METADATA]) == []
    assert runner.finding_about(table, option) == unreadable_option("T", option)
    assert runner.finding_about(table, lost).message == "manifest-1 is gone"


def test_a_rule_about_an_option_says_what_its_value_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    option = BadOption("option 'x' is odd", key="x", value="?", of_call=True)

    @rule(Topic.OPTIONS, "PD018")
    def values_are_right(table: ExaminedTable) -> Iterator[Finding]:
        yield Finding("PD018", ERROR, "options", "x takes a number", figures={"option": "x"})

    (found,) = found_by(ExaminedTable(tiny(tmp_path / "t"), "T"), monkeypatch, stopping("PX1", option), values_are_right)
    assert (found.message, found.prevents) == ("x takes a number", ("PX1", "PX1x"))


def test_a_drop_prevents_all_checks_and_names_its_own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ExaminedTable(tiny(tmp_path / "t"), "T")
    of_branch = BeingDropped("branch b goes", command="paimon-cli branches rm T b")
    of_table = BeingDropped("T goes")
    for drop, what, command in ((of_table, "table", "paimon-cli drop T"), (of_branch, "branch", "paimon-cli branches rm T b")):
        (found,) = found_by(table, monkeypatch, stopping("PX1", drop))
        assert (found.code, found.subject, found.command, found.prevents) == (Code.DROPPED, what, command, runner.ALL_CODES)
        assert runner.unopened("T", drop) == replace(found, topic=runner.unopened("T", drop).topic)


def test_why_a_table_was_not_opened(tmp_path: Path) -> None:
    late, lost = TookTooLong("no answer within 1 s"), DamagedFile("schema-0 is cut off")
    option = BadOption("option 'x' is odd", key="x", value="?", of_table="T")
    refused = UnsupportedOption("a format", option="file.format", value="zorks")
    unknown = UnsupportedOption("a format", "it is new", option="file.format", value="orc")
    told = [(each.code, each.command) for each in (runner.unopened("T", error) for error in (late, lost, option))]
    assert told == [
        (Code.NO_ANSWER, "paimon-cli health T --option table-timeout=10min"),
        (Code.UNREADABLE, "paimon-cli verify T --all-snapshots"),
        ("PD018", unreadable_option("T", option).command),
    ]
    bad, new = runner.unopened("T", refused), runner.unopened("T", unknown)
    assert (bad.code, bad.figures) == ("PD018", {"option": "file.format", "value": "zorks"})
    assert bad.command == "paimon-cli alter T unset file.format"
    assert (new.code, new.command) == (Code.UNREADABLE, "") and new.message.startswith(
        "it cannot be opened: not supported: a format"
    )
    assert all(runner.unopened("T", error).prevents == runner.ALL_CODES for error in (late, lost, option, refused, unknown))


@pytest.mark.parametrize(
    ("error", "is_of_call"),
    [
        (UsageError("no such option"), True),
        (BadOption("odd", key="x", value="?"), True),
        (BadOption("odd", key="x", value="?", of_table="T"), False),
        (BadOption("odd", key="x", value="?", of_call=True), False),
        (NotFound("no table"), True),
        (BeingDropped("it goes"), False),
        (DamagedFile("cut off"), False),
        (NotSupported("new"), False),
    ],
)
def test_what_the_call_is_to_blame_for(error: PaimonError, is_of_call: bool) -> None:
    assert runner.is_of_call(error) is is_of_call


def test_what_each_code_means_for_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [stopping("PX2", KeyError()), stopping("PA9", KeyError()), stopping("PX1", KeyError(), cost=LISTING)]
    rules += [replace(rules[0], check=rules[2].check)]
    monkeypatch.setattr(runner, "RULES", tuple(rules))
    of_all = runner._OF_ALL
    both = {"PX2": "rule PX2, rule PX1", "PX2x": "rule PX2, rule PX1"}
    advice, listed = {"PA9": "rule PA9", "PA9x": "rule PA9"}, {"PX1": "rule PX1", "PX1x": "rule PX1"}
    assert runner.meanings([METADATA]) == {**both, **of_all}
    assert runner.meanings([METADATA, LISTING], ADVICE) == {**advice, **both, **listed, **of_all}
