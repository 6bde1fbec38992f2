"""SEC19: the last administrator could leave, a share could not be withdrawn, sockets had no limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ephemera.embedded import Postgres, Valkey
from ephemera.web import Problem
from ephemera_services.runtime import OpenStreams
from tests.defects.service_apps import opened
from tests.defects.slides_accounts import sign_in
from tests.services.feed_users import until
from tests.services.services import serving
from tests.services.slides_users import ADMIN, EDITOR, FREE, QUICK, Person


async def test_sec19_an_organization_keeps_an_administrator(server: Valkey, postgres: Postgres) -> None:
    """The last one cannot be demoted or blocked; of two who demote each other at once, one remains."""
    async with opened("slides", server, postgres) as app:
        root, anna = await sign_in(app, ADMIN), await sign_in(app, EDITOR)
        path = f"/admin/users/{root.account['user_id']}"
        for change in ({"role": "viewer"}, {"blocked": True}):
            where = f"{path}/{'role' if 'role' in change else 'blocked'}"
            assert (await root.ask("PUT", where, json=change)).status_code == 409
        other = f"/admin/users/{anna.account['user_id']}/role"
        await root.want(200, "PUT", other, json={"role": "admin"})
        anna = await sign_in(app, EDITOR)
        answers = await asyncio.gather(
            root.ask("PUT", other, json={"role": "viewer"}),
            anna.ask("PUT", f"{path}/role", json={"role": "viewer"}),
        )
        assert min(answer.status_code for answer in answers) == 200
        remaining = [await sign_in(app, email) for email in (ADMIN, EDITOR)]
        assert sorted(user.account["role"] for user in remaining) == ["admin", "viewer"]


async def test_sec19_a_share_shows_little_and_can_be_withdrawn(server: Valkey, postgres: Postgres) -> None:
    """Notes and sources are never shown; a withdrawn link is gone, and the next one is another."""
    url = postgres.database("sec19_shares")
    async with opened("slides", server, postgres, {"EPHEMERA_DATABASE_URL": url}) as app:
        anna = await sign_in(app, EDITOR)
        made = await anna.want(202, "POST", "/presentations", json={"topic": "Whales", "slides": 1})
        with psycopg.connect(url) as sql:
            sql.execute(
                "INSERT INTO slides.presentation_slides (id, presentation_id, number, title, bullets, notes, "
                "sources) VALUES (%s, %s, 1, 'One', '[]', 'secret', '[\"secret.doc\"]')",
                (uuid4(), made["presentation_id"]),
            )
        path = f"/presentations/{made['presentation_id']}/shares"
        link = (await anna.want(201, "POST", path))["url"]
        assert "secret" not in (await app.ask("GET", link)).text
        assert (await app.ask("GET", link)).json()["slides"][0]["title"] == "One"
        page = await app.ask("GET", link, headers={"accept": "text/html,*/*"})
        assert "secret" not in page.text
        refused = await anna.ask("POST", path, json={"notes": True})
        assert refused.status_code == 422
        assert (await (await sign_in(app, FREE)).ask("DELETE", path)).status_code == 404
        await anna.want(204, "DELETE", path)
        assert (await app.ask("GET", link)).status_code == 404
        assert (await anna.ask("DELETE", path)).status_code == 404
        assert (await anna.want(201, "POST", path))["url"] != link


async def test_sec19_reads_of_shares_are_limited_by_address(server: Valkey, postgres: Postgres) -> None:
    """An address that guesses links, or reads one again and again, is limited; another one is not."""
    limit = {"EPHEMERA_SLIDES_SHARED_READS_PER_MINUTE": "3"}
    async with opened("slides", server, postgres, limit) as app:
        statuses = [(await app.ask("GET", f"/p/guess{n}")).status_code for n in range(7)]
        assert set(statuses) == {404, 429}
        assert (await app.ask("GET", "/p/guess", address="192.0.2.9")).status_code == 404


async def test_sec19_streams_of_a_user_are_limited(server: Valkey, postgres: Postgres) -> None:
    """One stream more than is allowed is a 429 that says so."""
    async with opened("slides", server, postgres, {"EPHEMERA_SLIDES_STREAMS_PER_USER": "1"}) as app:
        anna, root = await sign_in(app, EDITOR), await sign_in(app, ADMIN)
        made = await anna.want(202, "POST", "/presentations", json={"topic": "Whales", "slides": 1})
        path = f"/jobs/{made['job_id']}/events"
        await app.service.workspace.jobs.cancel(made["job_id"])  # so that its streams end
        with app.service.streams.opened(UUID(anna.account["user_id"])):
            refused = await anna.ask("GET", path)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "5"
            assert (await root.ask("GET", path)).status_code == 200
        assert (await anna.ask("GET", path)).status_code == 200


def test_sec19_open_sockets_of_a_user_are_limited(server: Valkey, postgres: Postgres, tmp_path: Path) -> None:
    """Over the network: the third WebSocket of a user is refused by 429 until one of the two is closed."""
    places = {
        **QUICK, "EPHEMERA_URL": server.url, "EPHEMERA_DATABASE_URL": postgres.database("sec19_sockets"),
        "EPHEMERA_SLIDES_STREAMS_PER_USER": "2",
    }  # fmt: skip
    with serving("slides", tmp_path, **places) as served, ExitStack() as stack:
        anna, root = Person(served, EDITOR), Person(served, ADMIN)
        url = served.url.replace("http", "ws", 1) + "/notifications"

        def opened(person: Person) -> Any:
            return connect(url, additional_headers={"cookie": person.cookie}, proxy=None)

        first, _ = stack.enter_context(opened(anna)), stack.enter_context(opened(anna))
        with pytest.raises(InvalidStatus) as refused:
            opened(anna)
        assert refused.value.response.status_code == 429
        stack.enter_context(opened(root))
        first.close()
        until(lambda: _accepted(lambda: stack.enter_context(opened(anna))), "a closed socket makes room")


def _accepted(work: Callable[[], object]) -> bool:
    try:
        work()
    except InvalidStatus:
        return False
    return True


def test_sec19_a_closed_stream_makes_room() -> None:
    """Streams are counted while they are open, for each user."""
    streams, user = OpenStreams(2), UUID(int=1)
    with streams.opened(user), streams.opened(UUID(int=2)):
        with streams.opened(user), pytest.raises(Problem), streams.opened(user):
            pass
        with streams.opened(user):
            pass
    assert not streams._open
