"""The panel of administrators and helpers in a real browser, on a phone beside the pitch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ephemera_services.league import DEMO_ADMINISTRATOR, DEMO_HELPER
from ephemera_services.runtime import DEMO_PASSWORD
from tests.browsers import running_browser, wait_until
from tests.services.league_users import LIVE_MATCH, league, referee, save_picture, sql
from tests.services.services import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
SCREENS = ("today", "fixtures", "clubs", "comments", "users", "ads", "history", "system")


@pytest.fixture(scope="module")
def served(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A league."""
    with league(tmp_path_factory.mktemp("logs"), places) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine."""
    with running_browser() as running:
        yield running


@contextmanager
def _panel(
    browser: Any, served: Served, name: str, size: dict[str, int], scheme: str = "light"
) -> Iterator[Any]:
    """The panel, after a sign-in; no script fails, and no policy is violated."""
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        page = context.new_page()
        page.set_default_timeout(30_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if "Policy" in message.text else None)
        page.goto(f"{served.url}/admin")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(DEMO_PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        playwright.expect(page.get_by_role("heading", name="Matches of today")).to_be_visible()
        yield page
        assert errors == []


def _match_now(served: Served) -> int:
    at = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    form = {"round": 21, "home_id": 5, "away_id": 6, "kickoff": at, "venue": "Ground by the river"}
    with referee(served) as admin:
        return int(admin.post("/api/admin/matches", json=form).raise_for_status().json()["id"])


def test_a_helper_controls_a_match_on_a_phone(browser: Any, served: Served) -> None:
    """Start, goal, card, undo, the phases and the final result, with buttons that a thumb hits."""
    match_id = _match_now(served)
    with _panel(browser, served, DEMO_HELPER, PHONE) as page:
        playwright.expect(page.locator("#tabs")).to_be_hidden()
        page.goto(f"{served.url}/admin#/match/{match_id}")
        page.get_by_role("button", name="Start the match").click()
        goal = page.get_by_role("button", name=re.compile("^Goal")).first
        assert goal.bounding_box()["height"] >= 64
        goal.click()
        page.get_by_role("dialog").get_by_role("button", name="Titov").click()
        score = page.locator(".board .score").first
        playwright.expect(score).to_have_text("1 : 0")
        page.get_by_role("button", name=re.compile("^Card")).last.click()
        page.get_by_role("dialog").get_by_role("button", name="Not known").click()
        playwright.expect(page.get_by_text("unknown, Vortex")).to_be_visible()
        playwright.expect(page.locator("#toast")).to_be_hidden()
        save_picture(page, "control-phone-light")
        page.get_by_role("button", name=re.compile("^Goal")).last.click()
        page.get_by_role("dialog").get_by_role("button", name="Zorin").click()
        playwright.expect(score).to_have_text("1 : 1")
        page.get_by_role("button", name="Undo").first.click()
        playwright.expect(score).to_have_text("1 : 0")
        for step in ("Half-time", "Start the second half", "Full time"):
            page.get_by_role("button", name=step, exact=True).click()
        page.get_by_role("button", name="Final result").click()
        dialog = page.get_by_role("dialog")
        playwright.expect(dialog).to_contain_text("predictions")
        dialog.get_by_role("button", name="Final: 1 : 0").click()
        playwright.expect(page.locator(".clock")).to_have_text("finished")
    assert served.client.get("/api/league/results").json()[0]["id"] == match_id


def test_what_is_pressed_without_a_network_is_sent_later_and_counts_once(
    browser: Any, served: Served
) -> None:
    """A goal waits for the network, also over a reload; an answer that is lost does not count it twice."""
    path = f"/api/matches/{LIVE_MATCH}/live"
    before = served.client.get(path).json()["score"]
    with _panel(browser, served, DEMO_HELPER, PHONE) as page:
        page.goto(f"{served.url}/admin#/match/{LIVE_MATCH}")
        goal = page.get_by_role("button", name=re.compile("^Goal")).first
        goal.click()
        lost: list[str] = []

        def lose(route: Any) -> None:
            """Let the first request reach the service, and lose its answer."""
            if not lost:
                route.fetch()
            lost.append(route.request.post_data_json["id"])
            route.abort()

        page.route("**/actions", lose)
        page.get_by_role("dialog").get_by_role("button", name="Not known").click()
        playwright.expect(page.locator("#offline")).to_contain_text("1 waiting")
        page.unroute("**/actions")
        page.reload()
        playwright.expect(page.locator(".board .score").first).to_have_text(f"{before[0] + 1} : {before[1]}")
        wait_until(page, "() => Object.entries(localStorage).every(([, kept]) => kept === '[]')")
        playwright.expect(page.locator("#offline")).to_be_hidden()
    assert len(set(lost)) == 1
    assert served.client.get(path).json()["score"] == [before[0] + 1, before[1]]


def test_a_start_far_from_the_kickoff_asks_for_a_reason(browser: Any, served: Served) -> None:
    """The panel asks, and an administrator's reason is in the history; an undo makes it a fixture again."""
    upcoming = served.client.get("/api/predictions?range=6d").json()[-1]["id"]
    with _panel(browser, served, DEMO_ADMINISTRATOR, DESK) as page:
        page.goto(f"{served.url}/admin#/match/{upcoming}")
        page.get_by_role("button", name="Start the match").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("brought forward by a storm")
        dialog.get_by_role("button", name="Start nevertheless").click()
        playwright.expect(page.get_by_text("brought forward by a storm")).to_be_visible()
        page.get_by_role("button", name="Undo").first.click()
        playwright.expect(page.get_by_role("button", name="Start the match")).to_be_visible()


def test_the_preview_shows_the_movement_of_the_table(browser: Any, served: Served) -> None:
    """An administrator sees what another result would change, before it does."""
    with _panel(browser, served, DEMO_ADMINISTRATOR, DESK, "dark") as page:
        page.goto(f"{served.url}/admin#/match/{LIVE_MATCH}")
        page.get_by_role("button", name="Final result").click()
        dialog = page.get_by_role("dialog")
        dialog.locator("input").first.fill("9")
        dialog.get_by_role("button", name="Preview").click()
        playwright.expect(dialog.get_by_role("button", name=re.compile("^Final: 9"))).to_be_visible()
        playwright.expect(dialog).to_contain_text("Rank")
        save_picture(page, "preview-dark")
        page.keyboard.press("Escape")
        playwright.expect(dialog).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_fits_a_phone_and_is_usable_by_keyboard(
    browser: Any, served: Served, scheme: str
) -> None:
    """Nothing is wider than the phone, every field has a name, and tabs are links that Enter opens."""
    with _panel(browser, served, DEMO_ADMINISTRATOR, PHONE, scheme) as page:
        for screen in SCREENS:
            link = page.locator(f'#tabs a[href="#/{screen}"]')
            link.focus()
            page.keyboard.press("Enter")
            playwright.expect(link).to_have_attribute("aria-current", "page")
            wait_until(page, "name => document.getElementById('content').dataset.screen === name", screen)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], screen
            fields = "[...document.querySelectorAll('#content input, #content select')]"
            assert page.evaluate(f"{fields}.every((each) => each.labels.length)"), screen
            save_picture(page, f"{screen}-phone-{scheme}")
        playwright.expect(page.get_by_text("queries per second")).to_be_visible()
        page.set_viewport_size(DESK)
        for screen in ("fixtures", "users"):
            page.goto(f"{served.url}/admin#/{screen}")
            wait_until(page, "name => document.getElementById('content').dataset.screen === name", screen)
            save_picture(page, f"{screen}-desk-{scheme}")


MANY = {
    "fixtures": (
        "INSERT INTO league.matches (season_id, stage, round, home_id, away_id, kickoff, venue)"
        " SELECT 2, 'league', 30, 1, 2, now() + interval '1 year' + n * interval '1 hour', 'Stand ' || n"
        " FROM generate_series(1, 240) AS n"
    ),
    "history": (
        "INSERT INTO league.changes (by_name, action, rows)"
        " SELECT 'someone', 'change ' || n, '[]' FROM generate_series(1, 240) AS n"
    ),
    "comments": (
        "INSERT INTO league.comments (match_id, user_id, text)"
        " SELECT 1, 1, 'remark ' || n FROM generate_series(1, 240) AS n"
    ),
    "users": (
        "INSERT INTO league.users (name, password_hash, role)"
        " SELECT 'visitor-' || n, 'none', 'user' FROM generate_series(1, 240) AS n"
    ),
}
LAST = {"fixtures": "Stand 240", "history": "change 1", "comments": "remark 1", "users": "dora"}
"""What is on the last page of each list."""


def test_every_row_of_a_long_list_can_be_reached(
    browser: Any, served: Served, places: dict[str, str]
) -> None:
    """Of each list more pages are shown by a button, until there are no more; fixtures also by season."""
    for statement in MANY.values():
        sql(places, statement)
    with _panel(browser, served, DEMO_ADMINISTRATOR, PHONE) as page:
        rows = page.locator("#content > .list > li")
        for screen, last in LAST.items():
            page.goto(f"{served.url}/admin#/{screen}")
            playwright.expect(rows).to_have_count(100)
            more = page.get_by_role("button", name=re.compile("^(More|Older)$"))
            for shown in (200, 240):
                more.click()
                wait_until(
                    page, "least => document.querySelectorAll('#content > .list > li').length >= least", shown
                )
            playwright.expect(more).to_be_hidden()
            playwright.expect(rows.filter(has_text=re.compile(f"{last}(?![0-9])"))).to_have_count(1)
        page.goto(f"{served.url}/admin#/fixtures")
        page.get_by_label("Of the season").select_option(label="League 2025")
        page.get_by_label("From").fill("")
        page.get_by_role("button", name="Show", exact=True).click()
        playwright.expect(rows).to_have_count(59)


def test_today_shows_the_live_match_first(browser: Any, served: Served, places: dict[str, str]) -> None:
    """Also on a day with 150 matches, most of which are over."""
    kickoff = "now() - interval '11 hours' + n * interval '1 minute'"
    sql(
        places,
        "INSERT INTO league.matches"
        " (season_id, stage, round, home_id, away_id, kickoff, venue, status, phase)"
        f" SELECT 2, 'league', 31, 1, 2, {kickoff}, 'Here', 'finished', 'ended'"
        " FROM generate_series(1, 150) AS n",
    )
    with _panel(browser, served, DEMO_ADMINISTRATOR, PHONE) as page:
        first = page.locator("#content .fixture").first
        playwright.expect(first).to_have_attribute("href", f"#/match/{LIVE_MATCH}")


def test_a_correction_says_how_a_missing_goal_is_added(browser: Any, served: Served) -> None:
    """The dialog of a final result says that it changes the score alone, and what to do for the rest."""
    final = served.client.get("/api/league/results").json()[-1]["id"]
    with _panel(browser, served, DEMO_ADMINISTRATOR, PHONE) as page:
        page.goto(f"{served.url}/admin#/match/{final}")
        page.get_by_role("button", name="Correct the result").click()
        playwright.expect(page.get_by_role("dialog")).to_contain_text("first undo the final result")


def test_an_administrator_begins_a_new_season(browser: Any, served: Served) -> None:
    """A season is created and started with two buttons and a question; its undo brings the old one back."""
    with _panel(browser, served, DEMO_ADMINISTRATOR, PHONE) as page:
        page.locator('#tabs a[href="#/fixtures"]').click()
        page.get_by_text("Seasons", exact=True).click()
        page.get_by_label("New season").fill("2099/00")
        page.get_by_label("New season").press("Enter")
        page.get_by_role("listitem").filter(has_text="2099/00").get_by_role("button", name="Start").click()
        page.get_by_role("dialog").get_by_role("button", name="Start the season").click()
        playwright.expect(page.get_by_text("The season has begun.")).to_be_visible()
        assert served.client.get("/api/league/table").json() == []
        page.goto(f"{served.url}/admin#/history")
        page.get_by_role("button", name="Undo").first.click()
        playwright.expect(page.get_by_text("undo: start of a season")).to_be_visible()
    assert served.client.get("/api/league/table").json() != []


def test_a_user_without_a_role_sees_nothing_of_it(browser: Any, served: Served) -> None:
    """Someone who signs in without a role is refused, and the public page loads nothing of the panel."""
    with browser.new_context(viewport=PHONE) as context:
        page = context.new_page()
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(f"{served.url}/")
        page.locator("#content[data-drawn]").wait_for()
        assert not [url for url in loaded if "admin" in url]
        page.goto(f"{served.url}/admin")
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill(DEMO_PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        playwright.expect(page.locator("#content")).to_contain_text("for administrators and helpers")
