"""Slides in the console: a session ended from it, jobs on their way, and a thousand of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.console.consoles import PASSWORD, running_console
from tests.systems.slides_people import VIEWER, Person
from tests.systems.slides_world import (  # noqa: F401 - the fixtures that it takes
    slides,
    slides_cache,
    slides_model,
    slides_places,
    slides_queue,
    slides_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.console.consoles import RunningConsole
    from tests.systems.services import Served
    from tests.systems.slides_world import Model

    Picture = Callable[[Any, str], None]
    Show = Callable[[str], Any]

pytestmark = pytest.mark.usefixtures("slides_worker")
SCRIPT = "<script>alert(1)</script>"


READY = "window.did_handshake && document.querySelector('.e-tile-value')?.textContent !== '\u2014'"
"""The page is connected, and was refreshed: what is typed now stays."""


@pytest.fixture(scope="module")
def console(
    slides: Served,  # noqa: F811 - a fixture
    slides_places: dict[str, str],  # noqa: F811 - a fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningConsole]:
    """A console that may act on slides."""
    words = ("--queue-url", slides_places["EPHEMERA_QUEUE_URL"], "--allow-actions")
    database = ("--database-url", slides_places["EPHEMERA_DATABASE_URL"])
    folder, url = tmp_path_factory.mktemp("console"), slides_places["EPHEMERA_URL"]
    with running_console(folder, url, *words, *database, catalogues=("slides",)) as running:
        yield running


@pytest.fixture(scope="module")
def window(chromium: Any, console: RunningConsole) -> Iterator[Any]:
    """A window in which somebody is signed in for all tests, so that the browser's cache is warm."""
    errors: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)  # milliseconds; machines that run tests are busy
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(console.url)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".e-page").wait_for()
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def show(window: Any, console: RunningConsole) -> Show:
    """Shows a page of the console in the window."""

    def shown(path: str) -> Any:
        window.goto(console.url + path)
        window.wait_for_function(READY)
        return window

    return shown


@pytest.fixture
def held(slides_model: Model) -> Iterator[Model]:  # noqa: F811 - a fixture
    """A model that writes two slides of each presentation, and then waits to be told."""
    slides_model.hold_at = 3
    slides_model.open.clear()
    yield slides_model
    slides_model.open.set()


def row_of(page: Any, text: str) -> Any:
    """The row of a table that holds a text."""
    return page.locator(".e-table tbody tr", has_text=text).first


def press(page: Any, row: Any, button: str) -> None:
    """Press a row's button, and then that of the question."""
    row.get_by_role("button", name=button).click()
    page.get_by_role("dialog").get_by_role("button", name=button).click()


def test_a_session_ended_from_the_console_gets_401_at_its_next_request(
    console: RunningConsole,
    slides: Served,  # noqa: F811 - a fixture
    show: Show,
) -> None:
    """Of two users one is found by id and signed out; the other stays."""
    anna, vera = Person(slides), Person(slides, VIEWER)
    assert anna.ask("GET", "/auth/me").status_code == 200
    user = anna.account["user_id"]
    page = show("/sessions")
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_role("button", name="Find").click()
    listed = page.get_by_role("region", name=f"Sessions of {user}")
    press(page, listed.locator("tbody tr").first, "End")
    page.get_by_text("The session has ended.").wait_for()
    listed.get_by_text("No session").wait_for()
    assert anna.ask("GET", "/auth/me").status_code == 401
    assert vera.ask("GET", "/auth/me").status_code == 200
    (line,) = console.lines()
    assert (line["who"], line["action"], line["outcome"]) == ("operator", "session.end", "done")
    assert user in line["target"]
    assert all(value not in console.said for value in anna.client.cookies.values())


def test_a_job_is_followed_cancelled_and_retried(
    console: RunningConsole,
    slides: Served,  # noqa: F811 - a fixture
    held: Model,
    show: Show,
    picture: Picture,
) -> None:
    """Its bar moves by itself, with step, worker and lease; cancelled it ends, retried it is done."""
    anna = Person(slides)
    assert anna.finished(anna.upload(b"Whales are large.").json()["job_id"])["state"] == "done"
    job = anna.begin(slides=4)["job_id"]
    page = show("/jobs")
    row = row_of(page, f"generate {job[:8]}")
    row.get_by_text("running").wait_for()
    row.get_by_text("start:3").wait_for()  # the third slide waits for the model
    assert ":" in row.locator("td").nth(4).inner_text(), "the worker: its host and process"
    row.locator("td").nth(5).get_by_text(" s").wait_for()  # what is left of its lease
    picture(page, "jobs")
    press(page, row, "Cancel job")
    row.get_by_text("cancelled").wait_for()
    assert anna.finished(job)["state"] == "cancelled"
    held.open.set()
    press(page, row, "Retry job")
    row.get_by_text("done", exact=True).wait_for()
    assert anna.finished(job)["state"] == "done"
    assert row.get_by_role("progressbar").get_attribute("aria-valuenow") == "100"
    row.click()
    page.get_by_role("dialog").get_by_text("presentation_id").first.wait_for()
    page.keyboard.press("Escape")
    told = [
        (line["action"], line["outcome"]) for line in console.lines() if line["action"].startswith("job.")
    ]
    assert told == [("job.cancel", "done"), ("job.retry", "done")]


def test_what_the_workers_leave_in_redis_is_shown(
    slides: Served,  # noqa: F811 - a fixture
    show: Show,
) -> None:
    """The reaper's lock with its holder, and what organizations used, on its way to SQL."""
    anna = Person(slides)
    assert anna.finished(anna.begin(slides=3)["job_id"])["state"] == "done"
    row_of(show("/locks"), "jobs:reaper").wait_for()
    page = show("/write-behind")
    row_of(page, "usage").get_by_text("waiting").wait_for()
    row_of(page, "presentation_view_count").wait_for()


def test_a_thousand_jobs_do_not_slow_the_page_beyond_a_second(
    slides_places: dict[str, str],  # noqa: F811 - a fixture
    show: Show,
) -> None:
    """The page with a thousand jobs more is shown within a second of what it took before; errors are text."""
    before = min(_seconds(show) for _ in range(3))
    kind, error = f"many {SCRIPT}", f"ValueError: {SCRIPT}"
    insert = (
        "INSERT INTO slides.jobs (id, kind, queue, arguments, state, error, attempts, finished_at) "
        "SELECT 'many-' || n, %s, 'export', '{}', 'dead', %s, 5, now() FROM generate_series(1, 1000) n"
    )
    with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql:
        sql.execute(insert, (kind, error))
    after = min(_seconds(show) for _ in range(3))
    assert after < before + 1
    page = show("/jobs")
    page.locator(".e-tile", has_text="Dead").get_by_text("1,000").wait_for()
    row = row_of(page, f"many {SCRIPT}")
    row.get_by_text(f"ValueError: {SCRIPT}").wait_for()
    row.click()
    page.get_by_role("dialog").get_by_text(f"ValueError: {SCRIPT}").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Older").click()
    page.get_by_role("button", name="Newest").wait_for()


def _seconds(show: Show) -> float:
    """How long it takes until jobs are shown."""
    page = show("/locks")
    page.get_by_text("Held locks").wait_for()
    begun = time.perf_counter()
    page.get_by_role("link", name="Jobs").click()
    page.locator(".e-table tbody tr").first.wait_for()
    return time.perf_counter() - begun
