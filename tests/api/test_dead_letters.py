"""Events set apart in a file: each once, as it was, and nothing else of the user is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.api.dead_letters import DeadLetters
from paimon_cli.errors import UsageError
from paimon_cli.ingest.changes.event_lines import BadEvent


def event(source: str = "a.json", position: int = 0, text: bytes = b"x") -> BadEvent:
    return BadEvent(source, position, "shop.t", "why", text)


def added(file: Path, *events: BadEvent) -> list[bool]:
    with DeadLetters(str(file), ()) as letters:
        return [letters.add(one, "debezium") for one in events]


def kept(file: Path) -> list[tuple[str, int, str]]:
    found = [json.loads(line) for line in file.read_bytes().splitlines()]
    return [(one["dead_letter"]["source"], one["dead_letter"]["position"], one["event"]) for one in found]


def test_an_event_is_its_source_its_place_and_its_text(tmp_path: Path) -> None:
    events = [event(), event(source="b.json"), event(position=1), event(text=b"y")]
    assert added(tmp_path / "bad", *events, *events) == [True] * 4 + [False] * 4
    assert added(tmp_path / "bad", *events) == [False] * 4, "it is known from an earlier run"
    assert kept(tmp_path / "bad") == [("a.json", 0, "x"), ("b.json", 0, "x"), ("a.json", 1, "x"), ("a.json", 0, "y")]


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    texts = [b"\xff\xfe", b"\xff\xfd", "é\u2028\0".encode(), b"\xed\xa0\x80"]
    assert added(tmp_path / "bad", *(event(text=text) for text in texts)) == [True] * 4
    assert [text.encode(errors="surrogateescape") for _, _, text in kept(tmp_path / "bad")] == texts
    assert added(tmp_path / "bad", *(event(text=text) for text in texts)) == [False] * 4


def test_only_the_torn_end_of_an_event_is_cut_off(tmp_path: Path) -> None:
    file, (first, second) = tmp_path / "bad", (event(), event(position=1))
    added(file, first, second)
    whole = file.read_bytes()
    begin = whole.index(b"\n") + 1
    for end in range(begin + 1, len(whole) - 1, 9):
        file.write_bytes(whole[:end])
        assert added(file, first) == [False] and file.read_bytes() == whole[:begin]
    file.write_bytes(whole[:-1])
    assert added(file, second, event(position=2)) == [False, True]
    assert [position for _, position, _ in kept(file)] == [0, 1, 2]


@pytest.mark.parametrize(
    "other", [b"notes", b"notes\n", b'{"dead_letter":{"x\n', b'{"dead_letter":{}}\n', b'{"dead_letters', b"[]"]
)
def test_what_holds_something_else_stays_as_it_is(tmp_path: Path, other: bytes) -> None:
    file = tmp_path / "bad"
    added(file, event())
    for content in (other, file.read_bytes() + other, other + b"\n" + file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="something else than events set apart"):
            added(file, event(position=1))
        assert file.read_bytes() == content


@pytest.mark.parametrize("make_link", [os.symlink, os.link])
def test_a_second_name_of_a_source_is_no_file_of_its_own(tmp_path: Path, make_link: Callable[[Path, Path], None]) -> None:
    sources = [tmp_path / "first.json", tmp_path / "second.json"]
    for source in sources:
        source.write_bytes(b"")
    link = tmp_path / "link"
    make_link(sources[1], link)
    with (
        pytest.raises(UsageError, match="is one of the sources"),
        DeadLetters(str(link), [str(source) for source in sources]) as letters,
    ):
        letters.expect_apart(["s3://bucket/first.json", str(tmp_path / "gone"), str(sources[1])])
    assert link.exists() and sources[1].read_bytes() == b"", "it is the user's, although it is empty"


def test_of_files_that_are_read_only_a_new_one_is_removed(tmp_path: Path) -> None:
    for content in (None, b"", b"kept"):
        file = tmp_path / f"bad-{content!r}"
        if content == b"kept":
            added(file, event())
        elif content is not None:
            file.write_bytes(content)
        before = file.read_bytes() if file.exists() else None
        with pytest.raises(UsageError, match="is one of the sources"), DeadLetters(str(file), ()) as letters:
            letters.expect_apart([str(tmp_path / "gone"), str(file)])
        assert (file.read_bytes() if file.exists() else None) == before


def test_what_was_flushed_is_in_the_file(tmp_path: Path) -> None:
    with DeadLetters(str(tmp_path / "bad"), ()) as letters:
        letters.add(event(), "debezium")
        letters.flush()
        assert kept(tmp_path / "bad") == [("a.json", 0, "x")]
