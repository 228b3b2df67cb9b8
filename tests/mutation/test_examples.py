"""Tests of the examples, for a mutation run to choose from."""

from __future__ import annotations

from tests.mutation.examples import COLOURS, Login, cached, is_large, plain


def test_functions() -> None:
    assert plain(1) == 2 and cached(1) == 3


def test_what_the_import_has_made() -> None:
    assert COLOURS == ["red", "green"]
    assert is_large(101) and not is_large(100)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(Login("me", "secret"))
