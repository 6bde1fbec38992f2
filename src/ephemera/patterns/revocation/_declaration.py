"""The declaration of what can be revoked: its marks, and how long they must live."""

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
from ephemera.patterns.revocation._checks import RevocationChecks, WhenDown
from ephemera.patterns.revocation._memory import News

_BEING_ISSUED = timedelta(hours=1)  # by which marks outlive a token that was issued as they were made


@dataclass(frozen=True, slots=True)
class TokenKind:
    """One kind of token: the pattern of its marks, whose field is the token's id, and its longest life."""

    pattern: str
    lives: timedelta
    when_down: WhenDown = "closed"


class Revocation:
    """The declaration of what can be revoked: `store[REVOKED]` gives the `RevocationChecks` of a store.

    `skew` is by how much the clocks that `issued_at` comes from may be ahead of the server's; `remembered`
    is how many revocations each process keeps in its own memory.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        tokens: Mapping[str, TokenKind],
        users: str = "revoked:user:{user_id}",
        families: str = "revoked:family:{family}",
        news: str = "revoked:news",
        skew: timedelta = timedelta(0),
        remembered: int = 10_000,
        role: Role = "queue",
    ) -> None:
        check_declaration(catalogue, users, skew=skew)
        _check(users, tokens, skew, remembered)
        self.kinds = dict(tokens)
        self.skew = skew
        self.remembered = remembered
        self.longest = max(kind.lives for kind in tokens.values()) + _BEING_ISSUED
        self.tokens: dict[str, Keyspace[FlagAccessor]] = {
            name: catalogue.flag(
                kind.pattern,
                lifetime=until(at_most=kind.lives + skew, outlives="the token that it revokes"),
                role=role,
                purpose=f"A revoked or used-up {name} token",
                if_lost="the token is valid again until it expires",
            )
            for name, kind in tokens.items()
        }
        for space in self.tokens.values():
            _single_field(space)
        lifetime = fixed(
            milliseconds=self.longest // timedelta(milliseconds=1), outlives="every token that it revokes"
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
        self.news = catalogue.channel(
            news, News, role=role, purpose="Revocations, for the memory of every process"
        )
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> RevocationChecks:
        """The revocations of a store."""
        return RevocationChecks(self, store)

    def __repr__(self) -> str:
        return f"<Revocation of {', '.join(self.kinds)} tokens>"


def _check(pattern: str, tokens: Mapping[str, TokenKind], skew: timedelta, remembered: int) -> None:
    if not tokens:
        raise InvalidDeclaration(
            pattern, "there is no kind of token", "give tokens={'access': TokenKind(...)}"
        )
    for name, kind in tokens.items():
        check_durations(kind.pattern, lives=kind.lives)
        if kind.lives <= timedelta(0):
            raise InvalidDeclaration(
                kind.pattern, f"{name} tokens live {kind.lives}", "give how long they live"
            )
        if kind.when_down not in get_args(WhenDown):
            known = ", ".join(map(repr, get_args(WhenDown)))
            raise InvalidDeclaration(kind.pattern, f"when_down={kind.when_down!r} is unknown", f"use {known}")
    if skew < timedelta(0) or remembered < 1:
        raise InvalidDeclaration(
            pattern,
            f"skew={skew}, remembered={remembered}",
            "give a skew from 0 on and remember at least one",
        )


def _single_field(space: Keyspace[Any]) -> None:
    if len(space.template.fields) != 1:
        raise InvalidDeclaration(
            space.pattern, "it has not exactly one field", "a mark is of one token, user or family"
        )
