"""Secrets in URLs and settings are in no repr, no error, and nothing that a command says."""

from __future__ import annotations

import subprocess
from importlib import import_module

import msgspec
import pytest

from ephemera import Catalogue, connect
from ephemera.errors import CannotConnect
from ephemera.wire import open_client, parse_url
from ephemera_services.runtime import InvalidSettings, read_settings, variable_names
from tests.security.guarded import CANARY, SYSTEMS
from tests.services.services import COMMAND, environment

NOWHERE = f"redis://user:{CANARY}@127.0.0.1:1"
NO_DATABASE = f"postgresql://user:{CANARY}@127.0.0.1:1/none"


@pytest.mark.parametrize("system", SYSTEMS)
def test_settings_show_no_secret(system: str) -> None:
    """A secret is neither in the repr of a service's settings nor in their validation errors."""
    settings = import_module(f"ephemera_services.{system}.app").Settings
    names = variable_names(settings)
    secret = [names[field.name] for field in msgspec.structs.fields(settings) if "Secret" in str(field.type)]
    assert {"EPHEMERA_URL", "EPHEMERA_DATABASE_URL", "EPHEMERA_METRICS_TOKEN"} <= set(secret)
    given = dict.fromkeys(secret, CANARY)
    given |= {"EPHEMERA_URL": NOWHERE, "EPHEMERA_QUEUE_URL": NOWHERE, "EPHEMERA_DATABASE_URL": NO_DATABASE}
    assert CANARY not in repr(read_settings(settings, given))
    with pytest.raises(InvalidSettings) as wrong:
        read_settings(
            settings, {**given, "EPHEMERA_URL": f"redsi://:{CANARY}@host", "EPHEMERA_LOG_LEVEL": "loud"}
        )
    assert CANARY not in str(wrong.value)


async def test_clients_and_their_errors_show_no_password() -> None:
    """A URL's password is in no repr of what is made from it, nor in why it could not connect."""
    assert CANARY not in repr(parse_url(NOWHERE))
    with pytest.raises(CannotConnect) as failed:
        async with open_client(NOWHERE):
            pytest.fail("it must not open")
    assert CANARY not in f"{failed.value} {failed.value!r} {failed.value.__cause__!r}"
    async with connect(NOWHERE, Catalogue("x"), required=False) as store:
        assert CANARY not in repr(store) + repr(store.client("cache")) + repr(store.client("cache").nodes())


COMMANDS = (
    ("audit", "--url", NOWHERE, "--catalogue", "identity"),
    ("doctor", "--url", NOWHERE),
    ("mark", "--url", NOWHERE),
    ("locks", "list", "league", "--url", NOWHERE),
    ("jobs", "list", "slides", "--database-url", NO_DATABASE),
    ("serve", "identity", "--port", "1"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_that_cannot_connect_show_no_password(words: tuple[str, ...]) -> None:
    """A command that does not reach a server fails, says which, and not with what it tried."""
    variables = {"EPHEMERA_URL": NOWHERE, "EPHEMERA_DATABASE_URL": NO_DATABASE} if words[0] == "serve" else {}
    done = subprocess.run(
        [COMMAND, *words],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert (
        "127.0.0.1:1" in done.stdout + done.stderr
        or "did not start" in done.stderr
        or "database" in done.stderr
    )
    assert CANARY not in done.stdout + done.stderr
