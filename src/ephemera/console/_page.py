"""A page of the console: where it is, what it is called, and what draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ephemera.console._view import View


@dataclass(frozen=True, slots=True)
class Page:
    """One page; `pages.PAGES` lists them in the order of the navigation."""

    path: str
    title: str
    icon: str
    """A name of Material Icons."""
    build: Callable[[View], None]
    """Draws it, quickly: it must not wait for a server, see `View.every`."""
    listed: bool = True
    """Whether the navigation shows it."""
