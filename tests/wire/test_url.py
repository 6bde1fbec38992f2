"""URLs: what each part means, and what is wrong with an invalid one."""

from __future__ import annotations

import pytest

from ephemera.errors import InvalidUrl
from ephemera.wire import Address, Credentials, Target, parse_url
from ephemera.wire._url import TlsFiles
from tests.timeouts import DEFAULTS


def test_a_full_url_says_everything() -> None:
    """Host, port, user, password, database and options all come from the URL."""
    target = parse_url("redis://ann:s%2Fecret@example.org:6380/3?timeout=0.5&client_name=web&max_in_flight=7")
    assert target == Target(
        kind="standalone",
        addresses=(Address("example.org", 6380),),
        credentials=Credentials("ann", "s/ecret"),
        database=3,
        client_name="web",
        timeout=0.5,
        max_in_flight=7,
    )


def test_everything_has_a_default() -> None:
    """The shortest URL is the local server on the usual port."""
    assert parse_url("redis://") == Target("standalone", (Address("127.0.0.1", 6379),))
    assert DEFAULTS == (0.25, 1.0)  # as docs/wire.md says; the suite itself waits longer


def test_cluster_nodes_are_listed() -> None:
    """A cluster URL takes several nodes and the option for where reads go."""
    target = parse_url("redis+cluster://a:1,b,[::1]:3?read_from=replicas")
    assert target.addresses == (Address("a", 1), Address("b", 6379), Address("::1", 3))
    assert (target.kind, target.read_from) == ("cluster", "replicas")


def test_sentinels_have_their_own_port_name_and_password() -> None:
    """A Sentinel URL takes Sentinels, the master's name, a database, and the Sentinels' own password."""
    target = parse_url("redis+sentinel://:pw@a,b:5/main/2?sentinel_user=guard&sentinel_password=other")
    assert target.addresses == (Address("a", 26379), Address("b", 5))
    assert (target.master, target.database) == ("main", 2)
    assert target.credentials == Credentials(None, "pw")
    assert target.sentinel_credentials == Credentials("guard", "other")


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_a_double_s_means_tls(scheme: str) -> None:
    """`rediss` in place of `redis` means TLS, with the files in the options."""
    target = parse_url(
        f"{scheme}://host/{'main' if 'sentinel' in scheme else ''}?ca=/ca.pem&cert=/c.pem&key=/k.pem"
    )
    assert target.tls == TlsFiles("/ca.pem", "/c.pem", "/k.pem")
    assert parse_url("redis://host").tls is None


def test_unix_sockets_have_a_path_and_a_database() -> None:
    """A unix URL takes an absolute path, credentials and a database."""
    target = parse_url("unix://ann:pw@/run/my%20redis.sock?db=4")
    assert target.addresses == (Address("", 0, "/run/my redis.sock"),)
    assert (target.credentials, target.database) == (Credentials("ann", "pw"), 4)


def test_addresses_are_written_as_in_urls() -> None:
    """An address reads as it is written in a URL, even for IPv6 and sockets."""
    written = [str(Address("a", 1)), str(Address("::1", 2)), str(Address("", 0, "/run/s"))]
    assert written == ["a:1", "[::1]:2", "/run/s"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", r"the URL is empty \(was the variable .* not set\?\); use one of redis://"),
        (" ", "the URL is empty"),
        ("localhost:6379", "scheme is not known; use one of redis://"),
        ("http://localhost", "scheme is not known: http; use one of redis://"),
        ("REDIS://localhost", "scheme is not known: REDIS;"),
        ("redis://host:port", "not host:port"),
        ("redis://host:0", "not between 1 and 65535"),
        ("redis://host:65536", "not between 1 and 65535"),
        ("redis://::1:6379", "goes in brackets"),
        ("redis://ho st", "not host:port"),
        ("redis://a,b", "several hosts are for redis\\+cluster"),
        ("redis://host/zero", "one whole number"),
        ("redis://host/-1", "one whole number"),
        ("redis://host/0/1", "one whole number"),
        ("redis://host/99999999999999999999", "one whole number"),
        ("redis+cluster://host/1", "database 0 alone"),
        ("redis+sentinel://host", "names its master"),
        ("redis+sentinel://host/main/one", "one whole number"),
        ("unix://run/redis.sock", "absolute socket path"),
        ("unix:///run/redis.sock?db=x", "db must be a whole number, not 'x'"),
        ("redis://host?timeuot=1", "unknown option 'timeuot' .*known here are client_name, timeout"),
        ("redis://host?timeout=0", "above 0, not '0'"),
        ("redis://host?timeout=soon", "above 0, not 'soon'"),
        ("redis://host?timeout=nan", "above 0, not 'nan'"),
        ("redis://host?connect_timeout=inf", "above 0, not 'inf'"),
        ("redis://host?max_in_flight=0", "at least 1"),
        ("redis://host?max_in_flight_bytes=1.5", "a whole number, not '1.5'"),
        ("redis://host?client_name=two%20words", "without spaces"),
        ("redis://host?timeout=1&timeout=2", "given twice"),
        ("redis://host?ca=/ca.pem", "with rediss:// also ca"),
        ("rediss://host?key=/k.pem", "key without cert"),
        ("redis://host?read_from=replicas", "with a cluster also read_from"),
        ("redis+cluster://host?read_from=anybody", "masters or replicas, not 'anybody'"),
        ("redis://host?sentinel_password=x", "with Sentinel also"),
    ],
)
def test_a_wrong_part_is_named(url: str, says: str) -> None:
    """Each part of a URL that is wrong is named, with what is right."""
    with pytest.raises(InvalidUrl, match=says):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:canary",
        "redis://ann:canary",
        "canary@host://x",
        "ann:canary://x",
        "can4ry-canary://x",
        "canary",
        "http://ann:canary@host",
        "redis://:cana/canary@host",
        "redis://:canary/x@host:1?timeout=1",
        "redis://:canary?x@host/zero",
        "redis://:canary@host:port",
        "redis://ann:canary@host/zero?timeout=0",
        "redis+cluster://:canary@host/7",
        "redis+sentinel://:canary@host",
        "redis+sentinel://host/main?sentinel_password=x&canary",
        "redis+sentinel://host/main?sentinel_password=x@canary",
        "unix://:canary@run/redis.sock",
        "unix://:canary?x@/run/redis.sock",
        "redis://:canary\ud800@host",
    ],
)
def test_no_part_of_a_password_is_repeated(url: str) -> None:
    """The error of an invalid URL repeats nothing that may be its password."""
    with pytest.raises(InvalidUrl) as caught:
        parse_url(url)
    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
