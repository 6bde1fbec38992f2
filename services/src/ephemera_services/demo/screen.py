"""The terminal output of the demo: startup progress, an overview of what runs where, and later events.

In a terminal the last line is a live status, with the amount of traffic. Elsewhere (a log, a pipe) all output
is plain, and the status is printed every few seconds.
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
from ephemera_services.demo.external_servers import SERVICES, ServerUrls, service_database
from ephemera_services.demo.process_plan import ADMINISTRATOR, ProcessPlan
from ephemera_services.demo.processes import Processes, ProcessExit
from ephemera_services.demo.servers import Servers
from ephemera_services.runtime import DEMO_PASSWORD

_DESCRIPTIONS = {
    "identity": ("/", f"accounts and revocable tokens; {ADMINISTRATOR}"),
    "slides": ("/", "presentations, written live; Company, anna@company.example"),
    "scripture": ("/", "a page to read, search and ask; an ingest with exact invalidation"),
    "feed": ("/", "clusters of new insights, built when worth it"),
    "league": ("/", "live matches, polled by ETag; ann, bob; at /admin referee, linesman"),
}


_STATUS_INTERVAL = 3.0  # seconds between status lines where there is no terminal
_TRAFFIC_INTERVAL = 60.0
_PASSWORD_OPTION = re.compile(r"([?&][a-z_]*password=)[^&]*")


class Screen:
    """Prints to a terminal, or plain text elsewhere."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, emoji=False)
        self._status: Status | None = None
        self._printed = 0.0

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Show a live status line within a block; `update_status` changes it."""
        self._printed = time.monotonic()
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(escape(text), refresh_per_second=4) as self._status:
            yield
        self._status = None

    def update_status(self, text: str, interval: float = _STATUS_INTERVAL) -> None:
        """Change the status line; without a terminal print it, at most once per `interval` seconds."""
        if self._status is not None:
            self._status.update(escape(text))
        elif time.monotonic() - self._printed >= interval:
            self._printed = time.monotonic()
            self.line(f"  [dim]{escape(text)}[/]")

    def line(self, text: str = "") -> None:
        """Print a line of markup without wrapping it, so that addresses can be copied."""
        self.console.print(text, soft_wrap=True)

    def ready(self, seconds: float, processes: Processes) -> None:
        """Everything is up."""
        count = len(processes.all())
        self.line(f"[bold green]●[/] {count} processes started in {seconds:.1f} s. Ctrl-C stops everything.")

    def overview(
        self, plan: ProcessPlan, servers: Servers, processes: Processes, external: ServerUrls
    ) -> None:
        """What runs where, and what to try."""
        self.line()
        console = plan.urls["console"]
        self._row(
            "console", f"{console}/", f"sign in as {USER} with [bold]{escape(plan.console_password)}[/]"
        )
        for service in SERVICES:
            path, description = _DESCRIPTIONS[service]
            if service == "feed":
                description += f"; ann with the token {plan.feed_token}; gRPC at {plan.grpc}"
            self._row(service, plan.urls[service] + path, escape(description))
        self._row("", "/docs", "the routes of each of them")
        workers = [spec.name for spec in plan.specs if spec.url is None]
        self._row("workers", ", ".join(f"{name} (pid {processes[name].pid})" for name in workers), "")
        first = parse_url(servers.cache_url).database
        databases = f"databases {first} to {first + len(SERVICES) - 1}: one per service, in the order above"
        self._row("cache", redacted(servers.cache_url), databases)
        self._row("queue", redacted(servers.queue_url), "the same, for data that must not be evicted")
        self._row("SQL", redacted(servers.database_url), "one schema per service")
        if external.qdrant_url is not None:
            self._row("Qdrant", redacted(external.qdrant_url), "similar slides, similar questions")
        if external.mongodb_url is not None:
            self._row("MongoDB", redacted(external.mongodb_url), "built feeds")
        self._row("logs", str(processes.folder), "")
        self.line(f"\n  Every password except the console's: [bold]{DEMO_PASSWORD}[/]\n\n[bold]Try[/]")
        for purpose, command in suggestions(plan, servers, processes):
            self.line(f"  [dim]# {escape(purpose)}[/]\n  [cyan]{escape(command)}[/]")

    def process_exited(self, exited: ProcessExit) -> None:
        """A process exited unexpectedly."""
        if exited.was_killed:
            self.line(f"[bold red]●[/] {exited.name} {exited.description}; its log is {exited.log}")
            return
        self.line(f"[bold red]●[/] {exited.name} {exited.description}; the end of {exited.log}:")
        self.console.print(exited.tail, markup=False, soft_wrap=True)

    def traffic(self, counts: Counter[str]) -> None:
        """How much traffic there was."""
        summary = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        self.update_status(f"traffic: {summary or 'starting'}", interval=_TRAFFIC_INTERVAL)

    def stopping(self) -> None:
        """The demo is being stopped."""
        self.line("[bold green]●[/] Stopping everything; press Ctrl-C again to kill it.")

    def stopped(self, logs: Path | None) -> None:
        """Nothing runs any more."""
        kept = f" The logs are kept in {logs}." if logs is not None else ""
        self.line(f"[bold green]●[/] Everything is stopped and removed.{kept}")

    def _row(self, name: str, value: str, description: str) -> None:
        self.line(f"  [bold]{name:<10}[/] {escape(value):<32} [dim]{description}[/]".rstrip())


def suggestions(plan: ProcessPlan, servers: Servers, processes: Processes) -> list[tuple[str, str]]:
    """What to try: pairs of purpose and command."""
    program = shlex.quote(ephemera_command())
    urls = plan.urls
    league, scripture = urls["league"], urls["scripture"]
    worker = processes["slides-worker-1"].pid
    events = shlex.quote(redacted(service_database(servers.queue_url, "scripture")))
    identity = shlex.quote(redacted(service_database(servers.cache_url, "identity")))
    return [
        (
            "a page with its ETag; repeat it with If-None-Match and get a 304",
            f"curl -si {league}/api/league/table",
        ),
        ("a rate limit, counted down in the headers", f"curl -si '{scripture}/search?q=light'"),
        (
            "what feed's planner is doing",
            f"curl -s -H 'Authorization: Bearer {plan.feed_token}' {urls['feed']}/feed/planner",
        ),
        (
            "an event that could not be handled; the console can replay it",
            f"{program} events dead scripture --url {events}",
        ),
        (
            "compare a server with its catalogue",
            f"{program} audit --url {identity} --catalogue identity",
        ),
        ("kill a worker; the console's Jobs page shows another one taking over", f"kill -9 {worker}"),
    ]


def ephemera_command() -> str:
    """How to call `ephemera` here: by its path if it is not on PATH, as with `make demo`."""
    if shutil.which("ephemera") is not None:
        return "ephemera"
    beside = Path(sys.executable).with_name("ephemera")  # where pip puts it
    script = Path(sys.argv[0]).absolute() if Path(sys.argv[0]).name == "ephemera" else beside
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


def redacted(url: str) -> str:
    """Return a URL without its secrets."""
    scheme, _, rest = _PASSWORD_OPTION.sub(r"\1***", url).partition("://")
    credentials, _, host = rest.rpartition("@")
    user = credentials.partition(":")[0]
    return f"{scheme}://{user}@{host}" if user else f"{scheme}://{host}"
