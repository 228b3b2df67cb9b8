"""The URL of topics."""

from __future__ import annotations

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.ingest.changes.kafka_address import Beginning, KafkaAddress

TOPICS = ["shop.a", "shop.b", "shopXc", "__consumer_offsets", "other"]


@pytest.mark.parametrize(
    "path, chosen",
    [
        ("shop.*", ["shop.a", "shop.b"]),
        ("*", ["other", "shop.a", "shop.b", "shopXc"]),
        ("other,shop.b,none", ["other", "shop.b"]),
        ("__consumer_offsets", ["__consumer_offsets"]),
    ],
)
def test_topics_are_named_or_matched(path: str, chosen: list[str]) -> None:
    assert KafkaAddress.of(f"kafka://h:1,k:2/{path}").chosen(TOPICS) == chosen


def test_parts_of_a_url() -> None:
    address = KafkaAddress.of("kafka://h:1,k:2/a.b,c?group=g&offsets=earliest")
    assert (address.brokers, address.topics, address.group, address.beginning) == (
        "h:1,k:2",
        ("a.b", "c"),
        "g",
        Beginning("earliest"),
    )
    assert address.subscription == ["a.b", "c"] and not address.has_patterns
    assert KafkaAddress.of("kafka://h/a.*").subscription == ["^a[.].*$"]
    assert Beginning.of("0:5,3:7") == Beginning(exact={0: 5, 3: 7})
    assert Beginning.of("2024-01-31T12:00:00Z") == Beginning(millis=1706702400000)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "kafka://h",
        "kafka://h/",
        "kafka:///t",
        "kafka://user:secret@h/t",
        "kafka://h/a/b",
        "kafka://h/a%20b",
        "kafka://h/..",
        "kafka://h/t?group=",
        "kafka://h/t?offset=1",
        "kafka://h/t?group=a&group=b",
        "kafka://h/t?offsets=newest",
        "kafka://h/t?offsets=1:2,1:3",
        "kafka://h/t,u?offsets=1:2",
        "kafka://h/t*?offsets=1:2",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        KafkaAddress.of(url)
    assert "secret" not in str(caught.value)


def test_topics_are_read_alone() -> None:
    assert KafkaAddress.of_sources(["a.json"]) is None
    with pytest.raises(UsageError, match="read alone"):
        KafkaAddress.of_sources(["kafka://h/t", "a.json"])
