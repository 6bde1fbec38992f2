"""The outermost middleware: hosts, origins, bodies, malformed input and security headers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from ephemera.web import LOOPBACK_HOSTS, HardeningMiddleware, security_headers

HOSTS = ("shop.example", "*.shops.example", "[::1]", "127.0.0.1:8085")
COOKIE = {"cookie": "session=x"}
SOCKET = "ws://shop.example/socket"
FORM = {"content-type": "application/x-www-form-urlencoded"}


async def _echo(request: Request) -> Response:
    return JSONResponse(len(await request.body()))


async def _page(_: Request) -> Response:
    return Response("page", headers={"content-security-policy": "default-src 'self'"})


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


APP = HardeningMiddleware(
    Starlette(
        routes=[
            Route("/page", _page),
            Route("/{rest:path}", _echo, methods=["GET", "POST", "DELETE"]),
            WebSocketRoute("/socket", _socket),
        ]
    ),
    hosts=HOSTS,
    origins=["https://admin.example"],
    body_limit=100,
    body_limits={"/large": 1000},
    headers=security_headers(hsts=timedelta(days=365)),
)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the shop."""
    transport = httpx.ASGITransport(APP)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as found:
        yield found


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("shop.example", 200),
        ("SHOP.example:8443", 200),
        ("a.shops.example", 200),
        ("a.b.shops.example:1", 200),
        ("[::1]", 200),
        ("[::1]:80", 200),
        ("127.0.0.1:8085", 200),
        ("127.0.0.1", 421),
        ("127.0.0.1:80", 421),
        ("shops.example", 421),
        ("evil-shops.example", 421),
        ("shop.example.evil.example", 421),
        ("evil.example", 421),
        ("", 421),
    ],
)
async def test_only_the_service_s_own_hosts_are_answered(
    client: httpx.AsyncClient, host: str, status: int
) -> None:
    """A name of the service is accepted, with any port unless one is given; every other name is not."""
    for _ in range(2):  # the second time, an accepted host is known
        assert (await client.get("/", headers={"host": host})).status_code == status


async def test_a_request_without_a_host_or_with_two_is_refused(client: httpx.AsyncClient) -> None:
    """Where the host is missing or ambiguous, no part of a system may choose one."""
    two = [("host", "shop.example"), ("host", "evil.example")]
    assert (await client.get("/", headers=two)).status_code == 421
    request = client.build_request("GET", "/")
    del request.headers["host"]
    assert (await client.send(request)).status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # not a browser
        ({"sec-fetch-site": "same-origin", "origin": "http://rewritten.by.a.proxy"}, 200),
        ({"origin": "http://shop.example"}, 200),
        ({"origin": "https://SHOP.example"}, 200),
        ({"origin": "https://admin.example", "sec-fetch-site": "cross-site"}, 200),
        ({"origin": "https://evil.example", "authorization": "Bearer x"}, 200),
        ({"origin": "http://shop.example:8001"}, 403),
        ({"origin": "https://a.shop.example", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "cross-site", "authorization": "Basic x"}, 403),
    ],
)
async def test_pages_of_other_origins_change_nothing(
    client: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    """A browser's request with a cookie is served from the service's own pages and from trusted origins."""
    for method in ("POST", "DELETE"):
        answer = await client.request(method, "/", headers={**COOKIE, **headers})
        assert answer.status_code == status, answer.text
    assert (await client.get("/", headers={**COOKIE, **headers})).status_code == 200


async def test_without_a_cookie_only_forms_of_other_origins_are_refused(client: httpx.AsyncClient) -> None:
    """A form could sign a user in to another account; anything else needed a CORS preflight."""
    evil = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert (await client.post("/", headers={**evil, **FORM})).status_code == 403
    assert (await client.post("/", headers=evil)).status_code == 403
    assert (await client.post("/", headers=evil, json={})).status_code == 200
    assert (await client.post("/", headers={**COOKIE, **evil}, json={})).status_code == 403


def test_sockets_of_other_origins_are_refused() -> None:
    """A WebSocket has no preflight, so it is refused to other origins' pages with or without a cookie."""
    client = TestClient(APP)
    with client.websocket_connect(SOCKET, headers={"origin": "http://shop.example"}):
        pass
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site", **COOKIE}):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(SOCKET, headers=headers):
            pass


async def test_a_length_of_thousands_of_digits_is_too_large() -> None:
    """Python refuses to convert such a number; the answer is 413, not an error."""
    sent: list[Any] = []
    headers = [(b"host", b"shop.example"), (b"content-length", b"9" * 5000)]
    scope: Any = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await APP(scope, receive, send)
    assert sent[0]["status"] == 413


async def test_bodies_are_limited_by_path(client: httpx.AsyncClient) -> None:
    """A body above its path's limit gets 413, whether its length is declared or not."""

    async def parts(size: int) -> AsyncIterator[bytes]:
        for _ in range(size):
            yield b"x"

    assert (await client.post("/small", content=b"x" * 100)).json() == 100
    assert (await client.post("/small", content=b"x" * 101)).status_code == 413
    assert (await client.post("/small", content=parts(100))).json() == 100
    refused = await client.post("/small", content=parts(101))
    assert (refused.status_code, refused.headers["content-type"]) == (413, "application/problem+json")
    assert (await client.post("/large", content=b"x" * 1000)).json() == 1000
    assert (await client.post("/large", content=parts(1001))).status_code == 413


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b'{"name": "\\ud83d\\ude00 \\\\u0000"}', 200),
        (b'{"name": "\\ud800"}', 400),
        (b'{"name": "\\u0000"}', 400),
        (b'{"name": "\\\\\\u0000"}', 400),
        (b'{"name": "\xff"}', 400),
        (b'{"name": 1e999}', 400),
        (b'{"name": NaN}', 400),
        (b"[" * 100, 400),
        (b"{", 400),
    ],
)
async def test_malformed_json_is_refused(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    """JSON that some part of an application could not handle gets 400, in one piece or in several."""

    async def parts() -> AsyncIterator[bytes]:
        for byte in body:
            yield bytes([byte])

    headers = {"content-type": "application/merge-patch+json"}
    for content in (body, parts()):
        answer = await client.post("/", content=content, headers=headers)
        assert answer.status_code == status, answer.text
    assert (await client.post("/", content=body)).status_code == 200, "it is not JSON"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/?q=%F0%9F%98%80+x%20y", 200),
        ("/caf%C3%A9", 200),
        ("/?q=%00", 400),
        ("/?q=%ff", 400),
        ("/?q=%ED%A0%80", 400),
        ("/a%00b", 400),
        ("/a%ffb", 400),
    ],
)
async def test_a_malformed_path_or_query_is_refused(
    client: httpx.AsyncClient, target: str, status: int
) -> None:
    """A NUL, and bytes that are not UTF-8, get 400."""
    path = httpx.URL(f"http://shop.example{target}")
    assert (await client.get(path)).status_code == status


async def test_every_response_has_security_headers(client: httpx.AsyncClient) -> None:
    """Refusals have them, too; a response that has its own policy keeps it."""
    answers: list[Any] = [
        await client.get("/"),
        await client.get("/", headers={"host": "evil.example"}),
        await client.post("/", content=b"x" * 101),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    page = await client.get("/page")
    assert page.headers.get_list("content-security-policy") == ["default-src 'self'"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert b"strict-transport-security" not in dict(security_headers())


@pytest.mark.parametrize("hosts", [(), "shop.example", ["https://shop.example"], ["a/b"], ["a.*"], ["x:y"]])
def test_hosts_are_checked(hosts: Any) -> None:
    """A mistake in the names is reported when the application is created."""
    with pytest.raises(ValueError, match="host"):
        HardeningMiddleware(APP, hosts=hosts)


def test_origins_are_checked() -> None:
    """An origin has a scheme and no path."""
    for origin in ("shop.example", "https://shop.example/", "https://"):
        with pytest.raises(ValueError, match="is not an origin"):
            HardeningMiddleware(APP, hosts=LOOPBACK_HOSTS, origins=[origin])
