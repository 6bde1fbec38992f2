"""Rows of the identity service, over HTTP as its users see it.

A profile read is authenticated by a signed token, checked for revocation, counted against its limit and
answered from the cache; it is measured against the same FastAPI route that answers a constant. Refused
sign-ins are those above the limit of their address; they are measured against sign-ins whose password is
checked, on the same service with a limit that is never reached. All run under uvicorn (uvloop, httptools) in
processes of their own, without access logs, with the load of `benchmarks.web`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from benchmarks.uvicorn_process import UVICORN
from benchmarks.web import Requests, connected
from ephemera import embedded
from ephemera.embedded import free_ports

_CONNECTIONS = 50
_SIGNING_IN = 4  # connections that try passwords: as many as are checked at once
_UNLIMITED = "1000000000"
_USER = {"email": "taro@example.com", "password": "correct horse battery"}
_ENDS = {"profile": b'Z"}', "refused": b'["login"]}', "checked": b'password."}'}


@asynccontextmanager
async def _process(program: str, *words: str, env: dict[str, str]) -> AsyncIterator[None]:
    """A program of this environment, running in the meantime."""
    path = str(Path(sys.executable).with_name(program))
    process = await asyncio.create_subprocess_exec(path, *words, env={**os.environ, **env})
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _service(servers: Servers, **settings: str) -> AsyncIterator[int]:
    """The port of a service on a database of its own."""
    port = free_ports(1)[0]
    database = await asyncio.to_thread(embedded.postgres)
    own = {f"EPHEMERA_IDENTITY_{name.upper()}": value for name, value in settings.items()}
    env = {
        "EPHEMERA_URL": servers.valkey.url,
        "EPHEMERA_DATABASE_URL": database.url,
        "EPHEMERA_LOG_LEVEL": "warning",
        "EPHEMERA_IDENTITY_KEY_PASSWORD": "of the benchmark",
        **own,
    }
    try:
        async with _process("ephemera", "serve", "identity", "--port", str(port), env=env):
            (await connected(port, b"")).close()
            yield port
    finally:
        await asyncio.to_thread(database.stop)


def _request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + body


async def _signed_in(port: int, number: int) -> dict[str, Any]:
    user = {**_USER, "email": f"taro{number}@example.com"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        made = await client.post("/auth/register", json={**user, "first_name": "Taro", "last_name": "Yamada"})
        made.raise_for_status()
        tokens: dict[str, Any] = (await client.post("/auth/login", json=user)).raise_for_status().json()
        return tokens


@asynccontextmanager
async def _profiles(servers: Servers) -> AsyncIterator[Round]:
    async with _service(
        servers,
        logins_per_hour=_UNLIMITED,
        registrations_per_hour=_UNLIMITED,
        profile_reads_per_hour=_UNLIMITED,
        password_memory="8",
    ) as port:
        signed_in = [await _signed_in(port, number) for number in range(_CONNECTIONS)]
        requests = [
            _request(
                "GET", f"/api/profiles/{each['user_id']}", Authorization=f"Bearer {each['access_token']}"
            )
            for each in signed_in
        ]
        yield Requests([await connected(port, request, _ENDS["profile"]) for request in requests])


@asynccontextmanager
async def _constant(_: Servers) -> AsyncIterator[Round]:
    port = free_ports(1)[0]
    options = [word for name, value in UVICORN.items() for word in (f"--{name}", value)]
    words = ("uvicorn", "benchmarks.identity_app:constant", "--port", str(port), "--no-access-log", *options)
    async with _process(*words, env={}):
        path = "/api/profiles/7e6d37b1-e5ba-450d-8fec-30a61e2e2e1c"
        request = _request("GET", path, Authorization=f"Bearer {'x' * 700}")
        yield Requests([await connected(port, request, _ENDS["profile"]) for _ in range(_CONNECTIONS)])


def _sign_ins(limit: str, end: bytes, status: int) -> Opener:
    """Sign-ins with a wrong password."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with _service(servers, logins_per_hour=limit, wrong_passwords_per_hour=_UNLIMITED) as port:
            body = b'{"email":"taro@example.com","password":"not the password"}'
            request = _request("POST", "/auth/login", body, Content_Type="application/json")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                for _ in range(2):  # the first one is what the lower limit admits
                    await client.post("/auth/login", json={**_USER, "password": "not the password"})
            yield Requests([await connected(port, request, end, status) for _ in range(_SIGNING_IN)])

    return opened


ROWS = (
    Row(
        "identity: profile read, authenticated",
        _profiles,
        {"constant FastAPI route": _constant},
        (Times(0.6, "constant FastAPI route"),),
        unit="requests/s",
    ),
    Row(
        "identity: sign-ins above the limit",
        _sign_ins("1", _ENDS["refused"], 429),
        {"password checks": _sign_ins(_UNLIMITED, _ENDS["checked"], 401)},
        (Times(20, "password checks"),),
        unit="requests/s",
    ),
)
