"""SECURITY.md: every promise names a test that exists, and every figure is that of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
PROMISED = PAGE[PAGE.index("## What is promised") : PAGE.index("## What is not promised")]
NAMED = re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)


def test_each_promise_names_a_test() -> None:
    tables = re.findall(r"\| promise \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", PROMISED)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 20
    assert [row for row in rows if not re.search(r"`tests/[^`]+`", row.rsplit("|", 2)[1])] == []


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_the_named_tests_exist(name: str) -> None:
    path, _, function = name.partition("::")
    names = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)}
    assert any(found.startswith("test") for found in names)
    assert not function or function in names


def test_the_figures_are_those_of_the_code() -> None:
    from paimon_cli.catalog.metastore import rest_client
    from paimon_cli.cli.agents import answers
    from paimon_cli.datatypes import type_text
    from paimon_cli.jobs.service import commit_hook, metrics_server
    from paimon_cli.metadata import table_schema
    from paimon_cli.sql import sql_text
    from paimon_cli.storage.catalog_options import TABLE_TIMEOUT, table_seconds
    from paimon_cli.storage.read_bounds import BOUNDS

    megabytes = {name: bound >> 20 for name, bound in BOUNDS.items()}
    for row in (
        f"| a schema file | {megabytes['schema-']} MB, {table_schema.MAX_COLUMNS:,} columns |",
        f"| a snapshot, tag or changelog file | {megabytes['snapshot-']} MB |",
        f"| a manifest, manifest list or index manifest | {megabytes['manifest-']} MB |",
        f"| an index file | {megabytes['index-'] >> 10} GB |",
        f"to take, renew or give back its lease | {table_seconds({}):g} s each (`{TABLE_TIMEOUT}`) |",
        f"| levels of an expression or type | {sql_text.MAX_DEPTH} |",
        f"{rest_client.MOST_PAGES:,} pages, {rest_client.MOST_ITEMS:,} names, {rest_client.LISTING_SECONDS // 60} minutes",
        f"| an answer of `mcp` | {answers.MAX_ROWS:,} rows, {answers.MAX_ANSWER_BYTES >> 10} kB |",
        f"| an event of a hook | {commit_hook.MOST_EVENT_BYTES >> 10} kB; {commit_hook.DELIVERY_SECONDS:g} s, "
        f"{len(commit_hook.PAUSES) + 1} attempts; {commit_hook.MOST_QUEUED:,} events wait |",
        f"| {metrics_server.MOST_CONNECTIONS} connections; a request has {metrics_server.MOST_REQUEST_BYTES >> 10} kB and "
        f"{metrics_server.REQUEST_SECONDS} s |",
    ):
        assert row in PAGE, row
    assert type_text.MAX_DEPTH == sql_text.MAX_DEPTH
