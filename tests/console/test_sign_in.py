"""Sign-in: nothing of the console is visible without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.console.console_process import PASSWORD, USER, RunningConsole

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
POLLING = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"


def test_pages_redirect_to_the_form_and_back(
    console: RunningConsole, browse: Callable[..., Any], picture: Callable[..., None]
) -> None:
    """Opening a page requires a sign-in, reports a wrong password, and then shows that page."""
    page = browse(console, "/keyspaces", sign_in=False)
    picture(page, "sign-in")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").get_by_text("Wrong user or password.").wait_for()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Declared keyspaces").wait_for()
    assert page.url == f"{console.url}/keyspaces"
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Password").wait_for()


def test_nothing_is_visible_without_sign_in(console: RunningConsole) -> None:
    """Pages redirect to the form, everything else is refused, and no response reveals data."""
    with console.client() as client:
        page = client.get("/keyspaces", headers={"accept": "text/html"})
        assert page.status_code == 303
        assert page.headers["location"] == "/sign-in?next=%2Fkeyspaces"
        refused = [
            client.get("/"),
            client.get(POLLING),
            client.post(POLLING, headers={"origin": console.url}, content="40"),
            client.get("/_nicegui/3.18.0/static/nicegui.js"),
            client.get("/_nicegui/auto/static/x"),
            client.get("/openapi.json"),
            client.get("/sign-in/.."),
            client.get("/sign-inside"),
            client.put("/sign-in", headers={"origin": console.url}),
            client.post("/assets/console.css", headers={"origin": console.url}),
            client.get("/docs"),
        ]
        assert {answer.status_code for answer in refused} == {401}
        form = client.get("/sign-in")
        shown = "".join(answer.text for answer in (page, *refused, form))
    assert "shop" not in shown
    assert "session:" not in shown
    assert "script" not in form.text


def test_the_socket_is_refused_without_sign_in(console: RunningConsole) -> None:
    """No WebSocket is accepted without a sign-in, whatever its headers."""
    for cookie in ("", f"ephemera-console-{console.port}=made-up"):
        with pytest.raises(InvalidStatus) as refused:
            _socket(console, console.url, cookie)
        assert refused.value.response.status_code == 403


def test_the_socket_is_refused_to_other_sites(console: RunningConsole) -> None:
    """With a valid cookie, another origin gets no WebSocket, and the console's own does."""
    with console.signed_in() as client:
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        for origin in ("http://evil.example", f"http://evil.example:{console.port}", None):
            with pytest.raises(InvalidStatus):
                _socket(console, origin, cookie)
        with _socket(console, console.url, cookie) as socket:
            assert str(socket.recv()).startswith("0{")


def _socket(console: RunningConsole, origin: str | None, cookie: str) -> Any:
    """A WebSocket as a browser opens it."""
    asked: Any = connect
    address = console.url.replace("http", "ws", 1) + SOCKET
    return asked(address, origin=origin, additional_headers={"Cookie": cookie} if cookie else None)


def test_another_host_or_origin_is_refused(console: RunningConsole) -> None:
    """A foreign name that resolves here (DNS rebinding) and a foreign page's form are refused."""
    with console.signed_in() as client:
        rebound = client.get("/", headers={"host": f"evil.example:{console.port}", "accept": "text/html"})
        assert rebound.status_code == 421
        for origin in ({"origin": "http://evil.example"}, {"origin": "null"}, {}):
            form = {"user": USER, "password": PASSWORD}
            assert client.post("/sign-in", data=form, headers=origin).status_code == 403
            assert client.post("/sign-out", headers=origin).status_code == 403
        assert client.get("/", headers={"accept": "text/html"}).status_code == 200


def test_every_response_has_security_headers(console: RunningConsole) -> None:
    """Pages cannot be framed, sniffed, cached or given foreign scripts; a nonce is used once."""
    with console.signed_in() as client:
        page = client.get("/", headers={"accept": "text/html"})
        again = client.get("/", headers={"accept": "text/html"})
        style = client.get("/assets/console.css")
    for answer in (page, style):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
    assert page.headers["cache-control"] == "no-store"
    scripts = page.headers["content-security-policy"].partition("script-src ")[2].partition(";")[0]
    assert "'unsafe-inline'" not in scripts
    assert "http" not in scripts
    nonce = re.search(r"'nonce-([^']+)'", scripts)
    assert nonce is not None
    assert nonce[1] not in again.headers["content-security-policy"]
    assert len(re.findall("<script", page.text)) == len(re.findall(f'<script nonce="{nonce[1]}"', page.text))


def test_the_cookie_is_protected(console: RunningConsole) -> None:
    """No script reads it, no other site sends it, and signing out invalidates it."""
    with console.client() as client:
        form = {"user": USER, "password": PASSWORD, "next": "//evil.example/"}
        answer = client.post("/sign-in", data=form, headers={"origin": console.url})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert answer.headers["location"] == "/"
        token = cookie.partition(";")[0]
        assert client.get("/", headers={"accept": "text/html"}).status_code == 200
        client.post("/sign-out", headers={"origin": console.url})
        stolen = client.get("/", headers={"accept": "text/html", "cookie": token})
        assert stolen.status_code == 303


def test_signing_out_ends_other_windows(console: RunningConsole, browse: Callable[..., Any]) -> None:
    """A second window of the same sign-in opens the form when the first one signs out."""
    first = browse(console)
    second = first.context.new_page()
    second.goto(f"{console.url}/keyspaces")
    second.get_by_role("heading", name="Declared keyspaces").wait_for()
    first.get_by_role("button", name="Sign out").click()
    second.get_by_label("Password").wait_for()


def test_a_window_without_a_socket_notices_the_sign_out(
    console: RunningConsole, browse: Callable[..., Any]
) -> None:
    """A window whose WebSocket never connected asks by itself, and opens the form."""
    first = browse(console)
    second = first.context.new_page()
    second.route("**/_nicegui_ws/**", lambda route: route.abort())
    second.route_web_socket("**/_nicegui_ws/**", lambda socket: socket.close())
    second.goto(f"{console.url}/keyspaces")
    second.get_by_role("heading", name="Declared keyspaces").wait_for()
    with second.expect_response(lambda answer: answer.url == f"{console.url}/signed-in") as asked:
        pass
    assert asked.value.status == 204, "it asks, and stays while it is signed in"
    assert second.url == f"{console.url}/keyspaces"
    first.get_by_role("button", name="Sign out").click()
    second.get_by_label("Password").wait_for()
