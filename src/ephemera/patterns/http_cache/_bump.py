"""Pages that change together: their loads are taken over, and what they give is stored in one step.

A bump first takes over the loads of all its pages. So whatever is being loaded from before it is refused, and
so is an earlier bump of any of them: of two bumps the later one stores, and has loaded after both commits.
The one that lost begins anew; after some attempts it removes the pages instead, which is right, too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ephemera.errors import LoadTimeout
from ephemera.keyspace import REDIS_ERRORS, Store
from ephemera.patterns.cache._declaration import Place
from ephemera.patterns.cache._two_level_store import FILL_STAMPED, RENEW
from ephemera.patterns.http_cache._pages import Page
from ephemera.patterns.http_cache._runtime import BoundResource
from ephemera.wire import Script, key_slot

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import Target

    Changed = Sequence[tuple[BoundResource, Target]]

TAKE = Script.load("ephemera.patterns.http_cache", "take")

_ATTEMPTS = 5
_LEASE = 2000  # milliseconds, renewed while the loads run


class Changes:
    """The changes of one store's pages."""

    def __init__(self, store: Store) -> None:
        client = store.client("cache")
        self._run = client.run
        self._on_cluster = client.is_cluster

    async def bump(self, targets: Changed) -> None:
        """Load the pages and store them together; all or none."""
        targets = list({target.key: (live, target) for live, target in targets}.values())
        if not targets:
            return
        try:
            for _ in range(_ATTEMPTS):
                if await self._bump(targets):
                    return
        finally:
            _drop(targets)  # also where the server is away: this process then loads what is true
        await self.forget(targets)

    @asynccontextmanager
    async def held(self, targets: Changed) -> AsyncIterator[None]:
        """Have nobody store these pages meanwhile; their loads are taken over, and the lease lapses after."""
        token = secrets.token_hex(12)
        places = [_place(each) for each in targets]
        await self._in_slots([(place, ()) for place in places], TAKE, (token, str(_LEASE)))
        renewing = asyncio.create_task(self._renew(places, token))
        try:
            yield
        finally:
            renewing.cancel()

    async def forget(self, targets: Changed) -> None:
        """Remove the pages together, and end their loads."""
        _drop(targets)
        fills = [(place, ("", b"", 0, place.channel, -1)) for place in map(_place, targets)]
        await self._fill(fills)
        _drop(targets)

    async def _bump(self, targets: Changed) -> bool:
        token = secrets.token_hex(12)
        places = [_place(each) for each in targets]
        for live, _ in targets:
            await live.cache.ready()
        await self._in_slots([(place, ()) for place in places], TAKE, (token, str(_LEASE)))
        renewing = asyncio.create_task(self._renew(places, token))
        try:
            pages = await _load(targets)
        finally:
            renewing.cancel()
        together = [target.key for _, target in targets] if len(targets) > 1 else []
        fills = []
        for (live, _), place, page in zip(targets, places, pages, strict=True):
            if page is not None:
                page.together = together
                live.give_life(page)  # the others' loads may have taken a while
            fills.append((place, live.cache.filling(place, token, page).arguments))
        return await self._fill(fills)

    async def _fill(self, fills: Sequence[tuple[Place, tuple[Any, ...]]]) -> bool:
        return all(await self._in_slots(fills, FILL_STAMPED, ()))

    async def _in_slots(
        self, items: Sequence[tuple[Place, tuple[Any, ...]]], script: Script, arguments: tuple[Any, ...]
    ) -> list[Any]:
        """Run a script on the keys of all pages: once, or on a cluster once for each slot, together."""
        groups: dict[int, list[tuple[Place, tuple[Any, ...]]]] = defaultdict(list)
        for place, each in items:
            groups[key_slot(place.keys[0]) if self._on_cluster else 0].append((place, each))
        return await asyncio.gather(
            *(
                self._run(
                    script,
                    [key for place, _ in group for key in place.keys],
                    [*arguments, *(word for _, each in group for word in each)],
                )
                for group in groups.values()
            )
        )

    async def _renew(self, places: Sequence[Place], token: str) -> None:
        while True:
            await asyncio.sleep(_LEASE / 3000)
            try:
                await asyncio.gather(
                    *(self._run(RENEW, place.keys[1:], (token, str(_LEASE))) for place in places)
                )
            except REDIS_ERRORS:
                continue


async def _load(targets: Changed) -> list[Page | None]:
    """The pages as they are now, loaded side by side; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_load_one(*each)) for each in targets]
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None
    return [task.result() for task in tasks]


async def _load_one(live: BoundResource, target: Target) -> Page | None:
    seconds = target.resource.cache.hard_timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await live.load(**target.fields)
    except TimeoutError:
        if limit.expired():
            raise LoadTimeout(target.key, seconds) from None
        raise


def _place(target: tuple[BoundResource, Target]) -> Place:
    _, each = target
    return each.resource.cache.place(each.key, each.fields)


def _drop(targets: Changed) -> None:
    for live, target in targets:
        live.cache.drop(target.key)
