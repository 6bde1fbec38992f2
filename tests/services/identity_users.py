"""Users of the identity service in tests: they register, sign in and ask, over HTTP."""

from __future__ import annotations

import re
import time
from email import message_from_bytes
from pathlib import Path
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
    for name in (
        "LOGINS",
        "REGISTRATIONS",
        "ALL_REGISTRATIONS",
        "REFRESHES",
        "ADDRESS_REFRESHES",
        "REVOCATION_LISTS",
        "PROFILE_READS",
        "PROFILE_UPDATES",
        "UPLOADS",
        "DOCUMENT_READS",
        "MAIL_REQUESTS",
        "MAILS",
        "CONFIRMATIONS",
        "EXPORTS",
    )
}
ANY_PASSWORDS = {"EPHEMERA_IDENTITY_WRONG_PASSWORDS_PER_HOUR": PLENTY}
"""For generated requests, many of which have wrong passwords."""


RESOURCE_SERVER = "the-token-of-a-resource-server"
_MAILS_WITHIN = 60.0  # seconds; machines that run tests are busy


class Mailbox:
    """The mails that a service wrote to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def variables(self) -> dict[str, str]:
        """What tells a service to write its mails here."""
        return {"EPHEMERA_IDENTITY_MAIL_FOLDER": str(self.folder)}

    def to(self, email: str) -> dict[str, str]:
        """The text of each mail to an address, by subject."""
        found = [message_from_bytes(path.read_bytes()) for path in self.folder.glob("*.eml")]
        return {each["Subject"]: str(each.get_payload()) for each in found if each["To"] == email}

    def receive(self, email: str, subject: str) -> str:
        """Wait for a mail, and take it out of the box; its text."""
        deadline = time.monotonic() + _MAILS_WITHIN
        while time.monotonic() < deadline:
            for path in self.folder.glob("*.eml"):
                mail = message_from_bytes(path.read_bytes())
                if (mail["To"], mail["Subject"]) == (email, subject):
                    path.unlink()
                    return str(mail.get_payload())
            time.sleep(0.02)
        raise AssertionError(f"no mail {subject!r}; there are {sorted(self.to(email))}")

    def code(self, email: str, subject: str) -> str:
        """Wait for a mail with a code; the code."""
        found = re.search(r"^(?:http\S+#\w+=)?([\w-]{43})$", self.receive(email, subject), re.MULTILINE)
        assert found is not None
        return found[1]


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
    assert answer.status_code == 202, answer.text
    return form["email"]


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
