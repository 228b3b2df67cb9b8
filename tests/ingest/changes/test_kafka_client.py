"""What a client of Kafka makes of the answers of brokers."""

from __future__ import annotations

import confluent_kafka
import pytest

from paimon_cli.ingest.changes.kafka_address import KafkaAddress
from paimon_cli.ingest.changes.kafka_client import KafkaClient
from paimon_cli.storage.injected import SystemClock

KNOWN = confluent_kafka.KafkaError


def client() -> KafkaClient:
    address = KafkaAddress.of_sources(("kafka://broker/topic",))
    assert address is not None
    return KafkaClient(address, {}, "group", 1 << 20, kafka=confluent_kafka)


@pytest.mark.parametrize("code", [KNOWN.NOT_COORDINATOR, KNOWN.COORDINATOR_LOAD_IN_PROGRESS, KNOWN.NOT_LEADER_FOR_PARTITION])
def test_a_broker_that_has_just_changed_its_duties_is_asked_again(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker answers so to the first member of a group that it has ever had."""
    answers, slept = [code, code], list[float]()
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: slept.append(seconds))

    def question() -> str:
        if answers:
            raise confluent_kafka.KafkaException(KNOWN(answers.pop()))
        return "answer"

    assert client().answer(question) == "answer"
    assert len(slept) == 2


@pytest.mark.parametrize("code, tries", [(KNOWN.GROUP_AUTHORIZATION_FAILED, 1), (KNOWN.NOT_COORDINATOR, 15)])
def test_it_is_not_asked_for_ever(code: int, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0], list[int]()
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: None)
    monkeypatch.setattr(SystemClock, "now_millis", lambda self: now[0])

    def question() -> None:
        now[0] += 1000
        asked.append(code)
        raise confluent_kafka.KafkaException(KNOWN(code))

    with pytest.raises(confluent_kafka.KafkaException):
        client().answer(question)
    assert len(asked) == tries
