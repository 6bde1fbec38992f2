"""Notifications of scripture: choices, links that end mails, and messages to browsers."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import http_ece
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.events import Delivery
from ephemera_services.runtime import InvalidSettings, Secret
from ephemera_services.scripture import Settings
from ephemera_services.scripture.events import Notification
from ephemera_services.scripture.keys import INGESTS, NOTIFICATIONS, USERS
from tests.services.scripted_model import Endpoint, Reply
from tests.services.scripture_apps import Gateway, open_gateway, token
from tests.services.scripture_mail import MailServer
from tests.services.scripture_readers import rows

_SITE = "https://texts.example.com"
_CONTACT = "mailto:operator@example.com"
_CHOICES = {"account": {"mail": True, "push": True}, "content": {"mail": False, "push": False}}
_FORM = {"content-type": "application/x-www-form-urlencoded"}


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _vapid_key() -> str:
    private = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
    return _encoded(private.to_bytes(32, "big"))


class Browser:
    """A browser that subscribed at a push service."""

    def __init__(self, endpoint: str) -> None:
        self._private, self._auth = ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
        point = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": _encoded(point), "auth": _encoded(self._auth)}
        self.subscription: dict[str, Any] = {"endpoint": endpoint, "expirationTime": None, "keys": keys}

    def decrypt(self, body: bytes) -> Any:
        """What its service worker gets."""
        plain = http_ece.decrypt(body, private_key=self._private, auth_secret=self._auth, version="aes128gcm")
        return msgspec.json.decode(plain)


class Person:
    """A user whom an administrator has added."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.id = str(uuid4())
        self.email = f"{self.id}@example.com"

    async def want(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The answer to a request of theirs, which must have a status."""
        headers = {"authorization": f"Bearer {token(user_id=self.id)}"}
        answer = await self._gateway.app.ask(method, path, headers=headers, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def change_plan(self, plan: str) -> None:
        """Have an administrator change their plan, which they are notified of."""
        await self._gateway.admin("PUT", f"/users/{self.id}/plan", json={"plan": plan})


async def _person(gateway: Gateway) -> Person:
    person = Person(gateway)
    form = {"user_id": person.id, "email": person.email, "name": "Ann"}
    answer = await gateway.ask("POST", "/users", role="admin", json=form)
    assert answer.status_code == 201, answer.text
    await _settled(gateway)
    return person


async def _until(holds: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(60):
        while not (found := await holds()):
            await asyncio.sleep(0.02)
    return found


async def _settled(gateway: Gateway) -> None:
    """Wait until no group has anything left to do; each stream is checked before those it publishes on."""

    async def settled() -> bool:
        for stream in (USERS, INGESTS, NOTIFICATIONS):
            info = await gateway.app.app.state.resources.store[stream].info()
            if len(info.groups) < 2 or any(group.lag != 0 or group.pending for group in info.groups):
                return False
        return True

    await _until(settled)


@pytest.fixture
def mails() -> Iterator[MailServer]:
    """A mail server."""
    with MailServer() as server:
        yield server


@pytest.fixture
def push_service() -> Iterator[Endpoint]:
    """A push service."""
    running = Endpoint()
    yield running
    running.close()


@pytest.fixture
async def gateway(
    server: Valkey, postgres: Postgres, tmp_path: Path, mails: MailServer
) -> AsyncIterator[Gateway]:
    """A service that sends mails and messages to browsers, to this machine too."""
    variables = {
        "MAIL_URL": mails.url,
        "MAIL_PLAINTEXT": "true",
        "PUBLIC_URL": _SITE,
        "UNSUBSCRIBE_KEY": "the key of unsubscribe links, in tests",
        "VAPID_KEY": _vapid_key(),
        "VAPID_CONTACT": _CONTACT,
        "PUSH_ANYWHERE": "true",
    }
    given = {f"EPHEMERA_SCRIPTURE_{name}": value for name, value in variables.items()}
    async with open_gateway(server, postgres, tmp_path, **given) as opened:
        yield opened


async def test_each_user_chooses_what_they_are_notified_of(gateway: Gateway) -> None:
    """Account mails are on and new content is off until a user chooses; another's choices are their own."""
    ann, bob = await _person(gateway), await _person(gateway)
    assert await ann.want(200, "GET", "/me/notifications") == _CHOICES
    wanted = {"account": {"mail": False, "push": True}, "content": {"mail": True, "push": False}}
    assert await ann.want(200, "PUT", "/me/notifications", json=wanted) == wanted
    assert await ann.want(200, "GET", "/me/notifications") == wanted
    assert await bob.want(200, "GET", "/me/notifications") == _CHOICES
    await ann.want(422, "PUT", "/me/notifications", json={"account": wanted["account"]})
    assert (await gateway.ask("GET", "/me/notifications")).status_code == 401
    await Person(gateway).want(409, "PUT", "/me/notifications", json=wanted)


async def test_the_link_in_a_mail_ends_mails_of_its_kind(gateway: Gateway, mails: MailServer) -> None:
    """Opening it changes nothing; one click of a mail reader, without a sign-in, does."""
    ann = await _person(gateway)
    (mail,) = (each for each in mails.taken if each["To"] == ann.email)
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    link = str(mail["List-Unsubscribe"]).strip("<>")
    path = link.removeprefix(_SITE)
    assert path.startswith("/unsubscribe?token=")
    assert f"No more such mails: {link}\n" in str(mail.get_payload()).replace("\r\n", "\n")
    page = await gateway.ask("GET", path)
    assert (page.status_code, "<form method=post>" in page.text) == (200, True)
    assert "form-action 'self'" in page.headers["content-security-policy"]
    assert await ann.want(200, "GET", "/me/notifications") == _CHOICES

    clicked = await gateway.app.ask("POST", path, content="List-Unsubscribe=One-Click", headers=_FORM)
    assert clicked.status_code == 200, clicked.text
    assert not (await ann.want(200, "GET", "/me/notifications"))["account"]["mail"]
    await ann.change_plan("paid")
    await _settled(gateway)
    assert mails.recipients().count(ann.email) == 1
    assert rows(gateway.variables, "SELECT 1 FROM scripture.mails WHERE subject = 'Your plan'") == []


async def test_links_of_others_are_refused(gateway: Gateway, mails: MailServer) -> None:
    """A signature is good for its user and its kind alone; what is no token is 422."""
    ann, bob = await _person(gateway), await _person(gateway)
    links = gateway.app.service.unsubscribe_links
    hers = links.link(ann.id, "account").removeprefix(_SITE)
    anns, bobs = (each.id.replace("-", "") for each in (ann, bob))
    for forged in (hers.replace(anns, bobs), hers.replace("account", "content"), hers[:-1] + "!"):
        status = 422 if forged.endswith("!") else 404
        for method in ("GET", "POST"):
            answer = await gateway.ask(method, forged)
            assert (answer.status_code, answer.headers["content-type"]) == (
                status,
                "application/problem+json",
            )
    assert await bob.want(200, "GET", "/me/notifications") == _CHOICES
    deleted = "DELETE FROM scripture.users WHERE id = %s"
    rows(gateway.variables, deleted, ann.id)
    assert (await gateway.ask("POST", hers)).status_code == 200, "there is nothing to end"


async def test_new_content_is_announced_once_a_day_to_those_who_want_it(
    gateway: Gateway, mails: MailServer
) -> None:
    """Two ingests into a translation on a day are one notification, and none for who did not ask."""
    ann, bob = await _person(gateway), await _person(gateway)
    await ann.want(200, "PUT", "/me/notifications", json={**_CHOICES, "content": _CHOICES["account"]})
    await gateway.ingest(("jude.1.1", "Jude, the servant."))
    await gateway.ingest(("jude.1.2", "Mercy unto you."))
    await _settled(gateway)
    subjects = [(str(each["To"]), str(each["Subject"])) for each in mails.taken]
    news = [each for each in subjects if each[1] == "New content"]
    days = {key.rpartition(":")[0] for (key,) in rows(gateway.variables, _ANNOUNCED)}
    assert len(news) == len(days), "one a day: midnight may be between the two"
    assert set(news) == {(ann.email, "New content")}
    assert (bob.email, "Welcome") in subjects


_ANNOUNCED = "SELECT key FROM scripture.mails WHERE key LIKE 'content:%%'"


async def test_a_browser_gets_a_message_that_it_alone_can_read(
    gateway: Gateway, push_service: Endpoint
) -> None:
    """Encrypted for the browser, signed for its push service; sent again after a 503, and never twice."""
    ann = await _person(gateway)
    browser = Browser(f"{push_service.url}/send/1")
    push_service.replies += [Reply(503, None), Reply(201, None)]
    await ann.want(201, "POST", "/me/push-subscriptions", json=browser.subscription)
    await ann.change_plan("paid")
    await _settled(gateway)
    refused, sent = push_service.seen
    for path, headers, body in (refused, sent):
        message = browser.decrypt(body)
        assert (message["title"], message["kind"]) == ("Your plan", "account")
        assert "your plan is 'paid' now" in message["body"]
        assert (path, headers["content-encoding"], headers["topic"]) == (
            "/send/1",
            "aes128gcm",
            message["tag"],
        )
        key = (await gateway.get("/push/public-key"))["public_key"]
        assert headers["authorization"].endswith(f"k={key}")
        assert Vapid02.verify(headers["authorization"])
        claims = headers["authorization"].split(".")[1]
        claimed = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=="))
        assert (claimed["aud"], claimed["sub"]) == (push_service.url, _CONTACT)

    await ann.want(200, "PUT", "/me/notifications", json={**_CHOICES, "account": _CHOICES["content"]})
    await ann.change_plan("ai")
    await _settled(gateway)
    assert len(push_service.seen) == 2, "not wanted"


async def test_a_subscription_that_is_gone_is_deleted(gateway: Gateway, push_service: Endpoint) -> None:
    """After a 410 of the push service; after DELETE; and with its user."""
    ann = await _person(gateway)
    made = [
        await ann.want(
            201, "POST", "/me/push-subscriptions", json=Browser(f"{push_service.url}/{number}").subscription
        )
        for number in range(2)
    ]
    path = f"/me/push-subscriptions/{made[0]['subscription_id']}"
    await (await _person(gateway)).want(404, "DELETE", path)
    await ann.want(204, "DELETE", path)
    await ann.want(404, "DELETE", path)
    push_service.replies += [Reply(410, None)]
    await ann.change_plan("paid")
    await _settled(gateway)
    assert [path for path, _, _ in push_service.seen] == ["/1"]
    assert rows(gateway.variables, _SUBSCRIPTIONS) == []
    await ann.want(201, "POST", "/me/push-subscriptions", json=Browser(f"{push_service.url}/2").subscription)
    rows(gateway.variables, "DELETE FROM scripture.users WHERE id = %s", ann.id)
    assert rows(gateway.variables, _SUBSCRIPTIONS) == []


_SUBSCRIPTIONS = "SELECT user_id::text, endpoint FROM scripture.push_subscriptions"


async def test_subscriptions_are_bounded_and_belong_to_one_user(
    gateway: Gateway, push_service: Endpoint
) -> None:
    """The eleventh replaces the oldest; a browser's next user proves it by the browser's secret."""
    ann, bob = await _person(gateway), await _person(gateway)
    browsers = [Browser(f"{push_service.url}/{number}") for number in range(11)]
    for each in (*browsers, browsers[-1]):
        await ann.want(201, "POST", "/me/push-subscriptions", json=each.subscription)
    stored = {endpoint for _, endpoint in rows(gateway.variables, _SUBSCRIPTIONS)}
    assert stored == {each.subscription["endpoint"] for each in browsers[1:]}
    thief = Browser(browsers[1].subscription["endpoint"])
    await bob.want(409, "POST", "/me/push-subscriptions", json=thief.subscription)
    await bob.want(201, "POST", "/me/push-subscriptions", json=browsers[1].subscription)
    owners = {endpoint: user for user, endpoint in rows(gateway.variables, _SUBSCRIPTIONS)}
    assert owners[browsers[1].subscription["endpoint"]] == bob.id
    await Person(gateway).want(409, "POST", "/me/push-subscriptions", json=browsers[0].subscription)


async def test_push_services_of_the_own_network_are_not_called(
    server: Valkey, postgres: Postgres, tmp_path: Path, push_service: Endpoint
) -> None:
    """An endpoint that is not public is refused, and one that became so is not called."""
    keys = {"EPHEMERA_SCRIPTURE_VAPID_KEY": _vapid_key(), "EPHEMERA_SCRIPTURE_VAPID_CONTACT": _CONTACT}
    async with open_gateway(server, postgres, tmp_path, **keys) as gateway:
        ann = await _person(gateway)
        for hostile in (
            f"{push_service.url}/x",
            "http://push.example.com/x",
            "https://169.254.169.254/latest/meta-data/",
            "https://localhost/x",
            "https://127.0.0.1:1/x",
            "https://10.0.0.1/x",
            "https://2130706433/x",
            "https://[::1]/x",
            "https://user:word@example.com/x",
            "https://example.com:99999/x",
        ):
            await ann.want(422, "POST", "/me/push-subscriptions", json=Browser(hostile).subscription)
        off_curve = Browser("https://192.0.2.1/x").subscription
        off_curve["keys"] = {"p256dh": "B" + "A" * 86, "auth": "A" * 22}
        await ann.want(422, "POST", "/me/push-subscriptions", json=off_curve)
        assert rows(gateway.variables, _SUBSCRIPTIONS) == []

        moved = Browser(push_service.url.replace("127.0.0.1", "localhost")).subscription
        stored = "INSERT INTO scripture.push_subscriptions (id, user_id, endpoint, p256dh, auth)"
        values = (str(uuid4()), ann.id, moved["endpoint"], *moved["keys"].values())
        rows(gateway.variables, f"{stored} VALUES (%s, %s, %s, %s, %s)", *values)
        message = Notification(key="k", to=ann.email, subject="S", text="T", user_id=ann.id)
        last = Delivery("1-1", 5, "gl:events:notifications", "notifications-push", "1-1")
        await gateway.app.service.push.handle(message, last)
        assert push_service.seen == []


async def test_without_a_key_push_and_links_are_off(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """Routes say what is missing; choices are stored all the same, and mails have no link."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        ann = await _person(gateway)
        answer = await gateway.ask("GET", "/push/public-key")
        assert answer.status_code == 404
        assert "VAPID" in answer.json()["detail"]
        refused = await ann.want(
            404, "POST", "/me/push-subscriptions", json=Browser("https://192.0.2.1/x").subscription
        )
        assert refused["detail"] == answer.json()["detail"]
        assert await ann.want(200, "GET", "/me/notifications") == _CHOICES
        assert (
            await gateway.ask("GET", f"/unsubscribe?token={'0' * 32}.account.{'A' * 43}")
        ).status_code == 404


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        ({"vapid_key": Secret(_vapid_key())}, "VAPID_CONTACT"),
        ({"vapid_key": Secret(_vapid_key()), "vapid_contact": "someone"}, "VAPID_KEY"),
        ({"vapid_key": Secret("no-key"), "vapid_contact": _CONTACT}, "VAPID_KEY"),
        ({"unsubscribe_key": Secret("short"), "public_url": _SITE}, "UNSUBSCRIBE_KEY"),
        ({"unsubscribe_key": Secret("x" * 32)}, "PUBLIC_URL"),
        ({"public_url": "texts.example.com"}, "PUBLIC_URL"),
    ],
)
def test_settings_that_would_fail_later_are_refused_at_the_start(
    variables: dict[str, Any], wrong: str
) -> None:
    """Each problem names its variable and never shows a key."""
    with pytest.raises(InvalidSettings) as refused:
        Settings(**variables).check()
    (problem,) = refused.value.problems
    assert problem.startswith(f"EPHEMERA_SCRIPTURE_{wrong}: ")
    assert not any(each.reveal() in problem for each in variables.values() if isinstance(each, Secret))
