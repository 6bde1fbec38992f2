"""Windows: spans of time around instants that matter, and lifetimes that differ inside and outside of them.

    async def matches(db: Database, since: datetime, until: datetime) -> list[datetime]: ...

    MATCHES = Windows(catalogue, "cache:match-window:v1", matches, prewarm=timedelta(minutes=45))
    TABLE = Life(fresh=timedelta(days=7)), Life(fresh=timedelta(seconds=30), stale=timedelta(minutes=5))

    windows = store[MATCHES].using(db)
    (await windows.now()).is_open
    await windows.life(*TABLE)               # never past the next opening

A window opens `prewarm` before an instant and closes `grace` after it has lasted `lasts`; the provider may
also give pairs of begin and end. Windows that touch are one.
Keys: the computed windows, one value, with the claim and the channel of a `cache`: asked of the provider
by one process at a time, used by all for `kept` (30 s).
Time is the server's. `ahead` moves it for this process's windows alone, to rehearse or to test a match day.
A lifetime ends at the next opening at the latest, and is stale from then on as things inside are. An opening
that nobody could foresee (a match announced after a page was stored) is seen within `kept`; `http_cache`
then renews what is from before it.
Down, hung, or the provider fails: the windows last seen by this process go on, since they are instants and
not states; a process that has seen none is inside, where lifetimes are short. Evicting: asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store, check_declaration, check_durations, unix_milliseconds
from ephemera.patterns.cache import Cache, Local
from ephemera.patterns.cache._entries import CLOCK

S = TypeVar("S")

Instants: TypeAlias = "Iterable[datetime | tuple[datetime, datetime]]"
"""What a provider gives: instants, or pairs of begin and end, each with a time zone."""

_NO_TIME = timedelta(0)
_KEPT_STALE = timedelta(minutes=5)
_WAITS = timedelta(milliseconds=250)  # for newer windows, once in `kept`; then the older ones go on
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How long something is fresh, and then served as stale while it is loaded anew."""

    fresh: timedelta
    stale: timedelta = _NO_TIME

    def __post_init__(self) -> None:
        try:  # such are also made where pages are: what costs a call is for those who made a mistake
            lives = self.fresh > _NO_TIME and self.stale >= _NO_TIME
        except TypeError:
            check_durations("Life", fresh=self.fresh, stale=self.stale)
            raise
        if not lives:
            raise InvalidDeclaration(
                "Life", f"{self} is no lifetime", "give a positive fresh, and stale >= 0"
            )


class Span(msgspec.Struct, array_like=True, frozen=True):
    """A window, in milliseconds since 1970; its end is not part of it."""

    opens: int
    closes: int


class Now(NamedTuple):
    """How windows stand at a moment: the one that is open, and the next; milliseconds since 1970."""

    moment: float
    open: Span | None
    next: Span | None
    known: bool = True  # False: the provider was never heard, so it is taken for inside
    sight: timedelta = timedelta.max  # how far ahead the provider was asked

    @property
    def is_open(self) -> bool:
        """Whether it is inside."""
        return self.open is not None or not self.known

    @property
    def opened(self) -> int:
        """When the window that is open did; 0 when none is."""
        return 0 if self.open is None else self.open.opens

    @property
    def changes_in(self) -> timedelta | None:
        """How long until it is otherwise; None when nothing is in sight."""
        edge = self.open.closes if self.open else self.next.opens if self.next else None
        return None if edge is None else timedelta(milliseconds=edge - self.moment)

    def life(self, outside: Life, inside: Life) -> Life:
        """The lifetime of what is made now."""
        if self.is_open:
            return inside
        left = self.changes_in
        if left is None:
            return Life(fresh=min(outside.fresh, self.sight), stale=outside.stale)
        if outside.fresh < left:  # what is left of being stale at the opening is as inside, too
            return Life(fresh=outside.fresh, stale=min(outside.stale, left - outside.fresh + inside.stale))
        return Life(fresh=max(left, timedelta(milliseconds=1)), stale=inside.stale)


class Windows(Generic[S]):
    """The declaration of windows: `store[MATCHES].using(source)` gives the `BoundWindows` of a store.

    `instants(source, since, until)` names what lies between two moments, far enough back that what still
    lasts is among it.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        instants: Callable[[S, datetime, datetime], Awaitable[Instants]],
        *,
        lasts: timedelta = timedelta(hours=2),
        prewarm: timedelta = timedelta(minutes=45),
        grace: timedelta = timedelta(minutes=30),
        lookahead: timedelta = timedelta(days=7),
        kept: timedelta = timedelta(seconds=30),
        purpose: str = "When the next windows open and close",
    ) -> None:
        check_declaration(catalogue, pattern, kept=kept)
        self.pattern, self.kept = pattern, kept
        self._check(lasts, prewarm, grace, lookahead)
        self.instants = instants
        self.lasts, self.prewarm, self.grace = lasts, prewarm, grace
        self.lookahead = lookahead
        self.cache: Cache[list[Span]] = Cache(
            catalogue,
            pattern,
            list[Span],
            fresh=kept,
            stale=_KEPT_STALE,
            jitter=0,
            soft_timeout=_WAITS,
            local=Local(entries=1),
            purpose=purpose,
            saves="a question to the source at each request",
            invalidated_by=("a changed schedule, where `forget` is called",),
            if_lost="it is computed again",
        )

    def _check(self, lasts: timedelta, prewarm: timedelta, grace: timedelta, lookahead: timedelta) -> None:
        given = {"lasts": lasts, "prewarm": prewarm, "grace": grace}
        check_durations(self.pattern, **given, lookahead=lookahead)
        if min(given.values()) < _NO_TIME or lookahead <= self.kept or self.kept <= _NO_TIME:
            raise InvalidDeclaration(
                self.pattern,
                f"{given}, lookahead={lookahead}, kept={self.kept}",
                "look ahead further than `kept`",
            )

    def bind(self, store: Store) -> BoundWindows[S]:
        """The windows of a store that has their catalogue."""
        return BoundWindows(self, store)

    def change(self, *, prewarm: timedelta, grace: timedelta, lookahead: timedelta) -> None:
        """Set this process's windows, as settings say, before a store uses them."""
        self._check(self.lasts, prewarm, grace, lookahead)
        self.prewarm, self.grace, self.lookahead = prewarm, grace, lookahead

    def spans(self, instants: Instants) -> list[Span]:
        """The windows of some instants, in order; those that touch are one."""
        pairs = [each if isinstance(each, tuple) else (each, each + self.lasts) for each in instants]
        spans: list[Span] = []
        for begins, ends in sorted(pairs):
            opens = unix_milliseconds(begins - self.prewarm)
            closes = unix_milliseconds(ends + self.grace)
            if spans and opens <= spans[-1].closes:
                spans[-1] = Span(spans[-1].opens, max(closes, spans[-1].closes))
            else:
                spans.append(Span(opens, closes))
        return spans

    def __repr__(self) -> str:
        return f"<Windows {self.cache.space.pattern!r} of {self.cache.space.catalogue}>"


class BoundWindows(Generic[S]):
    """The windows of one store."""

    def __init__(self, declared: Windows[S], store: Store) -> None:
        self._declared = declared
        self._cache = store[declared.cache]
        self._clock = store[CLOCK]
        self._source: tuple[S] | tuple[()] = ()
        self._seen: Sequence[Span] | None = None
        self.look_at = 0.0
        """When the provider is asked again, by `monotonic`."""
        self.ahead = _NO_TIME
        """How far this process's windows are ahead of the server's time: to rehearse, or to test."""

    def using(self, source: S) -> BoundWindows[S]:
        """The same, with what the provider asks."""
        self._source = (source,)
        return self

    async def now(self) -> Now:
        """How they stand: which window is open, and which comes next."""
        if monotonic() >= self.look_at:
            await self._look()
        return self.last_seen()

    def last_seen(self) -> Now:
        """The same by what was last heard, without asking anybody."""
        moment = self._clock.now() + self.ahead / timedelta(milliseconds=1)
        if self._seen is None:
            return Now(moment, None, None, known=False)
        open_ = next((span for span in self._seen if span.opens <= moment < span.closes), None)
        following = next((span for span in self._seen if span.opens > moment), None)
        return Now(moment, open_, following, sight=self._declared.lookahead)

    async def life(self, outside: Life, inside: Life) -> Life:
        """The lifetime of what is made now, which never reaches past the next opening."""
        return (await self.now()).life(outside, inside)

    async def forget(self) -> None:
        """Have the provider asked again, after the schedule has changed."""
        self.look_at = 0.0
        await self._cache.delete()

    async def _look(self) -> None:
        if not self._source:
            raise RuntimeError(f"{self._declared!r} has no source: call store[...].using(source) first")
        self.look_at = monotonic() + self._declared.kept.total_seconds()
        try:
            # Who is ahead asks for other days than the others, and must not answer for them.
            self._seen = await (self._ask() if self.ahead else self._cache.get_or_load(self._ask))
        except Exception:  # the provider's own, of any kind
            _log.warning("%r: the provider failed; going on as last seen", self._declared, exc_info=True)

    async def _ask(self) -> list[Span]:
        declared = self._declared
        moment = datetime.fromtimestamp(self._clock.now() / 1000, UTC) + self.ahead
        since = moment - declared.lasts - declared.grace
        until = moment + declared.lookahead + declared.prewarm
        return declared.spans(await declared.instants(self._source[0], since, until))  # type: ignore[misc]
