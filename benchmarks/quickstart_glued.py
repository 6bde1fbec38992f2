"""The peer of `benchmarks.quickstart`: the same service on starsessions, limits and cashews.

Sessions and the limit are those of `benchmarks.web_glued`. cashews reads through by `get_or_set`, its fastest
call, on a connection for every request in flight.
"""

import os
from datetime import timedelta
from functools import partial

from cashews import Cache
from fastapi import FastAPI, HTTPException, Request
from starsessions import SessionAutoloadMiddleware, SessionMiddleware

from benchmarks.quickstart_app import Profile, load
from benchmarks.web_glued import ROLLING, STORE, Limited

glued = FastAPI()
glued.add_middleware(SessionAutoloadMiddleware)
glued.add_middleware(SessionMiddleware, store=STORE, **ROLLING)
glued.add_middleware(Limited, url=os.environ["BENCH_URL"])
_CACHE = Cache()
_CACHE.setup(os.environ["BENCH_URL"], client_side=False, max_connections=200)
_FRESH = timedelta(minutes=5)


@glued.get("/me")
async def me(request: Request) -> Profile:
    """Read the profile of who is signed in."""
    user_id = request.session.get("user_id")
    if user_id is None:
        raise HTTPException(401)
    key = f"peer:profile:{user_id}"
    profile: Profile = await _CACHE.get_or_set(key, partial(load, user_id), expire=_FRESH)
    return profile
