"""The data of one request of the quickstart's service, and a process that repeats it.

A request reads a session, checks a limit and reads a cached profile, one after the other. In the `hot` and
`local` loads half of the requests read the same shared page in place of a profile: from the server, or
through a local copy. A process of the load reports twice a second what it did, as lines of JSON, until its
standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import uvloop

from ephemera import Cache, Catalogue, RateLimits, Sessions, Store, connect, sliding, sliding_window
from ephemera.errors import EphemeraError
from ephemera.patterns.cache import LocalCache

FRESH = timedelta(minutes=30)
_EVERY = 0.5  # seconds between reports
_PAUSE = 0.01  # seconds after an error


class Session(msgspec.Struct):
    """Who is signed in."""

    user_id: str


@dataclass(frozen=True)
class Profile:
    """What is cached."""

    name: str
    city: str


CATALOGUE = Catalogue("bench-scale")
SESSIONS = Sessions(CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24))
REQUESTS = sliding_window("requests", 100_000_000, per=timedelta(minutes=1), key="limit:{subject}")
LIMITS = RateLimits(CATALOGUE, "limits", REQUESTS)
PROFILES: Cache[Profile] = Cache(CATALOGUE, "profile:{user_id}", Profile, fresh=FRESH, purpose="Profiles")
PAGES: Cache[Profile] = Cache(CATALOGUE, "page:{number}", Profile, fresh=FRESH, purpose="Shared pages")
LOCAL_PAGES: Cache[Profile] = Cache(
    CATALOGUE,
    "local:{number}",
    Profile,
    fresh=FRESH,
    local=LocalCache(),
    purpose="Shared pages, kept locally",
)


async def load_profile(user_id: str) -> Profile:
    """Read a user from the database."""
    return Profile(user_id, "Riga")


async def load_page(number: int) -> Profile:
    """Read a page from the database."""
    return Profile(f"page {number}", "Riga")


Request = Callable[[str, str], Awaitable[object]]
"""A request of a user with a token."""


def requests_of(store: Store, kind: str) -> Request:
    """The requests of a kind of load."""
    sessions, limits = store[SESSIONS], store[LIMITS]
    profiles, pages = store[PROFILES], store[LOCAL_PAGES if kind == "local" else PAGES]
    hot = 0.0 if kind == "plain" else 0.5

    async def request(token: str, user: str) -> object:
        await sessions.get(token)
        await limits.check(REQUESTS.on(user))
        if random.random() < hot:
            return await pages.get_or_load(load_page, number=1)
        return await profiles.get_or_load(load_profile, user_id=user)

    return request


async def sign_in(store: Store, users: int) -> dict[str, str]:
    """Sessions of that many users, and all of their keys; the token of each user."""
    request, found = requests_of(store, "plain"), dict[str, str]()
    for first in range(0, users, 200):
        names = [f"018e9a1f-b3c2-7654-9abc-{number:012x}" for number in range(first, min(users, first + 200))]
        tokens = await asyncio.gather(*(store[SESSIONS].create(Session(name)) for name in names))
        found |= dict(zip(names, tokens, strict=True))
        await asyncio.gather(*(request(token, name) for name, token in found.items() if name in names))
    return found


class Load:
    """This many tasks of this process, and what they did since the last report."""

    def __init__(self, request: Request, users: list[tuple[str, str]]) -> None:
        self._request = request
        self._users = users
        self.done = 0
        self.longest = 0.0
        self.errors: Counter[str] = Counter()

    async def work(self) -> None:
        """Repeat requests of users at random."""
        clock = time.perf_counter
        while True:
            user, token = random.choice(self._users)
            began = clock()
            try:
                await self._request(token, user)
                self.done += 1
            except EphemeraError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE)
            self.longest = max(self.longest, clock() - began)

    def report(self) -> dict[str, object]:
        """What was done since the last report."""
        said = {
            "at": time.time(),
            "done": self.done,
            "errors": dict(self.errors),
            "longest": self.longest,
            "cpu": time.process_time(),
        }
        self.done, self.longest, self.errors = 0, 0.0, Counter()
        return said


async def _run(url: str, tasks: int, kind: str, tokens: str) -> None:
    users = list(json.loads(Path(tokens).read_text()).items())
    async with connect(url, CATALOGUE) as store:
        load = Load(requests_of(store, kind), users)
        working = [asyncio.create_task(load.work()) for _ in range(tasks)]
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not ended.done():
            await asyncio.wait([ended], timeout=_EVERY)
            print(json.dumps(load.report()), flush=True)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
