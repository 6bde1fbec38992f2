"""Events about users: identity publishes them, whatever happens to Redis, and scripture follows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from sqlalchemy import text

from ephemera import connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.operations.configuration import mark_server
from ephemera_services.runtime import UserCreated, UserDeleted, UserUpdated
from ephemera_services.scripture import USERS
from ephemera_services.scripture import catalogue as scripture_catalogue
from tests.defects.service_apps import ADMIN, PASSWORD, App, opened, register, sign_in

pytestmark = pytest.mark.standalone("each service has a database of its own")

STREAM = "gl:events:users"


async def eventually(holds: Callable[[], Awaitable[Any]]) -> Any:
    """What a condition gives as soon as it holds."""
    deadline = time.monotonic() + 60
    while not (found := await holds()):
        assert time.monotonic() < deadline, "it did not come to hold"
        await asyncio.sleep(0.02)
    return found


@asynccontextmanager
async def following(server: Valkey, postgres: Postgres) -> AsyncIterator[tuple[App, str]]:
    """A scripture on the server's database 1; and the URL of that."""
    url = f"{server.url}/1"
    await mark_server(url, "scripture")
    async with opened("scripture", server, postgres, {"EPHEMERA_URL": url}, empty=False) as app:
        yield app, url


async def rows(app: App, query: str, **values: Any) -> list[tuple[Any, ...]]:
    """What the SQL of a service has."""
    async with app.app.state.resources.engine.connect() as sql:
        return [tuple(row) for row in await sql.execute(text(query), values)]


async def history(app: App, user_id: str) -> list[str]:
    """What scripture recorded of a user, in any order."""
    query = "SELECT what FROM scripture.user_history WHERE user_id = :user"
    return sorted(what for (what,) in await rows(app, query, user=user_id))


async def test_scripture_follows_identity(server: Valkey, postgres: Postgres) -> None:
    """A user is created, renamed, promoted and deleted at identity, and scripture knows each time."""
    server.ask("FLUSHALL")
    async with following(server, postgres) as (scripture, url):
        variables = {"EPHEMERA_IDENTITY_EVENTS_URL": url, "EPHEMERA_IDENTITY_LOGINS_PER_HOUR": "100"}
        async with opened("identity", server, postgres, variables, empty=False) as identity:
            email = await register(identity, first_name="Ann", last_name="Smith")
            signed_in = (await sign_in(identity, email)).json()
            user_id, bearer = signed_in["user_id"], {"authorization": f"Bearer {signed_in['access_token']}"}

            async def known() -> list[tuple[Any, ...]]:
                query = "SELECT email, name, plan FROM scripture.users WHERE id = :id"
                return await rows(scripture, query, id=user_id)

            assert await eventually(known) == [(email, "Ann Smith", "free")]
            form = {"first_name": "Anna"}
            patched = await identity.ask("PATCH", f"/api/profiles/{user_id}", json=form, headers=bearer)
            assert patched.status_code == 200

            async def renamed() -> bool:
                return await known() == [(email, "Anna Smith", "free")]

            await eventually(renamed)
            root = (await sign_in(identity, ADMIN["email"], ADMIN["password"])).json()
            admin = {"authorization": f"Bearer {root['access_token']}"}
            role = await identity.ask(
                "PUT", f"/admin/users/{user_id}/role", json={"role": "admin"}, headers=admin
            )
            assert role.status_code == 200
            deleted = await identity.ask("DELETE", f"/admin/users/{user_id}", headers=admin)
            assert deleted.status_code == 204

            async def complete() -> bool:
                return await history(scripture, user_id) == ["created", "deleted", "role admin", "updated"]

            await eventually(complete)
            assert await known() == []


async def test_a_late_event_revives_no_user(server: Valkey, postgres: Postgres) -> None:
    """A creation and a change that arrive after the deletion leave the user deleted; each counts once."""
    server.ask("FLUSHALL")
    user_id = str(uuid4())
    async with (
        following(server, postgres) as (scripture, url),
        connect(url, scripture_catalogue, identity="scripture") as store,
    ):
        await store[USERS].publish(UserDeleted(user_id, number=3, source="identity"))

        async def is_deleted() -> bool:
            return await history(scripture, user_id) == ["deleted"]

        await eventually(is_deleted)
        for _ in range(2):
            created = UserCreated(user_id, number=1, source="identity", email="a@example.com", name="A")
            await store[USERS].publish(created)
            await store[USERS].publish(
                UserUpdated(user_id, "b@example.com", "B", number=2, source="identity")
            )

        async def all_handled() -> bool:
            return await history(scripture, user_id) == ["created", "deleted", "updated"]

        await eventually(all_handled)
        assert await rows(scripture, "SELECT 1 FROM scripture.users WHERE id = :id", id=user_id) == []


async def test_events_wait_for_their_redis(server: Valkey, postgres: Postgres) -> None:
    """While it is down accounts change as usual, and their events are published when it is back."""
    with embedded.valkey() as lost:
        await mark_server(lost.url, "scripture")
        variables = {"EPHEMERA_IDENTITY_EVENTS_URL": lost.url}
        async with opened("identity", server, postgres, variables) as identity:
            lost.kill()
            first = await register(identity)
            assert (await sign_in(identity, first, PASSWORD)).status_code == 200
            waiting = "SELECT event->>'email' FROM identity.outbox_events WHERE published_at IS NULL"
            assert (first,) in await rows(identity, waiting)
            lost.restart()
            await mark_server(lost.url, "scripture")
            second = await register(identity)

            async def arrived() -> bool:
                entries: Any = lost.ask("XRANGE", STREAM, "-", "+")
                events = [msgspec.json.decode(fields[fields.index("event") + 1]) for _, fields in entries]
                return {first, second} <= {each.get("email") for each in events}

            await eventually(arrived)


async def test_without_the_setting_no_event_is_written(server: Valkey, postgres: Postgres) -> None:
    """No one would ever publish it."""
    async with opened("identity", server, postgres) as identity:
        await register(identity)
        assert await rows(identity, "SELECT 1 FROM identity.outbox_events") == []
        assert server.ask("EXISTS", STREAM) == 0
