"""Tasks of a stream of change events."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa

from paimon_cli import Catalog
from paimon_cli.ingest.changes.derived_columns import DerivedColumns
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import lines_of
from paimon_cli.spark import event_tasks
from tests.event_streams import debezium, with_schema


def test_events_of_a_table_are_sent_without_those_of_others() -> None:
    events = [debezium(f"t{n % 50}", "c", None, {"id": n, "name": "x" * 100}) for n in range(1000)]
    block = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events)
    found = EventDecoder(EVENT_FORMATS["debezium"]).decode(lines_of(block.encode(), "s", 0)).events
    texts = [event_tasks._pickled(one) for one in found]
    assert sum(map(len, texts)) < 3 * len(block) < len(pickle.dumps(found[0])) * len(found)
    assert [one.read.after.columns["id"].to_pylist() for one in map(pickle.loads, texts)] == [
        one.read.after.columns["id"].to_pylist() for one in found
    ]


def test_the_schemas_of_events_hardly_add_to_what_is_sent() -> None:
    """Events with their schemas keep them, for those that turn out to be bad."""
    events = [debezium("t", "c", None, {"id": n, "day": n}) for n in range(2_000)]
    texts = [json.dumps(with_schema(one), separators=(",", ":")) for one in events]
    (plain,), (wrapped,) = (
        EventDecoder(EVENT_FORMATS["debezium"]).decode(lines_of("\n".join(some).encode(), "s", 0)).events
        for some in (map(json.dumps, events), texts)
    )
    sent = event_tasks._pickled(wrapped)
    assert len(sent) < 0.1 * sum(map(len, texts)) and len(sent) < 2 * len(event_tasks._pickled(plain))
    lines = pickle.loads(sent).read.lines
    assert [lines.bad(index, "").text.decode() for index in range(len(lines))] == texts


def test_events_of_a_shard_that_are_all_bad_spare_those_of_another(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("shop.t", columns=["id INT NOT NULL", "n INT"], primary_key="id")
    events = [debezium("t", "c", None, {"id": n, "n": "many" if n else 1}) for n in range(2)]
    block = "".join(json.dumps({**one, "source": {"db": f"d{n}", "table": "t"}}) + "\n" for n, one in enumerate(events))
    found = EventDecoder(EVENT_FORMATS["debezium"]).decode(lines_of(block.encode(), "s", 0)).events
    conversion = event_tasks.Conversion("shop.t", table.context.schema, None, DerivedColumns.of((), ()))
    sources = [event_tasks.source_text(one.table) for one in found]
    texts = [event_tasks._pickled(one) for one in found]
    batch = pa.record_batch([sources, [0, 0], texts], names=["source", "block", "events"])
    (rows,) = event_tasks.ConvertingTask(dict.fromkeys(sources, conversion))([batch])
    assert [len(pickle.loads(text.as_py()).bad) for text in rows["found"]] == [1]
    assert [row["id"] for one in event_tasks.rows_of_chunks([rows]) for row in one.to_pylist()] == [0]
