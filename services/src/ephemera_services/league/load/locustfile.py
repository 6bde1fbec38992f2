"""The locust users; `python -m ephemera_services.league.load` runs them against an embedded service.

Every user has an address of their own (`X-Forwarded-For`, which the service trusts from this machine), and
polls like the page does, with `If-None-Match`. Timeouts, 4xx and 5xx are failures; so is 429, since no user
here is faster than the page.

LEAGUE_SCENARIO: `realistic`, or `worst`, in which all users watch the live match. LEAGUE_MATCH: its id.
LEAGUE_REPORT: the file for the figures, as JSON.
"""

# locust has no types, so neither have its decorated functions and subclasses here.
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar
from urllib.parse import urlsplit

from locust import FastHttpUser, between, events, task

from ephemera_services.league.load.connection import LoadConnection

MATCH = os.environ.get("LEAGUE_MATCH", "32")
WORST = os.environ.get("LEAGUE_SCENARIO", "realistic") == "worst"
_numbers = itertools.count(1)
_PAGES = ("table", "schedule", "results", "stats", "bracket")


class Visitor(FastHttpUser):
    """A user with a browser."""

    abstract = True
    network_timeout = 30.0
    connection_timeout = 30.0

    def on_start(self) -> None:
        """Set up an address and a connection."""
        number = next(_numbers)
        self.address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        self.tags: dict[str, str] = {}
        target = urlsplit(self.host)
        self.http = LoadConnection(target.hostname or "127.0.0.1", target.port or 80, self.address)

    def on_stop(self) -> None:
        """Close the connection."""
        self.http.close()

    def poll(self, path: str, name: str | None = None) -> bytes | None:
        """Request a page like the script does; its body if it has changed."""
        started, body, status = perf_counter(), b"", 0
        failure: Exception | None = None
        try:
            status, tag, body = self.http.get(path, self.tags.get(path))
        except (OSError, ValueError) as problem:
            self.http.close()
            failure = problem
        if status >= 400:
            failure = RuntimeError(f"status {status}")
        self.environment.events.request.fire(
            request_type="GET",
            name=name or path,
            response_time=(perf_counter() - started) * 1000,
            response_length=len(body),
            exception=failure,
            context={},
        )
        if status != 200:
            return None
        self.tags[path] = tag
        return body


class Watcher(Visitor):
    """Watches the live match: its versions every 3-5 s, and the parts that changed."""

    weight = 100 if WORST else 60
    wait_time = between(3, 5)

    def on_start(self) -> None:
        """Open the match."""
        super().on_start()
        self.versions: dict[str, int] = {}
        self.look()

    @task
    def watch(self) -> None:
        """One poll."""
        self.look()

    def look(self) -> None:
        """Request the versions, and the parts that changed."""
        found = self.poll(f"/api/matches/{MATCH}/versions", "/api/matches/ID/versions")
        for part, version in (json.loads(found) if found is not None else {}).items():
            if self.versions.get(part) != version:
                self.versions[part] = version
                self.poll(f"/api/matches/{MATCH}/{part}", f"/api/matches/ID/{part}")


class PageReader(Visitor):
    """Reads the league's pages, one after the other."""

    weight = 0 if WORST else 30
    wait_time = between(10, 30)

    @task(8)
    def read(self) -> None:
        """Open or poll a page."""
        self.poll(f"/api/league/{random.choice(_PAGES)}")

    @task(2)
    def leaders(self) -> None:
        """Open a leaderboard."""
        self.poll("/api/leaderboards/season")


class HiddenTab(Visitor):
    """Has the page open in a hidden tab."""

    weight = 0 if WORST else 8
    wait_time = between(55, 65)

    @task
    def glance(self) -> None:
        """One poll per minute."""
        self.poll("/api/matches/live")


class Supporter(Watcher):
    """Signs in, votes once, and comments sometimes."""

    weight = 0 if WORST else 2
    comments: ClassVar[list[str]] = ["What a goal!", "Offside!", "Come on!", "That was a foul."]

    def on_start(self) -> None:
        """Register, sign in, vote."""
        super().on_start()
        form = {"name": f"fan-{os.getpid()}-{self.address}", "password": "correct horse battery"}
        self._post("/api/users", form)
        self._post("/api/session", form)
        choice = random.choice(("home", "draw", "away"))
        self._post(f"/api/matches/{MATCH}/votes", {"choice": choice})

    @task
    def watch(self) -> None:
        """Poll, and comment once in twenty times."""
        self.look()
        if random.random() < 0.05:
            self._post(f"/api/matches/{MATCH}/comments", {"text": random.choice(self.comments)})

    def _post(self, path: str, form: dict[str, str]) -> None:
        headers = {"X-Forwarded-For": self.address}
        name = "POST " + path.replace(MATCH, "ID")
        with self.client.post(path, name=name, json=form, headers=headers, catch_response=True) as response:
            if response.status_code < 400:
                response.success()
            else:
                response.failure(f"status {response.status_code}")


@events.quitting.add_listener
def _report(environment: Any, **_: Any) -> None:
    """Write the figures for the runner."""
    total = environment.stats.total
    figures = {
        "requests": total.num_requests,
        "errors": total.num_failures,
        "rate": total.total_rps,
        "p50": total.get_response_time_percentile(0.5) or 0,
        "p95": total.get_response_time_percentile(0.95) or 0,
        "p99": total.get_response_time_percentile(0.99) or 0,
        "failures": sorted({f"{each.name}: {each.error}" for each in environment.stats.errors.values()})[:10],
        "seconds": _seconds(environment.stats.history),
    }
    Path(os.environ["LEAGUE_REPORT"]).write_text(json.dumps(figures), encoding="utf-8")
    environment.process_exit_code = 0


def _seconds(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Users, requests per second and p95 over time."""
    found = []
    for each in history:
        p95 = each.get("response_time_percentile_0.95") or (0, 0)
        rps, users = each["current_rps"], each["user_count"]
        found.append(
            {
                "users": users[1] if isinstance(users, (list, tuple)) else users,
                "rps": rps[1] if isinstance(rps, (list, tuple)) else rps,
                "p95": p95[1] if isinstance(p95, (list, tuple)) else p95,
            }
        )
    return found
