"""The client's address: that of the peer, or what trusted proxies report.

    CLIENT = ClientAddress(trusted=["10.0.0.0/8", "2001:db8:1::/48"])
    CLIENT.address(scope)  # "203.0.113.7"
    CLIENT.network(scope)  # the same, and for IPv6 its network: "2001:db8:2:3::/64"

Any client can send `X-Forwarded-For`, and each proxy appends the address it was called from. So the list is
read from its right end: as long as the reporting hop is trusted, its report is believed, and the first
address that is not trusted is the client. Addresses further left may be forged. Without `trusted` no report
is believed, and the client is the peer of the connection.

Only the configured header is read: a proxy that sets `X-Forwarded-For` passes on a `Forwarded` (RFC 7239)
that its client may have forged. Text that is not an address ends the reading at the last trusted hop. A
server that rewrites the peer itself must not do so (uvicorn: `--no-proxy-headers`), or must trust the same
proxies.

Use `network` for limits: a home gets 2^64 IPv6 addresses, so a limit by single address limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias

from ephemera.web._asgi import Scope

IPAddress: TypeAlias = IPv4Address | IPv6Address

_MAX_HOPS = 32
"""Trusted proxies in a row; more are a loop or an attack."""
_UNKNOWN = "unknown"
"""The client of a connection without an address, such as a unix socket."""


class ClientAddress:
    """Finds the client of an ASGI scope; `trusted` are addresses and networks of proxies.

    `header` is the one that your proxies set, and `ipv6_prefix` the length of the networks of `network`, in
    bits.
    """

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
        self._hops = _forwarded_hops if header == "forwarded" else _hops
        self._prefix = ipv6_prefix

    def address(self, scope: Scope) -> str:
        """The client's address; `unknown` for a connection without one."""
        peer: str = (scope.get("client") or (_UNKNOWN,))[0] or _UNKNOWN
        if not self._networks:
            return peer
        address = _parse(peer)
        return peer if address is None else str(self._first_untrusted(address, scope))

    def network(self, scope: Scope) -> str:
        """The subject of a limit by address: an IPv4 address, or an IPv6 network."""
        return _network(self.address(scope), self._prefix)

    def _first_untrusted(self, address: IPAddress, scope: Scope) -> IPAddress:
        """The first address from the right that is not a trusted proxy's."""
        if not self._trusts(address):
            return address
        lines = [value for name, value in scope["headers"] if name == self._header]
        for hop in self._hops(b",".join(lines).decode("latin-1")):
            found = _parse(hop)
            if found is None:
                break
            address = found
            if not self._trusts(address):
                break
        return address

    def _trusts(self, address: IPAddress) -> bool:
        return any(address in network for network in self._networks)


@lru_cache(maxsize=4096)
def _network(client: str, ipv6_prefix: int) -> str:
    address = _parse(client)
    if address is None or address.version == 4:
        return client if address is None else str(address)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False))


def _hops(line: str) -> Iterator[str]:
    """The hops of an X-Forwarded-For header, the last one first."""
    for _ in range(_MAX_HOPS):
        line, comma, hop = line.rpartition(",")
        if hop.strip():
            yield hop.strip()
        if not comma:
            return


def _forwarded_hops(line: str) -> Iterator[str]:
    """The `for` of each element of a Forwarded header, the last one first; addresses have no commas."""
    for element in _hops(line):
        for pair in element.split(";"):
            name, _, value = pair.strip().partition("=")
            if name.lower() == "for":
                yield value.strip('"')
                break
        else:
            yield ""  # a proxy that does not report its peer


def _parse(text: str) -> IPAddress | None:
    """Parse an address that may have a port, brackets or a zone; IPv4 inside IPv6 is IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
