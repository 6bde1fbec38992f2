"""Tour of the console: without the password there is no access."""

from __future__ import annotations

from ephemera_services.demo.console import USER
from ephemera_services.demo.tour.steps import Step, StepContext


async def _requires_password(context: StepContext) -> None:
    form = {"user": USER, "password": "a wrong guess", "next": "/"}
    origin = {"origin": context.demo.plan.urls["console"]}
    async with context.client("console") as client:
        anonymous = await client.request("GET", "/")
        context.check(anonymous.status_code != 200, "anyone can open the console")
        context.report("GET / without signing in", anonymous.status_code)
        refused = await client.request("POST", "/sign-in", data=form, headers=origin)
        context.check(refused.status_code == 401, f"a wrong password: {refused.status_code}")
        context.report("a wrong password", refused.status_code)
        form["password"] = context.demo.plan.console_password
        accepted = await client.request("POST", "/sign-in", data=form, headers=origin)
        context.check(accepted.status_code == 303, f"the right password: {accepted.status_code}")
        page = await client.request("GET", "/")
        context.check(page.status_code == 200 and "Ephemera" in page.text, f"the page: {page.status_code}")
        context.report("the right password, then GET /", page.status_code)


STEPS = (Step("console", "the console requires its password", _requires_password),)
