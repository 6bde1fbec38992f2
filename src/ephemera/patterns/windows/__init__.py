"""Time windows around events that matter, and freshness that differs inside and outside of them.

    async def matches(db: Database, since: datetime, until: datetime) -> list[datetime]: ...

    MATCHES = Windows(catalogue, "cache:match-window:v1", matches, lead_time=timedelta(minutes=45))
    OUTSIDE = Freshness(fresh=timedelta(days=7))
    INSIDE = Freshness(fresh=timedelta(seconds=30), stale=timedelta(minutes=5))

    async with connect(url, catalogue, resources={MATCHES: db}) as store:
        (await store[MATCHES].now()).is_open
        await store[MATCHES].freshness(OUTSIDE, INSIDE)      # ends at the next opening at the latest

A window opens `lead_time` before an event and closes `grace` after the event's `duration`; the schedule may
also give pairs of begin and end. Windows that touch are merged.

*Keys.* The computed windows are one value, with the load token and the channel of a `cache`: one process at a
time asks the schedule, and all use its answer for `cached_for` (30 s).

*Lifetimes.* Time is the server's. A lifetime ends at the next opening at the latest, and from then on is
stale as inside. An opening that was not foreseeable (a match announced after a page was stored) is seen
within `cached_for`; `http_cache` then refreshes what is from before it.

*When Redis is down*, hangs, or the schedule fails: the windows that this process saw last remain in use,
since they are times and not states. A process that has seen none assumes it is inside, where lifetimes are
short. After an eviction the schedule is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Annotated, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store, check_declaration, check_durations, unix_milliseconds
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.cache import Cache, Freshness, Loading, LocalCache

__all__ = ["BoundWindows", "Freshness", "Schedule", "Window", "WindowState", "Windows"]

S = TypeVar("S")

Schedule: TypeAlias = "Iterable[datetime | tuple[datetime, datetime]]"
"""Events as a schedule gives them: times, or pairs of begin and end, each with a time zone."""

_NO_TIME = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_STALE = timedelta(minutes=5)
_SOFT_TIMEOUT = timedelta(milliseconds=250)  # wait for newer windows, once per `cached_for`
_log = logging.getLogger(__name__)
_LAST = 253_402_300_799_999  # milliseconds since 1970: the end of the year 9999
_Milliseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=-_LAST, le=_LAST)]


class Window(msgspec.Struct, array_like=True, frozen=True):
    """A window, in milliseconds since 1970; its end is not part of it."""

    opens: _Milliseconds
    closes: _Milliseconds


class WindowState(NamedTuple):
    """The windows at a given time: the one that is open, and the next; milliseconds since 1970."""

    time: float
    open: Window | None
    next: Window | None
    is_known: bool = True  # False: the schedule has never answered, so a window is assumed to be open
    horizon: timedelta = timedelta.max  # how far ahead the schedule was asked

    @property
    def is_open(self) -> bool:
        """Whether a window is open."""
        return self.open is not None or not self.is_known

    @property
    def opened_at(self) -> int:
        """When the open window opened; 0 when none is open."""
        return 0 if self.open is None else self.open.opens

    @property
    def changes_in(self) -> timedelta | None:
        """How long until a window opens or closes; None when none is known."""
        edge = self.open.closes if self.open else self.next.opens if self.next else None
        return None if edge is None else timedelta(milliseconds=edge - self.time)

    def freshness(self, outside: Freshness, inside: Freshness) -> Freshness:
        """Return the freshness of what is made now."""
        if self.is_open:
            return inside
        left = self.changes_in
        if left is None:
            return Freshness(fresh=min(outside.fresh, self.horizon), stale=outside.stale)
        if outside.fresh < left:  # what remains of being stale at the opening is as inside, too
            stale = min(outside.stale, left - outside.fresh + inside.stale)
            return Freshness(fresh=outside.fresh, stale=stale)
        return Freshness(fresh=max(left, _MILLISECOND), stale=inside.stale)


class Windows(Generic[S]):
    """The declaration of windows; `store[MATCHES]` is the `BoundWindows` of a store.

    Open the store with `resources={MATCHES: source}`: the source is what the schedule reads from.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The key of the computed windows.
        schedule: `await schedule(source, since, until)` gives the events between two times.
        duration: How long an event lasts that is given as a single time.
        lead_time: How long before an event its window opens.
        grace: How long after an event its window closes.
        lookahead: How far ahead the schedule is asked.
        cached_for: How long the answer is used before the schedule is asked again.
        purpose: What the windows are for, for the generated documentation.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        schedule: Callable[[S, datetime, datetime], Awaitable[Schedule]],
        *,
        duration: timedelta = timedelta(hours=2),
        lead_time: timedelta = timedelta(minutes=45),
        grace: timedelta = timedelta(minutes=30),
        lookahead: timedelta = timedelta(days=7),
        cached_for: timedelta = timedelta(seconds=30),
        purpose: str = "When the next windows open and close",
    ) -> None:
        check_declaration(catalogue, pattern, cached_for=cached_for)
        self.pattern, self.schedule = pattern, schedule
        self.duration, self.cached_for = duration, cached_for
        self.lead_time, self.grace, self.lookahead = lead_time, grace, lookahead
        _check(self, lead_time, grace, lookahead)
        self.cache: Cache[list[Window]] = Cache(
            catalogue,
            pattern,
            list[Window],
            fresh=cached_for,
            stale=_STALE,
            loading=Loading(jitter=0, soft_timeout=_SOFT_TIMEOUT),
            local=LocalCache(max_entries=1, values="shared"),  # no caller sees it
            purpose=purpose,
            saves="a query of the schedule at each request",
            invalidated_by=("a changed schedule, where `invalidate` is called",),
            if_lost="it is computed again",
        )

    def bind(self, store: Store) -> BoundWindows[S]:
        """Return the windows of a store that has their catalogue."""
        return BoundWindows(self, store)

    def __repr__(self) -> str:
        return f"<Windows {self.pattern!r} of {self.cache.keyspace.catalogue}>"


class BoundWindows(Generic[S]):
    """The windows of one store: `store[MATCHES]`."""

    def __init__(self, declared: Windows[S], store: Store) -> None:
        self._declared = declared
        self._source: S = store.resource(declared, "the source that its schedule reads from")
        self._cache = store[declared.cache]
        self._clock = store[SERVER_CLOCK]
        self._lead_time, self._grace, self._lookahead = declared.lead_time, declared.grace, declared.lookahead
        self._known: Sequence[Window] | None = None
        self.next_check = 0.0
        """When the schedule is asked again, by `monotonic`."""
        self.time_offset = _NO_TIME
        """How far this process's windows run ahead of the server's time: for a rehearsal, or for tests."""

    def configure(self, *, lead_time: timedelta, grace: timedelta, lookahead: timedelta) -> None:
        """Change the windows of this store, before they are first used.

        `lead_time`, `grace` and `lookahead` are those of the declaration.
        """
        _check(self._declared, lead_time, grace, lookahead)
        self._lead_time, self._grace, self._lookahead = lead_time, grace, lookahead

    async def now(self) -> WindowState:
        """Return which window is open, and which comes next."""
        if monotonic() >= self.next_check:
            await self._update()
        return self.last_known()

    def last_known(self) -> WindowState:
        """Return the same from the last answer of the schedule, without asking it."""
        time = self._clock.now() + self.time_offset / _MILLISECOND
        if self._known is None:
            return WindowState(time, None, None, is_known=False)
        current = next((window for window in self._known if window.opens <= time < window.closes), None)
        following = next((window for window in self._known if window.opens > time), None)
        return WindowState(time, current, following, horizon=self._lookahead)

    async def freshness(self, outside: Freshness, inside: Freshness) -> Freshness:
        """Return the freshness of what is made now, which ends at the next opening at the latest."""
        return (await self.now()).freshness(outside, inside)

    async def invalidate(self) -> None:
        """Have the schedule asked again, after it has changed."""
        self.next_check = 0.0
        await self._cache.delete()

    async def _update(self) -> None:
        self.next_check = monotonic() + self._declared.cached_for.total_seconds()
        try:
            # A process that runs ahead asks for other days, and must not answer for the others.
            self._known = await (
                self._compute() if self.time_offset else self._cache.get_or_load(self._compute)
            )
        except Exception:  # the schedule may raise anything
            _log.warning(
                "%r: the schedule failed; the last known windows remain", self._declared, exc_info=True
            )

    async def _compute(self) -> list[Window]:
        declared = self._declared
        now = datetime.fromtimestamp(self._clock.now() / 1000, UTC) + self.time_offset
        since = now - declared.duration - self._grace
        until = now + self._lookahead + self._lead_time
        return self._merged(await declared.schedule(self._source, since, until))

    def _merged(self, events: Schedule) -> list[Window]:
        """Return the windows of some events, in order; those that touch are one."""
        duration = self._declared.duration
        pairs = [each if isinstance(each, tuple) else (each, each + duration) for each in events]
        windows: list[Window] = []
        for begin, end in sorted(pairs):
            opens = unix_milliseconds(begin - self._lead_time)
            closes = unix_milliseconds(end + self._grace)
            if windows and opens <= windows[-1].closes:
                windows[-1] = Window(windows[-1].opens, max(closes, windows[-1].closes))
            else:
                windows.append(Window(opens, closes))
        return windows


def _check(declared: Windows[S], lead_time: timedelta, grace: timedelta, lookahead: timedelta) -> None:
    durations = {"duration": declared.duration, "lead_time": lead_time, "grace": grace}
    check_durations(declared.pattern, **durations, lookahead=lookahead)
    if (
        min(durations.values()) < _NO_TIME
        or lookahead <= declared.cached_for
        or declared.cached_for <= _NO_TIME
    ):
        raise InvalidDeclaration(
            declared.pattern,
            f"{durations}, lookahead={lookahead}, cached_for={declared.cached_for}",
            "look ahead further than `cached_for`",
        )
