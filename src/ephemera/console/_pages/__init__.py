"""Every page of the console, in the order of the navigation."""

from ephemera.console._pages import _audit as audit
from ephemera.console._pages import _browser as browser
from ephemera.console._pages import _jobs as jobs
from ephemera.console._pages import _keyspace as keyspace
from ephemera.console._pages import _keyspaces as keyspaces
from ephemera.console._pages import _limits as limits
from ephemera.console._pages import _locks as locks
from ephemera.console._pages import _overview as overview
from ephemera.console._pages import _planner as planner
from ephemera.console._pages import _servers as servers
from ephemera.console._pages import _sessions as sessions
from ephemera.console._pages import _streams as streams
from ephemera.console._pages import _write_behind as write_behind
from ephemera.console._view import ConsolePage

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    servers.PAGE,
    keyspaces.PAGE,
    keyspace.PAGE,
    browser.PAGE,
    sessions.PAGE,
    limits.PAGE,
    jobs.PAGE,
    streams.PAGE,
    locks.PAGE,
    write_behind.PAGE,
    planner.PAGE,
    audit.PAGE,
)
