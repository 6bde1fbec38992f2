"""The script `take.lua` at any time: run unchanged except for the clock, which is the test's own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ephemera import sync
from ephemera.embedded import Valkey
from ephemera.patterns.rate_limits._claims import TAKE, Algorithm, SlidingWindow, TokenBucket
from ephemera.sync import SyncStore
from tests.patterns.limit_fixtures import new_subject

_SCRIPT = TAKE.source.replace("redis.call('TIME')", "{ARGV[2], ARGV[3]}")
_START = (int(time.time()) + 86_400) * 1_000_000  # microseconds; ahead, or the server would expire the keys
_PER = 1000

steps = st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 4)), min_size=1, max_size=40)
"""Microseconds to the next check, and its cost."""

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def store(server: Valkey) -> Iterator[SyncStore]:
    """A synchronous store."""
    with sync.connect(server.url) as opened:
        yield opened


class Clocked:
    """One subject's limit, at moments that the test chooses."""

    def __init__(self, store: SyncStore, algorithm: Algorithm, limit: int) -> None:
        self._store = store
        self._key = f"clocked:{new_subject()}"
        self._head = algorithm.kind[0].encode()
        self._settings = algorithm.settings(limit)

    def check(self, moment: int, cost: int, mode: bytes = b"t") -> tuple[bool, int]:
        """Return whether there was room at this microsecond, and if not, the milliseconds to wait."""
        packed = [number.to_bytes(6, "big") for number in (cost, *self._settings)]
        arguments = mode + self._head + b"".join(packed)
        reply = self._store.call("EVAL", _SCRIPT, 1, self._key, arguments, *divmod(moment, 1_000_000))
        if isinstance(reply, bytes):
            assert int.from_bytes(reply[:6], "big") == moment // 1000
            return True, 0
        return reply[0] == 1, reply[3]


@many
@given(steps, st.sampled_from([4, 60, 61, 90]))
def test_no_window_ever_holds_more_than_the_limit(
    store: SyncStore, taken: list[tuple[int, int]], limit: int
) -> None:
    """For any sequence of checks, the last `per` never hold more than the limit, by the microsecond."""
    clocked, moment = Clocked(store, SlidingWindow(_PER), limit), _START
    admitted: list[tuple[int, int]] = []
    for wait, cost in taken:
        moment, cost = moment + wait // (1 if limit < 10 else 8), cost * (1 if limit < 10 else 9)
        if clocked.check(moment, cost)[0]:
            admitted.append((moment, cost))
        assert sum(units for at, units in admitted if at > moment - _PER * 1000) <= limit


@many
@given(steps)
def test_an_exact_log_denies_only_above_the_limit(store: SyncStore, taken: list[tuple[int, int]]) -> None:
    """Up to sixty units a unit counts for its millisecond and the window after it, and no longer."""
    clocked, moment = Clocked(store, SlidingWindow(_PER), 5), _START
    admitted: list[tuple[int, int]] = []
    for wait, cost in taken:
        moment += wait
        used = sum(units for at, units in admitted if at // 1000 + 1 + _PER > moment // 1000)
        allowed, wait_ms = clocked.check(moment, cost)
        assert allowed == (used + cost <= 5)
        if allowed:
            admitted.append((moment, cost))
        else:
            assert not clocked.check(moment + (wait_ms - 1) * 1000, cost, b"p")[0]
            assert clocked.check(moment + wait_ms * 1000, cost, b"p")[0]


@many
@given(steps, st.sampled_from([61, 100, 1000]))
def test_a_coarse_log_announces_when_there_is_room(
    store: SyncStore, taken: list[tuple[int, int]], limit: int
) -> None:
    """Also above sixty units there is room at the announced moment, at most one grain late."""
    algorithm = SlidingWindow(_PER)
    clocked, moment = Clocked(store, algorithm, limit), _START
    admitted: list[tuple[int, int]] = []
    for wait, cost in taken:
        moment, cost = moment + wait // 8, cost * limit // 6
        allowed, wait_ms = clocked.check(moment, cost)
        if allowed:
            admitted.append((moment, cost))
            continue
        assert clocked.check(moment + wait_ms * 1000, cost, b"p")[0]
        late = moment + wait_ms * 1000 - (algorithm.grain(limit) + 1) * 1000
        assert sum(units for at, units in admitted if at > late - _PER * 1000) + cost > limit


@many
@given(steps, st.integers(1, 30), st.integers(1, 8))
def test_a_bucket_is_gcra(store: SyncStore, taken: list[tuple[int, int]], limit: int, burst: int) -> None:
    """It agrees with textbook GCRA to the microsecond, and its waits to the millisecond."""
    algorithm = TokenBucket(_PER, limit, burst)
    clocked, moment, full = Clocked(store, algorithm, limit), _START, 0
    interval = -(-_PER * 1_000_000 // limit)  # nanoseconds
    capacity = -(-burst * interval // 1000)
    for wait, cost in taken:
        moment += wait
        after = max(full, moment) - (-cost * interval // 1000)
        allowed, wait_ms = clocked.check(moment, cost)
        assert allowed == (after - moment <= capacity)
        if allowed:
            full = after
        elif cost > burst:
            assert wait_ms == -1
        else:
            assert wait_ms == -((moment + capacity - after) // 1000)


def test_a_clock_that_is_set_back_admits_no_more(store: SyncStore) -> None:
    """Units taken at a time that is now in the future stay counted until it has passed."""
    for algorithm in (SlidingWindow(_PER), TokenBucket(_PER, 5, 5)):
        clocked = Clocked(store, algorithm, 5)
        assert clocked.check(_START, 3)[0]
        assert clocked.check(_START - 500_000, 2)[0] == (algorithm.kind == "sliding")
        assert not clocked.check(_START - 500_000, 1)[0]
        assert not clocked.check(_START + 100_000, 3)[0]
        assert clocked.check(_START + 1_002_000, 5)[0]
