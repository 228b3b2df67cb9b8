"""The error boundary: which form a failure is told in, and which option was meant."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paimon_cli.cli.app import _known_option, _wants_json


@pytest.mark.parametrize(
    ("words", "is_json"),
    [
        ("read t -o json", True),
        ("read t -ojson", True),
        ("-o json read t", True),
        ("read t --output json", True),
        ("compact t --output=json -n", True),
        ("compact t -no json", True),
        ("compact t -vojson", True),
        ("read t --output-format json", True),
        ("read t --output-format=json", True),
        ("compact --watch --log-format json", True),
        ("compact --watch --log-format=json", True),
        ("read json", False),
        ("read t -o ndjson", False),
        ("read t -o csv json", False),
        ("read t -so json", False),
        ("read t --output-path=json", False),
        ("", False),
    ],
)
def test_failures_have_the_form_of_the_output(words: str, is_json: bool) -> None:
    assert _wants_json(words.split()) is is_json


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--filter", "--where"),
        ("--head", None),
        ("--WHERE", "--where"),
        ("--where", None),
        ("-W", "-w"),
        ("--nothing", None),
        (None, None),
    ],
)
def test_an_option_of_other_programs_is_known_where_the_command_has_ours(given: str | None, meant: str | None) -> None:
    parameters = [SimpleNamespace(opts=["-w", "--where"]), SimpleNamespace(opts=["--dry-run"])]
    context = SimpleNamespace(command=SimpleNamespace(params=parameters))
    assert _known_option(context, given) == meant
    assert _known_option(None, given) is None
