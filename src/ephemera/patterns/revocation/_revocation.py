"""The declaration of what can be revoked, and revoking and checking it.

The package's docstring has the guarantees and the failure behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from ephemera.errors import ConnectionFailed, InvalidDeclaration, InvalidValue
from ephemera.keyspace import (
    REDIS_ERRORS,
    Catalogue,
    Codec,
    FieldValue,
    FlagAccessor,
    Instant,
    Keyspace,
    Role,
    Store,
    check_declaration,
    check_durations,
    fixed,
    until,
)
from ephemera.patterns._server_clock import ServerClock
from ephemera.patterns.revocation._revocation_cache import (
    RecentWrites,
    RevocationCache,
    RevocationEvent,
    RevokedBy,
    Subscriber,
    Write,
)
from ephemera.wire import Arg, Script

_ISSUE_MARGIN = timedelta(hours=1)  # by which marks outlive a token that was issued when they were made

WhenDown: TypeAlias = Literal["closed", "open", "local"]
"""The result of a check while Redis is down: void, valid, or what this process knows."""

REVOKE_USER = Script.load("ephemera.patterns.revocation", "user")
NOW = Script.load("ephemera.patterns.revocation", "now")
SPEND = Script.load("ephemera.patterns.revocation", "spend")

_TOKENS_CACHED = 4096  # whose keys are cached
_SPEND_RESULTS: dict[int, Literal["spent", "reused", "expired"]] = {1: "spent", 0: "reused", -1: "expired"}


@dataclass(frozen=True, slots=True)
class TokenKind:
    """One kind of token: the pattern of its marks, with the token's id as field, and its longest lifetime."""

    pattern: str
    lifetime: timedelta
    when_down: WhenDown = "closed"


class Revocation:
    """The declaration of what can be revoked: `store[REVOKED]` gives the `BoundRevocation` of a store.

    Args:
        catalogue: The catalogue that declares the keys.
        tokens: The kinds of tokens by name, each with its key pattern and lifetime.
        users: The key pattern of the instant up to which a user's tokens are void.
        families: The key pattern of revoked families of refresh tokens.
        channel: The channel that announces revocations to other processes.
        skew: By how much the clocks that `issued_at` comes from may be ahead of the server's.
        leeway: How long after its expiry a token may still be accepted; it must not be shorter than that of
            the `Tokens` that verify it.
        cached: How many revocations each process keeps in memory.
        role: The server that has the revocations: one that does not evict.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        tokens: Mapping[str, TokenKind],
        users: str = "revoked:user:{user_id}",
        families: str = "revoked:family:{family}",
        channel: str = "revoked:events",
        skew: timedelta = timedelta(0),
        leeway: timedelta = timedelta(minutes=1),
        cached: int = 10_000,
        role: Role = "queue",
    ) -> None:
        check_declaration(catalogue, users, skew=skew, leeway=leeway)
        _check(users, tokens, skew, leeway, cached)
        self.kinds = dict(tokens)
        self.skew = skew
        self.leeway = leeway
        self.cached = cached
        self.longest_lifetime = max(kind.lifetime for kind in tokens.values()) + leeway + _ISSUE_MARGIN
        self.tokens: dict[str, Keyspace[FlagAccessor]] = {
            name: catalogue.flag(
                kind.pattern,
                lifetime=until(at_most=kind.lifetime + skew + leeway, outlives="the token that it revokes"),
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


def _check(
    pattern: str, tokens: Mapping[str, TokenKind], skew: timedelta, leeway: timedelta, cached: int
) -> None:
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
    if min(skew, leeway) < timedelta(0) or cached < 1:
        raise InvalidDeclaration(
            pattern,
            f"skew={skew}, leeway={leeway}, cached={cached}",
            "give a skew and a leeway of at least 0, and cache at least one",
        )


def _single_field(keyspace: Keyspace[Any]) -> None:
    if len(keyspace.template.fields) != 1:
        raise InvalidDeclaration(
            keyspace.pattern, "it must have exactly one field", "a mark is of one token, user or family"
        )


class TokenStatus(NamedTuple):
    """Whether a token is void, by what, and whether that is certain or only the policy's decision."""

    revoked: bool
    by: RevokedBy | None = None
    certain: bool = True


_VALID = TokenStatus(revoked=False)


class BoundRevocation:
    """The revocations of one store: what `store[REVOKED]` gives."""

    def __init__(self, declaration: Revocation, store: Store) -> None:
        self._kinds = declaration.kinds
        self._flags = {name: store[keyspace] for name, keyspace in declaration.tokens.items()}
        self._users, self._families = store[declaration.users], store[declaration.families]
        self._channel = store[declaration.channel]
        self._user_field, self._family_field = _field(declaration.users), _field(declaration.families)
        self._id_fields = {name: _field(keyspace) for name, keyspace in declaration.tokens.items()}
        self._decode_instant = cast("Codec[int]", declaration.users.codec).decode
        self._longest = declaration.longest_lifetime
        self._skew = declaration.skew // timedelta(microseconds=1)
        self._leeway = declaration.leeway
        client = store.client(declaration.users.role)
        self._call, self._run = client.call, client.run
        self._one_server = list(client.nodes()) == [client]
        lifetimes = {
            name: (kind.lifetime + self._leeway).total_seconds() for name, kind in declaration.kinds.items()
        }
        self._cache = RevocationCache(declaration.cached, lifetimes, self._longest.total_seconds())
        self._recent_writes = RecentWrites()
        self._clock = ServerClock(client)
        self._subscriber = Subscriber(client, self._channel, self._cache, self._recent_writes, self._clock)
        # A token returns with every request: its keys need not be rendered for each.
        self._cached_marks = lru_cache(_TOKENS_CACHED, typed=True)(self._marks)
        store.before_close(self._subscriber.stop)

    async def check(
        self,
        kind: str,
        *,
        jti: str | None = None,
        user: FieldValue | None = None,
        issued_at: Instant | None = None,
        family: str | None = None,
        when_down: WhenDown | None = None,
    ) -> TokenStatus:
        """Check whether a token is void: by its id, its user or its family, in one round trip.

        Args:
            kind: The kind of the token, as declared.
            jti: The token's id.
            user: The id of its user.
            issued_at: Its `iat`, required with `user`.
            family: Its family, of a refresh token.
            when_down: Overrides the kind's policy while Redis is down.

        """
        if kind not in self._kinds or (user is None) != (issued_at is None):
            raise self._misuse(f"kind {kind!r}, user {user!r}, issued_at {issued_at!r}")
        issued = 0 if issued_at is None else _microseconds(issued_at)
        marks = self._cached_marks(kind, jti, user, family)
        self._subscriber.start()
        if self._cache and (known := self._known(kind, marks, issued)):
            return TokenStatus(revoked=True, by=known)
        try:
            with self._users.stats.counting_errors:
                stored = await self._read([key for _, _, key in marks])
        except REDIS_ERRORS:
            policy = when_down or self._kinds[kind].when_down
            uninformed = policy == "local" and not self._subscriber.subscribed.is_set()
            return TokenStatus(revoked=policy == "closed" or uninformed, certain=False)
        for (by, identity, _), mark in zip(marks, stored, strict=True):
            if mark is not None and self._is_void(by, kind, identity, mark, issued):
                return TokenStatus(revoked=True, by=by)
        return _VALID

    async def revoke_token(self, kind: str, jti: str, *, until: Instant) -> bool:
        """Revoke a token until it expires, its leeway included; False when it has expired already."""
        fields: dict[str, Any] = {self._id_fields[kind]: jti}
        self._cache.add(event := RevocationEvent("token", kind, jti))
        end = self._end(until)

        async def write() -> bool:
            return await self._flags[kind].set(until=end, **fields)

        revoked = await write()
        if revoked:
            await self._publish(event, write)
        return revoked

    async def revoke_user(self, user: FieldValue) -> float:
        """Revoke every token issued to a user until now; return the instant, in seconds since 1970."""
        key = self._users.key(**{self._user_field: user})
        user_id = self._user_text(key)

        async def write(at: int | str = "") -> int:
            lifetime = self._longest // timedelta(milliseconds=1)
            return int(await self._run_script(REVOKE_USER, key, lifetime, at))

        try:
            instant = await write()
        except REDIS_ERRORS:
            # By the server's clock, as far as it is known: this machine's may be wrong by any amount.
            self._cache.add(RevocationEvent("user", "", user_id, round(self._clock.now() * 1000)))
            raise
        self._users.stats.writes += 1
        self._cache.add(event := RevocationEvent("user", "", user_id, instant))
        await self._publish(event, partial(write, instant))
        return instant / 1e6

    async def revoke_family(self, family: str) -> None:
        """Revoke all tokens of a family, including those that may still be issued in it."""
        self._cache.add(event := RevocationEvent("family", "", family))
        fields: dict[str, Any] = {self._family_field: family}
        write = partial(self._families.set, **fields)
        await write()
        await self._publish(event, write)

    async def spend(
        self, kind: str, jti: str, *, until: Instant, family: str | None = None
    ) -> Literal["spent", "reused", "expired"]:
        """Use up a token that may be used once; of all callers, one gets "spent".

        "reused" means that the token was copied: its family, if given, is revoked before this returns.

        Args:
            kind: The kind of the token, as declared.
            jti: The token's id.
            until: When the token expires: it is remembered until then.
            family: Its family, which reuse revokes.

        """
        fields: dict[str, Any] = {self._id_fields[kind]: jti}
        key, end = self._flags[kind].key(**fields), self._end(until)
        expiry = await self._flags[kind].expiry(end)
        outcome = _SPEND_RESULTS[await self._run_script(SPEND, key, expiry)]
        if outcome == "spent":
            self._flags[kind].stats.writes += 1
            self._keep_write(partial(self._flags[kind].set, until=end, **fields))
        if outcome == "reused" and family is not None:
            await self.revoke_family(family)
        return outcome

    async def now(self, user: FieldValue) -> float:
        """The `iat` for a token issued to a user now: after their last revocation, by the same clock."""
        key = self._users.key(**{self._user_field: user})
        return int(await self._run_script(NOW, key)) / 1e6

    async def wait_subscribed(self) -> None:
        """Wait until this process receives others' revocations; the first check subscribes."""
        self._subscriber.start()
        await self._subscriber.subscribed.wait()

    def _marks(
        self, kind: str, jti: str | None, user: FieldValue | None, family: str | None
    ) -> list[tuple[RevokedBy, str, str]]:
        """The marks of a check: by what, its id, its key."""
        marks: list[tuple[RevokedBy, str, str]] = []
        if jti is not None:
            marks.append(("token", jti, self._flags[kind].key(**{self._id_fields[kind]: jti})))
        if user is not None:
            key = self._users.key(**{self._user_field: user})
            marks.append(("user", self._user_text(key), key))
        if family is not None:
            marks.append(("family", family, self._families.key(**{self._family_field: family})))
        if not marks:
            raise self._misuse("none of them")
        return marks

    def _known(self, kind: str, marks: list[tuple[RevokedBy, str, str]], issued: int) -> RevokedBy | None:
        for by, identity, _ in marks:
            if self._cache.is_revoked(by, kind if by == "token" else "", identity, issued - self._skew):
                return by
        return None

    async def _read(self, keys: list[str]) -> list[bytes | None]:
        if self._one_server:
            return cast("list[bytes | None]", await self._call("MGET", *keys))
        return await asyncio.gather(*map(self._get, keys))

    async def _get(self, key: str) -> bytes | None:
        # Not GET: a key of another type is none on one server, too.
        [found] = cast("list[bytes | None]", await self._call("MGET", key))
        return found

    def _is_void(self, by: RevokedBy, kind: str, identity: str, mark: bytes, issued: int) -> bool:
        """Whether a mark voids a token issued then; remember the mark."""
        if by == "token":
            event = RevocationEvent(by, kind, identity)
        else:
            # A mark that cannot be decoded is treated as a revocation of everything.
            instant = self._decode_instant(mark) if by == "user" else 0
            before = issued if instant is None else instant
            event = RevocationEvent(by, "", identity, before)
        self._cache.add(event)
        return by != "user" or issued - self._skew <= event.issued_until

    def _user_text(self, key: str) -> str:
        """The user's id as every process has it, from a mark's key, whatever type a caller gave it in."""
        fields = self._users.keyspace.template.parse_text(key) or {}
        return fields[self._user_field]

    def _end(self, until: Instant) -> Instant:
        """When a token that expires then is no longer accepted."""
        if isinstance(until, datetime):
            return until + self._leeway
        return until + self._leeway.total_seconds()

    def _misuse(self, value: str) -> InvalidValue:
        kinds = ", ".join(self._kinds)
        expected = f"checks of {kinds} tokens by jti, by user together with issued_at, or by family"
        return InvalidValue(self._users.keyspace.pattern, expected, value)

    async def _run_script(self, script: Script, key: str, *arguments: Arg) -> Any:
        with self._users.stats.counting_errors:
            return await self._run(script, (key,), arguments)

    def _keep_write(self, write: Write) -> None:
        """Repeat a write after a lost connection."""
        self._recent_writes.add(write)
        self._subscriber.start()

    async def _publish(self, event: RevocationEvent, write: Write) -> None:
        """Publish a revocation; the mark is what counts, so this may fail."""
        self._keep_write(write)
        with suppress(ConnectionFailed):
            await self._channel.publish(event)


def _field(keyspace: Keyspace[Any]) -> str:
    """The one field of a mark's pattern."""
    (field,) = keyspace.template.fields
    return field


def _microseconds(instant: Instant) -> int:
    return round((instant if isinstance(instant, (int, float)) else instant.timestamp()) * 1e6)
