"""The league's page in a real browser: what it asks for, how often, and what it shows without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ephemera_services.runtime import DEMO_PASSWORD
from tests.browsers import STORAGE_BLOCKED, running_browser, wait_until
from tests.services.league_users import LIVE_MATCH, league, referee, signed_in, sql, until
from tests.services.services import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
_HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


_KEPT_OF_USERS = "Object.keys(localStorage).filter((key) => /^league:[0-9]+:/.test(key)).length"


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


class Visit:
    """The page in a browser of its own, with a clock that the test controls."""

    def __init__(self, browser: Any, served: Served, script: str = "") -> None:
        self.context = browser.new_context()
        self.context.add_init_script(script)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.errors: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("response", self._note)
        self.page.clock.install()
        self.page.goto(served.url + "/")
        self.shows("Vortex")

    def _note(self, response: Any) -> None:
        path = response.url.partition("/api/")[2]
        if path:
            self.asked.append((path, response.status))

    def shows(self, text: str) -> None:
        """Wait until the content has this."""
        playwright.expect(self.page.locator("#content")).to_contain_text(text)

    def tab(self, name: str) -> None:
        """Open a tab or a part of it."""
        self.page.get_by_role("tab", name=name, exact=True).click()

    def sign_in(self, name: str) -> None:
        """Sign in as a user of the demonstration."""
        self.page.get_by_role("button", name="Sign in").click()
        account = self.page.locator("#account")
        account.get_by_label("Name").fill(name)
        account.get_by_label("Password").fill(DEMO_PASSWORD)
        account.get_by_role("button", name="Sign in").click()
        playwright.expect(self.page.locator("#me")).to_contain_text(name)

    def later(self, seconds: int) -> None:
        """Move the page's clock."""
        self.page.clock.fast_forward(seconds * 1000)

    def polled(self, path: str, seconds: int) -> Any:
        """Move the clock, and wait for the answer to the poll that is due then."""
        with self.page.expect_response(lambda response: response.url.endswith(path)) as waiting:
            self.later(seconds)
        return waiting.value

    @property
    def mark(self) -> Any:
        """The sign that what is shown may be old."""
        return self.page.locator("#mark")

    @property
    def drawn(self) -> str:
        """How often the content was drawn."""
        return str(self.page.locator("#content").get_attribute("data-drawn"))

    @property
    def every(self) -> int:
        """Milliseconds to the next poll."""
        return int(self.page.evaluate("document.body.dataset.every"))


@pytest.fixture
def visit(browser: Any, served: Served) -> Iterator[Visit]:
    """A first visit."""
    visiting = Visit(browser, served)
    yield visiting
    visiting.context.close()
    assert visiting.errors == []


def test_tabs_load_when_they_are_opened(visit: Visit) -> None:
    """The first screen asks for the table and the ads alone; each other part when it is opened."""
    playwright.expect(visit.page.locator("#ads")).to_contain_text("Tea at the stadium")
    assert {path for path, _ in visit.asked} == {"league/table", "ads"}
    for name, path, text in (
        ("Schedule", "league/schedule", "Reactor"),
        ("Stats", "league/stats", "goals"),
        ("Cup", "league/bracket", "semi-final"),
        ("Leaders", "leaderboards/season", "dora"),
    ):
        before = len(visit.asked)
        visit.tab(name)
        visit.shows(text)
        assert {asked for asked, _ in visit.asked[before:]} == {path}


def test_polling_is_fast_where_it_is_live_and_slow_when_hidden(visit: Visit) -> None:
    """Every 4 s on live pages, every 20 s elsewhere, every 60 s while hidden, and at once when seen again."""
    assert visit.every == 20_000
    visit.tab("Live")
    visit.shows("Reactor")
    assert visit.every == 4000
    assert visit.polled("/api/matches/live", 5).status == 304
    visit.page.evaluate(_HIDE, True)
    assert visit.every == 60_000
    before = len(visit.asked)
    visit.later(50)
    assert visit.asked[before:] == []
    visit.polled("/api/matches/live", 20)
    with visit.page.expect_response(re.compile("/api/matches/live$")):
        visit.page.evaluate(_HIDE, False)
    wait_until(visit.page, "document.body.dataset.every === '4000'")


def test_a_304_changes_nothing_on_the_screen(visit: Visit, served: Served) -> None:
    """While nothing changes, polls are 304 and nothing is drawn; what changes is drawn once."""
    visit.tab("Live")
    visit.shows("Reactor")
    first = visit.drawn
    for _ in range(3):
        assert visit.polled("/api/matches/live", 5).status == 304
    assert visit.drawn == first
    with referee(served) as admin:
        score = {"minute": 44, "home_goals": 3, "away_goals": 2}
        admin.put(f"/api/admin/matches/{LIVE_MATCH}/score", json=score).raise_for_status()
    assert visit.polled("/api/matches/live", 5).status == 200
    visit.shows("3 : 2")
    assert int(visit.drawn) == int(first) + 1


def test_without_a_network_the_snapshot_is_shown_with_its_mark(visit: Visit) -> None:
    """The last data stays, also for a part that is opened again; the mark goes when the network is back."""
    visit.tab("Schedule")
    visit.shows("Reactor")
    playwright.expect(visit.mark).to_be_hidden()
    visit.context.set_offline(True)
    visit.later(25)
    playwright.expect(visit.mark).to_be_visible()
    visit.shows("Reactor")
    visit.tab("Table")
    visit.shows("Vortex")
    playwright.expect(visit.mark).to_be_visible()
    visit.context.set_offline(False)
    assert visit.polled("/api/league/table", 25).status == 304
    playwright.expect(visit.mark).to_be_hidden()


def test_a_stale_page_is_requested_again_soon(visit: Visit) -> None:
    """Who gets a stale page, which another process is loading, asks once more; then as usual."""

    def make_stale(route: Any) -> None:
        """The answer of a process whose page has expired half a minute ago."""
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "cache-status": "ephemera; hit; ttl=-30"})

    visit.page.route("**/api/league/table", make_stale)
    visit.polled("/api/league/table", 25)
    playwright.expect(visit.mark).to_be_visible()
    visit.polled("/api/league/table", 3)
    before = len(visit.asked)
    visit.later(10)
    assert visit.asked[before:] == []
    visit.page.unroute("**/api/league/table")
    visit.polled("/api/league/table", 15)
    playwright.expect(visit.mark).to_be_hidden()


def test_a_match_asks_for_the_parts_that_have_moved(visit: Visit, served: Served) -> None:
    """A match polls its versions, and after a comment asks for those alone; what is being written stays."""
    visit.tab("Live")
    visit.shows("Latest results")
    visit.page.get_by_role("link", name=re.compile("Reactor .* Proton, live")).click()
    visit.shows("Who wins?")
    match = f"matches/{LIVE_MATCH}"
    before = len(visit.asked)
    visit.polled(f"/api/{match}/versions", 5)
    assert [path for path, _ in visit.asked[before:]] == [f"{match}/versions"]
    with referee(served) as admin:
        admin.post(f"/api/{match}/comments", json={"text": "<b>Offside!</b>"}).raise_for_status()
    visit.page.get_by_placeholder("write a comment").fill("half a comm")
    before = len(visit.asked)
    visit.polled(f"/api/{match}/comments", 5)
    visit.shows("<b>Offside!</b>")
    assert [path for path, _ in visit.asked[before:]] == [f"{match}/versions", f"{match}/comments"]
    writing = visit.page.get_by_placeholder("write a comment")
    playwright.expect(writing).to_have_value("half a comm")
    playwright.expect(writing).to_be_focused()


def test_a_user_signs_in_and_predicts(visit: Visit) -> None:
    """Who signs in sees their own predictions, and a new one at once."""
    visit.tab("Predictions")
    visit.tab("Mine")
    visit.shows("Sign in to see")
    visit.sign_in("bob")
    visit.tab("Open")
    form = visit.page.locator("#content form").first
    form.locator("input").nth(0).fill("7")
    form.locator("input").nth(1).fill("6")
    with visit.page.expect_response(re.compile("/api/me/predictions/")) as waiting:
        form.get_by_role("button", name="Predict").click()
    assert waiting.value.status == 204
    playwright.expect(form.get_by_role("button", name="Change")).to_be_visible()
    visit.tab("Mine")
    visit.shows("7 : 6")
    visit.page.get_by_role("button", name="Sign out").click()
    visit.shows("Sign in to see")


def test_all_tabs_have_the_same_session(visit: Visit, served: Served) -> None:
    """A user who signed in is known in a tab that is opened later; a sign-out is seen by all of them."""
    visit.sign_in("carl")
    other = visit.context.new_page()
    other.goto(f"{served.url}/#/me/profile")
    playwright.expect(other.locator("#me")).to_contain_text("carl")
    playwright.expect(other.locator("#content")).to_contain_text("all-time place")
    other.get_by_role("button", name="Sign out").click()
    playwright.expect(visit.page.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_session_that_has_ended_is_noticed(visit: Visit) -> None:
    """The page asks whoever it knows; then it offers to sign in, and keeps nothing of the user."""
    visit.sign_in("carl")
    visit.tab("Predictions")
    visit.tab("Mine")
    wait_until(visit.page, _KEPT_OF_USERS)
    visit.context.clear_cookies()
    visit.page.reload()
    playwright.expect(visit.page.get_by_role("button", name="Sign in")).to_be_visible()
    visit.shows("Sign in to see")
    assert not visit.page.evaluate(_KEPT_OF_USERS)


def test_it_works_where_storage_is_blocked(browser: Any, served: Served) -> None:
    """With the data of sites blocked, a browser refuses its storage: the page reads, signs in and votes."""
    visiting = Visit(browser, served, STORAGE_BLOCKED)
    visiting.tab("Schedule")
    visiting.shows("Reactor")
    visiting.page.goto(f"{served.url}/#/match/{LIVE_MATCH}")
    visiting.shows("Who wins?")
    visiting.sign_in("dora")
    visiting.page.get_by_role("button", name=re.compile("^A draw")).click()
    playwright.expect(visiting.page.locator(".votes .own")).to_contain_text("A draw")
    visiting.context.close()
    assert visiting.errors == []


def test_the_live_page_shows_what_is_next_and_what_was_last(visit: Visit, served: Served) -> None:
    """Below the live matches are the next ones and the latest results, which are polled more rarely."""
    visit.tab("Live")
    visit.shows("Next")
    following = served.client.get("/api/predictions").json()[0]
    visit.shows(following["home"])
    visit.shows("Latest results")
    latest = served.client.get("/api/league/results").json()[0]
    label = f"{latest['home']} {latest['score'][0]} : {latest['score'][1]} {latest['away']}"
    playwright.expect(visit.page.get_by_role("button", name=label)).to_be_visible()
    before = len(visit.asked)
    visit.polled("/api/matches/live", 5)
    assert {path for path, _ in visit.asked[before:]} == {"matches/live"}


def test_every_screen_has_an_address(visit: Visit, served: Served) -> None:
    """A link opens a match or a club, and the back button returns to where the visitor was."""
    visit.page.goto(f"{served.url}/#/match/{LIVE_MATCH}")
    visit.shows("Who wins?")
    visit.page.get_by_role("link", name="Reactor").click()
    visit.shows("Played")
    assert "/club/" in visit.page.url
    visit.page.go_back()
    visit.shows("Who wins?")
    visit.page.goto(f"{served.url}/#/nonsense/<b>")
    visit.shows("Vortex")


def test_a_visitor_registers_and_votes(visit: Visit, served: Served) -> None:
    """Who is not signed in gets the dialog; after the registration their vote is marked as theirs."""
    visit.page.goto(f"{served.url}/#/match/{LIVE_MATCH}")
    visit.shows("Who wins?")
    visit.page.get_by_role("button", name=re.compile("^A draw")).click()
    account = visit.page.locator("#account")
    account.get_by_role("button", name="I have no account yet").click()
    account.get_by_label("Name").fill("erin")
    account.get_by_label("Password").fill("a fine long passphrase")
    account.get_by_role("button", name="Create it").click()
    playwright.expect(visit.page.locator("#me")).to_contain_text("erin")
    visit.page.get_by_role("button", name=re.compile("^A draw")).click()
    playwright.expect(visit.page.locator(".votes .own")).to_contain_text("A draw")


def test_what_one_did_elsewhere_is_on_the_page_of_a_match(visit: Visit, served: Served) -> None:
    """A vote and a prediction of another browser are marked as one's own; the prediction can be changed."""
    (match, *_) = served.client.get("/api/predictions").json()
    with signed_in(served, "carl") as carl:
        carl.post(f"/api/matches/{match['id']}/votes", json={"choice": "draw"}).raise_for_status()
        goals = {"home_goals": 4, "away_goals": 3}
        carl.put(f"/api/me/predictions/{match['id']}", json=goals).raise_for_status()
        until(lambda: served.client.get(f"/api/matches/{match['id']}/live").json()["votes"]["draw"])
    visit.page.goto(f"{served.url}/#/match/{match['id']}")
    playwright.expect(visit.page).to_have_title(re.compile(f"^{match['home']} . {match['away']} · League$"))
    assert visit.page.locator(".votes .own").count() == 0
    visit.sign_in("carl")
    playwright.expect(visit.page.locator(".votes .own")).to_contain_text("A draw")
    form = visit.page.locator(".predict")
    playwright.expect(form.locator("input").first).to_have_value("4")
    form.locator("input").first.fill("5")
    form.get_by_role("button", name="Change").click()
    playwright.expect(visit.page.locator("#toast")).to_contain_text("5 : 3")


def test_a_page_that_cannot_be_loaded_says_so(visit: Visit) -> None:
    """Without a network and without a snapshot there is a sentence, not an empty screen."""
    visit.context.set_offline(True)
    visit.tab("Leaders")
    visit.shows("cannot be loaded")
    visit.context.set_offline(False)
    visit.later(25)
    visit.shows("dora")


def test_the_minute_counts_between_polls(visit: Visit, served: Served) -> None:
    """The clock of a live match goes on in the browser, and nothing is drawn again for it."""
    with referee(served) as admin:
        score = {"minute": 12, "home_goals": 3, "away_goals": 2}
        admin.put(f"/api/admin/matches/{LIVE_MATCH}/score", json=score).raise_for_status()
    visit.tab("Live")
    minute = visit.page.locator("#content .minute")
    playwright.expect(minute).to_have_text(re.compile("^1[23].$"))
    drawn = visit.drawn
    visit.context.set_offline(True)
    visit.later(120)
    playwright.expect(minute).to_have_text(re.compile("^1[45].$"))
    assert visit.drawn == drawn


def test_stoppage_time_is_counted_from_the_end_of_a_half(
    visit: Visit, served: Served, places: dict[str, str]
) -> None:
    """After 45 and 90 minutes the page shows 45+1 and so on; its clock is a minute ahead for the second."""
    for phase, passed, shown in (("first half", 46, "45[+]2."), ("second half", 48, "90[+]5.")):
        sql(
            places,
            f"UPDATE league.matches SET phase = '{phase}', minute_at = NULL,"
            f" phase_since = now() - interval '{passed} minutes' WHERE id = {LIVE_MATCH}",
        )
        with referee(served) as admin:
            page = {"pattern": "public:matches:live"}
            admin.post("/api/admin/cache/invalidate", json=page).raise_for_status()
        visit.page.goto(f"{served.url}/#/league/stats")
        visit.page.goto(f"{served.url}/#/live/matches")
        minute = visit.page.locator("#content .minute")
        playwright.expect(minute).to_have_text(re.compile(f"^{shown}$"))
        visit.later(60)
        playwright.expect(minute).not_to_have_text(re.compile(f"^{shown}$"))


def test_a_limit_is_waited_for(visit: Visit) -> None:
    """After a 429 the page says that it is loading, and asks again when Retry-After is over, not before."""
    limited = {"status": 429, "headers": {"retry-after": "12"}, "body": "{}"}
    visit.page.route("**/api/matches/live", lambda route: route.fulfill(**limited))
    visit.tab("Live")
    visit.shows("Loading…")
    playwright.expect(visit.mark).to_be_visible()
    visit.page.unroute("**/api/matches/live")
    before = len(visit.asked)
    visit.later(10)
    assert visit.asked[before:] == []
    visit.shows("Loading…")
    visit.polled("/api/matches/live", 5)
    visit.shows("Latest results")
    playwright.expect(visit.mark).to_be_hidden()


def test_the_ends_of_a_table_are_marked_where_they_mean_something(visit: Visit, served: Served) -> None:
    """Of one season the first two and the last two are, with a legend; of all seasons no one is."""
    marked = visit.page.locator("#content tr.first, #content tr.last")
    playwright.expect(marked).to_have_count(4)
    playwright.expect(visit.page.locator("#content .legend")).to_contain_text("Last two")
    visit.page.goto(f"{served.url}/#/league/table?season=all")
    playwright.expect(visit.page.locator("#seasons")).to_contain_text("All seasons")
    playwright.expect(marked).to_have_count(0)
    playwright.expect(visit.page.locator("#content .legend")).to_have_count(0)


def test_results_of_all_seasons_lead_to_those_of_each(visit: Visit, served: Served) -> None:
    """The page of all seasons has the latest; a link to each season leads to all of its results."""
    visit.page.goto(f"{served.url}/#/league/results?season=all")
    visit.shows("All results of a season")
    visit.page.locator("#content").get_by_role("link", name="League 2025").click()
    playwright.expect(visit.page.locator("#content .match")).to_have_count(59)


def test_a_club_has_the_record_and_the_form_of_its_season(visit: Visit, served: Served) -> None:
    """They are those of the table; the matches of a season stand together."""
    row = served.client.get("/api/league/table").json()[0]
    visit.page.goto(f"{served.url}/#/club/{row['club_id']}")
    visit.shows("Played in 2025")
    figures = visit.page.locator(".figures .score").all_inner_texts()
    assert figures == [str(row[name]) for name in ("won", "drawn", "lost")]
    assert visit.page.locator(".form i").all_inner_texts() == row["form"]


def test_days_near_today_are_named(visit: Visit, served: Served) -> None:
    """Yesterday, today and tomorrow are, others have a date; after midnight they are named anew."""
    day = 24 * 3600
    for ahead, name in (
        (-day, "^Yesterday$"),
        (0, "^Today$"),
        (day, "^Tomorrow$"),
        (3 * day, "^[A-Z][a-z]{2}.*[0-9]"),
    ):
        named = visit.page.evaluate("ahead => dayOf(new Date(Date.now() + 1000 * ahead), 'short')", ahead)
        assert re.search(name, named), named
    visit.tab("Results")
    visit.shows("Round 8")
    shown = visit.page.locator("#content time").first
    before, at = shown.inner_text(), shown.get_attribute("datetime")
    visit.later(day)
    playwright.expect(shown).not_to_have_text(before)
    assert shown.inner_text() == visit.page.evaluate("at => when(at).textContent", at)


@pytest.mark.parametrize("width", [360, 1280])
def test_the_cup_is_a_bracket(browser: Any, served: Served, width: int) -> None:
    """Each round is a column right of the one before, and a tie is level with those that lead to it."""
    with browser.new_context(viewport={"width": width, "height": 740}) as context:
        page = context.new_page()
        page.goto(f"{served.url}/#/league/cup?season=1")
        columns = page.locator(".bracket section")
        playwright.expect(columns).to_have_count(2)
        semis, final = columns.first, columns.last
        assert final.bounding_box()["x"] > semis.bounding_box()["x"]
        tops = [each.bounding_box()["y"] for each in semis.locator(".match").all()]
        assert tops[0] < final.locator(".match").bounding_box()["y"] < tops[1]
        clubs = final.locator(".side").all_inner_texts()
        for club, semi in zip(clubs, semis.locator(".match").all(), strict=True):
            playwright.expect(semi).to_contain_text(club.split()[-1])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(f"{served.url}/#/league/cup")
        playwright.expect(page.locator(".bracket")).to_contain_text("To be played")


def test_a_match_of_the_past_shows_how_it_ended(visit: Visit, served: Served) -> None:
    """Score, timeline and votes of a result are shown, and no one votes any more."""
    past = served.client.get("/api/league/results").json()[-1]
    visit.page.goto(f"{served.url}/#/match/{past['id']}")
    visit.shows("Full time")
    visit.shows(" : ".join(map(str, past["score"])))
    playwright.expect(visit.page.locator(".timeline li")).to_have_count(sum(past["score"]))
    playwright.expect(visit.page.locator(".votes button").first).to_be_disabled()


def test_one_sees_the_own_place_below_the_first_page(
    visit: Visit, served: Served, places: dict[str, str]
) -> None:
    """A leaderboard has fifty rows, and after them one's own."""
    sql(places, "UPDATE league.ranks SET rank = rank + 100 WHERE board = 'week'")
    fans = "SELECT 'fan-' || n, 'none', 'user' FROM generate_series(1, 50) n RETURNING id"
    added = sql(places, f"INSERT INTO league.users (name, password_hash, role) {fans}")
    for rank, (user_id,) in enumerate(added, 1):
        sql(places, f"INSERT INTO league.ranks VALUES ('week', {rank}, {user_id}, 99, 9)")
    with referee(served) as admin:
        page = {"pattern": "lb:{board}", "fields": {"board": "week"}}
        admin.post("/api/admin/cache/invalidate", json=page).raise_for_status()
    visit.sign_in("bob")
    visit.tab("Leaders")
    visit.tab("Week")
    rows = visit.page.locator("#content tbody tr")
    playwright.expect(rows).to_have_count(51)
    playwright.expect(rows.last).to_have_class("mine")
    playwright.expect(rows.last).to_contain_text(re.compile("^10[1-4]bob"))


def test_the_first_view_is_small(browser: Any, served: Served) -> None:
    """Everything that a first visit loads is below 60 KB, and comes from the service alone."""
    with browser.new_context() as context:
        page = context.new_page()
        sizes: dict[str, int] = {}
        page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
        page.goto(served.url + "/")
        page.wait_for_load_state("networkidle")
    assert len(sizes) >= 4
    assert all(url.startswith(served.url) for url in sizes)
    assert sum(sizes.values()) < 60_000, sizes


TABLES_OF_PHONES = {"": "td .form", "#/league/stats": "th:has-text('Goals')"}
"""What of a table must not be hidden on a phone."""


@pytest.mark.parametrize(
    "address", [*TABLES_OF_PHONES, "#/live/matches", f"#/match/{LIVE_MATCH}", "#/predictions/open"]
)
def test_screens_fit_a_phone(browser: Any, served: Served, address: str) -> None:
    """Nothing is wider than a small phone."""
    with browser.new_context(viewport={"width": 360, "height": 740}) as context:
        page = context.new_page()
        page.goto(f"{served.url}/{address}")
        page.locator("#content[data-drawn]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        if address in TABLES_OF_PHONES:
            playwright.expect(page.locator(TABLES_OF_PHONES[address]).first).to_be_visible()


def test_a_season_is_chosen_and_has_an_address(visit: Visit, served: Served) -> None:
    """The list of seasons is requested when it is opened; a choice stays in the address and other parts."""
    menu = visit.page.locator("#seasons")
    playwright.expect(menu).to_contain_text("This season")
    assert "seasons" not in {path for path, _ in visit.asked}
    menu.locator("summary").click()
    (past,) = [
        each["id"]
        for each in served.client.get("/api/seasons").json()[0]["seasons"]
        if each["status"] == "past"
    ]
    menu.get_by_role("link").nth(1).click()
    assert visit.page.url.endswith(f"#/league/table?season={past}")
    club = served.client.get(f"/api/league/table?season={past}").json()[0]
    playwright.expect(visit.page.locator("#content tbody tr").first).to_contain_text(club["club"])
    with visit.page.expect_response(re.compile(f"/api/league/bracket\\?season={past}$")):
        visit.tab("Cup")
    visit.shows("final")
    visit.page.go_back()
    visit.page.wait_for_url(f"**/#/league/table?season={past}")
    visit.tab("Live")
    playwright.expect(menu).to_be_hidden()
    visit.page.goto(f"{served.url}/#/leaders/season?season=all")
    playwright.expect(menu).to_contain_text("All seasons")
    visit.shows("dora")
