"""A write on a Spark of this machine: reader tasks route rows into files, writer tasks sort them and write data files.

Spark only hands out the tasks. What a row becomes, and in which order rows arrive, is as on a cluster (`spark_write`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import attrgetter

from paimon_cli.errors import PaimonError
from paimon_cli.ingest.rejects import Tally
from paimon_cli.jobs.engine import Engine, TasksFailed
from paimon_cli.jobs.exchange_files import Chunk, ChunkFile, is_for_nothing, mark_failed
from paimon_cli.jobs.progress import Progress
from paimon_cli.jobs.spark_write import Shuffle, gathered
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import Tallies, WritePlan


def write_through_files(engine: Engine, shuffle: Shuffle, directory: str, tallies: Tallies, progress: Progress) -> Written:
    """Two jobs of `engine`; the rows in between lie in `directory`. Raises the error of the first task that failed."""
    try:
        progress.start("Reading and routing", len(shuffle.plan.splits))
        read = partial(read_split, shuffle, directory)
        found = engine.run_tasks(read, range(len(shuffle.plan.splits)), _advancing(progress))
        tallies.update((number, tally) for number, (_, tally) in enumerate(found))
        chunks = sorted((chunk for part, _ in found for chunk in part), key=attrgetter("writer", "arrival"))
        tasks = [list(chunks_of_writer) for _, chunks_of_writer in groupby(chunks, key=attrgetter("writer"))]
        progress.start("Sorting and writing", len(tasks))
        written = engine.run_tasks(partial(write_chunks, shuffle.plan), tasks, _advancing(progress))
    except TasksFailed as failed:
        raise failed.error from failed
    return Written.of_tasks(written)


def read_split(shuffle: Shuffle, directory: str, number: int) -> tuple[list[Chunk], Tally]:
    """Route the rows of a split of the plan; its chunks, none where an earlier split is known to have failed."""
    tally = Tally()
    if is_for_nothing(directory, number):
        return [], tally
    router = shuffle.router()
    chunks: list[Chunk] = []
    try:
        with ChunkFile(directory) as file:
            for rows in gathered(shuffle.plan.incoming.read(shuffle.plan.splits[number], tally)):
                chunks += (file.append(*piece) for piece in shuffle.pieces(rows, router))
    except PaimonError:
        mark_failed(directory, number)
        raise
    return chunks, tally


def write_chunks(plan: WritePlan, chunks: list[Chunk]) -> Written:
    """Sort and write the rows of one writer, which come in the order of arrival."""
    with TableWriter(plan) as writer:
        for chunk in chunks:
            for rows in chunk.rows():
                writer.write(rows)
        return writer.finish()


def _advancing(progress: Progress) -> Callable[[object], None]:
    return lambda result: progress.advance()
