"""A small shop's catalogue, for commands that show one."""

import msgspec

from ephemera.keyspace import Catalogue, fixed, sliding

catalogue = Catalogue("shop")


class Session(msgspec.Struct):
    """Who is signed in."""

    user: str
    role: str


SESSION = catalogue.hash(
    "session:{session_id}",
    Session,
    lifetime=sliding(hours=24),
    sensitive=True,
    purpose="Who is signed in",
    saves="a SQL read on every request",
    invalidated_by=("logout",),
    if_lost="users sign in again",
)
PROFILE = catalogue.value(
    "cache:profile:{user_id}",
    dict[str, str],
    lifetime=fixed(minutes=5),
    purpose="A user's profile, from SQL",
    saves="a join of three tables",
    invalidated_by=("profile update",),
    if_lost="it is read from SQL again",
)
VISITS = catalogue.counter(
    "visits:{page}:{day}",
    lifetime=fixed(days=2),
    purpose="Visits of a page on a day",
    saves="an UPDATE for each visit",
    if_lost="a day's count restarts at 0",
)
