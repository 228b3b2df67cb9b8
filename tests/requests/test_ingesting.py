"""The options of `ingest`: settings of Kafka, bad events, and options that need others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.requests.ingesting import MAX_SETTINGS_BYTES, BadEvents, IngestOptions, KafkaConf, TableIngestOptions


def test_settings_of_kafka_come_from_texts_files_and_mappings(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# a comment\n\n sasl.password = a=b== \nlinger.ms=5\n")
    parse = KafkaConf().parse
    assert parse(["linger.ms=1", f"@{file}", "client.id = x"]) == {"linger.ms": "5", "sasl.password": "a=b==", "client.id": "x"}
    assert parse("acks=") == {"acks": ""} and parse(None) == parse([]) == {}
    for given in ("sasl.password=hunter2", {"sasl.password": "hunter2"}):
        asked = IngestOptions(format="json", kafka_conf=given)
        assert asked.kafka_conf == {"sasl.password": "hunter2"}
        assert "hunter2" not in repr(asked) and "sasl.password" in repr(asked)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff=1", "cannot be read"),
        (None, "cannot be read"),
        (b"a=1\n" * (MAX_SETTINGS_BYTES // 4) + b"b", "is no file of settings"),
        (b"no sign\n", "--kafka-conf must be KEY=VALUE"),
        (b" =1\n", "--kafka-conf must be KEY=VALUE"),
    ],
    ids=["no text", "no file", "too long", "no sign", "no name"],
)
def test_files_that_hold_no_settings_of_kafka(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "settings"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        KafkaConf().parse(f"@{file}")
    assert message in refused.value.message


def test_a_file_of_settings_may_be_as_long_as_that(tmp_path: Path) -> None:
    (tmp_path / "settings").write_bytes(b"a=1\n" * (MAX_SETTINGS_BYTES // 4))
    assert KafkaConf().parse(f"@{tmp_path}/settings") == {"a": "1"}


def test_bad_events_stop_a_table_or_go_to_a_file() -> None:
    parse = BadEvents().parse
    assert [parse(given) for given in ("fail", "FAIL", "Bad.ndjson", "failed")] == ["fail", "fail", "Bad.ndjson", "failed"]
    for given in ("skip", "Skip", ""):
        with pytest.raises(UsageError):
            parse(given)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (TableIngestOptions, {"interval": "5 s"}, "--interval is for --follow"),
        (TableIngestOptions, {"interval": 0}, "--interval is for --follow"),
        (TableIngestOptions, {"max_rounds": 2}, "--max-rounds is for --follow"),
        (IngestOptions, {"max_rounds": 2}, "--max-rounds is for --follow"),
        (IngestOptions, {"table_mapping": ["a=b", "c"]}, "--table-mapping c: it must be SOURCE=NAME"),
        (IngestOptions, {"table_mapping": "a="}, "--table-mapping a="),
        (IngestOptions, {"table_mapping": "=b"}, "--table-mapping =b"),
        (IngestOptions, {"table_mapping": ["t=a", "u=a", "t=b"]}, "--table-mapping is given twice for t"),
        (IngestOptions, {"primary_key": ["id", "region"]}, "--primary-key is given twice for all tables"),
        (IngestOptions, {"primary_key": ["t=id", "x", "t=region"]}, "--primary-key is given twice for t"),
        (IngestOptions, {"primary_key": ["=a", "b"]}, "--primary-key is given twice for all tables"),
        (IngestOptions, {"primary_key": "t= ,"}, "--primary-key t= ,: it names no column"),
        (IngestOptions, {"primary_key": [""]}, "--primary-key : it names no column"),
    ],
)
def test_options_of_ingest_that_contradict_each_other(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        kind(format="json", **given)
    assert refused.value.message.startswith(message)
    assert kind(format="json", follow=True, interval="5 s", max_rounds=2).interval == 5000


def test_each_table_has_one_key_and_one_name() -> None:
    """Of two texts the last one counted: a key of the columns `id` and `region` was one of the regions alone."""
    keys = ("id,region", "t=id", "db.t=a,b")
    names = ("t=a", "db.t=b", "u=a")
    found = IngestOptions(format="json", primary_key=keys, table_mapping=names)
    assert (found.primary_key, found.table_mapping) == (keys, names)
