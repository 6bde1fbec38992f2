"""The declaration of sessions: their keys, whose they are, and what may not be in them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Keyspace, Role, Sliding, Store, check_declaration
from ephemera.patterns._stored_records import RecordKind
from ephemera.patterns.sessions._runtime import BoundSessions
from ephemera.patterns.sessions._token_keys import Places

S = TypeVar("S", bound=msgspec.Struct)

_USABLE_SECRETS = frozenset(
    ("access_token", "api_key", "id_token", "password", "refresh_token", "secret", "session_token", "token")
)
"""Fields that would let a reader of the server act as the user; keep ids and expiries instead."""


class Sessions(Generic[S]):
    """The declaration of a service's sessions: `store[SESSIONS]` gives the `BoundSessions` of a store.

    `user` names the field of the Struct, of the index and, if it is there, of the pattern that says whose
    session it is. `kind` is "hash" or "value" (JSON). When a user has `most_per_user` sessions, a new one
    ends that which would end first.
    """

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
        most_per_user: int = 100,
        role: Role = "cache",
        purpose: str = "Who is signed in",
        saves: str = "a SQL read on every request",
        if_lost: str = "users sign in again",
    ) -> None:
        check_declaration(catalogue, pattern)
        _check(pattern, record, user, lifetime, most_per_user)
        declare: Any = {"hash": catalogue.hash, "value": catalogue.value}[kind]
        self.space: Keyspace[Any] = declare(
            pattern,
            record,
            lifetime=lifetime,
            role=role,
            purpose=purpose,
            saves=saves,
            invalidated_by=("signing out", "a revocation of all", "a new id", "too many of one user"),
            if_lost=if_lost,
            sensitive=True,
        )
        self.index = catalogue.sorted_set(
            index or f"user_sessions:{{{user}}}",
            str,
            lifetime=lifetime,
            role=role,
            purpose="Which sessions of a user are valid, by the instant they end",
            saves="a scan of all sessions when one user's are revoked",
            invalidated_by=("a revocation of all",),
            if_lost=if_lost,
            sensitive=True,
        )
        self.user_field = user
        self.most_per_user = most_per_user
        Places(self.space, self.index, user)  # refuses patterns that cannot place a session
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundSessions[S]:
        """The sessions of a store."""
        return BoundSessions(self, store)

    def __repr__(self) -> str:
        return f"<Sessions {self.space.pattern!r} of {self.space.catalogue}>"


def _check(pattern: str, record: type[msgspec.Struct], user: str, lifetime: Any, most: int) -> None:
    names = {field.name for field in msgspec.structs.fields(record)}
    if user not in names:
        raise InvalidDeclaration(
            pattern, f"{record.__name__} has no field {user!r}", f"user= is one of {', '.join(sorted(names))}"
        )
    if secrets := names & _USABLE_SECRETS:
        raise InvalidDeclaration(
            pattern,
            f"{record.__name__} would hold {', '.join(sorted(secrets))}, to be used by whoever sees a dump",
            "keep the token's id and expiry, never what can be used",
        )
    if not isinstance(lifetime, (Sliding, Fixed)):
        raise InvalidDeclaration(
            pattern, f"a session cannot live {lifetime}", "use sliding(hours=24) or fixed(hours=1)"
        )
    if most < 1:
        raise InvalidDeclaration(pattern, f"most_per_user={most} lets nobody in", "give a positive number")
