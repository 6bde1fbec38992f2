"""What the league keeps in Redis is what its design says, for as long as it says, and what an audit finds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.operations.audit import audit
from ephemera.operations.documentation import as_markdown
from ephemera.patterns.http_cache import Resource
from ephemera_services.league import catalogue, keys
from tests.cli.commands import ephemera
from tests.services.league_users import LIVE_MATCH, league, referee, signed_in, until
from tests.services.services import Served

PAGE = Path(__file__).parents[2] / "docs" / "services" / "league.md"
MINUTE, HOUR, DAY = 60, 3600, 86_400
NO_MATCHES_FOR_DAYS = "40d"
"""How far ahead of the demonstration nothing is played within a week."""

# Each page: where it is, and its seconds fresh and stale, outside of windows and inside.
LIVES: list[tuple[Resource[Any], str, dict[str, str], tuple[int, int], tuple[int, int]]] = [
    (keys.TABLE, "/api/league/table", {}, (7 * DAY, HOUR), (30, 300)),
    (keys.SCHEDULE, "/api/league/schedule", {}, (7 * DAY, HOUR), (20, 300)),
    (keys.RESULTS, "/api/league/results", {}, (15 * MINUTE, HOUR), (15, 300)),
    (keys.STATS, "/api/league/stats", {}, (HOUR, HOUR), (45, 300)),
    (keys.BRACKET, "/api/league/bracket", {}, (DAY, HOUR), (HOUR, HOUR)),
    (keys.SEASON_TABLE, "/api/league/table?season=2", {"season": "2"}, (7 * DAY, HOUR), (30, 300)),
    (keys.SEASON_SCHEDULE, "/api/league/schedule?season=2", {"season": "2"}, (7 * DAY, HOUR), (20, 300)),
    (keys.SEASON_RESULTS, "/api/league/results?season=2", {"season": "2"}, (15 * MINUTE, HOUR), (15, 300)),
    (keys.SEASON_STATS, "/api/league/stats?season=all", {"season": "all"}, (HOUR, HOUR), (45, 300)),
    (keys.SEASON_BRACKET, "/api/league/bracket?season=2", {"season": "2"}, (DAY, HOUR), (HOUR, HOUR)),
    (keys.SEASONS, "/api/seasons", {}, (DAY, HOUR), (DAY, HOUR)),
    (
        *(keys.SEASON_BOARD, "/api/leaderboards/season?season=2", {"board": "season", "season": "2"}),
        *((60, 120), (60, 120)),
    ),
    (keys.META, f"/api/matches/{LIVE_MATCH}/meta", {"match_id": "32"}, (600, 600), (600, 600)),
    (keys.LIVE, f"/api/matches/{LIVE_MATCH}/live", {"match_id": "32"}, (60, 120), (4, 15)),
    (
        *(keys.COMMENTS, f"/api/matches/{LIVE_MATCH}/comments", {"match_id": "32"}),
        *((4 * HOUR, 4 * HOUR), (4 * HOUR, 4 * HOUR)),
    ),
    (keys.VERSIONS, f"/api/matches/{LIVE_MATCH}/versions", {"match_id": "32"}, (60, 120), (4, 15)),
    (keys.LIVE_MATCHES, "/api/matches/live", {}, (4, 15), (4, 15)),
    (keys.CLUB, "/api/clubs/1/matches", {"id": "1"}, (1200, 1200), (30, 300)),
    (keys.ACTIVE, "/api/predictions?range=6d", {"range": "6d"}, (300, 120), (300, 120)),
    (keys.MINE, "/api/me/predictions", {"user_id": "1"}, (300, 120), (300, 120)),
    (keys.BOARD, "/api/leaderboards/season", {"board": "season"}, (60, 120), (60, 120)),
    (keys.ACHIEVEMENTS, "/api/users/1/achievements", {"user_id": "1"}, (1800, 1800), (1800, 1800)),
    (keys.ADS, "/api/ads", {}, (600, 600), (600, 600)),
    (keys.ADMIN_STATS, "/api/admin/stats", {}, (HOUR, HOUR), (HOUR, HOUR)),
]


def test_the_designs_keys_are_declared() -> None:
    """Each key of the design's table has its pattern."""
    declared = {space.pattern for space in catalogue}
    assert declared >= {
        *(f"league:{name}" for name in ("table", "schedule", "results", "stats", "bracket")),
        *(f"md:{{match_id}}:{part}" for part in ("meta", "live", "comments")),
        *("etag:md:{match_id}", "predictions:active:{range}", "predictions:user:{user_id}", "lb:{board}"),
        *("achievements:{user_id}", "ads:all", "admin:stats", "public:matches:live"),
        *("public:club:{id}:matches", "cache:match-window:v1", "votes:pending:{shard}"),
    }
    assert {resource.cache.keyspace.pattern for resource, *_ in LIVES} == {
        resource.cache.keyspace.pattern for resource in keys.RESOURCES
    }


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_every_lifetime_is_as_declared(
    valkey: Valkey, places: dict[str, str], tmp_path: Path, *, inside: bool
) -> None:
    """Read back from the server: each page's fresh and stale time, and a TTL that is their sum."""
    valkey.ask("FLUSHALL")
    moved = {} if inside else {"EPHEMERA_LEAGUE_REHEARSE_AHEAD": NO_MATCHES_FOR_DAYS}
    with league(tmp_path, places, EPHEMERA_LEAGUE_PREWARM="false", **moved) as served:
        _ask_for_all(served)
        found = asyncio.run(_read_back(valkey))
    for resource, _, fields, outside, within in LIVES:
        fresh, stale = within if inside else outside
        pattern = resource.cache.keyspace.pattern
        (left, page) = found[resource.at(**fields).key]
        assert (page.fresh, page.stale) == (fresh * 1000, stale * 1000), pattern
        assert 0.85 * (fresh + stale) - 10 <= left / 1000 <= fresh + stale, pattern
    assert inside == ("cache:match-window:v1" in found)  # who rehearses does not answer for the others
    for key, most in (("cache:match-window:v1", 330), ("session", DAY), ("prewarm", 2 * DAY)):
        assert all(0 < left <= most * 1000 for name, (left, _) in found.items() if name.startswith(key))


def _ask_for_all(served: Served) -> None:
    with referee(served) as admin, signed_in(served, "ann") as ann:
        for resource, path, *_ in LIVES:
            who = admin if resource is keys.ADMIN_STATS else ann
            assert who.get(path).status_code == 200, path


async def _read_back(valkey: Valkey) -> dict[str, tuple[int, Any]]:
    """Of every key its milliseconds to live and, of pages, the page."""
    found: dict[str, tuple[int, Any]] = {}
    async with connect(valkey.url, catalogue) as store:
        for name in cast("list[str]", valkey.ask("KEYS", "*")):
            found[name] = (await store.call("PTTL", name), None)
        for resource, _, fields, *_ in LIVES:
            key = resource.at(**fields).key
            page = await store[resource.cache.keyspace].get(**fields)
            found[key] = (found[key][0], page.value if page is not None else None)
    return found


def test_the_page_is_made_from_the_catalogue() -> None:
    """docs/services/league.md is what `ephemera catalogue league --format markdown` prints."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(catalogue)
    assert ephemera("catalogue", "league", "--format", "markdown").out == as_markdown(catalogue)


def test_an_audit_of_a_server_it_has_worked_on_finds_nothing_wrong(
    valkey: Valkey, places: dict[str, str], tmp_path: Path
) -> None:
    """After all kinds of work: nothing unknown, endless, of a wrong type, too long-lived or unreadable."""
    valkey.ask("FLUSHALL")
    with league(tmp_path, places) as served:
        _work(served)
        report = asyncio.run(audit(valkey.url, [catalogue]))
        wrong = {"unknown", "no-ttl", "wrong-type", "ttl-above-policy", "undecodable", "big-key", "misplaced"}
        assert [finding for finding in report.findings if finding.kind in wrong] == []
        assert report.unknown.keys == 0
        shown = ephemera(
            *("audit", "--url", valkey.url, "--catalogue", "league", "--fail-on", ",".join(sorted(wrong)))
        )
    assert shown.code == 0, shown.out
    seen = {space.pattern for space in report.keyspaces if space.keys}
    assert {resource.cache.keyspace.pattern for resource in keys.RESOURCES} <= seen
    assert {"votes:state:{shard}", "league:session:{session_id}", "league:rate:live:{subject}"} <= seen


def _work(served: Served) -> None:
    """Leave something in every space: look, vote, comment, predict, score, finalize, prewarm."""
    with referee(served) as admin, signed_in(served, "ann") as ann:
        upcoming = served.client.get("/api/predictions").json()[0]["id"]
        ann.put(f"/api/me/predictions/{upcoming}", json={"home_goals": 1, "away_goals": 0})
        ann.post(f"/api/matches/{LIVE_MATCH}/votes", json={"choice": "home"})
        ann.post(f"/api/matches/{LIVE_MATCH}/comments", json={"text": "Hello"})
        score = {"minute": 1, "home_goals": 0, "away_goals": 0}
        admin.put(f"/api/admin/matches/{LIVE_MATCH}/score", json=score)
        result = {"home_goals": 1, "away_goals": 0, "override": True}
        admin.post(f"/api/admin/matches/{upcoming}/finalize", json=result)
        assert until(lambda: admin.get("/api/admin/monitoring").json()["votes_waiting"] == 0)
        admin.post("/api/admin/prewarm")
    _ask_for_all(served)
