"""The second connection to a server, for slow calls: scripts of unknown cost, SCAN, a long `timeout`.

On the shared connection a slow call would hold up the replies of all calls behind it, and a connection that
is given up because of it would fail all of them. A server runs one command at a time, so while a long script
runs the fast calls wait as well, whatever their connection; but then the silence is expected, and no reason
to give up either connection before the slow call's own time is over (`slow_timeout`, or a longer `timeout`).
That time counts from the last reply to a slow call, so a frozen server is noticed although further slow calls
are made. A call that its caller has cancelled still keeps the server busy, and counts until it is answered.

The connection is opened by the first slow call. Calls on the two connections may be executed in another order
than they were made in: await the first before a second that needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ephemera._futures import discard
from ephemera.errors import EphemeraError, ServerError
from ephemera.wire._commands import MAY_HOLD_THE_SERVER, Arg
from ephemera.wire._connection import Entry, refuse_other_loop
from ephemera.wire._link import Link


class SlowLane:
    """Slow calls to one server, beside the link for its fast ones."""

    def __init__(
        self,
        fast: Link,
        redirect: Callable[[Entry, ServerError], bool] | None,
        on_push: Callable[[list[Any]], None],
    ) -> None:
        self._fast = fast
        self._redirect = redirect
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._calls: set[_SlowCall] = set()
        """With the server, and not answered."""
        self._moved_at = 0.0  # the loop's time of the last answer, or of the first call after that

    def call(self, args: tuple[Arg, ...], timeout: float | None) -> asyncio.Future[Any]:
        """Send a slow call; the server may be silent for `slow_timeout`, or for a longer `timeout`."""
        refuse_other_loop(self._loop)
        if not self._fast.up:
            return self._fast.send_args(args)  # which says why
        target = self._fast.endpoint.target
        usual = target.slow_timeout if args[0] in MAY_HOLD_THE_SERVER else target.timeout
        call = _SlowCall(self, self._loop.create_future(), max(usual, timeout or 0.0))
        if self._link is not None and self._link.up:
            self._link.send_args_to(call, args)
            self._begin(call)
        else:
            self._open().add_done_callback(lambda opening: self._send(opening, args, call))
        return call.reply

    def expects_silence(self) -> bool:
        """Whether a slow call is running that may keep the server busy."""
        longest = max((call.silence for call in self._calls), default=0.0)
        return self._loop.time() < self._moved_at + longest

    def drop(self, problem: str) -> None:
        """End the present connection."""
        if self._link is not None:
            self._link.drop(problem)

    def restart(self) -> None:
        """Have the next call open a connection, with the present setup."""
        link, self._link = self._link, None
        if link is not None:
            task = self._loop.create_task(link.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Disconnect."""
        if self._opening is not None:
            await asyncio.wait((self._opening,))
        if self._link is not None:
            await self._link.aclose()
        await asyncio.gather(*self._closing)

    def end(self, call: _SlowCall) -> None:
        """Note that a call was answered, or is lost."""
        self._calls.discard(call)
        self._moved_at = self._loop.time()

    def _begin(self, call: _SlowCall) -> None:
        if not self._calls:
            self._moved_at = self._loop.time()
        self._calls.add(call)

    def _open(self) -> asyncio.Task[Link]:
        if self._opening is None:
            self._opening = self._loop.create_task(self._connect())
            discard(self._opening)
        return self._opening

    async def _connect(self) -> Link:
        try:
            self.restart()
            link = Link(
                self._fast.endpoint,
                redirect=self._redirect,
                on_push=self._on_push,
                expects_silence=self.expects_silence,
            )
            # The fast connection is already notified about all keys with a prefix.
            link.setup = [words for words in self._fast.setup if "BCAST" not in words]
            link.latencies = self._fast.latencies
            await link.start()
            self._link = link
            return link
        finally:
            self._opening = None

    def _send(self, opening: asyncio.Task[Link], args: tuple[Arg, ...], call: _SlowCall) -> None:
        if call.reply.done():
            return
        try:
            opening.result().send_args_to(call, args)
            self._begin(call)
        except (EphemeraError, TypeError) as error:
            call.reply.set_exception(error)
        except asyncio.CancelledError:
            call.reply.cancel()


class _SlowCall:
    """A call with the server: over when it is answered, even if its caller no longer waits."""

    def __init__(self, lane: SlowLane, reply: asyncio.Future[Any], silence: float) -> None:
        self.reply = reply
        self.silence = silence
        """Seconds for which it may keep the server busy."""
        self._lane = lane
        self._is_over = False

    def done(self) -> bool:
        return self._is_over

    def set_result(self, result: Any) -> None:
        self._end()
        if not self.reply.done():
            self.reply.set_result(result)

    def set_exception(self, exception: BaseException) -> None:
        self._end()
        if not self.reply.done():
            self.reply.set_exception(exception)

    def _end(self) -> None:
        self._is_over = True
        self._lane.end(self)
