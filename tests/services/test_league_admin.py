"""Administration of the league over HTTP: who may do what, fixtures, clubs, people, and the history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ephemera_services.league import DEMO_HELPER
from tests.services.league_users import LIVE_MATCH, league, referee, signed_in, sql
from tests.services.services import Served

HELPERS = {
    ("get", "/api/admin/matches"),
    ("get", "/api/admin/matches/{match_id}"),
    ("post", "/api/admin/matches/{match_id}/actions"),
    ("get", "/api/admin/matches/{match_id}/finalization"),
    ("post", "/api/admin/matches/{match_id}/finalize"),
    ("post", "/api/admin/changes/{change_id}/undo"),
}
"""What helpers may ask for; which match they may ask it of is another test."""


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


def _fixture(admin: httpx.Client, kickoff: timedelta = timedelta(days=3), **more: Any) -> int:
    at = (datetime.now(UTC) + kickoff).isoformat()
    form = {"round": 20, "home_id": 1, "away_id": 2, "kickoff": at, "venue": "Old ground", **more}
    made = admin.post("/api/admin/matches", json=form)
    assert made.status_code == 201, made.text
    return int(made.json()["id"])


def _shown(served: Served, page: str, match_id: int) -> Any:
    rows = served.client.get(page).json()
    rows = rows["matches"] if isinstance(rows, dict) else rows
    return next((row for row in rows if row["id"] == match_id), None)


def _undo(admin: httpx.Client, at: int = 0) -> httpx.Response:
    change = admin.get("/api/admin/changes").json()["changes"][at]
    return admin.post(f"/api/admin/changes/{change['id']}/undo")


def test_nobody_gets_in_without_the_role(served: Served) -> None:
    """Of all routes of the administration: strangers get 401, users 403, helpers 403 beyond theirs."""
    document: Any = served.client.get("/openapi.json").json()
    routes = [
        (method, path)
        for path, operations in document["paths"].items()
        for method in operations
        if path.startswith("/api/admin")
    ]
    assert {*routes} > HELPERS
    with signed_in(served, "ann") as ann, signed_in(served, DEMO_HELPER) as helper:
        for method, path in routes:
            asked = "/".join("1" if part.startswith("{") else part for part in path.split("/"))
            assert served.client.request(method, asked).status_code == 401, (method, path)
            assert ann.request(method, asked).status_code == 403, (method, path)
            if (method, path) not in HELPERS:
                assert helper.request(method, asked).status_code == 403, (method, path)


def test_a_fixture_is_created_moved_postponed_and_cancelled(served: Served, admin: httpx.Client) -> None:
    """Each shows at the next poll, on the schedule and on the clubs' pages; each can be undone."""
    assert served.client.get("/api/clubs/1/matches").status_code == 200
    served.client.get("/api/league/schedule")
    match_id = _fixture(admin)
    assert _shown(served, "/api/league/schedule", match_id)["venue"] == "Old ground"
    assert _shown(served, "/api/clubs/1/matches", match_id)
    assert _shown(served, "/api/predictions", match_id)
    path = f"/api/admin/matches/{match_id}"
    moved = (datetime.now(UTC) + timedelta(days=4)).replace(microsecond=0)
    form = {"kickoff": moved.isoformat(), "venue": "New ground"}
    assert admin.put(f"{path}/fixture", json=form).status_code == 204
    row = _shown(served, "/api/league/schedule", match_id)
    assert (datetime.fromisoformat(row["kickoff"]), row["venue"]) == (moved, "New ground")
    assert served.client.get(f"/api/matches/{match_id}/meta").json()["venue"] == "New ground"
    assert admin.post(f"{path}/postpone").status_code == 204
    assert _shown(served, "/api/league/schedule", match_id)["status"] == "postponed"
    assert _shown(served, "/api/predictions", match_id) is None
    assert admin.post(f"{path}/cancel").status_code == 204
    assert admin.put(f"{path}/fixture", json={"venue": "Nowhere"}).status_code == 409
    assert _shown(served, "/api/clubs/2/matches", match_id)["status"] == "cancelled"
    with signed_in(served, "ann") as ann:
        vote = ann.post(f"/api/matches/{match_id}/votes", json={"choice": "home"})
    assert (vote.status_code, vote.json()["detail"]) == (409, "The match is cancelled.")
    assert _undo(admin).status_code == 200
    assert _undo(admin, 2).status_code == 200
    row = _shown(served, "/api/league/schedule", match_id)
    assert (row["status"], row["venue"]) == ("scheduled", "New ground")
    assert _shown(served, "/api/predictions", match_id)


def test_the_creation_of_a_fixture_is_undone_unless_it_is_in_use(served: Served, admin: httpx.Client) -> None:
    """A fixture with a prediction stays: it is cancelled instead."""
    match_id = _fixture(admin)
    with signed_in(served, "ann") as ann:
        guess = {"home_goals": 1, "away_goals": 1}
        ann.put(f"/api/me/predictions/{match_id}", json=guess).raise_for_status()
    assert _undo(admin).status_code == 409
    other = _fixture(admin)
    assert _undo(admin).status_code == 200
    assert _shown(served, "/api/league/schedule", other) is None
    assert served.client.get(f"/api/matches/{other}/meta").status_code == 404
    assert _shown(served, "/api/league/schedule", match_id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"away_id": 1},
        {"kickoff": "1871-01-01T00:00:00Z"},
        {"kickoff": "2027-01-01T00:00:00"},
        {"venue": ""},
        {"venue": "a\tb"},
        {"round": 0},
        {"other": 1},
    ],
)
def test_what_is_wrong_is_refused(admin: httpx.Client, wrong: dict[str, Any]) -> None:
    """A fixture with an impossible club, time, venue or round is 422; an unknown club is 404."""
    form = {"round": 1, "home_id": 1, "away_id": 2, "kickoff": "2027-01-01T10:00:00Z", "venue": "Here"}
    refused = admin.post("/api/admin/matches", json={**form, **wrong})
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert admin.post("/api/admin/matches", json={**form, "away_id": 999}).status_code == 404


def test_a_new_name_is_on_every_page(served: Served, admin: httpx.Client) -> None:
    """A renamed club and a renamed player are shown everywhere with the new name, until an undo."""
    pages = ("table", "schedule", "results", "bracket")
    for page in pages:
        assert "Comet" in served.client.get(f"/api/league/{page}").text
    before = served.client.get("/api/league/stats").text
    squads = admin.get("/api/admin/clubs").json()["clubs"]
    comet = next(each for each in squads if each["name"] == "Comet")
    orlov = next(each for each in comet["players"] if each["name"] == "Orlov")
    assert admin.put(f"/api/admin/clubs/{comet['id']}", json={"name": "Asteroid"}).status_code == 204
    renamed = {"name": "Orlovsky", "number": 9}
    assert admin.put(f"/api/admin/players/{orlov['id']}", json=renamed).status_code == 204
    for page in pages:
        text = served.client.get(f"/api/league/{page}").text
        assert "Asteroid" in text, page
        assert "Comet" not in text, page
    stats = served.client.get("/api/league/stats").json()
    named = {(row["player"], row["club"]) for row in stats["scorers"]}
    assert ("Orlov", "Asteroid") not in named
    assert admin.put(f"/api/admin/clubs/{comet['id']}", json={"name": "Meteor"}).status_code == 409
    assert _undo(admin).status_code == 200
    assert _undo(admin, 2).status_code == 200
    assert served.client.get("/api/league/stats").text == before


def test_a_club_is_removed_only_without_matches(served: Served, admin: httpx.Client) -> None:
    """One that plays is 409; a new one goes with its squad, and an undo brings both back."""
    assert admin.delete("/api/admin/clubs/1").status_code == 409
    club_id = admin.post("/api/admin/clubs", json={"name": "Newcomer"}).json()["id"]
    player = {"name": "Petrov", "number": 1}
    assert admin.post(f"/api/admin/clubs/{club_id}/players", json=player).status_code == 201
    assert admin.post(f"/api/admin/clubs/{club_id}/players", json=player).status_code == 409
    assert served.client.get(f"/api/clubs/{club_id}/matches").json()["club"] == "Newcomer"
    assert admin.delete(f"/api/admin/clubs/{club_id}").status_code == 204
    assert served.client.get(f"/api/clubs/{club_id}/matches").status_code == 404
    assert _undo(admin).status_code == 200
    clubs = {each["id"]: each for each in admin.get("/api/admin/clubs").json()["clubs"]}
    assert [each["name"] for each in clubs[club_id]["players"]] == ["Petrov"]


def test_comments_are_removed_restored_and_erased(
    served: Served, admin: httpx.Client, places: dict[str, str]
) -> None:
    """A removed comment returns with an undo; an erased one leaves its text nowhere."""
    path = f"/api/matches/{LIVE_MATCH}/comments"
    with signed_in(served, "bob") as bob:
        first = bob.post(path, json={"text": "100% offside_"}).json()["id"]
        second = bob.post(path, json={"text": "unspeakable"}).json()["id"]
    found = admin.get("/api/admin/comments", params={"search": "0% OFF"}).json()["comments"]
    assert [(each["id"], each["by"]) for each in found] == [(first, "bob")]
    assert admin.get("/api/admin/comments", params={"search": "_x"}).json()["comments"] == []
    assert admin.delete(f"/api/admin/comments/{first}").status_code == 204
    assert [each["id"] for each in served.client.get(path).json()] == [second]
    assert _undo(admin).status_code == 200
    assert [each["id"] for each in served.client.get(path).json()] == [first, second]
    assert admin.delete(f"/api/admin/comments/{second}", params={"erase": True}).status_code == 204
    assert [each["id"] for each in served.client.get(path).json()] == [first]
    assert _undo(admin).status_code == 409
    assert admin.delete(f"/api/admin/comments/{first}").status_code == 204
    change = admin.get("/api/admin/changes").json()["changes"][0]["id"]
    assert admin.delete(f"/api/admin/changes/{change}/text").status_code == 204
    kept = (
        "SELECT id FROM league.changes WHERE rows::text LIKE '%unspeakable%' OR rows::text LIKE '%offside%'"
    )
    assert sql(places, kept) == []
    assert served.client.get(path).json() == []


def test_a_blocked_user_is_out_at_once(served: Served, admin: httpx.Client) -> None:
    """Their sessions end, and a sign-in is 403 until they are unblocked; nobody blocks themselves."""
    with signed_in(served, "carl") as carl:
        user_id = carl.get("/api/me").json()["user_id"]
        assert admin.put(f"/api/admin/users/{user_id}", json={"blocked": True}).status_code == 204
        assert carl.get("/api/me").status_code == 401
        form = {"name": "carl", "password": "correct horse battery"}
        assert carl.post("/api/session", json=form).status_code == 403
        shown = admin.get("/api/admin/users", params={"search": "ARL", "blocked": True}).json()["users"]
        assert [each["name"] for each in shown] == ["carl"]
        assert _undo(admin).status_code == 200
        assert carl.post("/api/session", json=form).status_code == 200
    own = admin.get("/api/me").json()["user_id"]
    for form_ in ({"blocked": True}, {"role": "user"}):
        assert admin.put(f"/api/admin/users/{own}", json=form_).status_code == 409
    assert admin.get("/api/me").json()["role"] == "admin"
    assert admin.put("/api/admin/users/424242", json={"role": "user"}).status_code == 404


def test_a_role_takes_effect_at_the_next_sign_in(served: Served, admin: httpx.Client) -> None:
    """A new helper must sign in again, and then has the helpers' routes; without the role no more."""
    with signed_in(served, "dora") as dora:
        user_id = dora.get("/api/me").json()["user_id"]
        for role, status in (("helper", 200), ("user", 403)):
            assert admin.put(f"/api/admin/users/{user_id}", json={"role": role}).status_code == 204
            assert dora.get("/api/admin/matches").status_code == 401
            form = {"name": "dora", "password": "correct horse battery"}
            assert dora.post("/api/session", json=form).json()["role"] == role
            assert dora.get("/api/admin/matches").status_code == status


def test_an_undo_happens_once_and_in_order(admin: httpx.Client) -> None:
    """A second undo is 409, as is one of a change that a later one builds upon; an undo can be undone."""
    match_id = _fixture(admin)
    for venue in ("First", "Second"):
        admin.put(f"/api/admin/matches/{match_id}/fixture", json={"venue": venue}).raise_for_status()
    history = admin.get("/api/admin/changes", params={"match_id": match_id}).json()["changes"]
    second, first, created = (f"/api/admin/changes/{each['id']}/undo" for each in history)
    assert admin.post(first).status_code == 409
    assert admin.post(second).status_code == 200
    assert admin.post(second).status_code == 409
    assert admin.post(first).status_code == 200
    assert admin.post(created).status_code == 200
    again = admin.get("/api/admin/changes", params={"match_id": match_id}).json()["changes"]
    assert [each["undone"] for each in again] == [False] * 3 + [True] * 3
    assert {each["by"] for each in again} == {"referee"}
    assert admin.post(f"/api/admin/changes/{again[0]['id']}/undo").status_code == 200
    assert admin.get(f"/api/admin/matches/{match_id}").json()["match"]["venue"] == "Old ground"
    assert admin.post("/api/admin/changes/999999/undo").status_code == 404


def test_a_page_is_loaded_again(served: Served, admin: httpx.Client, places: dict[str, str]) -> None:
    """What was changed in SQL by hand shows after its page is invalidated; unknown pages are 404."""
    served.client.get("/api/ads")
    sql(places, "UPDATE league.ads SET title = 'By hand' WHERE position = 1")
    assert "By hand" not in served.client.get("/api/ads").text
    assert admin.post("/api/admin/cache/invalidate", json={"pattern": "ads:all"}).status_code == 204
    assert "By hand" in served.client.get("/api/ads").text
    for form in (
        {"pattern": "none"},
        {"pattern": "league:table", "fields": {"x": "1"}},
        {"pattern": "md:{match_id}:meta", "fields": {"match_id": "x"}},
    ):
        assert admin.post("/api/admin/cache/invalidate", json=form).status_code == 404
    resources = admin.get("/api/admin/cache").json()["resources"]
    assert next(each for each in resources if each["pattern"] == "ads:all")["misses"] >= 1


def test_advertisements_are_in_the_history(served: Served, admin: httpx.Client) -> None:
    """A removed advertisement returns with an undo."""
    shown = served.client.get("/api/ads").json()
    assert admin.delete(f"/api/admin/ads/{shown[0]['id']}").status_code == 204
    assert served.client.get("/api/ads").json() == shown[1:]
    assert _undo(admin).status_code == 200
    assert served.client.get("/api/ads").json() == shown


def test_the_administration_has_a_limit(places: dict[str, str], tmp_path: Path) -> None:
    """More requests of a user than allowed are 429 with Retry-After."""
    limited = {"EPHEMERA_LEAGUE_ADMINISTRATION_PER_MINUTE": "3"}
    with league(tmp_path, places, **limited) as few:
        form = {"name": "limited", "password": "a fine long passphrase"}
        few.client.post("/api/users", json=form).raise_for_status()
        sql(places, "UPDATE league.users SET role = 'helper' WHERE name = 'limited'")
        with signed_in(few, "limited", form["password"]) as helper:
            answers = [helper.get("/api/admin/matches") for _ in range(4)]
    assert [each.status_code for each in answers] == [200] * 3 + [429]
    assert int(answers[-1].headers["retry-after"]) >= 1
