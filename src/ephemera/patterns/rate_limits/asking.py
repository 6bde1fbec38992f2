"""The words of one run of `lua/rate_limits_take.lua`, and whom to believe about the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ephemera.wire import Script

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ephemera.patterns.rate_limits.claims import Claim

TAKE = Script.load("ephemera.patterns", "rate_limits_take")

_PATIENT = 2
"""Attempts that heed the server's word on the window; after them, nodes of a cluster disagree on the time."""


def plan(claims: Iterable[Claim], cost: int, mode: Literal["t", "p"], attempt: int) -> tuple[bytes]:
    """What the script takes for these claims, at a cost for those that have none of their own."""
    letter = mode if attempt < _PATIENT else mode.upper()
    return (letter.encode() + b"".join([claim.words(cost) for claim in claims]),)
