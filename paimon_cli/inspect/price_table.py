"""What requests, stored bytes and transferred bytes cost: a small table of prices by name, or from a file.

A file comes from anywhere, so it is read as hostile input: its size and depth are bounded, it has neither tags nor aliases, and
each key must be known, and there once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.inspect.operation_cost import OperationCost
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.storage.redaction import shown_name

MAX_PRICE_FILE = 65_536
"""The largest file of prices, in bytes."""
_MAX_PRICE = 1e9
_GB, _PER = 2**30, 1000
"""Stores count gigabytes of 2^30 bytes, and requests by the thousand."""


@dataclass(frozen=True)
class PriceTable:
    """Prices in one currency: for 1,000 requests of a kind, for a GB (2^30 bytes) stored for a month, for a GB fetched.

    `checks`: questions whether an object exists. `transfer`: 0 where readers run beside the store.
    """

    currency: str = "USD"
    reads: float = 0.0
    writes: float = 0.0
    checks: float = 0.0
    stored: float = 0.0
    transfer: float = 0.0

    def priced(self, cost: OperationCost) -> OperationCost:
        """The cost with its money: requests, and the transfer of what is read."""
        requests = cost.reads * self.reads + cost.writes * self.writes + cost.checks * self.checks
        return replace(cost, money=_rounded(requests / _PER + cost.bytes_read * self.transfer / _GB))

    def of_month(self, size: int) -> float:
        """The money for storing `size` bytes for a month."""
        return _rounded(size * self.stored / _GB)


PRICES: Mapping[str, PriceTable] = {
    "aws-s3": PriceTable(reads=0.0004, writes=0.005, checks=0.0004, stored=0.023, transfer=0.0),
}
"""Price tables by name. `aws-s3`: S3 Standard in us-east-1 at list prices, without transfer, which is free within the region."""


def price_table(name: str) -> PriceTable:
    """The price table of this name, or that in the file of this path. Raises `UsageError` if there is none, or it is invalid."""
    known = PRICES.get(name)
    if known is not None:
        return known
    if not os.path.isfile(name):
        what = f"there are no prices '{shown_name(name)}'"
        raise UsageError(what, "it is neither a file nor " + ", ".join(PRICES), "--prices aws-s3")
    try:
        with open(name, "rb") as file:
            content = file.read(MAX_PRICE_FILE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {shown_name(name)}", error.strerror or str(error)) from error
    return parse_prices(content, shown_name(name))


def parse_prices(content: bytes, source: str) -> PriceTable:
    """Parse a flat YAML or JSON mapping. Raises `UsageError` for anything else, for an unknown key, and for what is no price."""
    import yaml

    hint = f"write one price a line: {', '.join(field.name for field in fields(PriceTable))}"
    if len(content) > MAX_PRICE_FILE:
        raise UsageError(f"{source} is too large for prices", f"it has more than {MAX_PRICE_FILE:,} bytes", hint)
    try:
        text, nested = content.decode(), 0
        keys, is_key = set[str](), False
        lists = yaml.BlockSequenceStartToken, yaml.FlowSequenceStartToken
        mappings = yaml.BlockMappingStartToken, yaml.FlowMappingStartToken
        for token in yaml.scan(text, yaml.SafeLoader):
            nested += isinstance(token, (*mappings, *lists))
            if nested > 1:  # with thousands of levels the parser would take minutes
                raise UsageError(f"{source} is not a table of prices", "it is nested, or a list", hint)
            if isinstance(token, (yaml.AliasToken, yaml.AnchorToken, yaml.TagToken)):
                raise UsageError(f"{source} is not a table of prices", "it has a tag, an anchor or an alias", hint)
            if is_key and isinstance(token, yaml.ScalarToken):
                if token.value in keys:
                    where = f"the second one is in line {token.start_mark.line + 1}"
                    raise UsageError(f"'{shown_name(token.value)}' is there twice in {source}", where, "remove one")
                keys.add(token.value)
            is_key = isinstance(token, yaml.KeyToken)
        found: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "it is no text in UTF-8, or nested too deeply" if mark is None else f"the parser stopped at line {mark.line + 1}"
        raise UsageError(f"{source} is not YAML", where, hint) from None
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{source} is not a table of prices", "it is not a mapping of keys to prices", hint)
    return PriceTable(**{str(key): _value(key, value, source, hint) for key, value in found.items()})


def _value(key: object, value: object, source: str, hint: str) -> Any:
    names = [field.name for field in fields(PriceTable)]
    if key not in names:
        shown = shown_name(str(key))
        raise UsageError(f"unknown key '{shown}' in {source}", did_you_mean(shown, names).strip() or "no price has it", hint)
    if key == "currency":
        if not isinstance(value, str) or not (1 <= len(value) <= 8 and value.isalpha()):
            raise UsageError(f"the currency in {source} is none", "it must be up to 8 letters, such as EUR")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_PRICE or math.isnan(value):
        raise UsageError(f"'{key}' in {source} is no price", "it must be a number from 0 to a billion", hint)
    return float(value)


def _rounded(money: float) -> float:
    return round(money, 9)
