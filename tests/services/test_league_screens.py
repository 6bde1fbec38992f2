"""How the screens of the league look: each fits, can be read, and is saved as a picture if that is wanted.

With `LEAGUE_PICTURES=docs/images/league` this module takes the pictures of the documentation, and those of
the panel are taken by `test_league_admin_page.py -k "helper_controls or preview"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from ephemera_services.runtime import DEMO_PASSWORD
from tests.browsers import running_browser
from tests.services.league_users import LIVE_MATCH, league, referee, save_picture, signed_in, sql, until
from tests.services.services import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 660}
FANS = ("Ada", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jill", "Kim", "Leo", "Mia", "Nils", "Olga")
SCREENS = {
    "live-phone-light": ("live/matches", "Latest results", None),
    "match-phone-dark": (f"match/{LIVE_MATCH}", "What a start!", "bob"),
    "table-light": ("league/table", "Last two", None),
    "schedule-dark": ("league/schedule", "Round 9", None),
    "predictions-phone-light": ("predictions/open", "closes in", "bob"),
    "leaders-phone-dark": ("leaders/season", "bob", "bob"),
    "profile-phone-dark": ("me/profile", "all-time place", "bob"),
    "cup-light": ("league/cup?season=1", "final", None),
}
"""Of each screen: its address, what it shows, and who looks at it; sizes and schemes are in the names."""
_CONTRAST = """selector => [...document.querySelectorAll(selector)].map((each) => {
    const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
        .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const style = getComputedStyle(each);
    const [dark, bright] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
})"""
"""The contrasts of elements, by the formula of the WCAG."""


@pytest.fixture(scope="module")
def served(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A league in which something happens: a match with goals, votes and comments, and predictions."""
    with league(tmp_path_factory.mktemp("logs"), places) as running:
        _play(running, places)
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine."""
    with running_browser() as running:
        yield running


def _play(served: Served, places: dict[str, str]) -> None:
    match = f"/api/matches/{LIVE_MATCH}"
    for name in FANS:
        adding = f"INSERT INTO league.users (name, password_hash, role) VALUES ('{name}', 'none', 'user')"
        ((user_id,),) = sql(places, f"{adding} RETURNING id")
        sql(
            places,
            "INSERT INTO league.predictions (user_id, match_id, home_goals, away_goals, points)"
            f" SELECT {user_id}, id, 1, 0, (id * {user_id}) % 7 % 4 FROM league.matches"
            " WHERE season_id = 2 AND status = 'finished' AND (id + 1) % 3 > 0",
        )
    with referee(served) as admin:
        happened = (
            ("goal", "home", "Serov", 9),
            ("goal", "away", "Titov", 17),
            ("card", "away", "Panin", 20),
        )
        for kind, side, player, minute in (*happened, ("goal", "home", "Belov", 21)):
            action = {"id": str(uuid4()), "seen": 10**6, "kind": kind, "side": side, "player": player}
            path = f"/api/admin/matches/{LIVE_MATCH}/actions"
            admin.post(path, json={**action, "minute": minute}).raise_for_status()
        admin.post("/api/admin/leaderboards").raise_for_status()
    said = {
        "ann": ("home", "What a start!"),
        "carl": ("home", "That was a foul."),
        "dora": ("away", "Never!"),
    }
    for name, (choice, text) in said.items():
        with signed_in(served, name) as user:
            user.post(f"{match}/votes", json={"choice": choice}).raise_for_status()
            user.post(f"{match}/comments", json={"text": text}).raise_for_status()
    with signed_in(served, "bob") as bob:
        bob.post(f"{match}/votes", json={"choice": "draw"}).raise_for_status()
        (first, second, *_) = served.client.get("/api/predictions").json()
        for row, goals in ((first, (2, 1)), (second, (0, 0))):
            guess = {"home_goals": goals[0], "away_goals": goals[1]}
            bob.put(f"/api/me/predictions/{row['id']}", json=guess).raise_for_status()
    until(lambda: sql(places, "SELECT count(*) FROM league.votes")[0][0] == 4)


def _open(browser: Any, served: Served, name: str, user: str | None) -> tuple[Any, list[str]]:
    """A page in the size and the scheme of a picture's name, for a user who is signed in."""
    size, scheme = (PHONE if "phone" in name else DESK), ("dark" if "dark" in name else "light")
    page = browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB").new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(served.url)
    if user is not None:
        form = {"name": user, "password": DEMO_PASSWORD}
        me = page.context.request.post(f"{served.url}/api/session", data=form).json()
        page.evaluate("me => localStorage.setItem('league:me', JSON.stringify(me))", me)
    return page, errors


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_and_can_be_read(browser: Any, served: Served, name: str) -> None:
    """Nothing is wider than the window, no script fails, and letters on colours have enough contrast."""
    address, text, user = SCREENS[name]
    page, errors = _open(browser, served, name, user)
    page.goto(f"{served.url}/#/{address}")
    page.reload()
    playwright.expect(page.locator("#content")).to_contain_text(text)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert min([21.0, *page.evaluate(_CONTRAST, ".crest, .form i")]) >= 4.5
    if user is not None:
        playwright.expect(page.locator("#me")).to_contain_text(user)
    save_picture(page, name)
    page.context.close()
    assert errors == []
