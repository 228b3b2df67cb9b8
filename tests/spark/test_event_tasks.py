"""Tasks of a stream of change events."""

from __future__ import annotations

import json
import pickle

from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import lines_of
from paimon_cli.spark import event_tasks
from tests.event_streams import debezium


def test_events_of_a_table_are_sent_without_those_of_others() -> None:
    events = [debezium(f"t{n % 50}", "c", None, {"id": n, "name": "x" * 100}) for n in range(1000)]
    block = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events)
    found = EventDecoder(EVENT_FORMATS["debezium"]).decode(lines_of(block.encode(), "s", 0)).events
    texts = [event_tasks._pickled(one) for one in found]
    assert sum(map(len, texts)) < 3 * len(block) < len(pickle.dumps(found[0])) * len(found)
    assert [one.read.after.columns["id"].to_pylist() for one in map(pickle.loads, texts)] == [
        one.read.after.columns["id"].to_pylist() for one in found
    ]
