"""What snapshots say about how far sources were read."""

from __future__ import annotations

import pytest

from paimon_cli.ingest.changes.read_marks import Mark, marks_of_text, marks_text


def test_marks_are_read_as_they_were_written() -> None:
    marks = {"a#1": Mark(0, "x"), 'ä"#2': Mark(2**63 - 1, "")}
    assert marks_of_text(marks_text(marks, "u")) == marks


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{",
        '{"k":7}',
        '{"k":["x","y"]}',
        '{"k":[1e999,"y"]}',
        '{"k":[-1,"y"]}',
        f'{{"k":[{2**63},"y"]}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_mark_is_not_taken_for_the_beginning(text: str | None) -> None:
    assert marks_of_text(text) is None
