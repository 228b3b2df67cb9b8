"""An option is declared once: the command, the library's method and the job take it from the same field, with the same help."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, replace
from datetime import datetime
from typing import Any

import pandas as pd
import pytest
import typer

import paimon_cli.spark
from paimon_cli import Catalog, Table
from paimon_cli.api.definition import Alter
from paimon_cli.api.staging import Stage
from paimon_cli.api.versions import Branches, Consumers, Tags
from paimon_cli.cli.app import app
from paimon_cli.command_texts import in_python
from paimon_cli.errors import UsageError
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.verify_job import VerifyRequest
from paimon_cli.requests import compaction
from paimon_cli.requests.backup import BackupOptions
from paimon_cli.requests.compaction import (
    CompactOptions,
    CompactTables,
    PlanOfTables,
    ServiceOptions,
    TableChoice,
    Upkeep,
)
from paimon_cli.requests.comparison import CompareOptions, ShownRows
from paimon_cli.requests.definition import ColumnOptions, ColumnPlace, CreateOptions
from paimon_cli.requests.fields import Declared, Request, check_positive, declared
from paimon_cli.requests.integrity import HealthOfTables, HistoryCheckOptions, RepairOptions, VerifyOptions
from paimon_cli.requests.lab import CheckOptions, GranularityOptions
from paimon_cli.requests.maintenance import ExpireOptions, OrphanOptions, RemoveOrphans, RescaleOptions
from paimon_cli.requests.reading import ChangelogCall, ScanCall
from paimon_cli.requests.selections import bucket_list, partition_list, split_pairs, split_partitions
from paimon_cli.requests.upkeep import Allowance, MaintainRounds, MaintainTables
from paimon_cli.requests.versions import (
    BisectOptions,
    BranchOptions,
    ConsumerOptions,
    MarkOptions,
    RollbackOptions,
    TagOptions,
    TagPlace,
)
from paimon_cli.requests.writing import DeleteCall, Identity, StageCommitOptions, StageWatchOptions, UpdateCall, WriteCall
from paimon_cli.spark.reading import FrameCall

OF_COMMANDS: dict[str, tuple[tuple[type[Request], ...], set[str]]] = {
    "read": (
        (ScanCall,),
        {"count", "explain", "analyze", "output_file", "file_format", "file_size", "force", "output_path"},
    ),
    "changelog read": ((ChangelogCall,), {"follow"}),
    "compare": ((CompareOptions,), {"files", "changelog"}),
    "verify": ((VerifyOptions,), {"fail_on", "report", "foreign_read_safe", "list_codes"}),
    "repair": ((RepairOptions,), {"apply", "dry_run"}),
    "health": ((HealthOfTables,), {"dry_run", "report"}),
    "compact": ((CompactTables, ServiceOptions), {"watch", "dry_run", "metrics_listen", "metrics_file", "log_format", "hook"}),
    "maintain": ((MaintainTables, MaintainRounds), {"watch", "dry_run", "metrics_listen", "metrics_file", "log_format", "hook"}),
    "write": ((WriteCall,), {"sources", "source_format", "from_table", "snapshot", "tag", "as_of"}),
    "update": ((UpdateCall,), set()),
    "delete": ((DeleteCall,), set()),
    "truncate": ((Identity,), {"dry_run"}),
    "drop-partition": ((Identity,), {"partitions", "dry_run"}),
    "expire": ((ExpireOptions,), {"dry_run"}),
    "orphans ls": ((OrphanOptions,), {"explain"}),
    "orphans rm": ((RemoveOrphans,), {"explain", "apply", "dry_run"}),
    "rescale": ((RescaleOptions,), {"dry_run"}),
    "create": ((CreateOptions,), set()),
    "alter add-column": ((ColumnPlace,), {"column"}),
    "alter alter-column": ((ColumnOptions,), {"column", "new_type", "type_option"}),
    "tags create": ((TagOptions,), {"tag"}),
    "tags replace": ((TagPlace,), {"tag"}),
    "branches create": ((BranchOptions,), {"name"}),
    "consumers reset": ((ConsumerOptions,), {"consumer"}),
    "rollback": ((RollbackOptions,), {"dry_run"}),
    "bisect": ((BisectOptions,), set()),
    "history check": ((HistoryCheckOptions,), {"report"}),
    "partitions mark-done": ((MarkOptions,), set()),
    "lab check": ((CheckOptions,), {"replay", "html", "force"}),
    "lab granularity": ((GranularityOptions,), set()),
    "stage commit": ((StageCommitOptions, StageWatchOptions), {"files", "watch"}),
}
"""The requests of each command, and the options that only the command has."""
OF_METHODS: dict[str, Any] = {one.__name__: one for one in (Table, Catalog, Stage, Alter, Tags, Branches, Consumers)}
SHARED = {"allow_unsafe_commit", "yes", "table"}


def command(words: str) -> Any:
    found: Any = typer.main.get_command(app)
    for word in words.split():
        found = found.get_command(typer.Context(found), word)
    return found


def own_options(words: str) -> dict[str, Any]:
    """The parameters of a command without those of every command, which have panels of their own."""
    shared = {"Common", "Engine", "CSV and JSON input"}
    parameters = {one.name: one for one in command(words).params if getattr(one, "rich_help_panel", None) not in shared}
    return {name: one for name, one in parameters.items() if name not in {"help", *SHARED}}


def options(request: Any) -> dict[str, Declared]:
    return {one.name: one for one in declared(request) if one.option is not None}


def methods() -> list[Any]:
    """Every method of the library that takes a request."""
    found = []
    for name, described in OF_METHODS.items():
        for method, member in inspect.getmembers(described, callable):
            if hasattr(member, "takes"):
                found.append(pytest.param(member, id=f"{name}.{method}"))
    return [*found, *(pytest.param(getattr(paimon_cli.spark, name), id=f"spark.{name}") for name in ("read", "explain", "write"))]


@pytest.mark.parametrize("words", OF_COMMANDS)
def test_a_command_has_the_options_of_its_requests(words: str) -> None:
    requests, own = OF_COMMANDS[words]
    expected = {name: one for request in requests for name, one in options(request).items()}
    given = own_options(words)
    assert given.keys() - own == expected.keys()
    for name, one in expected.items():
        assert one.option is not None
        assert given[name].help.startswith(one.option.help)
        if not one.option.is_argument:
            flag = (one.option.flags or (f"--{name.replace('_', '-')}",))[-1]
            assert flag.split("/")[0] in given[name].opts


@pytest.mark.parametrize("method", methods())
def test_a_method_has_the_keywords_of_its_request(method: Callable[..., Any]) -> None:
    request: Any = method.takes  # type: ignore[attr-defined]
    parameters = inspect.signature(method).parameters
    leading = 2 if inspect.unwrap(method).__module__.startswith("paimon_cli.spark.") else 0 if inspect.ismethod(method) else 1
    leading += method.__name__ == "to_spark"  # the session comes first
    given = {name: one.default for name, one in list(parameters.items())[leading:]}
    assert given == {one.name: one.default_or(inspect.Parameter.empty) for one in declared(request)}
    text = inspect.getdoc(method) or ""
    for name, one in options(request).items():
        assert f"- `{name}`: {in_python(one.meaning)}." in text
    assert not re.search(r"(?<![\w-])--[a-z]", text)
    for one in declared(request):
        assert f"`{one.name}`" in text, f"{one.name} is explained nowhere"


@pytest.mark.parametrize("request_class", [CompactRequest, CompactTables, PlanOfTables, TableChoice, Upkeep])
def test_requests_are_values(request_class: Any) -> None:
    made = request_class(**({"tables": ["t"]} if issubclass(request_class, TableChoice) else {}))
    assert pickle.loads(pickle.dumps(made)) == made == replace(made) == request_class.of(made)
    with pytest.raises(FrozenInstanceError):
        made.strategy = "minor"


def test_what_is_given_is_parsed_once() -> None:
    asked = CompactOptions(max_bytes="10 kb", order_by="a, b", partition={"dt": 1})
    assert (asked.max_bytes, asked.order_by, asked.partition) == (10_240, ("a", "b"), ({"dt": "1"},))
    assert CompactOptions(idle_time="1 min").idle_time == 60_000
    assert CompactOptions(order_by=pd.Index(["a", "b"])).order_by == ("a", "b")
    assert CompareOptions("t", "u", key=[" a,b"]).key == (" a,b",)
    assert CompareOptions("t", "u", key="").key == () and CompareOptions("t", "u").key is None
    read = ScanCall(pd.Index(["a"]), "a > 1", as_of=datetime(2026, 11, 1), limit=3)
    assert (read.columns, read.as_of, read.limit) == (("a",), "2026-11-01T00:00:00", 3)
    assert replace(asked, max_buckets=3).max_bytes == 10_240
    assert [MaintainTables("t", budget=text).budget for text in ("10m", "20GB", "1 h")] == [
        Allowance(millis=600_000),
        Allowance(size=20 << 30),
        Allowance(millis=3_600_000),
    ]
    assert CompactRequest.of(asked, turn_bytes=5) == CompactRequest(**vars(asked), turn_bytes=5)


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (ScanCall, {"limit": -1}, "--limit -1"),
        (CompareOptions, {"here": "t", "there": "o.csv", "limit": -1}, "--limit -1"),
        (CompareOptions, {"here": "t", "there": "u", "snapshot_b": 1, "tag_b": "n"}, "a snapshot and a tag are given for u"),
        (CompareOptions, {"here": "t", "there": "o", "format": "xml"}, "--format xml: choose one of parquet, csv"),
        (ScanCall, {"snapshot": 0}, "--snapshot 0: the minimum is 1"),
        (ScanCall, {"incremental_mode": "x"}, "--incremental-mode x: choose one of auto, delta, changelog, diff"),
        (ScanCall, {"incremental": "1..2", "tag": "t"}, "--incremental cannot be combined"),
        (MaintainTables, {"tables": "t", "budget": "10"}, "--budget 10: it is neither a time nor a size with a unit"),
        (MaintainTables, {"tables": "t", "budget": "0 s"}, "--budget 0 s: nothing could be done with it"),
        (MaintainTables, {"tables": "t", "budget": "1GB/week"}, "--budget 1GB/week: it is neither"),
        (MaintainTables, {"tables": "t", "budget": "1GB/day"}, "--budget 1.0GB/day is for --watch"),
        (MaintainRounds, {"orphans_every": "0 s"}, "--orphans-every 0"),
        (ChangelogCall, {"begin": 0}, "--begin 0: the minimum is 1"),
        (ChangelogCall, {"begin": 3, "end": 2}, "snapshot 3 is after snapshot 2"),
        (VerifyOptions, {"level": "deep"}, "--level deep: choose one of meta, files, full"),
        (VerifyOptions, {"snapshot": 1, "all_snapshots": True}, "--snapshot cannot be combined"),
        (VerifyRequest, {"only": "PV006, nothing"}, "no check 'nothing'"),
        (VerifyRequest, {"only": "pv006"}, "no check 'pv006'"),
        (VerifyRequest, {"only": "Files"}, "no check 'Files'"),
        (FrameCall, {"order_by": "id"}, "--order-by of a DataFrame"),
        (CheckOptions, {"rounds": 21}, "--rounds 21: the maximum is 20"),
        (CheckOptions, {"depth": 1, "seed": 1}, "--depth cannot be combined with --seed"),
        (ColumnPlace, {"first": True, "after": "a"}, "--first contradicts --after"),
        (ColumnOptions, {"default": "a", "drop_default": True}, "--default contradicts --drop-default"),
        (TagOptions, {"name": "t", "snapshot": 0}, "--snapshot 0: the minimum is 1"),
        (TagPlace, {"name": "t", "time_retained": "long"}, "cannot parse the duration 'long'"),
        (RollbackOptions, {"to": 1, "compact": "after"}, "--compact needs --as-new"),
        (BisectOptions, {"where": "true", "expect": "all"}, "--expect all: choose one of some, none"),
        (MarkOptions, {"partition": ()}, "no partition is named"),
    ],
)
def test_other_requests_that_cannot_be_are_refused(call: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        call(**given)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_buckets": 0}, "--max-buckets 0: the minimum is 1"),
        ({"strategy": "half"}, "--strategy half: choose one of full, minor"),
        ({"order_strategy": "x"}, "--order-strategy x: choose one of order, zorder, hilbert"),
        ({"memory": "1 kb"}, "--memory 1 kb is too small"),
        ({"max_bytes": "many"}, "cannot parse the size 'many'"),
        ({"bucket": []}, "no bucket is named"),
        ({"order_strategy": "zorder"}, "--order-strategy without --order-by"),
        ({"order_by": "a", "bucket": 1}, "--order-by cannot be combined"),
    ],
)
def test_what_cannot_be_is_refused_when_a_request_is_built(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        CompactOptions(**given)
    assert refused.value.message.startswith(message)
    assert str(refused.value).startswith(in_python(message))


def test_what_a_job_adds_counts_more_than_what_was_given() -> None:
    given = CompactOptions("full")
    assert CompactRequest.of(given).strategy == "full"
    assert CompactRequest.of(given, strategy="minor").strategy == "minor" and given.strategy == "full"


def test_a_repeated_key_begins_a_partition_after_any_other() -> None:
    texts = ["dt=1", "hr=2", "dt=3", "hr=4", "dt=5,hr=6"]
    assert split_partitions(texts) == [{"dt": "1", "hr": "2"}, {"dt": "3", "hr": "4"}, {"dt": "5", "hr": "6"}]


@pytest.mark.parametrize("given", [{}, [], [{}], [{"dt": "1"}, {}]])
def test_an_empty_partition_does_not_mean_all(given: Any) -> None:
    with pytest.raises(UsageError, match="no partition is named"):
        partition_list(given)


@pytest.mark.parametrize(
    "given, why",
    [({"keep": "0 s"}, "keep nothing"), ({"keep": -1}, "keep nothing"), ({"bandwidth": 0}, "nothing could be copied")],
)
def test_a_backup_that_would_keep_nothing_or_never_end_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        BackupOptions(**given)


def test_every_bucket_of_a_list_is_checked() -> None:
    assert bucket_list([1, range(2, 4)]) == [1, range(2, 4)]
    for wrong in (["x", 1], [1, "x"], [1, 2, True]):
        with pytest.raises(UsageError, match=r"bucket .*whole number"):
            bucket_list(wrong)  # type: ignore[arg-type]


def test_a_value_begins_after_the_first_equals_sign() -> None:
    assert split_pairs(["a=1", "b=x=y", " a =2"], "--option") == {"a": "2", "b": "x=y"}


@pytest.mark.parametrize(("number", "refused"), [(0, True), (-1, True), (1, False), (None, False)])
def test_the_smallest_positive_number_is_1(number: int | None, refused: bool) -> None:
    with pytest.raises(UsageError, match=r"max.tasks") if refused else nullcontext():
        check_positive(max_tasks=number)


def test_rows_shown_are_capped_at_the_largest_index_only() -> None:
    assert [ShownRows.read(number) for number in (0, 7, 1 << 70)] == [0, 7, sys.maxsize]


def test_each_of_several_patterns_counts() -> None:
    patterns = compaction.Patterns().parse(["orders.*", re.compile("log"), "x"])
    assert patterns is not None and [one.pattern for one in patterns] == ["orders.*", "log", "x"]


def test_orphans_of_a_table_are_due_whatever_its_directory_is_called() -> None:
    """One name that is not UTF-8 kept a service from starting."""
    assert 0 <= Upkeep(orphans_every=1000).first_orphans_millis("d.t\udce9") < 1000
