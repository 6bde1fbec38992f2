"""The session cookie: how it is found in a request, and how it is set and cleared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from ephemera.errors import InvalidCookie
from ephemera.web._asgi import Header

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

_FOR_ALL = (b"public", b"s-maxage", b"private=")  # what shared caches are told, or browsers in part
_SHORT = 512  # bytes of a line that is remembered


@dataclass(frozen=True)
class Cookie:
    """A cookie that no script can read, that goes to this host alone, over TLS alone, not with foreign forms.

    The prefix `__Host-` makes browsers enforce it: Secure, Path=/ and no Domain. For a domain or a path
    choose another name; `secure=False` is for development without TLS. A `persistent` cookie outlives the
    browser's window, and is sent anew with every response so that it slides with its session.
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
        if any(mark in "; ," or not mark.isprintable() for mark in f"{self.domain}{self.path}"):
            raise InvalidCookie(
                f"domain={self.domain!r}, path={self.path!r} hold marks that end an attribute"
            )

    def find(self, headers: Iterable[Header]) -> str | None:
        """The cookie's value in a request, whatever characters it has; None when there is none."""
        for name, line in headers:
            if name == b"cookie":
                # A browser sends the same line again and again, and looking it up is cheaper than reading it.
                find = _known_value if len(line) <= _SHORT else _value
                if (value := find(line, self._prefix)) is not None:
                    return value
        return None

    def set(self, token: str, life: int) -> bytes:
        """The header that gives the browser a token; `life` in milliseconds counts if it is persistent."""
        age = f"; Max-Age={life // 1000}" if self.persistent else ""
        return f"{self.name}={token}{age}{self._attributes()}".encode()

    def clear(self) -> bytes:
        """The header that makes the browser forget it."""
        return f"{self.name}=; Max-Age=0{self._attributes()}".encode()

    def _attributes(self) -> str:
        domain = f"; Domain={self.domain}" if self.domain else ""
        secure = "; Secure" if self.secure else ""
        return f"; Path={self.path}{domain}; HttpOnly{secure}; SameSite={self.same_site.capitalize()}"


def for_one_browser(headers: Iterable[Header]) -> list[Header]:
    """The headers of a response that sets a cookie: no cache that is shared may keep it, whatever it said."""
    rest: list[Header] = []
    words: list[bytes] = []
    for name, value in headers:
        if name.lower() == b"cache-control":
            words += (word for each in value.split(b",") if (word := each.strip()))
        else:
            rest.append((name, value))
    names = {word.lower() for word in words}
    if not words:
        words = [b"no-store"]
    elif b"private" not in names and b"no-store" not in names:
        words = [b"private", *(word for word in words if not word.lower().startswith(_FOR_ALL))]
    return [*rest, (b"cache-control", b", ".join(words))]


def _value(line: bytes, prefix: bytes) -> str | None:
    at = line.find(prefix)
    while at > 0 and not (line[:at].rstrip(b" \t") or b";").endswith(b";"):  # inside another cookie
        at = line.find(prefix, at + 1)
    if at < 0:
        return None
    end = line.find(b";", at)
    return line[at + len(prefix) : end if end >= 0 else None].strip(b" \t").decode("latin-1")


_known_value = lru_cache(maxsize=4096)(_value)
