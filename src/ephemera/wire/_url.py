"""Server URLs: one URL has everything needed to connect.

    redis://user:password@host:6379/0      rediss://...?ca=/path/ca.pem&cert=...&key=...
    unix:///run/redis.sock?db=1            redis+cluster://h1:6379,h2:6379?read_from=replicas
    redis+sentinel://h1:26379,h2:26379/mymaster/0

`rediss` in place of `redis` means TLS, for Sentinel and clusters too. Unknown options are errors: a misspelt
`timeout` must not silently be the default. The password is never part of a repr or a message, and neither is
anything that might be a piece of it, such as a malformed host, port or path.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from ephemera.errors import InvalidUrl

Kind = Literal["standalone", "cluster", "sentinel"]

TIMEOUT = 0.25
"""Seconds without any progress after which a server counts as stalled; the default of the URL option."""

CONNECT_TIMEOUT = 1.0
"""Seconds that a new connection may take; the default of the URL option."""

SLOW_TIMEOUT = 5.0
"""Seconds that a slow call may take by default; as long as a server runs a script before it answers BUSY."""

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
}
_SHAPE = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:(?P<who>[^/]*)@)?(?P<where>[^/?]*)(?P<path>[^?]*)(?:\?(?P<options>.*))?",
    re.DOTALL,
)
_WHERE = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+(?:%\w+)?)\]|(?P<host>[\w.-]*))(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)

_ENCODE = "an @ follows the URL's host; in a user name, password or option write / as %2F, ? as %3F, @ as %40"


@dataclass(frozen=True, slots=True)
class Address:
    """Where one server listens: a host and port, or the path of a unix socket."""

    host: str
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and password; the password is in no repr."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    expires_in: float | None = None
    """Seconds for which they are valid, if a provider returned them."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate files of a TLS connection; without `ca` the system's authorities are trusted."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    """The name that the server's certificate must have, if it is not the host of the URL."""
    verify: Literal["full", "ca"] = "full"
    """Whether the certificate must have the server's name, or only be signed by a trusted authority."""
    context: ssl.SSLContext | None = None
    """Used in place of the files, if it is given."""


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
    timeout: float = field(default_factory=lambda: TIMEOUT)
    connect_timeout: float = field(default_factory=lambda: CONNECT_TIMEOUT)
    slow_timeout: float = SLOW_TIMEOUT
    max_blocking: int = 256
    """Blocking commands that may wait at the same time, each on a connection of its own."""
    max_in_flight: int = 20_000
    max_in_flight_bytes: int = 64 * 1024 * 1024
    read_from: Literal["masters", "replicas"] = "masters"
    source: Any = None
    """The `CredentialSource` that replaces `credentials`, if any."""
    protocol: Literal[2, 3] = 3
    """The version of RESP. With 2, replies have its forms, and there are no subscriptions and no tracking."""
    modules: frozenset[str] | None = None
    """Names, in lower case, of modules that its servers may have besides their own; None: any."""


def parse_url(url: str) -> Target:
    """Parse a URL; `InvalidUrl` says which part is wrong."""
    if not isinstance(url, str):
        raise InvalidUrl(f"a URL is a text such as redis://127.0.0.1:6379, not {type(url).__name__}")
    if any("\ud800" <= character <= "\udfff" for character in url):
        raise InvalidUrl("the URL contains lone surrogates, which are not text")
    if url.startswith("unix://"):
        return _parse_unix(url)
    match = _SHAPE.fullmatch(url)
    if match is None or match["scheme"] not in _SCHEMES:
        known = f"use one of {', '.join(f'{name}://' for name in _SCHEMES)} or unix://"
        raise InvalidUrl(f"{_wrong_scheme(url)}; {known}")
    kind, encrypted = _SCHEMES[match["scheme"]]
    if "@" in match["path"]:
        raise InvalidUrl(_ENCODE)
    options = _options(match["options"])
    master, database = _path(kind, match["path"])
    return Target(
        kind=kind,
        addresses=_addresses(kind, match["where"]),
        credentials=_credentials(match["who"]),
        sentinel_credentials=_sentinel_credentials(options) if kind == "sentinel" else Credentials(),
        database=database,
        master=master,
        tls=_tls(options) if encrypted else None,
        **_settings(kind, options),
    )


def _wrong_scheme(url: str) -> str:
    if not url.strip():
        return "the URL is empty (was the variable or setting that it comes from not set?)"
    # Only what is written like a scheme is shown; anything else may be a secret.
    found = re.match("([A-Za-z][A-Za-z+]{,19})://", url)
    return f"the URL's scheme is not known: {found[1]}" if found else "the URL's scheme is not known"


def _parse_unix(url: str) -> Target:
    rest, _, query = url.removeprefix("unix://").partition("?")
    who, at, path = rest.rpartition("@")
    options = _options(query)
    if not path.startswith("/") or "\0" in unquote(path):
        raise InvalidUrl("a unix:// URL takes an absolute socket path: unix:///run/redis.sock?db=0")
    database = _whole("db", options.pop("db", "0"))
    return Target(
        kind="standalone",
        addresses=(Address("", 0, unquote(path)),),
        credentials=_credentials(who if at else None),
        database=database,
        **_settings("standalone", options),
    )


def _options(query: str | None) -> dict[str, str]:
    pairs = parse_qsl(query or "", keep_blank_values=True)
    if "@" in (query or ""):
        raise InvalidUrl(_ENCODE)
    if len(dict(pairs)) < len(pairs):
        raise InvalidUrl("an option is given twice in the URL; give it once")
    return dict(pairs)


def _credentials(who: str | None) -> Credentials:
    if not who:
        return Credentials()
    user, _, password = who.partition(":")
    return Credentials(unquote(user) or None, unquote(password) or None)


def _sentinel_credentials(options: dict[str, str]) -> Credentials:
    return Credentials(options.pop("sentinel_user", None), options.pop("sentinel_password", None))


def _addresses(kind: Kind, where: str) -> tuple[Address, ...]:
    default_port = 26379 if kind == "sentinel" else 6379
    addresses = tuple(_address(part, default_port) for part in where.split(","))
    if kind == "standalone" and len(addresses) > 1:
        raise InvalidUrl("several hosts are for redis+cluster:// and redis+sentinel://; give one")
    return addresses


def _address(text: str, default_port: int) -> Address:
    match = _WHERE.fullmatch(text)
    if match is None:
        raise InvalidUrl("the URL's host is not host:port; an IPv6 address goes in brackets: [::1]:6379")
    port = int(match["port"] or default_port)
    if not 0 < port < 65536:
        raise InvalidUrl("the URL's port is not between 1 and 65535")
    return Address(match["v6"] or match["host"] or "127.0.0.1", port)


def _path(kind: Kind, path: str) -> tuple[str, int]:
    parts = [unquote(part) for part in path.split("/") if part]
    master = ""
    if kind == "sentinel":
        if not parts:
            raise InvalidUrl("a Sentinel URL names its master: redis+sentinel://host:26379/mymaster")
        master = parts.pop(0)
    if kind == "cluster" and parts and parts != ["0"]:
        raise InvalidUrl("a cluster has database 0 alone; take the path out of the URL")
    if len(parts) > 1 or (parts and not re.fullmatch("[0-9]{1,9}", parts[0])):
        raise InvalidUrl("a database in the URL's path is one whole number: redis://host/0")
    return master, int(parts[0]) if parts else 0


def _tls(options: dict[str, str]) -> TlsFiles:
    verify = options.pop("verify", "full")
    if verify not in ("full", "ca"):
        raise InvalidUrl(f"verify must be full or ca, not {verify!r}; there is no way to skip verification")
    ca, cert, key, server_name = (options.pop(name, None) for name in ("ca", "cert", "key", "server_name"))
    files = TlsFiles(ca, cert, key, server_name, "ca" if verify == "ca" else "full")
    if files.key and not files.cert:
        raise InvalidUrl("the URL has key without cert; give the certificate that the key belongs to")
    return files


def _settings(kind: Kind, options: dict[str, str]) -> dict[str, Any]:
    parsers: dict[str, Callable[[str, str], Any]] = {
        "client_name": _client_name,
        "timeout": _positive,
        "connect_timeout": _positive,
        "slow_timeout": _positive,
        "max_blocking": _at_least_one,
        "max_in_flight": _at_least_one,
        "max_in_flight_bytes": _at_least_one,
    }
    if kind == "cluster":
        parsers["read_from"] = _read_from
    unknown = sorted(set(options) - set(parsers))
    if unknown:
        # A malformed name may be the rest of a secret whose & was not encoded.
        named = repr(unknown[0]) if re.fullmatch("[a-z_]+", unknown[0]) and kind != "sentinel" else ""
        raise InvalidUrl(
            f"unknown option {named} in the URL; known here are {', '.join(parsers)}, "
            "with rediss:// also ca, cert, key, server_name, verify, with unix:// also db, "
            "with a cluster also read_from, with Sentinel also sentinel_user, sentinel_password"
        )
    return {name: parsers[name](name, text) for name, text in options.items()}


def _client_name(name: str, text: str) -> str:
    if not re.fullmatch("[!-~]+", text):
        raise InvalidUrl(f"{name} must be printable ASCII without spaces, not {text!r}")
    return text


def _whole(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise InvalidUrl(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _at_least_one(name: str, text: str) -> int:
    number = _whole(name, text)
    if number < 1:
        raise InvalidUrl(f"{name} must be at least 1, or nothing could ever be sent")
    return number


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
