"""The client's address: that of the peer, or what trusted proxies report, read from the right."""

from __future__ import annotations

from typing import Any

import pytest

from ephemera.web import ClientAddress
from tests.untyped import untyped

PROXIES = ClientAddress(trusted=["10.0.0.0/8", "192.0.2.1", "2001:db8:1::/48"])
RFC_7239 = ClientAddress(trusted=["10.0.0.0/8", "2001:db8:1::/48"], header="forwarded")


def _scope(peer: str | None, *lines: str, header: str = "x-forwarded-for") -> dict[str, Any]:
    return {
        "client": None if peer is None else (peer, 4711),
        "headers": [(header.encode(), line.encode("latin-1")) for line in lines],
    }


@pytest.mark.parametrize(
    ("peer", "lines", "client"),
    [
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),  # not a trusted proxy: its report is ignored
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.2.3.4, 198.51.100.1"], "198.51.100.1"),  # what the client wrote is on the left
        ("10.0.0.1", ["1.2.3.4, 198.51.100.1, 192.0.2.1,10.9.9.9"], "198.51.100.1"),
        ("10.0.0.1", ["1.2.3.4", "198.51.100.1"], "198.51.100.1"),  # two lines are one list
        ("10.0.0.1", ["10.2.2.2, 10.3.3.3"], "10.2.2.2"),  # a client inside the network
        ("10.0.0.1", ["198.51.100.1:8080"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8:2::9]:443"], "2001:db8:2::9"),
        ("10.0.0.1", ["2001:DB8:2:0::9"], "2001:db8:2::9"),
        ("10.0.0.1", ["fe80::1%eth0"], "fe80::1"),
        ("2001:db8:1::5", ["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, unknown"], "10.0.0.1"),  # a proxy that does not report its peer
        ("10.0.0.1", ["198.51.100.1, , "], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, 999.1.1.1"], "10.0.0.1"),
        ("10.0.0.1", ["\xff\x00, '; DROP TABLE"], "10.0.0.1"),
        ("10.0.0.1", [", ".join(["198.51.100.1", *["10.0.0.2"] * 50])], "10.0.0.2"),  # a loop ends
        ("/run/app.sock", ["198.51.100.1"], "/run/app.sock"),
        (None, ["198.51.100.1"], "unknown"),
    ],
)
def test_the_first_address_that_is_not_trusted_is_the_client(
    peer: str | None, lines: list[str], client: str
) -> None:
    """Addresses to the left of it may be forged."""
    assert PROXIES.address(_scope(peer, *lines)) == client


@pytest.mark.parametrize(
    ("line", "client"),
    [
        ("for=198.51.100.1", "198.51.100.1"),
        ('For="[2001:db8:2::9]:4711";proto=https', "2001:db8:2::9"),
        ("for=1.2.3.4, by=10.0.0.5;for=198.51.100.1;host=x, for=10.0.0.4", "198.51.100.1"),
        ("for=198.51.100.1, for=_hidden", "10.0.0.1"),
        ("for=198.51.100.1, proto=https", "10.0.0.1"),
        ('for="', "10.0.0.1"),
    ],
)
def test_the_forwarded_header_is_read_the_same_way(line: str, client: str) -> None:
    """RFC 7239's Forwarded has the same hops in another syntax."""
    assert RFC_7239.address(_scope("10.0.0.1", line, header="forwarded")) == client


def test_only_the_configured_header_is_read() -> None:
    """The header that is not configured may be forged, and is ignored."""
    assert RFC_7239.address(_scope("10.0.0.1", "198.51.100.1")) == "10.0.0.1"
    assert PROXIES.address(_scope("10.0.0.1", "for=198.51.100.1", header="forwarded")) == "10.0.0.1"


@pytest.mark.parametrize(
    ("client", "network"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("2001:db8:2:3:4:5:6:7", "2001:db8:2:3::/64"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        ("testclient", "testclient"),
    ],
)
def test_ipv6_addresses_are_counted_by_network(client: str, network: str) -> None:
    """A client with one address of an IPv6 network has all of them."""
    assert ClientAddress().network(_scope(client)) == network
    assert ClientAddress(ipv6_prefix=128).network(_scope("2001:db8::1")) == "2001:db8::1/128"


def test_invalid_options_are_refused() -> None:
    """A network with host bits, an unknown header, or a string instead of a list is an error."""
    with pytest.raises(ValueError, match="has host bits set"):
        ClientAddress(trusted=["10.0.0.1/8"])
    with pytest.raises(ValueError, match="use 'x-forwarded-for' or 'forwarded'"):
        untyped(ClientAddress)(header="x-real-ip")
    with pytest.raises(ValueError, match="ipv6_prefix=0"):
        ClientAddress(ipv6_prefix=0)
    with pytest.raises(TypeError, match="give a list"):
        ClientAddress(trusted="10.0.0.0/8")
