"""The declaration of sessions: their keys, their user, and fields that must not be in them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Keyspace, Role, Sliding, Store, check_declaration
from ephemera.patterns._stored_records import RecordKind
from ephemera.patterns.sessions._runtime import BoundSessions
from ephemera.patterns.sessions._token_keys import TokenKeys

S = TypeVar("S", bound=msgspec.Struct)

_SECRET_FIELDS = frozenset(
    ("access_token", "api_key", "id_token", "password", "refresh_token", "secret", "session_token", "token")
)
"""Fields that would let a reader of the server act as the user; store ids and expiries instead."""


class Sessions(Generic[S]):
    """The declaration of a service's sessions: `store[SESSIONS]` gives the `BoundSessions` of a store."""

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        record: type[S],
        *,
        user: str,
        lifetime: Sliding | Fixed,
        kind: RecordKind = "hash",
        index: str | None = None,
        max_per_user: int = 100,
        role: Role = "cache",
        purpose: str = "Who is signed in",
        saves: str = "a SQL read on every request",
        if_lost: str = "users sign in again",
    ) -> None:
        """Declare the keys of sessions and of the users' indexes.

        `user` names the field of the Struct, of the index pattern and, if present, of the session pattern
        that holds the user's id. `kind` is "hash" or "value" (JSON). `index` is the pattern of the users'
        indexes. When a user has `max_per_user` sessions, a new one ends the one that would expire first.
        """
        check_declaration(catalogue, pattern)
        _check(pattern, record, user, lifetime, max_per_user)
        declare: Any = {"hash": catalogue.hash, "value": catalogue.value}[kind]
        self.keyspace: Keyspace[Any] = declare(
            pattern,
            record,
            lifetime=lifetime,
            role=role,
            purpose=purpose,
            saves=saves,
            invalidated_by=("signing out", "revoking all", "a new id", "too many sessions of one user"),
            if_lost=if_lost,
            sensitive=True,
        )
        self.index = catalogue.sorted_set(
            index or f"user_sessions:{{{user}}}",
            str,
            lifetime=lifetime,
            role=role,
            purpose="Which sessions of a user are valid, by expiry",
            saves="a scan of all sessions when one user's are revoked",
            invalidated_by=("revoking all",),
            if_lost=if_lost,
            sensitive=True,
        )
        self.user_field = user
        self.max_per_user = max_per_user
        self.keys = TokenKeys(self.keyspace, self.index, user)
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundSessions[S]:
        """Bind the sessions to a store."""
        return BoundSessions(self, store)

    def __repr__(self) -> str:
        return f"<Sessions {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def _check(pattern: str, record: type[msgspec.Struct], user: str, lifetime: Any, max_per_user: int) -> None:
    names = {field.name for field in msgspec.structs.fields(record)}
    if user not in names:
        raise InvalidDeclaration(
            pattern, f"{record.__name__} has no field {user!r}", f"user= is one of {', '.join(sorted(names))}"
        )
    if secrets := names & _SECRET_FIELDS:
        raise InvalidDeclaration(
            pattern,
            f"{record.__name__} would store {', '.join(sorted(secrets))}, usable by anyone who sees a dump",
            "store the token's id and expiry, never the secret itself",
        )
    if not isinstance(lifetime, (Sliding, Fixed)):
        raise InvalidDeclaration(
            pattern,
            f"a session cannot have the lifetime {lifetime}",
            "use sliding(hours=24) or fixed(hours=1)",
        )
    if max_per_user < 1:
        raise InvalidDeclaration(
            pattern, f"max_per_user={max_per_user} allows no sessions", "give a positive number"
        )
