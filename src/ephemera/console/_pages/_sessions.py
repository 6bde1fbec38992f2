"""Sessions and tokens: signed-in users, ending their sessions, and revocations."""

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
from ephemera.console._connections import Service
from ephemera.console._formats import format_age, format_seconds, format_time, seconds_since
from ephemera.console._pages._revoke import RevokeForm
from ephemera.console._sources import RowSources, service_column
from ephemera.console._view import ConsolePage, View
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

_ID_LENGTH = 12  # characters of a session's id that are shown


def build(view: View) -> None:
    """Draw the page."""
    sessions: list[tuple[Service, Sessions[Any]]] = view.patterns(Sessions)
    revocations = view.patterns(Revocation)
    if not sessions and not revocations:
        empty(
            "No sessions are declared",
            "Declare them with Sessions(catalogue, 'session:{session_id}', Session, user='user_id', ...): "
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
        sessions: list[tuple[Service, Sessions[Any]]],
        revocations: list[tuple[Service, Revocation]],
    ) -> None:
        self._view = view
        self._sessions = {
            f"{service.name}/{each.keyspace.pattern}": (service, each) for service, each in sessions
        }
        self._revocations = {
            f"{service.name}/{each.users.pattern}": (service, each) for service, each in revocations
        }
        self._users = {
            name: UserFinder(service.store, each) for name, (service, each) in self._sessions.items()
        }
        self._revoked_entries = {
            name: RevocationFinder(service.store, each) for name, (service, each) in self._revocations.items()
        }
        self._user = ""
        form = ui.element("form").classes("e-row").on("submit.prevent", self._find)
        with section("Find a user", "By the id that the service uses."), form:
            self._named = ui.input("User", value=view.arguments.get("user", "")).props(
                "dense outlined clearable"
            )
            ui.button("Find", icon="search").props('type="submit" unelevated no-caps')
        self._of_user = ui.element("div")
        self._of_user.set_visibility(False)
        if self._sessions:
            self._draw_users()
        if self._revocations:
            self._draw_revoked_entries()
        self._one = RowSources(self._show_sessions)
        self._all = RowSources(self._show_users)
        self._revoked = RowSources(self._show_revoked_entries)
        self._timer = view.every(2, self._refresh)
        if self._named.value:
            self._choose(self._named.value)

    def _draw_users(self) -> None:
        with tiles():
            self._count, self._total = tile("Users signed in"), tile("Sessions")
        with section("Signed in", "Some of the signed-in users; find others by id."):
            self._signed_in = table(
                [
                    Column("user", "User", kind="mono"),
                    Column("sessions", "Sessions", kind="number"),
                    *service_column(self._view),
                ],
                empty=Empty(
                    "No users signed in",
                    "Users appear here when they sign in.",
                    icon="group_off",
                ),
                on_open=lambda row: self._open(row["user"]),
                search=True,
            )

    def _draw_revoked_entries(self) -> None:
        with section(
            "Revoked", "Tokens, token families and users whose tokens are revoked, until those expire."
        ):
            RevokeForm(self._view, self._revocations, lambda: self._timer.now())
            self._revocation_table = table(
                [
                    Column("what", "Type", kind="badge"),
                    Column("name", "Id", kind="mono"),
                    Column("expires", "Expires in", kind="time"),
                    *service_column(self._view),
                ],
                empty=Empty(
                    "Nothing is revoked",
                    "A revoked token appears here until it expires.",
                    icon="verified_user",
                ),
                search=True,
            )

    async def _open(self, user: str) -> None:
        self._named.value = user
        self._choose(user)
        await self._timer.now()

    async def _find(self) -> None:
        user = (self._named.value or "").strip()
        if not user:
            self._view.notify("Enter a user id first.", "warn")
            return
        self._choose(user)
        await self._timer.now()

    def _choose(self, user: str) -> None:
        """Draw the sections of a user; refreshes fill them."""
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
                        Column("since", "Last used", kind="time"),
                        Column("ends", "Expires in", kind="time"),
                        *service_column(self._view),
                    ],
                    empty=Empty(
                        "No sessions",
                        "This user is not signed in, or has another id.",
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
                            done=lambda ended: (
                                "The session is ended." if ended else "The session had already ended."
                            ),
                            tone="bad",
                        )
                    ],
                    view=self._view,
                    then=lambda: self._timer.now(),
                )
            if self._revocations:
                with tools:
                    self._revoke_all(user)
                self._tokens = facts()

    def _about_ending(self, user: str, row: dict[str, Any]) -> str:
        """The confirmation text; a service with tokens checks those, not its sessions."""
        service, _ = self._sessions[row["of"]]
        tokens = any(service is each for each, _ in self._revocations.values())
        effect = (
            "Its tokens stay valid until they expire or are revoked."
            if tokens
            else "Its requests get 401 from now on."
        )
        return f"End the session {row['session']} of {user}? {effect}"

    def _end_all(self, user: str) -> None:
        async def work() -> int:
            # Tokens first: a session that gets new ones in the meantime is ended after that.
            await self._revoke_tokens(user)
            bound = [service.store[each] for service, each in self._sessions.values()]
            return sum([await each.end_all(user) for each in bound])

        tokens = " All tokens issued until now are revoked as well." if self._revocations else ""

        confirm_button(
            self._view,
            "End all",
            what="session.end-all",
            target=f"user {user}",
            question=f"End all sessions of {user}? They must sign in again.{tokens}",
            work=work,
            done=lambda count: f"{count:,} {'session is' if count == 1 else 'sessions are'} ended.",
            icon="logout",
            then=lambda: self._timer.now(),
        )

    async def _revoke_tokens(self, user: str) -> None:
        for service, each in self._revocations.values():
            await service.store[each].revoke_user(user)

    def _revoke_all(self, user: str) -> None:
        confirm_button(
            self._view,
            "Revoke all tokens",
            what="token.revoke-user",
            target=f"user {user}",
            question=f"Revoke every token issued to {user} until now?",
            work=lambda: self._revoke_tokens(user),
            done="Tokens issued until now are revoked.",
            icon="key_off",
            then=lambda: self._timer.now(),
        )

    async def _end(self, user: str, row: dict[str, Any]) -> bool:
        service, declared = self._sessions[row["of"]]
        return await service.store[declared].end_by_id(user, row["whole_id"])

    async def _refresh(self) -> None:
        user = self._user
        work = []
        if self._users:
            work.append(self._all.refresh({name: partial(self._read_users, name) for name in self._users}))
        if self._revoked_entries:
            work.append(
                self._revoked.refresh(
                    {name: partial(self._read_revoked_entries, name) for name in self._revoked_entries}
                )
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
        service, _ = self._sessions[name]
        return [_user_row(service, name, each) for each in await self._users[name].search()]

    async def _read_revoked_entries(self, name: str) -> list[dict[str, Any]]:
        service, _ = self._revocations[name]
        return [_revocation_row(service, name, entry) for entry in await self._revoked_entries[name].search()]

    async def _read_sessions(self, name: str, user: str) -> list[dict[str, Any]]:
        service, declared = self._sessions[name]
        return [
            _session_row(service, name, each) for each in await list_sessions(service.store, declared, user)
        ]

    async def _read_tokens(self, user: str) -> None:
        found = []
        for service, each in self._revocations.values():
            until = await tokens_revoked_until(service.store, each, user)
            text = "not revoked" if until is None else f"revoked if issued until {format_time(until)}"
            found.append((f"Tokens of {service.name}", text))
        if found and user == self._user:
            self._tokens.show(found)

    def _show_sessions(self, rows: list[dict[str, Any]]) -> None:
        self._listed.show(rows)

    def _show_users(self, rows: list[dict[str, Any]]) -> None:
        more = any(users.finder.truncated for users in self._users.values())
        self._signed_in.show(rows)
        self._count.show(f"{len(rows):,}{'+' if more else ''}", "there are more" if more else "")
        self._total.show(f"{sum(row['sessions'] for row in rows):,}{'+' if more else ''}", "of these users")

    def _show_revoked_entries(self, rows: list[dict[str, Any]]) -> None:
        self._revocation_table.show(rows)


def _user_row(service: Service, name: str, seen: SignedInUser) -> dict[str, Any]:
    return {
        "id": f"{name}/{seen.user}",
        "user": seen.user,
        "sessions": seen.sessions,
        "service": service.name,
    }


def _session_row(service: Service, name: str, seen: SessionSummary) -> dict[str, Any]:
    used = format_age(seen.since) if seen.slides else f"started {format_age(seen.since)}"
    return {
        "id": f"{name}/{seen.id}",
        "of": name,
        "whole_id": seen.id,  # not a credential
        "session": f"{seen.id[:_ID_LENGTH]}…",
        "since": used,
        "since_sort": seconds_since(seen.since),
        "ends": format_seconds(-_from_now(seen)),
        "ends_sort": -_from_now(seen),
        "service": service.name,
    }


def _from_now(seen: SessionSummary) -> float:
    """Seconds since it expired; negative while it has not."""
    return (seen.since - seen.ends).total_seconds() + seconds_since(seen.since)


def _revocation_row(service: Service, name: str, entry: RevocationEntry) -> dict[str, Any]:
    return {
        "id": f"{name}/{entry.kind}/{entry.id}",
        "what": entry.kind,
        "what_tone": "warn" if entry.kind == "user" else "info" if entry.kind == "family" else "plain",
        "name": entry.id,
        "expires": format_seconds(entry.expires_in),
        "expires_sort": entry.expires_in,
        "service": service.name,
    }


PAGE = ConsolePage("/sessions", "Sessions", "group", build)
