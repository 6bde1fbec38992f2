"""SEC18: creating a user with another tenant's address was a 409, and kept the tenant from using it."""

from __future__ import annotations

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import opened
from tests.defects.slides_accounts import sign_in
from tests.services.slides_users import EDITOR, FREE, credentials

_PASSWORD = "another one altogether"


async def test_sec18_an_address_belongs_to_each_tenant(server: Valkey, postgres: Postgres) -> None:
    """A tenant creates any address, without learning of others' and without taking it from them."""
    async with opened("slides", server, postgres) as app:
        ivan = await sign_in(app, FREE)
        for email in (EDITOR, "nobody@company.example"):
            form = {"email": email, "password": _PASSWORD, "role": "viewer"}
            await ivan.want(201, "POST", "/admin/users", json=form)
        assert (await ivan.ask("POST", "/admin/users", json=form)).status_code == 409, "their own"
        theirs = await sign_in(app, EDITOR, organization="Studio", password=_PASSWORD)
        anna = await sign_in(app, EDITOR)
        assert anna.account["user_id"] != theirs.account["user_id"]
        assert (anna.account["role"], theirs.account["role"]) == ("editor", "viewer")
        wrong = [
            credentials(EDITOR, _PASSWORD),
            {**credentials(EDITOR), "organization": "Studio"},
            {**credentials(EDITOR), "organization": "Nowhere"},
            credentials("unknown@company.example"),
        ]
        answers = [await app.ask("POST", "/auth/login", json=form) for form in wrong]
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.text for answer in answers}) == 1
