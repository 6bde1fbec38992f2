"""Whose request it is, by address: the peer's, or what trusted proxies say of it, and nobody else.

    CLIENT = ClientAddress(trusted=["10.0.0.0/8", "2001:db8:1::/48"])
    CLIENT.of(scope)       # "203.0.113.7"
    CLIENT.counted(scope)  # the same, and for IPv6 its network: "2001:db8:2:3::/64"

`X-Forwarded-For` is written by whoever sends it, and each proxy appends the address it was called from. So
the list is read from its right end: as long as the one who speaks is trusted, what it says is believed, and
the first address that is not trusted is the client. What stands further left may be made up. Without
`trusted` nobody is believed, and the client is the peer of the connection.

One header is read, the one that is configured: a proxy that sets `X-Forwarded-For` passes on a `Forwarded`
(RFC 7239) of its client's making. What is no address ends the reading at the last trusted one. A server that
rewrites the peer itself must be told not to (uvicorn: `--no-proxy-headers`), or to trust the same proxies.

`counted` is for limits: a home gets 2^64 IPv6 addresses, so that a limit by single address is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias

from ephemera.web._asgi import Scope

Address: TypeAlias = IPv4Address | IPv6Address

_MOST_HOPS = 32
"""Proxies in a row that are believed; more are a loop or an attack."""
_NOBODY = "unknown"
"""The client of a connection that has no address, such as a unix socket."""


class ClientAddress:
    """Finds the client of an ASGI scope; `trusted` are addresses and networks of proxies."""

    def __init__(
        self,
        trusted: Iterable[str] = (),
        *,
        header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for",
        ipv6_prefix: int = 64,
    ) -> None:
        if header not in ("x-forwarded-for", "forwarded"):
            raise ValueError(f"header={header!r}: use 'x-forwarded-for' or 'forwarded'")
        if not 1 <= ipv6_prefix <= 128:
            raise ValueError(f"ipv6_prefix={ipv6_prefix}: use the length of a network, 1 to 128")
        if isinstance(trusted, str):
            raise TypeError(f"trusted={trusted!r}: give a list of addresses and networks")
        self._networks = [ip_network(each) for each in trusted]
        self._header = header.encode()
        self._hops = _forwarded if header == "forwarded" else _appended
        self._prefix = ipv6_prefix

    def of(self, scope: Scope) -> str:
        """The client's address; of a connection without one, `unknown`."""
        peer: str = (scope.get("client") or (_NOBODY,))[0] or _NOBODY
        if not self._networks:
            return peer
        address = _address(peer)
        return peer if address is None else str(self._behind(address, scope))

    def counted(self, scope: Scope) -> str:
        """What a limit by address should count: an IPv4 address, or an IPv6 network."""
        return _counted(self.of(scope), self._prefix)

    def _behind(self, address: Address, scope: Scope) -> Address:
        """The first address from the right that is not a trusted proxy's."""
        if not self._trusts(address):
            return address
        lines = [value for name, value in scope["headers"] if name == self._header]
        for hop in self._hops(b",".join(lines).decode("latin-1")):
            found = _address(hop)
            if found is None:
                break
            address = found
            if not self._trusts(address):
                break
        return address

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


@lru_cache(maxsize=4096)
def _counted(client: str, ipv6_prefix: int) -> str:
    address = _address(client)
    if address is None or address.version == 4:
        return client if address is None else str(address)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False))


def _appended(line: str) -> Iterator[str]:
    """The hops of an X-Forwarded-For, the last one first."""
    for _ in range(_MOST_HOPS):
        line, comma, hop = line.rpartition(",")
        if hop.strip():
            yield hop.strip()
        if not comma:
            return


def _forwarded(line: str) -> Iterator[str]:
    """The `for` of each element of a Forwarded, the last one first; quotes hold no commas in an address."""
    for element in _appended(line):
        for pair in element.split(";"):
            name, _, value = pair.strip().partition("=")
            if name.lower() == "for":
                yield value.strip('"')
                break
        else:
            yield ""  # a proxy that does not say whom it speaks for


def _address(text: str) -> Address | None:
    """The address in a text that may have a port, brackets or a zone; IPv4 inside IPv6 is IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
