"""A cache of profiles over a table in memory, for the tests of caches."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.patterns.cache import Cache, Freshness, Loading, LocalCache, Storage

CATALOGUE = Catalogue("profiles")


class Profile(msgspec.Struct, frozen=True):
    """A row."""

    name: str
    team: str = "red"
    seconds: float = 3600.0


def _freshness(profile: Profile) -> Freshness | None:
    if profile.seconds <= 0:
        return None
    return Freshness(fresh=timedelta(seconds=profile.seconds), stale=timedelta(hours=1))


PLAIN = Cache(
    CATALOGUE,
    "cache:plain:{user_id}",
    Profile,
    fresh=timedelta(minutes=5),
    stale=timedelta(hours=1),
    missing=timedelta(seconds=30),
    freshness_of=_freshness,
    loading=Loading(
        lease=timedelta(seconds=2.4),
        backoff=timedelta(seconds=30),
        hard_timeout=timedelta(seconds=5),
        early_refresh=0,
    ),
    purpose="Profiles, without local entries",
)
COPIED = Cache(
    CATALOGUE,
    "cache:copied:{user_id}",
    Profile,
    fresh=timedelta(minutes=5),
    stale=timedelta(hours=1),
    local=LocalCache(max_entries=1000, max_age=timedelta(seconds=20)),
    loading=Loading(max_loads=3),
    purpose="Profiles, with local entries",
)
TAGGED = Cache(
    CATALOGUE,
    "cache:tagged:{user_id}",
    Profile,
    fresh=timedelta(minutes=5),
    local=LocalCache(max_entries=1000),
    tags=lambda profile, user_id: (profile.team,),
    storage=Storage(codec="msgpack"),
    purpose="Profiles of teams",
)
SOFT = Cache(
    CATALOGUE,
    "cache:soft:{user_id}",
    Profile,
    fresh=timedelta(minutes=5),
    stale=timedelta(hours=1),
    loading=Loading(soft_timeout=timedelta(milliseconds=200), hard_timeout=timedelta(milliseconds=300)),
    purpose="Profiles that are waited for a little",
)
WHOLE = Cache(CATALOGUE, "cache:whole", int, fresh=timedelta(minutes=5), purpose="A cache of one entry")

_names = (f"u{number}" for number in count(1))


class Table:
    """Rows, how often they were loaded, and a gate that holds loads up."""

    def __init__(self) -> None:
        self.rows: dict[str, Profile] = {}
        self.loads = 0
        self.at_once = 0
        self.most_at_once = 0
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, user_id: str) -> Profile | None:
        """Read the row, then pass the gate: what is returned may be old by then."""
        self.loads += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.broken:
                raise LookupError("the table is broken")
            row = self.rows.get(user_id)
            await self.gate.wait()
            return row
        finally:
            self.at_once -= 1


def user(name: str = "") -> str:
    """An id that no other test has."""
    return f"{next(_names)}-{name}" if name else next(_names)
