"""SEC16: the services answered any Host header, so a foreign page could read them by DNS rebinding."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ephemera.cli import create_app
from ephemera_services.feed import Settings
from ephemera_services.runtime import InvalidSettings, read_settings
from tests.defects.offline_services import NAMES, client_of


@pytest.mark.parametrize("name", NAMES)
async def test_sec16_only_configured_hosts_are_answered(name: str) -> None:
    """By default these are the names of loopback; with a setting, only those that it has."""
    async with client_of(name) as client:
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
            assert (await client.get("/healthz", headers={"host": host})).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "0.0.0.0"):
            assert (await client.get("/healthz", headers={"host": host})).status_code == 421
    async with client_of(name, allowed_hosts=("shop.example",)) as client:
        assert (await client.get("/healthz", headers={"host": "shop.example"})).status_code == 200
        assert (await client.get("/healthz")).status_code == 421


async def test_sec16_a_host_is_a_name_and_a_port() -> None:
    """What would be another host's in a link is refused, even where any name of a domain is accepted."""
    forged = ("shop.example:@evil.example", "shop.example:80@evil.example", "shop.example:", "shop.example:x")
    async with client_of("identity", allowed_hosts=("shop.example", "*.shops.example")) as client:
        assert (await client.get("/healthz", headers={"host": "a.shops.example:8000"})).status_code == 200
        for host in (
            *forged,
            "evil.example/.shops.example",
            "evil.example#.shops.example",
            "a b.shops.example",
        ):
            assert (await client.get("/healthz", headers={"host": host})).status_code == 421, host


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "EPHEMERA_ALLOWED_HOSTS"),
        ({"EPHEMERA_ALLOWED_HOSTS": "shop.example", "EPHEMERA_DEVELOPMENT": "true"}, "EPHEMERA_DEVELOPMENT"),
    ],
)
def test_sec16_other_machines_need_host_names(variables: dict[str, str], message: str) -> None:
    """A service that other machines reach does not start without its names, nor in development."""
    done = CliRunner().invoke(create_app(), ["serve", "identity", "--host", "0.0.0.0"], env=variables)
    assert done.exit_code == 2
    assert message in done.output


def test_sec16_names_are_checked_at_startup() -> None:
    """A URL in place of a name is an error that names its variable."""
    for variable in ("EPHEMERA_ALLOWED_HOSTS", "EPHEMERA_ALLOWED_ORIGINS"):
        with pytest.raises(InvalidSettings, match=f"{variable}: 'https://shop.example/'"):
            read_settings(Settings, {variable: "https://shop.example/"})
