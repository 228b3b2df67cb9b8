"""Messages between a process and its decoder of ORC files, and what the decoder answers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_cli.bucket.orc_decoder import PLACE, DecoderRequest, Message, ServedFile, answer, receive, send


class Narrow(io.BytesIO):
    """A pipe that takes and gives three bytes at a time."""

    def write(self, content: Any, /) -> int:
        return super().write(bytes(content[:3]))

    def readinto(self, target: Any, /) -> int:
        return super().readinto(memoryview(target)[:3])


def stored(table: pa.Table) -> io.BytesIO:
    sink = io.BytesIO()
    orc.write_table(table, sink)
    return io.BytesIO(sink.getvalue())


def answered(source: io.BytesIO, wanted: str, columns: list[Any] | None = None, batch_rows: int | None = None) -> pa.Buffer:
    answers = io.BytesIO()
    answer(answers, source, wanted, 0, columns, batch_rows)
    answers.seek(0)
    kind, content = receive(answers)
    assert kind == Message.ANSWER and answers.read() == b""
    return content


@pytest.mark.parametrize("content", [b"", b"ab", b"abc", bytes(range(256))])
def test_messages_arrive_whole_however_much_a_pipe_takes_at_once(content: bytes) -> None:
    pipe = Narrow()
    for kind in (Message.BYTES, Message.ANSWER):
        send(pipe, kind, content)
    pipe.seek(0)
    assert [receive(pipe) for _ in range(2)] == [(kind, pa.py_buffer(content)) for kind in (Message.BYTES, Message.ANSWER)]
    with pytest.raises(EOFError):
        receive(pipe)


def test_a_served_file_ends_where_the_file_ends() -> None:
    content, requests, answers = b"0123456789", io.BytesIO(), io.BytesIO()
    send(requests, Message.BYTES, content[4:8])
    send(requests, Message.BYTES, content[8:])
    requests.seek(0)
    file = ServedFile(len(content), requests, answers)
    assert file.seek(-6, io.SEEK_END) == 4 and file.read(4) == b"4567" and file.tell() == 8
    assert file.read(100) == b"89" and file.read(1) == b"" and file.seek(20) == 20 and file.read(1) == b""
    answers.seek(0)
    asked = [receive(answers) for _ in range(2)]
    assert [(kind, PLACE.unpack(place)) for kind, place in asked] == [(Message.READ, (4, 4)), (Message.READ, (8, 2))]


ROWS = pa.table({"k": range(5), "s": ["a", None, "b" * 1000, "", "c"]})


@pytest.mark.parametrize(("batch_rows", "sizes"), [(None, [5]), (2, [2, 2, 1]), (4, [4, 1]), (5, [5]), (9, [5])])
def test_a_stripe_is_sent_in_batches_of_the_size_asked_for(batch_rows: int | None, sizes: list[int]) -> None:
    with pa.ipc.open_stream(answered(stored(ROWS), DecoderRequest.ROWS, batch_rows=batch_rows)) as stream:
        batches = list(stream)
    assert [batch.num_rows for batch in batches] == sizes
    assert pa.Table.from_batches(batches).to_pylist() == ROWS.to_pylist()
    with pa.ipc.open_stream(answered(stored(ROWS), DecoderRequest.ROWS, ["s"], batch_rows)) as stream:
        assert stream.schema.names == ["s"]


def test_texts_that_are_none_are_refused_before_they_are_sent() -> None:
    """To read an array with invalid offsets may crash, which costs the decoder only."""
    wrong = pa.array([b"fine", b"\xff"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, wrong.buffers())
    nested = pa.ListArray.from_arrays(pa.array(np.array([0, 2], np.int32)), texts)
    for column in (texts, nested):
        with pytest.raises(pa.ArrowInvalid, match="UTF8"):
            answered(stored(pa.table({"s": column})), DecoderRequest.ROWS)
