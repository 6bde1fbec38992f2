"""The session cookie: finding it in a request, setting and clearing it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from ephemera.errors import InvalidCookie
from ephemera.web._asgi import Header

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

_SHARED_DIRECTIVES = (b"public", b"s-maxage", b"private=")  # they allow a shared cache to store something
_MAX_CACHED_LINE = 512  # bytes


@dataclass(frozen=True)
class Cookie:
    """A cookie that scripts cannot read, sent only to this host, over TLS, and not with cross-site forms.

    The prefix `__Host-` makes browsers enforce it: Secure, Path=/ and no Domain. For a domain or a path
    choose another name.

    Args:
        name: The name; `__Host-session` unless given.
        same_site: From which sites' pages it is sent: "lax", "strict" or "none".
        domain: A domain whose hosts all get it; by default only the host that set it.
        path: The path below which it is sent.
        secure: False for development without TLS.
        persistent: True to outlive the browser's window; it is then sent again with every response, so that
            it slides with its session.

    """

    name: str = "__Host-session"
    same_site: Literal["lax", "strict", "none"] = "lax"
    domain: str | None = None
    path: str = "/"
    secure: bool = True
    persistent: bool = False
    _prefix: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_prefix", f"{self.name}=".encode())
        if not self.name or not _TOKEN.issuperset(self.name):
            raise InvalidCookie(f"{self.name!r} cannot name a cookie")
        if self.name.startswith("__Host-") and (self.domain or self.path != "/"):
            raise InvalidCookie(f"{self.name!r} takes no domain and no path: choose a name without '__Host-'")
        if self.name.startswith("__") and not self.secure:
            raise InvalidCookie(
                f"{self.name!r} must be secure: choose a name without '__Host-' or '__Secure-'"
            )
        if self.same_site not in ("lax", "strict", "none") or (self.same_site == "none" and not self.secure):
            raise InvalidCookie(
                f"same_site={self.same_site!r}: use 'lax', 'strict', or 'none' with secure=True"
            )
        if any(char in "; ," or not char.isprintable() for char in f"{self.domain}{self.path}"):
            raise InvalidCookie(
                f"domain={self.domain!r}, path={self.path!r} contain characters that end an attribute"
            )

    def find(self, headers: Iterable[Header]) -> str | None:
        """The cookie's value in a request, whatever characters it has; None without one."""
        for name, line in headers:
            if name == b"cookie":
                # A browser keeps sending the same line, and a lookup is cheaper than parsing.
                find = _cached_value if len(line) <= _MAX_CACHED_LINE else _value
                if (value := find(line, self._prefix)) is not None:
                    return value
        return None

    def set(self, token: str, lifetime: int) -> bytes:
        """The header that sets the token; `lifetime`, in milliseconds, applies if it is persistent."""
        age = f"; Max-Age={lifetime // 1000}" if self.persistent else ""
        return f"{self.name}={token}{age}{self._attributes()}".encode()

    def clear(self) -> bytes:
        """The header that makes the browser delete it."""
        return f"{self.name}=; Max-Age=0{self._attributes()}".encode()

    def _attributes(self) -> str:
        domain = f"; Domain={self.domain}" if self.domain else ""
        secure = "; Secure" if self.secure else ""
        return f"; Path={self.path}{domain}; HttpOnly{secure}; SameSite={self.same_site.capitalize()}"


DEFAULT_COOKIE = Cookie()


def private_headers(headers: Iterable[Header]) -> list[Header]:
    """The headers of a response that sets a cookie: no shared cache may store it, whatever they said."""
    rest: list[Header] = []
    directives: list[bytes] = []
    for name, value in headers:
        if name.lower() == b"cache-control":
            directives += (directive for each in value.split(b",") if (directive := each.strip()))
        else:
            rest.append((name, value))
    names = {directive.lower() for directive in directives}
    if not directives:
        directives = [b"no-store"]
    elif b"private" not in names and b"no-store" not in names:
        directives = [
            b"private",
            *(each for each in directives if not each.lower().startswith(_SHARED_DIRECTIVES)),
        ]
    return [*rest, (b"cache-control", b", ".join(directives))]


def _value(line: bytes, prefix: bytes) -> str | None:
    at = line.find(prefix)
    while at > 0 and not (line[:at].rstrip(b" \t") or b";").endswith(b";"):  # inside another cookie
        at = line.find(prefix, at + 1)
    if at < 0:
        return None
    end = line.find(b";", at)
    return line[at + len(prefix) : end if end >= 0 else None].strip(b" \t").decode("latin-1")


_cached_value = lru_cache(maxsize=4096)(_value)
