"""The options of `policy` and `ledger`: what services are to do, and what they did."""

from dataclasses import KW_ONLY
from typing import Annotated

from paimon_cli.requests.fields import Option, Request, Time


class PolicyOf(Request):
    """Whose policy: a table, a database, or none of these for the whole warehouse."""

    table: Annotated[
        str | None,
        Option("A table (a path, a URL or db.table) or a database.", metavar="[TABLE|DB]", is_argument=True),
    ] = None


class SetPolicy(Request):
    """What replaces the policy of the warehouse, and on which condition."""

    file: Annotated[str, Option("The new policy, a file of YAML.", metavar="FILE", is_argument=True)]
    _: KW_ONLY
    if_version: Annotated[
        str | None,
        Option(
            "Replace only this version, which `policy show` names, or `none`; exit with 5 if the warehouse has another one.",
            metavar="VERSION",
            library="Replace only this version, or `none`; raise `Conflict` if the warehouse has another one",
        ),
    ] = None


class LedgerOptions(Request):
    """Which rounds to look at."""

    _: KW_ONLY
    since: Annotated[Time, Option("Rounds that began within this time; default 7 d.", tells_default=True)] = Time("7 d")
