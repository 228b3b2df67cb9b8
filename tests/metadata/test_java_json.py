"""The layout of Java's pretty printer."""

from __future__ import annotations

import json

import pytest

from paimon_cli.metadata.snapshot import dump_java_json


def test_layout() -> None:
    content = {"a": 1, "b": [], "c": {}, "d": [{"x": None, "y": [True, "s"]}, {"z": [{"q": -1}]}], "e": [[1], [2]]}
    assert dump_java_json(content) == (
        '{\n  "a" : 1,\n  "b" : [ ],\n  "c" : { },\n  "d" : [ {\n    "x" : null,\n    "y" : [ true, "s" ]\n  }, {\n'
        '    "z" : [ {\n      "q" : -1\n    } ]\n  } ],\n  "e" : [ [ 1 ], [ 2 ] ]\n}'
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\x1b", '"\\u001B"'),
        ("\x00\x0f", '"\\u0000\\u000F"'),
        ("\\u001b", '"\\\\u001b"'),
        ("\\\x1f", '"\\\\\\u001F"'),
        ('é表\n"/', '"é表\\n\\"/"'),
    ],
)
def test_texts(text: str, written: str) -> None:
    assert dump_java_json(text) == written
    assert json.loads(written) == text


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        dump_java_json({"a": 1.5})
