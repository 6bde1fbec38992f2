"""One run of a scenario: a service, a referee, locust, and the outcome.

The service is one process of `ephemera serve league` with an embedded Valkey of 25 MB and an embedded
PostgreSQL, as small as the design allows. The referee changes the minute or the score every 60 seconds, in
the worst case every 15, and finalizes another match halfway through, so that pages change in the meantime.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from ephemera.embedded import free_ports
from ephemera_services.league.demo_data import DEMO_ADMINISTRATOR
from ephemera_services.league.monitor import Pages, RedisFigures, advise
from ephemera_services.runtime import DEMO_PASSWORD

Scenario = Literal["realistic", "worst"]
_TOKEN = "load-" + "0" * 27
_START_TIMEOUT = 60.0  # seconds
_INTERVALS: dict[Scenario, float] = {"realistic": 60.0, "worst": 15.0}
"""Seconds between changes of the score."""
_MATCH, _OTHER_MATCH = 32, 33
"""Of the demo data: the live match, and the next one."""
_BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class LoadOutcome:
    """The outcome of a run: locust's figures, the service's own report, and the advice."""

    scenario: Scenario
    prewarmed: bool
    users: int
    figures: dict[str, Any]
    service: dict[str, Any]
    advice: list[str] = field(default_factory=list)


def run(
    scenario: Scenario, *, users: int, seconds: int, prewarm: bool = True, arrive: int = 30
) -> LoadOutcome:
    """Run a scenario with `users` users, who arrive within the first `arrive` seconds."""
    if not (_BIN / "locust").exists():
        raise RuntimeError("the load needs locust: pip install locust")
    with (
        tempfile.TemporaryDirectory() as folder,
        _service(Path(folder), prewarm=prewarm) as url,
        httpx.Client(base_url=url, timeout=60) as referee,
    ):
        sign_in = {"name": DEMO_ADMINISTRATOR, "password": DEMO_PASSWORD}
        referee.post("/api/session", json=sign_in).raise_for_status()
        if prewarm:
            referee.post("/api/admin/prewarm").raise_for_status()
        stop = threading.Event()
        referee_thread = threading.Thread(
            target=_change_scores, args=(referee, seconds, _INTERVALS[scenario], stop)
        )
        referee_thread.start()
        try:
            figures = _locust(url, Path(folder), scenario, users, seconds, arrive)
        finally:
            stop.set()
            referee_thread.join()
        service = referee.get("/api/admin/monitoring").raise_for_status().json()
    # With the p95 that users saw: the service does not know how long a request waited for it.
    pages, redis = Pages(**service["pages"]), RedisFigures(**service["redis"])
    advice = list(advise(pages, figures["requests"], figures["p95"], redis))
    return LoadOutcome(scenario, prewarm, users, figures, service, advice)


@contextmanager
def _service(folder: Path, *, prewarm: bool) -> Iterator[str]:
    port = free_ports(1)[0]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")},
        "EPHEMERA_LOG_LEVEL": "warning",
        "EPHEMERA_TRUSTED_PROXIES": "127.0.0.1",
        "EPHEMERA_LEAGUE_DEMO": "true",
        "EPHEMERA_LEAGUE_DEMO_REFEREE": "false",
        "EPHEMERA_LEAGUE_SECURE_COOKIES": "false",
        "EPHEMERA_LEAGUE_PASSWORD_MEMORY": "8",
        "EPHEMERA_LEAGUE_REDIS_MEGABYTES": "25",
        "EPHEMERA_LEAGUE_CACHE_PREWARM_TOKEN": _TOKEN,
        "EPHEMERA_LEAGUE_PREWARM": "true" if prewarm else "false",
    }
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [str(_BIN / "ephemera"), "serve", "league", "--port", str(port)],
            env=environment,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, url, folder / "service.log")
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {log.read_text(encoding='utf-8')[-1000:]}")


def _change_scores(referee: httpx.Client, seconds: int, every: float, stop: threading.Event) -> None:
    """Change the score until the end of the run."""
    for tick in range(1, int(seconds / every) + 1):
        if stop.wait(every):
            return
        score = {"minute": 20 + tick % 70, "home_goals": tick // 4, "away_goals": tick // 6}
        with suppress(httpx.TransportError):  # the next score is another one anyway
            referee.put(f"/api/admin/matches/{_MATCH}/score", json=score)
            if tick == int(seconds / every / 2):
                final = {"home_goals": 2, "away_goals": 1, "override": True}
                referee.post(f"/api/admin/matches/{_OTHER_MATCH}/finalize", json=final)


def _locust(
    url: str, folder: Path, scenario: Scenario, users: int, seconds: int, arrive: int
) -> dict[str, Any]:
    report = folder / "report.json"
    command = [
        *(str(_BIN / "locust"), "--headless", "--only-summary", "--loglevel", "ERROR", "--host", url),
        *("-f", str(Path(__file__).with_name("locustfile.py")), "-u", str(users)),
        *("-r", str(max(1, users // max(1, arrive))), "-t", f"{seconds}s", "--stop-timeout", "5"),
    ]
    environment = {
        **os.environ,
        "LEAGUE_SCENARIO": scenario,
        "LEAGUE_MATCH": str(_MATCH),
        "LEAGUE_REPORT": str(report),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not report.exists():
        raise RuntimeError(f"locust failed: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return figures
