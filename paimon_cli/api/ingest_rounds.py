"""Drives an ingest: its sources are read round by round, and what they gave is committed after each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from paimon_cli.api.dead_letters import DeadLetters
from paimon_cli.api.ingest_reading import EventReading, FileReading
from paimon_cli.api.ingest_run import IngestRun
from paimon_cli.api.ingest_site import IngestSite
from paimon_cli.api.ingest_sources import EventSources
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.ingest.changes.kafka_address import KafkaAddress
from paimon_cli.options.choices import OnError

if TYPE_CHECKING:
    from paimon_cli.api.ingest_call import IngestCall
    from paimon_cli.api.ingested_table import IngestedTable


def run_ingest(site: IngestSite, call: IngestCall, is_dry: bool) -> list[IngestedTable]:
    """Read all sources to their ends, or follow them."""
    given = call.sources
    names = tuple(os.fspath(one) for one in ([given] if isinstance(given, (str, os.PathLike)) else given))
    if is_dry and call.follow:
        raise UsageError("--dry-run with --follow", "it shows what there is now, and ends", "leave one of them out")
    stops = call.on_error == OnError.FAIL
    follows, rounds = call.follow, 0
    failure: PaimonError | None = None
    with DeadLetters(None if stops or is_dry else call.on_error, names) as letters:
        run = IngestRun(site, call, letters, is_dry)
        with _reading(run, names, follows) as reading:
            while True:
                try:
                    reading.round()
                except PaimonError as error:
                    failure = error  # what comes before is committed
                run.commit()
                if failure is not None:
                    break
                reading.committed()
                rounds += 1
                if not follows or rounds == call.max_rounds or run.has_stopped:
                    break
                reading.wait()
    return run.ended(failure)


@contextmanager
def _reading(run: IngestRun, names: tuple[str, ...], follows: bool) -> Iterator[EventReading]:
    address = KafkaAddress.of_sources(names)
    if address is None:
        if run.call.kafka_conf:
            raise UsageError("--kafka-conf is for topics", "the sources are files", "leave it out, or name kafka://broker/topic")
        yield FileReading(run, EventSources(names, run.site.options), follows)
        return
    from paimon_cli.api.ingest_topics import TopicReading

    with TopicReading.opened(run, address, follows) as reading:
        yield reading
