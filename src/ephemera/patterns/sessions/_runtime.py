"""The operations on sessions; what they promise, and what happens when Redis is down: see the package."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from ephemera.errors import ConnectionFailed, InvalidValue, RevokedMeanwhile
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Sliding, Store, payload_size
from ephemera.patterns._stored_records import Records, changing, records_of
from ephemera.patterns.sessions._token_keys import Place, Places
from ephemera.wire import Arg, PreparedScript, Script

if TYPE_CHECKING:
    from ephemera.patterns.sessions._declaration import Sessions

S = TypeVar("S", bound=msgspec.Struct)

CREATE = Script.load("ephemera.patterns.sessions", "create")
GET = Script.load("ephemera.patterns.sessions", "get")
UPDATE = changing("ephemera.patterns.sessions", "update")
ROTATE = Script.load("ephemera.patterns.sessions", "rotate")
END = Script.load("ephemera.patterns.sessions", "end")
END_ALL = Script.load("ephemera.patterns.sessions", "end_all")
LIST = Script.load("ephemera.patterns.sessions", "list")
BEGIN = Script.load("ephemera.patterns.sessions", "begin")

_SIGN_IN = 600_000  # milliseconds that a sign-in may take from `begin` to `create`
_COARSEST_SLIDE = 60_000  # milliseconds
_MOST_KNOWN = (
    4096  # tokens whose reads are kept in this process, so that they need not be made for each request
)


class Listed(NamedTuple, Generic[S]):
    """One session in a list: its id opens nothing, and ends it by `end_by_id`."""

    id: str
    session: S
    ends: datetime


class BoundSessions(Generic[S]):
    """The sessions of one store: what `store[SESSIONS]` gives."""

    def __init__(self, declared: Sessions[S], store: Store) -> None:
        self._space, self._user_field = declared.space, declared.user_field
        self.stats = store[declared.space].stats
        store[declared.index]  # refuses a store without it
        client = store.client(declared.space.role)
        self._run, self._call = client.run, client.call
        self._ask: Callable[[PreparedScript], asyncio.Future[Any]] = client.run_prepared
        self._known: dict[str, PreparedScript] = {}
        self._places = Places(declared.space, declared.index, declared.user_field)
        self._records: Records[S] = records_of(declared.space)
        self._decode = self._records.decode
        self._most = declared.most_per_user
        lifetime = declared.space.lifetime
        self.lifetime = cast("int", lifetime.milliseconds)
        """Milliseconds, from the last use when it slides."""
        self._slides_to = self.lifetime if isinstance(lifetime, Sliding) else 0
        enough = self._slides_to and self.lifetime - min(self.lifetime // 1000, _COARSEST_SLIDE)
        self._reading = (self._records.read, enough, self.lifetime)

    async def begin(self, user: FieldValue) -> str:
        """Announce a sign-in before its account is read: `create(..., begun=...)` notices a revocation."""
        fresh = "~" + secrets.token_urlsafe(12)
        mark: bytes = await self._do(BEGIN, (self._places.index(user),), fresh, _SIGN_IN)
        return mark.decode()

    async def create(self, session: S, *, begun: str | None = None, replacing: str | None = None) -> str:
        """Store a new session and return its token, which is nowhere else.

        `begun` is what `begin` gave: `RevokedMeanwhile` when the user's sessions were ended since.
        `replacing` is the token of a session to end first, such as the anonymous one of whoever signs in
        now.
        """
        writing = self._records.write(session)
        user = str(getattr(session, self._user_field))
        token = self._places.mint(user)
        place = cast("Place", self._places.of_token(token))
        if replacing is not None:
            await self.end(replacing)
        keys = (place.key, place.index_key)
        gone = await self._do(CREATE, keys, place.id, self.lifetime, self._most, begun or "", *writing)
        if gone is None:
            raise RevokedMeanwhile(self._space.pattern, user)
        self.stats.writes += 1
        self.stats.bytes_written += payload_size(writing)
        await self._remove(user, gone)
        return token

    async def get(self, token: str) -> S | None:
        """The session of a token, which slides by being read; None when there is none (any more)."""
        return await self.coming(self.reading(token))

    async def get_by_id(self, user: FieldValue, session_id: str) -> S | None:
        """The same by id, for callers that know in another way who asks, such as by a signed token."""
        place = self._places.of_id(user, session_id)
        return await self.coming(self._sent(None if place is None else self._read(place)))

    async def look(self, token: str) -> S | None:
        """The same as `get`, but looking does not let it slide: whoever leaves a page open is not there."""
        place = self._places.of_token(token)
        return await self.coming(self._sent(None if place is None else self._read(place, slides=False)))

    def reading(self, token: str) -> asyncio.Future[Any] | None:
        """Send the read of a token's session now, on the loop's thread; None for a text that is no token.

        The reply is for `coming`, or for `taken` once it is here, or for nobody: then `let_go` of it. It
        lets the session slide in any case, and holds what could not be sent as well.
        """
        return self._sent(self._known.get(token) or self._learn(token))

    async def coming(self, reply: asyncio.Future[Any] | None) -> S | None:
        """The session of a read; None when there is none. `ConnectionFailed` when Redis cannot be asked."""
        if reply is None:
            return None
        if not reply.done():
            try:  # noqa: SIM105 - contextlib.suppress would be called for each session
                await reply
            except REDIS_ERRORS:
                pass  # `taken` counts and raises it
        return self.taken(reply)

    def taken(self, reply: asyncio.Future[Any]) -> S | None:
        """The same of a read that is done."""
        stats = self.stats
        try:
            said = reply.result()
        except REDIS_ERRORS:
            stats.errors += 1
            raise
        if said is not None:
            stats.bytes_read += len(said) if said.__class__ is bytes else payload_size(said)
            session = self._decode(said)
            if session is not None:
                stats.hits += 1
                return session
            stats.undecodable += 1
        stats.misses += 1
        return None

    async def update(self, token: str, /, **changes: Any) -> bool:
        """Change some fields of a session; False, and nothing written, when there is none (any more)."""
        if self._user_field in changes:
            raise InvalidValue(self._space.pattern, "a session that stays its user's", self._user_field)
        change = self._records.change(changes)
        place = self._places.of_token(token)
        if place is None:
            return False
        keys = (place.key, place.index_key)
        updated = bool(await self._do(UPDATE, keys, place.id, self._slides_to, *change))
        self.stats.writes += updated
        self.stats.bytes_written += payload_size(change)
        return updated

    async def rotate(self, token: str) -> str | None:
        """Another token for the same session; the old one is void. None when there is none (any more)."""
        old = self._places.of_token(token)
        if old is None:
            return None
        fresh = self._places.mint_again(token)
        new = cast("Place", self._places.of_token(fresh))
        rotated = bool(await self._do(ROTATE, (old.key, old.index_key, new.key), old.id, new.id))
        self.stats.writes += rotated
        return fresh if rotated else None

    async def end(self, token: str) -> bool:
        """End a session; False when there was none (any more)."""
        return await self._end(self._places.of_token(token))

    async def end_by_id(self, user: FieldValue, session_id: str) -> bool:
        """End a user's session by the id that a list shows."""
        return await self._end(self._places.of_id(user, session_id))

    async def end_all(self, user: FieldValue, *, keep: str | None = None) -> int:
        """End all sessions of a user, except that of the token `keep`; how many there were.

        When this returns, none of them is valid, and no sign-in that was announced before it can succeed.
        """
        kept = self._places.of_token(keep) if keep is not None else None
        index = self._places.index(user)
        kept_id = kept.id if kept is not None and kept.index_key == index else ""
        ended = await self._do(END_ALL, (index,), kept_id)
        self.stats.writes += len(ended)
        await self._remove(user, ended)
        return len(ended)

    async def of_user(self, user: FieldValue) -> list[Listed[S]]:
        """A user's sessions, the one that ends first first; looking does not let them slide."""
        flat = await self._do(LIST, (self._places.index(user),))
        ids = [session_id.decode() for session_id in flat[::2]]
        reads = (self._call(self._records.read, self._places.key(user, each)) for each in ids)
        found = zip(ids, await asyncio.gather(*reads), flat[1::2], strict=True)
        return [
            Listed(session_id, session, datetime.fromtimestamp(float(ends) / 1000, UTC))
            for session_id, reply, ends in found
            if reply and (session := self._records.decode(reply)) is not None
        ]

    def id_of(self, token: str) -> str | None:
        """The id of a token's session, as a list shows it; None for a text that is no token."""
        place = self._places.of_token(token)
        return None if place is None else place.id

    def _sent(self, read: PreparedScript | None) -> asyncio.Future[Any] | None:
        if read is None:
            self.stats.misses += 1
            return None
        try:
            return self._ask(read)
        except REDIS_ERRORS as problem:
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(problem)
            return failed

    def _read(self, place: Place, *, slides: bool = True) -> PreparedScript:
        """The read of one session, which is the same whenever it is read."""
        command, enough, life = self._reading
        arguments = (place.id, command, enough if slides else 0, life)
        return PreparedScript(GET, (place.key, place.index_key), arguments)

    def _learn(self, token: str) -> PreparedScript | None:
        """The read of a token that has not been here lately; None for a text that is no token."""
        place = self._places.of_token(token)
        if place is None:
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        read = self._known[token] = self._read(place)
        return read

    async def _end(self, place: Place | None) -> bool:
        if place is None:
            return False
        ended = bool(await self._do(END, (place.key, place.index_key), place.id))
        self.stats.writes += ended
        return ended

    async def _do(self, script: Script, keys: Sequence[str], *arguments: Arg) -> Any:
        try:
            return await self._run(script, keys, arguments)
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise

    async def _remove(self, user: FieldValue, ids: list[bytes]) -> None:
        """Free the memory of sessions that no index lists; they are void already, so it may fail."""
        if ids:
            with suppress(ConnectionFailed):
                await self._call("UNLINK", *(self._places.key(user, each.decode()) for each in ids))


def let_go(reply: asyncio.Future[Any] | None) -> None:
    """Nobody will ask for this read's session any more, nor for its error."""
    if reply is None:
        return
    if not reply.done():
        # Not cancelled, because the wire does not bring a server a script for a caller who has left.
        reply.add_done_callback(let_go)
    elif not reply.cancelled():
        reply.exception()
