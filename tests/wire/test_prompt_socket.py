"""Sockets for short exchanges: everything arrives, late data is waited for, errors are those of sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from ephemera.wire import limit_blocking, prompt_calls

SOON = 20  # seconds


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    near, far = socket.socketpair()
    limit_blocking(near, SOON)
    far.settimeout(SOON)
    with near, far:
        yield near, far


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("is_plain", [True, False])
def test_data_of_any_size_arrives_unchanged(
    ends: tuple[socket.socket, socket.socket], is_alone: bool, is_plain: bool
) -> None:
    """A byte, zeros, what fills the buffers of the kernel, and what is too long to be sent under the lock."""
    near, far = ends
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    send, receive = prompt_calls(near, is_plain=is_plain)
    for piece in (b"\0", b"a\0b" * 1000, b"c" * 16_000, b"d" * 3_000_000):
        echo = threading.Thread(target=_echo, args=(far, len(piece)), daemon=True)
        echo.start()
        send(piece, is_alone)
        found = b""
        while len(found) < len(piece):
            found += receive(is_alone)
        assert found == piece
        echo.join(SOON)


def _echo(far: socket.socket, size: int) -> None:
    """Send back this many bytes when all of them have arrived."""
    data = b""
    while len(data) < size:
        data += far.recv(65536)
    far.sendall(data)


def test_a_reply_that_is_late_is_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    """The first was looked for and not found; what follows, late and early, arrives all the same."""
    near, far = ends
    _, receive = prompt_calls(near, is_plain=True)
    for number in range(200):
        timer = threading.Timer(0.001 if number % 50 == 0 else 0, far.sendall, (b"%d" % number,))
        timer.start()
        assert receive(True) == b"%d" % number
        timer.join(SOON)


@pytest.mark.parametrize("is_alone", [True, False])
def test_ends_and_timeouts_are_those_of_sockets(
    ends: tuple[socket.socket, socket.socket], is_alone: bool
) -> None:
    """Silence is `BlockingIOError`, an end is no data, and to send afterwards is `BrokenPipeError`."""
    near, far = ends
    send, receive = prompt_calls(near, is_plain=True)
    limit_blocking(near, 0.01)
    with pytest.raises(BlockingIOError):
        receive(is_alone)
    far.close()
    assert receive(is_alone) == b""
    with pytest.raises(BrokenPipeError):
        send(b"a", is_alone)
