"""The declaration of sessions, and the operations on them.

The package's docstring has their guarantees and failure behaviour.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import (
    ConnectionFailed,
    InvalidDeclaration,
    InvalidLifetime,
    InvalidValue,
    SessionsRevoked,
)
from ephemera.keyspace import (
    REDIS_ERRORS,
    Catalogue,
    FieldValue,
    Fixed,
    Keyspace,
    Role,
    Sliding,
    Stats,
    Store,
    check_declaration,
    check_durations,
    field_value,
    fixed,
    payload_size,
    record_fields,
    shorter,
)
from ephemera.patterns._stored_records import RecordFormat, RecordKind, load_change_script, record_format
from ephemera.patterns.sessions._token_keys import SessionKeys, TokenKeys
from ephemera.wire import Arg, PreparedScript, Script

S = TypeVar("S")

_SECRET_FIELDS = frozenset(
    ("access_token", "api_key", "id_token", "password", "refresh_token", "secret", "session_token", "token")
)
"""Fields that would let a reader of the server act as the user; store ids and expiries instead."""

CREATE = Script.load("ephemera.patterns.sessions", "create")
GET = Script.load("ephemera.patterns.sessions", "get")
UPDATE = load_change_script("ephemera.patterns.sessions", "update")
ROTATE = Script.load("ephemera.patterns.sessions", "rotate")
END = Script.load("ephemera.patterns.sessions", "end")
END_ALL = Script.load("ephemera.patterns.sessions", "end_all")
LIST = Script.load("ephemera.patterns.sessions", "list")
BEGIN = Script.load("ephemera.patterns.sessions", "begin")

_MAX_SIGN_IN = 600_000  # milliseconds from `begin_sign_in` to `create`
_MAX_SLIDE_STEP = 60_000  # milliseconds
_READS_CACHED = 4096  # prepared reads, by token


_YEAR_9999 = 253_370_764_800  # seconds; later times have no datetime


class Sessions(Generic[S]):
    """The declaration of a service's sessions: `store[SESSIONS]` gives the `BoundSessions` of a store.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The pattern of the sessions' keys, such as `"session:{session_id}"`.
        record: The type of a session: a msgspec Struct, a pydantic model, a dataclass, an attrs class or a
            TypedDict.
        user: The field of the record, of the index pattern and, if present, of the session pattern that holds
            the user's id.
        lifetime: `sliding(...)`, renewed by each read, or `fixed(...)`.
        absolute_lifetime: Ends a sliding session that long after its creation, however often it is used; by
            default never.
        kind: How a session is stored: as a "hash", or as a "value" (JSON).
        index: The pattern of the users' indexes; by default `"user_sessions:{user}"`, with the field's name.
        max_per_user: The number of sessions of a user; one more ends the one that would expire first.
        role: The server that has the sessions; an evicted session ends.
        purpose: What the sessions are for, for the generated documentation.
        saves: What a read avoids.
        if_lost: What happens when a session is lost.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        record: type[S],
        *,
        user: str,
        lifetime: Sliding | Fixed,
        absolute_lifetime: timedelta | None = None,
        kind: RecordKind = "hash",
        index: str | None = None,
        max_per_user: int = 100,
        role: Role = "cache",
        purpose: str = "Who is signed in",
        saves: str = "a SQL read on every request",
        if_lost: str = "users sign in again",
    ) -> None:
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
        self.record = record
        self.user_field = user
        self.max_per_user = max_per_user
        self.absolute_lifetime = _absolute_seconds(pattern, lifetime, absolute_lifetime)
        """In seconds; 0 without one."""
        self.keys = TokenKeys(self.keyspace, self.index, user, self.absolute_lifetime)
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundSessions[S]:
        """Bind the sessions to a store."""
        return BoundSessions(self, store)

    def __repr__(self) -> str:
        return f"<Sessions {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def _absolute_seconds(pattern: str, lifetime: Sliding | Fixed, absolute: timedelta | None) -> int:
    if absolute is None:
        return 0
    check_durations(pattern, absolute_lifetime=absolute)
    if not isinstance(lifetime, Sliding) or absolute < timedelta(seconds=1):
        raise InvalidDeclaration(
            pattern,
            f"absolute_lifetime={absolute} with the lifetime {lifetime}",
            "give a sliding lifetime an absolute one of at least a second; a fixed one is absolute already",
        )
    return int(absolute.total_seconds())


def _check(pattern: str, record: type[Any], user: str, lifetime: Any, max_per_user: int) -> None:
    names = {field.name for field in record_fields(pattern, record)}
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


class ListedSession(NamedTuple, Generic[S]):
    """One session of a user's list; the id is not a credential, but ends the session by `end_by_id`."""

    id: str
    session: S
    ends: datetime


class SessionReader(Generic[S]):
    """Reads sessions in two steps, for a middleware that sends the read early and may never need it.

    `send` returns a future for `receive`, or for `decode` once it is done; `discard` it otherwise. The read
    extends a sliding session in any case.
    """

    def __init__(self, declaration: Sessions[S], store: Store) -> None:
        self.stats: Stats = store[declaration.keyspace].stats
        self._send = store.client(declaration.keyspace.role).send
        self._keys = declaration.keys
        self._reads: BoundedCache[str, PreparedScript] = BoundedCache(_READS_CACHED)
        records: RecordFormat[S] = record_format(declaration.keyspace)
        self._decode = records.decode
        lifetime = declaration.keyspace.lifetime
        milliseconds = cast("int", lifetime.milliseconds)
        step = min(milliseconds // 1000, _MAX_SLIDE_STEP)
        self._command = records.read
        self._extend_below = milliseconds - step if isinstance(lifetime, Sliding) else 0
        self._lifetime = milliseconds

    def send(self, token: str) -> asyncio.Future[Any] | None:
        """Send the read of a token's session now; None for text that is not a token.

        Call it on the loop's thread. A read that could not be sent is a future with its exception.
        """
        return self.send_prepared(self._reads.get(token) or self._prepare_token(token))

    async def receive(self, reply: asyncio.Future[Any] | None) -> S | None:
        """Await a read; None without a session. Raises `ConnectionFailed` when Redis is unavailable."""
        if reply is None:
            return None
        if not reply.done():
            try:  # noqa: SIM105 - `contextlib.suppress` would be created for each read
                await reply
            except REDIS_ERRORS:
                pass  # `decode` counts and raises it
        return self.decode(reply)

    def decode(self, reply: asyncio.Future[Any]) -> S | None:
        """Decode a read whose reply has arrived."""
        stats = self.stats
        with stats.counting_errors:
            stored = reply.result()
        if stored is not None:
            stats.bytes_read += len(stored) if stored.__class__ is bytes else payload_size(stored)
            session = self._decode(stored)
            if session is not None:
                stats.hits += 1
                return session
            stats.undecodable += 1
        stats.misses += 1
        return None

    def prepare(self, keys: SessionKeys | None, *, extend: bool = True) -> PreparedScript | None:
        """Prepare the read of one session, which is the same each time; None without keys.

        `extend` is False for a read that does not count as use.
        """
        if keys is None:
            return None
        extend_below = self._extend_below if extend else 0
        arguments = (keys.id, self._command, extend_below, self._lifetime, keys.ends_at)
        return PreparedScript(GET, (keys.key, keys.index_key), arguments)

    def send_prepared(self, read: PreparedScript | None) -> asyncio.Future[Any] | None:
        """Send a read; None, counted as a miss, without one."""
        if read is None:
            self.stats.misses += 1
            return None
        try:
            return self._send(read)
        except REDIS_ERRORS as problem:
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(problem)
            return failed

    def _prepare_token(self, token: str) -> PreparedScript | None:
        read = self.prepare(self._keys.of_token(token))
        if read is not None:
            self._reads[token] = read
        return read


class BoundSessions(Generic[S]):
    """The sessions of one store: what `store[SESSIONS]` gives."""

    def __init__(self, declaration: Sessions[S], store: Store) -> None:
        store[declaration.index]  # raises if the store does not have it
        self._keyspace, self._user_field = declaration.keyspace, declaration.user_field
        self.reader = SessionReader(declaration, store)
        """Reads in two steps, for a middleware."""
        self.stats: Stats = self.reader.stats
        """How often sessions were found, missed and written."""
        client = store.client(declaration.keyspace.role)
        self._run, self._call = client.run, client.call
        self._keys = declaration.keys
        self._records: RecordFormat[S] = record_format(declaration.keyspace)
        self._max_per_user = declaration.max_per_user
        lifetime = declaration.keyspace.lifetime
        self.lifetime = cast("int", lifetime.milliseconds)
        """Milliseconds; of a sliding session from its last use."""
        self._extend_to = self.lifetime if isinstance(lifetime, Sliding) else 0
        self._absolute = declaration.absolute_lifetime * 1000
        self._longest = fixed(seconds=declaration.absolute_lifetime) if self._absolute else lifetime

    async def begin_sign_in(self, user: FieldValue) -> str:
        """Announce a sign-in before you read the account, for `create(..., sign_in=...)`."""
        fresh = "~" + secrets.token_urlsafe(12)
        marker: bytes = await self._run_script(BEGIN, (self._keys.index_key(user),), fresh, _MAX_SIGN_IN)
        return marker.decode()

    async def create(
        self,
        session: S,
        *,
        sign_in: str | None = None,
        replacing: str | None = None,
        lifetime: timedelta | None = None,
    ) -> str:
        """Store a new session and return its token, which is stored nowhere.

        Args:
            session: The record; its user field names the user.
            sign_in: What `begin_sign_in` returned: raises `SessionsRevoked` when the user's sessions were
                ended since.
            replacing: The token of a session to end first, such as the anonymous one before a sign-in.
            lifetime: End this session earlier than declared, as without "remember me": that long after now,
                however often it is used. For `fixed(...)` sessions, and sliding ones with an
                `absolute_lifetime`.

        """
        write = self._records.write(session)
        user = self._keys.user_text(field_value(session, self._user_field))
        longest = self._longest_of(lifetime)
        token = self._keys.mint(user, longest if self._absolute else 0)
        keys = cast("SessionKeys", self._keys.of_token(token))
        if replacing is not None:
            await self.end(replacing)
        arguments = (keys.id, min(self.lifetime, longest), self._max_per_user, sign_in or "", *write)
        evicted = await self._run_script(CREATE, (keys.key, keys.index_key), *arguments)
        if evicted is None:
            raise SessionsRevoked(self._keyspace.pattern, user)
        self.stats.writes += 1
        self.stats.bytes_written += payload_size(write)
        await self._unlink(user, evicted)
        return token

    async def get(self, token: str) -> S | None:
        """Read the session of a token, and extend it if it slides; None when there is none (any more)."""
        reader = self.reader
        return await reader.receive(reader.send(token))

    async def get_by_id(self, user: FieldValue, session_id: str) -> S | None:
        """Read a session by id, where the user is authenticated otherwise, such as by a signed token."""
        reader = self.reader
        keys = self._keys.of_id(user, session_id)
        # Only a token knows the absolute end, so without one the session is not extended.
        read = reader.prepare(keys, extend=not self._absolute)
        return await reader.receive(reader.send_prepared(read))

    async def peek(self, token: str) -> S | None:
        """Read a session like `get`, but without extending it: an open page is not a use."""
        reader = self.reader
        keys = self._keys.of_token(token)
        return await reader.receive(reader.send_prepared(reader.prepare(keys, extend=False)))

    async def update(self, token: str, /, **changes: Any) -> bool:
        """Change some fields of a session; False, and nothing written, when there is none (any more)."""
        if self._user_field in changes:
            raise InvalidValue(self._keyspace.pattern, "a session that keeps its user", self._user_field)
        change = self._records.change(changes)
        keys = self._keys.of_token(token)
        if keys is None:
            return False
        arguments = (keys.id, self._extend_to, keys.ends_at, *change)
        updated = bool(await self._run_script(UPDATE, (keys.key, keys.index_key), *arguments))
        self.stats.writes += updated
        self.stats.bytes_written += payload_size(change)
        return updated

    async def rotate(self, token: str) -> str | None:
        """Replace the token of a session, and return the new one; None when there is none (any more)."""
        old = self._keys.of_token(token)
        if old is None:
            return None
        fresh = self._keys.mint_for_same_user(token)
        new = cast("SessionKeys", self._keys.of_token(fresh))
        keys = (old.key, old.index_key, new.key)
        rotated = bool(await self._run_script(ROTATE, keys, old.id, new.id))
        self.stats.writes += rotated
        return fresh if rotated else None

    async def end(self, token: str) -> bool:
        """End a session; False when there was none (any more)."""
        return await self._end(self._keys.of_token(token))

    async def end_by_id(self, user: FieldValue, session_id: str) -> bool:
        """End a user's session by the id that `of_user` shows."""
        return await self._end(self._keys.of_id(user, session_id))

    async def end_all(self, user: FieldValue, *, keep: str | None = None) -> int:
        """End all sessions of a user, except that of the token `keep`, and return how many.

        When this returns, none of them is valid, and no sign-in announced before it can succeed.
        """
        kept = self._keys.of_token(keep) if keep is not None else None
        index = self._keys.index_key(user)
        kept_id = kept.id if kept is not None and kept.index_key == index else ""
        ended = await self._run_script(END_ALL, (index,), kept_id)
        self.stats.writes += len(ended)
        await self._unlink(user, ended)
        return len(ended)

    async def of_user(self, user: FieldValue) -> list[ListedSession[S]]:
        """List a user's sessions by expiry, without extending them."""
        flat = await self._run_script(LIST, (self._keys.index_key(user),))
        listed = [
            (keys, datetime.fromtimestamp(seconds, UTC))
            for member, ends in zip(flat[::2], flat[1::2], strict=True)
            if (keys := self._keys.of_id(user, member.decode(errors="replace"))) is not None
            and 0 <= (seconds := float(ends) / 1000) < _YEAR_9999  # else another program wrote it
        ]
        replies = await asyncio.gather(*(self._call(self._records.read, keys.key) for keys, _ in listed))
        return [
            ListedSession(keys.id, session, ends)
            for (keys, ends), reply in zip(listed, replies, strict=True)
            if reply and (session := self._records.decode(reply)) is not None
        ]

    def renewed_lifetime(self, token: str) -> int:
        """Milliseconds that a use gives a token's session, up to its absolute end; 0 if it does not slide."""
        keys = self._keys.of_token(token)
        if keys is None or not keys.ends_at:
            return self._extend_to
        return max(0, min(self._extend_to, keys.ends_at - int(time.time() * 1000)))

    def _longest_of(self, given: timedelta | None) -> int:
        """The milliseconds after which a new session ends, however often it is used."""
        if given is None:
            return cast("int", self._longest.milliseconds)
        if isinstance(self._longest, Sliding):
            raise InvalidLifetime(
                f"{self._keyspace.pattern}: its sessions live as long as they are used; declare "
                "Sessions(..., absolute_lifetime=...), which lifetime= can shorten"
            )
        return shorter(self._longest, given)

    def id_of(self, token: str) -> str | None:
        """Return the id of a token's session, as `of_user` shows it; None for text that is not a token."""
        keys = self._keys.of_token(token)
        return None if keys is None else keys.id

    async def _end(self, keys: SessionKeys | None) -> bool:
        if keys is None:
            return False
        ended = bool(await self._run_script(END, (keys.key, keys.index_key), keys.id))
        self.stats.writes += ended
        return ended

    async def _run_script(self, script: Script, keys: Sequence[str], *arguments: Arg) -> Any:
        with self.stats.counting_errors:
            return await self._run(script, keys, arguments)

    async def _unlink(self, user: FieldValue, ids: list[bytes]) -> None:
        """Free the memory of sessions that no index lists; they are void already, so this may fail."""
        found = [self._keys.of_id(user, each.decode(errors="replace")) for each in ids]
        keys = [each.key for each in found if each is not None]  # else another program wrote it
        if keys:
            with suppress(ConnectionFailed):
                await self._call("UNLINK", *keys)
