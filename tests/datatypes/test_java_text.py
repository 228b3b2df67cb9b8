"""Java's white space."""

from __future__ import annotations

from paimon_cli.datatypes.type_text import is_java_blank, is_java_whitespace


def test_where_java_and_python_differ() -> None:
    assert all(map(is_java_whitespace, " \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\u2003\u2028\u2029\u3000\u1680"))
    assert not any(map(is_java_whitespace, "\x85\xa0\u2007\u202f\u200b\x00a"))
    assert is_java_blank("") and is_java_blank(" \u3000") and not is_java_blank("\xa0")
