"""Password attempts from addresses that had too many wrong ones: checked one at a time, in random order.

Refusing an address outright would lock out an operator who shares it with an attacker, behind a NAT or a
proxy. So its attempts wait, and once a second one of them is drawn and its password checked. All that wait
have the same chance; and guesses are as few as turns, however many are sent. The same password sent many
times waits once, and only its last requests do: each keeps a connection open.

What waits is bounded. When it is too much, an attempt of the address with the most of them is refused,
drawn at random, so that a flood from one address costs the others nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from hashlib import sha256

INTERVAL = 1.0
"""Seconds between two checks of one address."""
_PATIENCE = 20.0  # seconds that an attempt waits at most
_MAX_WAITING = 200  # attempts, of all addresses together
_MAX_OF_ADDRESS = 50  # attempts of one address
_MAX_REQUESTS = 3  # with the same attempt

_random = secrets.SystemRandom()


class _Attempt:
    """A user and a password, and the requests that wait with them, the oldest first."""

    def __init__(self) -> None:
        self.requests: list[asyncio.Future[bool]] = []

    def join(self) -> asyncio.Future[bool]:
        """Add a request, in place of the oldest one if there are too many; whether it gets a turn."""
        if len(self.requests) == _MAX_REQUESTS:
            _answer(self.requests.pop(0), False)
        turn = asyncio.get_running_loop().create_future()
        self.requests.append(turn)
        return turn

    def leave(self, turn: asyncio.Future[bool]) -> None:
        """Remove a request that waits no more."""
        if turn in self.requests:
            self.requests.remove(turn)

    def end(self, has_turn: bool) -> None:
        """Give all requests their turn, or refuse them."""
        for turn in self.requests:
            _answer(turn, has_turn)


class WaitingAttempts:
    """The attempts that wait, by address."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._lines: dict[str, dict[bytes, _Attempt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, address: str, user: str, password: str) -> bool:
        """Wait for a turn; returns False if the attempt is refused unread."""
        digest = sha256(repr((user, password)).encode("utf-8", "surrogatepass")).digest()
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = {}
            task = asyncio.create_task(self._take_turns(address, line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        attempt = line.setdefault(digest, _Attempt())
        turn = attempt.join()
        self._refuse_excess()
        try:
            async with asyncio.timeout(_PATIENCE):
                return await turn
        except TimeoutError:
            return False
        finally:
            attempt.leave(turn)
            if not attempt.requests and line.get(digest) is attempt:
                del line[digest]

    async def _take_turns(self, address: str, line: dict[bytes, _Attempt]) -> None:
        while line:
            await asyncio.sleep(self._interval)
            if line:
                line.pop(_random.choice(list(line))).end(True)
        del self._lines[address]

    def _refuse_excess(self) -> None:
        longest = max(self._lines.values(), key=len)
        waiting = sum(map(len, self._lines.values()))
        if len(longest) > _MAX_OF_ADDRESS or waiting > _MAX_WAITING:
            longest.pop(_random.choice(list(longest))).end(False)


def _answer(turn: asyncio.Future[bool], has_turn: bool) -> None:
    if not turn.done():  # its request may have been cancelled
        turn.set_result(has_turn)
