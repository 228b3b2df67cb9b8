"""Whatever several writers have written to the same buckets, in one commit their rows have the order of the writers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.staging.writer_order import MAX_NUMBER, WriterMessages, in_writer_order
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, DataFileMeta, FileChanges
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import WriterOrder
from tests.commit.commit_tables import data_file, make_table

LOWS = st.integers(0, 1000)
FILES = st.lists(st.tuples(LOWS, st.integers(1, 20)), min_size=1, max_size=3)
MESSAGES = st.lists(st.tuples(st.integers(0, 2), FILES), min_size=1, max_size=4)
WRITERS = st.lists(MESSAGES, min_size=1, max_size=4)
Drawn = list[list[tuple[int, list[tuple[int, int]]]]]
"""For each writer its messages: a bucket, and for each file its first number and its rows."""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> TableContext:
    return make_table(tmp_path_factory.mktemp("order") / "t", {"bucket": "3", "bucket-key": "k"}, primary_key=False)


def messages_of(drawn: Drawn, bucket: int | None = None) -> list[WriterMessages]:
    """As stage files hold them; `bucket`: the one of all files."""
    writers = []
    for writer, messages in enumerate(drawn):
        made = [
            CommitMessage(
                EMPTY_ROW,
                number if bucket is None else bucket,
                3,
                append=FileChanges(added=tuple(a_file(f"{writer}-{place}-{at}", *one) for at, one in enumerate(files))),
            )
            for place, (number, files) in enumerate(messages)
        ]
        writers.append((f"writer-{writer}.json", tuple(made)))
    return writers


def a_file(name: str, low: int, rows: int) -> DataFileMeta:
    return replace(
        data_file(name, rows=rows),
        min_sequence_number=low,
        max_sequence_number=low + rows - 1,
        creation_time_millis=low,
    )


def ordered(context: TableContext, writers: list[WriterMessages]) -> list[tuple[CommitMessage, ...]]:
    return in_writer_order(context, writers, WriterOrder.GIVEN, "stamp", LocalEngine(), NoProgress())


def files_of(messages: tuple[CommitMessage, ...], bucket: int) -> list[DataFileMeta]:
    return [file for message in messages if message.bucket == bucket for file in message.append.added]


@given(WRITERS)
def test_later_writers_have_higher_numbers_in_each_bucket_that_they_share(context: TableContext, drawn: Drawn) -> None:
    writers = messages_of(drawn)
    after = ordered(context, writers)
    for bucket in range(3):
        before = [found for _, messages in writers if (found := files_of(messages, bucket))]
        now = [found for messages in after if (found := files_of(messages, bucket))]
        if len(before) < 2:
            assert now == before, "rows of one writer keep their numbers"
        highest = -1
        for old, new in zip(before, now, strict=True):
            assert len({file.min_sequence_number - was.min_sequence_number for was, file in zip(old, new, strict=True)}) == 1
            assert all(f.max_sequence_number - f.min_sequence_number == f.row_count - 1 for f in new)
            assert len(before) < 2 or min(file.min_sequence_number for file in new) > highest
            highest = max(file.max_sequence_number for file in new)


@given(WRITERS)
def test_waiting_files_are_aged_in_the_order_of_their_writers(context: TableContext, drawn: Drawn) -> None:
    writers = messages_of(drawn, POSTPONE_BUCKET)
    ages = [
        file.creation_time_millis or 0 for messages in ordered(context, writers) for file in files_of(messages, POSTPONE_BUCKET)
    ]
    if len(writers) > 1:
        assert ages == sorted(set(ages)), "replayed by age, each after the one before"


def test_an_order_can_be_refused_as_soon_as_two_writers_share_a_bucket(context: TableContext) -> None:
    apart: Drawn = [[(0, [(5, 2)]), (0, [(9, 1)])], [(1, [(5, 2)])]]
    writers = messages_of(apart)
    assert in_writer_order(context, writers, WriterOrder.REFUSE, "stamp", LocalEngine(), NoProgress()) == [
        messages for _, messages in writers
    ]
    with pytest.raises(UsageError, match=r"writer-0\.json and writer-1\.json hold rows of the same bucket, bucket-1"):
        in_writer_order(
            context,
            messages_of([*apart[1:], [(0, [(1, 1)]), (1, [(7, 1)])]]),
            WriterOrder.REFUSE,
            "stamp",
            LocalEngine(),
            NoProgress(),
        )


def test_no_row_gets_a_number_above_the_highest(context: TableContext) -> None:
    for rows, fits in ((3, True), (4, False)):
        writers = messages_of([[(0, [(MAX_NUMBER - 5, 3)])], [(0, [(0, rows)])]])
        if fits:
            _, second = ordered(context, writers)
            assert files_of(second, 0)[0].max_sequence_number == MAX_NUMBER
        else:
            with pytest.raises(NotSupported, match="sequence numbers above"):
                ordered(context, writers)
