"""The types of `store[X]` in synchronous code. Made by `python -m tools.sync_api`; do not edit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Never, ParamSpec, Protocol, Self, TypeVar, overload

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.blocking import BlockingStore
from ephemera.keyspace import ChannelAccessor as AsyncChannelAccessor
from ephemera.keyspace import CounterAccessor as AsyncCounterAccessor
from ephemera.keyspace import Declaration, Fields, FieldValue, Instant, Keyspace, Stats
from ephemera.keyspace import FlagAccessor as AsyncFlagAccessor
from ephemera.keyspace import HashAccessor as AsyncHashAccessor
from ephemera.keyspace import ListAccessor as AsyncListAccessor
from ephemera.keyspace import MappingAccessor as AsyncMappingAccessor
from ephemera.keyspace import SetAccessor as AsyncSetAccessor
from ephemera.keyspace import SortedSetAccessor as AsyncSortedSetAccessor
from ephemera.keyspace import StreamAccessor as AsyncStreamAccessor
from ephemera.keyspace import ValueAccessor as AsyncValueAccessor
from ephemera.keyspace._set import Ranked
from ephemera.patterns.cache import BoundCache as AsyncBoundCache
from ephemera.patterns.cache import Cache, EntryHead, Freshness
from ephemera.patterns.entitlements import BoundEntitlements as AsyncBoundEntitlements
from ephemera.patterns.events import BoundEvents as AsyncBoundEvents
from ephemera.patterns.events import (
    ConsumerCounts,
    DeadLetter,
    Delivery,
    ErrorActions,
    Events,
    ReplayedEvents,
    StreamInfo,
)
from ephemera.patterns.fanout import BoundFanout as AsyncBoundFanout
from ephemera.patterns.fanout import Fanout, Presence
from ephemera.patterns.fanout._connections import Missing
from ephemera.patterns.http_cache import BodyStore, HttpCache, Page, PageRef, PrewarmReport, Resource
from ephemera.patterns.http_cache import BoundHttpCache as AsyncBoundHttpCache
from ephemera.patterns.http_cache import BoundResource as AsyncBoundResource
from ephemera.patterns.jobs import BoundJobs as AsyncBoundJobs
from ephemera.patterns.jobs import Enqueued, Job, JobRow, Jobs, QueueSettings, ScheduleRow
from ephemera.patterns.jobs._queues import Rate
from ephemera.patterns.locks import BoundLocks as AsyncBoundLocks
from ephemera.patterns.locks import BoundReadWriteLocks as AsyncBoundReadWriteLocks
from ephemera.patterns.locks import BoundSemaphores as AsyncBoundSemaphores
from ephemera.patterns.locks import HeldLock, Holder, LockDeclaration
from ephemera.patterns.planner import BoundPlanner as AsyncBoundPlanner
from ephemera.patterns.planner import (
    Dataset,
    Insight,
    OnSave,
    ParkedUser,
    Planner,
    PlannerStatus,
    RebuildRun,
    Task,
    Tick,
    UserExplanation,
    UserRow,
)
from ephemera.patterns.preferences import BoundPreferences as AsyncBoundPreferences
from ephemera.patterns.progress import BoundProgress as AsyncBoundProgress
from ephemera.patterns.progress import Progress, Snapshot, Update
from ephemera.patterns.rate_limits import BoundRateLimits as AsyncBoundRateLimits
from ephemera.patterns.rate_limits import Claim, CostReservation, Decision, Rule, WhenDown
from ephemera.patterns.revocation import BoundRevocation as AsyncBoundRevocation
from ephemera.patterns.revocation import TokenStatus
from ephemera.patterns.revocation import WhenDown as WhenDown2
from ephemera.patterns.semantic_cache import Answer, Hits, Scope, SweepReport, Tally
from ephemera.patterns.semantic_cache import BoundSemanticCache as AsyncBoundSemanticCache
from ephemera.patterns.sessions import BoundSessions as AsyncBoundSessions
from ephemera.patterns.sessions import ListedSession
from ephemera.patterns.usage import BoundUsage as AsyncBoundUsage
from ephemera.patterns.usage import Calendar, Usage, UsageTotals
from ephemera.patterns.windows import BoundWindows as AsyncBoundWindows
from ephemera.patterns.windows import WindowState
from ephemera.patterns.write_behind import BoundCounters as AsyncBoundCounters
from ephemera.patterns.write_behind import BoundRecords as AsyncBoundRecords
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords, Flushed, Sink
from ephemera.wire import Message

V = TypeVar("V")
S = TypeVar("S")
M = TypeVar("M")
E = TypeVar("E")
P = ParamSpec("P")
S2 = TypeVar("S2", bound=Scope)

class ChannelAccessor(Generic[V]):
    """Messages of one type to the current subscribers."""

    keyspace: Keyspace[Any]
    stats: Stats
    def name(self, /, **fields: FieldValue) -> str:
        """The channel's name, to subscribe to."""
    def publish(self, message: V, /, **fields: FieldValue) -> int:
        """Publish a message; returns how many subscribers received it (on a cluster, those of one node)."""
    def decode(self, data: bytes) -> V | None:
        """Decode a published message; None when it is not of the declared type."""

class CounterAccessor(Accessor):
    """One whole number per key, which any number of callers add to at once."""
    def get(self, /, *positional: Never, **fields: FieldValue) -> int:
        """The count; 0 when the key is absent."""
    def get_many(self, keys: Iterable[Fields], /) -> list[int]:
        """Several counts in one round trip."""
    def add(self, by: int = 1, /, *, until: Instant | None = None, **fields: FieldValue) -> int:
        """Add to the count and return it; 0 when `until` has passed and nothing was counted."""
    def add_many(
        self, additions: Iterable[tuple[Fields, int]], /, *, until: Instant | None = None
    ) -> list[int]:
        """Add to several counts in one round trip; each as in `add`.

        `until` is the instant at which they expire, where the keyspace has an `until` lifetime.
        """

class Accessor:
    """The operations that all kinds of keys share; the accessor of each kind adds its own."""

    keyspace: Keyspace[Any]
    stats: Stats
    def key(self, /, *positional: Never, **fields: FieldValue) -> str:
        """The key with these fields, for scripts of your own."""
    def expiry(self, until: Instant) -> int:
        """When a write with this `until` expires, in milliseconds since 1970, for scripts of your own."""
    def exists(self, /, *positional: Never, **fields: FieldValue) -> bool:
        """Whether the key exists; this does not renew a sliding lifetime."""
    def delete(self, /, *positional: Never, **fields: FieldValue) -> bool:
        """Delete the key; False when it did not exist."""
    def delete_many(self, keys: Iterable[Fields], /) -> int:
        """Delete several keys in one round trip; returns how many of them existed."""

class FlagAccessor(Accessor):
    """A key that is set or not; it carries no value."""
    def set(
        self,
        /,
        *positional: Never,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Set the flag with its TTL; False when `until` has passed and nothing changed.

        `lifetime` is shorter than the declared one, for this write.
        """
    def set_if_absent(
        self, /, *, until: Instant | None = None, lifetime: timedelta | None = None, **fields: FieldValue
    ) -> bool:
        """Set the flag unless it is set; True when this call set it.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
    def clear(self, /, **fields: FieldValue) -> bool:
        """Clear the flag; True when it was set."""
    def is_set(self, /, *positional: Never, **fields: FieldValue) -> bool:
        """Whether the flag is set."""
    def are_set(self, keys: Iterable[Fields], /) -> list[bool]:
        """Whether each of several flags is set, in one round trip."""

class HashAccessor(Accessor, Generic[S]):
    """One record per key, field by field."""
    def get(self, /, *positional: Never, **fields: FieldValue) -> S | None:
        """The record, or None when the key is absent, incomplete or holds something else."""
    def get_many(self, keys: Iterable[Fields], /) -> list[S | None]:
        """The records of several keys in one round trip, each None as in `get`."""
    def put(
        self,
        record: S,
        /,
        *positional: Never,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Replace the whole hash and set its TTL; False when `until` has passed.

        `lifetime` is shorter than the declared one, for this write.
        """
    def put_many(
        self,
        items: Iterable[tuple[Fields, S]],
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
    ) -> int:
        """Replace several hashes in one round trip; returns how many were stored.

        `until` is the instant at which they expire, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
    def update(
        self, changes: Mapping[str, Any], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> bool:
        """Change some fields of an existing hash; False when it does not exist, and nothing is written.

        With an `until` lifetime the hash keeps its expiry unless another is given.
        """

class ListAccessor(Accessor, Generic[V]):
    """Items of one type, in order."""
    def push(self, /, *items: V, until: Instant | None = None, **fields: FieldValue) -> int:
        """Append items and drop the oldest above `max_length`; the length, 0 when `until` has passed."""
    def pop(self, /, **fields: FieldValue) -> V | None:
        """Remove and return the oldest item; None when there is none, or it cannot be decoded."""
    def pop_many(self, count: int, /, **fields: FieldValue) -> list[V]:
        """Remove and return up to `count` of the oldest items, oldest first.

        In a keyspace of role `queue`, when some cannot be decoded all stay and `UndecodableItems` is raised.
        """
    def range(self, start: int = 0, stop: int = -1, /, **fields: FieldValue) -> list[V]:
        """Items by position, oldest first, `stop` included; -1 is the newest."""
    def size(self, /, **fields: FieldValue) -> int:
        """The number of items."""

class MappingAccessor(Accessor, Generic[V]):
    """Named entries of one type under each key."""
    def get(self, name: str, /, **fields: FieldValue) -> V | None:
        """One entry, or None when it is absent."""
    def get_some(self, names: Sequence[str], /, **fields: FieldValue) -> dict[str, V]:
        """Those of the named entries that exist."""
    def get_all(self, /, **fields: FieldValue) -> dict[str, V]:
        """All entries; empty when the key is absent."""
    def put(
        self,
        entries: Mapping[str, V],
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Replace all entries; False when `until` has passed.

        `lifetime` is shorter than the declared one, for this write.
        """
    def set(self, entries: Mapping[str, V], /, *, until: Instant | None = None, **fields: FieldValue) -> bool:
        """Set some entries and keep the others; False when `until` has passed."""
    def increment(
        self, name: str, by: int = 1, /, *, until: Instant | None = None, **fields: FieldValue
    ) -> int:
        """Add to an entry that is a whole number; its new value, 0 when `until` has passed."""
    def remove(self, /, *names: str, **fields: FieldValue) -> int:
        """Remove entries; returns how many of them existed."""
    def size(self, /, **fields: FieldValue) -> int:
        """The number of entries."""

class SetAccessor(Accessor, Generic[M]):
    """A set per key."""
    def add(self, /, *members: M, until: Instant | None = None, **fields: FieldValue) -> int:
        """Add members; returns how many were new.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        """
    def remove(self, /, *members: M, **fields: FieldValue) -> int:
        """Remove members; returns how many existed."""
    def contains(self, member: M, /, **fields: FieldValue) -> bool:
        """Whether it is a member."""
    def members(self, /, **fields: FieldValue) -> set[M]:
        """All members; empty when the key is absent."""
    def size(self, /, **fields: FieldValue) -> int:
        """The number of members."""

class SortedSetAccessor(Accessor, Generic[M]):
    """Members ordered by score."""
    def add(self, scores: Mapping[M, float], /, *, until: Instant | None = None, **fields: FieldValue) -> int:
        """Add members with their scores, or change their scores; returns how many were new.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        """
    def increment(
        self, member: M, by: float, /, *, until: Instant | None = None, **fields: FieldValue
    ) -> float:
        """Add to a member's score and return it; 0 when `until` has passed."""
    def remove(self, /, *members: M, **fields: FieldValue) -> int:
        """Remove members; returns how many existed."""
    def remove_between(self, low: float, high: float, /, **fields: FieldValue) -> int:
        """Remove the members with scores from `low` to `high`, both included; returns how many."""
    def score(self, member: M, /, **fields: FieldValue) -> float | None:
        """A member's score, or None when it is not a member."""
    def range(self, start: int, stop: int, /, **fields: FieldValue) -> Ranked[M]:
        """Members by rank, lowest score first, `stop` included; -1 is the last."""
    def highest(self, count: int, /, **fields: FieldValue) -> Ranked[M]:
        """The members with the highest scores, highest first."""
    def between(self, low: float, high: float, count: int = -1, /, **fields: FieldValue) -> Ranked[M]:
        """Members with scores from `low` to `high`, both included, lowest first, at most `count`."""
    def size(self, /, **fields: FieldValue) -> int:
        """The number of members."""

class StreamAccessor(Accessor, Generic[V]):
    """Entries in the order of their ids."""
    def append(self, entry: V, /, *, until: Instant | None = None, **fields: FieldValue) -> str | None:
        """Append an entry and return its id; None when `until` has passed."""
    def range(
        self, first: str = "-", last: str = "+", count: int | None = None, /, **fields: FieldValue
    ) -> list[tuple[str, V]]:
        """Entries with ids from `first` to `last`, oldest first; `(id` excludes that id."""
    def newest(self, count: int, /, **fields: FieldValue) -> list[tuple[str, V]]:
        """The newest entries, newest first."""
    def size(self, /, **fields: FieldValue) -> int:
        """The number of entries."""
    def decode(self, flat: list[bytes]) -> V | None:
        """Decode the fields of an entry as XREAD returns them; None when they are not one."""

class ValueAccessor(Accessor, Generic[V]):
    """One value per key, encoded by the keyspace's codec."""
    def get(self, /, *positional: Never, **fields: FieldValue) -> V | None:
        """The value, or None when the key is absent or holds something other than the declared type."""
    def get_many(self, keys: Iterable[Fields], /) -> list[V | None]:
        """The values of several keys in one round trip, each None as in `get`."""
    def put(
        self,
        value: V,
        /,
        *positional: Never,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Store the value with its TTL; False when `until` has passed and nothing was stored.

        `lifetime` is shorter than the declared one, for this write.
        """
    def put_many(
        self,
        items: Iterable[tuple[Fields, V]],
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
    ) -> int:
        """Store several values in one round trip; returns how many were stored.

        `until` is the instant at which they expire, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
    def put_if_absent(
        self,
        value: V,
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Store the value unless the key exists; True when it was stored.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """

class BoundCache(Generic[V]):
    """The cache of one store: `store[PROFILE]`."""

    declared: Cache[V]
    stats: Stats
    @overload
    def get_or_load(self, load: Callable[..., V], /, **fields: FieldValue) -> V: ...
    @overload
    def get_or_load(self, load: Callable[..., V | None], /, **fields: FieldValue) -> V | None: ...
    def get(self, /, *positional: Never, **fields: FieldValue) -> V | None:
        """Return the cached value if it is fresh, otherwise None; nothing is loaded."""
    def put(self, value: V | None, /, **fields: FieldValue) -> bool:
        """Store the current value; loads under way are not stored. False if it is not to be cached."""
    def delete(self, /, **fields: FieldValue) -> bool:
        """Remove the value, after its change was committed; loads under way are not stored."""
    def delete_many(self, keys: Iterable[Mapping[str, FieldValue]], /) -> int:
        """Remove several values in one round trip, on a cluster one for each node; how many there were."""
    def expire(self, /, **fields: FieldValue) -> bool:
        """Make the value stale: it is served while it is refreshed; loads under way are not stored."""
    def invalidate_tag(self, tag: str) -> None:
        """Invalidate every value with this tag, in one write however many there are."""

class BoundEntitlements(Generic[V]):
    """The entitlements of one store: what `store[LIMITS]` gives."""
    def get(self, load: Callable[..., V | None], /, **fields: FieldValue) -> V | None:
        """Return the value, from the cache or by `load(**fields)`; None when there is none."""
    def invalidate(self, /, **fields: FieldValue) -> None:
        """Remove the value after its change was committed; loads in progress will not be stored."""

class BoundEvents(Generic[E]):
    """The events of one store: what `store[EVENTS]` gives."""

    declaration: Events[E]
    def publish(self, event: E, /, **fields: FieldValue) -> str:
        """Add an event to the stream and return its id; `Unavailable` if it certainly was not added."""
    def publish_many(self, events: Iterable[E], /, **fields: FieldValue) -> list[str]:
        """Add events in one round trip and in their order, and return their ids; all or none of each 500."""
    def consume(
        self,
        group: str,
        handler: Callable[[E, Delivery], object],
        /,
        *,
        concurrency: int = 10,
        grace: timedelta = ...,
        on_error: ErrorActions = ...,
        **fields: FieldValue,
    ) -> Consumer[E]:
        """A consumer that runs for the length of a `with` block.

        Args:
            group: The consumer group, which is created if it does not exist.
            handler: Called with each event and its `Delivery`; one with a wrong signature is refused.
            concurrency: How many handlers run at a time.
            grace: How long running handlers may take at the end of the block; all other events go to other
                consumers.
            on_error: What becomes of an event by the exception that its handler raised: a `Redeliver`, a
                `Pause`, `"dead_letter"` or `"drop"`. Others are retried by the stream's `DeliveryPolicy`.
            fields: The fields of the stream's key.
        """
    def info(self, /, **fields: FieldValue) -> StreamInfo:
        """The stream's length, its number of dead letters, and each group's lag, pending events and pause."""
    def consumed_streams(self, limit: int) -> list[StreamInfo]:
        """The state of streams that this store consumes or has consumed, and of the one without fields."""
    def consumer_counts(self) -> dict[str, ConsumerCounts]:
        """What all consumers of this store have done, by group, including those that have stopped."""
    def dead_letters(
        self, /, *, first: str = "-", count: int = 100, **fields: FieldValue
    ) -> list[DeadLetter]:
        """Dead letters, oldest first, from the id `first` on; `(id` excludes that one.

        `count` is how many at most.
        """
    def replay(self, ids: Iterable[str] | None = None, /, **fields: FieldValue) -> int:
        """Put dead letters back on the stream for the group that failed: those given, or all there are."""
    def replay_since(
        self,
        group: str,
        since: datetime | str,
        /,
        *,
        until: datetime | str | None = None,
        limit: int = 10000,
        again: bool = False,
        **fields: FieldValue,
    ) -> ReplayedEvents:
        """Deliver again, to this group only, events that it has handled.

        They are copied to the end of the stream, with their first ids. What was trimmed is gone, and
        `may_lack` of the result says if that is possible: declare a `retention`. Events that the group has
        not got yet, or that are pending, are not copied.

        Args:
            group: The group that gets them; other groups pass them over.
            since: The first event: a datetime with a time zone, or an id.
            until: The last one, inclusive; None for all up to now.
            limit: How many to replay at most; the result says where to continue.
            again: Whether an `OnceGuard` takes them for new events. By default it does not, so events whose
                effect is in SQL have none the second time, and only those that had none get theirs.
            fields: The fields of the stream's key.
        """
    def trim(self, /, **fields: FieldValue) -> int:
        """Remove events that every group has handled; consumers do this automatically."""

class Consumer(Generic[E]):
    """One consumer of a group: what `consume` returns, for a `with` block."""

    counts: ConsumerCounts
    @property
    def name(self) -> str:
        """Its name in the group: host, process, and a token."""
    @property
    def pending(self) -> int:
        """How many events were delivered to it and are not finished."""
    @property
    def paused(self) -> bool:
        """Whether it waits because its group is paused."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

class BoundFanout(Generic[M]):
    """The fan-out of one store: what `store[FANOUT]` gives."""

    declaration: Fanout[M]
    def connect(self, /, **fields: FieldValue) -> FanoutConnection[M]:
        """A connection of a user; enter it with `with`, then iterate over its messages."""
    def push(self, message: M, /, **fields: FieldValue) -> int:
        """Send a message to all connections of a user, on any process; returns how many there are."""
    def broadcast(self, message: M) -> None:
        """Send a message to all connections of all users."""
    def connections(self, /, **fields: FieldValue) -> list[Presence]:
        """Where a user is connected, by deadline."""
    @property
    def local_connections(self) -> int:
        """How many connections this process has."""

class FanoutConnection(Generic[M]):
    """One connection of a user: an async iterator of messages, and of `MISSED` where some may be lost."""

    key: str
    id: str
    closed: bool
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> M | Literal[Missing.MISSED]: ...
    def close(self) -> None:
        """End the iteration, after the messages that have arrived."""

class BoundHttpCache(Generic[S]):
    """A site of one store: `store[SITE]`."""

    declared: HttpCache[S]
    @property
    def windows(self) -> BoundWindows[S] | None:
        """Its windows, if it has any."""
    def store_bodies_in(self, bodies: BodyStore, *, over: int) -> None:
        """Keep content of more than `over` bytes, as compressed, in a body store, with a pointer in Redis.

        Private pages stay in Redis. A process without the body store loads a page that it finds as a pointer.
        """
    def bump(self, /, *pages: PageRef) -> None:
        """Reload these pages and replace them in one step; call it after the commit.

        All or none are replaced. It raises what a loader raises, and then nothing has changed, or
        `ConnectionFailed`: repeat it.
        """
    def changing(self, /, *pages: PageRef) -> AbstractContextManager[None]:
        """Commit inside of the block; these pages are bumped at its end.

        Unlike with `bump` alone, no other load stores one of them between the commit and the bump, so not
        even for a moment one of them has the change and another has not. `ConnectionFailed` before the block
        is entered: do not commit; after it: call `bump`. When the block raises, nothing is bumped.
        """
    def delete(self, /, *pages: PageRef) -> None:
        """Remove these pages in one step; the next request loads them."""
    def prewarm(self) -> PrewarmReport | None:
        """Load what is missing, stale or from before the window; None when another process does so."""
    def prewarm_at_openings(self) -> None:
        """Prewarm at every opening of a window, from now until the store is closed."""
    def prewarm_in_background(self) -> None:
        """Prewarm until the store is closed at the latest; the log reports the result."""

class BoundWindows(Generic[S]):
    """The windows of one store: `store[MATCHES]`."""

    next_check: float
    def configure(self, *, lead_time: timedelta, grace: timedelta, lookahead: timedelta) -> None:
        """Change the windows of this store, before they are first used.

        `lead_time`, `grace` and `lookahead` are those of the declaration.
        """
    def now(self) -> WindowState:
        """Return which window is open, and which comes next."""
    def last_known(self) -> WindowState:
        """Return the same from the last answer of the schedule, without asking it."""
    def freshness(self, outside: Freshness, inside: Freshness) -> Freshness:
        """Return the freshness of what is made now, which ends at the next opening at the latest."""
    def invalidate(self) -> None:
        """Have the schedule asked again, after it has changed."""

class BoundResource:
    """A resource of one store: `store[TABLE]`."""

    declared: Resource[Any]
    def peek(self, key: str) -> Page | None:
        """Return the page of a key if this process has it and may use it: no round trip, next to no work.

        Content that is in a body store stays there: see `pointer`.
        """
    def head(self, key: str) -> EntryHead | None:
        """Return number and stamp of a fresh page that this process does not have, without its payload.

        None: get the page. So it is when the page is stale, and at the second request, to have it locally.
        """
    def accepts(self, fields: Mapping[str, FieldValue]) -> bool:
        """Whether a page with these fields can exist."""
    def set_in_window(self, freshness: Freshness | None) -> None:
        """Change the freshness inside of windows for pages that this store loads from now on.

        It may be at most as long as declared; None: as declared.
        """
    def fresh_for(self, page: Page) -> float:
        """Return the seconds for which a page is still fresh; negative when it is stale."""
    def page(self, /, **fields: FieldValue) -> Page | None:
        """Return the page, fresh or stale; None when there is no such page.

        `StillLoading` when there is nothing to serve and the load takes longer than the site's `wait`,
        `LoadFailed` when it fails.
        """
    def locate(self, /, **fields: FieldValue) -> Page | None:
        """Return the page as `page` does, but leave content that is in a body store there: see `pointer`."""

class BoundJobs:
    """The jobs of one store and one database: what `store[JOBS]` gives."""

    declaration: Jobs
    def create_tables(self) -> None:
        """Create or upgrade the tables, as `ephemera migrate up` does; safe in many processes at once."""
    def enqueue(self, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue a job and return its id. If Redis is down, it runs when Redis is back.

        `job.options(...)` sets how it is enqueued. For a unique job that exists already, its id is
        returned; `get_or_enqueue` also says which it was.
        """
    def get_or_enqueue(self, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a job unless the same one exists; returns its id, and whether it is new."""
    def enqueue_many(
        self,
        job: Job[..., Any],
        arguments: Iterable[Mapping[str, Any]],
        /,
        *,
        sql: AsyncConnection | None = None,
    ) -> list[Enqueued]:
        """Enqueue a job for each of these arguments, all or none of them, in their order.

        Args:
            job: The job, or `job.options(...)`.
            arguments: A mapping of argument names to values for each job.
            sql: A transaction of yours to do it in; as with `enqueue_in`, the jobs run when it has committed.
        """
    def publish(self, job_id: str) -> None:
        """Send the message of a job that was enqueued in a transaction which has committed, if it is due."""
    def get(self, job_id: str) -> JobRow:
        """A job as it is in SQL; `UnknownJob` if there is none."""
    def find(
        self,
        *,
        states: Sequence[str] = (),
        kind: str | None = None,
        limit: int = 50,
        before: datetime | None = None,
    ) -> list[JobRow]:
        """The newest jobs, optionally of some states, of one kind, or created before a moment.

        Args:
            states: The states; by default all.
            kind: The name of a kind of job; by default all.
            limit: How many at most.
            before: Only jobs created before this moment, for the next page.
        """
    def cancel(self, job_id: str) -> JobRow:
        """End a job that waits or runs; its worker stops it within about a second."""
    def retry(self, job_id: str) -> JobRow:
        """Continue a failed, dead or cancelled job from its last step."""
    def pause(self, queue: str) -> None:
        """Start no more jobs of a queue, on any worker, from about a second on; running ones continue."""
    def resume(self, queue: str) -> None:
        """Start the jobs of a paused queue again."""
    def set_limits(self, queue: str, *, max_running: int | None = None, rate: Rate | None = None) -> None:
        """Limit a queue in all workers together, from about a second on; what is not given is unlimited.

        Args:
            queue: The queue.
            max_running: How many of its jobs run at once.
            rate: How many of its jobs start in a time, as in `(100, timedelta(seconds=1))`.
        """
    def queues(self) -> list[QueueSettings]:
        """The settings of all queues, in the order of their declaration."""
    def result(self, job_id: str, *, timeout: timedelta | None = None) -> Any:
        """Wait for the end of a job, and return its result as the function's return annotation says.

        `JobUnsuccessful` if it failed, died or was cancelled; `JobNotFinished`, a `TimeoutError`, if it has
        not ended after the timeout; `UnknownJob` if there is no such job.

        Args:
            job_id: The job's id.
            timeout: How long to wait; forever by default.
        """
    def schedules(self) -> list[ScheduleRow]:
        """The schedules as they are in SQL, with their next runs."""

class BoundLocks(LockRuntime):
    """The locks of one store: what `store[LOCKS]` gives."""
    def hold(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock for the length of a `with` block, waiting at most `timeout` seconds for it.

        Raises `LockTimeout` when others hold it for longer, and `LockLost` at the end of the block when the
        lock was lost in between.
        """
    def try_hold(self, /, **fields: FieldValue) -> TryHold:
        """Hold the lock if it is free, without waiting; the block runs with None when it is not."""
    def holder(self, /, **fields: FieldValue) -> Holder | None:
        """Return the current holder; None when the lock is free."""

class LockRuntime:
    """What the locks, semaphores and read-write locks of one store have in common."""

    declaration: LockDeclaration
    @property
    def held(self) -> int:
        """How many of this declaration the store holds now."""
    @property
    def acquired(self) -> int:
        """How many were acquired since the store was opened."""
    @property
    def lost(self) -> int:
        """How many were lost before they were released, since the store was opened."""

class Hold:
    """The `with` block that waits for a lock."""
    def __enter__(self) -> HeldLock: ...
    def __exit__(self, *error: object) -> None: ...

class TryHold:
    """The `with` block that does not wait; it gets None when the lock is not free."""
    def __enter__(self) -> HeldLock | None: ...
    def __exit__(self, *error: object) -> None: ...

class BoundReadWriteLocks(LockRuntime):
    """The read-write locks of one store: what `store[READ_WRITE_LOCKS]` gives."""
    def read(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock with other readers for the length of a `with` block.

        Waits at most `timeout` seconds for writers that hold the lock or came first; then `LockTimeout`.
        Raises `LockLost` at the end of the block when the lock was lost in between.
        """
    def write(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock alone for the length of a `with` block.

        Waits at most `timeout` seconds for holders and for those who came first; then `LockTimeout`. Raises
        `LockLost` at the end of the block when the lock was lost in between.
        """
    def try_read(self, /, **fields: FieldValue) -> TryHold:
        """Read without waiting; the block runs with None when a writer holds the lock or waits for it."""
    def try_write(self, /, **fields: FieldValue) -> TryHold:
        """Write without waiting; the block runs with None when the lock is held or waited for."""
    def holders(self, /, **fields: FieldValue) -> list[Holder]:
        """Return the current readers, longest first, or the writer."""

class BoundSemaphores(LockRuntime):
    """The semaphores of one store: what `store[SEMAPHORES]` gives."""
    def hold(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold a permit for the length of a `with` block, waiting at most `timeout` seconds for one.

        Raises `LockTimeout` when none became free in time, and `LockLost` at the end of the block when the
        permit was lost in between.
        """
    def try_hold(self, /, **fields: FieldValue) -> TryHold:
        """Hold a permit if one is free and no one waits for it; otherwise the block runs with None."""
    def holders(self, /, **fields: FieldValue) -> list[Holder]:
        """Return the current holders, longest first."""

class BoundPlanner:
    """A planner on a store and a database: what `store[PLANNER]` gives."""

    declared: Planner
    def create_tables(self) -> None:
        """Create or upgrade the tables, as `ephemera migrate up` does; safe in many processes at once."""
    def publish(self, channel_id: str, **columns: Any) -> Insight:
        """Publish an insight with the channel's next seq and the application's columns."""
    def mark_dirty(self, *insights: Insight) -> None:
        """Have the next tick examine the channels of insights that were committed."""
    def enroll(self, user_id: str, *, plan: str) -> None:
        """Add a user, or change their plan."""
    def subscribe(self, user_id: str, channel_id: str) -> bool:
        """Subscribe a user, whose novelty begins at the window's start; False when subscribed already."""
    def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False when there was none."""
    def touch(self, user_id: str) -> None:
        """Record that a user is active: one round trip, and SQL now and then."""
    def tick(self, enqueue: Callable[[Sequence[Task]], None]) -> Tick:
        """Enqueue the users who are due, from Redis, or from SQL while Redis is unavailable.

        One process ticks at a time. Errors of SQL and of `enqueue` are raised; no user is lost by them.
        """
    def run(self, enqueue: Callable[[Sequence[Task]], None], *, every: timedelta = ...) -> None:
        """Tick forever, about once per interval; a failure is logged and retried.

        `every` is that interval.
        """
    @property
    def status(self) -> PlannerStatus:
        """Mode, last tick and counts of this process, without I/O."""
    def queue_length(self) -> int:
        """Return how many users are enqueued and not finished."""
    def parked(self, limit: int = 100) -> list[ParkedUser]:
        """Return users who are not enqueued any more: `max_attempts` of their runs failed in a row."""
    def retry(self, *user_ids: str) -> int:
        """Have users enqueued again whose runs have failed; return how many there were."""
    def explain(self, user_id: str) -> UserExplanation | None:
        """Return why a user is due or is not, by SQL; None for an unknown user. It writes nothing."""
    def explain_all(self, user_ids: Collection[str]) -> dict[str, UserExplanation]:
        """Return why some users are due or are not, those who exist; two queries for all of them."""
    def rebuild(
        self,
        user_id: str,
        build: Callable[[Dataset], Any],
        *,
        invalidate: Callable[[str, int], None] | None = None,
        on_save: OnSave | None = None,
        force: bool = False,
    ) -> RebuildRun:
        """Rebuild a user's clusters with `build(dataset)`, if there is novelty and it is still due.

        An error of `build` is raised. The user is rechecked after five minutes, twice as long after each
        further failure, and parked after `max_attempts`.

        Args:
            user_id: The user.
            build: Makes the clusters of a dataset.
            invalidate: Awaited after the commit, with the user and the new version.
            on_save: `on_save(connection, dataset)` writes in the transaction that saves the clusters.
            force: Rebuild below the plan's thresholds, for a reader who wants what little is new.
        """
    def insights(self, dataset: Dataset, *, newest: int | None = None) -> Sequence[Row[Any]]:
        """Return the insights of a dataset by channel and seq, or only the `newest` ones of them."""
    def user(self, user_id: str) -> UserRow | None:
        """Return a user as SQL has them: their facts, and the version of their clusters."""

class BoundPreferences(Generic[S]):
    """The settings of one store: what `store[LOOK]` gives."""
    def get(self, /, **fields: FieldValue) -> S:
        """Return the settings; the defaults where nothing was set."""
    def merge(self, changes: Mapping[str, Any], /, **fields: FieldValue) -> S:
        """Set some fields and leave the others; return all of them as they are now."""
    def replace(self, settings: S, /, **fields: FieldValue) -> None:
        """Set all fields."""
    def reset(self, /, **fields: FieldValue) -> bool:
        """Return to the defaults; False when nothing was set."""

class BoundProgress(Generic[E]):
    """The progress streams of one store: what `store[PROGRESS]` gives."""

    declaration: Progress[E]
    def append(self, event: E, /, **fields: FieldValue) -> str:
        """Append an event, wake the listeners, and return the entry's id."""
    def reopen(self, **fields: FieldValue) -> None:
        """Let a stream continue after its terminal event, because what it reports was started again.

        New listeners ignore that event and follow what comes; those that had it have ended.
        """
    def listen(
        self, *, snapshot: Callable[..., Snapshot], after: str | None = None, **fields: FieldValue
    ) -> Listener[E]:
        """All events after the one with the id `after`, or from the first one, and those still to come.

        `snapshot` is called with the fields, as in `snapshot(job_id="j1")`, when events may be missing.
        """

class Listener(Generic[E]):
    """Follows a stream: `with ... as updates: for update in updates`.

    `catch_up` and `next_batch` return updates in batches, for code that forwards them.
    """

    ended: bool
    closed: bool
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def close(self) -> None:
        """Stop listening; a pending `next_batch` returns."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Update[E]: ...
    def catch_up(self) -> list[Update[E]]:
        """Start listening; returns what the listener lacks now, nothing if it is up to date or `ended`."""
    def next_batch(self) -> list[Update[E]]:
        """Wait for updates; an empty list is a heartbeat, about every 15 seconds of silence."""

class BoundRateLimits:
    """The limits of one store, and their counts since it was opened: what `store[LIMITS]` gives."""

    allowed: int
    denied: int
    degraded: int
    @property
    def remembered(self) -> int:
        """Denials by the cache of this process, without the server; not among `denied`."""
    def check(self, *claims: Claim, cost: int = 1, when_down: WhenDown | None = None) -> Decision:
        """Take the cost from every claim if all have room, otherwise from none; at most one round trip.

        `when_down` overrides the policies of the rules for this call.
        """
    def peek(self, *claims: Claim, cost: int = 1) -> Decision:
        """The state of these claims, and whether `check` would pass; nothing is taken.

        `cost` is in units of the limits.
        """
    def reserve(
        self, *claims: Claim, cost: int, when_down: WhenDown | None = None
    ) -> AbstractContextManager[CostReservation]:
        """Take an estimated cost now, and settle the real one when the block ends; an error gives it back.

        `when_down` overrides the policies of the rules for this call.
        """
    def settle(self, decision: Decision, cost: int) -> bool:
        """Replace the cost of a decision with the real one, even above the limit.

        Claims with a cost of their own keep it, except that a cost of 0 gives everything back. False when
        there was nothing to settle, or the server is down.
        """
    def refund(self, decision: Decision) -> bool:
        """Give back all that a decision took; False when it took nothing, or the server is down."""
    def reset(self, *claims: Claim) -> None:
        """Clear what these claims have used."""
    def set_limit(self, rule: Rule, limit: int, *, tier: str = ...) -> None:
        """Change a declared limit for this store, in this process; the next check uses it.

        Used units stay used. Limits given by `rule.at(...)` are not affected.

        `tier` names which one, for a rule with tiers.
        """
    def limits_of(self, rule: Rule) -> dict[str, int]:
        """The current limits of a rule by tier; of a rule without tiers, under an empty name."""

class BoundRevocation:
    """The revocations of one store: what `store[REVOKED]` gives."""
    def check(
        self,
        kind: str,
        *,
        jti: str | None = None,
        user: FieldValue | None = None,
        issued_at: Instant | None = None,
        family: str | None = None,
        when_down: WhenDown2 | None = None,
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
    def revoke_token(self, kind: str, jti: str, *, until: Instant) -> bool:
        """Revoke a token until it expires, its leeway included; False when it has expired already."""
    def revoke_user(self, user: FieldValue) -> float:
        """Revoke every token issued to a user until now; return the instant, in seconds since 1970."""
    def revoke_family(self, family: str) -> None:
        """Revoke all tokens of a family, including those that may still be issued in it."""
    def spend(
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
    def now(self, user: FieldValue) -> float:
        """The `iat` for a token issued to a user now: after their last revocation, by the same clock."""
    def wait_subscribed(self) -> None:
        """Wait until this process receives others' revocations; the first check subscribes."""

class BoundSemanticCache(Generic[V, S2]):
    """The semantic cache of one store: `store[OUTLINES]`."""

    stats: Stats
    def get_or_ask(self, prompt: str, scope: S2, ask: Callable[[str], V]) -> Answer[V]:
        """Return the answer to this prompt or to a similar one in the same scope, or `ask(prompt)`."""
    def find(self, prompt: str, scope: S2) -> Answer[V] | None:
        """Return the answer to this prompt or to a similar one, or None; the model is not asked."""
    def put(self, prompt: str, scope: S2, value: V) -> None:
        """Store the answer of a model that was asked elsewhere, in place of an earlier one."""
    def delete(self, prompt: str, scope: S2) -> bool:
        """Remove the answer to a prompt; one that is being asked for is not stored."""
    def report_bad_hit(self, answer_id: str) -> bool:
        """Remove a wrong answer, by `Answer.id`, so that it is not returned again; False when it was gone."""
    def invalidate_source(self, source: str) -> int:
        """Invalidate every answer that is based on this; returns how many were removed at once."""
    def sweep(self) -> SweepReport:
        """Remove the vectors of dead answers."""
    def hits(self, answer_id: str) -> Hits:
        """Return how often an answer was used, by `Answer.id`."""
    def tally(self, days: int = 1) -> Tally:
        """Return what all processes did in the last `days` days, today included."""

class BoundSessions(Generic[S]):
    """The sessions of one store: what `store[SESSIONS]` gives."""

    stats: Stats
    def begin_sign_in(self, user: FieldValue) -> str:
        """Announce a sign-in before you read the account, for `create(..., sign_in=...)`."""
    def create(
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
    def get(self, token: str) -> S | None:
        """Read the session of a token, and extend it if it slides; None when there is none (any more)."""
    def get_by_id(self, user: FieldValue, session_id: str) -> S | None:
        """Read a session by id, where the user is authenticated otherwise, such as by a signed token."""
    def peek(self, token: str) -> S | None:
        """Read a session like `get`, but without extending it: an open page is not a use."""
    def update(self, token: str, /, **changes: Any) -> bool:
        """Change some fields of a session; False, and nothing written, when there is none (any more)."""
    def rotate(self, token: str) -> str | None:
        """Replace the token of a session, and return the new one; None when there is none (any more)."""
    def end(self, token: str) -> bool:
        """End a session; False when there was none (any more)."""
    def end_by_id(self, user: FieldValue, session_id: str) -> bool:
        """End a user's session by the id that `of_user` shows."""
    def end_all(self, user: FieldValue, *, keep: str | None = None) -> int:
        """End all sessions of a user, except that of the token `keep`, and return how many.

        When this returns, none of them is valid, and no sign-in announced before it can succeed.
        """
    def of_user(self, user: FieldValue) -> list[ListedSession[S]]:
        """List a user's sessions by expiry, without extending them."""
    def renewed_lifetime(self, token: str) -> int:
        """Milliseconds that a use gives a token's session, up to its absolute end; 0 if it does not slide."""
    def id_of(self, token: str) -> str | None:
        """Return the id of a token's session, as `of_user` shows it; None for text that is not a token."""

class BoundUsage:
    """The usage of one store: what `store[USAGE]` gives."""

    declared: Usage
    def flusher(self, **options: Any) -> Flusher:
        """Return a `Flusher` of this usage to its table; it takes the options of one."""
    def record(
        self,
        organization_id: str,
        /,
        *,
        idempotency_key: str | None = None,
        calendar: Calendar | None = None,
        **amounts: int,
    ) -> bool:
        """Count usage in the current period; False when it was counted before with this idempotency key.

        `calendar` is the organization's own, with its billing day and time zone.

        `idempotency_key` is the id of what is counted, such as that of a request.
        """
    def totals(
        self, organization_id: str, /, *, period: str | None = None, calendar: Calendar | None = None
    ) -> UsageTotals:
        """Return what is used and reserved, in the current period, by `calendar`, or in a named one."""
    def reserve(
        self,
        organization_id: str,
        /,
        *,
        limits: Mapping[str, int | None],
        expires_after: timedelta = ...,
        reservation_id: str | None = None,
        calendar: Calendar | None = None,
        **amounts: int,
    ) -> Reservation:
        """Reserve amounts if used + reserved + requested is within every limit; else `QuotaExceeded`.

        Args:
            organization_id: Whose usage it is.
            limits: The limit of each measure; None is no limit.
            expires_after: When a reservation that is neither settled nor released expires; by default 30
                minutes.
            reservation_id: An id of your own, with which retrying returns the same reservation.
            calendar: The organization's own, if it differs from the declared one.
            amounts: What is reserved, by measure.
        """
    def reservation(self, organization_id: str, reservation_id: str, period: str) -> Reservation:
        """Return a reservation that another process made, to settle or release it here."""

class Flusher:
    """Flushes the counters or records of a store to a sink.

        with Flusher(store[VIEWS], sink):      # in the background, and all of it at the block's end
            ...
        Flusher(store[VIEWS], sink).flush()    # now, once

    Leaving the block flushes everything, for at most ten seconds. What that leaves stays in Redis for the
    next flusher; `failure` says why.

    Args:
        source: What is flushed: `store[COUNTERS]` or `store[RECORDS]`.
        sink: Where to: a `CounterTable`, a `RecordTable`, or a sink of yours.
        on_applied: Awaited with each batch that is in SQL, at least once. A batch whose `on_applied` fails is
            kept and brought again.
        flush_every: The age at which batches are due, instead of the declared one.
        claim_timeout: How long after `write_delay` a batch is left to a flusher that does not finish it.
        write_delay: How long a batch waits between sealing and writing. Two seconds suit a server that may
            lose its last second (appendfsync everysec, a failover): what SQL has cannot come back unsealed.
            Give zero only where every acknowledged write is on disk (appendfsync always) or none needs to be.
    """

    failure: Exception | None
    def flush(self) -> Flushed:
        """Flush everything now; the first error is raised after every shard was tried."""
    def run(self) -> None:
        """Flush what is due, forever."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

class Reservation:
    """Amounts that are set aside: settle them with what was really used, or release them.

    As a block (`with store[USAGE].reserve(...) as reservation:`) it is released unless settled.
    """

    id: str
    period: str
    ended: bool
    def settle(self, **amounts: int) -> bool:
        """Count what was used and end the reservation; False when it was settled before.

        It counts even when the reservation has expired, because the work was done.
        """
    def release(self) -> bool:
        """End the reservation without any use; False when it had ended or expired."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

class BoundCounters:
    """The counters of one store: what `store[COUNTERS]` gives."""

    declared: DeferredCounters
    stats: Stats
    def add(
        self, /, *, idempotency_key: str | None = None, fallback: Sink | None = None, **values: FieldValue
    ) -> bool:
        """Add to the counters of a row, in one round trip.

            store[VIEWS].add(presentation_id="p1", view_count=1)

        With an `idempotency_key` the addition counts once however often it is retried, for as long as
        `idempotency_ttl`; False when it was counted before. Raises `BacklogFull` when there is no room for a
        new counter. When Redis is down, raises `Unavailable`, or writes to the sink `fallback` if there is
        one. With both, it counts once whichever way it is retried, within a week; give the same fallback
        each time.
        """
    def pending(self, /, **key: FieldValue) -> dict[str, int]:
        """Return the amounts of a row that Redis holds, including those of a sealed batch.

        Not those with an idempotency key and a fallback: SQL decides whether they count.
        """
    def backlog(self) -> int:
        """Return how many counters are not in SQL yet, in all shards."""
    def backlog_age(self) -> float:
        """Return the age of the oldest pending addition in seconds, in one round trip."""

class BoundRecords(Generic[S]):
    """The records of one store: what `store[RECORDS]` gives."""

    declared: DeferredRecords[S]
    stats: Stats
    def append(
        self,
        /,
        *records: S,
        partition_key: str | None = None,
        idempotency_key: str | None = None,
        fallback: Sink | None = None,
    ) -> bool:
        """Append records, all of them or none, in one round trip.

        Records with the same `partition_key` reach SQL in the order they were appended. With an
        `idempotency_key` (and the same `partition_key`) they are appended once however often that is
        retried, for as long as `idempotency_ttl`; False when they were appended before. Raises `BacklogFull`
        when there is no room. When Redis is down, raises `Unavailable`, or writes to the sink `fallback` if
        there is one. With both, they are in SQL once whichever way that is retried, within a week; give the
        same fallback each time.
        """
    def backlog(self) -> int:
        """Return how many records are not in SQL yet, in all shards."""
    def backlog_age(self) -> float:
        """Return the age of the oldest pending record in seconds, in one round trip."""

class Subscription:
    """A subscription: `with store.subscribe("news") as messages: for message in messages`."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...

T_co = TypeVar("T_co", covariant=True)

class _BindsItself(Protocol[T_co]):
    """A declaration of an adapter, which makes its own object for a synchronous store."""

    def bind_sync(self, store: BlockingStore) -> T_co: ...

class BoundItems:
    """What `store[X]` is, by what X declares."""

    def __init__(self, store: BlockingStore) -> None: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncChannelAccessor[V]]) -> ChannelAccessor[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncCounterAccessor]) -> CounterAccessor: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncFlagAccessor]) -> FlagAccessor: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncHashAccessor[S]]) -> HashAccessor[S]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncListAccessor[V]]) -> ListAccessor[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncMappingAccessor[V]]) -> MappingAccessor[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncSetAccessor[M]]) -> SetAccessor[M]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncSortedSetAccessor[M]]) -> SortedSetAccessor[M]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncStreamAccessor[V]]) -> StreamAccessor[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncValueAccessor[V]]) -> ValueAccessor[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundCache[V]]) -> BoundCache[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundEntitlements[V]]) -> BoundEntitlements[V]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundEvents[E]]) -> BoundEvents[E]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundFanout[M]]) -> BoundFanout[M]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundHttpCache[S]]) -> BoundHttpCache[S]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundResource]) -> BoundResource: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundJobs]) -> BoundJobs: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundLocks]) -> BoundLocks: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundReadWriteLocks]) -> BoundReadWriteLocks: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundSemaphores]) -> BoundSemaphores: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundPlanner]) -> BoundPlanner: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundPreferences[S]]) -> BoundPreferences[S]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundProgress[E]]) -> BoundProgress[E]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundRateLimits]) -> BoundRateLimits: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundRevocation]) -> BoundRevocation: ...
    @overload
    def __getitem__(
        self, declaration: Declaration[AsyncBoundSemanticCache[V, S2]]
    ) -> BoundSemanticCache[V, S2]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundSessions[S]]) -> BoundSessions[S]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundUsage]) -> BoundUsage: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundWindows[S]]) -> BoundWindows[S]: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundCounters]) -> BoundCounters: ...
    @overload
    def __getitem__(self, declaration: Declaration[AsyncBoundRecords[S]]) -> BoundRecords[S]: ...
    @overload
    def __getitem__(self, declaration: _BindsItself[T_co]) -> T_co: ...
    @overload
    def __getitem__(self, declaration: Declaration[Any]) -> Any: ...
