"""Sessions and tokens: who is signed in; a user's sessions, ended one by one or all; what is revoked."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from nicegui import ui

from ephemera.console._components import (
    Action,
    Column,
    Empty,
    confirm_button,
    empty,
    facts,
    section,
    table,
    tile,
    tiles,
)
from ephemera.console._connections import Place
from ephemera.console._moments import ago, clock, lasting, since
from ephemera.console._page import Page
from ephemera.console._pages._revoke import RevokeForm
from ephemera.console._sources import Sources, of_place
from ephemera.console._view import View
from ephemera.operations.inspect import (
    RevocationEntry,
    RevocationFinder,
    SessionSummary,
    SignedInUser,
    UserFinder,
    list_sessions,
    tokens_revoked_until,
)
from ephemera.patterns.revocation import Revocation
from ephemera.patterns.sessions import Sessions

_SHOWN_OF_ID = 12  # characters of a session's id: enough to tell a user's apart


def build(view: View) -> None:
    """Draw the page."""
    sessions: list[tuple[Place, Sessions[Any]]] = view.patterns(Sessions)
    revocations = view.patterns(Revocation)
    if not sessions and not revocations:
        empty(
            "No sessions are declared",
            "Sessions(catalogue, 'session:{session_id}', Session, user='user_id', ...) declares some: "
            "see docs/patterns/sessions.md.",
            icon="group_off",
        )
        return
    _SessionsPage(view, sessions, revocations)


class _SessionsPage:
    """The page in one browser."""

    def __init__(
        self,
        view: View,
        sessions: list[tuple[Place, Sessions[Any]]],
        revocations: list[tuple[Place, Revocation]],
    ) -> None:
        self._view = view
        self._sessions = {f"{place.name}/{each.keyspace.pattern}": (place, each) for place, each in sessions}
        self._revocations = {
            f"{place.name}/{each.users.pattern}": (place, each) for place, each in revocations
        }
        self._users = {name: UserFinder(place.store, each) for name, (place, each) in self._sessions.items()}
        self._marks = {
            name: RevocationFinder(place.store, each) for name, (place, each) in self._revocations.items()
        }
        self._user = ""
        with section("Find a user", "By the id that the service knows them by."):  # noqa: SIM117
            with ui.element("form").classes("e-row").on("submit.prevent", self._find):
                self._named = ui.input("User", value=view.arguments.get("user", "")).props(
                    "dense outlined clearable"
                )
                ui.button("Find", icon="search").props('type="submit" unelevated no-caps')
        self._of_user = ui.element("div")
        self._of_user.set_visibility(False)
        if self._sessions:
            self._draw_users()
        if self._revocations:
            self._draw_marks()
        self._one = Sources(self._show_sessions)
        self._all = Sources(self._show_users)
        self._revoked = Sources(self._show_marks)
        self._refreshing = view.every(2, self._refresh)
        if self._named.value:
            self._choose(self._named.value)

    def _draw_users(self) -> None:
        with tiles():
            self._count, self._total = tile("Users signed in"), tile("Sessions")
        with section("Signed in", "Some of those who are there; find anybody else by name."):
            self._signed_in = table(
                [
                    Column("user", "User", kind="mono"),
                    Column("sessions", "Sessions", kind="number"),
                    *of_place(self._view),
                ],
                empty=Empty(
                    "Nobody is signed in",
                    "Users show up here when a service signs them in.",
                    icon="group_off",
                ),
                on_open=lambda row: self._open(row["user"]),
                search=True,
            )

    def _draw_marks(self) -> None:
        with section(
            "Revoked", "Tokens, families and users whose tokens are void, until those have expired."
        ):
            RevokeForm(self._view, self._revocations, lambda: self._refreshing.now())
            self._void = table(
                [
                    Column("what", "What", kind="badge"),
                    Column("name", "Id", kind="mono"),
                    Column("lapses", "Lapses in", kind="time"),
                    *of_place(self._view),
                ],
                empty=Empty(
                    "Nothing is revoked",
                    "A revoked token shows up here until it expires.",
                    icon="verified_user",
                ),
                search=True,
            )

    async def _open(self, user: str) -> None:
        self._named.value = user
        self._choose(user)
        await self._refreshing.now()

    async def _find(self) -> None:
        user = (self._named.value or "").strip()
        if not user:
            self._view.tell("Name a user first.", "warn")
            return
        self._choose(user)
        await self._refreshing.now()

    def _choose(self, user: str) -> None:
        """Draw what is shown of a user; refreshes fill it."""
        self._user = user
        self._of_user.clear()
        self._of_user.set_visibility(True)
        with self._of_user, section(f"Sessions of {user}") as tools:
            if self._sessions:
                with tools:
                    self._end_all(user)
                self._listed = table(
                    [
                        Column("session", "Session", kind="mono"),
                        Column("since", "Used", kind="time"),
                        Column("ends", "Ends in", kind="time"),
                        *of_place(self._view),
                    ],
                    empty=Empty(
                        "No session",
                        "This user is not signed in, or is known by another id.",
                        icon="person_off",
                    ),
                    actions=[
                        Action(
                            "end",
                            "End",
                            "logout",
                            what="session.end",
                            question=lambda row: self._about_ending(user, row),
                            target=lambda row: f"user {user}, session {row['session']}",
                            work=lambda row: self._end(user, row),
                            done=lambda ended: "The session has ended." if ended else "It had ended already.",
                            tone="bad",
                        )
                    ],
                    view=self._view,
                    then=lambda: self._refreshing.now(),
                )
            if self._revocations:
                with tools:
                    self._revoke_all(user)
                self._tokens = facts()

    def _about_ending(self, user: str, row: dict[str, Any]) -> str:
        """What comes of ending a session; a service that has tokens looks at those, not at its sessions."""
        place, _ = self._sessions[row["of"]]
        tokens = any(place is each for each, _ in self._revocations.values())
        effect = (
            "The tokens that it has stay valid until they expire, or are revoked."
            if tokens
            else "It gets 401 from now on."
        )
        return f"End the session {row['session']} of {user}? {effect}"

    def _end_all(self, user: str) -> None:
        async def work() -> int:
            # Tokens first: a session that is noted with new ones meanwhile is ended after that.
            await self._void_all(user)
            lives = [place.store[each] for place, each in self._sessions.values()]
            return sum([await live.end_all(user) for live in lives])

        void = " All tokens issued until now are void as well." if self._revocations else ""

        confirm_button(
            self._view,
            "End all",
            what="session.end-all",
            target=f"user {user}",
            question=f"End all sessions of {user}? They sign in again to go on.{void}",
            work=work,
            done=lambda count: f"{count:,} {'session has' if count == 1 else 'sessions have'} ended.",
            icon="logout",
            then=lambda: self._refreshing.now(),
        )

    async def _void_all(self, user: str) -> None:
        for place, each in self._revocations.values():
            await place.store[each].revoke_user(user)

    def _revoke_all(self, user: str) -> None:
        confirm_button(
            self._view,
            "Revoke all tokens",
            what="token.revoke-user",
            target=f"user {user}",
            question=f"Make every token void that was issued to {user} until now?",
            work=lambda: self._void_all(user),
            done="Tokens issued until now are void.",
            icon="key_off",
            then=lambda: self._refreshing.now(),
        )

    async def _end(self, user: str, row: dict[str, Any]) -> bool:
        place, declared = self._sessions[row["of"]]
        return await place.store[declared].end_by_id(user, row["whole_id"])

    async def _refresh(self) -> None:
        user = self._user
        work = []
        if self._users:
            work.append(self._all.refresh({name: partial(self._read_users, name) for name in self._users}))
        if self._marks:
            work.append(
                self._revoked.refresh({name: partial(self._read_marks, name) for name in self._marks})
            )
        if user:
            if self._sessions:
                of_user = {name: partial(self._read_sessions, name, user) for name in self._sessions}
                work.append(self._one.refresh(of_user))
            work.append(self._read_tokens(user))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _read_users(self, name: str) -> list[dict[str, Any]]:
        place, _ = self._sessions[name]
        return [_user_row(place, name, each) for each in await self._users[name].search()]

    async def _read_marks(self, name: str) -> list[dict[str, Any]]:
        place, _ = self._revocations[name]
        return [_mark_row(place, name, mark) for mark in await self._marks[name].search()]

    async def _read_sessions(self, name: str, user: str) -> list[dict[str, Any]]:
        place, declared = self._sessions[name]
        return [_session_row(place, name, each) for each in await list_sessions(place.store, declared, user)]

    async def _read_tokens(self, user: str) -> None:
        told = []
        for place, each in self._revocations.values():
            until = await tokens_revoked_until(place.store, each, user)
            void = "none was revoked as a whole" if until is None else f"void if issued until {clock(until)}"
            told.append((f"Tokens of {place.name}", void))
        if told and user == self._user:
            self._tokens.show(told)

    def _show_sessions(self, rows: list[dict[str, Any]]) -> None:
        self._listed.show(rows)

    def _show_users(self, rows: list[dict[str, Any]]) -> None:
        more = any(users.finder.truncated for users in self._users.values())
        self._signed_in.show(rows)
        self._count.show(f"{len(rows):,}{'+' if more else ''}", "of whom there are more" if more else "")
        self._total.show(f"{sum(row['sessions'] for row in rows):,}{'+' if more else ''}", "of these users")

    def _show_marks(self, rows: list[dict[str, Any]]) -> None:
        self._void.show(rows)


def _user_row(place: Place, name: str, seen: SignedInUser) -> dict[str, Any]:
    return {"id": f"{name}/{seen.user}", "user": seen.user, "sessions": seen.sessions, "place": place.name}


def _session_row(place: Place, name: str, seen: SessionSummary) -> dict[str, Any]:
    used = ago(seen.since) if seen.slides else f"began {ago(seen.since)}"
    return {
        "id": f"{name}/{seen.id}",
        "of": name,
        "whole_id": seen.id,  # opens nothing
        "session": f"{seen.id[:_SHOWN_OF_ID]}…",
        "since": used,
        "since_sort": since(seen.since),
        "ends": lasting(-_from_now(seen)),
        "ends_sort": -_from_now(seen),
        "place": place.name,
    }


def _from_now(seen: SessionSummary) -> float:
    """Seconds since it ended; below 0 while it has not."""
    return (seen.since - seen.ends).total_seconds() + since(seen.since)


def _mark_row(place: Place, name: str, mark: RevocationEntry) -> dict[str, Any]:
    return {
        "id": f"{name}/{mark.kind}/{mark.id}",
        "what": mark.kind,
        "what_tone": "warn" if mark.kind == "user" else "info" if mark.kind == "family" else "plain",
        "name": mark.id,
        "lapses": lasting(mark.expires_in),
        "lapses_sort": mark.expires_in,
        "place": place.name,
    }


PAGE = Page("/sessions", "Sessions", "group", build)
