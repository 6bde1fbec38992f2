"""Who may do what in slides: roles, plans, keys and notifications, on every process."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ephemera import sync
from ephemera.embedded import Postgres, Valkey
from ephemera.web import Problem
from ephemera_services.runtime import DEMO_PASSWORD
from ephemera_services.slides import catalogue
from ephemera_services.slides.keys import SESSIONS
from tests.defects.service_apps import opened
from tests.defects.slides_accounts import sign_in
from tests.services.services import Served
from tests.services.slides_users import (
    ADMIN,
    EDITOR,
    FREE,
    VIEWER,
    Person,
    credentials,
    every_slide,
    set_plan,
)


@pytest.fixture
def root(slides: Served) -> Person:
    """The administrator."""
    return Person(slides, ADMIN)


def _socket(person: Person, path: str, at: Served | None = None, **headers: str) -> Any:
    url = (at or person.served).url.replace("http:", "ws:") + path
    return connect(url, additional_headers={"cookie": person.cookie, **headers})


def _newcomer(root: Person, role: str = "editor") -> Person:
    form = {"email": f"{uuid4().hex}@company.example", "password": DEMO_PASSWORD, "role": role}
    made = root.want(201, "POST", "/admin/users", json=form)
    person = Person(root.served, form["email"])
    assert person.account["user_id"] == made["user_id"]
    return person


def test_a_new_role_ends_every_session_on_every_process(
    root: Person, slides: Served, slides_again: Served
) -> None:
    """After a role change each of the user's sessions is 401 at its next request, on whichever process."""
    one = _newcomer(root)
    two, other = Person(slides, one.email), Person(slides)
    assert two.ask("GET", "/usage", slides_again).status_code == 200
    path = f"/admin/users/{one.account['user_id']}/role"
    assert root.want(200, "PUT", path, json={"role": "viewer"}) == {"sessions_ended": 2}
    for session in (one, two):
        for process in (slides, slides_again):
            assert session.ask("GET", "/usage", process).status_code == 401
    assert other.ask("GET", "/usage").status_code == 200
    again = Person(slides, one.email)
    assert again.account["role"] == "viewer"
    assert again.ask("POST", "/presentations", json={"topic": "Whales"}).status_code == 403


def test_a_blocked_user_is_out(root: Person, slides: Served) -> None:
    """A block ends the user's sessions and keys, and refuses the next sign-in."""
    one = _newcomer(root)
    key = one.want(201, "POST", "/api-keys", json={"name": "mine"})["key"]
    assert slides.client.get("/usage", headers={"x-api-key": key}).status_code == 200
    root.want(200, "PUT", f"/admin/users/{one.account['user_id']}/blocked", json={"blocked": True})
    assert one.ask("GET", "/usage").status_code == 401
    assert slides.client.get("/usage", headers={"x-api-key": key}).status_code == 401
    assert slides.client.post("/auth/login", json=credentials(one.email)).status_code == 403


async def test_two_administrators_cannot_delete_each_other(server: Valkey, postgres: Postgres) -> None:
    """Of two who do it at once one remains, however the changes interleave."""
    async with opened("slides", server, postgres) as app:
        accounts = app.service.accounts
        for number in range(5):
            organization = await accounts.add_organization(f"Duel {number}")
            one, two = [
                await accounts.add(organization, f"{name}@duel.example", DEMO_PASSWORD, "admin")
                for name in ("one", "two")
            ]
            outcomes = await asyncio.gather(
                accounts.delete(one, organization, two),
                accounts.delete(two, organization, one),
                return_exceptions=True,
            )
            (refused,) = [outcome for outcome in outcomes if outcome is not None]
            assert isinstance(refused, Problem)
            assert refused.status == 409
            assert len(await accounts.list(organization)) == 1


def test_users_change_their_own_password(root: Person, slides: Served) -> None:
    """With the old one; other sessions end, this one goes on, and only the new password signs in."""
    one = _newcomer(root, "viewer")
    other = Person(slides, one.email)
    key = {"x-api-key": Person(slides).want(201, "POST", "/api-keys", json={"name": "k"})["key"]}
    fresh = "another horse battery"
    form = {"current_password": DEMO_PASSWORD, "new_password": fresh}
    one.want(403, "PUT", "/auth/password", json={**form, "current_password": "not this one"})
    one.want(422, "PUT", "/auth/password", json={**form, "new_password": "short"})
    assert slides.client.put("/auth/password", json=form).status_code == 401
    assert slides.client.put("/auth/password", headers=key, json=form).status_code == 403
    assert one.want(200, "PUT", "/auth/password", json=form) == {"sessions_ended": 2}
    assert one.ask("GET", "/usage").status_code == 200
    assert other.ask("GET", "/usage").status_code == 401
    assert slides.client.post("/auth/login", json=credentials(one.email)).status_code == 401
    assert slides.client.post("/auth/login", json=credentials(one.email, fresh)).status_code == 200


async def test_wrong_current_passwords_are_limited(server: Valkey, postgres: Postgres) -> None:
    """Who has a session and guesses the password is stopped by the limit of sign-ins."""
    limit = {"EPHEMERA_SLIDES_WRONG_PASSWORDS_PER_HOUR": "3"}
    async with opened("slides", server, postgres, limit) as app:
        user = await sign_in(app, EDITOR)
        form = {"current_password": "not this one", "new_password": "another horse battery"}
        codes = [(await user.ask("PUT", "/auth/password", json=form)).status_code for _ in range(4)]
        assert codes == [403, 403, 403, 429]
        assert (await app.ask("POST", "/auth/login", json=credentials(EDITOR))).status_code == 429


async def test_a_password_that_is_changed_starts_no_session(server: Valkey, postgres: Postgres) -> None:
    """A sign-in whose password was right, and has been changed since it was checked, is refused."""
    async with opened("slides", server, postgres) as app:
        user, accounts = await sign_in(app, EDITOR), app.service.accounts
        form = {"current_password": DEMO_PASSWORD, "new_password": "another horse battery"}
        verified, go = asyncio.Event(), asyncio.Event()
        start = accounts._start_session

        async def late(*arguments: Any) -> Any:
            if not verified.is_set():
                verified.set()
                await go.wait()
            return await start(*arguments)

        accounts._start_session = late
        signing_in = asyncio.create_task(app.ask("POST", "/auth/login", json=credentials(EDITOR)))
        await verified.wait()
        await user.want(200, "PUT", "/auth/password", json=form)
        go.set()
        assert (await signing_in).status_code == 401


def test_open_sockets_of_a_blocked_user_end(root: Person) -> None:
    """An open socket of a user who is blocked gets nothing more, by session or by key."""
    one = _newcomer(root)
    key = one.want(201, "POST", "/api-keys", json={"name": "mine"})["key"]
    url = one.served.url.replace("http:", "ws:") + "/notifications"
    with (
        _socket(one, "/notifications") as by_session,
        connect(url, additional_headers={"x-api-key": key}) as by_key,
    ):
        root.want(200, "PUT", f"/admin/users/{one.account['user_id']}/blocked", json={"blocked": True})
        for socket in (by_session, by_key):
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=60)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.reason == "restarting"
    with pytest.raises(InvalidStatus):
        _socket(one, "/notifications")


def test_each_role_has_its_own_permissions(root: Person, slides: Served) -> None:
    """Viewers read, editors write, administrators administrate, and only their own organization."""
    vera, ivan = Person(slides, VIEWER), Person(slides, FREE)
    assert vera.ask("GET", "/usage").status_code == 200
    assert vera.upload(b"text").status_code == 403
    assert Person(slides, EDITOR).ask("POST", "/admin/users", json={}).status_code in (403, 422)
    user_id = root.account["user_id"]
    assert ivan.ask("PUT", f"/admin/users/{user_id}/role", json={"role": "viewer"}).status_code == 404
    begun = Person(slides, EDITOR).begin("Ours alone", 1)
    for where in (f"/presentations/{begun['presentation_id']}", f"/jobs/{begun['job_id']}"):
        assert ivan.ask("GET", where).status_code == 404
    assert ivan.ask("GET", f"/jobs/{begun['job_id']}/events").status_code == 404


def test_a_new_plan_holds_from_the_next_request(slides: Served, slides_again: Served) -> None:
    """The next request sees the new limit, on another process too; what was used stays used."""
    ivan = Person(slides, FREE)
    assert ivan.ask("GET", "/auth/me", slides_again).json()["requests_per_minute"] == 10
    set_plan(ivan, "enterprise", requests_per_minute=250)
    answer = ivan.ask("GET", "/auth/me", slides_again)
    assert answer.json()["requests_per_minute"] == 250
    assert '"user";q=250' in answer.headers["ratelimit-policy"]
    set_plan(ivan, "pro")
    answer = ivan.ask("GET", "/auth/me", slides_again)
    assert answer.json()["requests_per_minute"] == 60
    assert '"user";q=60' in answer.headers["ratelimit-policy"]
    set_plan(ivan, "free")
    answers = [ivan.ask("GET", "/auth/me", slides_again) for _ in range(21)]  # two minutes' worth, and one
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert int(refused[0].headers["retry-after"]) >= 1
    assert ivan.ask("POST", "/api-keys", json={"name": "none"}).status_code in (402, 429)


def test_a_key_is_kept_as_a_digest_and_has_its_owners_role(
    anna: Person,
    slides: Served,
    slides_places: dict[str, str],
) -> None:
    """A key works where a session does, is shown once, and is nowhere in SQL."""
    made = anna.want(201, "POST", "/api-keys", json={"name": "build server"})
    headers = {"x-api-key": made["key"]}
    assert slides.client.get("/usage", headers=headers).status_code == 200
    wish = {"topic": "By a key", "slides": 1}
    assert slides.client.post("/presentations", headers=headers, json=wish).status_code == 202
    for wrong in ("sk_wrong", "x", made["key"] + "x", ""):
        assert slides.client.get("/usage", headers={"x-api-key": wrong}).status_code == 401
    with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"]) as sql:
        rows = str(sql.execute("SELECT * FROM slides.api_keys").fetchall())
    assert made["key"] not in rows
    assert made["key"].removeprefix("sk_") not in rows


@pytest.mark.parametrize(("wanted", "allowed", "measure"), [(1, 5, "presentations"), (50, 4, "tokens")])
async def test_a_months_quota_is_not_exceeded(
    server: Valkey, postgres: Postgres, wanted: int, allowed: int, measure: str
) -> None:
    """What is reserved counts, so many at once do not exceed it; the refusal says which quota it is."""
    async with opened("slides", server, postgres) as app:
        ivan = await sign_in(app, FREE)
        form = {"topic": "Quota", "slides": wanted}
        answers = await asyncio.gather(
            *(ivan.ask("POST", "/presentations", json=form) for _ in range(allowed + 2))
        )
        refused = [answer for answer in answers if answer.status_code == 402]
        assert sorted(answer.status_code for answer in answers) == [202] * allowed + [402] * 2
        assert all(
            f"The {measure} of your plan free are used up" in each.json()["detail"] for each in refused
        )


def test_sec10_all_keys_of_a_user_share_one_limit(root: Person, slides_queue: Valkey) -> None:
    """Each key counts its own requests in Redis, and its owner's counter has those of all keys."""
    one = _newcomer(root)
    keys = [one.want(201, "POST", "/api-keys", json={"name": name}) for name in "ab"]
    slides = one.served
    for made, requests in zip(keys, (2, 3), strict=True):
        for _ in range(requests):
            assert slides.client.get("/auth/me", headers={"x-api-key": made["key"]}).status_code == 200
    counted = [_counted(slides_queue, f"ratelimit:{made['api_key_id']}:*") for made in keys]
    assert counted == [2, 3]
    assert _counted(slides_queue, f"ratelimit:user:{one.account['user_id']}:*") == 7, "and both POSTs"


def _counted(queue: Valkey, pattern: str) -> int:
    """The sum of a subject's counters: a test may run across the boundary of a minute."""
    keys = cast("list[str]", queue.ask("KEYS", pattern))
    return sum(int(cast("str", queue.ask("GET", key))) for key in keys)


def test_a_session_is_as_designed(anna: Person, slides_queue: Valkey) -> None:
    """Redis has the fields of the design and a day of life, and nothing that opens the session."""
    with sync.connect(slides_queue.url, catalogue) as store:
        [listed, *_] = store[SESSIONS].of_user(anna.account["user_id"])
        assert listed.session.email == EDITOR
        assert listed.session.role == "editor"
        assert listed.session.ip == "127.0.0.1"
        token = anna.cookie.partition("=")[2]
        keys = cast("list[str]", slides_queue.ask("KEYS", "*session*"))
        assert keys
        assert not any(token in key for key in keys)
        assert all(0 < store.call("TTL", key) <= 86_400 for key in keys)


@pytest.mark.usefixtures("slides_worker")
def test_a_notification_reaches_the_user_on_another_process(
    anna: Person,
    slides: Served,
    slides_again: Served,
) -> None:
    """A user connected to both processes is notified on both; another user is not."""
    vera = Person(slides, VIEWER)
    with (
        _socket(anna, "/notifications") as here,
        _socket(anna, "/notifications", slides_again) as there,
        _socket(vera, "/notifications", slides_again) as others,
    ):
        begun = anna.begin("Tell me", 1)
        for socket in (here, there):
            notification = _notification_about(socket, begun["presentation_id"])
            assert notification == {
                "about": "presentation",
                "id": begun["presentation_id"],
                "job_id": begun["job_id"],
                "state": "ready",
                "detail": "1 slide was written.",
            }
        with pytest.raises(TimeoutError):
            others.recv(timeout=0.2)


@pytest.mark.usefixtures("slides_worker")
def test_progress_over_a_websocket_resumes_where_it_was(anna: Person, slides_again: Served) -> None:
    """Events come with their ids on any process; with the last one, the rest comes, and then the end."""
    begun = anna.begin("Over a socket", 3)
    path = f"/jobs/{begun['job_id']}/ws"
    messages = _until_closed(_socket(anna, path, slides_again))
    slide_messages = [each for each in messages if "slide_number" in each.get("event", {})]
    events = [(each["event"]["event_type"], each["event"]["slide_number"]) for each in slide_messages]
    assert events == every_slide(3)
    rest = _until_closed(_socket(anna, f"{path}?last_event_id={slide_messages[2]['id']}"))
    assert rest[:3] == slide_messages[3:]


@pytest.mark.parametrize("path", ["/notifications", "/jobs/5f0c8e3e-6c1d-4d7e-9a52-2b8c1f4f7e10/ws"])
def test_sockets_are_refused_as_requests_are(slides: Served, anna: Person, path: str) -> None:
    """Without a session 401, from another site's page 403, and 404 for a job that is not there."""
    with pytest.raises(InvalidStatus) as stranger:
        connect(slides.url.replace("http:", "ws:") + path)
    assert stranger.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as foreign:
        _socket(anna, path, origin="http://evil.example")
    assert foreign.value.response.status_code == 403
    if path.startswith("/jobs"):
        with pytest.raises(InvalidStatus) as unknown:
            _socket(anna, path)
        assert unknown.value.response.status_code == 404


def _notification_about(socket: Any, wanted: str) -> Any:
    """The notification about something, whatever comes before."""
    while True:
        notification = json.loads(socket.recv(timeout=30))["message"]
        if notification["id"] == wanted:
            return notification


def _until_closed(socket: Any) -> list[Any]:
    messages = []
    with socket:
        for text in socket:  # ends with a close code of 1000 or 1001, and raises for others
            messages.append(json.loads(text))
    return messages
