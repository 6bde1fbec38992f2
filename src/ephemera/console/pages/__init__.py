"""Every page of the console, in the order of the navigation."""

from ephemera.console.page import Page
from ephemera.console.pages import (
    audit,
    jobs,
    keyspaces,
    limits,
    locks,
    overview,
    planner,
    sessions,
    space,
    streams,
    write_behind,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    keyspaces.PAGE,
    space.PAGE,
    sessions.PAGE,
    limits.PAGE,
    jobs.PAGE,
    streams.PAGE,
    locks.PAGE,
    write_behind.PAGE,
    planner.PAGE,
    audit.PAGE,
)
