"""Options of a table that name a URL, a class or a path: what becomes of each, tried with a server and a directory to lure."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import NotSupported, PaimonError, Refused, UsageError
from paimon_cli.options.option_catalog import HONOURED, IN_PART, OF_CATALOG, OPTIONS, OWN_OPTIONS
from tests.tables import make_table

IGNORED, REFUSED, CONFINED, PERMITTED = "ignored", "refused", "confined", "only to hosts or places that the user allows"

OUTWARD = {
    "blob-descriptor.source-table": IGNORED,
    "branch": REFUSED,
    "catalog-key": IGNORED,
    "changelog-file.prefix": CONFINED,
    "commit.callback.#.param": IGNORED,
    "commit.callback.<class>.param": IGNORED,
    "commit.callbacks": REFUSED,
    "commit.custom-listeners": IGNORED,
    "data-file.external-paths": PERMITTED,
    "data-file.external-paths.specific-fs": CONFINED,
    "data-file.external-paths.weights": CONFINED,
    "data-file.path-directory": CONFINED,
    "data-file.prefix": CONFINED,
    "database": IGNORED,
    "default-database": IGNORED,
    "defaultDatabase": IGNORED,
    "dlf.oss-endpoint": IGNORED,
    "dlf.token-ecs-metadata-url": IGNORED,
    "dlf.token-ecs-role-name": IGNORED,
    "dlf.token-loader": IGNORED,
    "dlf.token-path": IGNORED,
    "format-table.commit-hive-sync-url": IGNORED,
    "fuse.mode": IGNORED,
    "fuse.root": IGNORED,
    "fuse.validation-mode": IGNORED,
    "global-index.external-path": IGNORED,
    "hadoop-conf-dir": IGNORED,
    "hdfs.conf-dir": IGNORED,
    "hive-conf-dir": IGNORED,
    "io-cache.policy": IGNORED,
    "io-cache.whitelist-path": IGNORED,
    "local-cache.dir": IGNORED,
    "location-in-properties": IGNORED,
    "lock.type": IGNORED,
    "materialized-table.refresh-handler-bytes": IGNORED,
    "materialized-table.refresh-handler-description": IGNORED,
    "metadata.iceberg.database": IGNORED,
    "metadata.iceberg.hadoop-conf-dir": IGNORED,
    "metadata.iceberg.hive-client-class": IGNORED,
    "metadata.iceberg.hive-conf-dir": IGNORED,
    "metadata.iceberg.storage": REFUSED,
    "metadata.iceberg.storage-location": IGNORED,
    "metadata.iceberg.uri": IGNORED,
    "metastore": IGNORED,
    "metastore.client.class": IGNORED,
    "metastore.tag-to-partition": REFUSED,
    "orc.key.provider": REFUSED,
    "partition.default-name": CONFINED,
    "partition.mark-done-action": PERMITTED,
    "partition.mark-done-action.custom.class": IGNORED,
    "partition.mark-done-action.http.url": PERMITTED,
    "path": IGNORED,
    "prefix": IGNORED,
    "scan.fallback-branch": REFUSED,
    "scan.fallback-delta-branch": REFUSED,
    "scan.fallback-snapshot-branch": REFUSED,
    "scan.primary-branch": REFUSED,
    "scan.tag-name": CONFINED,
    "sink.writer-refresh-detectors": IGNORED,
    "tag.batch.customized-name": CONFINED,
    "tag.callback.#.param": IGNORED,
    "tag.callback.<class>.param": IGNORED,
    "tag.callbacks": REFUSED,
    "token": IGNORED,
    "token.provider": IGNORED,
    "uri": IGNORED,
    "warehouse": IGNORED,
}
"""Option -> what becomes of a value that leads out of the table."""

INWARD = [
    "bucket-function.type",
    "bucket-key",
    "changelog-file.compression",
    "changelog-file.format",
    "changelog-file.stats-mode",
    "changelog-producer.row-deduplicate-ignore-fields",
    "client-pool-cache.keys",
    "commit.user-prefix",
    "data-file.external-paths.strategy",
    "dlf.region",
    "dlf.security-token",
    "fields.<column>.aggregate-function",
    "fields.<column>.list-agg-delimiter",
    "fields.<column>.nested-key",
    "fields.<column>.stats-mode",
    "fields.<columns>.sequence-group",
    "fields.default-aggregate-function",
    "file-index.<kind>.columns",
    "file-index.<kind>.<setting>",
    "file-index.bitmap.columns",
    "file-index.bloom-filter.columns",
    "file-index.bsi.columns",
    "file-index.range-bitmap.columns",
    "file.compression",
    "file.compression.per.level",
    "file.format",
    "file.format.per.level",
    "incremental-between",
    "incremental-between-timestamp",
    "lookup.local-file-type",
    "manifest.compression",
    "manifest.format",
    "metadata.stats-mode",
    "metadata.stats-mode.per.level",
    "metastore.tag-to-partition.preview",
    "parquet.writer.version",
    "partial-update.remove-record-on-sequence-group",
    "partition",
    "partition.expiration-strategy",
    "partition.mark-done-action.http.params",
    "partition.timestamp-formatter",
    "partition.timestamp-pattern",
    "primary-key",
    "record-level.time-field",
    "rowkind.field",
    "scan.mode",
    "scan.timestamp",
    "scan.version",
    "sequence.field",
    "sink.process-time-zone",
    "sink.watermark-time-zone",
    "variant.shredding.inferenceMode",
    "vector.file.format",
    "format-table.file.compression",
]
"""Options with texts that name columns, formats, times or choices: nothing outside of the table."""

_NAMES_SOMETHING = re.compile(
    r"\b(urls?|uri|address(es)?|endpoint|hosts?|server|class(es)?|callbacks?|listeners?|paths?|director(y|ies)|dir|location|places|root"
    r"|branch|command|script|plugin|factory|provider|loader|loaded|kms|jar|external|temp|tmp|conf|warehouse|metastore|database"
    r"|handler|detectors?|token|lock)\b",
    re.IGNORECASE,
)
TEXTS = ("String", "Enum", "Map<String, String>")


def test_every_option_that_names_something_outside_is_in_the_table() -> None:
    assert not {*OUTWARD, *INWARD} - {option.key for option in OPTIONS}
    for option in (*OPTIONS, *OWN_OPTIONS):
        words = f"{re.sub('[-._<>#]', ' ', option.key)} {option.description}"
        names = option.type in TEXTS and _NAMES_SOMETHING.search(words) and not option.choices
        honoured_text = option.type == "String" and option.status in (HONOURED, IN_PART) and not option.choices
        if names or honoured_text:
            known = option.key in OUTWARD or option.key in INWARD or option.group in HARMLESS_GROUPS
            assert known, f"say in this test what becomes of {option.key}: {option.description}"


HARMLESS_GROUPS = ("csv", "json", "text")
"""Formats whose data files are refused."""


class Lure:
    """A server that remembers whether anybody connected, and a directory that nobody should touch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "tag-x").write_text('{"version": 3}')
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.visits = 0
        self.thread = Thread(target=self._accept)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.server.accept()
            with connection:
                connection.settimeout(5)
                if connection.recv(4) == b"stop":
                    return
                self.visits += 1

    def stop(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"stop")
        self.thread.join()
        self.server.close()

    @property
    def is_untouched(self) -> bool:
        return self.visits == 0 and [entry.name for entry in self.directory.iterdir()] == ["tag-x"]


@pytest.fixture
def lure(tmp_path: Path) -> Iterator[Lure]:
    made = Lure(tmp_path / "outside")
    yield made
    made.stop()


def hostile_table(tmp_path: Path, options: dict[str, str]) -> str:
    """A table whose schema file somebody has edited, so that `create` has checked none of its options."""
    columns = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"}
    ending = {"partition.end-input-to-done": "true", "num-sorted-run.compaction-trigger": "2", "changelog-producer": "input"}
    made = make_table(tmp_path / "wh" / "shop.db" / "t", columns, ["id", "p"], ["p"], 1, ending)
    Table.open(made.url).write(pa.table({"id": pa.array([0], pa.int32()), "p": ["a"], "v": ["x"]}))
    path = Path(made.url) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"] |= options
    path.write_text(json.dumps(schema))
    return made.url


def use(url: str) -> list[PaimonError]:
    """What commands on a table do with it; returns what they refuse."""
    failures: list[PaimonError] = []
    rows = pa.table({"id": pa.array([1], pa.int32()), "p": ["a"], "v": ["y"]})
    calls: list[Callable[[Table], object]] = [
        lambda table: table.write(rows),
        lambda table: table.scan().to_arrow(),
        lambda table: table.compact(strategy="full"),
        lambda table: table.tags.create("t"),
        lambda table: table.expire(retain_max=1, retain_min=1),
        lambda table: table.delete("id = 1"),
        lambda table: table.mark_done({"p": "a"}),
        lambda table: table.verify(level="full"),
        lambda table: table.describe(),
    ]
    for call in calls:
        try:
            call(Table.open(url, runtime=Runtime(engine="local", warn=lambda _: None)))
        except PaimonError as error:
            failures.append(error)
    return failures


UPWARDS = "../../../outside/"


def hostile_values(lure: Lure, key: str) -> list[str]:
    address = f"http://127.0.0.1:{lure.port}/x"
    if key == "scan.tag-name":
        return [f"x/../{UPWARDS}tag-x"]
    return [address, str(lure.directory), UPWARDS, f"file:{lure.directory}", f"jdbc:postgresql://127.0.0.1:{lure.port}/x"]


@pytest.mark.parametrize("number", range(5))
def test_ignored_options_reach_nothing(tmp_path: Path, lure: Lure, number: int) -> None:
    ignored = [re.sub("<[a-z]+>", "org.example.Callback", key) for key, verdict in OUTWARD.items() if verdict == IGNORED]
    value = hostile_values(lure, "")[number]
    assert use(hostile_table(tmp_path, dict.fromkeys(ignored, value))) == [] and lure.is_untouched, value


@pytest.mark.in_part(3)
@pytest.mark.parametrize("key", [key for key, verdict in OUTWARD.items() if verdict in (REFUSED, CONFINED)])
def test_refused_and_confined_options_reach_nothing(tmp_path: Path, lure: Lure, key: str) -> None:
    for number, value in enumerate(hostile_values(lure, key)):
        kinds = {base for failure in use(hostile_table(tmp_path / str(number), {key: value})) for base in type(failure).__mro__}
        assert lure.is_untouched, f"{key}={value}"
        if OUTWARD[key] == REFUSED:
            assert NotSupported in kinds
        elif value == UPWARDS and key.endswith(("prefix", "directory")):
            assert UsageError in kinds


@pytest.mark.parametrize("actions", ["http-report", "success-file,http-report", "custom,http-report"])
def test_no_option_of_a_table_permits_a_report(tmp_path: Path, lure: Lure, actions: str) -> None:
    named = {"partition.mark-done-action": actions, "partition.mark-done-action.http.url": f"http://127.0.0.1:{lure.port}/x"}
    url = hostile_table(tmp_path, {**named, "http-report.allowed-hosts": f"127.0.0.1:{lure.port}"})
    kinds = {type(failure) for failure in use(url)}
    assert lure.is_untouched and kinds == {NotSupported if "custom" in actions else Refused}


def test_the_catalog_s_own_options_say_that_a_table_does_not_have_them() -> None:
    of_catalog = [option for option in OPTIONS if option.group == OF_CATALOG and option.key in OUTWARD]
    assert len(of_catalog) > 20 and {OUTWARD[option.key] for option in of_catalog} == {IGNORED}


@pytest.mark.parametrize("strategy", ["round-robin", "entropy-inject", "weight-robin", "specific-fs"])
def test_no_option_of_a_table_permits_a_place_of_data_files(tmp_path: Path, lure: Lure, strategy: str) -> None:
    named = {"data-file.external-paths": f"file:{lure.directory}", "data-file.external-paths.strategy": strategy}
    url = hostile_table(tmp_path, {**named, "data-file.external-paths.specific-fs": "file", "external-paths.allowed": "/"})
    kinds = {type(failure) for failure in use(url)}
    assert lure.is_untouched and kinds == {Refused}
