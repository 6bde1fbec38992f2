"""The catalogue of a small shop, for the console."""

from __future__ import annotations

import msgspec

from ephemera import Catalogue, fixed, permanent, sliding

catalogue = Catalogue("shop")


class Session(msgspec.Struct):
    """A user's session."""

    user: str
    role: str


class Order(msgspec.Struct):
    """An order."""

    article: str
    pieces: int


SESSION = catalogue.hash(
    "session:{session_id}", Session,
    lifetime=sliding(hours=24), sensitive=True,
    purpose="Who is signed in", saves="a SQL read on every request",
    invalidated_by=("logout", "role change"), if_lost="users sign in again",
)  # fmt: skip
PROFILE = catalogue.value(
    "cache:profile:{user_id}", dict[str, str],
    lifetime=fixed(hours=6),
    purpose="A user's profile, from SQL", saves="a join of three tables",
    invalidated_by=("profile update",), if_lost="it is read from SQL again",
)  # fmt: skip
VISITS = catalogue.counter(
    "visits:{page}:{day}", lifetime=fixed(days=2),
    purpose="Visits of a page on a day", if_lost="a day's count restarts at 0",
)  # fmt: skip
ORDERS = catalogue.stream(
    "orders", Order, max_length=1000, role="queue",
    lifetime=permanent(reason="an order is removed when it was handled"),
    purpose="Orders on their way to the warehouse",
)  # fmt: skip
BASKET = catalogue.set(
    "basket:{user_id}", str, lifetime=sliding(days=7), purpose="What a user put into the basket"
)  # fmt: skip
NOTE = catalogue.value(
    "note:{note_id}", str, lifetime=fixed(days=1), purpose="A note on a product's page"
)  # fmt: skip
