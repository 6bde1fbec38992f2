"""A socket for short exchanges with a server nearby: it sends under the lock, and looks before it sleeps.

Python releases the interpreter's lock around each system call. A thread that sends a few bytes so has to wait
for the lock again, microseconds later, behind all threads that wait for it too. So where several threads
make calls, a short command is sent without giving up the lock; the call cannot block.

A thread that blocks for its reply is put to sleep and woken up, which takes longer than a server nearby needs
to answer. So where one thread makes calls, it first looks for the reply a number of times, for about 50
microseconds, as Linux does for network cards (SO_BUSY_POLL). After a reply that took longer it does not look
for a while, then for a longer while, so that little is lost where the server is far or shares the processor.

With eight threads the first takes a third off the time of a call, with one thread the second does, and both
take no more processor time than before: rows "sync: 8 threads, call" and "sync: one thread, call".
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable

_SHORT = 16384  # bytes; to copy more takes the kernel a while, in which other threads should run
_CHUNK = 65536  # bytes that are read at once
_LOOKS = 100
_REST = 50  # replies that are not looked for after one that was late; after the next, twice as many
_LONGEST_REST = 10_000
_AT_ONCE = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

_send = ctypes.PyDLL(None).send  # keeps the lock
_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_send.restype = ctypes.c_ssize_t
_receive = ctypes.CDLL(None).recv  # releases it: other threads may compute
_receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_receive.restype = ctypes.c_ssize_t


class PromptSocket:
    """Sends and receives on a socket that stays the caller's: a plain one that blocks, and is open."""

    __slots__ = ("_address", "_buffer", "_descriptor", "_receive", "_rest", "_resting", "_sendall")

    def __init__(self, connected: socket.socket) -> None:
        self._descriptor = connected.fileno()
        self._sendall = socket.socket.sendall.__get__(connected)
        self._receive = socket.socket.recv.__get__(connected)
        self._buffer = ctypes.create_string_buffer(_SHORT)
        self._address = ctypes.addressof(self._buffer)
        self._rest = _REST
        self._resting = 0

    def send(self, data: bytes, is_alone: bool) -> None:
        """Send all of it, as `socket.sendall`; `is_alone` when no other thread waits for a reply."""
        size = len(data)
        if is_alone or size > _SHORT:
            self._sendall(data)
            return
        sent = _send(self._descriptor, data, size, _AT_ONCE)
        if sent != size:  # there is no room for all of it, or there is an error, which this raises
            self._sendall(data[max(sent, 0) :])

    def receive(self, is_alone: bool) -> bytes:
        """Receive what has arrived, as `socket.recv`."""
        if is_alone and not self._resting:
            for _ in range(_LOOKS):
                size = _receive(self._descriptor, self._address, _SHORT, socket.MSG_DONTWAIT)
                if size >= 0:
                    self._rest = _REST
                    return ctypes.string_at(self._address, size)
            self._resting = self._rest = min(2 * self._rest, _LONGEST_REST)
        elif is_alone:
            self._resting -= 1
        data: bytes = self._receive(_CHUNK)
        return data


def prompt_calls(
    connected: socket.socket, *, is_plain: bool
) -> tuple[Callable[[bytes, bool], None], Callable[[bool], bytes]]:
    """`send` and `receive` of a prompt socket; of the socket itself if that is TLS's or gevent's."""
    if is_plain:
        prompt = PromptSocket(connected)
        return prompt.send, prompt.receive
    return lambda data, _: connected.sendall(data), lambda _: connected.recv(_CHUNK)
