"""One URL says everything about a server: where, how, as whom.

    redis://user:password@host:6379/0      rediss://...?ca=/path/ca.pem&cert=...&key=...
    unix:///run/redis.sock?db=1            redis+cluster://h1:6379,h2:6379?read_from=replicas
    redis+sentinel://h1:26379,h2:26379/mymaster/0

`rediss` in place of `redis` means TLS, also for clusters and Sentinel. Unknown options fail: a misspelt
`timeout` must not be a default silently. The password is never part of a repr or a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, unquote

from ephemera.errors import InvalidUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = Literal["standalone", "cluster", "sentinel"]

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
}
_SHAPE = re.compile(
    r"^(?P<scheme>[a-z+]+)://(?:(?P<who>[^/]*)@)?(?P<where>[^/?]*)(?P<path>[^?]*)(?:\?(?P<options>.*))?$"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where one server listens: a host and port, or the path of a unix socket."""

    host: str
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to a server; the password stays out of every repr."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate files of a TLS connection; without `ca` the system's authorities are trusted."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: everything needed to open connections."""

    kind: Kind
    addresses: tuple[Address, ...]
    credentials: Credentials = Credentials()
    sentinel_credentials: Credentials = Credentials()
    database: int = 0
    master: str = ""
    tls: TlsFiles | None = None
    client_name: str = "ephemera"
    timeout: float = 0.25
    connect_timeout: float = 1.0
    max_in_flight: int = 20_000
    max_in_flight_bytes: int = 64 * 1024 * 1024
    read_from: Literal["masters", "replicas"] = "masters"


def parse(url: str) -> Target:
    """The target that a URL names; `InvalidUrl` says which part is wrong."""
    if url.startswith("unix://"):
        return _parse_unix(url)
    match = _SHAPE.match(url)
    if match is None or match["scheme"] not in _SCHEMES:
        scheme = url.partition("://")[0] if "://" in url else ""
        raise InvalidUrl(
            f"the URL's scheme {scheme!r} is not known; use one of "
            f"{', '.join(f'{name}://' for name in _SCHEMES)} or unix://"
        )
    kind, encrypted = _SCHEMES[match["scheme"]]
    options = dict(parse_qsl(match["options"] or "", keep_blank_values=True))
    master, database = _path(kind, match["path"])
    tls = _tls(options) if encrypted else None
    return Target(
        kind=kind,
        addresses=_addresses(match["where"], 26379 if kind == "sentinel" else 6379),
        credentials=_credentials(match["who"]),
        sentinel_credentials=Credentials(
            options.pop("sentinel_user", None), options.pop("sentinel_password", None)
        ),
        database=database,
        master=master,
        tls=tls,
        **_settings(options),
    )


def _parse_unix(url: str) -> Target:
    rest, _, query = url.removeprefix("unix://").partition("?")
    who, at, path = rest.rpartition("@")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not path.startswith("/"):
        raise InvalidUrl("a unix:// URL takes an absolute socket path: unix:///run/redis.sock?db=0")
    database = _whole("db", options.pop("db", "0"))
    return Target(
        kind="standalone",
        addresses=(Address("", 0, unquote(path)),),
        credentials=_credentials(who if at else None),
        database=database,
        **_settings(options),
    )


def _credentials(who: str | None) -> Credentials:
    if not who:
        return Credentials()
    user, _, password = who.partition(":")
    return Credentials(unquote(user) or None, unquote(password) or None)


def _addresses(where: str, default_port: int) -> tuple[Address, ...]:
    return tuple(_address(part, default_port) for part in where.split(",")) or ()


def _address(text: str, default_port: int) -> Address:
    match = re.match(r"^(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>.*))?$", text)
    if match is None:
        raise InvalidUrl(f"{text!r} is not host:port; an IPv6 address goes in brackets: [::1]:6379")
    port = _whole("port", match["port"]) if match["port"] else default_port
    if not 0 < port < 65536:
        raise InvalidUrl(f"port {port} is not between 1 and 65535")
    return Address(match["v6"] or match["host"] or "127.0.0.1", port)


def _path(kind: Kind, path: str) -> tuple[str, int]:
    parts = [unquote(part) for part in path.split("/") if part]
    if kind == "sentinel":
        if not parts:
            raise InvalidUrl("a Sentinel URL names its master: redis+sentinel://host:26379/mymaster")
        return parts[0], _whole("database", parts[1]) if len(parts) > 1 else 0
    if kind == "cluster" and parts and parts != ["0"]:
        raise InvalidUrl(f"a cluster has database 0 alone; take /{parts[0]} out of the URL")
    return "", _whole("database", parts[0]) if parts else 0


def _tls(options: dict[str, str]) -> TlsFiles:
    return TlsFiles(*(options.pop(name, None) for name in ("ca", "cert", "key")))


def _settings(options: dict[str, str]) -> dict[str, Any]:
    parsers: Mapping[str, Callable[[str, str], Any]] = {
        "client_name": lambda _, text: text,
        "timeout": _positive,
        "connect_timeout": _positive,
        "max_in_flight": _whole,
        "max_in_flight_bytes": _whole,
        "read_from": _read_from,
    }
    unknown = sorted(set(options) - set(parsers))
    if unknown:
        raise InvalidUrl(
            f"unknown option {unknown[0]!r} in the URL; known are {', '.join(parsers)}, "
            "with rediss:// also ca, cert, key, with unix:// also db, "
            "with Sentinel also sentinel_user, sentinel_password"
        )
    return {name: parsers[name](name, text) for name, text in options.items()}


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidUrl(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidUrl(f"{name} must be a number of seconds above 0, not {text!r}")
    return value


def _read_from(name: str, text: str) -> str:
    if text not in ("masters", "replicas"):
        raise InvalidUrl(f"{name} must be masters or replicas, not {text!r}")
    return text
