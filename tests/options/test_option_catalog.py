"""The list of all options against Java's (`core_options` vectors)."""

from __future__ import annotations

from paimon_cli.options.option_catalog import OPTIONS, OWN_OPTIONS, find_option
from paimon_cli.options.table_options import TableOptions
from tests.vectors import load


def test_every_option_is_listed():
    lines = load("core_options")
    for line in lines:
        key, out = line["in"]["key"], line["out"]
        option = find_option(key)
        assert option is not None, key
        assert (option.type, option.default, option.immutable) == (out["type"], out["default"], out.get("immutable", False))
        assert list(option.choices) == out.get("values", [])
        assert option.description
    assert len(OPTIONS) == len(lines) == 346


def test_this_tools_own_options_are_found_but_are_none_of_paimons():
    own = find_option("commit.data-conflict-check")
    assert own in OWN_OPTIONS and own not in OPTIONS
    assert TableOptions({}).commit_data_conflict_check == own.default
    for choice in own.choices:
        assert TableOptions({own.key: choice}).commit_data_conflict_check == choice


def test_older_keys_lead_to_the_new_option():
    assert find_option("write.compaction-skip").key == "write-only"
    assert find_option("compaction.no-such-thing") is None
