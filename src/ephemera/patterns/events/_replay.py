"""Replays: dead letters for the group that failed, and handled events for one group from a time on."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from ephemera.errors import InvalidValue, ServerError
from ephemera.keyspace import RECORD_LAYOUT
from ephemera.patterns.events._entries import REPLAYED
from ephemera.patterns.events._group_info import StreamKeys
from ephemera.wire import Client, Script

REPLAY = Script.load("ephemera.patterns.events", "replay")
REPLAY_SINCE = Script.load("ephemera.patterns.events", "replay_since")

_BATCH = 100
_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


class ReplayedEvents(msgspec.Struct, frozen=True):
    """What `replay_since` has done."""

    replayed: int
    """How many events were put on the stream again."""
    following: str | None
    """Where to continue if the limit was reached: the `since` of the next call. None at the end."""
    may_lack: bool = False
    """Whether events after `since` may have been trimmed before, and so are not among them."""


async def replay_dead_letters(client: Client, keys: StreamKeys, ids: Iterable[str] | None) -> int:
    """Put dead letters back on their stream: those given, or all there are."""
    if ids is not None:
        return await _replay_batches(client, keys, list(ids))
    newest = await client.call("XREVRANGE", keys.dead, "+", "-", "COUNT", 1)
    # Those that fail again meanwhile come after this one, and are not replayed a second time.
    last, replayed, cursor = (newest[0][0] if newest else b"-"), 0, b"-"
    while page := await client.call("XRANGE", keys.dead, cursor, last, "COUNT", _BATCH):
        replayed += await _replay_batches(client, keys, [entry_id for entry_id, _ in page])
        cursor = b"(" + page[-1][0]
    return replayed


async def replay_since(
    client: Client,
    key: str,
    group: str,
    bounds: tuple[datetime | str, datetime | str | None],
    limit: int,
    *,
    again: bool,
) -> ReplayedEvents:
    """Put events that a group has handled on the stream again, for this group only."""
    if limit < 1:
        raise InvalidValue("limit", "at least 1", str(limit))
    since, until = bounds
    last = await _last_delivered(client, key, group)
    if until is not None:
        last = min(last, _entry_id("until", until), key=_as_range_end)
    suffix = f"{REPLAYED}{secrets.token_hex(4)}" if again else ""
    following: Any = _entry_id("since", since)
    replayed, may_lack = 0, await _was_trimmed_after(client, key, following)
    while following and replayed < limit:
        count = min(_BATCH, limit - replayed)
        arguments = (RECORD_LAYOUT, group, following, last, count, suffix)
        reached, added = await client.run(REPLAY_SINCE, (key,), arguments)
        following = reached and reached.decode()
        replayed += added
    return ReplayedEvents(replayed, _after(following) if following else None, may_lack)


async def _was_trimmed_after(client: Client, key: str, since: str) -> bool:
    """Whether the stream has lost entries, and begins after this id."""
    state = await client.call("XINFO", "STREAM", key)
    first = state[b"recorded-first-entry-id"].decode()
    begins_later = state[b"length"] == 0 or _as_range_end(first) > _as_range_end(since)
    return bool(state[b"entries-added"] > state[b"length"] and begins_later)


async def _last_delivered(client: Client, key: str, group: str) -> str:
    """The last event that a group has got; what it has not got yet need not be replayed."""
    try:
        groups = await client.call("XINFO", "GROUPS", key)
    except ServerError as error:
        if "no such key" not in error.message:
            raise
        groups = []
    delivered = {found[b"name"].decode("utf-8", "replace"): found[b"last-delivered-id"] for found in groups}
    if group not in delivered:
        known = ", ".join(sorted(delivered)) or "none"
        raise InvalidValue("group", f"a group of {key!r} (it has: {known})", repr(group))
    return str(delivered[group].decode())


def _entry_id(name: str, moment: datetime | str) -> str:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidValue(name, "a datetime with a time zone, or the id of an event", repr(moment))
        return f"{max(0, int(moment.timestamp() * 1000))}"
    if not _ID.fullmatch(moment):
        raise InvalidValue(name, "a datetime with a time zone, or the id of an event", repr(moment))
    return moment


def _as_range_end(entry_id: str) -> tuple[int, int]:
    """An id as XRANGE takes it for the end of a range: without a number, all of its millisecond."""
    time, _, number = entry_id.partition("-")
    return int(time), int(number) if number else 2**64


def _after(following: str) -> str:
    """The id after that of an exclusive start."""
    time, _, number = following.removeprefix("(").partition("-")
    return f"{time}-{int(number) + 1}"


async def _replay_batches(client: Client, keys: StreamKeys, ids: list[Any]) -> int:
    replayed = 0
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        replayed += len(await client.run(REPLAY, (keys.stream, keys.dead), (RECORD_LAYOUT, *batch)))
    return replayed
