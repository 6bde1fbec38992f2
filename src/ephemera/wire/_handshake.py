"""Opening a connection: the socket, TLS and the handshake. Every failure says what to do about it.

The handshake leaves in one write: HELLO 3 with user, password and client name, SELECT, the link's own
commands (such as CLIENT TRACKING), and a PING, which a server that is still loading its data refuses.

A name may have several addresses, some of them dead. They are tried in the order of the resolver, each next
one when the one before has failed or has not answered for a moment; the first that connects is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ephemera._outage_log import OutageLog
from ephemera.errors import CannotConnect, ConnectionFailed, ServerError, WrongServer
from ephemera.wire._commands import Arg, as_text
from ephemera.wire._connection import Connection, ConnectionOwner
from ephemera.wire._credentials import CredentialSource
from ephemera.wire._url import Address, Credentials, Target, TlsFiles

log = logging.getLogger("ephemera.wire")

_OLDEST_REDIS = 7
_NEXT_ADDRESS = 0.25  # seconds until the next address is tried, less when there are many
# Seconds until the kernel probes an idle connection and between probes, and how many may fail.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one server: where it is at present, and what it must be."""

    target: Target
    credentials: Credentials
    locate: Callable[[], Awaitable[Address]]
    name: str
    mode: str = "standalone"
    """What the server must be: standalone, cluster or sentinel, or any of them."""
    must_be_master: bool = False
    replica: bool = False
    """Whether it is read from as a replica (READONLY)."""
    source: CredentialSource | None = None
    """Where its credentials come from, if not from the URL."""
    outages: OutageLog = field(default_factory=lambda: OutageLog(log), compare=False, repr=False)
    """What is logged of its lost connections; one works again when it has lasted for a second."""

    def __str__(self) -> str:
        return self.name

    async def login(self) -> Credentials:
        """The credentials for a new connection."""
        if self.source is None:
            return self.credentials
        try:
            return await self.source.for_new_connection()
        except Exception as error:
            advice = "It must return ephemera.Credentials; see the cause of this error"
            problem = f"its credential provider failed with {type(error).__name__}"
            raise CannotConnect(self.name, problem, advice) from error

    @classmethod
    def at(
        cls, address: Address, target: Target, *, mode: str = "standalone", replica: bool = False
    ) -> Endpoint:
        """The server at a fixed address."""

        async def locate() -> Address:
            return address

        credentials = target.sentinel_credentials if mode == "sentinel" else target.credentials
        source = None if mode == "sentinel" else target.source
        return cls(target, credentials, locate, str(address), mode=mode, replica=replica, source=source)


async def open_connection(
    endpoint: Endpoint, owner: ConnectionOwner, setup: Sequence[tuple[Arg, ...]] = ()
) -> Connection:
    """A connection whose handshake succeeded, or `CannotConnect`."""
    limit = endpoint.target.connect_timeout
    connection: Connection | None = None
    credentials = await endpoint.login()
    try:
        async with asyncio.timeout(limit):
            address = await endpoint.locate()
            connection = await _open_socket(endpoint, address, owner)
            connection.credentials = credentials
            await _shake_hands(connection, endpoint, setup)
    except BaseException as error:
        if connection is not None:
            connection.abort("its handshake failed")
            with contextlib.suppress(asyncio.CancelledError):
                await connection.lost
        if isinstance(error, CannotConnect) or not isinstance(error, Exception):
            raise
        raise _explained(endpoint, error, limit) from None
    return connection


async def _open_socket(endpoint: Endpoint, address: Address, owner: ConnectionOwner) -> Connection:
    target = endpoint.target
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        limits = (target.max_in_flight, target.max_in_flight_bytes)
        return Connection(owner, loop, target.timeout, limits)

    if address.path:
        _, made = await loop.create_unix_connection(connection, address.path)
        return made
    tls = _tls_context(endpoint, target.tls) if target.tls else None
    raw = await _connect_to_any(address, target.connect_timeout)
    name = (target.tls.server_name or address.host) if target.tls else None
    _, made = await loop.create_connection(connection, sock=raw, ssl=tls, server_hostname=name)
    return made


async def _connect_to_any(address: Address, limit: float) -> socket.socket:
    """A socket connected to the first address of a host that answers; the last error when none does."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    wait = min(_NEXT_ADDRESS, limit / (2 * len(found)))
    attempts: set[asyncio.Task[socket.socket]] = set()
    problem: BaseException = OSError(f"no address for {address.host}")
    try:
        for position, (family, kind, protocol, _, where) in enumerate(found):
            attempts.add(loop.create_task(_connect(family, kind, protocol, where)))
            is_last = position + 1 == len(found)
            while attempts:
                done, attempts = await asyncio.wait(
                    attempts, timeout=None if is_last else wait, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    if attempt.exception() is None:
                        return attempt.result()
                    problem = attempt.exception() or problem
                if not is_last:
                    break
        raise problem
    finally:
        for attempt in attempts:
            attempt.cancel()
        for late in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()


async def _connect(family: int, kind: int, protocol: int, where: Any) -> socket.socket:
    raw = socket.socket(family, kind, protocol)
    try:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        await asyncio.get_running_loop().sock_connect(raw, where)
    except BaseException:
        raw.close()
        raise
    return raw


def _tls_context(endpoint: Endpoint, files: TlsFiles) -> ssl.SSLContext:
    if files.context is not None:
        return files.context
    try:
        paths = (files.ca, files.cert, files.key)
        return _read_tls_files(files, tuple(Path(path).stat().st_mtime_ns for path in paths if path))
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror
        raise CannotConnect(
            endpoint.name,
            f"the TLS files of its URL cannot be used ({reason})",
            f"Check ca={files.ca}, cert={files.cert}, key={files.key}: PEM files, the key not encrypted",
        ) from None


@lru_cache(maxsize=16)
def _read_tls_files(files: TlsFiles, _versions: tuple[int, ...]) -> ssl.SSLContext:
    """A context, cached per version of its files: reading the system's authorities takes 70 ms."""
    context = ssl.create_default_context(cafile=files.ca)
    context.check_hostname = files.verify == "full"
    if files.cert:
        # With a password given, even an empty one, OpenSSL does not prompt for it on the terminal.
        context.load_cert_chain(files.cert, files.key, password="")
    return context


async def _shake_hands(connection: Connection, endpoint: Endpoint, setup: Sequence[tuple[Arg, ...]]) -> None:
    extra = list(setup)
    if endpoint.target.database and endpoint.mode in ("standalone", "any"):
        extra.insert(0, ("SELECT", endpoint.target.database))
    if endpoint.replica:
        extra.append(("READONLY",))
    if endpoint.mode != "any":  # its user may lack the permission
        extra.append(("PING",))
    replies = await asyncio.gather(
        *(connection.send_internal(*args) for args in (_hello(endpoint, connection.credentials), *extra)),
        return_exceptions=True,
    )
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    _inspect(replies[0], endpoint)


async def renew_login(connection: Connection, endpoint: Endpoint) -> None:
    """Authenticate a live connection with the provider's present credentials, if it has others."""
    if endpoint.source is None:
        return
    credentials = await endpoint.source.renewed()
    if credentials is connection.credentials or connection.lost.done():
        return
    connection.credentials = credentials
    try:
        await connection.send_internal("AUTH", credentials.user or "default", credentials.password or "")
    except ServerError as error:  # the connection stays authenticated as before
        log.warning("%s: renewed credentials were refused (%s)", endpoint, error.code)


def _hello(endpoint: Endpoint, credentials: Credentials) -> tuple[Arg, ...]:
    args: list[Arg] = ["HELLO", endpoint.target.protocol]
    if credentials.user is not None or credentials.password is not None:
        args += ["AUTH", credentials.user or "default", credentials.password or ""]
    return (*args, "SETNAME", endpoint.target.client_name)


def _inspect(hello: Any, endpoint: Endpoint) -> None:
    """Refuse a server of the wrong version, mode or role."""
    pairs = hello.items() if isinstance(hello, dict) else zip(hello[::2], hello[1::2], strict=True)
    facts = {as_text(name): value for name, value in pairs}
    mode, role = as_text(facts[_MODE]), as_text(facts.get(_ROLE, ""))  # a Sentinel has no role
    version = as_text(facts[_VERSION])
    if as_text(facts[_SERVER]) == "redis" and _major(version) < _OLDEST_REDIS:
        raise CannotConnect(endpoint.name, f"it is Redis {version}", "Ephemera needs Redis 7 or Valkey")
    if endpoint.mode not in (mode, "any"):
        raise CannotConnect(endpoint.name, f"it runs in {mode} mode", _MODE_ADVICE[mode])
    if endpoint.must_be_master and role != "master":
        raise CannotConnect(
            endpoint.name,
            f"it is a {role}",
            "Its Sentinels are in the middle of a fail-over; try again",
        )
    expected = endpoint.target.modules
    if expected is not None and mode != "sentinel":
        modules = _unexpected_modules(facts, expected)
        if modules:
            raise WrongServer(endpoint.name, None, modules=modules)


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _unexpected_modules(facts: dict[str, Any], expected: frozenset[str]) -> tuple[str, ...]:
    """The modules that a server's HELLO names, without its own and those that are expected."""
    is_redis = as_text(facts[_SERVER]) == "redis"
    bundled = is_redis and _major(as_text(facts[_VERSION])) >= 8
    known = expected | _OWN_MODULES | (_MODULES_OF_REDIS_8 if bundled else frozenset())
    names = {as_text(dict(module)[b"name"]) for module in facts.get(_MODULES, ())}
    return tuple(sorted((name for name in names if name.lower() not in known), key=str.lower))


_SERVER, _VERSION, _MODE, _ROLE, _MODULES = "server", "version", "mode", "role", "modules"
_OWN_MODULES = frozenset(("lua",))  # Valkey 9.1 lists its own script engine
# Part of the server since version 8.
_MODULES_OF_REDIS_8 = frozenset(("bf", "rejson", "search", "timeseries", "vectorset"))
_MODE_ADVICE = {
    "standalone": "Use a redis:// URL for it",
    "cluster": "Use a redis+cluster:// URL with some of its nodes",
    "sentinel": "Use redis+sentinel://host:port/NAME with the name of the master it watches",
}
_CODE_ADVICE = {
    "WRONGPASS": (
        "the user name or password is wrong",
        "Check both in the URL, and ACL LIST on the server",
    ),
    "NOAUTH": ("it requires a password", "Put it in the URL: redis://:PASSWORD@host"),
    "NOPERM": ("the user lacks a permission", "Allow it HELLO, PING, CLIENT and SELECT by ACL"),
    "LOADING": ("it is loading its data", "Try again in a moment"),
    "NOPROTO": ("it has no RESP3", "Ephemera needs Redis 7 or Valkey"),
}


def _explained(endpoint: Endpoint, error: Exception, limit: float) -> CannotConnect:
    problem, advice = _explanation(endpoint, error, limit)
    return CannotConnect(endpoint.name, problem, advice)


def _explanation(endpoint: Endpoint, error: Exception, limit: float) -> tuple[str, str]:
    if isinstance(error, ServerError):
        return _refusal(endpoint, error)
    if isinstance(error, ConnectionFailed):
        if "loading" in error.problem:
            return _CODE_ADVICE["LOADING"]
        return error.problem, _which_server_advice(endpoint)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message})",
            "Give the authority that signed it: rediss://host?ca=/path/to/ca.pem, and its own host name",
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"TLS failed ({error.reason})",
            "Does it speak TLS on this port? Otherwise use redis://",
        )
    if isinstance(error, TimeoutError):
        tls = " Does it speak TLS on this port? Otherwise use redis://" if endpoint.target.tls else ""
        return f"no answer within {limit:g} s", f"Is it up, and not blocked by a firewall?{tls}"
    if isinstance(error, FileNotFoundError):
        return f"{error.filename or endpoint.name} does not exist", "Check the path in the URL"
    if isinstance(error, OSError):
        return _os_problem(error), "Is it running, and are host and port right?"
    problem = f"it does not speak the Redis protocol ({type(error).__name__} in its handshake)"
    return problem, _which_server_advice(endpoint)


def _which_server_advice(endpoint: Endpoint) -> str:
    tls = endpoint.target.tls
    hint = "" if tls else " If it requires TLS, use rediss://"
    if tls and not tls.cert:
        hint = " If it requires a client certificate, give it: rediss://host?cert=/path.pem&key=/path.pem"
    return f"Is it a Redis or Valkey server, and this the right port?{hint}"


def _refusal(endpoint: Endpoint, error: ServerError) -> tuple[str, str]:
    if error.code in _CODE_ADVICE:
        return _CODE_ADVICE[error.code]
    if "DB index" in error.message or "invalid DB" in error.message:
        return (
            f"it has no database {endpoint.target.database}",
            "Use a lower number, or raise `databases`",
        )
    if "unknown command" in error.message:
        return "it does not know HELLO", "Ephemera needs Redis 7 or Valkey"
    return f"it refused the handshake ({error.message})", "See the server's log"


def _os_problem(error: OSError) -> str:
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()  # asyncio's own text is often the name of a system call
    return (error.strerror or str(error) or type(error).__name__).lower()
