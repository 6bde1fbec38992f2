"""Secrets stay where they belong: not in logs, not in Redis, not in errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg

from ephemera.embedded import Postgres, Valkey
from tests.services.identity_users import ADMIN, QUICK, UNLIMITED, newcomer
from tests.services.services import COMMAND, Served, environment, serving

CANARY = "canary7f3d9a1b"
KEY_PASSWORD = "canary-of-the-keys"


def test_no_secret_reaches_the_log(places: dict[str, str], tmp_path: Path, postgres: Postgres) -> None:
    """Passwords, tokens, e-mail addresses, queries and paths that were planted are in no line, nor URLs."""
    own = {
        "EPHEMERA_DATABASE_URL": postgres.database("secrets_in_logs"),
        "EPHEMERA_IDENTITY_KEY_PASSWORD": KEY_PASSWORD,
        "EPHEMERA_LOG_LEVEL": "debug",
    }
    with serving("identity", tmp_path, **{**places, **QUICK, **UNLIMITED, **own}) as served:
        ann = newcomer(served)
        ask = served.client.request
        secrets = [CANARY, ADMIN["password"], KEY_PASSWORD, ann.email, *map(str, ann.tokens.values())]
        secrets = [each for each in secrets if len(each) > 10]
        ask("POST", "/auth/login", json={"email": f"{CANARY}@example.com", "password": CANARY})
        ask("POST", "/auth/login", json={"email": CANARY, "password": [CANARY]})
        ask("POST", "/auth/register", json={"email": ann.email, "password": CANARY * 2, "first_name": CANARY})
        form = {"email": ann.email, "password": CANARY * 2, "first_name": CANARY, "last_name": CANARY}
        ask("POST", "/auth/register", json=form)
        ask("POST", "/auth/refresh", json={"refresh_token": CANARY})
        ask("GET", f"/{CANARY}?token={CANARY}", headers={"authorization": f"Bearer {CANARY}"})
        ask(
            "GET",
            f"/api/profiles/{CANARY}?{CANARY}",
            headers={"cookie": CANARY, "x-request-id": f"{CANARY} x"},
        )
        assert ann.profile().status_code == 200
        assert ann.refresh().status_code == 200
        log = served.log.read_text()
        lines = served.lines()
    assert [secret for secret in secrets if secret in log] == []
    requests = [line for line in lines if line["message"] == "request"]
    assert len({line["request_id"] for line in requests}) == len(requests) >= 9
    refused = {"method": "POST", "route": "/auth/refresh", "status": 401, "level": "info"}
    assert any(refused.items() <= line.items() for line in requests)


def test_redis_holds_no_usable_secret(identity: Served, valkey: Valkey) -> None:
    """Everything in Redis, keys and values, holds no token, no password and no signature of one."""
    ann = newcomer(identity)
    ann.profile()
    ann.refresh()
    texts = []
    for key in valkey.ask("KEYS", "*"):  # type: ignore[attr-defined]
        texts.append(str(key))
        if valkey.ask("TYPE", key) == "string":
            texts.append(str(valkey.ask("GET", key)))
    everything = "\n".join(texts)
    assert ann.id in everything
    for token in (ann.tokens["access_token"], ann.tokens["refresh_token"]):
        assert token not in everything
        assert token.rpartition(".")[2] not in everything


def test_private_keys_are_encrypted_in_sql(
    places: dict[str, str], tmp_path: Path, postgres: Postgres
) -> None:
    """SQL holds no plain key; a start with another one is refused, and says why."""
    database = postgres.database("encrypted_keys")
    own = {**places, **QUICK, "EPHEMERA_DATABASE_URL": database}
    with serving("identity", tmp_path, **own, EPHEMERA_IDENTITY_KEY_PASSWORD=KEY_PASSWORD) as served:
        assert newcomer(served).profile().status_code == 200
    with psycopg.connect(database) as sql:
        (pem,) = sql.execute("SELECT pem FROM identity.signing_keys").fetchone() or (b"",)
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in pem
    for wrong in ("", "not-the-password"):
        variables = {**own, "EPHEMERA_IDENTITY_KEY_PASSWORD": wrong}
        done = subprocess.run(
            [COMMAND, "serve", "identity", "--port", "1"],
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        assert "EPHEMERA_IDENTITY_KEY_PASSWORD" in done.stderr
        assert "not-the-password" not in done.stderr
