"""Events about users: identity and scripture publish them on one stream, and any service may consume it.

They outlive deployments, so every new field has a default. `number` and `source` name an event, however often
it is published: the number of its outbox, and whose outbox that is.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ephemera import Catalogue
from ephemera.patterns.events import DeliveryPolicy, Events

_LEASE = timedelta(seconds=10)


class UserCreated(msgspec.Struct, frozen=True, tag=True):
    """A user was created; without an address, by a service that has the user already."""

    user_id: str
    number: int = 0
    source: str = "outbox"
    email: str = ""
    name: str = ""


class UserChanged(msgspec.Struct, frozen=True, tag=True):
    """A user's plan changed."""

    user_id: str
    plan: str
    number: int = 0
    source: str = "outbox"


class UserUpdated(msgspec.Struct, frozen=True, tag=True):
    """A user's address or name changed."""

    user_id: str
    email: str
    name: str
    number: int = 0
    source: str = "outbox"


class UserRoleChanged(msgspec.Struct, frozen=True, tag=True):
    """A user's role changed."""

    user_id: str
    role: str
    number: int = 0
    source: str = "outbox"


class UserDeleted(msgspec.Struct, frozen=True, tag=True):
    """A user was deleted, with everything that belonged to them."""

    user_id: str
    number: int = 0
    source: str = "outbox"


UserEvent = UserCreated | UserChanged | UserUpdated | UserRoleChanged | UserDeleted


def declare_user_events(catalogue: Catalogue) -> Events[UserEvent]:
    """Declare the stream in the catalogue of a service."""
    return Events(
        catalogue,
        "gl:events:users",
        UserEvent,
        delivery=DeliveryPolicy(max_deliveries=6, first_retry=timedelta(milliseconds=250), lease=_LEASE),
        sensitive=True,
        purpose="Users that were created, changed or deleted",
    )
