"""The meter: records what is used, reserves before it is, and tells the totals, each in one trip.

The live totals are SQL's amounts and all that waits, and every addition goes to both in one script. A flush
does not touch them: it only moves what waits to SQL. So a reader never sees a batch twice or not at all.
When they are not there (new, expired, lost), they are made anew: SQL is read, with the number of its shard's
last batch, of one moment; the script then adds what waits, and the sealed batch only if SQL had it not. If a
batch was written and forgotten in between, it says so, and SQL is read again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ephemera.errors import BacklogFull, EphemeraError, InvalidValue, QuotaExceeded, WrongFields
from ephemera.keyspace import FieldCodec, Fields
from ephemera.patterns.usage._periods import Clock, Period
from ephemera.patterns.usage._reservations import Place, Reservation
from ephemera.patterns.write_behind import BoundCounters, Flusher, Sink
from ephemera.patterns.write_behind._counters import checked, row_name
from ephemera.wire import Client, Script

if TYPE_CHECKING:
    from ephemera.patterns.usage._declaration import Usage

RECORD = Script.load("ephemera.patterns.usage", "record")
RESERVE = Script.load("ephemera.patterns.usage", "reserve")
RELEASE = Script.load("ephemera.patterns.usage", "release")
READ = Script.load("ephemera.patterns.usage", "read")
RESTORE = Script.load("ephemera.patterns.usage", "restore")

_READS_OF_SQL = 5  # before SQL is taken at its word
_ATTEMPTS = 10  # at the turn of a period, or while keys vanish: each sees something new
_ORGANIZATION = FieldCodec(":")


class Totals(Sink, Protocol):
    """A sink that can also tell what it has; `CounterTable` is one."""

    async def totals(self, shard: int, key: Sequence[Any]) -> tuple[str, int, dict[str, int]]:
        """What SQL has of a row, with the epoch and number of its shard's last batch, all of one moment."""


class Used(NamedTuple):
    """The totals of a period: what is used, flushed or not, and what is reserved on top of it."""

    period: str
    used: dict[str, int]
    reserved: dict[str, int]


class Meter:
    """What `USAGE.meter(store, table)` gives."""

    def __init__(self, declared: Usage, counters: BoundCounters, client: Client, table: Totals) -> None:
        self.declared = declared
        self.counters = counters
        self._table = table
        self._run = client.run
        self._clock = Clock(declared.period)
        self._measures = declared.counters.measures
        self._life = str(declared.totals.lifetime.milliseconds)
        shards = declared.counters.shards
        self._limits = (str(shards.most), shards.once_kept)
        self._waiting = shards.keys(declared.counters.pending, declared.counters.sealed, shards.state)

    def flusher(self, **options: Any) -> Flusher:
        """A `Flusher` of this usage to its table; takes the options of one."""
        return Flusher(self.counters, self._table, **options)

    async def record(self, organization_id: str, /, *, once: str | None = None, **amounts: int) -> bool:
        """Count what was used in the present period; with `once`, an id, not twice (then False)."""
        for _ in range(_ATTEMPTS):
            place = self._place(organization_id)
            addition = None if once is None else f"{_written(place)}:{once}"
            bounds = (place.period.starts, place.period.ends)
            added = await self._record(place, amounts, addition, "", bounds)
            if added is not None:
                return added
        raise self._restless(organization_id)

    async def totals(self, organization_id: str, /, *, period: str | None = None) -> Used:
        """What is used and reserved, in the present period or another."""
        for _ in range(_ATTEMPTS):
            place = self._place(organization_id, period)
            bounds = ("", "") if period else (place.period.starts, place.period.ends)
            found = await self._run(READ, place.own[:2], (*bounds, *self._measures))
            if found is None:
                await self._restore(place)
            elif self._is_present(found):
                used = dict(zip(self._measures, found[::2], strict=True))
                reserved = dict(zip(self._measures, found[1::2], strict=True))
                return Used(place.period.name, used, reserved)
        raise self._restless(organization_id)

    async def reserve(
        self,
        organization_id: str,
        /,
        *,
        limits: Mapping[str, int | None],
        lasts: timedelta = timedelta(minutes=30),
        reservation_id: str | None = None,
        **amounts: int,
    ) -> Reservation:
        """Reserve amounts if used + reserved + asked is within `limits` for all; else `QuotaExceeded`.

        A reservation that is neither settled nor released lapses after `lasts`. With an id of one's own,
        asking again is the same reservation.
        """
        asked = self._checked(amounts)
        if wrong := [name for name, amount in asked.items() if name not in limits or amount < 0]:
            expected = "a limit (or None) for each amount, none of them negative"
            raise InvalidValue(self.declared.name, expected, ", ".join(wrong))
        identity = self._identity(reservation_id or secrets.token_hex(8))
        for _ in range(_ATTEMPTS):
            place = self._place(organization_id)
            arguments: list[Any] = [identity, round(lasts.total_seconds() * 1000), self._life]
            arguments += place.period[1:]
            for measure, amount in asked.items():
                limit = limits[measure]
                arguments += (measure, amount, "" if limit is None else limit)
            reply = await self._run(RESERVE, place.own, arguments)
            if reply == 1:
                return Reservation(self, place, identity)
            if reply is None:
                await self._restore(place)
            elif self._is_present(reply):
                measure = reply[0].decode()
                limit, where = limits[measure] or 0, (organization_id, place.period.name)
                raise QuotaExceeded(*where, measure, asked[measure], limit, reply[1], reply[2])
        raise self._restless(organization_id)

    def reservation(self, organization_id: str, reservation_id: str, period: str) -> Reservation:
        """A reservation that another process has made, to settle or release it here."""
        return Reservation(self, self._place(organization_id, period), self._identity(reservation_id))

    async def settle(self, place: Place, identity: str, amounts: dict[str, int]) -> bool:
        """Count what a reservation was used for, once, and end it."""
        # It begins as no organization is written, so no `once` of anybody is the same.
        addition = f":settled:{_written(place)}:{identity}"
        return bool(await self._record(place, amounts, addition, identity, ("", "")))

    async def release(self, place: Place, identity: str) -> bool:
        """End a reservation without using it."""
        return bool(await self._run(RELEASE, place.own[1:], (identity,)))

    async def _record(
        self,
        place: Place,
        amounts: Mapping[str, int],
        addition: str | None,
        reservation: str,
        bounds: tuple[int | str, int | str],
    ) -> bool | None:
        """Whether it was counted now; None when the period is over."""
        keys: tuple[str, ...] = (*place.waiting, *place.own)
        if addition is not None:
            keys = (*keys, self.declared.counters.shards.once.key(shard=place.shard, addition=addition))
        arguments: list[Any] = [*self._limits, place.row, reservation, *bounds]
        for measure, amount in self._checked(amounts).items():
            arguments += (measure, amount)
        reply = await self._run(RECORD, keys, arguments)
        if isinstance(reply, list):
            self._clock.told(reply[0])
            return None
        if reply < 0:
            raise BacklogFull(self.declared.name, place.shard, self.declared.counters.shards.most)
        return bool(reply)

    async def _restore(self, place: Place) -> None:
        """Make the live totals anew out of what SQL has and what waits for it."""
        keys = (*place.waiting, place.own[0])
        for read in range(_READS_OF_SQL):
            key = (place.organization_id, place.period.name)
            epoch, number, amounts = await self._table.totals(place.shard, key)
            arguments: list[Any] = [self._life, epoch, number, int(read == _READS_OF_SQL - 1), place.row]
            for measure in self._measures:
                arguments += (measure, amounts[measure])
            if await self._run(RESTORE, keys, arguments):
                return

    def _place(self, organization_id: str, period: str | None = None) -> Place:
        declared = self.declared
        named = self._clock.period() if period is None else Period(period, 0, 0)
        row = row_name(declared.counters, [organization_id, named.name])
        # By the organization alone: an addition with an id counts once, also across the turn of a period.
        shard = self.counters.shard_of(organization_id)
        fields: Fields = {"organization_id": organization_id, "period": named.name, "shard": shard}
        own = (
            declared.totals.template.render(fields),
            declared.reservations.template.render(fields),
            declared.lapses.template.render(fields),
        )
        return Place(organization_id, named, row, shard, self._waiting[shard], own)

    def _is_present(self, reply: list[Any]) -> bool:
        """False, and the clock is set right, when the server says that it is another period."""
        if len(reply) == 1:
            self._clock.told(reply[0])
            return False
        return True

    def _identity(self, identity: str) -> str:
        """An id that the scripts tell from their sums of reservations, which begin with `=`."""
        if not identity or not identity.isascii() or identity.startswith("=") or " " in identity:
            raise InvalidValue(self.declared.name, "an id in ASCII without spaces or =", repr(identity))
        return identity

    def _checked(self, amounts: Mapping[str, int]) -> dict[str, int]:
        if not amounts or amounts.keys() - set(self._measures):
            raise WrongFields(self.declared.name, self._measures, tuple(amounts))
        return checked(self.declared.name, amounts)

    def _restless(self, organization_id: str) -> EphemeraError:
        return EphemeraError(
            f"{self.declared.name!r}: the totals of {organization_id!r} vanished as often as they were made "
            "anew; see whether the server evicts (its role is queue) or its clock jumps"
        )


def _written(place: Place) -> str:
    """The organization as its ids begin: without a colon, so that they never meet those of another."""
    return _ORGANIZATION.encode(place.organization_id)
