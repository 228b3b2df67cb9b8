"""The options of `ledger`."""

from dataclasses import KW_ONLY
from typing import Annotated

from paimon_cli.requests.fields import Option, Request, Time


class LedgerOptions(Request):
    """Which rounds to look at."""

    _: KW_ONLY
    since: Annotated[Time, Option("Rounds that began within this time; default 7 d.", tells_default=True)] = Time("7 d")
