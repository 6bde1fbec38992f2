"""Revoking and checking; what is promised, and what happens when Redis is down: see the package."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from ephemera.errors import ConnectionFailed, InvalidValue
from ephemera.keyspace import REDIS_ERRORS, Codec, FieldValue, Instant, Keyspace, Store
from ephemera.patterns.revocation._memory import By, Ear, Memory, News, Written
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.revocation._declaration import Revocation

WhenDown: TypeAlias = Literal["closed", "open", "local"]
"""What a check says when Redis cannot be asked: void, valid, or what this process remembers."""

REVOKE_USER = Script.load("ephemera.patterns.revocation", "user")
NOW = Script.load("ephemera.patterns.revocation", "now")
SPEND = Script.load("ephemera.patterns.revocation", "spend")

_TOKENS_KEPT = 4096  # whose keys are kept; then those that were used longest ago are made anew
_SPENT: dict[int, Literal["spent", "reused", "expired"]] = {1: "spent", 0: "reused", -1: "expired"}


class Verdict(NamedTuple):
    """Whether a token is void, what made it so, and whether that is certain or only the policy's guess."""

    revoked: bool
    by: By | None = None
    certain: bool = True


_VALID = Verdict(revoked=False)


class RevocationChecks:
    """The revocations of one store: what `store[REVOKED]` gives."""

    def __init__(self, declared: Revocation, store: Store) -> None:
        self._kinds = declared.kinds
        self._flags = {name: store[space] for name, space in declared.tokens.items()}
        self._users, self._families = store[declared.users], store[declared.families]
        self._channel = store[declared.news]
        self._user_field, self._family_field = _field(declared.users), _field(declared.families)
        self._id_fields = {name: _field(space) for name, space in declared.tokens.items()}
        self._decode_instant = cast("Codec[int]", declared.users.codec).decode
        self._longest = declared.longest
        self._skew = declared.skew // timedelta(microseconds=1)
        client = store.client(declared.users.role)
        self._call, self._run = client.call, client.run
        self._one_server = list(client.nodes()) == [client]
        lives = {name: kind.lives.total_seconds() for name, kind in declared.kinds.items()}
        self.memory = Memory(declared.remembered, lives, declared.longest.total_seconds())
        self._written = Written()
        self._ear = Ear(client, self._channel, self.memory, self._written)
        # A token comes back on every request while it lives: its keys need not be rendered for each.
        self._asked = lru_cache(_TOKENS_KEPT, typed=True)(self._marks)
        store.before_close(self._ear.stop)

    async def check(
        self,
        kind: str,
        *,
        jti: str | None = None,
        user: FieldValue | None = None,
        issued_at: Instant | None = None,
        family: str | None = None,
        when_down: WhenDown | None = None,
    ) -> Verdict:
        """Whether a token is void: by its own id, as one of its user's, or by its family, in one trip.

        `issued_at` is the token's `iat`, and goes with `user`. `when_down` stands in for the kind's policy.
        """
        if kind not in self._kinds or (user is None) != (issued_at is None):
            raise self._misuse(f"kind {kind!r}, user {user!r}, issued_at {issued_at!r}")
        issued = 0 if issued_at is None else _microseconds(issued_at)
        asked = self._asked(kind, jti, user, family)
        self._ear.start()
        if self.memory and (known := self._remembered(kind, asked, issued)):
            return Verdict(revoked=True, by=known)
        try:
            marks = await self._read([key for _, _, key in asked])
        except REDIS_ERRORS:
            self._users.stats.errors += 1
            policy = when_down or self._kinds[kind].when_down
            unheard = policy == "local" and not self._ear.heard.is_set()  # its memory has never had a chance
            return Verdict(revoked=policy == "closed" or unheard, certain=False)
        for (by, identity, _), mark in zip(asked, marks, strict=True):
            if mark is not None and self._is_void(by, kind, identity, mark, issued):
                return Verdict(revoked=True, by=by)
        return _VALID

    async def revoke_token(self, kind: str, jti: str, *, until: Instant) -> bool:
        """Make a token void until it expires; False when it has expired already, and nothing was needed."""
        fields: dict[str, Any] = {self._id_fields[kind]: jti}
        self.memory.keep(news := News("token", kind, jti))

        async def write() -> bool:
            return await self._flags[kind].set(until=until, **fields)

        raised = await write()
        if raised:
            await self._tell(news, write)
        return raised

    async def revoke_user(self, user: FieldValue) -> float:
        """Make everything void that was issued to a user until now; the instant, in seconds since 1970."""
        key = self._users.key(**{self._user_field: user})

        async def write(at: int | str = "") -> int:
            return int(await self._run(REVOKE_USER, (key,), (self._longest // timedelta(milliseconds=1), at)))

        try:
            instant = await write()
        except REDIS_ERRORS:
            self._users.stats.errors += 1
            self.memory.keep(News("user", "", str(user), round(time.time() * 1e6)))
            raise
        self._users.stats.writes += 1
        self.memory.keep(news := News("user", "", str(user), instant))
        await self._tell(news, partial(write, instant))
        return instant / 1e6

    async def revoke_family(self, family: str) -> None:
        """Make all tokens of a family void, and all that may still be issued in it."""
        self.memory.keep(news := News("family", "", family))
        fields: dict[str, Any] = {self._family_field: family}
        write = partial(self._families.set, **fields)
        await write()
        await self._tell(news, write)

    async def spend(
        self, kind: str, jti: str, *, until: Instant, family: str | None = None
    ) -> Literal["spent", "reused", "expired"]:
        """Use up a token that may be used once; of all who try, one gets "spent".

        "reused" means that somebody has a copy: its family, if given, is revoked before this returns.
        """
        key = self._flags[kind].key(**{self._id_fields[kind]: jti})
        end = await self._flags[kind].expiry(until)
        outcome = _SPENT[await self._run(SPEND, (key,), (end,))]
        if outcome == "spent":
            self._flags[kind].stats.writes += 1
            self._note(partial(self._flags[kind].set, until=until, **{self._id_fields[kind]: jti}))
        if outcome == "reused" and family is not None:
            await self.revoke_family(family)
        return outcome

    async def now(self, user: FieldValue) -> float:
        """The `iat` of a token that is issued to a user now: after their last revocation, by its clock."""
        key = self._users.key(**{self._user_field: user})
        return int(await self._run(NOW, (key,))) / 1e6

    async def listening(self) -> None:
        """Wait until this process hears of others' revocations; checks start to listen by themselves."""
        self._ear.start()
        await self._ear.heard.wait()

    def _marks(
        self, kind: str, jti: str | None, user: FieldValue | None, family: str | None
    ) -> list[tuple[By, str, str]]:
        """What a check looks at: by what, its id, the key of its mark."""
        asked: list[tuple[By, str, str]] = []
        if jti is not None:
            asked.append(("token", jti, self._flags[kind].key(**{self._id_fields[kind]: jti})))
        if user is not None:
            asked.append(("user", str(user), self._users.key(**{self._user_field: user})))
        if family is not None:
            asked.append(("family", family, self._families.key(**{self._family_field: family})))
        if not asked:
            raise self._misuse("none of them")
        return asked

    def _remembered(self, kind: str, asked: list[tuple[By, str, str]], issued: int) -> By | None:
        for by, identity, _ in asked:
            if self.memory.revoked(by, kind if by == "token" else "", identity, issued - self._skew):
                return by
        return None

    async def _read(self, keys: list[str]) -> list[bytes | None]:
        if self._one_server:
            return cast("list[bytes | None]", await self._call("MGET", *keys))
        return await asyncio.gather(*map(self._get, keys))

    async def _get(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._call("GET", key))

    def _is_void(self, by: By, kind: str, identity: str, mark: bytes, issued: int) -> bool:
        """Whether a mark makes what was issued then void; what the mark says is remembered."""
        if by == "token":
            news = News(by, kind, identity)
        else:
            # A mark that cannot be read was made by somebody else, for a reason: everything is void.
            instant = self._decode_instant(mark) if by == "user" else 0
            before = issued if instant is None else instant
            news = News(by, "", identity, before)
        self.memory.keep(news)
        return by != "user" or issued - self._skew <= news.before

    def _misuse(self, given: str) -> InvalidValue:
        kinds = ", ".join(self._kinds)
        expected = f"checks of {kinds} tokens by jti, by user together with issued_at, or by family"
        return InvalidValue(self._users.keyspace.pattern, expected, given)

    def _note(self, write: Callable[[], Awaitable[Any]]) -> None:
        """Have something that was written be written again after a lost connection."""
        self._written.note(write)
        self._ear.start()

    async def _tell(self, news: News, write: Callable[[], Awaitable[Any]]) -> None:
        """Let other processes know; the mark is what counts, so this may fail."""
        self._note(write)
        with suppress(ConnectionFailed):
            await self._channel.publish(news)


def _field(space: Keyspace[Any]) -> str:
    """The one field of a mark's pattern."""
    (field,) = space.template.fields
    return field


def _microseconds(instant: Instant) -> int:
    return round((instant if isinstance(instant, (int, float)) else instant.timestamp()) * 1e6)
