"""What `benchmarks.quickstart` serves: `/me` of the quickstart with a limit, and a bare route.

The server to use is in the environment variable `BENCH_URL`. The limit is so high that it is never reached,
and sessions have the fields of `benchmarks.sessions`, as the peer's. The bare route has `tune_gc()`, as ours.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, FastAPI

from benchmarks.sessions import CATALOGUE, HASHES, Session
from ephemera.web.fastapi import Ephemera, tune_gc


@dataclass
class Profile:
    """What the cache holds."""

    name: str
    city: str


async def load(user_id: str) -> Profile:
    """Read the row of a user."""
    return Profile(user_id, "Riga")


eph = Ephemera(os.environ["BENCH_URL"], CATALOGUE, sessions=HASHES)
app = eph.app()
Me = Annotated[Session, Depends(eph.signed_in)]
profile = eph.cached("profile:{user_id}", fresh=timedelta(minutes=5), stale=timedelta(hours=1))(load)


@app.get("/me")
@eph.limit("100000000/minute", by="address")
async def me(session: Me) -> Profile:
    """Read the profile of who is signed in."""
    return await profile(session.user_id)


@asynccontextmanager
async def _tuned(_: FastAPI) -> AsyncIterator[None]:
    tune_gc()
    yield


bare = FastAPI(lifespan=_tuned)


@bare.get("/me")
async def constant() -> Profile:
    """Return a profile at once."""
    return Profile("ann", "Riga")
