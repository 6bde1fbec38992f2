"""SEC20: identity's signing key was stored unencrypted unless a setting was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from ephemera.embedded import Postgres, Valkey
from ephemera_services.identity import Settings, create_app
from ephemera_services.identity.signing_keys import key_password
from ephemera_services.runtime import InvalidSettings, Secret
from tests.defects.service_apps import opened


def test_sec20_without_a_password_it_does_not_start() -> None:
    """With a database of its own, outside development, the setting is required."""
    with pytest.raises(InvalidSettings, match="EPHEMERA_IDENTITY_KEY_PASSWORD must be set"):
        create_app(Settings(database_url=Secret("postgresql://127.0.0.1/identity")))


async def test_sec20_in_development_the_key_is_encrypted_too(server: Valkey, postgres: Postgres) -> None:
    """SQL never has a plain key."""
    async with opened("identity", server, postgres) as app, app.service.engine.connect() as sql:
        (pem,) = (await sql.execute(text("SELECT pem FROM identity.signing_keys"))).one()
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in bytes(pem)


def test_sec20_an_embedded_database_has_a_password_of_its_own(tmp_path: Path) -> None:
    """It is random, stays the same as long as the data, and only its user can read it."""
    kept = Settings(data=str(tmp_path))
    assert key_password(kept) == key_password(kept)
    (stored,) = tmp_path.rglob("key_password")
    assert stored.stat().st_mode & 0o777 == 0o600
    assert key_password(Settings()) != key_password(Settings())
