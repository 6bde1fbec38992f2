"""The parts of the fault campaign: its schedule, its proxies, its clocks and its books do what they say."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from ephemera.embedded import Valkey
from tests.chaos.campaign import shifted_clock
from tests.chaos.campaign.ledger import Ledger, Timeline
from tests.chaos.campaign.load.charges import Job, bounds
from tests.chaos.campaign.load.limits import Admitted, LimitBook
from tests.chaos.campaign.proxy import TROUBLES, Network, Proxy
from tests.chaos.campaign.schedule import FAST, KINDS, LINES, schedule, targets

_MEMBERS = ("identity-0", "identity-1", "slides-worker-0")
_ALL = (
    *("identity-0", "identity-1", "slides-0", "slides-1", "slides-worker-0", "slides-worker-1"),
    *("scripture-0", "scripture-1", "feed-0", "feed-1", "feed-worker-0", "feed-worker-1"),
    *("league-0", "league-1"),
)
_PATIENCE = 60.0  # seconds
_ANSWER = b"-NOAUTH Authentication required.\r\n"


def test_a_seed_repeats_the_same_faults() -> None:
    """A schedule follows from its seed alone, and another seed gives another one."""
    assert schedule(7, 600, _MEMBERS) == schedule(7, 600, _MEMBERS)
    assert schedule(7, 600, _MEMBERS) != schedule(8, 600, _MEMBERS)


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_occurs_before_one_repeats(seed: int) -> None:
    """A short campaign has each kind of fault, however short, and no fault is longer than its pace allows."""
    faults = schedule(seed, 5, _MEMBERS, pace=FAST)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert all(fault.seconds <= FAST.fault[1] for fault in faults)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)


@pytest.mark.parametrize("seed", range(50))
def test_every_target_is_hit_before_one_repeats(seed: int) -> None:
    """Half an hour has every kind of fault against all its targets, one of each sort of process first."""
    faults = schedule(seed, 1800, _ALL)
    assert faults == schedule(seed, 1800, _ALL)
    for kind in KINDS:
        possible = targets(kind, _ALL)
        hit = [fault.target for fault in faults if fault.kind == kind]
        for first in range(0, len(hit), len(possible)):
            pile = hit[first : first + len(possible)]
            assert len(set(pile)) == len(pile)
        assert set(hit) == set(possible)
        sorts = {target.rstrip("0123456789") for target in possible}
        assert {target.rstrip("0123456789") for target in hit[: len(sorts)]} == sorts


def test_a_line_gets_every_trouble() -> None:
    """Each line is cut, frozen, half-open and slow before one of these repeats."""
    faults = schedule(1, 1800, _ALL, only=["network"])
    assert {(fault.target, fault.how) for fault in faults[:12]} == set(product(LINES, TROUBLES))


def test_only_the_requested_kinds_occur() -> None:
    """`--only` excludes all others."""
    assert {fault.kind for fault in schedule(1, 300, _MEMBERS, only=["clock", "kill"])} == {"clock", "kill"}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """The proxies of this file."""
    with Network() as running:
        yield running


@pytest.fixture
def line(network: Network, server: Valkey) -> Proxy:
    """A line to a server."""
    return network.proxy(server.port)


def _connected(line: Proxy) -> socket.socket:
    """A connection without the password: whether there is an answer is what matters."""
    connection = socket.create_connection(("127.0.0.1", line.port), _PATIENCE)
    assert _asked(connection) == _ANSWER
    return connection


def _asked(connection: socket.socket) -> bytes:
    connection.sendall(b"PING\r\n")
    return connection.recv(100)


def test_a_cut_line_resets_and_refuses_connections(network: Network, line: Proxy) -> None:
    """Existing and new connections are reset until the line is healed."""
    with _connected(line) as before:
        network.trouble(line, "cut")
        with pytest.raises(ConnectionResetError):
            before.recv(100)
    assert _refused(line.port)
    network.heal(line)
    _connected(line).close()


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def _refused(port: int) -> bool:
    """Whether a new connection is ended at once."""
    try:
        with socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection:
            return _ended(connection)
    except ConnectionResetError:
        return True


def test_a_frozen_line_holds_what_is_sent_until_it_is_healed(network: Network, line: Proxy) -> None:
    """Bytes arrive late and complete, over the same connection."""
    with _connected(line) as connection:
        network.trouble(line, "freeze")
        connection.sendall(b"PING\r\n")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        connection.settimeout(_PATIENCE)
        network.heal(line)
        assert connection.recv(100) == _ANSWER


def test_a_half_open_line_loses_the_answers_alone(
    network: Network, line: Proxy, server: Valkey, key: str
) -> None:
    """A request takes effect, its answer is lost, and healing ends the connection."""
    with _connected(line) as connection:
        connection.sendall(f"AUTH {server.password}\r\n".encode())
        assert connection.recv(100) == b"+OK\r\n"
        network.trouble(line, "half-open")
        connection.sendall(f"SET {key} there\r\n".encode())
        deadline = time.monotonic() + _PATIENCE
        while server.ask("GET", key) != "there":
            assert time.monotonic() < deadline
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        connection.settimeout(_PATIENCE)
        network.heal(line)
        assert _ended(connection)


def test_a_slow_line_is_late_both_ways(network: Network, line: Proxy) -> None:
    """A request and its answer each take at least the delay."""
    with _connected(line) as connection:
        network.trouble(line, "delay", 0.1)
        began = time.monotonic()
        assert _asked(connection) == _ANSWER
        assert time.monotonic() - began >= 0.2
        network.heal(line)


_LOOKS = """
import struct, sys, time
from datetime import UTC, datetime
from pathlib import Path
from tests.chaos.campaign import shifted_clock
shifted_clock.install(Path(sys.argv[1]))
for line in sys.stdin:
    shown = (time.time(), time.time_ns() / 1e9, datetime.now(UTC).timestamp())
    print(*shown, time.monotonic(), flush=True)
"""


def test_a_clock_jumps_in_a_running_process(tmp_path: Path) -> None:
    """Every way to read the time is off by the same amount at once; timers are not affected."""
    clock = tmp_path / "clock"
    shifted_clock.make(clock)
    command = [sys.executable, "-c", _LOOKS, str(clock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as looking:
        assert looking.stdin is not None
        assert looking.stdout is not None
        for wrong_by in (0.0, 7200.0, -86_400.0, 0.0):
            shifted_clock.jump(clock, wrong_by)
            before = time.time(), time.monotonic()
            looking.stdin.write("\n")
            looking.stdin.flush()
            *shown, monotonic = map(float, looking.stdout.readline().split())
            after = time.time(), time.monotonic()
            for each in shown:
                assert before[0] - 0.1 <= each - wrong_by <= after[0] + 0.1
            assert before[1] <= monotonic <= after[1]
        looking.stdin.close()
    assert struct.unpack("d", clock.read_bytes()) == (0.0,)


def test_an_exceeded_limit_is_found_unless_counting_restarted() -> None:
    """Six of five is a finding, unless the queue was unavailable in between."""
    ledger = Ledger()
    for subject in ("greedy", "excused"):
        book = LimitBook(ledger, "identity", f"sign-ins of the {subject}", 5, 3600)
        for number in range(6):
            book.admit("10.0.0.1", Admitted(100.0 + number, 100.5 + number))
        ledger.timeline.note("cache", 102.6, 102.7)  # it has no counters
        book.check()
        ledger.timeline.note("queue", 102.6, 102.7)
    (found,) = ledger.violations
    assert "the greedy: 6 were admitted" in found


def test_a_limit_counts_again_after_its_time() -> None:
    """Admissions in different windows are no finding."""
    ledger = Ledger()
    book = LimitBook(ledger, "league", "live", 2, 10)
    for at in (0.0, 4.0, 10.5, 14.5):
        book.admit("a subject", Admitted(at, at + 0.1))
    book.check()
    assert ledger.violations == []


_COST = (1, 4, 500)


def test_a_missing_or_double_charge_is_found() -> None:
    """A settled presentation is charged once, an unsettled one at most once."""
    jobs = [Job("acme", _COST, 10.0, 11.0), Job("acme", _COST, 20.0, None), Job("other", _COST, None, None)]
    found = bounds(jobs, [])
    assert found["acme"].lacks((0, 0, 0))
    assert not found["acme"].lacks(_COST)
    assert not found["acme"].exceeds((2, 8, 1000))
    assert found["acme"].exceeds((3, 12, 1500))
    assert found["acme"].exceeds((2, 8, 1001))
    assert not found["other"].lacks((0, 0, 0))
    assert found["other"].exceeds((2, 8, 1000))


@pytest.mark.parametrize(
    ("crash", "excused"), [((8.0, 9.9), 0), ((9.5, 10.5), 1), ((10.8, 13.0), 1), ((11.1, 14.0), 0)]
)
def test_a_charge_is_in_doubt_only_where_the_master_died_while_it_was_settled(
    crash: tuple[float, float], excused: int
) -> None:
    """A crash before the filing or after the settlement excuses nothing, and none excuses a second charge."""
    found = bounds([Job("acme", _COST, 10.0, 11.0)], [crash])["acme"]
    assert found.in_doubt == excused
    assert found.lacks((0, 0, 0)) == (not excused)
    assert found.exceeds((2, 8, 1000))


def test_the_timeline_records_disturbances() -> None:
    """A part is disturbed during a fault and shortly after; other parts are not."""
    timeline = Timeline()
    timeline.note("queue", 10, 20)
    assert timeline.disturbed(("queue",), 15, 16)
    assert timeline.disturbed(("queue", "cache"), 21, 22)
    assert not timeline.disturbed(("queue",), 30, 31)
    assert not timeline.disturbed(("cache",), 15, 16)
    number = timeline.begin("cache")
    now = time.monotonic()
    assert timeline.disturbed(("cache",), now, now + 1)
    timeline.end(number)


def test_the_command_explains_itself() -> None:
    """`--help` has examples and every kind of fault; a wrong one is refused with exit code 2."""
    helped = subprocess.run(
        [sys.executable, "-m", "tests.chaos.campaign", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "python -m tests.chaos.campaign --minutes 30 --report" in helped.stdout
    assert all(kind in helped.stdout for kind in KINDS)
    wrong = subprocess.run(
        [sys.executable, "-m", "tests.chaos.campaign", "--only", "fire"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert wrong.returncode == 2
