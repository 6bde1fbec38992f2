"""What users do with each built-in service, with canaries for secrets; each gives the secrets it came by.

A secret grants access to its bearer: passwords, tokens, cookies, API keys, links. Every error
path is taken as well: with wrong secrets, malformed bodies, and secrets where none belong.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD as LEAGUE_PASSWORD
from ephemera_services.runtime import DEMO_PASSWORD as SLIDES_PASSWORD
from tests.security.guarded import CANARY
from tests.services import feed_users, identity_users, league_users, scripture_readers, slides_users
from tests.services.services import Served

PASSWORD = f"{CANARY} horse battery"
UNSAID = f"{CANARY}-of-no-use"
"""A secret that is wrong everywhere."""


class ScenarioResult(NamedTuple):
    """The secrets that a scenario used, and the errors it got."""

    secrets: list[str]
    errors: list[str]
    """Bodies of error responses."""


def identity(served: Served) -> ScenarioResult:
    """Register, sign in, read and change the profile, upload, refresh, be made an administrator, sign out."""
    address = identity_users.register(served, password=PASSWORD)
    ann = identity_users.sign_in(served, address, PASSWORD)
    secrets = [ann.tokens["access_token"], ann.tokens["refresh_token"]]
    _want(200, ann.profile())
    form = {"first_name": "Ann", "last_name": "B", "phone": "+49 30 1", "address": "Here"}
    _want(200, ann.ask("PUT", f"/api/profiles/{ann.id}", json=form))
    _want(201, ann.ask("POST", "/api/documents/upload", files={"file": ("a.txt", b"plain text")}))
    _want(200, ann.refresh())
    secrets += [ann.tokens["access_token"], ann.tokens["refresh_token"]]
    _want(200, ann.ask("GET", "/auth/sessions"))
    root = identity_users.administrator(served)
    secrets.append(root.tokens["access_token"])
    _want(200, root.ask("GET", f"/admin/users/{ann.id}/sessions"))
    _want(200, root.ask("PUT", f"/admin/users/{ann.id}/role", json={"role": "admin"}))
    _want(401, ann.profile())
    _want(201, root.ask("POST", "/admin/keys/rotate"))
    again = identity_users.sign_in(served, address, PASSWORD)
    _want(204, again.ask("POST", "/auth/logout"))
    _want(401, again.profile())
    wrong = [
        served.client.post("/auth/login", json={"email": address, "password": UNSAID}),
        served.client.post("/auth/login", json={"email": UNSAID, "password": [UNSAID]}),
        served.client.post("/auth/register", json={"email": address, "password": UNSAID}),
        served.client.post("/auth/refresh", json={"refresh_token": UNSAID}),
        served.client.post("/auth/refresh", json={"refresh_token": secrets[1]}),
        served.client.post("/auth/login", content=f'{{"password": "{UNSAID}"'),
    ]
    return ScenarioResult([*secrets, PASSWORD], _errors(served, wrong))


def slides(served: Served) -> ScenarioResult:
    """Sign in, make a key, upload, have a presentation written and watch it, export, share, block a user."""
    root = slides_users.administrator(served)
    anna = slides_users.Person(served)
    key = anna.want(201, "POST", "/api-keys", json={"name": "robot"})["key"]
    keyed = {"x-api-key": key}
    _want(200, served.client.get("/auth/me", headers=keyed))
    document = anna.document()
    begun = anna.begin("Whales", 2, document_ids=[document])
    assert [message.name for message in anna.events(begun["job_id"])]
    assert anna.finished(begun["job_id"])["state"] == "done"
    presentation = begun["presentation_id"]
    assert anna.exported(presentation, "pdf").startswith(b"%PDF")
    link = anna.want(201, "POST", f"/presentations/{presentation}/shares")
    _want(200, served.client.get(link["url"]))
    anna.want(200, "GET", "/usage")
    made = root.want(
        201,
        "POST",
        "/admin/users",
        json={"email": f"{uuid4().hex}@company.example", "password": PASSWORD, "role": "viewer"},
    )
    root.want(200, "PUT", f"/admin/users/{made['user_id']}/role", json={"role": "editor"})
    root.want(200, "PUT", f"/admin/users/{made['user_id']}/blocked", json={"blocked": True})
    cookies = [*anna.client.cookies.values(), *root.client.cookies.values()]
    anna.want(204, "POST", "/auth/logout")
    wrong = [
        served.client.post("/auth/login", json=slides_users.credentials(slides_users.EDITOR, UNSAID)),
        served.client.post(
            "/auth/login", json={**slides_users.credentials(slides_users.EDITOR), "password": {UNSAID: 1}}
        ),
        served.client.get("/auth/me", headers={"x-api-key": UNSAID}),
        served.client.get("/auth/me", headers={"cookie": f"slides-session={UNSAID}"}),
        served.client.get(f"/p/{UNSAID}"),
    ]
    return ScenarioResult([*cookies, key, link["token"], PASSWORD, SLIDES_PASSWORD], _errors(served, wrong))


def scripture(served: Served) -> ScenarioResult:
    """Read, search, ask, keep preferences, add a user, change plans and features, ingest."""
    ann = scripture_readers.subscriber(served, "free")
    root = scripture_readers.administrator(served)
    for path in ("/passages/john.3.16", "/chapters/john.3", "/search?q=light"):
        _want(200, ann.ask("GET", path))
    _want(200, ann.ask("POST", "/ai/ask", json={"question": "What is light?"}))
    _want(200, ann.ask("GET", "/me/preferences"))
    _want(200, ann.ask("PUT", "/me/preferences", json={"font_size": 20}))
    _want(200, root.ask("PUT", f"/users/{ann.id}/plan", json={"plan": "paid"}))
    _want(200, root.ask("PUT", "/plans/free/features/xrefs", json={"allowed": True}))
    scripture_readers.ingest(served, "passages", scripture_readers.verse("Mercy to you."))
    wrong = [
        served.client.get("/me/preferences", headers={"authorization": f"Bearer {UNSAID}"}),
        served.client.get("/me/preferences", headers={"authorization": f"Basic {UNSAID}"}),
        served.client.post("/ai/ask", json={"question": [UNSAID]}),
        ann.ask("POST", "/ingest/passages", json={"items": [UNSAID]}),
    ]
    return ScenarioResult([ann.token, root.token], _errors(served, wrong))


def feed(served: Served) -> ScenarioResult:
    """Publish, subscribe, wait for clusters, read the feed."""
    caller = feed_users.Caller(served, {"EPHEMERA_DATABASE_URL": ""}, "")
    caller.publish("space", *feed_users.texts("space", 5))
    caller.subscribe("ann", "space", plan="pro")
    caller.wait_for_version("ann", 1)
    assert caller.feed("ann")["items"]
    _want(200, served.client.get("/feed/planner"))
    _want(204, served.client.post("/feed/users/ann/touch"))
    _want(200, served.client.delete("/feed/users/ann/subscriptions/space"))
    wrong = [served.client.post("/feed/insights", json={"channel_id": [UNSAID], "text": {UNSAID: 1}})]
    return ScenarioResult([], _errors(served, wrong))


def league(served: Served) -> ScenarioResult:
    """Register, sign in, poll, foretell, vote, comment; as the referee score, finalize, look, prewarm."""
    name, match = f"ann{uuid4().hex[:8]}", league_users.LIVE_MATCH
    _want(201, served.client.post("/api/users", json={"name": name, "password": PASSWORD}))
    for path in ("/api/league/table", "/api/matches/live", f"/api/matches/{match}/live", "/api/ads"):
        _want(200, served.client.get(path))
    with league_users.signed_in(served, name, PASSWORD) as ann, league_users.referee(served) as referee:
        cookies = [*ann.cookies.values(), *referee.cookies.values()]
        _want(200, ann.get("/api/me"))
        _want(200, ann.get("/api/me/predictions"))
        _want(202, ann.post(f"/api/matches/{match}/votes", json={"choice": "home"}))
        _want(201, ann.post(f"/api/matches/{match}/comments", json={"text": "Well!"}))
        score = {"home_goals": 2, "away_goals": 1}
        _want(204, referee.put(f"/api/admin/matches/{match}/score", json={**score, "minute": 80}))
        _want(200, referee.post(f"/api/admin/matches/{match}/finalize", json=score))
        _want(200, referee.post("/api/admin/prewarm"))
        assert _want(200, referee.get("/api/admin/monitoring")).json()["redis"]["used_memory"]
        _want(202, served.client.post("/api/cache/prewarm", headers={"x-prewarm-token": league_users.TOKEN}))
        _want(204, ann.delete("/api/session"))
        _want(401, ann.get("/api/me"))
    wrong = [
        served.client.post("/api/session", json={"name": DEMO_ADMINISTRATOR, "password": UNSAID}),
        served.client.post("/api/users", json={"name": UNSAID, "password": [UNSAID]}),
        served.client.get("/api/me", headers={"cookie": f"league-session={UNSAID}"}),
        served.client.post("/api/cache/prewarm", headers={"x-prewarm-token": UNSAID}),
    ]
    return ScenarioResult([*cookies, PASSWORD, LEAGUE_PASSWORD, league_users.TOKEN], _errors(served, wrong))


def _errors(served: Served, answers: list[httpx.Response]) -> list[str]:
    """The bodies of answers that must be errors, and of what any service refuses."""
    ask = served.client.request
    secret = {"authorization": f"Bearer {UNSAID}", "cookie": f"session={UNSAID}", "x-api-key": UNSAID}
    answers += [
        ask("GET", f"/{UNSAID}?token={UNSAID}", headers=secret),
        ask("GET", "/metrics", headers={**secret, "x-request-id": f"{UNSAID} {UNSAID}"}),
        ask("DELETE", "/healthz", headers=secret),
        ask("POST", _a_post(served), content=UNSAID * 10_000, headers={"content-type": "application/json"}),
        ask(
            "POST", _a_post(served), content=b"\xff" + UNSAID.encode(), headers={"content-type": "text/plain"}
        ),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500, (answer.request.method, answer.request.url, answer.text)
    return [answer.text + str(answer.headers) for answer in answers]


def _a_post(served: Served) -> str:
    """A route that takes a body."""
    paths: dict[str, Any] = served.client.get("/openapi.json").json()["paths"]
    return next(path for path, operations in paths.items() if "requestBody" in operations.get("post", {}))


def _want(status: int, answer: httpx.Response) -> httpx.Response:
    assert answer.status_code == status, (answer.request.method, answer.request.url.path, answer.text)
    return answer
