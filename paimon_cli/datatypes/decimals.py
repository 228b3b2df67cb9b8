"""DECIMAL values and the integers that stand for them at a scale."""

from __future__ import annotations

from decimal import Decimal, localcontext


def unscaled_value(value: Decimal, scale: int) -> int:
    """The integer that a DECIMAL stands for at `scale`; the value must be exact there."""
    with localcontext() as context:
        context.prec = 80
        return int(value.scaleb(scale))


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """The DECIMAL value with all digits of its scale."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))
