"""CORE17: threads that shared a rule saw a claim half in one window and half in the next."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from ephemera.keyspace import Catalogue
from ephemera.patterns.rate_limits import RateLimits, fixed_window
from ephemera.patterns.rate_limits._claims import Claim, JointClaim, keys_and_arguments, roll_window

RULES = [
    fixed_window(name, 10, per=timedelta(minutes=1), key=f"core17:{name}:{{who}}:{{window_start}}")
    for name in ("a", "b")
]
LIMITS = RateLimits(Catalogue("core17"), "core17", *RULES)
MINUTE = 60_000


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.parametrize("joint", [False, True], ids=["one claim", "two claims"])
def test_core17_a_claim_is_in_one_window_at_a_time(joint: bool) -> None:
    """While other threads move it, its bounds, its keys and its prepared check are of the same window."""
    claims = tuple(rule.on("ann") for rule in RULES)
    claim: Claim | JointClaim = JointClaim(claims) if joint else claims[0]
    stop = threading.Event()

    def move(step: int) -> None:
        now = 0
        while not stop.is_set():
            now += step
            roll_window(claim, now)

    movers = [threading.Thread(target=move, args=(step,)) for step in (MINUTE, 7 * MINUTE)]
    for mover in movers:
        mover.start()
    try:
        for _ in range(3000):
            starts, ends, keys, script = claim._current
            prepared = bytes(script)
            if not ends:
                continue
            windows = {key.rpartition(":")[2] for key in keys}
            assert len(windows) == 1
            assert all(key.encode() in prepared for key in keys)
            assert ends - starts == MINUTE
            assert int(starts).to_bytes(6, "big") in prepared
            (key,), (arguments,) = keys_and_arguments(claims[:1], 1, "t", 0)
            window = int(key.rpartition(":")[2]) * 1000
            assert window.to_bytes(6, "big") in arguments
    finally:
        stop.set()
        for mover in movers:
            mover.join()
