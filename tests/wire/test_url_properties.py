"""Properties of URLs: encoded parts round-trip, and anything wrong is `InvalidUrl`."""

from __future__ import annotations

import contextlib
from urllib.parse import quote, urlencode

from hypothesis import given
from hypothesis import strategies as st

from ephemera.errors import InvalidUrl
from ephemera.wire import Address, Credentials, parse_url

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
_HOSTS = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str)
_PORTS = st.integers(1, 65535)
_SECRETS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(lambda rest: f"canary{rest}")
_SCHEMES = st.sampled_from(
    [
        "redis",
        "rediss",
        "redis+cluster",
        "rediss+cluster",
        "redis+sentinel",
        "rediss+sentinel",
        "unix",
        "http",
    ]
)
_HOSTILE = st.text(st.sampled_from("abc019/:@?&=#%[],. \n\0é;+"), max_size=25)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@given(_HOSTS, _PORTS, _TEXT, _TEXT, st.integers(0, 999_999), st.floats(1e-3, 1e6))
def test_encoded_parts_round_trip(
    host: str, port: int, user: str, password: str, database: int, timeout: float
) -> None:
    """Any host, port, user, password, database and timeout that are percent-encoded round-trip."""
    who = f"{quote(user, safe='')}:{quote(password, safe='')}"
    target = parse_url(f"redis://{who}@{_in_url(host)}:{port}/{database}?{urlencode({'timeout': timeout})}")
    assert target.addresses == (Address(host, port),)
    assert target.credentials == Credentials(user, password)
    assert (target.database, target.timeout) == (database, timeout)


@given(st.lists(st.tuples(_HOSTS, _PORTS), min_size=1, max_size=5))
def test_addresses_round_trip(nodes: list[tuple[str, int]]) -> None:
    """The text of an address is what a URL takes."""
    addresses = tuple(Address(host, port) for host, port in nodes)
    assert parse_url(f"redis+cluster://{','.join(map(str, addresses))}").addresses == addresses


@given(_TEXT.filter(lambda text: "\0" not in text))
def test_any_socket_path_round_trips(name: str) -> None:
    """A unix socket's path may contain any character, encoded."""
    assert parse_url(f"unix:///run/{quote(name, safe='')}").addresses[0].path == f"/run/{name}"


@given(st.text(max_size=60) | _HOSTILE.map(lambda rest: f"redis://{rest}"))
def test_anything_else_is_an_invalid_url(text: str) -> None:
    """Any text is a target or an `InvalidUrl`, never another exception."""
    with contextlib.suppress(InvalidUrl):
        assert parse_url(text).addresses


@given(_SCHEMES, _SECRETS, _HOSTILE, st.booleans())
def test_no_message_and_no_repr_contains_the_password(
    scheme: str, password: str, rest: str, encoded: bool
) -> None:
    """Wherever a URL goes wrong, encoded or not, neither the message nor a repr repeats its password."""
    secret = quote(password, safe="") if encoded else password
    try:
        shown = repr(parse_url(f"{scheme}://ann:{secret}@{rest}"))
    except InvalidUrl as error:
        shown = f"{error!r} {error.__context__!r} {error.__cause__!r}"
    assert "canary" not in shown
