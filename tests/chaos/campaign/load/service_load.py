"""The base of all loads: requests to a process over HTTP, their outcomes, and the life cycle of a load.

A request is acknowledged when it was answered with success; refused when the answer says that nothing was
done; and unknown when there was no answer, or an ambiguous one. An actor is a coroutine that runs until the
campaign is over and then finishes what it has begun.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import httpx

from tests.chaos.campaign.processes import Member

if TYPE_CHECKING:
    from tests.chaos.campaign.campaign import World

_PATIENCE = 25.0  # seconds for an answer
_PAUSE = 0.2


class Answer(NamedTuple):
    """A response, with the times of the request and of the response by the monotonic clock."""

    status: int
    headers: httpx.Headers
    content: bytes
    member: Member
    instance: float
    began: float
    ended: float

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return httpx.codes.is_success(self.status)

    def json(self) -> Any:
        """Decode the body."""
        return httpx.Response(self.status, content=self.content).json()


class Load(ABC):
    """The load on one service, and its guarantees; an async context manager."""

    system: str
    patience = 90.0
    """Seconds after the last fault in which the guarantees must hold, on a busy machine."""

    def __init__(self, world: World, folder: Path, *, brief: bool) -> None:
        self.world = world
        self.ledger = world.ledger
        self.timeline = world.ledger.timeline
        self.chance = random.Random(f"{world.seed}:{self.system}")
        self.folder = folder
        self.brief = brief
        self.over = asyncio.Event()
        self.members = self.staff()
        self.services = [member for member in self.members if member.serves]

    async def __aenter__(self) -> Self:
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=2)
        self._client = httpx.AsyncClient(timeout=_PATIENCE, limits=limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @abstractmethod
    def staff(self) -> list[Member]:
        """Return the processes of the service."""

    @abstractmethod
    async def prepare(self) -> None:
        """Create what the load needs, before the first fault."""

    @abstractmethod
    def actors(self) -> list[Callable[[], Awaitable[None]]]:
        """Return concurrent actors; each is called repeatedly until the campaign is over."""

    @abstractmethod
    async def settle(self) -> None:
        """Wait until eventual guarantees hold."""

    @abstractmethod
    async def check(self) -> None:
        """Compare what was acknowledged with what is stored."""

    def member(self, number: int, *arguments: str, **environment: str) -> Member:
        """Return a process of this service, on its servers."""
        role = "" if arguments[0] == "serve" else "worker-"
        where = self.world.servers.environment(self.system)
        name = f"{self.system}-{role}{number}"
        defaults = {"EPHEMERA_TRUSTED_PROXIES": "127.0.0.1", "EPHEMERA_LOG_LEVEL": "warning"}
        return Member(name, self.system, arguments, {**where, **defaults, **environment}, self.folder)

    async def drive(self, over: asyncio.Event) -> None:
        """Run all actors until the campaign is over."""
        self.over = over
        await asyncio.gather(*(self._repeat(actor) for actor in self.actors()))

    async def ask(
        self,
        what: str,
        member: Member,
        method: str,
        path: str,
        *,
        address: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer | None:
        """Send a request, from an address if given; None when there was no answer. Counted as `what`."""
        sent = {"x-forwarded-for": address or self.any_address(), **(headers or {})}
        began, instance = time.monotonic(), member.started_at
        try:
            got = await self._client.request(method, member.url + path, headers=sent, **more)
        except (httpx.TransportError, httpx.InvalidURL):
            self.ledger.unknown[f"{self.system}.{what}"] += 1
            return None
        self._client.cookies.clear()  # actors send their cookies themselves
        answer = Answer(got.status_code, got.headers, got.content, member, instance, began, time.monotonic())
        if answer.ok or answer.status == httpx.codes.NOT_MODIFIED:
            self.ledger.acknowledged[f"{self.system}.{what}"] += 1
        else:
            self.ledger.refused[f"{self.system}.{what} {answer.status}"] += 1
        return answer

    async def request_until_ok(self, what: str, method: str, path: str, **more: Any) -> Answer:
        """Retry on any process until it succeeds: for preparations."""
        for _ in range(100):
            answer = await self.ask(what, self.any_service(), method, path, **more)
            if answer is not None and answer.ok:
                return answer
            await asyncio.sleep(_PAUSE)
        said = "nothing" if answer is None else f"{answer.status} {answer.content[:300]!r}"
        raise RuntimeError(f"{self.system}: {what} failed: {said}")

    def any_service(self) -> Member:
        """Return one of the serving processes."""
        return self.chance.choice(self.services)

    def any_address(self) -> str:
        """Return an address that is unlikely to be in use."""
        return "10." + ".".join(str(self.chance.randrange(256)) for _ in range(3))

    async def rest(self, seconds: float) -> None:
        """Wait, but not past the end of the campaign."""
        try:
            await asyncio.wait_for(self.over.wait(), seconds * self.chance.uniform(0.5, 1.5))
        except TimeoutError:
            return

    async def eventually(self, guarantee: str, missing: Callable[[], Any]) -> None:
        """Wait until nothing is missing; what is missing at the deadline violates the guarantee."""
        deadline = time.monotonic() + self.patience
        while left := await asyncio.to_thread(missing):
            if time.monotonic() > deadline:
                self.ledger.expect(False, self.system, guarantee, f"after {self.patience:g} s: {left}"[:800])
                return
            await asyncio.sleep(_PAUSE)
        self.ledger.expect(True, self.system, guarantee)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Query SQL directly, bypassing the proxies."""
        with self.world.servers.sql(self.system) as sql:
            return sql.execute(statement, values).fetchall()

    def lost_in_a_crash(self, acknowledged_at: float) -> bool:
        """Whether the queue's master died so soon afterwards that its successor may not have it."""
        return any(begun <= acknowledged_at <= end for begun, end in self.timeline.spans("queue-crash"))

    def may_be_cut_off(self, part: str, member: Member, since: float, until: float) -> bool:
        """Whether a process may have been without a server: by a fault, by its log, or while it started."""
        return self.timeline.disturbed((part, member.name, f"stall:{member.name}"), since, until)

    def excuse(self, why: str) -> None:
        """Count a case that the documentation allows."""
        self.ledger.excused[f"{self.system}: {why}"] += 1

    async def _repeat(self, actor: Callable[[], Awaitable[None]]) -> None:
        while not self.over.is_set():
            await actor()
