"""Live control of matches by administrators and helpers, who work at the same time on bad networks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from ephemera_services.league import DEMO_HELPER
from tests.services.league_users import league, referee, signed_in, until
from tests.services.services import Served


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


@pytest.fixture(scope="module")
def helper(served: Served) -> Iterator[httpx.Client]:
    """A helper of matches."""
    with signed_in(served, DEMO_HELPER) as client:
        yield client


def _fixture(admin: httpx.Client, kickoff: timedelta = timedelta(minutes=5)) -> str:
    at = (datetime.now(UTC) + kickoff).isoformat()
    form = {"round": 20, "home_id": 3, "away_id": 4, "kickoff": at, "venue": "Ground"}
    return f"/api/admin/matches/{admin.post('/api/admin/matches', json=form).raise_for_status().json()['id']}"


def _act(client: httpx.Client, path: str, kind: str, **more: Any) -> httpx.Response:
    seen = more.pop("seen", None)
    if seen is None:
        seen = client.get(path).json()["revision"]
    return client.post(f"{path}/actions", json={"id": str(uuid4()), "seen": seen, "kind": kind, **more})


def _started(admin: httpx.Client) -> str:
    path = _fixture(admin)
    _act(admin, path, "start").raise_for_status()
    return path


def _score(client: httpx.Client, path: str) -> tuple[int, int]:
    match = client.get(path).json()["match"]
    return match["home_goals"], match["away_goals"]


def test_a_helper_takes_a_match_from_its_start_to_its_result(
    served: Served, admin: httpx.Client, helper: httpx.Client
) -> None:
    """Every step shows on the public pages at the next poll; the phases keep their order."""
    path = _fixture(admin)
    number = int(path.rpartition("/")[2])
    public = f"/api/matches/{number}/live"
    assert served.client.get(public).json()["status"] == "scheduled"
    assert _act(helper, path, "goal", side="home").status_code == 409
    assert _act(helper, path, "start").status_code == 200
    assert _act(helper, path, "start").status_code == 409
    shown = served.client.get(public).json()
    assert (shown["status"], shown["phase"], shown["score"]) == ("live", "first half", [0, 0])
    assert number in [row["id"] for row in served.client.get("/api/matches/live").json()]
    assert _act(helper, path, "goal", side="home", player="Serov", minute=12).status_code == 200
    assert _act(helper, path, "card", side="away").status_code == 200
    shown = served.client.get(public).json()
    assert shown["score"] == [1, 0]
    assert [(each["kind"], each["player"]) for each in shown["events"]] == [
        ("card", "unknown"),
        ("goal", "Serov"),
    ]
    for kind, wrong in (("half-time", "end"), ("second half", "half-time"), ("end", "start")):
        assert _act(helper, path, wrong).status_code == 409
        assert _act(helper, path, kind).status_code == 200
    early = helper.post(f"{path}/finalize", json={"home_goals": 2, "away_goals": 0})
    assert (early.status_code, early.json()["detail"]) == (409, "The recorded score is 1 : 0.")
    result = {"home_goals": 1, "away_goals": 0}
    assert helper.post(f"{path}/finalize", json=result).status_code == 200
    assert served.client.get("/api/league/results").json()[0]["score"] == [1, 0]
    assert helper.post(f"{path}/finalize", json=result).status_code == 409
    last = admin.get("/api/admin/changes", params={"match_id": number}).json()["changes"][0]
    assert (last["by"], last["action"]) == (DEMO_HELPER, "final result")
    assert helper.post(f"/api/admin/changes/{last['id']}/undo").status_code == 403


def test_a_helper_controls_matches_of_today_that_are_theirs(
    served: Served, admin: httpx.Client, helper: httpx.Client
) -> None:
    """Not those of other days, and not those that are assigned to someone else."""
    far = _fixture(admin, timedelta(days=2))
    mine = _fixture(admin)
    own = int(helper.get("/api/me").json()["user_id"])
    referee_ = int(admin.get("/api/me").json()["user_id"])
    for users, status in (([referee_], 403), ([own, referee_], 200), ([], 200)):
        assert admin.put(f"{mine}/helpers", json={"user_ids": users}).status_code == 204
        assert helper.get(mine).status_code == status
        assert helper.get(f"{mine}/finalization").status_code == status
        listed = [each["id"] for each in helper.get("/api/admin/matches").json()["matches"]]
        assert (int(mine.rpartition("/")[2]) in listed) == (status == 200)
    with signed_in(served, "ann") as ann:
        user = int(ann.get("/api/me").json()["user_id"])
    assert admin.put(f"{mine}/helpers", json={"user_ids": [user]}).status_code == 409
    since = (datetime.now(UTC) - timedelta(days=30)).isoformat()
    listed = [
        each["id"] for each in helper.get("/api/admin/matches", params={"since": since}).json()["matches"]
    ]
    assert int(far.rpartition("/")[2]) not in listed
    for method, part in (("GET", ""), ("POST", "/actions"), ("POST", "/finalize")):
        form = {"id": str(uuid4()), "seen": 0, "kind": "start", "override": True, "note": "x"}
        body = None if method == "GET" else form if part == "/actions" else {"home_goals": 0, "away_goals": 0}
        assert helper.request(method, f"{far}{part}", json=body).status_code == 403


def test_a_match_starts_near_its_kickoff_or_by_an_override(admin: httpx.Client) -> None:
    """Days before, a start is refused; with an override it needs a reason, which the history keeps."""
    for kickoff in (timedelta(hours=1), timedelta(hours=-4)):
        path = _fixture(admin, kickoff)
        refused = _act(admin, path, "start")
        assert (refused.status_code, refused.json()["override"]) == (409, True)
        assert _act(admin, path, "start", override=True).status_code == 422
        done = _act(admin, path, "start", override=True, note="brought forward")
        assert done.json()["changes"][0]["note"] == "brought forward"


def test_a_repeated_action_counts_once(admin: httpx.Client) -> None:
    """The same request, sent again because its answer was lost, gets the same answer; its id is its own."""
    path = _started(admin)
    goal = {"id": str(uuid4()), "seen": 0, "kind": "goal", "side": "away"}
    answers = [admin.post(f"{path}/actions", json=goal) for _ in range(3)]
    assert [each.status_code for each in answers] == [200] * 3
    assert _score(admin, path) == (0, 1)
    assert len({each.json()["revision"] for each in answers}) == 1
    assert admin.post(f"{_started(admin)}/actions", json=goal).status_code == 409


def test_the_same_goal_from_two_people_is_asked_about(admin: httpx.Client, helper: httpx.Client) -> None:
    """Who has not seen the other's goal is refused, and may say that it was another; other events pass."""
    path = _started(admin)
    seen = admin.get(path).json()["revision"]
    assert _act(admin, path, "goal", side="home", seen=seen).status_code == 200
    refused = _act(helper, path, "goal", side="home", seen=seen)
    assert refused.status_code == 409
    assert "referee has just recorded the same" in refused.json()["detail"]
    assert _act(helper, path, "goal", side="away", seen=seen).status_code == 200
    assert _act(helper, path, "card", side="home", seen=seen).status_code == 200
    assert _act(helper, path, "goal", side="home", seen=refused.json()["recorded"]).status_code == 200
    assert _score(admin, path) == (2, 1)


def test_the_clock_of_a_match_counts_in_the_browser(served: Served, admin: httpx.Client) -> None:
    """Pages have when it began, without the breaks; a minute that is set by hand moves it, until a half."""
    path = _fixture(admin)
    public = f"/api/matches/{path.rpartition('/')[2]}/live"

    def minute() -> float | None:
        """The minute that the clock shows now."""
        began = served.client.get(public).json()["clock"]
        return began and 1 + (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds() / 60

    assert minute() is None
    _act(admin, path, "start").raise_for_status()
    assert 1 <= (minute() or 0) < 2
    admin.put(f"{path}/score", json={"minute": 30, "home_goals": 0, "away_goals": 0}).raise_for_status()
    assert 30 <= (minute() or 0) < 31
    _act(admin, path, "goal", side="home").raise_for_status()
    assert 30 <= (minute() or 0) < 31
    assert admin.get(path).json()["match"]["minute"] == 30
    _act(admin, path, "half-time").raise_for_status()
    assert minute() is None
    _act(admin, path, "second half").raise_for_status()
    assert 46 <= (minute() or 0) < 47
    _act(admin, path, "end").raise_for_status()
    assert minute() is None


def test_two_helpers_at_the_same_time_lose_nothing(served: Served, admin: httpx.Client) -> None:
    """Goals from both, each sent twice at the same moment: every one counts, once, on all pages."""
    path = _started(admin)
    number = path.rpartition("/")[2]
    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        clients = [stack.enter_context(signed_in(served, DEMO_HELPER)) for _ in range(4)]

        def record(client: httpx.Client, action: dict[str, Any]) -> None:
            """Send it until it is recorded, as someone who is sure that it was another goal."""
            while (answer := client.post(f"{path}/actions", json=action)).status_code == 409:
                action["seen"] = answer.json()["recorded"]
            assert answer.status_code == 200, answer.text

        work = []
        for at in range(8):
            action = {"id": str(uuid4()), "seen": 0, "kind": "goal", "side": ("home", "away")[at % 2]}
            for each in (0, 1):  # both requests have the same id
                work.append(threads.submit(record, clients[2 * each + at % 2], dict(action)))
        for sent in work:
            sent.result(60)
    assert _score(admin, path) == (4, 4)
    shown = served.client.get(f"/api/matches/{number}/live").json()
    assert (shown["score"], len(shown["events"])) == ([4, 4], 8)
    live = {str(row["id"]): row for row in served.client.get("/api/matches/live").json()}
    assert (live[number]["score"], len(live[number]["goals"])) == ([4, 4], 8)


def test_a_mistake_is_undone_by_its_helper(served: Served, admin: httpx.Client, helper: httpx.Client) -> None:
    """An undone goal leaves the others; a start with goals is not undone; an undone start is a fixture."""
    path = _started(admin)
    number = path.rpartition("/")[2]
    for player in ("First", "Second"):
        _act(helper, path, "goal", side="home", player=player).raise_for_status()
    changes = helper.get(path).json()["changes"]
    first, start = changes[1]["id"], changes[2]["id"]
    assert helper.post(f"/api/admin/changes/{start}/undo").status_code == 409
    assert helper.post(f"/api/admin/changes/{first}/undo").status_code == 200
    shown = served.client.get(f"/api/matches/{number}/live").json()
    assert (shown["score"], [each["player"] for each in shown["events"]]) == ([1, 0], ["Second"])
    assert helper.post(f"/api/admin/changes/{changes[0]['id']}/undo").status_code == 200
    assert helper.post(f"/api/admin/changes/{start}/undo").status_code == 200
    assert served.client.get(f"/api/matches/{number}/live").json()["status"] == "scheduled"
    assert number not in [str(row["id"]) for row in served.client.get("/api/matches/live").json()]


def test_a_helper_undoes_only_live_control(served: Served, admin: httpx.Client, helper: httpx.Client) -> None:
    """Not the fixture, nor a result or its undo; and no undo makes a score negative."""
    path = _fixture(admin)
    with signed_in(served, "ann") as ann:
        guess = {"home_goals": 1, "away_goals": 1}
        ann.put(f"/api/me/predictions/{path.rpartition('/')[2]}", json=guess).raise_for_status()

    def undo_last(client: httpx.Client) -> int:
        last = admin.get(path).json()["changes"][0]["id"]
        return client.post(f"/api/admin/changes/{last}/undo").status_code

    assert undo_last(helper) == 403, "a new fixture"
    admin.put(f"{path}/fixture", json={"venue": "Elsewhere"}).raise_for_status()
    assert undo_last(helper) == 403, "a move"
    for client, shown in ((helper, 0), (admin, 1)):
        assert len(client.get(f"{path}/finalization").json()["awards"]) == shown
    _act(helper, path, "start").raise_for_status()
    _act(helper, path, "goal", side="home").raise_for_status()
    goal = admin.get(path).json()["changes"][0]["id"]
    nil = {"home_goals": 0, "away_goals": 0}
    admin.put(f"{path}/score", json={"minute": 5, **nil}).raise_for_status()
    assert helper.post(f"/api/admin/changes/{goal}/undo").status_code == 409
    admin.post(f"{path}/finalize", json=nil).raise_for_status()
    assert undo_last(helper) == 403, "a result"
    assert undo_last(admin) == 200
    assert undo_last(helper) == 403, "the undo of a result"
    assert _score(admin, path) == (0, 0)
    assert admin.get(path).json()["match"]["status"] == "live"


def test_a_preview_is_what_happens(served: Served, admin: httpx.Client) -> None:
    """Score, table and points as previewed; nothing changes before; an undo takes everything back."""
    path = _fixture(admin)
    number = int(path.rpartition("/")[2])
    with signed_in(served, "ann") as ann, signed_in(served, "bob") as bob:
        for client, goals in ((ann, 2), (bob, 1)):
            guess = {"home_goals": goals, "away_goals": 0}
            client.put(f"/api/me/predictions/{number}", json=guess).raise_for_status()
        _act(admin, path, "start").raise_for_status()
        table = served.client.get("/api/league/table").json()
        score = {"home_goals": 2, "away_goals": 0}
        preview = admin.get(f"{path}/finalization", params=score).json()
        assert served.client.get("/api/league/table").json() == table
        assert admin.get(path).json()["match"]["status"] == "live"
        assert (preview["score"], preview["exact"], preview["right_winner"]) == ([[0, 0], [2, 0]], 1, 1)
        assert [(each["name"], each["points"]) for each in preview["awards"]] == [
            ("ann", [None, 3]),
            ("bob", [None, 1]),
        ]
        assert "league:table" in preview["pages"]
        admin.post(f"{path}/finalize", json=score).raise_for_status()
        after = {row["club"]: row for row in served.client.get("/api/league/table").json()}
        assert preview["table"]
        for moved in preview["table"]:
            row = after[moved["club"]]
            assert [row["rank"], row["points"]] == [moved["rank"][1], moved["points"][1]]
        assert _own(ann, number)["points"] == 3
        last = admin.get(path).json()["changes"][0]["id"]
        assert admin.post(f"/api/admin/changes/{last}/undo").status_code == 200
        assert served.client.get("/api/league/table").json() == table
        assert (_own(ann, number)["points"], _own(ann, number)["status"]) == (None, "live")
    assert admin.get(f"{path}/finalization", params={"home_goals": 1}).status_code == 422


def _own(client: httpx.Client, match_id: int) -> Any:
    return next(row for row in client.get("/api/me/predictions").json() if row["id"] == match_id)


def test_a_corrected_result_is_in_the_history(served: Served, admin: httpx.Client) -> None:
    """Who, before and after; undone, the first result and its points are back."""
    path = _started(admin)
    for goals in (1, 5):
        final = {"home_goals": goals, "away_goals": 0}
        admin.post(f"{path}/finalize", json=final).raise_for_status()
    changes = admin.get(path).json()["changes"]
    assert [each["action"] for each in changes[:2]] == ["final result"] * 2
    (row,) = changes[0]["rows"]
    assert (row["before"]["home_goals"], row["after"]["home_goals"]) == (1, 5)
    assert admin.post(f"/api/admin/changes/{changes[1]['id']}/undo").status_code == 409
    assert admin.post(f"/api/admin/changes/{changes[0]['id']}/undo").status_code == 200
    number = int(path.rpartition("/")[2])
    results = {row["id"]: row["score"] for row in served.client.get("/api/league/results").json()}
    assert results[number] == [1, 0]


def test_what_helpers_do_is_pushed(served: Served, admin: httpx.Client, helper: httpx.Client) -> None:
    """A helper's panel is told of changes by the same WebSocket as an administrator's; each may open 20."""
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    path = _started(admin)
    number = int(path.rpartition("/")[2])
    cookies = "; ".join(f"{name}={value}" for name, value in helper.cookies.items())
    url = served.url.replace("http", "ws", 1) + "/ws/admin"
    with connect(url, additional_headers={"Cookie": cookies}) as socket:
        _act(admin, path, "goal", side="home").raise_for_status()
        assert until(lambda: str(number) in str(socket.recv(30)))
        with ExitStack() as others:
            for _ in range(19):
                others.enter_context(connect(url, additional_headers={"Cookie": cookies}))
            with pytest.raises(InvalidStatus):
                connect(url, additional_headers={"Cookie": cookies})
