"""The league's whole story over HTTP: pages, users, a live match, its result, and what follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import websockets
from websockets.exceptions import InvalidStatus

from tests.services.league_users import LIVE_MATCH, TOKEN, league, referee, signed_in, sql, until
from tests.services.services import Served

PAGES = (
    "/api/league/table",
    "/api/league/schedule",
    "/api/league/results",
    "/api/league/stats",
    "/api/league/bracket",
    "/api/clubs/1/matches",
    "/api/leaderboards/season",
    "/api/users/1/achievements",
    "/api/ads",
    "/api/matches/live",
    f"/api/matches/{LIVE_MATCH}/versions",
    f"/api/matches/{LIVE_MATCH}/live",
    f"/api/matches/{LIVE_MATCH}/meta",
    f"/api/matches/{LIVE_MATCH}/comments",
    "/api/predictions?range=6d",
)


@pytest.fixture(scope="module")
def served(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A league."""
    with league(tmp_path_factory.mktemp("logs"), places) as running:
        yield running


@pytest.fixture(scope="module")
def admin(served: Served) -> Iterator[httpx.Client]:
    """Its administrator."""
    with referee(served) as client:
        yield client


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_tag_and_is_not_sent_twice(served: Served, path: str) -> None:
    """A page has ETag and version; who names the tag gets 304 without a body, and HEAD gets the headers."""
    page = served.client.get(path)
    assert page.status_code == 200
    assert page.headers["x-resource-version"].isdigit()
    assert page.headers["cache-control"] == "public, no-cache"
    again = served.client.get(path, headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == page.headers["etag"]
    head = served.client.head(path)
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/api/matches/999999/live",
        "/api/matches/032/meta",
        "/api/matches/x/comments",
        "/api/clubs/0/matches",
        "/api/leaderboards/none",
        "/api/users/424242/achievements",
        "/api/predictions?range=99d",
    ],
)
def test_what_there_is_not_is_404(served: Served, path: str) -> None:
    """Ids that name nothing, or are spelled in another way, are 404."""
    assert served.client.get(path).status_code == 404


def test_a_match_from_its_first_goal_to_the_table(served: Served, admin: httpx.Client) -> None:
    """Scores, events, votes and comments show at the next poll; the result moves table, stats and boards."""
    live, versions = (f"/api/matches/{LIVE_MATCH}/{part}" for part in ("live", "versions"))
    before = served.client.get(versions).json()
    score = {"minute": 30, "home_goals": 1, "away_goals": 0}
    assert admin.put(f"/api/admin/matches/{LIVE_MATCH}/score", json=score).status_code == 204
    goal = {"minute": 30, "kind": "goal", "side": "home", "player": "Lisin"}
    assert admin.post(f"/api/admin/matches/{LIVE_MATCH}/events", json=goal).status_code == 204
    shown = served.client.get(live).json()
    assert (shown["score"], shown["minute"], shown["events"]) == ([1, 0], 30, [goal])
    assert served.client.get(versions).json()["live"] == before["live"] + 2
    assert served.client.get("/api/matches/live").json()[0]["score"] == [1, 0]
    with signed_in(served, "ann") as ann, signed_in(served, "bob") as bob:
        ballot = f"/api/matches/{LIVE_MATCH}/votes"
        assert ann.post(ballot, json={"choice": "home"}).status_code == 202
        assert ann.post(ballot, json={"choice": "away"}).status_code == 409
        assert bob.post(ballot, json={"choice": "draw"}).status_code == 202
        assert (
            bob.post(f"/api/matches/{LIVE_MATCH}/comments", json={"text": "What a goal!"}).status_code == 201
        )
    said = served.client.get(f"/api/matches/{LIVE_MATCH}/comments").json()
    assert [(each["by"], each["text"]) for each in said] == [("bob", "What a goal!")]
    voted = {"home": 1, "draw": 1, "away": 0}
    assert until(lambda: served.client.get(live).json()["votes"] == voted)
    after = served.client.get(versions).json()
    assert after["comments"] == before["comments"] + 1
    assert after["live"] > before["live"] + 2, "the votes"
    _finalize_and_look(served, admin)
    assert admin.put(f"/api/admin/matches/{LIVE_MATCH}/score", json=score).status_code == 409


def _finalize_and_look(served: Served, admin: httpx.Client) -> None:
    home = served.client.get(f"/api/matches/{LIVE_MATCH}/meta").json()["home"]
    standings = {row["club"]: row for row in served.client.get("/api/league/table").json()}
    goals = served.client.get("/api/league/stats").json()["goals"]
    versions = served.client.get(f"/api/matches/{LIVE_MATCH}/versions").json()
    done = admin.post(
        f"/api/admin/matches/{LIVE_MATCH}/finalize", json={"home_goals": 2, "away_goals": 0}
    ).json()
    assert served.client.get(f"/api/matches/{LIVE_MATCH}/versions").json()["meta"] > versions["meta"]
    live = served.client.get(f"/api/matches/{LIVE_MATCH}/live").json()
    assert served.client.get(f"/api/matches/{LIVE_MATCH}/meta").json()["result"] == live
    assert {"league:table", "league:results", f"md:{{{LIVE_MATCH}}}:live"} <= {*done["changed"]}
    table = {row["club"]: row for row in served.client.get("/api/league/table").json()}
    assert table[home]["points"] == standings[home]["points"] + 3
    assert served.client.get("/api/league/results").json()[0]["id"] == LIVE_MATCH
    assert LIVE_MATCH not in [row["id"] for row in served.client.get("/api/league/schedule").json()]
    assert served.client.get("/api/league/stats").json()["goals"] == goals + 2
    assert served.client.get("/api/matches/live").json() == []


def test_how_a_past_match_ended_is_on_its_fixed_page(served: Served) -> None:
    """Its live page is gone after three hours; score, goals, cards and votes stay to be read."""
    past = served.client.get("/api/league/results").json()[-1]
    assert served.client.get(f"/api/matches/{past['id']}/live").status_code == 404
    result = served.client.get(f"/api/matches/{past['id']}/meta").json()["result"]
    assert result["score"] == past["score"]
    assert len(result["events"]) == sum(past["score"])
    assert served.client.get(f"/api/matches/{LIVE_MATCH + 1}/meta").json()["result"] is None


def test_users_have_their_own_place(served: Served) -> None:
    """Their place is that of the leaderboard, also below its first page; without points they have none."""
    with signed_in(served, "dora") as dora:
        for query in ("", "?season=1", "?season=all"):
            board = served.client.get(f"/api/leaderboards/season{query}").json()
            own = dora.get(f"/api/me/leaderboards/season{query}")
            assert own.headers["cache-control"] == "private, no-store"
            assert {"name": "dora", **own.json()} in board
        for unknown in ("month", "season?season=0", "week?season=1"):
            assert dora.get(f"/api/me/leaderboards/{unknown}").status_code == 404
    with referee(served) as admin:
        assert admin.get("/api/me/leaderboards/season").json() == {
            "rank": None,
            "points": None,
            "exact": None,
        }
    assert served.client.get("/api/me/leaderboards/season").status_code == 401


def test_users_have_their_own_vote(served: Served) -> None:
    """It is what they voted for, once it is counted, on that match alone; others have none."""
    path, live = (f"/api/{each.format(LIVE_MATCH + 2)}" for each in ("me/votes/{}", "matches/{}/live"))
    with signed_in(served, "carl") as carl, signed_in(served, "dora") as dora:
        assert carl.get(path).json() == {"choice": None}
        ballot = {"choice": "away"}
        carl.post(f"/api/matches/{LIVE_MATCH + 2}/votes", json=ballot).raise_for_status()
        assert until(lambda: served.client.get(live).json()["votes"]["away"])
        assert carl.get(path).json() == ballot
        assert carl.get(path).headers["cache-control"] == "private, no-store"
        assert dora.get(path).json() == carl.get("/api/me/votes/1").json() == {"choice": None}
    assert served.client.get(path).status_code == 401


def test_predictions_are_private_and_bring_points(served: Served, admin: httpx.Client) -> None:
    """Two users' pages have other tags and never each other's content; the exact score is three points."""
    (match, *_) = served.client.get("/api/predictions").json()
    path = f"/api/me/predictions/{match['id']}"
    with signed_in(served, "carl") as carl, signed_in(served, "dora") as dora:
        for who, goals in ((carl, 3), (dora, 1)):
            assert who.put(path, json={"home_goals": goals, "away_goals": 1}).status_code == 204
        his, hers = carl.get("/api/me/predictions"), dora.get("/api/me/predictions")
        assert his.json()[0]["prediction"] == [3, 1]
        assert his.headers["cache-control"] == "private, no-cache"
        assert {"Cookie", "Authorization"} <= {*his.headers["vary"].split(", ")}
        crossed = dora.get("/api/me/predictions", headers={"if-none-match": his.headers["etag"]})
        assert (crossed.status_code, crossed.json()) == (200, hers.json())
        before = carl.get("/api/me/leaderboards/week").json()["points"]
        result = {"home_goals": 3, "away_goals": 1, "override": True}
        admin.post(f"/api/admin/matches/{match['id']}/finalize", json=result).raise_for_status()
        assert carl.put(path, json={"home_goals": 0, "away_goals": 0}).status_code == 409
        assert until(lambda: _with_points(served, "carl", before + 3))
    assert served.client.get("/api/me/predictions").status_code == 401


def _with_points(served: Served, name: str, least: int) -> Any:
    rows = served.client.get("/api/leaderboards/week").json()
    return next((row for row in rows if row["name"] == name and row["points"] >= least), None)


def test_comments_are_the_last_120(served: Served) -> None:
    """Of more comments the page has the last 120, oldest first."""
    path = "/api/matches/40/comments"
    with signed_in(served, "ann") as ann:
        for number in range(125):
            assert ann.post(path, json={"text": f"no. {number}"}).status_code == 201
    texts = [each["text"] for each in served.client.get(path).json()]
    assert texts == [f"no. {number}" for number in range(5, 125)]


def test_ads_change_with_every_change_of_theirs(served: Served, admin: httpx.Client) -> None:
    """Posting, changing and removing an advertisement is seen by the next poll."""
    tags = [served.client.get("/api/ads").headers["etag"]]
    ad = {"title": "Scarves", "link": "https://example.com/scarves", "position": 0}
    number = admin.post("/api/admin/ads", json=ad).json()["id"]
    assert served.client.get("/api/ads").json()[0]["title"] == "Scarves"
    tags.append(served.client.get("/api/ads").headers["etag"])
    assert admin.put(f"/api/admin/ads/{number}", json={**ad, "title": "Hats"}).status_code == 204
    assert served.client.get("/api/ads").json()[0]["title"] == "Hats"
    assert admin.delete(f"/api/admin/ads/{number}").status_code == 204
    assert admin.delete(f"/api/admin/ads/{number}").status_code == 404
    assert served.client.get("/api/ads").headers["etag"] == tags[0] != tags[1]


def test_administration_is_for_administrators(served: Served) -> None:
    """Strangers get 401, users 403; a session that is ended opens nothing."""
    paths = ("/api/admin/stats", "/api/admin/monitoring")
    assert [served.client.get(path).status_code for path in paths] == [401, 401]
    with signed_in(served, "ann") as ann:
        assert [ann.get(path).status_code for path in paths] == [403, 403]
        assert ann.get("/api/me").json()["name"] == "ann"
        cookie = dict(ann.cookies)
        assert ann.delete("/api/session").status_code == 204
        assert httpx.get(f"{served.url}/api/me", cookies=cookie).status_code == 401
    wrong = {"name": "ann", "password": "not the password"}
    assert served.client.post("/api/session", json=wrong).status_code == 401


def test_who_registers_can_sign_in(served: Served) -> None:
    """A new account works at once, its name is taken in any spelling, and it has no rights."""
    form = {"name": "Newcomer", "password": "a password of mine"}
    assert served.client.post("/api/users", json=form).json()["role"] == "user"
    assert served.client.post("/api/users", json={**form, "name": "NEWCOMER"}).status_code == 409
    with signed_in(served, "newcomer", form["password"]) as client:
        assert client.get("/api/admin/stats").status_code == 403


def test_prewarming_wants_its_token(served: Served) -> None:
    """Without the right token it is refused; with it, it begins at once and loads what was missing."""
    path = "/api/cache/prewarm"
    for wrong in ({}, {"x-prewarm-token": TOKEN[:-1]}, {"x-prewarm-token": TOKEN + "0"}):
        assert served.client.post(path, headers=wrong).status_code == 403
    assert served.client.post(path, headers={"x-prewarm-token": TOKEN}).status_code == 202
    assert until(lambda: any("prewarmed league" in line["message"] for line in served.lines()))


def test_an_administrator_prewarms(admin: httpx.Client) -> None:
    """The report counts the pages that were loaded, or were fresh already; none has failed."""

    def report() -> Any:
        answer = admin.post("/api/admin/prewarm").json()
        return answer if answer["begun"] else None  # another run may be under way

    found = until(report)
    assert found["loaded"] + found["fresh"] >= 5
    assert found["failed"] == 0


def test_monitoring_has_figures_and_advice(served: Served, admin: httpx.Client) -> None:
    """Hit ratio, evictions, memory, clients, p95, p99 and errors are there, and nothing is advised here."""
    for _ in range(150):
        served.client.get("/api/league/table")
    report = admin.get("/api/admin/monitoring").json()
    assert report["pages"]["hits"] > report["pages"]["misses"] > 0
    assert report["http"]["requests"] >= 150
    assert report["http"]["p95"] <= report["http"]["p99"]
    assert (report["http"]["errors"], report["error_rate"]) == (0, 0)
    assert report["redis"]["used_memory"] > 0 < report["redis"]["connected_clients"]
    assert report["redis"]["evicted_keys"] == 0
    assert report["database"]["queries"] > 0 < report["database"]["queries_per_second"]
    assert report["database"]["max_connections"] == 10
    assert [advice for advice in report["advice"] if "p95" not in advice] == []
    assert admin.get("/api/admin/stats").json()["users"] >= 5


def test_administrators_hear_of_what_happens(served: Served, admin: httpx.Client) -> None:
    """A WebSocket with an administrator's session gets the news; others and foreign pages are refused."""
    events = asyncio.run(_listen(served, admin))
    assert [(event["kind"], event["match_id"]) for event in events] == [("score", 41), ("finalized", 41)]


async def _listen(served: Served, admin: httpx.Client) -> list[dict[str, Any]]:
    url = served.url.replace("http", "ws", 1) + "/ws/admin"
    cookies = "; ".join(f"{name}={value}" for name, value in admin.cookies.items())
    for headers in ({}, {"Cookie": cookies, "Origin": "https://elsewhere.example"}):
        with pytest.raises(InvalidStatus):
            await websockets.connect(url, additional_headers=headers)
    async with websockets.connect(url, additional_headers={"Cookie": cookies}) as socket:
        match = "/api/admin/matches/41"
        score = {"minute": 5, "home_goals": 0, "away_goals": 1, "override": True}
        await asyncio.to_thread(admin.put, f"{match}/score", json=score)
        final = {"home_goals": 0, "away_goals": 1}
        await asyncio.to_thread(admin.post, f"{match}/finalize", json=final)
        async with asyncio.timeout(60):
            texts = [await socket.recv(), await socket.recv()]
    return [msgspec.json.decode(text)["message"] for text in texts]


def test_live_routes_have_a_limit_for_each_address(places: dict[str, str], tmp_path: Path) -> None:
    """The sixteenth live request within ten seconds is 429 with Retry-After; other pages have no limit."""
    proxy = {"EPHEMERA_TRUSTED_PROXIES": "127.0.0.1", "EPHEMERA_LEAGUE_REQUESTS_PER_10_SECONDS": "15"}
    with league(tmp_path, places, **proxy) as served:
        path = f"/api/matches/{LIVE_MATCH}/live"
        ask = {"x-forwarded-for": "203.0.113.7"}
        assert [served.client.get(path, headers=ask).status_code for _ in range(16)] == [200] * 15 + [429]
        denied = served.client.get("/api/matches/live", headers=ask)
        assert denied.status_code == 429
        assert 1 <= int(denied.headers["retry-after"]) <= 10
        assert denied.headers["content-type"] == "application/problem+json"
        assert [served.client.get("/api/league/table", headers=ask).status_code for _ in range(30)] == [
            200
        ] * 30
        other = {"x-forwarded-for": "203.0.113.8"}
        assert served.client.get(path, headers=other).status_code == 200


def test_the_page_is_served(served: Served) -> None:
    """The document is asked for each time; its script and style are kept for a year, by their content."""
    page = served.client.get("/")
    assert page.status_code == 200
    assert page.headers["cache-control"] == "public, no-cache"
    tag = {"if-none-match": page.headers["etag"]}
    assert served.client.get("/", headers=tag).status_code == 304
    names = [word for word in page.text.replace('"', " ").split() if word.startswith("static/")]
    assert len(names) == 2
    for name in names:
        asset = served.client.get(f"/{name}")
        assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert served.client.get("/static/league.js").status_code == 404


def test_wrong_settings_stop_the_start(places: dict[str, str], tmp_path: Path) -> None:
    """Invalid settings are reported at startup, before anything is served."""
    with (
        pytest.raises(AssertionError, match="is not a setting"),
        league(tmp_path, places, EPHEMERA_LEAGUE_MATCH_WINDOW_PREWARM_MINUTE="1"),
    ):
        raise NotImplementedError
    with (
        pytest.raises(AssertionError, match="EPHEMERA_LEAGUE_CACHE_PREWARM_TOKEN"),
        league(tmp_path, places, EPHEMERA_LEAGUE_CACHE_PREWARM_TOKEN="short"),
    ):
        raise NotImplementedError


def test_leaderboards_are_computed_when_they_are_due(places: dict[str, str], tmp_path: Path) -> None:
    """Leaderboards are recomputed regularly by one process, and pick up changes in SQL."""
    often = {"EPHEMERA_LEAGUE_LEADERBOARDS_EVERY": "2s"}
    with league(tmp_path, places, **often) as served, league(tmp_path, places, **often):
        before = sql(places, "SELECT computed_at FROM league.computed")
        name = "(SELECT id FROM league.users WHERE name = 'ann')"
        sql(places, f"UPDATE league.predictions SET points = 3 WHERE user_id = {name}")

        def first() -> str | None:
            """The first name; None while polling exceeds the limit of an address."""
            page = served.client.get("/api/leaderboards/season")
            return str(page.json()[0]["name"]) if page.status_code == 200 else None

        assert until(lambda: first() == "ann")
        assert sql(places, "SELECT computed_at FROM league.computed") > before
