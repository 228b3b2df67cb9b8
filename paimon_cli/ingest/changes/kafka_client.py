"""A client of Kafka: librdkafka with settings that keep events, and what its errors mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import BadInput, NoAccess, NotFound, PaimonError, StorageUnavailable, UsageError, importing
from paimon_cli.ingest.changes.kafka_address import KafkaAddress
from paimon_cli.options.option_text import printable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.redaction import redact, remember_secrets

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

ANSWER_SECONDS = 15
"""How long the brokers may take to answer a question."""
_PAUSE_SECONDS = 0.5
_LEAST_FETCH = 1 << 20
"""Bytes of a fetch, however little memory there is: librdkafka takes no less."""
_POLL_LIMIT_MILLIS, _REFRESH_MILLIS = 1_800_000, 30_000
"""How long a commit of all tables may take before others get the partitions, and how often new topics are looked for."""
_OURS = {
    "bootstrap.servers": "the URL names the brokers",
    "metadata.broker.list": "the URL names the brokers",
    "group.id": "the URL names the group: ?group=NAME",
    "enable.auto.commit": "offsets are committed after the tables",
    "enable.auto.offset.store": "offsets are committed after the tables",
    "auto.offset.reset": "?offsets=earliest|latest says where to begin",
    "enable.partition.eof": "it tells where a topic ends",
    "partition.assignment.strategy": "partitions are given up all at once",
    "isolation.level": "only what was committed is read",
}


@dataclass
class KafkaClient:
    """`settings`: of librdkafka, as the user gave them; `memory`: of which messages that wait take a part. `kafka`: the package,
    `opened`: its consumer. `complaint`: what librdkafka said last about the brokers; `failure`: after what it cannot go on.
    """

    address: KafkaAddress
    settings: Mapping[str, str]
    group: str
    memory: int
    kafka: Any = None
    opened: Any = None
    complaint: str = ""
    failure: PaimonError | None = None

    def consumer(self) -> Consumer:
        """A new consumer, which has not connected yet. Raises `UsageError`."""
        with importing("topics of Kafka need the package confluent-kafka", "kafka"):
            import confluent_kafka
        self.kafka = confluent_kafka
        remember_secrets(self.settings)
        for name, why in _OURS.items():
            if name in self.settings:
                raise UsageError(f"--kafka-conf {name} cannot be set", why, "leave it out")
        fetch = min(max(self.memory // 4, _LEAST_FETCH), PIECES.fetched_bytes)
        defaults = {
            "client.id": "paimon-cli",
            "max.poll.interval.ms": _POLL_LIMIT_MILLIS,
            "topic.metadata.refresh.interval.ms": _REFRESH_MILLIS,
            "fetch.max.bytes": fetch,
            "max.partition.fetch.bytes": _LEAST_FETCH,
            "receive.message.max.bytes": 2 * fetch,
            "queued.max.messages.kbytes": fetch >> 10,
        }
        ours = {
            "bootstrap.servers": self.address.brokers,
            "group.id": self.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range",
            "error_cb": self._complain,
        }
        if self.address.has_patterns:
            ours["topic.blacklist"] = "^__.*"
        silent = logging.Logger("librdkafka")
        silent.addHandler(logging.NullHandler())
        try:
            self.opened = self.kafka.Consumer({**defaults, **self.settings, **ours}, logger=silent)
            return self.opened
        except self.kafka.KafkaException as problem:
            raise UsageError("librdkafka refuses its settings", self.said(problem.args[0]), "look at --kafka-conf") from None
        except TypeError as problem:
            raise UsageError("librdkafka refuses its settings", redact(str(problem), self.settings)) from None

    def _complain(self, error: KafkaError) -> None:
        """What librdkafka says about the brokers, outside of any call."""
        code, known = error.code(), self.kafka.KafkaError
        self.complaint = self.said(error)
        if code in (known._AUTHENTICATION, known.SASL_AUTHENTICATION_FAILED, known._SSL):
            self.failure = self.no_access(error)
        elif code in (known._BAD_MSG, known.MSG_SIZE_TOO_LARGE):
            hint = "raise --memory, or receive.message.max.bytes by --kafka-conf"
            self.failure = BadInput(f"{self.address.brokers} sends more than fits", self.complaint, hint)
        elif error.fatal():
            self.failure = StorageUnavailable(f"Kafka at {self.address.brokers} failed", self.complaint)

    def said(self, error: KafkaError) -> str:
        return printable(redact(error.str(), self.settings))[:300]

    def no_access(self, error: KafkaError) -> NoAccess:
        hint = "--kafka-conf security.protocol=SASL_SSL, sasl.mechanism, sasl.username, sasl.password log in"
        return NoAccess(f"Kafka at {self.address.brokers} refuses access", self.said(error), hint)

    def failed(self, error: KafkaError) -> PaimonError:
        """The error for one of librdkafka."""
        known, code, what = self.kafka.KafkaError, error.code(), f"Kafka at {self.address.brokers}"
        if self.failure is not None:
            return self.failure
        if code in (known.TOPIC_AUTHORIZATION_FAILED, known.GROUP_AUTHORIZATION_FAILED, known.CLUSTER_AUTHORIZATION_FAILED):
            return self.no_access(error)
        if code in (known.UNKNOWN_TOPIC_OR_PART, known._UNKNOWN_TOPIC, known._UNKNOWN_PARTITION):
            return NotFound(f"{what} has no such topic", self.said(error))
        if code in (known._TRANSPORT, known._TIMED_OUT, known._ALL_BROKERS_DOWN, known._RESOLVE, known._TIMED_OUT_QUEUE):
            return StorageUnavailable(f"{what} cannot be reached", self.complaint or self.said(error), "is it running?")
        return StorageUnavailable(f"{what} failed", self.said(error))

    def answer(self, question: Callable[[], Any]) -> Any:
        """The answer of the brokers. One that is about to give its duties to another, or to take them over, is asked again."""
        known, clock = self.kafka.KafkaError, SystemClock()
        moving = (known.NOT_COORDINATOR, known.COORDINATOR_NOT_AVAILABLE, known.COORDINATOR_LOAD_IN_PROGRESS)
        electing = (known.NOT_LEADER_FOR_PARTITION, known.LEADER_NOT_AVAILABLE)
        until = clock.now_millis() + ANSWER_SECONDS * 1000
        while True:
            try:
                return question()
            except self.kafka.KafkaException as problem:
                if problem.args[0].code() not in (*moving, *electing) or clock.now_millis() >= until:
                    raise
            clock.sleep(_PAUSE_SECONDS)

    def answers(self, question: Callable[[], Any]) -> Any:
        """The same about several partitions. What is not known of one must not pass for an answer that says nothing."""

        def complete() -> Any:
            found = question()
            for one in found:
                if one.error is not None:
                    raise self.kafka.KafkaException(one.error)
            return found

        return self.answer(complete)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Context manager for calls of librdkafka, after whose failure the run ends."""
        try:
            yield
        except self.kafka.KafkaException as problem:
            if not self.complaint and self.opened is not None:
                self.opened.poll(0)  # it may say more; no message is lost, because the run ends
            raise self.failed(problem.args[0]) from None
