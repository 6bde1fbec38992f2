"""Simulated users of identity: members who use their profile, and an intruder who guesses passwords."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from ephemera_services.demo.clients import DemoClient, TrafficContext
from ephemera_services.runtime import DEMO_PASSWORD

_NAMES = (("太郎", "山田"), ("花子", "佐藤"), ("Ann", "Smith"), ("Jürgen", "Groß"), ("Zoë", "Ng"))


async def new_member(client: DemoClient) -> dict[str, Any]:
    """Register and sign in a new user; the tokens, and `email`."""
    email = f"{uuid4().hex[:10]}@example.com"
    first, last = random.choice(_NAMES)
    form = {"email": email, "password": DEMO_PASSWORD, "first_name": first, "last_name": last}
    await client.expect(202, "POST", "/auth/register", json=form)
    return {**await sign_in(client, email), "email": email}


async def sign_in(client: DemoClient, email: str) -> dict[str, Any]:
    """Sign a user in; the tokens."""
    tokens: dict[str, Any] = await client.expect(
        200, "POST", "/auth/login", json={"email": email, "password": DEMO_PASSWORD}
    )
    return tokens


def bearer(tokens: dict[str, Any]) -> dict[str, str]:
    """The header of a request with an access token."""
    return {"authorization": f"Bearer {tokens['access_token']}"}


class Members:
    """A new member registers, reads and changes their profile, refreshes, and often signs out."""

    every = 3.0

    def __init__(self, context: TrafficContext) -> None:
        self._context = context

    async def act(self) -> None:
        """Act once."""
        async with DemoClient(self._context, "identity") as client:
            tokens = await new_member(client)
            profile = f"/api/profiles/{tokens['user_id']}"
            for _ in range(random.randint(2, 5)):
                await client.expect(200, "GET", profile, headers=bearer(tokens))
            changed = {"first_name": "New", "last_name": "Name", "address": "1 High Street"}
            await client.expect(200, "PUT", profile, headers=bearer(tokens), json=changed)
            refresh = {"refresh_token": tokens["refresh_token"]}
            tokens = await client.expect(200, "POST", "/auth/refresh", json=refresh)
            await client.expect(200, "GET", profile, headers=bearer(tokens))
            if random.random() < 0.6:
                await client.expect(204, "POST", "/auth/logout", headers=bearer(tokens))


class Intruder:
    """Guesses passwords from one address: refused as wrong, and soon by the limit."""

    every = 4.0

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "identity", "203.0.113.66")

    async def act(self) -> None:
        """Act once."""
        guess = {"email": "root@example.com", "password": f"guess {random.randint(1, 9999)}"}
        await self._client.request("POST", "/auth/login", json=guess)
