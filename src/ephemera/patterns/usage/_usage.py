"""Usage: its declaration, and recording, reserving and totalling it in one round trip each.

The live totals are SQL's amounts plus everything pending, and every addition goes to both in one script. A
flush does not touch them: it only moves pending amounts to SQL. So a reader never sees a batch twice or not
at all. When the totals are missing (new, expired, lost), they are rebuilt: SQL is read together with the
number of its shard's last batch, from one snapshot; the script then adds what is pending, and the sealed
batch only if SQL does not have it. If a batch was written and removed in between, the script says so, and
SQL is read again.

All keys of an organization and period have the number of its shard as their hash tag, so that one script
reaches its totals, its reservations and its pending counters. Hence the fourth part of
`usage:acme:2026-11:{5}`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

from ephemera._futures import SingleFlight
from ephemera.errors import (
    BacklogFull,
    EphemeraError,
    InvalidDeclaration,
    InvalidValue,
    QuotaExceeded,
    WrongFields,
)
from ephemera.keyspace import Catalogue, FieldCodec, Fields, Store, check_declaration, fixed
from ephemera.patterns.usage._units import LENGTHS, Calendar, Period, PeriodClock, PeriodLength
from ephemera.patterns.write_behind import BoundCounters, CounterLayout, DeferredCounters, Flusher, Sink
from ephemera.wire import Client, Script

if TYPE_CHECKING:  # it needs the extra `sql`
    from ephemera.patterns.write_behind import SinkTables

log = logging.getLogger("ephemera.usage")

RECORD = Script.load("ephemera.patterns.usage", "record")
RESERVE = Script.load("ephemera.patterns.usage", "reserve")
RELEASE = Script.load("ephemera.patterns.usage", "release")
READ = Script.load("ephemera.patterns.usage", "read")
RESTORE = Script.load("ephemera.patterns.usage", "restore")

_KEY = ("organization_id", "period")
_RESERVED_NAMES = ("limits", "expires_after", "reservation_id", "idempotency_key", "period", "calendar")
_SQL_READS = 5  # before SQL's amounts are accepted although a batch seems to be missing
_ATTEMPTS = 10  # at a period's end, or while keys vanish: each attempt sees something new
_FORMAT = FieldCodec(":")
_ANY_TIME = ("", "")


@runtime_checkable
class UsageTable(Sink, Protocol):
    """A sink that also reads back what it has; `CounterTable` is one."""

    async def totals(self, shard: int, key: Sequence[Any]) -> tuple[str, int, dict[str, int]]:
        """Return the epoch and number of a shard's last batch, and a row's amounts, from one snapshot."""


class Usage:
    """The usage of organizations in each period. `store[USAGE]` is a `BoundUsage`.

    It needs the table that amounts are flushed to: `connect(..., resources={USAGE: CounterTable(engine,
    usage_records, USAGE.counters)})`. The key of the table is `organization_id` and `period`.

    Args:
        catalogue: The catalogue that declares the keys.
        name: The name of the counters: part of their keys, and of their rows in the sinks' tables.
        measures: The columns that are counted.
        purpose: What is counted, in a few words, for the generated documentation.
        period: "hour", "day", "week" or "month" of UTC, or a `Calendar` with a time zone and a billing day.
        flush_every: The age at which amounts are flushed to SQL; by default 15 minutes.
        retention: How long the live totals of a period stay in Redis; by default 90 days.
        backlog: As of `DeferredCounters`: the number of counters at which new ones are refused.
        shards: As of `DeferredCounters`: the parts that the counters are spread over.
        tables: As of `DeferredCounters`: the tables of the sinks for PostgreSQL.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        name: str = "usage",
        *,
        measures: Sequence[str],
        purpose: str,
        period: PeriodLength | Calendar = "month",
        flush_every: timedelta = timedelta(minutes=15),
        retention: timedelta = timedelta(days=90),
        backlog: int = 1_000_000,
        shards: int = 4,
        tables: SinkTables | None = None,
    ) -> None:
        check_declaration(catalogue, name, flush_every=flush_every, retention=retention)
        if not isinstance(period, Calendar) and period not in LENGTHS:
            raise InvalidDeclaration(name, f"period={period!r}", f"use a Calendar, or one of {LENGTHS}")
        for measure in measures:
            if measure in _RESERVED_NAMES or not measure.isidentifier():
                raise InvalidDeclaration(name, f"{measure!r} cannot name a measure", "give it another name")
        self.calendar = period if isinstance(period, Calendar) else Calendar(period)
        self.counters = DeferredCounters(
            catalogue,
            name,
            key=_KEY,
            measures=measures,
            purpose=f"{purpose}: not in SQL yet",
            flush_every=flush_every,
            backlog=backlog,
            shards=shards,
            tables=tables,
        )
        options: dict[str, Any] = {
            "lifetime": fixed(
                seconds=retention.total_seconds(), outlives="the flush; SQL has it all by then"
            ),
            "role": "queue",
            "hash_tag": "shard",
        }
        pattern = f"{name}:{{organization_id}}:{{period}}"
        self.totals = catalogue.mapping(
            f"{pattern}:{{shard}}",
            int,
            purpose=purpose,
            saves="a sum in SQL for each request",
            if_lost="rebuilt from SQL and the pending counters",
            **options,
        )
        self.reservations = catalogue.mapping(
            f"{pattern}:reserved:{{shard}}",
            str,
            purpose="Amounts that are reserved and not used yet",
            invalidated_by=("its settlement", "its release"),
            if_lost="work in progress is counted when it is settled",
            **options,
        )
        self.expiries = catalogue.sorted_set(
            f"{pattern}:expiries:{{shard}}",
            str,
            purpose="When reservations expire whose work has died",
            invalidated_by=("its settlement", "its release"),
            if_lost="reservations stay until the period's keys expire",
            **options,
        )
        catalogue.patterns.append(self)

    @property
    def name(self) -> str:
        """The prefix of the keys."""
        return self.counters.name

    def bind(self, store: Store) -> BoundUsage:
        """Return the usage of a store; `store[USAGE]` calls it."""
        for keyspace in (self.totals, self.reservations, self.expiries):
            store[keyspace]  # refuses a store without it
        table: UsageTable = store.resource(self, "the CounterTable of its counters", UsageTable)
        return BoundUsage(self, store[self.counters], store.client("queue"), table)

    def __repr__(self) -> str:
        return f"<Usage {self.name!r}>"


class UsageTotals(NamedTuple):
    """The totals of a period: what is used, flushed or not, and what is reserved on top of it."""

    period: str
    used: dict[str, int]
    reserved: dict[str, int]


class _Account(NamedTuple):
    """An organization in a period: its row, its shard, and the keys of the scripts."""

    organization_id: str
    period: Period
    row: str
    shard: int
    counters: tuple[str, ...]  # pending, sealed, state
    limits: tuple[int, str]
    own: tuple[str, str, str]  # totals, reservations, expiries


class BoundUsage:
    """The usage of one store: what `store[USAGE]` gives."""

    def __init__(self, declared: Usage, counters: BoundCounters, client: Client, table: UsageTable) -> None:
        self.declared = declared
        self.counters = counters
        """The pending amounts: `backlog()` and `backlog_age()` show how far SQL is behind."""
        self._table = table
        self._run = client.run
        self._clock = PeriodClock()
        self._measures = declared.counters.measures
        self._ttl = str(declared.totals.lifetime.milliseconds)
        self._layout = CounterLayout(declared.counters)
        self._restores: dict[str, SingleFlight[None]] = {}

    def flusher(self, **options: Any) -> Flusher:
        """Return a `Flusher` of this usage to its table; it takes the options of one."""
        return Flusher(self.counters, self._table, **options)

    async def record(
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
        for _ in range(_ATTEMPTS):
            account = self._account(organization_id, calendar=calendar)
            key = None if idempotency_key is None else f"{_FORMAT.encode(organization_id)}:{idempotency_key}"
            recorded = await self._record(account, amounts, key, bounds=account.period[1:])
            if recorded is not None:
                return recorded
        raise self._unstable(organization_id)

    async def totals(
        self, organization_id: str, /, *, period: str | None = None, calendar: Calendar | None = None
    ) -> UsageTotals:
        """Return what is used and reserved, in the current period, by `calendar`, or in a named one."""
        for _ in range(_ATTEMPTS):
            account = self._account(organization_id, period, calendar)
            bounds = _ANY_TIME if period else account.period[1:]
            found = await self._run(READ, account.own[:2], (*bounds, *self._measures))
            if found is None:
                await self._restore(account)
            elif self._is_current(found):
                used = dict(zip(self._measures, found[::2], strict=True))
                reserved = dict(zip(self._measures, found[1::2], strict=True))
                return UsageTotals(account.period.name, used, reserved)
        raise self._unstable(organization_id)

    async def reserve(
        self,
        organization_id: str,
        /,
        *,
        limits: Mapping[str, int | None],
        expires_after: timedelta = timedelta(minutes=30),
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
        requested = self._check(amounts)
        if wrong := [name for name, amount in requested.items() if name not in limits or amount < 0]:
            expected = "a limit (or None) for each amount, none of them negative"
            raise InvalidValue(self.declared.name, expected, ", ".join(wrong))
        identity = self._check_id(reservation_id or secrets.token_hex(8))
        for _ in range(_ATTEMPTS):
            account = self._account(organization_id, calendar=calendar)
            arguments: list[Any] = [identity, round(expires_after.total_seconds() * 1000), self._ttl]
            arguments += account.period[1:]
            for measure, amount in requested.items():
                limit = limits[measure]
                arguments += (measure, amount, "" if limit is None else limit)
            reply = await self._run(RESERVE, account.own, arguments)
            while reply == 0:  # it denies nothing before all expired reservations are cleared
                reply = await self._run(RESERVE, account.own, arguments)
            if reply == 1:
                return self._reservation(account, identity)
            if reply is None:
                await self._restore(account)
            elif self._is_current(reply):
                measure = reply[0].decode()
                limit, where = limits[measure] or 0, (organization_id, account.period.name)
                raise QuotaExceeded(*where, measure, requested[measure], limit, reply[1], reply[2])
        raise self._unstable(organization_id)

    def reservation(self, organization_id: str, reservation_id: str, period: str) -> Reservation:
        """Return a reservation that another process made, to settle or release it here."""
        return self._reservation(self._account(organization_id, period), self._check_id(reservation_id))

    def _reservation(self, account: _Account, identity: str) -> Reservation:
        settle, release = partial(self._settle, account, identity), partial(self._release, account, identity)
        return Reservation(account.organization_id, account.period.name, identity, settle, release)

    async def _settle(self, account: _Account, identity: str, amounts: dict[str, int]) -> bool:
        # No organization is written with a leading colon, so this differs from every `record`'s key.
        key = f":settled:{_FORMAT.encode(account.organization_id)}:{identity}"
        return bool(await self._record(account, amounts, key, reservation=identity))

    async def _release(self, account: _Account, identity: str) -> bool:
        return bool(await self._run(RELEASE, account.own[1:], (identity,)))

    async def _record(
        self,
        account: _Account,
        amounts: Mapping[str, int],
        idempotency_key: str | None,
        *,
        reservation: str = "",
        bounds: Sequence[int | str] = _ANY_TIME,
    ) -> bool | None:
        """Record amounts; False when they were before, None when the period is over."""
        keys: tuple[str, ...] = (*account.counters, *account.own)
        if idempotency_key is not None:
            keys = (*keys, self._layout.idempotency_key(account.shard, idempotency_key))
        arguments: list[Any] = [*account.limits, account.row, reservation, *bounds]
        for measure, amount in self._check(amounts).items():
            arguments += (measure, amount)
        reply = await self._run(RECORD, keys, arguments)
        if isinstance(reply, list):
            self._clock.synchronize(reply[0])
            return None
        if reply < 0:
            raise BacklogFull(self.declared.name, account.shard, account.limits[0])
        return bool(reply)

    async def _restore(self, account: _Account) -> None:
        """Rebuild the live totals, once for all callers of this process that miss them."""
        restore = self._restores.get(account.row)
        if restore is None:
            restore = self._restores[account.row] = SingleFlight(partial(self._restore_from_sql, account))
        try:
            await restore.run()
        finally:
            if restore.is_idle:
                self._restores.pop(account.row, None)

    async def _restore_from_sql(self, account: _Account) -> None:
        """Rebuild the live totals from SQL and the pending counters."""
        keys = (*account.counters, account.own[0])
        for read in range(_SQL_READS):
            key = (account.organization_id, account.period.name)
            epoch, number, amounts = await self._table.totals(account.shard, key)
            arguments: list[Any] = [self._ttl, epoch, number, int(read == _SQL_READS - 1), account.row]
            for measure in self._measures:
                arguments += (measure, amounts[measure])
            if await self._run(RESTORE, keys, arguments):
                return

    def _account(
        self, organization_id: str, period: str | None = None, calendar: Calendar | None = None
    ) -> _Account:
        declared, layout = self.declared, self._layout
        calendar = calendar or declared.calendar
        if calendar.length != declared.calendar.length:
            raise InvalidValue(declared.name, f"a calendar of {declared.calendar.length}s", repr(calendar))
        named = self._clock.period(calendar) if period is None else Period(period, 0, 0)
        row = layout.row_name([organization_id, named.name])
        # By the organization alone: an idempotency key also holds across the end of a period.
        number, counters, limits = layout.shard_of(organization_id)
        fields: Fields = {"organization_id": organization_id, "period": named.name, "shard": number}
        own = (
            declared.totals.template.render(fields),
            declared.reservations.template.render(fields),
            declared.expiries.template.render(fields),
        )
        return _Account(organization_id, named, row, number, counters, limits, own)

    def _is_current(self, reply: list[Any]) -> bool:
        """False, with the clock set right, when the server says that it is another period."""
        if len(reply) == 1:
            self._clock.synchronize(reply[0])
            return False
        return True

    def _check_id(self, identity: str) -> str:
        """Refuse ids that the scripts could confuse with their sums of reservations, which begin with `=`."""
        if not identity or not identity.isascii() or identity.startswith("=") or " " in identity:
            raise InvalidValue(self.declared.name, "an id in ASCII without spaces or =", repr(identity))
        return identity

    def _check(self, amounts: Mapping[str, int]) -> dict[str, int]:
        if not amounts or amounts.keys() - set(self._measures):
            raise WrongFields(self.declared.name, self._measures, tuple(amounts))
        return self._layout.check_amounts(amounts)

    def _unstable(self, organization_id: str) -> EphemeraError:
        return EphemeraError(
            f"{self.declared.name!r}: the totals of {organization_id!r} vanished as often as they were "
            "rebuilt; check whether the server evicts keys (its role is queue) or its clock jumps"
        )


class Reservation:
    """Amounts that are set aside: settle them with what was really used, or release them.

    As a block (`async with await store[USAGE].reserve(...) as reservation:`) it is released unless settled.
    """

    def __init__(
        self,
        organization_id: str,
        period: str,
        reservation_id: str,
        settle: Callable[[dict[str, int]], Awaitable[bool]],
        release: Callable[[], Awaitable[bool]],
    ) -> None:
        self.id = reservation_id
        """Identifies it in another process: see `BoundUsage.reservation`."""
        self.period = period
        """The period that it counts for, even when it is settled after the period's end."""
        self.ended = False
        self._organization_id = organization_id
        self._settle = settle
        self._release = release

    async def settle(self, **amounts: int) -> bool:
        """Count what was used and end the reservation; False when it was settled before.

        It counts even when the reservation has expired, because the work was done.
        """
        settled = await self._settle(amounts)
        self.ended = True
        return settled

    async def release(self) -> bool:
        """End the reservation without any use; False when it had ended or expired."""
        released = await self._release()
        self.ended = True
        return released

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ended:
            return
        try:
            await self.release()
        except EphemeraError as problem:
            if error is None:
                raise
            # The body's error is what the caller must see; the reservation expires by itself.
            log.warning("%r was not released: %s", self, problem)

    def __repr__(self) -> str:
        return f"<Reservation {self.id!r} of {self._organization_id!r} in {self.period}>"
