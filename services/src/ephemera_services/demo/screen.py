"""What a demonstration shows: how far the start is, one screen with what runs where, and what happens to it.

In a terminal a last line moves while something takes its time, and tells of the traffic. Elsewhere (a log, a
pipe) everything is printed plain, and such a line every few seconds.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from ephemera.wire import parse_url
from ephemera_services.demo.console import USER
from ephemera_services.demo.flag_errors import SYSTEMS, Given, database_of
from ephemera_services.demo.process_plan import ADMINISTRATOR, Cast
from ephemera_services.demo.processes import Ended, Processes
from ephemera_services.demo.servers import Servers
from ephemera_services.runtime import DEMO_PASSWORD

_ABOUT = {
    "identity": ("/docs", f"accounts, tokens that can be revoked; {ADMINISTRATOR}"),
    "slides": ("/", "presentations, written live; anna@company.example"),
    "scripture": ("/docs", "content, answers, events, an ingest that invalidates exactly"),
    "feed": ("/docs", "what is new, clustered when it is worth it"),
    "league": ("/", "live matches, polled by ETag; referee, ann, bob"),
}


_PLAIN_EVERY = 3.0  # seconds between lines that only say that something goes on
_TRAFFIC_EVERY = 60.0
_PASSWORD_OPTION = re.compile(r"([?&][a-z_]*password=)[^&]*")


class Screen:
    """Prints for people, and for logs."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, emoji=False)
        self._status: Status | None = None
        self._printed = 0.0

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A line that moves while something takes its time; `working_on` changes it."""
        self._printed = time.monotonic()
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(escape(text), refresh_per_second=4) as self._status:
            yield
        self._status = None

    def working_on(self, text: str, every: float = _PLAIN_EVERY) -> None:
        """Change the line that moves; where nothing moves, print it, but not more often than `every`."""
        if self._status is not None:
            self._status.update(escape(text))
        elif time.monotonic() - self._printed >= every:
            self._printed = time.monotonic()
            self.line(f"  [dim]{escape(text)}[/]")

    def line(self, text: str = "") -> None:
        """A line of markup, which is never broken: addresses are copied from here."""
        self.console.print(text, soft_wrap=True)

    def ready(self, seconds: float, processes: Processes) -> None:
        """Everything is up."""
        count = len(processes.all())
        self.line(f"[bold green]●[/] {count} processes run, after {seconds:.1f} s. Ctrl-C stops all of it.")

    def everything(self, cast: Cast, servers: Servers, processes: Processes, given: Given) -> None:
        """The screen: what runs where, and what to try."""
        self.line()
        console = cast.urls["console"]
        self._row(
            "console", f"{console}/", f"sign in as {USER} with [bold]{escape(cast.console_password)}[/]"
        )
        for system in SYSTEMS:
            path, about = _ABOUT[system]
            about += f"; gRPC at {cast.grpc}" if system == "feed" else ""
            self._row(system, cast.urls[system] + path, escape(about))
        workers = [part.name for part in cast.parts if part.url is None]
        self._row("workers", ", ".join(f"{name} (pid {processes[name].pid})" for name in workers), "")
        first = parse_url(servers.cache_url).database
        each = f"databases {first} to {first + len(SYSTEMS) - 1}: a service each, as above"
        self._row("cache", shown(servers.cache_url), each)
        self._row("queue", shown(servers.queue_url), "the same, for what must not be evicted")
        self._row("SQL", shown(servers.database_url), "a schema for each service")
        if given.qdrant_url is not None:
            self._row("Qdrant", shown(given.qdrant_url), "slides that are alike, questions that are")
        if given.mongodb_url is not None:
            self._row("MongoDB", shown(given.mongodb_url), "the feeds that were built")
        self._row("logs", str(processes.folder), "")
        self.line(f"\n  Every password but the console's is: [bold]{DEMO_PASSWORD}[/]\n\n[bold]Try[/]")
        for does, typed in suggestions(cast, servers, processes):
            self.line(f"  [dim]# {escape(does)}[/]\n  [cyan]{escape(typed)}[/]")

    def ended(self, ended: Ended) -> None:
        """A process that ended though nobody told it to."""
        if ended.killed:
            self.line(f"[bold red]●[/] {ended.name} {ended.how}; its log is {ended.log}")
            return
        self.line(f"[bold red]●[/] {ended.name} {ended.how}; {ended.log} ends so:")
        self.console.print(ended.tail, markup=False, soft_wrap=True)

    def figures(self, tally: Counter[str]) -> None:
        """How much traffic there was."""
        told = ", ".join(f"{count:,} {what}" for what, count in tally.items())
        self.working_on(f"traffic: {told or 'begins'}", every=_TRAFFIC_EVERY)

    def stopping(self) -> None:
        """It is over."""
        self.line("[bold green]●[/] Stopping everything; Ctrl-C again does not wait for it.")

    def stopped(self, logs: Path | None) -> None:
        """Nothing runs any more."""
        kept = f" The logs stay in {logs}." if logs is not None else ""
        self.line(f"[bold green]●[/] All of it is gone.{kept}")

    def _row(self, name: str, where: str, about: str) -> None:
        self.line(f"  [bold]{name:<10}[/] {escape(where):<32} [dim]{about}[/]".rstrip())


def suggestions(cast: Cast, servers: Servers, processes: Processes) -> list[tuple[str, str]]:
    """What to try: a purpose and a command each."""
    program = shlex.quote(command())
    urls = cast.urls
    league, scripture = urls["league"], urls["scripture"]
    worker = processes["slides-worker-1"].pid
    events = shown(database_of(servers.queue_url, "scripture"))
    identity = shown(database_of(servers.cache_url, "identity"))
    return [
        (
            "a page with its tag; asked for again with If-None-Match it is a 304",
            f"curl -si {league}/api/league/table",
        ),
        ("a limit that counts down in its headers", f"curl -si '{scripture}/search?q=light'"),
        ("what the planner of the feed does", f"curl -s {urls['feed']}/feed/planner"),
        (
            "an event that could not be handled; the console replays it",
            f"{program} events dead scripture --url {events}",
        ),
        (
            "does the server hold what the catalogue says?",
            f"{program} audit --url {identity} --catalogue identity",
        ),
        ("a worker dies; on the console's page Jobs its work goes on elsewhere", f"kill -9 {worker}"),
    ]


def command() -> str:
    """What to type for `ephemera` here: its path when it is not on PATH, as with `make demo`."""
    if shutil.which("ephemera") is not None:
        return "ephemera"
    beside = Path(sys.executable).with_name("ephemera")  # where pip puts it
    script = Path(sys.argv[0]).absolute() if Path(sys.argv[0]).name == "ephemera" else beside
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


def shown(url: str) -> str:
    """A URL without whatever is secret in it."""
    scheme, _, rest = _PASSWORD_OPTION.sub(r"\1***", url).partition("://")
    who, _, where = rest.rpartition("@")
    user = who.partition(":")[0]
    return f"{scheme}://{user}@{where}" if user else f"{scheme}://{where}"
