"""Tour of the console: without the password there is no access."""

from __future__ import annotations

from ephemera_services.demo.console import USER
from ephemera_services.demo.tour.guide import Guide, Step


async def _requires_password(guide: Guide) -> None:
    form = {"user": USER, "password": "a wrong guess", "next": "/"}
    origin = {"origin": guide.demo.plan.urls["console"]}
    async with guide.visitor("console") as visitor:
        anonymous = await visitor.request("GET", "/")
        guide.check(anonymous.status_code != 200, "anyone can open the console")
        guide.report("GET / without signing in", anonymous.status_code)
        refused = await visitor.request("POST", "/sign-in", data=form, headers=origin)
        guide.check(refused.status_code == 401, f"a wrong password: {refused.status_code}")
        guide.report("a wrong password", refused.status_code)
        form["password"] = guide.demo.plan.console_password
        accepted = await visitor.request("POST", "/sign-in", data=form, headers=origin)
        guide.check(accepted.status_code == 303, f"the right password: {accepted.status_code}")
        page = await visitor.request("GET", "/")
        guide.check(page.status_code == 200 and "Ephemera" in page.text, f"the page: {page.status_code}")
        guide.report("the right password, then GET /", page.status_code)


STEPS = (Step("console", "the console requires its password", _requires_password),)
