"""Event streams: lag, pending events and dead letters of each group; dead letters can be replayed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from ephemera._stored_numbers import stored_time
from ephemera.console._components import (
    Action,
    Column,
    Empty,
    drawer,
    empty,
    facts,
    section,
    table,
    text_block,
    tile,
    tiles,
)
from ephemera.console._connections import Service
from ephemera.console._formats import format_age, format_seconds, format_time, seconds_since
from ephemera.console._sources import RowSources, service_column
from ephemera.console._view import ConsolePage, View
from ephemera.operations.inspect import EventStream, KeyFinder
from ephemera.patterns.events import DeadLetter, Events, StreamInfo

_MAX_STREAMS = 100  # shown per pattern
_MAX_LETTERS = 200  # dead letters shown per stream
_MAX_PENDING = 100  # pending events shown per group
_SHORT = 160  # characters of an error or an event in a table


def build(view: View) -> None:
    """Draw the page."""
    declared: list[tuple[Service, Events[Any]]] = view.patterns(Events)
    if not declared:
        empty(
            "No event streams are declared",
            "Declare Events(catalogue, 'events:users', UserChanged, ...): see docs/patterns/events.md.",
            icon="stream",
        )
        return
    _Streams(view, declared)


class _Streams:
    """The page in one browser."""

    def __init__(self, view: View, declared: list[tuple[Service, Events[Any]]]) -> None:
        self._finders = {
            pair: KeyFinder(pair[0].store.client("queue"), pair[1].keyspace, _MAX_STREAMS)
            for pair in declared
        }
        self._streams: dict[str, EventStream] = {}
        self._whole: dict[str, DeadLetter] = {}
        self._panel = drawer()
        with tiles():
            self._lag, self._pending, self._dead = (
                tile("Not delivered"),
                tile("Pending"),
                tile("Dead letters"),
            )
        with section(
            "Groups",
            "A group without consumers keeps its stream from being trimmed. Open one for its pending events.",
        ):
            self._groups = table(
                [
                    Column("stream", "Stream", kind="mono"),
                    Column("group", "Group"),
                    Column("state", "State", kind="badge"),
                    Column("lag", "Lag", kind="number"),
                    Column("pending", "Pending", kind="number"),
                    Column("consumers", "Consumers", kind="number"),
                    Column("dead", "Dead", kind="number"),
                    *service_column(view),
                ],
                empty=Empty("No streams yet", "The first published event creates one.", icon="stream"),
                on_open=self._show_pending,
                actions=[
                    Action(
                        "replay_all",
                        "Replay all",
                        "playlist_play",
                        what="event.replay-all",
                        question=lambda row: f"Replay all dead letters of {row['group']} on {row['stream']}?",
                        target=lambda row: f"{row['stream']} {row['group']}",
                        work=lambda row: self._streams[row["of"]].replay([], group=row["group"]),
                        done=_replayed,
                        tone="warn",
                    ),
                ],
                view=view,
                then=lambda: self._timer.now(),
            )
        with section("Dead letters", "Events that failed every attempt. Fix the cause, then replay them."):
            self._letters = table(
                [
                    Column("stream", "Stream", kind="mono"),
                    Column("group", "Group"),
                    Column("error", "Error"),
                    Column("event", "Event", kind="mono"),
                    Column("age", "Failed", kind="time"),
                ],
                empty=Empty(
                    "No dead letters",
                    "Every event was handled, or is still being retried.",
                    icon="mark_email_read",
                ),
                on_open=self._show_letter,
                actions=[
                    Action(
                        "replay",
                        "Replay",
                        "replay",
                        what="event.replay",
                        question=lambda row: f"Replay this event on {row['stream']} for {row['group']}?",
                        target=lambda row: f"{row['stream']} {row['letter']}",
                        work=lambda row: self._streams[row["of"]].replay([row["letter"]]),
                        done=_replayed,
                    ),
                ],
                view=view,
                then=lambda: self._timer.now(),
                search=True,
            )
        self._sources = RowSources(self._show)
        self._timer = view.every(2, self._refresh)

    async def _refresh(self) -> None:
        await self._sources.refresh(
            {pair: partial(self._read, *pair, finder) for pair, finder in self._finders.items()}
        )

    async def _read(self, service: Service, events: Events[Any], finder: KeyFinder) -> list[dict[str, Any]]:
        found = []
        for key in await finder.search():
            of = f"{service.name}/{key}"
            stream = self._streams.setdefault(of, EventStream(service.store, events, key))
            reading = await stream.info()
            letters = await stream.dead_letters(_MAX_LETTERS) if reading.dead else []
            found.append({"service": service, "of": of, "reading": reading, "letters": letters})
        return found

    def _show(self, found: list[dict[str, Any]]) -> None:
        groups = [row for each in found for row in group_rows(**each)]
        letters = [(_letter_row(each["of"], letter), letter) for each in found for letter in each["letters"]]
        self._whole = {row["id"]: letter for row, letter in letters}
        self._groups.show(groups)
        self._letters.show([row for row, _ in letters])
        readings: list[StreamInfo] = [each["reading"] for each in found]
        dead = sum(reading.dead for reading in readings)
        lag = sum(group.lag or 0 for reading in readings for group in reading.groups)
        pending = sum(group.pending for reading in readings for group in reading.groups)
        self._lag.show(f"{lag:,}", "events not delivered to a group yet")
        self._pending.show(f"{pending:,}", "delivered, not acknowledged")
        self._dead.show(f"{dead:,}", "failed every attempt", "bad" if dead else "good")

    async def _show_pending(self, row: dict[str, Any]) -> None:
        stream = self._streams[row["of"]]
        pending = await stream.pending(row["group"], _MAX_PENDING) if row["group_named"] else []
        lease = stream.events.delivery.lease.total_seconds()
        with self._panel.open(f"{row['group']} on {row['stream']}"):
            facts(
                [
                    ("Stream length", f"{row['length']:,}"),
                    ("Lag", str(row["lag"])),
                    ("Consumers", str(row["consumers"])),
                    ("Max. attempts", f"{stream.events.delivery.max_deliveries}"),
                    ("Lease", format_seconds(lease)),
                    *([("Paused for", row["paused"])] if row.get("paused") else []),
                ]
            )
            listed = table(
                [
                    Column("event", "Event", kind="mono"),
                    Column("consumer", "Consumer"),
                    Column("idle", "Idle", kind="time"),
                    Column("retry", "Retry in", kind="time"),
                    Column("deliveries", "Deliveries", kind="number"),
                ],
                empty=Empty("No pending events", "Every delivered event is acknowledged.", icon="done_all"),
            )
            listed.show(
                [
                    {
                        "id": each.id,
                        "event": each.id,
                        "consumer": each.consumer,
                        "idle": format_seconds(each.idle),
                        "idle_sort": each.idle,
                        "retry": "" if each.retry_in is None else format_seconds(each.retry_in),
                        "retry_sort": each.retry_in or 0,
                        "deliveries": each.deliveries,
                    }
                    for each in pending
                ]
            )

    def _show_letter(self, row: dict[str, Any]) -> None:
        letter = self._whole[row["id"]]
        with self._panel.open("Dead letter"):
            facts(
                [
                    ("Stream", letter.stream),
                    ("Group", letter.group),
                    ("Dead letter id", letter.id),
                    ("Original id", letter.origin),
                    ("Deliveries", str(letter.deliveries)),
                    ("Failed", format_time(_moment(letter))),
                ]
            )
            with section("Error"):
                text_block(letter.error)
            with section("Event"):
                text_block(_json(letter.event, indent=2))


def _replayed(count: int) -> str:
    return f"{count:,} dead {'letter' if count == 1 else 'letters'} replayed."


def group_rows(
    service: Service, of: str, reading: StreamInfo, letters: list[DeadLetter]
) -> list[dict[str, Any]]:
    """The rows of a stream's groups, each with its own dead letters."""
    shared = {"of": of, "stream": reading.key, "length": reading.length, "service": service.name}
    by_group = Counter(letter.group for letter in letters)
    existing = {group.name for group in reading.groups}
    no_group = {"lag": "", "pending": "", "consumers": ""}
    rows: list[dict[str, Any]] = [
        {
            **shared, **no_group, "id": f"{of}/{name}", "group": name, "group_named": True,
            "state": "deleted", "state_tone": "warn", **_dead(by_group[name], letters),
        }
        for name in sorted(by_group.keys() - existing)
    ]  # fmt: skip
    if not reading.groups and not rows:
        state = ("no group", "warn") if reading.length else ("empty", "plain")
        return [
            {
                **shared, **no_group, "id": of, "group": "(none)", "group_named": False,
                "state": state[0], "state_tone": state[1], "dead": 0, "actions": [],
            }
        ]  # fmt: skip
    for group in reading.groups:
        behind = group.lag or 0
        state = ("caught up", "good") if not behind and not group.pending else ("working", "info")
        if not group.consumers and (behind or group.pending):
            state = ("no consumers", "bad")
        elif group.paused is not None:
            state = ("paused", "warn")
        rows.append(
            {
                **shared,
                "id": f"{of}/{group.name}",
                "group": group.name,
                "group_named": True,
                "state": state[0],
                "state_tone": state[1],
                "lag": "?" if group.lag is None else group.lag,
                "pending": group.pending,
                "consumers": group.consumers,
                "paused": group.paused or "",
                **_dead(by_group[group.name], letters),
            }
        )
    return rows


def _dead(seen: int, letters: list[DeadLetter]) -> dict[str, Any]:
    """A group's dead letters, and whether they can be replayed; only the oldest of very many are known."""
    if len(letters) < _MAX_LETTERS:
        return {"dead": seen, "actions": ["replay_all"] if seen else []}
    return {"dead": f"{seen}+" if seen else "?", "dead_sort": seen, "actions": ["replay_all"]}


def _letter_row(of: str, letter: DeadLetter) -> dict[str, Any]:
    moment = _moment(letter)
    return {
        "id": f"{of}/{letter.id}",
        "of": of,
        "letter": letter.id,
        "stream": letter.stream,
        "group": letter.group,
        "error": _shortened(letter.error),
        "event": _shortened(_json(letter.event)),
        "age": format_age(moment),
        "age_sort": seconds_since(moment),
    }


def _moment(letter: DeadLetter) -> datetime:
    """When it failed: the id of a dead letter begins with the server's milliseconds, if it is ours."""
    return stored_time(int(letter.id.partition("-")[0]) / 1000) or datetime.max.replace(tzinfo=UTC)


def _json(value: Any, indent: int = 0) -> str:
    encoded = msgspec.json.encode(value)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()


def _shortened(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


PAGE = ConsolePage("/streams", "Streams", "stream", build)
