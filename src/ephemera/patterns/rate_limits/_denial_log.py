"""Who is being throttled, for operators: a list in Redis of those who were denied, by which rule, until when.

A limit's own keys do not say it: which limit held for a subject (a tier, one agreed with a customer) is known
to the process that checks alone. So each process lists its denials, gathered for a moment and sent together:
at most two commands a second and some hundred denials each, whatever hammers. A denial that is remembered is
listed once. A list that cannot be written is not worth failing for: the denial is what counts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.keyspace import FieldCodec, Keyspace, SortedSetAccessor
from ephemera.patterns.rate_limits._claims import Claim
from ephemera.wire import Client, Script

NOTE = Script.load("ephemera.patterns.rate_limits", "note")
LISTED = 1000
"""Denials that are listed at most, for the rules of one declaration."""

_PAUSE = 0.5  # seconds for which denials are gathered
_GATHERED = 200  # denials that one command lists
_FIELD = FieldCodec()
"""Subjects are listed as keys have them: any text or bytes, while JSON takes UTF-8 alone."""


class Denied(NamedTuple):
    """One denial in the list: a rule at a limit and a cost, on a subject, as it was given but as text."""

    rule: str
    limit: int
    cost: int
    subject: tuple[str, ...]


class NotedDenials:
    """Lists the denials of one process."""

    def __init__(self, client: Client, space: Keyspace[SortedSetAccessor[str]]) -> None:
        self._client = client
        self._key = space.key()
        self._life = space.lifetime.milliseconds or 0
        self._gathered: dict[bytes, int] = {}
        self._sending: asyncio.Task[None] | None = None

    def note(self, claim: Claim, cost: int, now: int, wait: int) -> None:
        """Have a denial listed until there is room: `wait` ms after `now`, or for a period if never."""
        if len(self._gathered) < _GATHERED:
            until = now + (wait if wait > 0 else claim.rule.algorithm.per)
            self._gathered[_written(claim, cost)] = until
        if self._sending is None:
            loop = asyncio.get_running_loop()
            self._sending = loop.create_task(self._send(), name="ephemera-rate-limits-noting")

    async def forget(self, claim: Claim) -> None:
        """Take a subject off the list whose limit was reset; not worth failing for."""
        named = (claim.rule.name, _subject(claim))
        for text in [text for text in self._gathered if _is_of(named, text)]:
            del self._gathered[text]
        with suppress(ConnectionFailed, ServerError):
            listed = await self._client.call("ZRANGE", self._key, 0, LISTED)
            if found := [text for text in listed if _is_of(named, text)]:
                await self._client.call("ZREM", self._key, *found)

    async def aclose(self) -> None:
        """Send nothing more."""
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending

    async def _send(self) -> None:
        await asyncio.sleep(_PAUSE)
        self._sending = None
        gathered, self._gathered = self._gathered, {}
        words: list[Any] = [self._life, LISTED]
        for text, until in gathered.items():
            words += (until, text)
        if gathered:
            with suppress(ConnectionFailed, ServerError, StoreClosed):
                await self._client.run(NOTE, (self._key,), words)


def read(text: bytes) -> Denied | None:
    """A denial of the list; None for what is none of ours."""
    if (denied := _decoded(text)) is None:
        return None
    subject = tuple(map(_FIELD.decode, denied.subject))
    return None if None in subject else denied._replace(subject=cast("tuple[str, ...]", subject))


def _written(claim: Claim, cost: int) -> bytes:
    return msgspec.json.encode(Denied(claim.rule.name, claim.limit, cost, _subject(claim)))


def _subject(claim: Claim) -> tuple[str, ...]:
    return tuple(map(_FIELD.encode, claim.subject))


def _decoded(text: bytes) -> Denied | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(text, type=Denied)
    return None


def _is_of(named: tuple[str, tuple[str, ...]], text: bytes) -> bool:
    denied = _decoded(text)
    return denied is not None and (denied.rule, denied.subject) == named
