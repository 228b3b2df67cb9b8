"""Where topics of Kafka are, and from where they are read: `kafka://broker:9092/topic,other.*?group=G&offsets=earliest`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote

from paimon_cli.errors import UsageError
from paimon_cli.history.points_in_time import parse_moment
from paimon_cli.options.option_text import printable
from paimon_cli.storage.redaction import without_login

SCHEME = "kafka://"
EARLIEST, LATEST = "earliest", "latest"
_FORM = "kafka://broker:9092/topic, perhaps with ?group=NAME and ?offsets=earliest|latest|TIME|PARTITION:OFFSET,..."
_TOPIC = re.compile(r"[A-Za-z0-9._*-]{1,249}")
_EXACT = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")


@dataclass(frozen=True)
class Beginning:
    """From where partitions are read, whatever their group has read before: all of them from the `edge` that is named, or from
    the first event since the time `millis`, or each of `exact` from its offset.
    """

    edge: str = ""
    millis: int | None = None
    exact: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def of(text: str) -> Beginning:
        if text in (EARLIEST, LATEST):
            return Beginning(edge=text)
        if _EXACT.fullmatch(text):
            pairs = [tuple(map(int, pair.split(":"))) for pair in text.split(",")]
            if len({partition for partition, _ in pairs}) < len(pairs):
                raise UsageError(f"offsets={printable(text[:60])}", "a partition is named twice", "name each once")
            return Beginning(exact={partition: offset for partition, offset in pairs})
        return Beginning(millis=parse_moment(text))


@dataclass(frozen=True)
class KafkaAddress:
    """`brokers`: some of the cluster, as host:port. `topics`: names, with * for any characters. `group`: the consumer group; None
    for one that belongs to the call. `beginning`: None to go on where the group is.
    """

    brokers: str
    topics: tuple[str, ...]
    group: str | None = None
    beginning: Beginning | None = None

    @staticmethod
    def of_sources(names: Sequence[str]) -> KafkaAddress | None:
        """The address among the sources of a call; None if they are files. Raises `UsageError`."""
        if not any(name.startswith(SCHEME) for name in names):
            return None
        if len(names) > 1:
            what = "topics of Kafka are read alone"
            raise UsageError(what, f"there are {len(names)} sources", "name all topics in one URL: kafka://broker:9092/one,two")
        return KafkaAddress.of(names[0])

    @staticmethod
    def of(url: str) -> KafkaAddress:
        shown = printable(without_login(url)[:200])
        rest, _, query = url.removeprefix(SCHEME).partition("?")
        brokers, _, path = rest.partition("/")
        if "@" in brokers:
            why = "its address holds a login"
            raise UsageError(f"cannot read {shown}", why, "--kafka-conf sasl.username=NAME, and others, log in")
        topics = tuple(unquote(one) for one in path.split(",") if one)
        if not brokers or not topics:
            raise UsageError(f"cannot read {shown}", f"it names no {'topic' if brokers else 'broker'}", f"write {_FORM}")
        for topic in topics:
            if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
                raise UsageError(f"'{printable(topic[:60])}' is no name of a topic", "letters, digits and ._- are allowed, and *")
        pairs = parse_qsl(query, keep_blank_values=True)
        given = dict(pairs)
        if len(given) < len(pairs) or given.keys() - {"group", "offsets"} or not all(given.values()):
            raise UsageError(f"cannot read the parameters of {shown}", "there are group and offsets, each once", f"write {_FORM}")
        offsets = given.get("offsets")
        beginning = None if offsets is None else Beginning.of(offsets)
        if beginning is not None and beginning.exact and (len(topics) > 1 or "*" in topics[0]):
            raise UsageError("offsets of partitions belong to one topic", f"{shown} names more", "name one topic")
        return KafkaAddress(brokers, topics, given.get("group"), beginning)

    def chosen(self, existing: Sequence[str]) -> list[str]:
        """Those of the topics that exist that this address means. Kafka's own are not meant by a pattern."""
        return sorted(name for name in existing if any(_means(topic, name) for topic in self.topics))

    @property
    def has_patterns(self) -> bool:
        """Whether topics may come later: some are named by a pattern."""
        return any("*" in topic for topic in self.topics)

    @property
    def subscription(self) -> list[str]:
        """The topics as librdkafka takes them: names, and regular expressions that begin with ^."""
        return [f"^{re.sub(r'[.]', '[.]', topic).replace('*', '.*')}$" if "*" in topic else topic for topic in self.topics]


def _means(topic: str, name: str) -> bool:
    return fnmatchcase(name, topic) and ("*" not in topic or not name.startswith("__"))
