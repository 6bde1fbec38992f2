"""The page of jobs in a browser: queues that are paused and resumed, their figures, and schedules."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, func, update

from ephemera import connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, Unique, sql_engine
from ephemera.sql import migrate
from tests.console.browser_pages import READY, eventually, expect, press, region, row_of
from tests.console.console_process import RunningConsole, running_console
from tests.console.loop_thread import LoopThread
from tests.console.print_jobs import CATALOGUE, JOBS, LONG_QUEUE, QUEUE, print_catalogue, print_poster
from tests.patterns.job_worker import Worker

_COUNT = 20  # jobs that have run
_SECONDS = 0.05  # of each
_TARGET = f"print/{JOBS.name}/{QUEUE}"
_WIDTHS = (1280, 390)
TOO_WIDE = """() => [...document.querySelectorAll('.e-page *')]
  .filter(each => each.getClientRects().length && (!each.closest('svg') || each.matches('text')))
  .filter(each => {
    const box = each.getBoundingClientRect(), chart = each.closest('svg')?.getBoundingClientRect()
    return box.right > (chart?.right ?? document.documentElement.clientWidth) + 1
      || box.left < (chart?.left ?? 0) - 1
      || (each.matches('.q-table__middle') && each.scrollWidth > each.clientWidth + 1)
  })
  .map(each => `${each.tagName} ${each.getAttribute('class')}: ${each.textContent.slice(0, 60)}`)"""


class Shop:
    """A console of the print shop, and its jobs as another process has them."""

    def __init__(self, console: RunningConsole, jobs: BoundJobs, beside: LoopThread) -> None:
        self.console = console
        self.jobs = jobs
        self.do = beside.do

    def is_paused(self) -> bool:
        """Whether the queue of posters is paused, by SQL."""
        return next(each.paused for each in self.do(self.jobs.queues) if each.queue == QUEUE)

    def states(self) -> list[str]:
        """The states of all jobs."""
        return [row.state for row in self.do(lambda: self.jobs.find(limit=1000))]


@asynccontextmanager
async def _bound(server: Valkey, database: str) -> AsyncIterator[BoundJobs]:
    engine = sql_engine(database)
    await migrate(engine, JOBS)
    async with connect(server.url, CATALOGUE, resources={JOBS: engine}) as store:
        yield store[JOBS]
    await engine.dispose()


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A Valkey of the jobs' own: other pages count the keys of theirs."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture(scope="module")
def shop(server: Valkey, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A console, a worker, and jobs that have run."""
    beside, database = LoopThread(), postgres.database("print_shop")
    jobs = beside.enter(_bound(server, database))
    words = ("--database-url", database, "--allow-actions")
    catalogues = ("tests.console.print_jobs:CATALOGUE",)
    with (
        Worker(server.url, database, module="tests.console.print_jobs"),
        running_console(
            tmp_path_factory.mktemp("jobs"), server.url, *words, catalogues=catalogues
        ) as console,
    ):
        opened = Shop(console, jobs, beside)
        beside.do(lambda: jobs.enqueue_many(print_poster, [{"seconds": _SECONDS}] * _COUNT))
        beside.do(lambda: jobs.enqueue(print_catalogue))
        eventually(lambda: opened.states() == ["done"] * (_COUNT + 1), "jobs that have run")
        beside.do(lambda: jobs.set_limits(LONG_QUEUE, max_running=3, rate=(100, timedelta(minutes=1))))
        beside.do(lambda: jobs.pause(LONG_QUEUE))
        yield opened
    beside.close()


@pytest.fixture
def page(shop: Shop, browse: Callable[..., Any]) -> Any:
    """The page of jobs, with its figures."""
    opened = browse(shop.console, "/jobs")
    opened.wait_for_function(READY)
    return opened


async def _kill(jobs: BoundJobs, *job_ids: str) -> None:
    table = JOBS.tables.jobs
    dead = update(table).where(table.c.id.in_(job_ids)).values(state="dead", finished_at=func.now())
    async with jobs.engine.begin() as sql:
        await sql.execute(dead)


async def _delete(jobs: BoundJobs, *job_ids: str) -> None:
    table = JOBS.tables.jobs
    async with jobs.engine.begin() as sql:
        await sql.execute(delete(table).where(table.c.id.in_(job_ids)))


def _cell(row: Any, label: str) -> Any:
    return row.locator(f'td[data-label="{label}"]')


def _seconds(text: str) -> list[float]:
    """The median and the 95th percentile in seconds, as the page writes them: 52.1 ms / 1.2 s."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
    return [float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)\s?(us|ms|s|min)\b", text)]


def test_a_queue_is_paused_and_resumed(shop: Shop, page: Any) -> None:
    """While a queue is paused a job waits; after it was resumed the job runs; both are logged."""
    row = row_of(region(page, "Queues"), QUEUE)
    expect(_cell(row, "State")).to_have_text("open")
    press(page, row, "Pause")
    page.get_by_text("The queue is paused.").wait_for()
    expect(_cell(row, "State")).to_have_text("paused")
    assert shop.is_paused()
    shop.do(lambda: shop.jobs.enqueue(print_poster, 0.0))
    expect(_cell(row, "Waiting")).to_have_text("1")
    press(page, row, "Resume")
    expect(_cell(row, "State")).to_have_text("open")
    expect(_cell(row, "Waiting")).to_have_text("0")
    assert not shop.is_paused()
    eventually(lambda: set(shop.states()) == {"done"}, "the job that waited")
    logged = [(line["action"], line["target"], line["outcome"]) for line in shop.console.lines()]
    assert logged == [("queue.pause", _TARGET, "done"), ("queue.resume", _TARGET, "done")]


def test_a_queue_shows_how_long_jobs_wait_and_run(shop: Shop, page: Any) -> None:
    """The median and the 95th percentile of what ran, and how many ended; other queues have their own."""
    queues = region(page, "Queues")
    row = row_of(queues, QUEUE)
    expect(_cell(row, "Ended")).to_have_text(re.compile(r"[1-9]\d*"))
    assert int(_cell(row, "Ended").inner_text()) >= _COUNT
    median, high = _seconds(_cell(row, "Run").inner_text())
    assert _SECONDS <= median <= high < 60
    median, high = _seconds(_cell(row, "Wait").inner_text())
    assert 0 < median <= high < 60
    assert high > _SECONDS  # one after another: the last one has waited for many
    expect(_cell(row_of(queues, LONG_QUEUE), "Ended")).to_have_text("1")
    for title in ("Jobs that ended per minute", "Wait, 95th percentile", "Run, 95th percentile"):
        expect(queues.get_by_text(title).first).to_be_visible()
    drawn = queues.locator(".e-chart").nth(2).locator("path[fill='#4c8dff'], path[stroke='#4c8dff']")
    assert drawn.count() > 1, "a dot for the minute, besides the one in the legend"


def test_schedules_show_their_next_run(page: Any) -> None:
    """Each schedule has its job, its rule, and when it runs next; the next one is in less than a day."""
    schedules = region(page, "Schedules")
    nightly, daily = row_of(schedules, "nightly catalogue"), row_of(schedules, "a poster a day")
    expect(_cell(nightly, "Job")).to_contain_text("print_catalogue")
    expect(_cell(nightly, "Runs")).to_contain_text("30 2 * * *")
    expect(_cell(nightly, "Next run")).to_contain_text(re.compile(r"02:30.*\(in \d+ (h|min|s)"))
    expect(_cell(daily, "Next run")).to_contain_text("(in ")


def test_all_dead_jobs_are_retried_but_those_whose_key_is_taken(shop: Shop, page: Any) -> None:
    """One that another open job replaces is named, and does not keep the others from being retried."""
    later = print_poster.options(delay=timedelta(days=1))
    same = later.options(unique=Unique(key="spring"))
    plain = shop.do(lambda: shop.jobs.enqueue(later, 0.0))
    replaced = shop.do(lambda: shop.jobs.enqueue(same, 0.0))
    shop.do(lambda: _kill(shop.jobs, plain, replaced))
    successor = shop.do(lambda: shop.jobs.enqueue(same, 0.0))
    page.get_by_role("button", name="Retry all dead").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry all dead").click()
    page.get_by_text("1 job is queued again. 1 could not be retried").wait_for()
    assert shop.do(lambda: shop.jobs.result(plain)) is None
    assert shop.do(lambda: shop.jobs.get(replaced)).state == "dead"
    shop.do(lambda: _delete(shop.jobs, replaced, successor))


@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(page: Any, width: int, scheme: Any) -> None:
    """A paused queue with a long name and limits fits a desktop's window and a phone's, in both themes."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    expect(row_of(region(page, "Queues"), LONG_QUEUE)).to_be_visible()
    expect(row_of(region(page, "Schedules"), "nightly catalogue")).to_be_visible()
    page.wait_for_timeout(600)  # plots follow the size
    assert page.evaluate(TOO_WIDE) == []
