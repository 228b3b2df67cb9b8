"""The text of a policy is read as an adversary's: mappings, lists and texts, and nothing that grows or refers."""

from __future__ import annotations

import time

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.maintain.policy_text import MAX_POLICY, read_policy_text


def read(text: str | bytes) -> object:
    return read_policy_text(text.encode() if isinstance(text, str) else text, "policy.yaml")


def test_values_are_texts_with_their_lines() -> None:
    found = read_policy_text(b"catalog:\n  caps: {runs: 20}\n  windows:\n  - sat\n  - 22:00-06:00\n", "p")
    catalog = found["catalog"]
    assert catalog.line == 1 and isinstance(catalog.value, dict)
    caps, windows = catalog.value["caps"], catalog.value["windows"]
    assert isinstance(caps.value, dict) and (caps.value["runs"].value, caps.value["runs"].line) == ("20", 2)
    assert isinstance(windows.value, list) and [(each.value, each.line) for each in windows.value] == [
        ("sat", 4),
        ("22:00-06:00", 5),
    ]


def test_an_empty_file_has_no_rules() -> None:
    assert read("") == {} and read("# nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalog: &a {windows: nights}\ndatabases: {x: *a}\n", "policy.yaml:1: anchors and aliases are refused"),
        ("catalog: *a\n", "policy.yaml:1: anchors and aliases are refused"),
        ("catalog: !!python/object/apply:os.system ['id']\n", "policy.yaml:1: tags are refused"),
        ("catalog:\n  windows: !include /etc/passwd\n", "policy.yaml:2: tags are refused"),
        ("catalog: ! x\n", "policy.yaml:1: tags are refused"),
        ("%TAG ! tag:example.org,2026:\n---\ncatalog: {}\n", "directives and further documents are refused"),
        ("catalog: {}\n---\ntables: {}\n", "policy.yaml:2: directives and further documents are refused"),
        ("catalog:\n  windows: nights\n  windows: sat\n", "policy.yaml:3: 'windows' is there twice: it stands in line 2, too"),
        ("? [a, b]\n: c\n", "policy.yaml:1: this key is no text"),
        ("- catalog\n", "policy.yaml:1: this is no mapping"),
        ("catalog", "policy.yaml:1: this is no mapping"),
        ("catalog: {windows: [nights\n", "this is not YAML"),
        ("catalog: \x07\n", "this is not YAML"),
        (b"catalog:\n  windows: \xff\n", "policy.yaml:2 is not UTF-8"),
        ("a: " + "[" * 100_000, "nest"),
        ("- " * 100_000, "policy.yaml:1: this is nested too deeply"),
        ("? " * 100_000, "policy.yaml:1: this is nested too deeply"),
        ("a: [" + "1," * 100_000 + "]", "policy.yaml:1: the file has too much in it"),
        ("a: " + "x" * 1001, "policy.yaml:1: this text is too long"),
        ("#" * (MAX_POLICY + 1), "policy.yaml is too large"),
    ],
    ids=range(20),
)
def test_what_is_refused(text: str | bytes, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(UsageError) as refused:
        read(text)
    assert said in refused.value.message
    assert refused.value.message.isprintable()
    assert time.process_time() - begun < 20
