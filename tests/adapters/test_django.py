"""Django: sign-in and revocation over requests, limits with headers, outages, and `manage.py ephemera`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import AsyncClient, Client, override_settings
from django.utils.decorators import method_decorator
from django.views import View

from ephemera.adapters.django import end_sessions, limit, store
from ephemera.adapters.django._configuration import client_address, setting
from ephemera.errors import InvalidDeclaration
from tests.adapters import django_site
from tests.patterns.session_fixtures import new_user

pytestmark = pytest.mark.usefixtures("django_store")

NOWHERE = override_settings(EPHEMERA={"URL": "redis://127.0.0.1:1"})
PROXIED = override_settings(EPHEMERA={"URL": "redis://127.0.0.1:1", "TRUSTED_PROXIES": ["127.0.0.1"]})


@pytest.fixture
def user() -> Any:
    """A user of the database."""
    return User.objects.create_user(new_user(), password="secret")


@pytest.fixture
def during_sign_in() -> Iterator[list[Any]]:
    """What happens between the check of a password and the end of the sign-in."""
    yield django_site.during_sign_in
    django_site.during_sign_in.clear()


def signed_in(user: User) -> Client:
    """A browser that has signed in."""
    browser = Client()
    assert browser.post("/login", {"name": user.username}).status_code == 200
    return browser


def key_of(browser: Client) -> str:
    """The session key in a browser's cookie."""
    return str(browser.cookies["sessionid"].value)


def test_a_sign_in_changes_the_key_and_keeps_the_data(user: User) -> None:
    """The cart of the visitor is that of the user, and the key from before is worth nothing."""
    browser = Client()
    first = browser.post("/cart/tea")
    assert "private" in first["Cache-Control"]
    before = key_of(browser)
    browser.post("/login", {"name": user.username})
    assert key_of(browser) != before
    assert browser.get("/me").json() == {"user": user.username, "cart": ["tea"]}
    stolen = Client()
    stolen.cookies["sessionid"] = before
    assert stolen.get("/me").json() == {"user": "", "cart": []}


def test_all_sessions_of_a_user_end_at_once(user: User) -> None:
    """`end_sessions` ends those of one user in all browsers, and may keep the one that asks."""
    other = User.objects.create_user(new_user(), password="secret")
    browsers = [signed_in(user), signed_in(user), signed_in(other)]
    assert browsers[0].post("/elsewhere").json() == {"ended": 1}
    names = [browser.get("/me").json()["user"] for browser in browsers]
    assert names == [user.username, "", other.username]
    assert end_sessions(user.pk) == 1
    assert browsers[0].get("/me").json()["user"] == ""


def test_signing_out_ends_the_session(user: User) -> None:
    """The key is worth nothing after it, and the cookie is deleted."""
    browser = signed_in(user)
    key = key_of(browser)
    assert browser.post("/logout").cookies["sessionid"]["max-age"] == 0
    browser.cookies["sessionid"] = key
    assert browser.get("/me").json()["user"] == ""


def test_a_late_request_revives_nothing(user: User) -> None:
    """A request that changes its session while all sessions of the user end is a 400, as Django has it."""
    browser = signed_in(user)
    assert browser.get("/late").status_code == 400
    assert browser.get("/me").json()["user"] == ""


def test_a_revocation_wins_over_an_announced_sign_in(user: User, during_sign_in: list[Any]) -> None:
    """A sign-in that began before a revocation and ends after it is a 401, without a session."""
    during_sign_in.append(lambda user: end_sessions(user.pk))
    browser = Client()
    assert browser.post("/login?announced=1", {"name": user.username}).status_code == 401
    assert browser.get("/me").json()["user"] == ""


async def test_an_async_view_has_its_session(user: User) -> None:
    """On an event loop the session is read and written in a thread, and the user is known."""
    browser = await sync_to_async(signed_in)(user)
    client = AsyncClient()
    client.cookies["sessionid"] = key_of(browser)
    response = await client.get("/async-me")
    assert json.loads(response.content) == {"user": user.username}


def test_an_outage_signs_no_one_out(user: User) -> None:
    """What needs the session is a 503, in a view or in a middleware; other views answer; nothing is lost."""
    browser = signed_in(user)
    browser.raise_request_exception = False
    key = key_of(browser)
    with NOWHERE:
        for refused in (
            browser.get("/me"),
            browser.get("/open", headers={"x-who": "1"}),
            browser.post("/cart/tea"),
            Client().post("/cart/tea"),
        ):
            assert (refused.status_code, refused["Content-Type"]) == (503, "application/problem+json")
            assert refused["Retry-After"] == "1"
            assert "sessionid" not in refused.cookies
        assert browser.get("/open").content == b"open"
    assert key_of(browser) == key
    assert browser.get("/me").json()["user"] == user.username


def test_a_view_may_raise_a_problem() -> None:
    """It becomes the response."""
    refused = Client().get("/refused")
    assert (refused.status_code, refused.json()["detail"]) == (409, "Twice.")


@pytest.mark.standalone("it looks at all keys of one server")
def test_limits_count_whom_they_say(user: User, django_store: Any) -> None:
    """By address, user, header and function, of functions, async functions and classes."""
    browser = Client()
    admitted = browser.get("/by-address")
    assert admitted["RateLimit-Policy"] == '"by_address";q=2;w=3600, "site";q=1000;w=60'
    assert admitted["RateLimit"].startswith('"by_address";r=1;t=')
    browser.get("/by-address")
    denied = browser.get("/by-address")
    assert (denied.status_code, denied["Content-Type"]) == (429, "application/problem+json")
    assert int(denied["Retry-After"]) > 0
    assert denied.json()["violated-policies"] == ["by_address"]

    assert [browser.get("/by-user").status_code for _ in range(2)] == [200, 429]
    member = signed_in(user)
    assert [member.get("/by-user").status_code for _ in range(2)] == [200, 429]
    keys: list[dict[str, str]] = [{"X-Api-Key": "one"}, {"X-Api-Key": "two"}, {"X-Api-Key": "one"}, {}, {}]
    codes = [browser.get("/by-header", headers=each).status_code for each in keys]
    assert codes == [200, 200, 429, 200, 429]
    assert not [key for key in django_store.call("KEYS", "limit:*") if b"one" in key]
    paths = ("?plan=a", "?plan=a", "", "?plan=b&missing=1")
    assert [browser.get(f"/by-function{path}").status_code for path in paths] == [200, 429, 200, 404]


def test_the_limits_of_the_site() -> None:
    """`LimitMiddleware` checks every request, even of a path that no view has."""
    given = {"URL": setting("URL"), "LIMITS": {"tight": ("2/hour", "address")}}
    with override_settings(EPHEMERA=given):
        browser = Client()
        codes = [browser.get("/nowhere").status_code for _ in range(3)]
    assert codes == [404, 404, 429]


def test_proxies_are_trusted_if_they_are_given() -> None:
    """The client's address is what a trusted proxy reports."""
    scope = {"client": ("127.0.0.1", 0), "headers": [(b"x-forwarded-for", b"203.0.113.7")]}
    assert client_address().address(scope) == "127.0.0.1"
    with PROXIED:
        assert client_address().address(scope) == "203.0.113.7"


def test_limits_while_redis_is_down() -> None:
    """An open limit admits, and a closed one is 503."""
    with NOWHERE:
        assert Client().get("/by-address").status_code == 200
        assert Client().get("/closed").status_code == 503


def test_wrong_settings_are_named() -> None:
    """A missing URL and an unknown setting say what there is; a mistake in a limit is found at import."""
    with override_settings(EPHEMERA={}), pytest.raises(ImproperlyConfigured, match="URL"):
        store()
    wrong = override_settings(EPHEMERA={"URL": "redis://127.0.0.1:1", "LIMIT": {}})
    with wrong, pytest.raises(ImproperlyConfigured, match="no setting LIMIT; it has URL"):
        store()
    with pytest.raises(InvalidDeclaration, match="60/minute"):
        limit("often")
    with pytest.raises(InvalidDeclaration, match="header:NAME"):
        limit("1/minute", by="who")
    with pytest.raises(InvalidDeclaration, match="name="):
        method_decorator(limit("1/minute"), name="dispatch")(View)


def test_manage_py_lists_and_ends_the_sessions_of_a_user(user: User) -> None:
    """`sessions` and `sign-out` take a primary key."""
    browser = signed_in(user)
    listed = io.StringIO()
    call_command("ephemera", "sessions", str(user.pk), stdout=listed)
    assert listed.getvalue().count(" until ") == 1
    ended = io.StringIO()
    call_command("ephemera", "sign-out", str(user.pk), stdout=ended)
    assert ended.getvalue() == "1 sessions ended\n"
    assert browser.get("/me").json()["user"] == ""
    with pytest.raises(CommandError, match="primary key"):
        call_command("ephemera", "sign-out")


def test_manage_py_runs_the_command_line(user: User, capfd: pytest.CaptureFixture[str]) -> None:
    """Other commands are those of `ephemera`, with the server and the catalogue of the settings."""
    signed_in(user).get("/by-address")
    with pytest.raises(SystemExit) as done:
        call_command("ephemera", "catalogue", "--format", "markdown")
    assert done.value.code == 0
    printed = capfd.readouterr().out
    assert "`limit:by_address:{subject}`" in printed
    assert "`session:{session_id}`" in printed
    with pytest.raises(SystemExit) as done:
        call_command("ephemera", "audit", "--fail-on", "unknown,no-ttl", "--json")
    assert done.value.code == 0
