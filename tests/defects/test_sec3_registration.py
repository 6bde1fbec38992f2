"""SEC3: registration had no limit, starved sign-ins, and showed which addresses have accounts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import PASSWORD, App, opened, register, sign_in

_NAMES = {"first_name": "A", "last_name": "B"}
_PLENTY = {f"EPHEMERA_IDENTITY_{name}_PER_HOUR": "1000000" for name in ("REGISTRATIONS", "LOGINS")}


def _form(number: int) -> dict[str, str]:
    return {"email": f"user{number}@example.com", "password": PASSWORD, **_NAMES}


@contextmanager
def _occupied(lane: Any) -> Iterator[None]:
    """Keep the threads of a lane busy within a block, however fast they would be."""
    released = threading.Event()
    for _ in range(lane._threads._max_workers):
        lane._threads.submit(released.wait, 60)
    try:
        yield
    finally:
        released.set()


async def _until_refused(flood: Collection[asyncio.Task[httpx.Response]]) -> None:
    """Wait until one of the requests is answered while those that got into the queue wait."""
    await asyncio.wait_for(asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED), 60)


async def test_sec3_a_flood_of_registrations_does_not_starve_sign_ins(
    server: Valkey, postgres: Postgres
) -> None:
    """While new accounts wait for their hashes or get 503, every correct sign-in succeeds."""
    async with opened("identity", server, postgres, _PLENTY) as app:
        email = await register(app)
        with _occupied(app.service.passwords._new_accounts):
            flood = [
                asyncio.create_task(app.ask("POST", "/auth/register", json=_form(number)))
                for number in range(120)
            ]
            signed_in = [await sign_in(app, email) for _ in range(8)]
            await _until_refused(flood)
        assert [each.status_code for each in signed_in] == [200] * 8
        statuses = {each.status_code for each in await asyncio.gather(*flood)}
        assert statuses == {202, 503}, "the flood was more than the queue of new accounts holds"


async def test_sec3_a_flood_of_sign_ins_does_not_starve_registrations(
    server: Valkey, postgres: Postgres
) -> None:
    """The reverse: while sign-ins wait for their hashes or get 503, every new account is made."""
    async with opened("identity", server, postgres, _PLENTY) as app:
        with _occupied(app.service.passwords._sign_ins):
            flood = [
                asyncio.create_task(sign_in(app, f"ann{number}@example.com", address=f"198.51.100.{number}"))
                for number in range(120)
            ]
            made = [
                await app.ask("POST", "/auth/register", json=_form(number), address="203.0.113.5")
                for number in range(8)
            ]
            await _until_refused(flood)
        assert [each.status_code for each in made] == [202] * 8
        statuses = {each.status_code for each in await asyncio.gather(*flood)}
        assert statuses == {401, 503}, "the flood was more than the queue of sign-ins holds"


async def test_sec3_registrations_are_limited_by_address_and_in_total(
    server: Valkey, postgres: Postgres
) -> None:
    """Ten per hour from one address; and a limit for all addresses together."""
    total = {"EPHEMERA_IDENTITY_ALL_REGISTRATIONS_PER_HOUR": "12"}
    async with opened("identity", server, postgres, total) as app:
        assert await _statuses(app, "203.0.113.1", range(11)) == [202] * 10 + [429]
        assert await _statuses(app, "203.0.113.2", range(20, 23)) == [202] * 2 + [429]


async def test_sec3_a_league_limits_registrations(server: Valkey, postgres: Postgres) -> None:
    """Ten per hour from one address; names are public there, so a taken one is refused as such."""
    async with opened("league", server, postgres) as app:
        forms = [{"name": f"user{number}", "password": PASSWORD} for number in range(11)]
        answers = [await app.ask("POST", "/api/users", json=form) for form in forms]
        assert [each.status_code for each in answers] == [201] * 10 + [429]
        assert (await app.ask("POST", "/api/users", json=forms[0], address="203.0.113.9")).status_code == 409


async def test_sec3_registration_does_not_tell_whether_an_account_exists(
    server: Valkey, postgres: Postgres
) -> None:
    """A known address gets the answer of a new one, and its account stays as it is."""
    async with opened("identity", server, postgres) as app:
        email = await register(app)
        stolen = {"email": email, "password": "another password", **_NAMES}
        known = await app.ask("POST", "/auth/register", json=stolen, address="203.0.113.3")
        new = await app.ask("POST", "/auth/register", json=_form(1), address="203.0.113.4")
        assert (known.status_code, known.content) == (new.status_code, new.content)
        assert known.headers["ratelimit-policy"] == new.headers["ratelimit-policy"]
        assert (await sign_in(app, email)).status_code == 200
        assert (await sign_in(app, email, "another password")).status_code == 401


async def _statuses(app: App, address: str, numbers: range) -> list[int]:
    answers = [
        await app.ask("POST", "/auth/register", json=_form(number), address=address) for number in numbers
    ]
    return [each.status_code for each in answers]
