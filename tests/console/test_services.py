"""Every page in a real browser, with the five running services and their workers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jwt
import msgspec
import pytest

from ephemera import Catalogue, Sessions, connect, sliding
from ephemera.console._formats import format_percent
from ephemera.embedded import Postgres
from ephemera_services.demo.external_servers import SERVICES
from ephemera_services.demo.traffic.scripture import publish_poison
from ephemera_services.league import keys as league
from ephemera_services.runtime import DEMO_PASSWORD
from ephemera_services.scripture import UserCreated
from ephemera_services.scripture import keys as scripture
from tests.console.browser_pages import READY, eventually, expect, press, region, row_of, tile
from tests.console.console_process import running_console
from tests.console.five_services import Stage, staged
from tests.console.test_permission import FORGE
from tests.services import identity_users
from tests.services.scripture_mail import MailServer
from tests.services.slides_processes import Model
from tests.services.slides_users import VIEWER
from tests.services.slides_users import Person as Author

Browse = Callable[..., Any]
Picture = Callable[[Any, str], None]
Show = Callable[[str], Any]

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(2)</script>"
INTRUDER, SCANNER = "203.0.113.66", "203.0.113.77"
OTHERS = 100_000
POPULATE = "for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('SET', 'other:' .. n, 'x') end"
SLOW = "local i = 0; while i < 4000000 do i = i + 1 end"
DRAWN = "paths => paths.map(path => path.getAttribute('d')).join()"
WIDER = """() => [...document.querySelectorAll('.q-table__middle, html')]
  .filter(box => box.scrollWidth > box.clientWidth + 1)
  .map(box => `${box.closest('section')?.ariaLabel}: ${box.scrollWidth} of ${box.clientWidth}`)"""
LOST = "UnknownUser: there is no user"


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """The model of slides, which answers at once unless it is set to wait."""
    running = Model()
    yield running
    running.close()


@pytest.fixture(scope="module")
def mails() -> Iterator[MailServer]:
    """The mail server of scripture."""
    with MailServer() as server:
        yield server


@pytest.fixture(scope="module")
def stage(
    postgres: Postgres, model: Model, mails: MailServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Five services, their workers and the console; league has many undeclared keys and a slow log entry."""
    database = postgres.database("console_services")
    with staged(database, tmp_path_factory.mktemp("stage"), model, mails) as running:
        store = running.store("league")
        for first in range(0, OTHERS, 500):
            populate = partial(store.client("cache").call, "EVAL", POPULATE, 0, first, first + 499)
            running.do(populate)
        running.do(lambda: store.client("cache").call("EVAL", SLOW, 0))
        yield running


@pytest.fixture(scope="module")
def lost(stage: Stage) -> tuple[str, str]:
    """Two users that scripture gets events about but SQL does not know: its consumers fail on them."""
    urls = stage.servers.cache_url, stage.servers.queue_url
    first, second = (stage.do(publish_poison(*urls)) for _ in range(2))
    stage.do(stage.store("scripture")[scripture.USERS].publish(UserCreated(user_id=IMAGE)))
    return first, second


@pytest.fixture(scope="module")
def member(stage: Stage) -> identity_users.Person:
    """A user of identity; slides, league and scripture have some users, too."""
    person = identity_users.newcomer(stage.service("identity"))
    person.profile().raise_for_status()
    Author(stage.service("slides"))
    fan(stage)[0].get("/api/league/table").raise_for_status()
    reader = stage.service("scripture").client
    for _ in range(9):
        reader.get("/passages/john.3.16").raise_for_status()
    return person


@pytest.fixture(scope="module")
def window(chromium: Any, stage: Stage, lost: object, member: object) -> Iterator[Any]:
    """A signed-in window for all tests; none of its pages may have an error or run markup."""
    errors: list[str] = []

    def record(dialog: Any) -> None:
        errors.append(dialog.message)
        dialog.dismiss()

    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)  # milliseconds; machines that run tests are busy
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", record)
    page.goto(stage.console.url)
    page.get_by_label("Password").fill(stage.console_password)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".e-page").wait_for()
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def show(window: Any, stage: Stage) -> Iterator[Show]:
    """Open a page of the console in the window; none may be wider than the window."""

    def shown(path: str) -> Any:
        window.goto(stage.console.url + path)
        window.wait_for_function(READY)
        return window

    yield shown
    assert window.evaluate(WIDER) == []


@pytest.fixture
def held(model: Model) -> Iterator[Model]:
    """The model, which writes two slides of each presentation and then waits."""
    model.hold_at = 3
    model.open.clear()
    yield model
    model.open.set()


def logged_actions(stage: Stage, kind: str) -> list[tuple[str, str]]:
    """The logged actions of a kind, and their outcomes."""
    return [
        (line["action"], line["outcome"])
        for line in stage.console.lines()
        if line["action"].startswith(f"{kind}.") and line["who"] == "demo"
    ]


def fan(stage: Stage) -> tuple[httpx.Client, str]:
    """A new user signed in to league: a client with the cookie, and the id."""
    client = stage.service("league").client
    form = {"name": f"fan-{uuid4().hex[:8]}", "password": DEMO_PASSWORD}
    user = client.post("/api/users", json=form).raise_for_status().json()["user_id"]
    client.post("/api/session", json=form).raise_for_status()
    return client, user


def found(page: Any, user: str) -> Any:
    """The sessions of a user, after a search."""
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_role("button", name="Find").click()
    return region(page, f"Sessions of {user}")


def test_the_overview_follows_the_services(stage: Stage, show: Show, picture: Picture) -> None:
    """Health, memory and commands of all servers are shown; reads change plots and hit ratio."""
    page = show("/")
    reader = stage.service("scripture").client
    lines = region(page, "Commands per second").locator("svg path")
    expect(lines.first).to_be_attached()
    drawn = lines.evaluate_all(DRAWN)
    scripture_store = stage.store("scripture")
    for verse in range(1, 31):
        assert reader.get(f"/passages/gen.1.{verse}").status_code in (200, 404)
        stage.do(lambda: scripture_store.call("EXISTS", "gl:passage:{john.3.16}"))
    expect(tile(page, "Hit ratio")).to_have_text(re.compile("%"))
    expect(tile(page, "Commands")).to_have_text(re.compile(r"[1-9]"))
    expect(tile(page, "Memory")).to_have_text(re.compile(r"\d+(\.\d)? MiB"))
    expect(tile(page, "Keys")).to_have_text(re.compile(r"100,\d{3}"))
    eventually(lambda: lines.evaluate_all(DRAWN) != drawn, "the plot moves")
    checks = region(page, "All checks")
    for server in ("cache", "queue"):
        checks.get_by_label("Find").fill(server)
        expect(row_of(checks, f"{server} /", "PINGs answered")).to_be_visible()
    expect(row_of(region(page, "Advice"), "slow log", "cache")).to_contain_text("list them with SLOWLOG GET")
    capacity = region(page, "Capacity")
    expect(capacity).to_contain_text("gl:passage:{passage_id}")
    expect(capacity.get_by_text("evicts when it is full")).to_have_count(1)  # the queue's does not
    checks.get_by_label("Find").fill("")
    picture(page, "overview")


def test_every_keyspace_of_every_service_is_listed(stage: Stage, show: Show, picture: Picture) -> None:
    """Keys, bytes and the service's own hit ratio are listed, and undeclared keys."""
    page = show("/keyspaces")
    declared = region(page, "Declared keyspaces")
    for place, space in (
        ("identity", "session:{user_id}:{sid}"),
        ("slides", "session:{session_id}"),
        ("scripture", "gl:passage:{passage_id}"),
        ("feed", "cluster_update"),
        ("league", "league:table"),
    ):
        declared.get_by_label("Find").fill(space)
        row = row_of(declared, space, place)
        expect(row.locator("td").nth(5)).to_have_text(re.compile("[1-9]"))  # keys
        expect(row.locator("td").nth(6)).to_have_text(re.compile("KiB| B"))
    declared.get_by_label("Find").fill("gl:passage:{passage_id}")
    ratio = stage.hit_ratio("scripture", "gl:passage:{passage_id}")
    expect(row_of(declared, "gl:passage:{passage_id}").locator("td").nth(7)).to_have_text(
        format_percent(ratio)
    )
    expect(row_of(region(page, "Undeclared keys"), "other:{other_id}", "league")).to_contain_text("100,000")
    declared.get_by_label("Find").fill("")
    declared.get_by_label("Find").blur()
    picture(page, "keyspaces")


def test_a_keyspace_shows_what_the_service_wrote(
    stage: Stage, member: identity_users.Person, show: Show, picture: Picture
) -> None:
    """Passages are decoded with their TTLs; of sensitive profiles neither values nor keys are shown."""
    page = show("/keyspaces")
    page.goto(f"{stage.console.url}/keyspace?service=scripture&keyspace=gl:passage:{{passage_id}}")
    expect(region(page, "Documentation")).to_contain_text("A passage in all translations")
    expect(region(page, "TTLs").locator("svg path").first).to_be_attached()
    row = row_of(region(page, "Entries"), "texts")  # of a random sample
    name = re.search(r"\{([\w.]+)\}", row.locator("td").first.inner_text())
    assert name is not None
    passage = stage.service("scripture").client.get(f"/passages/{name[1]}").raise_for_status().json()
    row.click()
    for text in passage["texts"].values():
        expect(page.get_by_role("dialog")).to_contain_text(text[:40])
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    picture(page, "keyspace")
    page.goto(f"{stage.console.url}/keyspace?service=identity&keyspace=cache:profile:{{user_id}}")
    expect(region(page, "Entries")).to_contain_text("(hidden: sensitive)")
    expect(region(page, "Now")).to_contain_text("Hit ratio")
    assert member.id not in page.content()
    assert member.email not in page.content()


def test_a_session_ended_from_the_console_gets_401_at_its_next_request(
    stage: Stage, show: Show, picture: Picture
) -> None:
    """One of two sessions of a user of slides, and all of a user of league, are ended; no others."""
    slides = stage.service("slides")
    phone, laptop, vera = Author(slides), Author(slides), Author(slides, VIEWER)
    both = (phone, laptop)
    assert {each.ask("GET", "/auth/me").status_code for each in (*both, vera)} == {200}
    user = phone.account["user_id"]
    page = show("/sessions")
    listed = found(page, user)
    expect(listed.locator("tbody tr").nth(1)).to_be_visible()
    before = listed.locator("tbody tr").count()
    picture(page, "sessions")
    assert phone.email not in page.content()
    press(page, listed.locator("tbody tr").first, "End")
    page.get_by_text("The session is ended.").wait_for()
    expect(listed.locator("tbody tr")).to_have_count(before - 1)
    assert sorted(each.ask("GET", "/auth/me").status_code for each in both) == [200, 401]
    (client, fan_id), (other, _) = fan(stage), fan(stage)
    listed = found(page, fan_id)
    expect(row_of(listed, "league")).to_be_visible()
    press(page, listed, "End all")
    page.get_by_text("1 session is ended.").wait_for()
    listed.get_by_text("No session").wait_for()
    assert client.get("/api/me").status_code == 401
    assert other.get("/api/me").status_code == vera.ask("GET", "/auth/me").status_code == 200
    assert logged_actions(stage, "session")[:2] == [("session.end", "done"), ("session.end-all", "done")]
    assert all(value not in stage.console.said for value in phone.client.cookies.values())


def test_tokens_that_are_revoked_get_401_and_are_shown(stage: Stage, show: Show) -> None:
    """Identity's own revocations, all tokens of a user, one family, and those revoked with all sessions."""
    identity = stage.service("identity")
    person, other = identity_users.newcomer(identity), identity_users.newcomer(identity)
    assert person.refresh().status_code == 200  # the token before is used up
    assert other.ask("POST", "/auth/logout").status_code == 204
    page = show(f"/sessions?user={person.id}")
    revoked = region(page, "Revoked")
    for what in ("refresh token", "access token", "family"):
        expect(row_of(revoked, what, "identity")).to_be_visible()
    expect(row_of(revoked, "family")).to_contain_text(other.sid)
    page.get_by_text("not revoked").wait_for()
    assert person.profile().status_code == 200
    press(page, region(page, f"Sessions of {person.id}"), "Revoke all tokens")
    page.get_by_text("revoked if issued until").wait_for()
    expect(row_of(revoked, "user", person.id)).to_be_visible()
    assert person.profile().status_code == person.refresh().status_code == 401
    phone, laptop = person.signed_in_again(), person.signed_in_again()
    revoked.get_by_label("Type").click()
    page.get_by_role("option", name="family").click()
    revoked.get_by_label("Id").fill(phone.sid)
    press(page, revoked, "Revoke")
    page.get_by_text("It is revoked.").wait_for()
    expect(row_of(revoked, "family", phone.sid)).to_be_visible()
    assert [each.profile().status_code for each in (phone, laptop)] == [401, 200]
    token_id = jwt.decode(laptop.tokens["access_token"], options={"verify_signature": False})["jti"]
    revoked.get_by_label("Type").click()
    page.get_by_role("option", name="access token").click()
    revoked.get_by_label("Id").fill(token_id)
    press(page, revoked, "Revoke")
    expect(row_of(revoked, "access token", token_id)).to_be_visible()
    assert [laptop.profile().status_code, laptop.refresh().status_code] == [401, 200]
    assert laptop.profile().status_code == 200  # it is another token now
    press(page, region(page, f"Sessions of {person.id}"), "End all")
    page.get_by_text("sessions are ended.").wait_for()
    assert laptop.profile().status_code == 401
    assert logged_actions(stage, "token") == [
        ("token.revoke-user", "done"),
        ("token.revoke-family", "done"),
        ("token.revoke", "done"),
    ]


def test_a_throttled_subject_is_shown_and_reset(stage: Stage, show: Show, picture: Picture) -> None:
    """After guessed passwords the subject and rule are shown; after a reset the service accepts it again."""
    person = identity_users.newcomer(stage.service("identity"))
    intruder = stage.service("identity", INTRUDER).client
    right = {"email": person.email, "password": identity_users.PASSWORD}
    guesses = [intruder.post("/auth/login", json={**right, "password": "a guess"}) for _ in range(6)]
    assert [each.status_code for each in guesses] == [401] * 5 + [429]
    limits = stage.store("scripture")[scripture.LIMITS]
    for _ in range(2):
        stage.do(lambda: limits.check(scripture.LIMITS["ai"].at(1).on(SCRIPT)))
    page = show("/limits")
    throttled = region(page, "Throttled")
    row = row_of(throttled, INTRUDER, "login", "identity")
    expect(row).to_contain_text("5 in 60 min")
    expect(row_of(throttled, SCRIPT, "ai", "scripture")).to_be_visible()
    picture(page, "limits")
    assert intruder.post("/auth/login", json=right).status_code == 429
    press(page, row, "Reset")
    page.get_by_text("The limit is reset.").wait_for()
    expect(row).to_have_count(0)
    assert intruder.post("/auth/login", json=right).status_code == 200
    assert logged_actions(stage, "limit") == [("limit.reset", "done")]


def test_a_job_is_followed_cancelled_and_retried(
    stage: Stage, held: Model, show: Show, picture: Picture
) -> None:
    """Its progress moves with step, worker and lease; cancelled it ends, retried it completes."""
    anna = Author(stage.service("slides"))
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
    assert logged_actions(stage, "job") == [("job.cancel", "done"), ("job.retry", "done")]


def test_streams_show_pending_events_and_dead_letters_are_replayed(
    stage: Stage, mails: MailServer, lost: tuple[str, str], show: Show, picture: Picture
) -> None:
    """Waiting mails are pending; failed events have an error, and are delivered after a replay."""
    admin, people = stage.administrator(), stage.service("scripture").client
    page = show("/streams")
    mails.open.clear()
    for number in range(3):
        form = {"user_id": str(uuid4()), "email": f"{uuid4().hex}@example.com", "name": f"Ann {number}"}
        people.post("/users", json=form, headers=admin).raise_for_status()
    groups, letters = region(page, "Groups"), region(page, "Dead letters")
    mailing = row_of(groups, "gl:events:notifications", "notifications-workers")
    expect(mailing.locator("td").nth(4)).to_have_text("3")  # pending
    expect(mailing).to_contain_text("working")
    given_up = [row_of(letters, f"{LOST} {user}") for user in lost]
    for row in (*given_up, row_of(letters, "users-welcome", IMAGE)):
        expect(row).to_be_visible()
    picture(page, "streams")
    mailing.click()
    expect(page.get_by_role("dialog").locator("tbody tr")).to_have_count(3)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    mails.open.set()
    expect(mailing).to_contain_text("caught up")
    given_up[0].click()
    expect(page.get_by_role("dialog")).to_contain_text(lost[0])
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    insert = "INSERT INTO scripture.users (id, email, name, plan) VALUES (%s, %s, 'Lost', 'free')"
    for user in lost:
        stage.sql(insert, user, f"{user}@example.com")
    press(page, given_up[0], "Replay")
    page.get_by_text("1 dead letter replayed.").wait_for()
    eventually(lambda: f"{lost[0]}@example.com" in mails.recipients(), "the first one's mail")
    expect(given_up[0]).to_have_count(0)
    assert f"{lost[1]}@example.com" not in mails.recipients()
    remembering = row_of(groups, "gl:events:users", "users-history")
    expect(remembering.locator("td").nth(6)).to_have_text("0")  # dead: what others gave up is not its own
    expect(remembering.get_by_role("button", name="Replay all", exact=True)).to_have_count(0)
    press(page, row_of(groups, "gl:events:users", "users-welcome"), "Replay all")
    eventually(lambda: f"{lost[1]}@example.com" in mails.recipients(), "the second one's mail")
    expect(given_up[1]).to_have_count(0)
    assert logged_actions(stage, "event") == [("event.replay", "done"), ("event.replay-all", "done")]


def test_locks_show_their_holders(stage: Stage, show: Show, picture: Picture) -> None:
    """Locks of workers and of a running ingest show holder, age, fencing token and lease."""
    admin, editor = stage.administrator(), stage.service("scripture").client
    topic = {"id": "contested", "title": "T", "summary": "S", "passages": ["ps.23.1"]}
    page = show("/locks")
    ingest = row_of(page, "gl:lock:ingest:{topics}", "scripture")
    with ThreadPoolExecutor(1) as threads, stage.locked("scripture.passages", "ACCESS EXCLUSIVE"):
        answer = threads.submit(editor.post, "/ingest/topics", json={"items": [topic]}, headers=admin)
        for row in (ingest, row_of(page, "jobs:reaper", "slides")):
            row.wait_for()
            holder, fence = row.locator("td").nth(1).inner_text(), row.locator("td").nth(3).inner_text()
            assert re.search(r"/\d+$", holder), "its host and process"
            assert int(fence) > 10**15
            assert row.locator("td").nth(4).inner_text().endswith((" s", " min"))
        stage.enter(stage.store("scripture")[scripture.INGEST_LOCK].hold(schema="<b>bold</b>"))
        row_of(page, "gl:lock:ingest:{<b>bold</b>}").wait_for()
        picture(page, "locks")
        assert not answer.done()
    assert answer.result().status_code == 200
    expect(ingest).to_have_count(0)


def test_write_behind_shows_the_backlog_and_the_last_flush(
    stage: Stage, show: Show, picture: Picture
) -> None:
    """Votes wait while SQL is locked; afterwards the page shows the flush by itself."""
    fans = [fan(stage)[0] for _ in range(3)]
    match = fans[0].get("/api/league/schedule").raise_for_status().json()[-1]["id"]
    page = show("/write-behind")
    votes = row_of(page, "votes", "league")
    with stage.locked("league.votes", "EXCLUSIVE"):
        for each in fans:
            answer = each.post(f"/api/matches/{match}/votes", json={"choice": "home"})
            assert answer.status_code == 202
        votes.get_by_text("3 of ").wait_for()
        row_of(page, "usage", "slides").get_by_text("waiting").wait_for()
        row_of(page, "presentation_view_count", "slides").wait_for()
        picture(page, "write-behind")
    votes.get_by_text("0 of ").wait_for()
    votes.get_by_text(" ago").wait_for()
    expect(votes).to_contain_text("empty")
    assert stage.sql("SELECT count(*) FROM league.votes WHERE match_id = %s", match) == [(3,)]


def test_the_planner_shows_its_mode_last_tick_and_due_users(
    stage: Stage, show: Show, picture: Picture
) -> None:
    """Dirty channels until the worker processes them; then who is enqueued, who is not due, and why."""
    reader, feed = f"ann-{uuid4().hex[:6]}", stage.service("feed").client
    page = show("/planner")
    calm = _not_due_reader(feed)
    checked = row_of(region(page, "Checked and not due"), calm)
    expect(checked).to_contain_text(re.compile(r"too little novelty: 1 new, due at \d"))
    explanation = region(page, "Explain a user")
    checked.click()
    expect(explanation).to_be_in_viewport()
    expect(explanation.get_by_label("User")).to_have_value(calm)
    expect(row_of(explanation, "Novelty reached")).to_contain_text("not met")
    handed = row_of(region(page, "Enqueued users"), reader)
    # Locked before the worker goes on: it would otherwise be done with the user before the page shows them.
    with stage.locked("feed.clusters", "EXCLUSIVE"):
        with stage.paused("feed-worker"):
            feed.put(f"/feed/users/{reader}/subscriptions/tides", json={"plan": "pro"}).raise_for_status()
            for number in range(8):
                insight = {"channel_id": "tides", "text": f"The spring tide came in, says report {number}."}
                feed.post("/feed/insights", json=insight).raise_for_status()
            row_of(region(page, "Dirty channels"), "tides").wait_for()
            page.locator(".e-tile", has_text="Mode").get_by_text("Redis", exact=True).wait_for()
        handed.get_by_text(re.compile("queued|running")).wait_for()
        expect(handed).to_contain_text(re.compile(r"novelty: 8 new, due at \d"))
        expect(page.locator(".e-tile", has_text="Enqueued")).to_contain_text("0 due, 0 postponed")
        handed.click()
        expect(explanation.get_by_label("User")).to_have_value(reader)
        explanation.get_by_text(re.compile("^(a worker rebuilds|enqueued;)")).wait_for()
        page.get_by_text("No dirty channels").wait_for()
        with stage.paused("feed-worker"):
            # The tick that found the user may not be the last one.
            [(candidates,)] = stage.sql("SELECT last_tick->>'candidates' FROM feed.planner_state")
            expect(tile(page, "Candidates")).to_have_text(candidates)
            picture(page, "planner")
    page.get_by_text("No users enqueued").wait_for()
    explanation.get_by_label("User").fill(reader)
    explanation.get_by_role("button", name="Explain").click()
    expect(row_of(explanation, "Novelty reached")).to_contain_text("not met")
    expect(row_of(explanation, "Failed attempts")).to_contain_text("met")
    explanation.get_by_label("User").fill("nobody-of-that-name")
    explanation.get_by_role("button", name="Explain").click()
    explanation.get_by_text("no: there is no such user").wait_for()
    assert feed.get(f"/feed/users/{reader}").raise_for_status().json()


def _not_due_reader(feed: httpx.Client) -> str:
    """A new reader who was clustered, with one more insight that a tick will find too little."""
    reader = f"bob-{uuid4().hex[:6]}"

    def publish(number: int) -> None:
        insight = {"channel_id": "harbour", "text": f"The harbour was dredged, says report {number}."}
        feed.post("/feed/insights", json=insight).raise_for_status()

    for number in range(8):
        publish(number)
    feed.put(f"/feed/users/{reader}/subscriptions/harbour", json={"plan": "pro"}).raise_for_status()
    status = f"/feed/users/{reader}/status"
    eventually(lambda: feed.get(status).json()["cluster_version"], "a first version")
    publish(8)
    return reader


def test_an_audit_finds_the_keys_of_the_services_as_declared(
    stage: Stage, window: Any, picture: Picture
) -> None:
    """On both servers of all five services, their keys match their catalogues."""
    window.goto(f"{stage.console.url}/audit")
    runs = window.get_by_role("button", name="Run audit")
    expect(runs).to_have_count(2 * len(SERVICES))
    for number in range(2 * len(SERVICES)):
        runs.nth(number).click()
    expect(window.get_by_text(re.compile(r"^Finished .* complete\.$"))).to_have_count(2 * len(SERVICES))
    picture(window, "audit")
    for system in SERVICES:
        for role in ("cache", "queue"):
            findings = region(window, f"Findings of {system}, {role}").inner_text()
            kinds = set(re.findall(r"^(?:problem|warning)\t(\S+)", findings, re.MULTILINE))
            assert kinds == ({"unknown"} if (system, role) == ("league", "cache") else set()), findings
    expect(row_of(region(window, "Findings of league, cache"), "unknown")).to_contain_text(
        "100,000 undeclared keys"
    )
    passages = row_of(region(window, "Keyspaces of scripture, cache"), "gl:passage:{passage_id}")
    expect(passages.locator("td").nth(2)).to_have_text(re.compile("[1-9]"))
    assert logged_actions(stage, "audit") == [("audit.run", "done")] * (2 * len(SERVICES))


def test_ten_thousand_jobs_do_not_slow_the_page_beyond_a_second(stage: Stage, show: Show) -> None:
    """With ten thousand more jobs the page takes at most a second longer; errors are text."""
    before = min(_seconds(show) for _ in range(3))
    kind, error = f"many {SCRIPT}", f"ValueError: {SCRIPT}"
    insert = (
        "INSERT INTO slides.jobs (id, kind, queue, arguments, state, error, attempts, finished_at) "
        "SELECT 'many-' || n, %s, 'export', '{}', 'dead', %s, 5, now() FROM generate_series(1, 10000) n"
    )
    stage.sql(insert, kind, error)
    after = min(_seconds(show) for _ in range(3))
    assert after < before + 1
    page = show("/jobs")
    page.locator(".e-tile", has_text="Dead").get_by_text("10,000").wait_for()
    row = row_of(page, f"many {SCRIPT}")
    row.get_by_text(f"ValueError: {SCRIPT}").wait_for()
    row.click()
    page.get_by_role("dialog").get_by_text(f"ValueError: {SCRIPT}").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Older").click()
    page.get_by_role("button", name="Newest").wait_for()


def _seconds(show: Show) -> float:
    """Seconds until jobs are shown."""
    page = show("/locks")
    page.get_by_text("Held locks").wait_for()
    begun = time.perf_counter()
    page.get_by_role("link", name="Jobs").click()
    page.locator(".e-table tbody tr").first.wait_for()
    return time.perf_counter() - begun


class LooseSession(msgspec.Struct):
    """A session of league that may have any user id."""

    user_id: str
    name: str
    role: str


LOOSE = Catalogue("league")
LOOSE_SESSIONS = Sessions(
    LOOSE,
    league.SESSIONS.keyspace.pattern,
    LooseSession,
    user="user_id",
    index="league:user_sessions:{user_id}",
    lifetime=sliding(hours=24, outlives="the test"),
    kind="value",
    role="queue",
)


def signed_in(stage: Stage, user: str) -> None:
    """A session of a user of league with an id that its own routes would not create."""

    async def create() -> None:
        place = stage.place("league")
        async with connect(place["url"], LOOSE, queue_url=place["queue_url"]) as store:
            await store[LOOSE_SESSIONS].create(LooseSession(user, "someone", "user"))

    stage.do(create)


def test_a_page_that_updates_keeps_what_the_user_does(stage: Stage, show: Show) -> None:
    """While rows update, typed text, focus and scroll position stay."""
    for number in range(40):
        signed_in(stage, f"crowd-{number:02}")
    page = show("/sessions")
    search = region(page, "Signed in").get_by_label("Find")
    search.fill("crowd-")
    row_of(page, "crowd-00").wait_for()
    search.evaluate("field => { window.scrollTo(0, 300); field.focus({preventScroll: true}); }")
    before = page.evaluate("window.scrollY")
    assert before > 0
    signed_in(stage, "crowd-00a")
    row_of(page, "crowd-00a").wait_for()
    assert search.input_value() == "crowd-"
    assert search.evaluate("field => field === document.activeElement")
    assert page.evaluate("window.scrollY") == before


def test_markup_in_user_ids_is_text(stage: Stage, show: Show) -> None:
    """A hostile id is listed, looked up and confirmed as text; nothing of it runs (`window` checks)."""
    signed_in(stage, IMAGE)
    page = show("/sessions")
    users = region(page, "Signed in")
    users.get_by_label("Find").fill(IMAGE)
    expect(users.locator("tbody tr")).to_have_count(1)  # until then rows move under the mouse
    row_of(users, IMAGE).click()
    page.get_by_text(f"Sessions of {IMAGE}").wait_for()
    page.get_by_role("button", name="End all").click()
    page.get_by_text(f"End all sessions of {IMAGE}?").wait_for()
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()


def test_a_read_only_console_changes_nothing_whatever_the_browser_sends(
    stage: Stage, browse: Browse, tmp_path: Path
) -> None:
    """Buttons are disabled; forged events are refused and logged; figures are shown."""
    client, user = fan(stage)
    gate = stage.service("league", SCANNER).client
    guess = _guess_too_often(gate)
    place = stage.place("league")
    words = ("--queue-url", place["queue_url"], "--metrics-url", f"{stage.service('league').url}/metrics")
    more = {"EPHEMERA_METRICS_TOKEN": stage.metrics_token}
    with running_console(tmp_path, place["url"], *words, catalogues=("league",), **more) as looking:
        page = browse(looking, "/limits")
        assert row_of(page, SCANNER).get_by_role("button", name="Reset").is_disabled()
        rule = league.LIMITS["sign-in"].keyspace.pattern
        forged = {"id": f"throttled/league/sign-in/{rule}/20/{(SCANNER,)!r}", "name": "reset"}
        page.evaluate(FORGE, [0, "act", forged])
        page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        page.get_by_text("This console is read-only").first.wait_for()
        assert gate.post("/api/session", json=guess).status_code == 429
        page.goto(f"{looking.url}/sessions?user={user}")
        row = region(page, f"Sessions of {user}").locator("tbody tr").first
        assert row.get_by_role("button", name="End").is_disabled()
        assert page.get_by_role("button", name="End all").is_disabled()
        assert client.get("/api/me").status_code == 200
        assert stage.service("league").client.get("/api/league/table").status_code == 200
        ratio = format_percent(stage.hit_ratio("league", "league:table"))
        page.goto(f"{looking.url}/keyspaces")
        expect(row_of(page, "league:table")).to_contain_text(ratio)
        logged = [(line["action"], line["outcome"]) for line in looking.lines()]
    assert logged == [("limit.reset", "refused")]


def test_pages_show_an_outage_and_recover(stage: Stage, show: Show) -> None:
    """Limits, jobs and streams keep their content while both servers are down, and then recover."""
    page = show("/limits")
    throttled = region(page, "Throttled")
    strip = page.get_by_role("status")
    expect(row_of(throttled, SCRIPT)).to_be_visible()
    expect(strip).to_be_hidden()
    for server in stage.servers.embedded_redis:
        server.kill()
    expect(strip).to_contain_text("cannot be reached")
    expect(row_of(throttled, SCRIPT)).to_be_visible()
    for title in ("Jobs", "Streams", "Sessions", "Locks", "Write-behind", "Planner"):
        page.get_by_role("link", name=title).click()
        expect(page).to_have_title(f"{title} · Ephemera")
        expect(strip).to_contain_text("recovers by itself")
    page.get_by_role("link", name="Limits").click()
    for server in stage.servers.embedded_redis:
        server.restart()
    expect(strip).to_be_hidden()
    _guess_too_often(stage.service("league", SCANNER).client)
    expect(row_of(throttled, SCANNER, "sign-in")).to_be_visible()


def _guess_too_often(gate: httpx.Client) -> dict[str, str]:
    """Guess passwords of different users until the address is limited; return a guess."""
    guesses = ({"name": f"user{number}", "password": "a guess"} for number in count())
    eventually(
        lambda: gate.post("/api/session", json=next(guesses)).status_code == 429, "the limit of an address"
    )
    return next(guesses)
