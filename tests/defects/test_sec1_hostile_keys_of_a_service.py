"""SEC1: a key of identity that held another type was a 500; `make fuzz` has the long version."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import ADMIN, opened
from tests.fuzz.hostile_keys import corrupt
from tests.services.slides_users import ADMIN as ADMINISTRATOR
from tests.services.slides_users import credentials

pytestmark = pytest.mark.standalone("it overwrites the keys of one server")


def _index(server: Valkey) -> str:
    """The key of the only index of sessions."""
    found: Any = server.ask("KEYS", "session_index:*")
    assert len(found) == 1
    return str(found[0])


async def test_sec1_keys_of_another_type_give_no_500(server: Valkey, postgres: Postgres) -> None:
    """A list of sign-ins needs SQL alone; what cannot do without Redis is a 503."""
    async with opened("identity", server, postgres) as identity:
        signed = await identity.ask("POST", "/auth/login", json=ADMIN)
        headers = {"authorization": f"Bearer {signed.json()['access_token']}"}
        index = _index(server)
        profile = f"/api/profiles/{index.partition(':')[2]}"
        assert (await identity.ask("GET", profile, headers=headers)).status_code == 200
        for value in (b"", b"9" * 5000, b"[" * 100_000, b"\xff\xfe", b"inf"):
            assert corrupt(server, Random(1), [value], 1.0)
            for path in ("/auth/sessions", profile):
                answer = await identity.ask("GET", path, headers=headers)
                assert answer.status_code < 500 or answer.status_code == 503, (path, value[:9], answer.text)
        for key in server.ask("KEYS", "session_index:*"):  # type: ignore[attr-defined]
            server.ask("DEL", key)
            server.ask("ZADD", key, "1e300", "[[[", "1e300", "x" * 50)
            answer = await identity.ask("GET", "/auth/sessions", headers=headers)
            assert answer.status_code == 200, answer.text
            server.ask("DEL", key)
            server.ask("HSET", key, "another", "type")
        answer = await identity.ask("GET", "/auth/sessions", headers=headers)
        assert answer.status_code == 200, answer.text


async def test_sec1_a_hostile_index_prevents_no_sign_in_and_no_sign_out(
    server: Valkey, postgres: Postgres
) -> None:
    """Members of an index that another program wrote are removed by either, and were a 500 of both."""
    async with opened("identity", server, postgres) as identity:
        for score in ("inf", "1e300"):
            signed = await identity.ask("POST", "/auth/login", json=ADMIN)
            assert signed.status_code == 200, signed.text
            headers = {"authorization": f"Bearer {signed.json()['access_token']}"}
            index = _index(server)
            server.ask("ZADD", index, score, b"!\xff")  # type: ignore[arg-type]
            user = index.partition(":")[2]
            again = await identity.ask("POST", "/auth/login", json=ADMIN)
            assert again.status_code == 200, again.text
            ended = await identity.ask("DELETE", f"/admin/users/{user}/sessions", headers=headers)
            assert ended.status_code < 300, ended.text
            gone = await identity.ask("GET", f"/api/profiles/{user}", headers=headers)
            assert gone.status_code == 401, gone.text


_FORGED = {"user_id": "x", "organization_id": "1", "role": "king", "last_active": "2026-01-01T00:00:00"}


@pytest.mark.parametrize("field", _FORGED)
async def test_sec1_a_session_that_is_not_ours_is_none(
    server: Valkey, postgres: Postgres, field: str
) -> None:
    """A session with an id, a role or a time that slides never writes is 401, and not an exception."""
    async with opened("slides", server, postgres) as slides:
        signed = await slides.ask("POST", "/auth/login", json=credentials(ADMINISTRATOR))
        cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        assert (await slides.ask("GET", "/auth/me", headers=cookie)).status_code == 200
        for key in server.ask("KEYS", "session:*"):  # type: ignore[attr-defined]
            server.ask("HSET", key, field, _FORGED[field])
        answer = await slides.ask("GET", "/auth/me", headers=cookie)
        assert answer.status_code == 401, answer.text
