"""How the sources of an ingest are read: in rounds, each of which ends with a commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

from paimon_cli.api.ingest_run import IngestRun
from paimon_cli.api.ingest_sources import STANDARD_INPUT, EventSource, EventSources
from paimon_cli.ingest.changes.event_lines import EventLines
from paimon_cli.ingest.changes.read_marks import LastEvent, has_changed
from paimon_cli.ingest.changes.transaction_ends import HeldTransaction
from paimon_cli.ingest.input_files import SourceFile
from paimon_cli.storage.injected import Clock, SystemClock


class EventReading(ABC):
    """Sources that are read for a run."""

    @abstractmethod
    def round(self) -> None:
        """Read what there is, and hand it to the run."""

    @abstractmethod
    def committed(self) -> None:
        """Take note that the tables have committed what was read."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for the time of the next round."""


@dataclass
class FileReading(EventReading):
    """Files, and standard input. `_stamps`: size and time of the files when they were last read, by path; `_last`: the last event
    that was read of each source. `_due`: when the tables commit, also if a file grows as fast as it is read.
    """

    run: IngestRun
    sources: EventSources
    follows: bool
    clock: Clock = field(default_factory=SystemClock)
    _due: int = 0
    _stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    _last: dict[str, LastEvent] = field(default_factory=dict)

    def round(self) -> None:
        self._next()
        files = self.sources.files(may_come=self.follows)
        self.run.letters.expect_apart(file.path for file in files if file is not None)
        for file in files:
            self._read_file(file)

    def committed(self) -> None:
        """The marks of the tables say all."""

    def _next(self) -> None:
        self._due = self.clock.now_millis() + self.run.interval_millis

    def wait(self) -> None:
        self.clock.sleep(self.run.interval_millis / 1000)

    def _read_file(self, file: SourceFile | None) -> None:
        """Read a file from where this run has read it to, unless it has not changed."""
        stamp = (0, 0) if file is None else (file.size, file.modified_millis)
        if self.follows and file is not None and self._stamps.get(file.path) == stamp:
            return
        with self.sources.opened(file) as source:
            if self.follows and not source.is_begun:
                return
            self._read(source)
        if file is not None:
            self._stamps[file.path] = stamp

    def _read(self, source: EventSource) -> None:
        run, key = self.run, source.key
        last = self._last.get(key)
        begin = 0 if last is None else last.begin
        previous = None if last is None else last.mark
        for lines in self._blocks(source, begin):
            if last is not None:
                lines, last = last.following(lines), None
            previous = run.apply(key, lines, begin, previous)
            begin = lines.end
            if len(lines) and previous is not None:
                self._last[key] = LastEvent(int(lines.positions[-1]), previous)
            if run.is_full or (self.follows and self.clock.now_millis() >= self._due):
                run.commit()
                self._next()
        if last is not None:
            raise has_changed(source.name, last.mark)
        for target in run.resumed(key):
            if not self.follows and target.marks[key].position > begin:
                run.stop(target, has_changed(source.name, target.marks[key]))

    def _blocks(self, source: EventSource, begin: int) -> Iterator[EventLines]:
        """The events of a file in blocks that end with a transaction, but for the last one."""
        size = self.run.block_bytes
        held = HeldTransaction(self.run.format.name, size)
        is_bad = self.follows or self.run.stops or source.name == STANDARD_INPUT

        def torn() -> None:
            self.run.site.runtime.warn(f"{source.name}: its last line has no end and is no JSON, and waits for the next run")

        for lines in source.blocks(size, begin, is_growing=self.follows, on_torn=None if is_bad else torn):
            if (released := held.released(lines)) is not None:
                yield released
        if (rest := held.rest()) is not None:
            yield rest
