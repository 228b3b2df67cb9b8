"""FLOAT and DOUBLE as text, exactly as Java before 19 prints them: its digits are not always the shortest (Double.toString).

Casts to text use this form, and so do partition directories written by those versions of Java.
"""

from __future__ import annotations

import math
import struct

_DOUBLE_BITS, _FLOAT_BITS = 53, 24
_PLAIN_LOW, _PLAIN_HIGH = -3, 8


def java_double_text(value: float) -> str:
    """A DOUBLE as text, such as `1.0`, `-0.0`, `1.0E10` or `4.9E-324`."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return _text(value, bits >> 52 & 0x7FF, bits & (1 << 52) - 1, _DOUBLE_BITS, 1023)


def java_float_text(value: float) -> str:
    """A FLOAT as text; `value` is the FLOAT widened to a Python float."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return _text(value, bits >> 23 & 0xFF, bits & (1 << 23) - 1, _FLOAT_BITS, 127)


def _text(value: float, biased: int, fraction: int, precision: int, bias: int) -> str:
    """Text of `value`, given its `biased` exponent and `fraction` bits in the IEEE format with `precision` significant bits."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return sign + "Infinity"
    if value == 0:
        return sign + "0.0"
    if biased:
        mantissa, exponent, significant = fraction | 1 << (precision - 1), biased - bias, precision
    else:
        significant = fraction.bit_length()
        mantissa, exponent = fraction << (precision - significant), significant - precision + 1 - bias
    digits, point = _digits(mantissa << (_DOUBLE_BITS - precision), exponent, significant)
    return sign + _formatted(digits, point)


def _digits(mantissa: int, exponent: int, significant: int) -> tuple[str, int]:
    """Decimal digits and position of the decimal point, of mantissa / 2**52 * 2**exponent with `significant` exact bits."""
    zeros = (mantissa & -mantissa).bit_length() - 1
    used = _DOUBLE_BITS - zeros
    if used - exponent - 1 <= 0 and exponent <= 62:
        return _integer_digits(mantissa << exponent >> 52, exponent, significant)
    return _generated_digits(mantissa >> zeros, used, exponent, significant)


def _integer_digits(number: int, exponent: int, significant: int) -> tuple[str, int]:
    """Digits of a whole number, with decimal places below the last significant bit rounded away."""
    dropped = 0
    if exponent > significant:
        dropped = _decimal_digits_below(exponent - significant - 1)
        number, rest = divmod(number, 10**dropped)
        number += dropped > 0 and rest >= 10**dropped >> 1
    digits = str(number)
    return digits.rstrip("0"), len(digits) + dropped


def _decimal_digits_below(bits: int) -> int:
    """Number of decimal places that lie entirely within `bits` binary places."""
    return len(str(1 << bits)) - 1 if bits > 1 else 0


def _generated_digits(mantissa: int, used: int, exponent: int, significant: int) -> tuple[str, int]:
    """Digits generated until the rest is within half a unit of the last significant bit (Steele and White)."""
    estimate = _estimated_decimal_exponent(mantissa, used, exponent)
    tiny = max(0, used - exponent - 1)
    five_up, five_down = max(0, -estimate), max(0, estimate)
    two_value = five_up + tiny + exponent
    two_unit = two_value - significant
    two_value -= used - 1
    two_scale = five_down + tiny
    common = min(two_value, two_scale)
    two_value, two_scale, two_unit = two_value - common, two_scale - common, two_unit - common
    if used == 1:
        two_unit -= 1
    if two_unit < 0:
        two_value, two_scale, two_unit = two_value - two_unit, two_scale - two_unit, 0
    rest, scale, unit = mantissa * 5**five_up << two_value, 5**five_down << two_scale, 5**five_up << two_unit
    value_bits = used + two_value + _five_bits(five_up)
    tens_bits = two_scale + 1 + _five_bits(five_down + 1)
    width = next((bits for bits in (32, 64) if value_bits < bits and tens_bits < bits), 0)
    return _generate(rest, scale, unit, estimate, width)


def _five_bits(power: int) -> int:
    return (5**power).bit_length() if power else 0


def _generate(rest: int, scale: int, unit: int, estimate: int, width: int) -> tuple[str, int]:
    """Digits of rest / scale. `width`: bits of the integers that Java uses, 0 for BigInteger; overflow affects the last digit."""
    digits: list[int] = []
    tens = scale * 10
    low = high = False
    first, exponent_form = True, False
    while first or exponent_form or not (low or high):
        digit, rest = divmod(rest, scale)
        rest, unit = rest * 10, _wrapped(unit * 10, width)
        low, high = _ends(rest, unit, tens, width)
        if first and digit == 0 and not high:
            estimate -= 1
        else:
            digits.append(digit)
        exponent_form = first and not _PLAIN_LOW <= estimate < _PLAIN_HIGH
        first = False
    beyond_half = _wrapped(2 * rest - tens, width)
    if high and (not low or beyond_half > 0 or (beyond_half == 0 and digits[-1] % 2 == 1)):
        return _rounded_up(digits, estimate + 1)
    return "".join(map(str, digits)), estimate + 1


def _ends(rest: int, unit: int, tens: int, width: int) -> tuple[bool, bool]:
    """Whether the rest, and the distance to the next digit, are less than the unit."""
    if width == 0:
        return rest < unit, rest + unit >= tens
    return unit <= 0 or rest < unit, unit <= 0 or _wrapped(rest + unit, width) > tens


def _wrapped(number: int, width: int) -> int:
    """`number` as a signed integer of `width` bits."""
    if width == 0:
        return number
    half = 1 << (width - 1)
    return (number + half) % (2 * half) - half


def _rounded_up(digits: list[int], point: int) -> tuple[str, int]:
    number = str(int("".join(map(str, digits))) + 1)
    carried = len(number) > len(digits)
    return number.rstrip("0") or "0", point + carried


def _estimated_decimal_exponent(mantissa: int, used: int, exponent: int) -> int:
    """Java's linear estimate of floor(log10(value)), which is too high by at most one."""
    normalised = math.ldexp(mantissa, 1 - used)
    return math.floor((normalised - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)


def _formatted(digits: str, point: int) -> str:
    """The digits with the decimal point after `point` of them: plain from 10^-3 to below 10^7, otherwise with an exponent."""
    if 0 < point < 8:
        whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
        return f"{whole}.{fraction or '0'}"
    if _PLAIN_LOW < point <= 0:
        return f"0.{'0' * -point}{digits}"
    return f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"
