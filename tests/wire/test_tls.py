"""TLS with a private authority: through a forwarder to the embedded server, and to Debian's Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import CannotConnect, InvalidUrl
from ephemera.wire import parse_url
from tests.wire.certificates import Authority
from tests.wire.clients import node_client
from tests.wire.conditions import eventually
from tests.wire.debian_redis import BINARY, DebianRedis
from tests.wire.forwarders import forwarding

needs_debian = pytest.mark.skipif(not BINARY.exists(), reason=f"{BINARY} is not installed here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module's certificates."""
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    """The authority that signs the certificates of these servers."""
    return Authority(folder, "ours")


@pytest.fixture(scope="module")
def debian(authority: Authority) -> Iterator[DebianRedis]:
    """Debian's Redis with a certificate for localhost."""
    with DebianRedis(authority) as running:
        yield running


async def _refusal(url: str) -> CannotConnect:
    with pytest.raises(CannotConnect) as caught:
        async with node_client(url):
            pass
    return caught.value


@pytest.mark.on_both_loops
async def test_a_private_authority_is_trusted_when_named(
    server: Valkey, authority: Authority, key: str
) -> None:
    """With the authority's certificate in the URL, calls go through TLS, large ones as well."""
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        async with node_client(f"rediss://{forwarder.address}?ca={authority.ca}") as client:
            value = b"x" * 3_000_000
            await client.call("SET", key, value)
            assert await client.call("GET", key) == value
            replies = await asyncio.gather(*(client.call("ECHO", f"{n}") for n in range(1000)))
            assert replies == [b"%d" % n for n in range(1000)]
            await client.call("DEL", key)


async def test_an_unknown_authority_is_not_trusted(server: Valkey, authority: Authority) -> None:
    """Without the private authority's certificate a server is not trusted; the error says what to give."""
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        error = await _refusal(f"rediss://{forwarder.address}")
    assert "certificate is not trusted" in error.problem
    assert "?ca=/path/to/ca.pem" in error.advice


async def test_another_authority_is_not_enough(server: Valkey, authority: Authority, folder: Path) -> None:
    """The certificate of another authority does not make a server trusted."""
    other = Authority(folder, "theirs")
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        error = await _refusal(f"rediss://{forwarder.address}?ca={other.ca}")
    assert "certificate is not trusted" in error.problem


async def test_a_certificate_for_another_host_is_refused(server: Valkey, authority: Authority) -> None:
    """A certificate must be for the host in the URL."""
    async with forwarding(server, tls=authority.server_context("redis.example.org")) as forwarder:
        error = await _refusal(f"rediss://{forwarder.address}?ca={authority.ca}")
    assert "mismatch" in error.problem or "not valid for" in error.problem
    assert "its own host name" in error.advice


async def test_a_client_certificate_is_presented(server: Valkey, authority: Authority) -> None:
    """A server that requires a client certificate gets the one in the URL."""
    context = authority.server_context("127.0.0.1", client_certificates=True)
    certificate, private = authority.certify("client")
    async with forwarding(server, tls=context) as forwarder:
        url = f"rediss://{forwarder.address}?ca={authority.ca}"
        async with node_client(f"{url}&cert={certificate}&key={private}") as client:
            assert await client.call("PING") == b"PONG"
        error = await _refusal(url)
    assert "If it requires a client certificate, give it: rediss://host?cert=" in error.advice


async def test_tls_to_a_plain_port(server: Valkey, authority: Authority) -> None:
    """TLS to a server that does not speak it is an error that says so."""
    error = await _refusal(f"rediss://127.0.0.1:{server.port}?ca={authority.ca}&connect_timeout=1")
    assert "redis://" in error.advice or "TLS" in error.advice


async def test_plain_to_a_tls_port(server: Valkey, authority: Authority) -> None:
    """For a plain connection to a server that requires TLS the error names rediss://."""
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        error = await _refusal(f"redis://{forwarder.address}")
    assert "rediss://" in error.advice


@pytest.mark.parametrize(
    "option", ["ca={0}/none.pem", "cert={0}/none.pem", "ca={0}/ours.txt", "cert={1}&key={2}"]
)
async def test_unusable_files_are_named(folder: Path, authority: Authority, option: str) -> None:
    """Certificate files that do not exist, are invalid or do not match are named."""
    (folder / "ours.txt").write_text("not a certificate")
    _, foreign = authority.certify("foreign")
    option = option.format(folder, authority.certify("client")[0], foreign)
    error = await _refusal(f"rediss://127.0.0.1:1?{option}")
    assert "TLS files of its URL cannot be used" in error.problem
    assert str(folder) in error.advice


async def test_closing_does_not_wait_for_a_frozen_peer(server: Valkey, authority: Authority) -> None:
    """A peer that does not answer TLS's close delays closing by one timeout, not by TLS's own 30 s."""
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        async with node_client(f"rediss://{forwarder.address}?ca={authority.ca}&timeout=0.1") as client:
            await client.call("PING")
            forwarder.gate.clear()
            frozen = [client.call("GET", "anything")]
            begun = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun < 10
        await asyncio.gather(*frozen, return_exceptions=True)


@needs_debian
@pytest.mark.on_both_loops
async def test_debian_redis_with_tls(debian: DebianRedis, authority: Authority) -> None:
    """Debian's Redis 7 is reached over TLS by the name in its certificate."""
    async with node_client(
        f"rediss://:{debian.password}@localhost:{debian.tls_port}?ca={authority.ca}"
    ) as client:
        assert await client.call("PING") == b"PONG"
        async with client.subscribe("news") as messages:
            await client.call("PUBLISH", "news", "hello")
            assert (await anext(messages)).data == b"hello"


@needs_debian
async def test_debian_redis_plain_and_tls_mixed_up(debian: DebianRedis, authority: Authority) -> None:
    """On Debian's Redis, too, TLS on the plain port and plain on the TLS port say what to use."""
    error = await _refusal(f"rediss://localhost:{debian.port}?ca={authority.ca}&connect_timeout=1")
    assert "speak TLS on this port" in error.advice
    error = await _refusal(f"redis://localhost:{debian.tls_port}")
    assert "rediss://" in error.advice


@needs_debian
async def test_debian_redis_requires_a_client_certificate(authority: Authority) -> None:
    """Debian's Redis with `tls-auth-clients yes` takes the certificate in the URL and refuses without it."""
    certificate, private = authority.certify("client")
    with DebianRedis(authority, client_certificates=True) as redis:
        url = f"rediss://:{redis.password}@localhost:{redis.tls_port}?ca={authority.ca}"
        async with node_client(f"{url}&cert={certificate}&key={private}") as client:
            assert await client.call("PING") == b"PONG"
        error = await _refusal(url)
    assert "cert=" in error.advice


async def test_the_name_in_the_certificate_may_be_given(server: Valkey, authority: Authority) -> None:
    """`server_name` is what the certificate must name; `verify=ca` needs a trusted authority alone."""
    async with forwarding(server, tls=authority.server_context("redis.internal")) as forwarder:
        url = f"rediss://{forwarder.address}?ca={authority.ca}"
        assert "certificate is not trusted" in (await _refusal(url)).problem
        assert "certificate is not trusted" in (await _refusal(f"{url}&server_name=other.internal")).problem
        for option in ("server_name=redis.internal", "verify=ca", "verify=full&server_name=redis.internal"):
            async with node_client(f"{url}&{option}") as client:
                assert await client.call("PING") == b"PONG"


async def test_no_option_skips_verification(server: Valkey, authority: Authority, folder: Path) -> None:
    """Another authority's certificate is refused whatever `verify` says; `verify=none` does not exist."""
    other = Authority(folder, "another")
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        for verify in ("full", "ca"):
            refused = await _refusal(f"rediss://{forwarder.address}?ca={other.ca}&verify={verify}")
            assert "certificate is not trusted" in refused.problem
    with pytest.raises(InvalidUrl, match="there is no way to skip verification"):
        parse_url("rediss://localhost?verify=none")


async def test_replaced_files_are_used_on_reconnection(
    server: Valkey, authority: Authority, folder: Path
) -> None:
    """A server whose certificate comes from a new authority is refused until the file names it, then used."""
    successor, ca = Authority(folder, "successor"), folder / "replaced-ca.pem"
    ca.write_bytes(authority.ca.read_bytes())
    context = authority.server_context("127.0.0.1")
    async with forwarding(server, tls=context) as forwarder:
        async with node_client(f"rediss://{forwarder.address}?ca={ca}") as client:
            context.load_cert_chain(*successor.certify("successor-server", "127.0.0.1"))
            forwarder.cut()
            await eventually(lambda: "certificate is not trusted" in client.link._problem)
            assert not client.up
            ca.write_bytes(successor.ca.read_bytes())
            await eventually(lambda: client.up)
            assert await client.call("PING") == b"PONG"
