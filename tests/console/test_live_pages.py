"""The pages of what goes on: sessions, limits, streams, locks, write-behind, planner, of live services."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ephemera import embedded
from tests.console.consoles import PASSWORD, running_console
from tests.console.postbox import LoopThread, Postbox
from tests.console.test_permission import FORGE
from tests.systems.feed_world import feed_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ephemera.embedded import Postgres, Valkey
    from tests.console.consoles import RunningConsole
    from tests.systems.feed_world import World

    Browse = Callable[..., Any]
    Show = Callable[[str], Any]
    Picture = Callable[[Any, str], None]

WATCHED = (sys.executable, "-m", "tests.console.watched")
IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(2)</script>"


READY = "window.did_handshake && document.querySelector('.e-tile-value')?.textContent !== '\u2014'"
"""The page is connected, and was refreshed: what is typed now stays."""


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """The server of both services, with many other keys on it."""
    with embedded.valkey(config={"enable-debug-command": "yes"}) as running:
        running.ask("DEBUG", "POPULATE", "100000", "other", "32")
        yield running


@pytest.fixture(scope="module")
def beside() -> Iterator[LoopThread]:
    """Where the services run."""
    running = LoopThread()
    yield running
    running.close()


@pytest.fixture(scope="module")
def postbox(valkey: Valkey, beside: LoopThread) -> Postbox:
    """The small service."""
    return Postbox(valkey.url, beside)


@pytest.fixture(scope="module")
def places(valkey: Valkey, postgres: Postgres) -> list[dict[str, str]]:
    """What the consoles look at."""
    return [
        {"name": "postbox", "catalogue": "tests.console.postbox:catalogue", "url": valkey.url},
        {
            "name": "feed",
            "catalogue": "ephemera.systems.feed.keys:catalogue",
            "url": valkey.url,
            "database_url": postgres.database("console_live_pages"),
        },
    ]


@pytest.fixture(scope="module")
def feed(places: list[dict[str, str]], beside: LoopThread) -> World:
    """Feed, whose planner ticks when a test says so."""
    named = {"EPHEMERA_URL": places[1]["url"], "EPHEMERA_DATABASE_URL": places[1]["database_url"]}
    return beside.enter(feed_world(named))


@pytest.fixture(scope="module")
def live(
    places: list[dict[str, str]],
    postbox: Postbox,
    feed: World,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningConsole]:
    """A console that may act, over both services."""
    words = ("--places", msgspec.json.encode(places).decode(), "--allow-actions")
    folder = tmp_path_factory.mktemp("live")
    with running_console(folder, places[0]["url"], *words, catalogues=(), program=WATCHED) as running:
        yield running


@pytest.fixture(scope="module")
def window(chromium: Any, live: RunningConsole) -> Iterator[Any]:
    """A window in which somebody is signed in for all tests, so that the browser's cache is warm."""
    errors: list[str] = []

    def told(dialog: Any) -> None:
        errors.append(dialog.message)
        dialog.dismiss()

    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)  # milliseconds; machines that run tests are busy
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", told)
    page.goto(live.url)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".e-page").wait_for()
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def show(window: Any, live: RunningConsole) -> Callable[[str], Any]:
    """Shows a page of the console in the window."""

    def shown(path: str) -> Any:
        window.goto(live.url + path)
        window.wait_for_function(READY)
        return window

    return shown


@pytest.fixture(scope="module")
def looking(
    places: list[dict[str, str]], postbox: Postbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningConsole]:
    """The same, read-only."""
    words = ("--places", msgspec.json.encode(places[:1]).decode())
    folder = tmp_path_factory.mktemp("looking")
    with running_console(folder, places[0]["url"], *words, catalogues=(), program=WATCHED) as running:
        yield running


def row_of(page: Any, text: str) -> Any:
    """The row of a table that holds a text."""
    return page.locator(".e-table tbody tr", has_text=text).first


def press(page: Any, row: Any, button: str) -> None:
    """Press a row's button, and then that of the question."""
    row.get_by_role("button", name=button).click()
    page.get_by_role("dialog").get_by_role("button", name=button).click()


def eventually(holds: Callable[[], Any], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"not within 60 s: {what}"
        time.sleep(0.02)


def given_up(postbox: Postbox, *texts: str) -> None:
    """Have letters become dead letters."""
    from tests.console.postbox import LETTERS

    async def dead() -> int:
        return (await postbox.store[LETTERS].reading()).dead

    before = postbox.do(dead())
    postbox.broken = True
    postbox.post(*texts)
    eventually(lambda: postbox.do(dead()) == before + len(texts), "dead letters")
    postbox.broken = False


def test_a_session_is_found_by_user_and_ended(
    live: RunningConsole, postbox: Postbox, show: Show, picture: Picture
) -> None:
    """One of a user's sessions is ended, then all; nothing of what is in a session is shown."""
    one, two, other = postbox.sign_in("ann"), postbox.sign_in("ann"), postbox.sign_in("bob")
    page = show("/sessions")
    page.get_by_label("User", exact=True).fill("ann")
    page.get_by_role("button", name="Find").click()
    listed = page.get_by_role("region", name="Sessions of ann")
    listed.locator("tbody tr").nth(1).wait_for()
    picture(page, "sessions")
    assert "visitor@example.org" not in page.content()
    press(page, listed.locator("tbody tr").first, "End")
    page.get_by_text("The session has ended.").wait_for()
    eventually(lambda: postbox.signed_in(one) != postbox.signed_in(two), "one of them has ended")
    listed.locator("tbody tr").nth(1).wait_for(state="detached")
    page.get_by_role("button", name="End all").click()
    page.get_by_role("dialog").get_by_role("button", name="End all").click()
    listed.get_by_text("No session").wait_for()
    assert not postbox.signed_in(one)
    assert not postbox.signed_in(two)
    assert postbox.signed_in(other)
    lines = [line for line in live.lines() if line["action"].startswith("session.")]
    assert [(line["who"], line["action"], line["outcome"]) for line in lines] == [
        ("operator", "session.end", "done"),
        ("operator", "session.end-all", "done"),
    ]
    assert all("ann" in line["target"] for line in lines)


def test_tokens_of_a_user_are_revoked(live: RunningConsole, postbox: Postbox, show: Show) -> None:
    """What was issued to a user until now is void from then on, and shown as such."""
    from tests.console.postbox import REVOKED

    issued = postbox.do(postbox.store[REVOKED].now("carl"))
    page = show("/sessions?user=carl")
    page.get_by_text("none was revoked as a whole").wait_for()
    page.get_by_role("button", name="Revoke all tokens").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke all tokens").click()
    page.get_by_text("void if issued until").wait_for()
    check = postbox.store[REVOKED].check("access", user="carl", issued_at=issued)
    assert postbox.do(check).revoked
    row_of(page.get_by_role("region", name="Revoked"), "carl").wait_for()


def test_who_is_throttled_is_shown_and_given_room(
    live: RunningConsole, postbox: Postbox, show: Show, picture: Picture
) -> None:
    """The subject, the rule and the limit that held; after a reset the service admits again."""
    postbox.throttle("dora", "pro")
    postbox.throttle(SCRIPT)
    page = show("/limits")
    row = row_of(page.get_by_role("region", name="Being throttled"), "dora")
    row.get_by_text("pro 30 in 24 h").wait_for()
    picture(page, "limits")
    page.get_by_text(SCRIPT).first.wait_for()
    assert not postbox.may_post("dora", "pro")
    press(page, row, "Reset")
    page.get_by_text("There is room again.").wait_for()
    row.wait_for(state="detached")
    assert postbox.may_post("dora", "pro")
    (line,) = [line for line in live.lines() if line["action"] == "limit.reset"]
    assert (line["target"], line["outcome"]) == ("posting dora", "done")


def test_anybody_is_looked_up(live: RunningConsole, postbox: Postbox, show: Show) -> None:
    """A subject who was never denied is shown at each tier's limit, and looking takes nothing."""
    assert postbox.may_post("emma")
    page = show("/limits")
    page.get_by_label("Subject").fill("emma")
    page.get_by_role("button", name="Look up").click()
    found = page.get_by_role("region", name="Look somebody up")
    found.get_by_text("1 of 3", exact=True).wait_for()
    found.get_by_text("1 of 30", exact=True).wait_for()


def test_a_dead_letter_is_replayed_and_handled(
    live: RunningConsole, postbox: Postbox, show: Show, picture: Picture
) -> None:
    """Its error and event are shown as text; once mended, one is replayed, then all the rest."""
    given_up(postbox, f"first {IMAGE}", "second", "third")
    page = show("/streams")
    letters = page.get_by_role("region", name="Dead letters")
    row = row_of(letters, f"no carrier for first {IMAGE}")
    row.wait_for()
    picture(page, "streams")
    row.click()
    page.get_by_role("dialog").get_by_text("Deliveries").wait_for()
    page.keyboard.press("Escape")
    press(page, row, "Replay")
    page.get_by_text("1 dead letter was put back.").wait_for()
    eventually(lambda: postbox.delivered == [f"first {IMAGE}"], "it is delivered")
    row.wait_for(state="detached")
    press(page, row_of(page.get_by_role("region", name="Groups"), "box:letters"), "Replay all")
    letters.get_by_text("No dead letter").wait_for()
    eventually(lambda: set(postbox.delivered[1:]) == {"second", "third"}, "they are delivered")
    told = [(line["action"], line["outcome"]) for line in live.lines() if "replay" in line["action"]]
    assert told == [("event.replay", "done"), ("event.replay-all", "done")]


def test_locks_show_who_holds_them(
    live: RunningConsole, postbox: Postbox, show: Show, picture: Picture
) -> None:
    """Key, holder, age, fence; a key with markup in it is text."""
    postbox.hold("front")
    postbox.hold("<b>back</b>")
    page = show("/locks")
    row = row_of(page, "box:desk:{front}")
    row.wait_for()
    fence, lease = row.locator("td").nth(3).inner_text(), row.locator("td").nth(4).inner_text()
    assert int(fence) > 10**15
    assert lease.endswith(" s")
    row_of(page, "box:desk:{<b>back</b>}").wait_for()
    picture(page, "locks")


def test_write_behind_shows_what_waits_and_the_last_flush(
    live: RunningConsole, postbox: Postbox, show: Show, picture: Picture
) -> None:
    """What was added waits; after a flush nothing does, and the page says when that was, by itself."""
    postbox.sell("front", 3)
    postbox.sell("back", 4)
    page = show("/write-behind")
    row = row_of(page, "box:stamps")
    row.get_by_text("2 of 1,000,000").wait_for()
    row.get_by_text("never").wait_for()
    postbox.settle()
    row.get_by_text("0 of 1,000,000").wait_for()
    row.get_by_text(" ago").wait_for()
    picture(page, "write-behind")


def test_the_planner_shows_its_mode_its_last_tick_and_who_is_due(
    live: RunningConsole, feed: World, beside: LoopThread, show: Show, picture: Picture
) -> None:
    """Dirty channels, then a tick's candidates and whom it handed over."""

    async def dirtied() -> None:
        await feed.settled(f"ann {IMAGE}", "space", "pro")
        await feed.publish("space", 8)

    beside.do(dirtied())
    page = show("/planner")
    row_of(page.get_by_role("region", name="Dirty channels"), "space").wait_for()
    tick = beside.do(feed.tick())
    assert tick.enqueued == 1
    page.get_by_text("of 1 user examined").wait_for()
    row_of(page.get_by_role("region", name="Handed over"), f"ann {IMAGE}").get_by_text("queued").wait_for()
    page.locator(".e-tile", has_text="Mode").get_by_text("Redis", exact=True).wait_for()
    page.get_by_text("No channel is dirty").wait_for()
    picture(page, "planner")


def test_a_page_that_updates_keeps_what_the_user_does(
    live: RunningConsole, postbox: Postbox, show: Show
) -> None:
    """While rows come, what was typed, the focus and the place on the page stay."""
    for number in range(40):
        postbox.sign_in(f"crowd-{number:02}")
    page = show("/sessions")
    search = page.get_by_role("region", name="Signed in").get_by_label("Find")
    search.fill("crowd-")
    row_of(page, "crowd-00").wait_for()
    search.evaluate("field => { window.scrollTo(0, 300); field.focus({preventScroll: true}); }")
    before = page.evaluate("window.scrollY")
    assert before > 0
    postbox.sign_in("crowd-00a")
    row_of(page, "crowd-00a").wait_for()
    assert search.input_value() == "crowd-"
    assert search.evaluate("field => field === document.activeElement")
    assert page.evaluate("window.scrollY") == before


def test_markup_in_user_ids_is_text(live: RunningConsole, postbox: Postbox, show: Show) -> None:
    """A hostile id is listed, looked up and asked about as it is; nothing of it runs (`window` checks)."""
    postbox.sign_in(IMAGE)
    page = show("/sessions")
    row_of(page.get_by_role("region", name="Signed in"), IMAGE).click()
    page.get_by_text(f"Sessions of {IMAGE}").wait_for()
    page.get_by_role("button", name="End all").click()
    page.get_by_text(f"End all sessions of {IMAGE}?").wait_for()
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()


def test_a_read_only_console_changes_nothing_whatever_the_browser_sends(
    looking: RunningConsole, postbox: Postbox, browse: Browse
) -> None:
    """Buttons are disabled; an event that is sent all the same is refused, and that is logged."""
    postbox.throttle("frank")
    token = postbox.sign_in("gina")
    page = browse(looking, "/limits")
    assert row_of(page, "frank").get_by_role("button", name="Reset").is_disabled()
    page.evaluate(FORGE, [0, "act", {"id": "throttled/postbox/posting/3/frank", "name": "reset"}])
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    page.get_by_text("This console is read-only").first.wait_for()
    assert not postbox.may_post("frank")
    page.goto(f"{looking.url}/sessions?user=gina")
    row = page.get_by_role("region", name="Sessions of gina").locator("tbody tr").first
    assert row.get_by_role("button", name="End").is_disabled()
    for name in ("End all", "Revoke all tokens"):
        assert page.get_by_role("button", name=name).is_disabled()
    assert postbox.signed_in(token)
    assert [(line["action"], line["outcome"]) for line in looking.lines()] == [("limit.reset", "refused")]


def test_a_catalogue_without_such_patterns_says_how_to_get_them(
    read_only_console: RunningConsole, browse: Browse
) -> None:
    """Every page of a service that declares nothing of the kind is empty, and names the page to read."""
    page = browse(read_only_console, "/sessions")
    for title in ("Sessions", "Limits", "Jobs", "Streams", "Locks", "Write-behind", "Planner"):
        page.get_by_role("link", name=title).click()
        page.get_by_role("heading", name=title).or_(page.locator(".e-empty")).first.wait_for()
        name = title.lower().replace("-", "_").replace("limits", "rate_limits").replace("streams", "events")
        page.locator(".e-empty").get_by_text(f"docs/patterns/{name}.md").wait_for()
