"""Users of the identity service in tests: they register, sign in and ask, over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from tests.services.services import Served

PASSWORD = "correct horse battery"
ADMIN = {"email": "root@example.com", "password": "the administrator's own"}
PLENTY = "1000000"
QUICK = {
    "EPHEMERA_IDENTITY_PASSWORD_MEMORY": "8",
    "EPHEMERA_IDENTITY_ADMIN_EMAIL": ADMIN["email"],
    "EPHEMERA_IDENTITY_ADMIN_PASSWORD": ADMIN["password"],
}
UNLIMITED = {
    f"EPHEMERA_IDENTITY_{name}_PER_HOUR": PLENTY
    for name in ("LOGINS", "PROFILE_READS", "PROFILE_UPDATES", "UPLOADS")
}


class Person:
    """A user who is signed in at one process of the service."""

    def __init__(self, served: Served, tokens: dict[str, Any], email: str) -> None:
        self._served = served
        self.email = email
        self.tokens = tokens
        self.id: str = tokens["user_id"]
        self.sid: str = tokens["sid"]

    def ask(self, method: str, path: str, at: Served | None = None, **more: Any) -> httpx.Response:
        """One request with the access token, at another process if given."""
        headers = {"authorization": f"Bearer {self.tokens['access_token']}", **more.pop("headers", {})}
        return (at or self._served).client.request(method, path, headers=headers, **more)

    def profile(self, at: Served | None = None) -> httpx.Response:
        """Read the own profile."""
        return self.ask("GET", f"/api/profiles/{self.id}", at)

    def refresh(self, at: Served | None = None) -> httpx.Response:
        """Use the refresh token; the new tokens are kept if there are any."""
        body = {"refresh_token": self.tokens["refresh_token"]}
        answer = (at or self._served).client.post("/auth/refresh", json=body)
        if answer.status_code == 200:
            self.tokens = answer.json()
        return answer

    def signed_in_again(self) -> Person:
        """The same user in another sign-in."""
        return sign_in(self._served, self.email)


def register(served: Served, **changes: str) -> str:
    """A new user's address."""
    email = f"{uuid4().hex}@example.com"
    form = {"email": email, "password": PASSWORD, "first_name": "太郎", "last_name": "山田", **changes}
    answer = served.client.post("/auth/register", json=form)
    assert answer.status_code == 201, answer.text
    return email


def sign_in(served: Served, email: str, password: str = PASSWORD) -> Person:
    """A user who is signed in."""
    answer = served.client.post("/auth/login", json={"email": email, "password": password})
    assert answer.status_code == 200, answer.text
    return Person(served, answer.json(), email)


def newcomer(served: Served) -> Person:
    """A new user who is signed in."""
    return sign_in(served, register(served))


def administrator(served: Served) -> Person:
    """The administrator, signed in."""
    return sign_in(served, ADMIN["email"], ADMIN["password"])
