"""The console on tour: it lets nobody in without the password, and answers who has it."""

from __future__ import annotations

from ephemera_services.demo.console import USER
from ephemera_services.demo.tour.guide import Guide, Step


async def _answers(guide: Guide) -> None:
    form = {"user": USER, "password": "a wrong guess", "next": "/"}
    origin = {"origin": guide.stage.cast.urls["console"]}
    async with guide.visitor("console") as visitor:
        stranger = await visitor.ask("GET", "/")
        guide.hold(stranger.status_code != 200, "a stranger was let in")
        guide.tell("GET / without a sign-in", stranger.status_code)
        refused = await visitor.ask("POST", "/sign-in", data=form, headers=origin)
        guide.hold(refused.status_code == 401, f"a wrong password: {refused.status_code}")
        guide.tell("a wrong password", refused.status_code)
        form["password"] = guide.stage.cast.console_password
        taken = await visitor.ask("POST", "/sign-in", data=form, headers=origin)
        guide.hold(taken.status_code == 303, f"the right password: {taken.status_code}")
        page = await visitor.ask("GET", "/")
        guide.hold(page.status_code == 200 and "Ephemera" in page.text, f"the page: {page.status_code}")
        guide.tell("the right one, and GET /", page.status_code)


STEPS = (Step("console", "it answers who has the password, and nobody else", _answers),)
