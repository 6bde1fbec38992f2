"""Money in whole numbers: millionths of a unit, so that a call that costs a thousandth of a cent counts."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from ephemera.errors import InvalidValue

_MILLION = 1_000_000


def micros(amount: Decimal | str | float) -> int:
    """An amount of money in millionths: `micros("0.00042") == 420`, to the nearest."""
    try:
        exact = Decimal(repr(amount) if isinstance(amount, float) else amount)
        return int((exact * _MILLION).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, OverflowError, TypeError):
        raise InvalidValue("micros", "an amount of money", repr(amount)) from None


def money(amount: int) -> Decimal:
    """Millionths as an exact amount: `money(420) == Decimal("0.00042")`."""
    return Decimal(amount) / _MILLION
