"""The sign-in page: a plain form without a script, so that a WebSocket needs a sign-in."""

from __future__ import annotations

import html
import logging
from dataclasses import replace
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ephemera.console._access import ConsoleAccess
from ephemera.console._known_browsers import MAX_AGE
from ephemera.web import ClientAddress, Cookie

log = logging.getLogger("ephemera.console.access")
_MAX_FORM = 4096  # bytes of a form
_MAX_USER = 100  # characters of a user's name that the form is filled with again
_RETRY_AFTER = 2  # seconds
_TOO_MANY = (
    "Too many others try to sign in from your address. Try again, or open the link that the console's log "
    "has with this refusal: others do not delay a browser that opened it."
)
_PAGE = Template(files("ephemera.console").joinpath("assets", "sign_in.html").read_text(encoding="utf-8"))


class SignInRoutes:
    """The sign-in form, its submission, and sign-out."""

    def __init__(self, access: ConsoleAccess, cookie: Cookie, client: ClientAddress) -> None:
        self._access = access
        self._cookie = cookie
        self._browser_cookie = replace(cookie, name=f"{cookie.name}-browser", persistent=True)
        self._client = client
        self.routes = [
            Route("/sign-in", self.form, methods=["GET"]),
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
            Route("/signed-in", self.signed_in, methods=["GET"]),
        ]

    async def form(self, request: Request) -> Response:
        """The empty form; the link of the log makes the browser known first."""
        browser = request.query_params.get("browser")
        if browser is not None and self._access.browsers.is_invitation(browser):
            response = RedirectResponse("/sign-in", 303)
            self._make_known(response, browser)
            return response
        return _page(request.query_params.get("next", ""), self._access.suggested_user)

    async def sign_in(self, request: Request) -> Response:
        """Redirect to the requested page, or show the form with the error."""
        fields = await _form(request)
        address = self._client.address(request.scope)
        browser = self._browser_cookie.find(request.scope["headers"])
        next_path = fields.get("next", "")
        user, password = fields.get("user", ""), fields.get("password", "")
        known = self._access.browsers.subject(browser, user)
        counted_by = known or self._client.network(request.scope)
        shown = user[:_MAX_USER] or self._access.suggested_user
        in_turn = self._access.wait(counted_by) == 0 or await self._access.waiting.wait(
            counted_by, user, password
        )
        if not in_turn:
            link = f"/sign-in?browser={self._access.browsers.invitation}"
            log.warning("sign-in refused: too many attempts", extra={"from": address, "open": link})
            page = _page(next_path, shown, _TOO_MANY, 429)
            page.headers["retry-after"] = str(_RETRY_AFTER)
            return page
        token = self._access.sign_in(user, password, counted_by)
        if token is None:
            log.warning("sign-in refused: wrong user or password", extra={"from": address})
            return _page(next_path, shown, "Wrong user or password.", 401)
        log.info("signed in", extra={"who": user, "from": address})
        response = RedirectResponse(_local(next_path), 303)
        response.headers.append("set-cookie", self._cookie.set(token, 0).decode())
        self._make_known(response, self._access.browsers.issue(user))
        return response

    def _make_known(self, response: Response, value: str) -> None:
        known = self._browser_cookie.set(value, MAX_AGE * 1000)
        response.headers.append("set-cookie", known.decode())

    async def sign_out(self, request: Request) -> Response:
        """End the sign-in, and redirect to the form."""
        token = self._cookie.find(request.scope["headers"])
        signed_in = self._access.find(token)
        self._access.sign_out(token)
        address = self._client.address(request.scope)
        if signed_in is not None:
            log.info("signed out", extra={"who": signed_in.user, "from": address})
        response = RedirectResponse("/sign-in", 303)
        response.headers.append("set-cookie", self._cookie.clear().decode())
        return response

    async def signed_in(self, _: Request) -> Response:
        """204 for a page that asks whether it is still signed in; the guard answers 401 otherwise."""
        return Response(status_code=204)


async def _form(request: Request) -> dict[str, str]:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MAX_FORM:
                return {}
    except ClientDisconnect:
        return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _local(next_path: str) -> str:
    """A safe redirect target: never another site, which two slashes of any kind would name."""
    safe = next_path.startswith("/") and not next_path.startswith(("//", "/\\")) and next_path.isprintable()
    return next_path if safe else "/"


def _page(next_path: str, user: str, error: str = "", status: int = 200) -> HTMLResponse:
    shown = f'<p class="error" role="alert">{html.escape(error)}</p>' if error else ""
    filled = {"next": html.escape(next_path), "user": html.escape(user), "error": shown}
    return HTMLResponse(_PAGE.substitute(filled), status)
