"""Users of the slides service in tests: they sign in, ask, and watch jobs, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

from ephemera_services.runtime import DEMO_PASSWORD
from ephemera_services.slides import DEMO_DOCUMENT
from tests.services.services import Served

ADMIN, EDITOR, VIEWER = "root@company.example", "anna@company.example", "vera@company.example"
FREE = "ivan@studio.example"
QUICK = {
    "EPHEMERA_SLIDES_DEMO": "true",
    "EPHEMERA_SLIDES_PASSWORD_MEMORY": "8",
    "EPHEMERA_SLIDES_SECURE_COOKIES": "false",
    "EPHEMERA_SLIDES_LOGINS_PER_MINUTE": "1000000",
    "EPHEMERA_SLIDES_READING_SECONDS": "60",
    "EPHEMERA_SLIDES_OPERATOR_TOKEN": "the-token-of-an-operator",
    "EPHEMERA_SLIDES_WRONG_PASSWORDS_PER_HOUR": "1000000",
    "EPHEMERA_SLIDES_SHARED_READS_PER_MINUTE": "1000000",
    "EPHEMERA_SLIDES_KEYS_PER_USER": "1000000",
    "EPHEMERA_SLIDES_STREAMS_PER_USER": "1000000",
    "EPHEMERA_SLIDES_WEBHOOKS_ANYWHERE": "true",
}
OPERATOR = {"authorization": "Bearer the-token-of-an-operator"}
_NONE_KEPT = httpx.Limits(max_keepalive_connections=0)
_PATIENCE = 60.0  # seconds; machines that run tests are busy


class Message(NamedTuple):
    """A server-sent event."""

    id: str
    name: str
    data: dict[str, Any]


class Person:
    """A signed-in user."""

    def __init__(self, served: Served, email: str = EDITOR) -> None:
        self.served = served
        self.email = email
        # No connection is kept: each test has many people, and none of them says goodbye.
        self.client = httpx.Client(base_url=served.url, timeout=30, limits=_NONE_KEPT)
        answer = self.client.post("/auth/login", json=credentials(email))
        assert answer.status_code == 200, answer.text
        self.account = answer.json()

    @property
    def cookie(self) -> str:
        """The session's cookie, as a header has it."""
        return "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())

    def ask(self, method: str, path: str, at: Served | None = None, **more: Any) -> httpx.Response:
        """One request, at another process if given."""
        base = self.served if at is None else at
        return self.client.request(method, base.url + path, **more)

    def want(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The body of an answer that must have this status."""
        answer = self.ask(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def events(self, job_id: str, after: str | None = None, at: Served | None = None) -> Iterator[Message]:
        """The events of a job until its end."""
        headers = {} if after is None else {"last-event-id": after}
        url = f"{(at or self.served).url}/jobs/{job_id}/events"
        with self.client.stream("GET", url, headers=headers, timeout=_PATIENCE) as stream:
            assert stream.status_code in (200, 204), stream.read()
            yield from _messages(stream)

    def finished(self, job_id: str) -> dict[str, Any]:
        """A job when it has ended, by SQL."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            job: dict[str, Any] = self.want(200, "GET", f"/jobs/{job_id}")
            if job["state"] not in ("waiting", "running"):
                return job
            assert time.monotonic() < deadline, job
            time.sleep(0.1)

    def upload(self, content: bytes, name: str = "a.txt", at: Served | None = None) -> httpx.Response:
        """Send a document."""
        return self.ask("POST", "/documents", at, files={"file": (name, content)})

    def document(self, content: bytes = DEMO_DOCUMENT.encode(), name: str = "whales.txt") -> str:
        """The id of a document that was read."""
        answer = self.upload(content, name)
        assert answer.status_code == 202, answer.text
        taken = answer.json()
        assert self.finished(taken["job_id"])["state"] == "done"
        return str(taken["document_id"])

    def begin(self, topic: str = "Whales", slides: int = 5, **more: Any) -> dict[str, str]:
        """A presentation that is being written: its id, and its job's."""
        begun: dict[str, str] = self.want(
            202, "POST", "/presentations", json={"topic": topic, "slides": slides, **more}
        )
        return begun

    def exported(self, presentation_id: str, format: str) -> bytes:  # noqa: A002
        """The file of an export, when it is made."""
        begun = self.want(202, "POST", f"/presentations/{presentation_id}/exports", json={"format": format})
        assert self.finished(begun["job_id"])["state"] == "done"
        made = self.want(200, "GET", f"/exports/{begun['export_id']}")
        answer = self.ask("GET", made["url"])
        assert answer.status_code == 200
        return answer.content


def credentials(email: str, password: str = DEMO_PASSWORD) -> dict[str, str]:
    """The form of a sign-in; the demo's organizations are called as their domains."""
    return {"organization": email.rpartition("@")[2].partition(".")[0], "email": email, "password": password}


def set_plan(person: Person, plan: str, at: Served | None = None, **more: Any) -> None:
    """Change the plan of a person's organization, as the operator."""
    url = f"{(at or person.served).url}/operator/organizations/{person.account['organization_id']}/plan"
    answer = httpx.put(url, headers=OPERATOR, json={"plan": plan, **more}, timeout=30)
    assert answer.status_code == 200, answer.text


def administrator(served: Served) -> Person:
    """The administrator, whose organization has no limit that tests would meet."""
    root = Person(served, ADMIN)
    set_plan(root, "enterprise", requests_per_minute=1_000_000)
    return root


def slide_events(messages: list[Message]) -> list[tuple[str, int]]:
    """The slide events of messages, in order."""
    kinds = ("slide_started", "slide_completed")
    return [
        (message.data["event_type"], message.data["slide_number"])
        for message in messages
        if message.data.get("event_type") in kinds
    ]


def every_slide(number: int) -> list[tuple[str, int]]:
    """The complete slide events of a presentation, without gaps and duplicates."""
    return [(kind, each) for each in range(1, number + 1) for kind in ("slide_started", "slide_completed")]


def _messages(stream: httpx.Response) -> Iterator[Message]:
    fields: dict[str, str] = {}
    for line in stream.iter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        elif "data" in fields:
            yield Message(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}
