"""Redis wiped, restarted and unavailable: what needs it is 503, the rest works, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from ephemera.embedded import Valkey
from tests.services.services import Served
from tests.services.slides_processes import Model
from tests.services.slides_users import ADMIN, EDITOR, Person, credentials, every_slide, slide_events

pytestmark = pytest.mark.usefixtures("slides_worker")
_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(autouse=True)
def _answering(slides_model: Model) -> Iterator[None]:
    """Whatever a test did to the model, it answers afterwards."""
    yield
    slides_model.open.set()


def test_the_cache_is_wiped_in_mid_generation(
    anna: Person, slides_cache: Valkey, slides_model: Model
) -> None:
    """Users stay signed in, and the presentation is written as if nothing had happened."""
    topic = "A wiped cache"
    slides_model.open.clear()
    begun = anna.begin(topic, 5)
    _until(lambda: slides_model.outlines_asked(topic) == 1)
    slides_cache.ask("FLUSHALL")
    slides_model.open.set()
    assert anna.ask("GET", "/usage").status_code == 200
    assert anna.finished(begun["job_id"])["state"] == "done"
    assert slides_model.slides_asked(topic) == [1, 2, 3, 4, 5]
    assert slide_events(list(anna.events(begun["job_id"]))) == every_slide(5)


def test_the_queue_is_restarted_in_mid_generation(
    anna: Person, slides: Served, slides_queue: Valkey, slides_model: Model
) -> None:
    """What waits and what runs is finished, and each slide is asked for once."""
    topic = "A restarted queue"
    slides_model.open.clear()
    running, waiting = anna.begin(topic, 5), anna.begin("Waiting meanwhile", 2)
    _until(lambda: slides_model.outlines_asked(topic) == 1)
    slides_queue.kill()
    slides_queue.restart()
    slides_model.open.set()
    _until(lambda: slides.client.get("/readyz").json()["redis"] == "up")
    for begun in (running, waiting):
        assert anna.finished(begun["job_id"])["state"] == "done"
        made = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
        assert len(made["slides"]) == made["slides_total"]
    assert slides_model.slides_asked(topic) == [1, 2, 3, 4, 5]
    assert slides_model.slides_asked("Waiting meanwhile") == [1, 2]


def test_the_queue_is_emptied_in_mid_generation(
    anna: Person, slides: Served, slides_queue: Valkey, slides_model: Model
) -> None:
    """Sessions, checkpoint and messages are gone; SQL has the steps, and the rest is done from there."""
    topic = "An emptied queue"
    slides_model.open.clear()
    running, waiting = anna.begin(topic, 5), anna.begin("Waiting for nothing", 2)
    _until(lambda: slides_model.outlines_asked(topic) == 1)
    slides_queue.ask("FLUSHALL")
    slides_model.open.set()
    assert anna.ask("GET", "/usage").status_code == 401
    again = Person(slides, EDITOR)
    for begun in (running, waiting):
        assert again.finished(begun["job_id"])["state"] == "done"
    assert slides_model.slides_asked(topic) == [1, 2, 3, 4, 5]
    assert again.want(200, "GET", f"/presentations/{waiting['presentation_id']}")["slides_completed"] == 2


def test_cache_and_queue_are_unavailable(
    anna: Person,
    slides: Served,
    slides_cache: Valkey,
    slides_queue: Valkey,
    slides_model: Model,
    slides_places: dict[str, str],
) -> None:
    """Keys and links work from SQL, what needs Redis is 503 with Retry-After, and running jobs finish."""
    topic = "Both unavailable"
    key = {"x-api-key": anna.want(201, "POST", "/api-keys", json={"name": "k"})["key"]}
    done = anna.begin("Written before", 1)
    assert anna.finished(done["job_id"])["state"] == "done"
    share = anna.want(201, "POST", f"/presentations/{done['presentation_id']}/shares")
    used = anna.want(200, "GET", "/usage")["used"]
    slides_model.open.clear()
    running = anna.begin(topic, 3)
    _until(lambda: slides_model.outlines_asked(topic) == 1)
    slides_cache.kill()
    slides_queue.kill()
    try:
        ask = slides.client.request
        seen = ask("GET", f"/presentations/{done['presentation_id']}", headers=key)
        assert seen.json()["state"] == "done"
        assert ask("GET", f"/jobs/{running['job_id']}", headers=key).json()["state"] == "running"
        assert ask("GET", share["url"]).status_code == 200
        taken = ask("POST", "/documents", headers=key, files={"file": ("a.txt", b"Some text to be read.")})
        assert taken.status_code == 202, "the job waits in SQL"
        _is_unavailable(anna.ask("GET", "/usage"))
        _is_unavailable(ask("GET", "/usage", headers=key))
        _is_unavailable(ask("POST", "/presentations", headers=key, json={"topic": "Not now"}))
        _is_unavailable(ask("POST", "/auth/login", json=credentials(EDITOR)))
        assert ask("GET", "/healthz").status_code == 200
        _until(lambda: ask("GET", "/readyz").json()["redis"] == "down")
        readiness = ask("GET", "/readyz").json()
        assert (readiness["status"], readiness["redis"], readiness["sql"]) == ("degraded", "down", "up")
        slides_model.open.set()
        _until(lambda: slides_model.slides_asked(topic) == [1, 2, 3])
    finally:
        slides_cache.restart()
        slides_queue.restart()
    _until(lambda: slides.client.get("/readyz").json()["redis"] == "up")
    again = Person(slides, EDITOR)
    for job_id in (running["job_id"], taken.json()["job_id"]):
        assert again.finished(job_id)["state"] == "done"
    assert slides_model.slides_asked(topic) == [1, 2, 3]
    assert again.want(200, "GET", f"/presentations/{running['presentation_id']}")["slides_completed"] == 3
    after = again.want(200, "GET", "/usage")["used"]
    assert after["presentations"] - used["presentations"] == 1
    assert after["slides"] - used["slides"] == 3
    with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"]) as sql:
        views = "SELECT view_count FROM slides.presentation_shares WHERE presentation_id = %s"
        [(count,)] = sql.execute(views, (done["presentation_id"],)).fetchall()
    assert count == 1, "the view was counted in SQL at once"


def test_only_the_cache_is_unavailable(anna: Person, slides: Served, slides_cache: Valkey) -> None:
    """Sessions and API keys keep working: upload, generate, watch and export."""
    headers = {"x-api-key": anna.want(201, "POST", "/api-keys", json={"name": "k"})["key"]}
    slides_cache.kill()
    try:
        assert anna.ask("GET", "/auth/me").status_code == 200
        program = anna
        program.client.headers.update(headers)
        begun = program.begin("Without a cache", 2)
        assert slide_events(list(program.events(begun["job_id"]))) == every_slide(2)
        assert program.exported(begun["presentation_id"], "pdf").startswith(b"%PDF")
        assert program.want(200, "GET", "/usage")["used"]["presentations"] >= 1
    finally:
        slides_cache.restart()
    _until(lambda: slides.client.get("/readyz").json()["redis"] == "up")


def test_only_the_queue_is_unavailable(anna: Person, slides: Served, slides_queue: Valkey) -> None:
    """Sessions get 503; by key, what was made is there, and what is accepted is done when it is back."""
    headers = {"x-api-key": anna.want(201, "POST", "/api-keys", json={"name": "k"})["key"]}
    begun = anna.begin("Before the queue went", 1)
    assert anna.finished(begun["job_id"])["state"] == "done"
    slides_queue.kill()
    try:
        _is_unavailable(anna.ask("GET", "/auth/me"))
        anna.client.headers.update(headers)
        _is_unavailable(anna.ask("GET", "/usage"))
        _is_unavailable(anna.ask("POST", "/presentations", json={"topic": "Not now"}))
        path = f"/presentations/{begun['presentation_id']}"
        assert anna.want(200, "GET", path)["state"] == "done"
        [snapshot, end] = anna.events(begun["job_id"])
        assert (snapshot.name, snapshot.data["recovered"], snapshot.data["ended"]) == (
            "snapshot",
            False,
            True,
        )
        assert snapshot.data["state"]["last_event"]["event_type"] == "generation_done"
        assert end.name == "end"
        export = anna.want(202, "POST", f"{path}/exports", json={"format": "pptx"})
    finally:
        slides_queue.restart()
    _until(lambda: slides.client.get("/readyz").json()["redis"] == "up")
    assert anna.finished(export["job_id"])["state"] == "done"


def test_a_role_changed_during_an_outage_ends_the_sessions_after_it(
    anna: Person, slides: Served, slides_queue: Valkey, slides_places: dict[str, str]
) -> None:
    """It is 503, since sessions cannot be ended now; they are, even if the administrator does not return."""
    root, url = Person(slides, ADMIN), slides_places["EPHEMERA_DATABASE_URL"]
    path = f"/admin/users/{anna.account['user_id']}/role"
    with psycopg.connect(url) as holder, ThreadPoolExecutor(1) as threads:
        holder.execute("SELECT 1 FROM slides.users WHERE id = %s FOR UPDATE", (anna.account["user_id"],))
        changing = threads.submit(root.ask, "PUT", path, json={"role": "editor"})
        with psycopg.connect(url, autocommit=True) as observer:
            _until(lambda: observer.execute(_WAITS).fetchone() is not None)
        slides_queue.pause()  # after the administrator's session was read; hung, so that sessions are kept
        try:
            holder.rollback()
            _is_unavailable(changing.result())
        finally:
            slides_queue.resume()
    _until(lambda: anna.ask("GET", "/auth/me").status_code == 401)


def _is_unavailable(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"


def _until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
