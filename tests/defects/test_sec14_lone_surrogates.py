"""SEC14: a lone surrogate in a password was a 500."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import NewPassword, RequestBody
from ephemera_services.slides.forms import NewUser
from tests.defects.service_apps import App, opened

_REFUSED = {400, 422}  # malformed for the middleware, or invalid for the form
_JSON = {"content-type": "application/json"}
_PASSWORDS = (r"\ud800 and more text", r"a NUL \u0000 in the text", "x" * 129)
_NAMES = '"first_name": "A", "last_name": "B"'


async def _statuses(app: App, path: str, *bodies: str) -> set[int]:
    return {
        (await app.ask("POST", path, content=body.encode(), headers=_JSON)).status_code for body in bodies
    }


async def test_sec14_identity_refuses_them(server: Valkey, postgres: Postgres) -> None:
    """Passwords with lone surrogates or NULs, and too long ones, are refused, and so are names and fields."""
    async with opened("identity", server, postgres) as app:
        login = [f'{{"email": "a@example.com", "password": "{each}"}}' for each in _PASSWORDS]
        assert await _statuses(app, "/auth/login", *login) <= _REFUSED
        new = [f'{{"email": "a@example.com", "password": "{each}", {_NAMES}}}' for each in _PASSWORDS]
        assert await _statuses(app, "/auth/register", *new) <= _REFUSED
        odd = r'{"email": "a@example.com", "password": "long enough", "\ud800": 1}'
        assert await _statuses(app, "/auth/login", odd, r'{"refresh_token": "\ud800"}') <= _REFUSED
        assert await _statuses(app, "/auth/refresh", r'{"refresh_token": "\ud800"}') <= _REFUSED


async def test_sec14_league_refuses_them(server: Valkey, postgres: Postgres) -> None:
    """The same for the league."""
    async with opened("league", server, postgres) as app:
        bodies = [f'{{"name": "ann", "password": "{each}"}}' for each in _PASSWORDS]
        assert await _statuses(app, "/api/session", *bodies) <= _REFUSED
        assert await _statuses(app, "/api/users", *bodies) <= _REFUSED


def test_sec14_every_form_refuses_text_that_utf8_cannot_encode() -> None:
    """Wherever it is: in a name, in a nested text, in a password."""

    class Form(RequestBody):
        texts: dict[str, list[str]]
        password: NewPassword

    assert Form(texts={"ä": ["日本", "😀"]}, password="pässwörd 😀 €").password  # type: ignore[arg-type]
    for texts in ({"\ud800": ["a"]}, {"a": ["\udfff"]}):
        with pytest.raises(ValidationError, match="lone surrogate"):
            Form(texts=texts, password="long enough")  # type: ignore[arg-type]


async def test_sec14_slides_refuses_them(server: Valkey, postgres: Postgres) -> None:
    """The same for slides: at the sign-in, and for a user whom an administrator creates."""
    async with opened("slides", server, postgres) as app:
        account = '"organization": "Company", "email": "anna@company.example"'
        bodies = [f'{{{account}, "password": "{each}"}}' for each in _PASSWORDS]
        odd = r'{"organization": "\ud800", "email": "anna@company.example", "password": "long enough"}'
        assert await _statuses(app, "/auth/login", *bodies, odd) <= _REFUSED
        for each in _PASSWORDS[:2]:
            form = {"email": "a@company.example", "password": json.loads(f'"{each}"'), "role": "viewer"}
            with pytest.raises(ValidationError):
                NewUser.model_validate(form)
