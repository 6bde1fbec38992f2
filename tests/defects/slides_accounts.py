"""Users of slides in the test's own process."""

from __future__ import annotations

from typing import Any

import httpx

from tests.defects.service_apps import App
from tests.services.slides_users import OPERATOR, credentials


class User:
    """A signed-in user."""

    def __init__(self, app: App, cookie: str, account: dict[str, Any]) -> None:
        self.app = app
        self.headers = {"cookie": cookie}
        self.account = account

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request with the session's cookie."""
        return await self.app.ask(method, path, headers=self.headers, **more)

    async def want(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The body of an answer that must have this status."""
        answer = await self.ask(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


async def sign_in(app: App, email: str, **form: str) -> User:
    """Sign in to the organization that an address is named for, or to another one."""
    answer = await app.ask("POST", "/auth/login", json={**credentials(email), **form})
    assert answer.status_code == 200, answer.text
    return User(app, answer.headers["set-cookie"].partition(";")[0], answer.json())


async def set_plan(user: User, plan: str, **more: Any) -> None:
    """Change the plan of a user's organization, as the operator."""
    path = f"/operator/organizations/{user.account['organization_id']}/plan"
    answer = await user.app.ask("PUT", path, headers=OPERATOR, json={"plan": plan, **more})
    assert answer.status_code == 200, answer.text
