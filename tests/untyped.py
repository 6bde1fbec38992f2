"""Values whose type the type checker should not check: arguments that a test passes wrongly on purpose."""

from __future__ import annotations

from typing import Any


def untyped(value: object) -> Any:
    """Return the value, of no particular type."""
    return value
