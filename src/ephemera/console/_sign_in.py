"""The sign-in page: a plain form without a script, so that nobody who is not signed in gets a socket."""

from __future__ import annotations

import html
import logging
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ephemera.console._access import Access
from ephemera.web._cookies import Cookie

log = logging.getLogger("ephemera.console._access")
_LONGEST = 4096  # bytes of a form
_PAGE = Template(files("ephemera.console").joinpath("assets", "sign_in.html").read_text(encoding="utf-8"))


class SignInRoutes:
    """The form, what becomes of it, and signing out."""

    def __init__(self, access: Access, cookie: Cookie) -> None:
        self._access = access
        self._cookie = cookie
        self.routes = [
            Route("/sign-in", self.form, methods=["GET"]),
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
            Route("/signed-in", self.signed_in, methods=["GET"]),
        ]

    async def form(self, request: Request) -> Response:
        """The empty form."""
        return _page(request.query_params.get("next", ""), self._access.user)

    async def sign_in(self, request: Request) -> Response:
        """To the page that was wanted, or back to the form with what was wrong."""
        given = await _form(request)
        address = request.client.host if request.client else "unknown"
        following = given.get("next", "")
        if (wait := self._access.wait(address)) > 0:
            log.warning("sign-in refused: too many tries", extra={"from": address})
            told = f"Too many wrong passwords. Try again in {wait:.0f} seconds."
            page = _page(following, self._access.user, told, 429)
            page.headers["retry-after"] = f"{wait:.0f}"
            return page
        token = self._access.sign_in(given.get("user", ""), given.get("password", ""), address)
        if token is None:
            log.warning("sign-in refused: wrong user or password", extra={"from": address})
            return _page(following, self._access.user, "The user or the password is wrong.", 401)
        log.info("signed in", extra={"who": self._access.user, "from": address})
        response = RedirectResponse(_local(following), 303)
        response.headers.append("set-cookie", self._cookie.set(token, 0).decode())
        return response

    async def sign_out(self, request: Request) -> Response:
        """To the form, with everything forgotten."""
        self._access.sign_out(self._cookie.find(request.scope["headers"]))
        address = request.client.host if request.client else "unknown"
        log.info("signed out", extra={"who": self._access.user, "from": address})
        response = RedirectResponse("/sign-in", 303)
        response.headers.append("set-cookie", self._cookie.clear().decode())
        return response

    async def signed_in(self, _: Request) -> Response:
        """Nothing, for a page that asks whether it may stay; who may not has been refused before."""
        return Response(status_code=204)


async def _form(request: Request) -> dict[str, str]:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST:
                return {}
    except ClientDisconnect:
        return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _local(following: str) -> str:
    """Where to go next, never to another site, as two slashes of any kind would name one."""
    safe = following.startswith("/") and not following.startswith(("//", "/\\")) and following.isprintable()
    return following if safe else "/"


def _page(following: str, user: str, told: str = "", status: int = 200) -> HTMLResponse:
    error = f'<p class="error" role="alert">{html.escape(told)}</p>' if told else ""
    filled = {"next": html.escape(following), "user": html.escape(user), "error": error}
    return HTMLResponse(_PAGE.substitute(filled), status)
