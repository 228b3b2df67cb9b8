"""Moments as users type them where age matters: `1d` ago, or a point in time."""

from __future__ import annotations

from paimon_cli.errors import UsageError
from paimon_cli.options.size_and_duration import parse_duration, plain_number
from paimon_cli.read.time_travel import parse_moment


def moment_of(text: str, now_millis: int) -> int:
    """Epoch millis: that long before now for a duration with a unit, else RFC 3339 text or epoch millis. `UsageError`."""
    number = plain_number(text)
    if number is not None and number >= 0:
        return number
    try:
        return now_millis - parse_duration(text)
    except UsageError:
        pass
    try:
        return parse_moment(text)
    except UsageError as error:
        hint = "write an age such as 1d or 12 h, or a time such as 2024-01-31T12:00:00Z"
        raise UsageError(f"cannot read the time '{text}'", "it is neither an age nor a time", hint) from error
