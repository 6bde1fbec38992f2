"""Revoking and checking. The package's docstring has the guarantees and the failure behaviour."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from ephemera.errors import ConnectionFailed, InvalidValue
from ephemera.keyspace import REDIS_ERRORS, Codec, FieldValue, Instant, Keyspace, Store
from ephemera.patterns.revocation._event_cache import (
    RecentWrites,
    RevocationCache,
    RevocationEvent,
    RevokedBy,
    Subscriber,
    Write,
)
from ephemera.wire import Arg, Script

if TYPE_CHECKING:
    from ephemera.patterns.revocation._declaration import Revocation

WhenDown: TypeAlias = Literal["closed", "open", "local"]
"""The result of a check while Redis is down: void, valid, or what this process knows."""

REVOKE_USER = Script.load("ephemera.patterns.revocation", "user")
NOW = Script.load("ephemera.patterns.revocation", "now")
SPEND = Script.load("ephemera.patterns.revocation", "spend")

_TOKENS_CACHED = 4096  # whose keys are cached
_SPEND_RESULTS: dict[int, Literal["spent", "reused", "expired"]] = {1: "spent", 0: "reused", -1: "expired"}


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
        client = store.client(declaration.users.role)
        self._call, self._run = client.call, client.run
        self._one_server = list(client.nodes()) == [client]
        lifetimes = {name: kind.lifetime.total_seconds() for name, kind in declaration.kinds.items()}
        self._cache = RevocationCache(declaration.cached, lifetimes, self._longest.total_seconds())
        self._recent_writes = RecentWrites()
        self._subscriber = Subscriber(client, self._channel, self._cache, self._recent_writes)
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

        `issued_at` is the token's `iat`, required with `user`. `when_down` overrides the kind's policy.
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
        """Revoke a token until it expires; False when it has expired already."""
        fields: dict[str, Any] = {self._id_fields[kind]: jti}
        self._cache.add(event := RevocationEvent("token", kind, jti))

        async def write() -> bool:
            return await self._flags[kind].set(until=until, **fields)

        revoked = await write()
        if revoked:
            await self._publish(event, write)
        return revoked

    async def revoke_user(self, user: FieldValue) -> float:
        """Revoke every token issued to a user until now; return the instant, in seconds since 1970."""
        key = self._users.key(**{self._user_field: user})

        async def write(at: int | str = "") -> int:
            lifetime = self._longest // timedelta(milliseconds=1)
            return int(await self._run_script(REVOKE_USER, key, lifetime, at))

        try:
            instant = await write()
        except REDIS_ERRORS:
            self._cache.add(RevocationEvent("user", "", str(user), round(time.time() * 1e6)))
            raise
        self._users.stats.writes += 1
        self._cache.add(event := RevocationEvent("user", "", str(user), instant))
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
        """
        key = self._flags[kind].key(**{self._id_fields[kind]: jti})
        end = await self._flags[kind].expiry(until)
        outcome = _SPEND_RESULTS[await self._run_script(SPEND, key, end)]
        if outcome == "spent":
            self._flags[kind].stats.writes += 1
            self._keep_write(partial(self._flags[kind].set, until=until, **{self._id_fields[kind]: jti}))
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
            marks.append(("user", str(user), self._users.key(**{self._user_field: user})))
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
        return cast("bytes | None", await self._call("GET", key))

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
        return by != "user" or issued - self._skew <= event.before

    def _misuse(self, given: str) -> InvalidValue:
        kinds = ", ".join(self._kinds)
        expected = f"checks of {kinds} tokens by jti, by user together with issued_at, or by family"
        return InvalidValue(self._users.keyspace.pattern, expected, given)

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
