"""The frame around every page: header, navigation, theme and the banner of problems.

The browser loads once for all pages: navigation replaces the content in the middle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from nicegui import Client, PageArguments, background_tasks, core, ui

from ephemera.console._access import SignIn
from ephemera.console._actions import Actor
from ephemera.console._components import empty, problem
from ephemera.console._console import Console
from ephemera.console._guard import SIGNED_IN
from ephemera.console._problems import ProblemBanner
from ephemera.console._view import ConsolePage, View

log = logging.getLogger(__name__)
_BANNER_INTERVAL = 2.0  # seconds
_THEMES = {
    None: ("brightness_auto", "Follow the system"),
    True: ("dark_mode", "Dark"),
    False: ("light_mode", "Light"),
}
_NEXT = {None: True, True: False, False: None}


class Shell:
    """The pages of a console in a signed-in browser."""

    def __init__(self, console: Console, pages: tuple[ConsolePage, ...]) -> None:
        self._console = console
        self._pages = pages

    def root(self) -> None:
        """Draw one browser's page, for any path."""
        client = ui.context.client
        signed_in: SignIn | None = client.request.scope.get(SIGNED_IN)
        if signed_in is None:  # the guard refuses such requests
            raise PermissionError("not signed in")
        client.on_delete(signed_in.when_ended(lambda: _leave(client)))
        actor = Actor(signed_in, client.ip, self._console.allow_actions)
        ui.add_head_html('<link rel="stylesheet" href="/assets/console.css" />')
        ui.add_head_html('<script src="/assets/signed_in.js" defer></script>')
        ui.colors(
            primary="#2f6fdb", positive="#1f8a4c", negative="#c8323b", warning="#b26a00", info="#2f6fdb"
        )
        dark = ui.dark_mode(signed_in.dark)
        links: dict[str, ui.link] = {}
        # Closed on the server; a wide enough browser opens it by itself.
        nav = ui.left_drawer(value=False, bordered=True).props("width=232 breakpoint=860 show-if-above")
        with nav.classes("e-nav"):
            self._navigation(links, actor)
        with ui.header().classes("e-header"):
            ui.button(icon="menu", on_click=nav.toggle).props(
                'flat round dense aria-label="Navigation"'
            ).classes("e-menu")
            ui.image("/assets/mark.svg").classes("e-mark").props('no-spinner alt=""')
            ui.label("Ephemera").classes("e-brand")
            ui.element("div").classes("e-space")
            acts = actor.refusal("operate") is None
            ui.label("actions allowed" if acts else "read-only").classes(
                f"e-badge e-{'warn' if acts else 'plain'} e-wide"
            )
            self._theme(signed_in, dark)
            self._account(signed_in)
        with ui.element("main").classes("e-main").props('id="content"'):
            problems = ProblemBanner(self._console.services)
            routes = {page.path: self._opening(page, actor, problems, links) for page in self._pages}
            ui.sub_pages(routes, show_404=False)
        ui.timer(_BANNER_INTERVAL, lambda: self._refresh(signed_in, problems))

    def _refresh(self, signed_in: SignIn, problems: ProblemBanner) -> None:
        self._console.access.used(signed_in)
        problems.update()

    def _navigation(self, links: dict[str, ui.link], actor: Actor) -> None:
        with ui.element("nav").props('aria-label="Pages"'):
            for page in self._pages:
                if page.listed:
                    links[page.path] = link = ui.link(target=page.path).classes("e-nav-link")
                    with link:
                        ui.icon(page.icon, size="20px").props('aria-hidden="true"')
                        ui.label(page.title)
        ui.element("div").classes("e-space")
        with ui.element("div").classes("e-nav-foot"):
            for service in self._console.services:
                ui.label(service.name).classes("e-nav-service")
            ui.label(f"Signed in as {actor.signed_in.user}, role {actor.signed_in.role}")

    def _opening(
        self, page: ConsolePage, actor: Actor, problems: ProblemBanner, links: dict[str, ui.link]
    ) -> Callable[[PageArguments], None]:
        def open_page(arguments: PageArguments) -> None:
            if arguments.remaining_path.strip("/"):
                ui.page_title("Not found · Ephemera")
                with ui.element("div").classes("e-page"):
                    empty("Page not found", "Choose a page in the navigation.", icon="explore_off")
                return
            problems.reset()
            for path, link in links.items():
                current = path == page.path
                link.classes(add="e-here" if current else "", remove="" if current else "e-here")
                link.props('aria-current="page"' if current else "", remove="" if current else "aria-current")
            ui.page_title(f"{page.title} · Ephemera")
            view = View(self._console, actor, dict(arguments.query_parameters), problems)
            with ui.element("div").classes("e-page") as body:
                try:
                    page.build(view)
                except Exception:
                    log.exception("a page could not be drawn", extra={"page": page.path})
                    body.clear()
                    with body:
                        problem("This page could not be shown", "See the console's log.")

        open_page.__annotations__["arguments"] = PageArguments  # NiceGUI needs the type, not its name
        return open_page

    def _theme(self, signed_in: SignIn, dark: ui.dark_mode) -> None:
        def label() -> str:
            return f'aria-label="Theme: {_THEMES[signed_in.dark][1]}"'

        def switch() -> None:
            signed_in.dark = _NEXT[signed_in.dark]
            dark.value = signed_in.dark
            button.props(f"icon={_THEMES[signed_in.dark][0]} {label()}")
            tip.text = f"Theme: {_THEMES[signed_in.dark][1]}"

        button = ui.button(icon=_THEMES[signed_in.dark][0], on_click=switch).props(
            f"flat round dense {label()}"
        )
        with button:
            tip = ui.tooltip(f"Theme: {_THEMES[signed_in.dark][1]}")

    def _account(self, signed_in: SignIn) -> None:
        with ui.element("form").props('method="post" action="/sign-out"').classes("e-account"):
            ui.label(signed_in.user).classes("e-wide e-user")
            with ui.button(icon="logout").props('flat round dense type="submit" aria-label="Sign out"'):
                ui.tooltip("Sign out")


def _leave(client: Client) -> None:
    """Send a browser to the sign-in form after its sign-in ended."""
    background_tasks.create(_open_sign_in(client), name=f"sign out {client.id}")


async def _open_sign_in(client: Client) -> None:
    # Not `client.open`: deleting the client drops its pending messages.
    await core.sio.emit("open", {"path": "/sign-in", "new_tab": False}, room=client.id)
    if not client.is_deleted:
        client.delete()
