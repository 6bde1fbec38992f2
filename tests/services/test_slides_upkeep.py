"""What slides does by itself: flushing counts to SQL, running workers of its own, and keeping secrets."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from fastapi import FastAPI

from ephemera import embedded
from ephemera.embedded import Cluster, Postgres
from ephemera_services.runtime import DEMO_PASSWORD, read_settings
from ephemera_services.slides import Settings, create_app
from tests.child_processes import survivors
from tests.cli.commands import ephemera
from tests.services.services import Served, serving
from tests.services.slides_processes import working
from tests.services.slides_users import (
    ADMIN,
    EDITOR,
    QUICK,
    Person,
    administrator,
    credentials,
    every_slide,
    slide_events,
)


@pytest.mark.usefixtures("slides_worker")
def test_usage_and_views_reach_sql(slides: Served, slides_places: dict[str, str], tmp_path: Path) -> None:
    """A process flushes what is as old as its settings say, and totals stay what they were."""
    anna = Person(slides)
    begun = anna.begin("Counted", 2)
    assert anna.finished(begun["job_id"])["state"] == "done"
    share = anna.want(201, "POST", f"/presentations/{begun['presentation_id']}/shares")
    for _ in range(5):
        assert slides.client.get(share["url"]).status_code == 200
    used = anna.want(200, "GET", "/usage")["used"]
    often = {"EPHEMERA_SLIDES_USAGE_FLUSH": "200ms", "EPHEMERA_SLIDES_VIEWS_FLUSH": "200ms"}
    with (
        serving("slides", tmp_path, **slides_places, **often),
        psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql,
    ):
        views = "SELECT view_count FROM slides.presentation_shares WHERE presentation_id = %s"
        _until(lambda: sql.execute(views, (begun["presentation_id"],)).fetchall() == [(5,)])
        totals = "SELECT presentations, slides, tokens, cost_micros FROM slides.usage_records"
        _until(lambda: sql.execute(totals).fetchall() == [tuple(used.values())])
    assert anna.want(200, "GET", "/usage")["used"] == used
    path = f"/presentations/{begun['presentation_id']}/shares"
    assert anna.want(201, "POST", path)["view_count"] == 5


def test_one_command_has_everything(tmp_path: Path) -> None:
    """Without any URL the service has servers and workers of its own, and quotes where it has no model."""
    with serving("slides", tmp_path, **QUICK) as alone:
        anna = Person(alone)
        begun = anna.begin("Whales and whaling", 3, document_ids=[anna.document()])
        assert len(slide_events(list(anna.events(begun["job_id"])))) == 6
        made = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
        assert made["slides"][0]["sources"] == ["whales.txt"]
        assert made["slides"][0]["title"].startswith("Whales are mammals")
        assert anna.exported(begun["presentation_id"], "pptx").startswith(b"PK")


def test_its_workers_die_with_it(tmp_path: Path) -> None:
    """A service that is killed leaves no worker behind."""
    with serving("slides", tmp_path, **QUICK) as alone:
        service = psutil.Process(alone.process.pid)
        _until(lambda: [each for each in service.children(recursive=True) if _is_worker(each)])
        workers = [each for each in service.children(recursive=True) if _is_worker(each)]
        service.kill()
        assert survivors(workers, within=20) == []


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "worker" in process.cmdline()
    except psutil.Error:  # it is just ending
        return False


def test_the_cache_may_be_a_cluster(
    cluster: Cluster, slides_places: dict[str, str], postgres: Postgres, tmp_path: Path
) -> None:
    """Sessions, plans, limits, outlines and notifications work on a cluster, and a role change ends all."""
    database = postgres.database("test_slides_on_a_cluster")
    # A queue of its own, too: workers of the other database would take its messages and find no such job.
    with embedded.valkey() as queue:
        places = {**slides_places, "EPHEMERA_URL": cluster.url, "EPHEMERA_QUEUE_URL": queue.url}
        places["EPHEMERA_DATABASE_URL"] = database
        _on_a_cluster(places, tmp_path)


def _on_a_cluster(places: dict[str, str], tmp_path: Path) -> None:
    with serving("slides", tmp_path, **places) as served, working(tmp_path, places):
        root, anna = administrator(served), Person(served)
        begun = anna.begin("On a cluster", 2)
        assert slide_events(list(anna.events(begun["job_id"]))) == every_slide(2)
        assert anna.exported(begun["presentation_id"], "pptx").startswith(b"PK")
        path = f"/admin/users/{anna.account['user_id']}/role"
        assert root.want(200, "PUT", path, json={"role": "viewer"}) == {"sessions_ended": 1}
        assert anna.ask("GET", "/usage").status_code == 401


async def test_processes_that_start_at_once_make_one_organization(
    slides_places: dict[str, str], postgres: Postgres
) -> None:
    """The first process creates the organization and all its users; none end up in a second one."""
    database = postgres.database("slides_first_accounts")
    changed = {
        "EPHEMERA_DATABASE_URL": database,
        "EPHEMERA_SLIDES_ADMIN_EMAIL": "first@own.example",
        "EPHEMERA_SLIDES_ADMIN_PASSWORD": DEMO_PASSWORD,
    }
    settings = read_settings(Settings, {**slides_places, **changed})
    async with AsyncExitStack() as stack:
        apps = [create_app(settings) for _ in range(4)]
        await asyncio.gather(*(stack.enter_async_context(app.router.lifespan_context(app)) for app in apps))
    with psycopg.connect(database) as sql:
        found = sql.execute(
            "SELECT name, count(DISTINCT o.id), count(u.id) FROM slides.organizations o "
            "LEFT JOIN slides.users u ON u.organization_id = o.id GROUP BY name ORDER BY name"
        ).fetchall()
    assert found == [("Company", 1, 3), (settings.organization, 1, 1), ("Studio", 1, 1)]


async def test_it_can_be_mounted(slides_places: dict[str, str]) -> None:
    """Mounted under a prefix beside other services, sign-in, bodies, links and the page work."""
    settings = read_settings(Settings, slides_places)
    app, parent = create_app(settings), FastAPI()
    parent.mount("/slides", app)
    transport = httpx.ASGITransport(app=parent)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        page = await client.get("/slides/")
        assert "static/slides." in page.text
        assert (await client.post("/slides/auth/login", json=credentials(EDITOR))).status_code == 200
        large = {"file": ("a.txt", b"Some words. " * 10_000)}
        assert (await client.post("/slides/documents", files=large)).status_code == 202
        begun = (await client.post("/slides/presentations", json={"topic": "Mounted"})).json()
        share = await client.post(f"/slides/presentations/{begun['presentation_id']}/shares")
        assert share.json()["url"].startswith("/slides/p/")
        assert (await client.get(share.json()["url"])).status_code == 200


def test_logs_hold_no_secrets(slides: Served) -> None:
    """One JSON line a request, with its id and the route's pattern; no password, cookie, key or token."""
    anna = Person(slides)
    key = anna.want(201, "POST", "/api-keys", json={"name": "k"})["key"]
    slides.client.get("/usage", headers={"x-api-key": key, "x-request-id": "look-here"})
    slides.client.get("/p/some-token-of-a-share")
    line = next(line for line in slides.lines() if line.get("request_id") == "look-here")
    assert (line["route"], line["status"]) == ("/usage", 200)
    log = slides.log.read_text()
    for secret in (DEMO_PASSWORD, key, anna.cookie.partition("=")[2], "some-token-of-a-share"):
        assert secret not in log


def test_guessing_passwords_is_limited(slides_places: dict[str, str], tmp_path: Path) -> None:
    """The fourth attempt of an address in a minute is 429, also with the right password."""
    limited = {**slides_places, "EPHEMERA_SLIDES_LOGINS_PER_MINUTE": "3"}
    with serving("slides", tmp_path, **limited) as strict:
        wrong = credentials(ADMIN, "not the password")
        answers = [strict.client.post("/auth/login", json=wrong) for _ in range(7)]
        statuses = [answer.status_code for answer in answers]
        assert 429 in statuses[:7]  # at the turn of a minute six fit
        assert set(statuses) <= {401, 429}


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("EPHEMERA_SLIDES_USAGE_FLUSH", "never", "not a duration"),
        ("EPHEMERA_SLIDES_LOGINS_PER_MINUTE", "0", ">= 1"),
        ("EPHEMERA_SLIDES_MODELURL", "x", "did you mean EPHEMERA_SLIDES_MODEL_URL?"),
    ],
)
def test_settings_are_checked_at_the_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    """An invalid setting is reported with its variable, and nothing starts."""
    monkeypatch.setenv(variable, value)
    shown = ephemera("serve", "slides")
    assert shown.code != 0
    assert variable in shown.err
    assert says in shown.err


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
