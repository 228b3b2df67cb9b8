"""Prints a result in the format of `-o`; each format's module is loaded on use."""

from __future__ import annotations

from paimon_cli.cli.results import Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import View


def show(result: Listing | Item, output: OutputFormat, view: View) -> None:
    """Print the result on stdout."""
    if output is OutputFormat.TABLE:
        from paimon_cli.cli import text_view

        text_view.show(result, view)
    else:
        from paimon_cli.cli import data_view

        data_view.show(result, output)
