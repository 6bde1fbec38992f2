"""The declaration of what can be revoked: the marks and their lifetimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    FlagAccessor,
    Keyspace,
    Role,
    Store,
    check_declaration,
    check_durations,
    fixed,
    until,
)
from ephemera.patterns.revocation._event_cache import RevocationEvent
from ephemera.patterns.revocation._runtime import BoundRevocation, WhenDown

_ISSUE_MARGIN = timedelta(hours=1)  # by which marks outlive a token that was issued when they were made


@dataclass(frozen=True, slots=True)
class TokenKind:
    """One kind of token: the pattern of its marks, with the token's id as field, and its longest lifetime."""

    pattern: str
    lifetime: timedelta
    when_down: WhenDown = "closed"


class Revocation:
    """The declaration of what can be revoked: `store[REVOKED]` gives the `BoundRevocation` of a store."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        tokens: Mapping[str, TokenKind],
        users: str = "revoked:user:{user_id}",
        families: str = "revoked:family:{family}",
        channel: str = "revoked:events",
        skew: timedelta = timedelta(0),
        cached: int = 10_000,
        role: Role = "queue",
    ) -> None:
        """Declare the marks of tokens, users and families, and the channel of revocations.

        `tokens` are the kinds of tokens by name. `skew` is by how much the clocks that `issued_at` comes from
        may be ahead of the server's. `cached` is how many revocations each process keeps in memory.
        """
        check_declaration(catalogue, users, skew=skew)
        _check(users, tokens, skew, cached)
        self.kinds = dict(tokens)
        self.skew = skew
        self.cached = cached
        self.longest_lifetime = max(kind.lifetime for kind in tokens.values()) + _ISSUE_MARGIN
        self.tokens: dict[str, Keyspace[FlagAccessor]] = {
            name: catalogue.flag(
                kind.pattern,
                lifetime=until(at_most=kind.lifetime + skew, outlives="the token that it revokes"),
                role=role,
                purpose=f"A revoked or used-up {name} token",
                if_lost="the token is valid again until it expires",
            )
            for name, kind in tokens.items()
        }
        for keyspace in self.tokens.values():
            _single_field(keyspace)
        lifetime = fixed(
            milliseconds=self.longest_lifetime // timedelta(milliseconds=1),
            outlives="every token that it revokes",
        )
        self.users = catalogue.value(
            users,
            int,
            lifetime=lifetime,
            role=role,
            purpose="The instant up to which a user's tokens are void, in microseconds since 1970",
            if_lost="the user's older tokens are valid again until they expire",
        )
        self.families = catalogue.flag(
            families,
            lifetime=lifetime,
            role=role,
            purpose="A revoked family of refresh tokens",
            if_lost="the family's tokens are valid again until they expire",
        )
        _single_field(self.users)
        _single_field(self.families)
        self.channel = catalogue.channel(
            channel, RevocationEvent, role=role, purpose="Revocations, for the cache of every process"
        )
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundRevocation:
        """Bind the revocations to a store."""
        return BoundRevocation(self, store)

    def __repr__(self) -> str:
        return f"<Revocation of {', '.join(self.kinds)} tokens>"


def _check(pattern: str, tokens: Mapping[str, TokenKind], skew: timedelta, cached: int) -> None:
    if not tokens:
        raise InvalidDeclaration(
            pattern, "it has no kinds of tokens", "give tokens={'access': TokenKind(...)}"
        )
    for name, kind in tokens.items():
        check_durations(kind.pattern, lifetime=kind.lifetime)
        if kind.lifetime <= timedelta(0):
            raise InvalidDeclaration(
                kind.pattern, f"{name} tokens have the lifetime {kind.lifetime}", "give a positive one"
            )
        if kind.when_down not in get_args(WhenDown):
            known = ", ".join(map(repr, get_args(WhenDown)))
            raise InvalidDeclaration(kind.pattern, f"when_down={kind.when_down!r} is unknown", f"use {known}")
    if skew < timedelta(0) or cached < 1:
        raise InvalidDeclaration(
            pattern,
            f"skew={skew}, cached={cached}",
            "give a skew of at least 0, and cache at least one",
        )


def _single_field(keyspace: Keyspace[Any]) -> None:
    if len(keyspace.template.fields) != 1:
        raise InvalidDeclaration(
            keyspace.pattern, "it must have exactly one field", "a mark is of one token, user or family"
        )
