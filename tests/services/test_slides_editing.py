"""The library over HTTP: list, search, edit, reorder, regenerate, delete, cancel, share; and plans."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from PIL import Image
from pptx import Presentation

from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import OutboundRequests
from ephemera_services.slides.plans import PlanChange
from ephemera_services.slides.webhooks import announce, signature
from tests.defects.service_apps import opened
from tests.defects.slides_accounts import sign_in
from tests.services.scripted_model import Endpoint, Reply
from tests.services.services import Served
from tests.services.slides_processes import Model
from tests.services.slides_users import ADMIN, FREE, OPERATOR, VIEWER, Person, set_plan

pytestmark = pytest.mark.usefixtures("slides_worker")


_UNLIMITED = 1_000_000  # requests per minute


def _ivan(slides: Served) -> Person:
    """The administrator of another organization, whose plan is free, but not limited by the minute."""
    ivan = Person(slides, FREE)
    set_plan(ivan, "free", requests_per_minute=_UNLIMITED)
    return ivan


def _made(person: Person, topic: str, slides: int = 3, **more: Any) -> str:
    """The id of a presentation that is written."""
    begun = person.begin(topic, slides, **more)
    assert person.finished(begun["job_id"])["state"] == "done"
    return begun["presentation_id"]


def _read(person: Person, presentation_id: str) -> Any:
    return person.want(200, "GET", f"/presentations/{presentation_id}")


def test_presentations_are_listed_and_searched(anna: Person, slides: Served) -> None:
    """The newest first, in pages, found by topic and by what slides say; others' are not."""
    old, new = _made(anna, "Listed herons"), _made(anna, "Listed egrets", 2)
    listed = anna.want(200, "GET", "/presentations?q=listed")
    assert [each["presentation_id"] for each in listed["presentations"]] == [new, old]
    assert listed["total"] == 2
    assert listed["presentations"][0]["slides"] == 2
    page = anna.want(200, "GET", "/presentations?q=listed&limit=1&offset=1")
    assert ([each["presentation_id"] for each in page["presentations"]], page["total"]) == ([old], 2)
    within = anna.want(200, "GET", "/presentations?q=zweiter Punkt")
    assert {old, new} <= {each["presentation_id"] for each in within["presentations"]}
    assert anna.want(200, "GET", "/presentations?q=100%25")["total"] == 0
    ivan = _ivan(slides)
    assert ivan.want(200, "GET", "/presentations")["total"] == 0


def test_slides_are_edited_reordered_and_deleted(anna: Person) -> None:
    """Text, table and layout change as sent, an order must name all slides, and exports have it all."""
    presentation_id = _made(anna, "Edited", 3)
    path = f"/presentations/{presentation_id}"
    first, second, third = (slide["slide_id"] for slide in _read(anna, presentation_id)["slides"])
    table = {"header": ["Year", "GW"], "rows": [["2023", "30"], ["2024", "34"]]}
    edited = anna.want(
        200, "PATCH", f"{path}/slides/{second}", json={"title": "Capacity", "layout": "chart", "table": table}
    )
    assert (edited["title"], edited["layout"], edited["table"]) == ("Capacity", "chart", table)
    assert edited["bullets"], "what is not sent stays"
    ragged = {"table": {"header": ["A", "B"], "rows": [["1"]]}}
    anna.want(422, "PATCH", f"{path}/slides/{second}", json=ragged)
    anna.want(409, "PUT", f"{path}/order", json={"slide_ids": [second, first]})
    anna.want(409, "PUT", f"{path}/order", json={"slide_ids": [second, first, first]})
    anna.want(204, "PUT", f"{path}/order", json={"slide_ids": [third, second, first]})
    anna.want(204, "DELETE", f"{path}/slides/{third}")
    anna.want(204, "PATCH", path, json={"title": "My own title", "theme": "night"})
    made = _read(anna, presentation_id)
    assert [(slide["number"], slide["slide_id"]) for slide in made["slides"]] == [(1, second), (2, first)]
    assert (made["title"], made["theme"]) == ("My own title", "night")
    deck = Presentation(BytesIO(anna.exported(presentation_id, "pptx")))
    assert deck.slides[0].shapes.title.text == "Capacity"
    assert any(shape.has_chart for shape in deck.slides[0].shapes)
    anna.want(204, "DELETE", f"{path}/slides/{second}")
    anna.want(409, "DELETE", f"{path}/slides/{first}")


def test_one_slide_is_regenerated(anna: Person, slides_model: Model) -> None:
    """The model is asked for it again, with the outline as it is now; the others and the count stay."""
    presentation_id = _made(anna, "Regenerated", 3)
    path = f"/presentations/{presentation_id}"
    before = _read(anna, presentation_id)["slides"]
    second = before[1]["slide_id"]
    anna.want(200, "PATCH", f"{path}/slides/{second}", json={"title": "Otters", "bullets": ["mine"]})
    used = anna.want(200, "GET", "/usage")["used"]
    job_id = anna.want(202, "POST", f"{path}/slides/{second}/regenerate")["job_id"]
    events = [message.data for message in anna.events(job_id)]
    (written,) = [event for event in events if event.get("event_type") == "slide_completed"]
    assert written["slide"]["bullets"][0] == "The first point of 2"
    after = _read(anna, presentation_id)["slides"]
    assert (after[1]["title"], after[1]["bullets"][0]) == ("Otters", "The first point of 2")
    assert [after[0], after[2]] == [before[0], before[2]]
    assert "2. Otters" in slides_model.asked[-1]
    now = anna.want(200, "GET", "/usage")["used"]
    assert {name: now[name] - used[name] for name in now} == {
        "presentations": 0, "slides": 0, "tokens": 100, "cost_micros": 42,
    }  # fmt: skip


def test_a_running_job_is_cancelled(anna: Person, slides: Served, slides_model: Model) -> None:
    """It ends, its slides cannot be edited before, what it spent is counted, and its place is free again."""
    used = anna.want(200, "GET", "/usage")["used"]
    slides_model.hold_at = 2
    slides_model.open.clear()
    try:
        begun = anna.begin("Cancelled", 5)
        for message in anna.events(begun["job_id"]):
            if message.data.get("event_type") == "slide_started" and message.data["slide_number"] == 2:
                first = _read(anna, begun["presentation_id"])["slides"][0]["slide_id"]
                path = f"/presentations/{begun['presentation_id']}"
                anna.want(409, "PATCH", f"{path}/slides/{first}", json={"title": "Early"})
                assert (
                    Person(slides, VIEWER).ask("POST", f"/jobs/{begun['job_id']}/cancel").status_code == 403
                )
                anna.want(204, "POST", f"/jobs/{begun['job_id']}/cancel")
    finally:
        slides_model.open.set()
        slides_model.hold_at = 0
    assert anna.finished(begun["job_id"])["state"] == "cancelled"
    anna.want(409, "POST", f"/jobs/{begun['job_id']}/cancel")
    totals = anna.want(200, "GET", "/usage")
    assert totals["used"]["presentations"] == used["presentations"]
    assert totals["used"]["tokens"] - used["tokens"] == 200, "the outline and the first slide"
    assert totals["reserved"]["presentations"] == 0


def test_failed_calls_are_counted_and_a_busy_model_is_waited_for(anna: Person, slides_model: Model) -> None:
    """An error costs an attempt and its tokens; a Retry-After costs its tokens, but no attempt."""
    used = anna.want(200, "GET", "/usage")["used"]["tokens"]
    slides_model.refusals = [500, 429]
    begun = anna.begin("A busy model", 2)
    done = anna.finished(begun["job_id"])
    assert (done["state"], done["attempts"]) == ("done", 2)
    assert anna.want(200, "GET", "/usage")["used"]["tokens"] - used == 500


def test_a_refusal_for_good_is_counted(anna: Person, slides_model: Model) -> None:
    """An endpoint that refuses its key fails the job, which costs what the call did."""
    used = anna.want(200, "GET", "/usage")["used"]["tokens"]
    slides_model.refusals = [401]
    begun = anna.begin("A refused model", 2)
    assert anna.finished(begun["job_id"])["state"] == "failed"
    _until(lambda: anna.want(200, "GET", "/usage")["used"]["tokens"] - used == 100)


def test_presentations_and_documents_are_deleted(anna: Person, slides: Served) -> None:
    """With slides, files and link; a presentation outlives its documents, and others' cannot be deleted."""
    document_id = anna.document(name="deleted.txt")
    presentation_id = _made(anna, "Deleted", 2, document_ids=[document_id])
    path = f"/presentations/{presentation_id}"
    link = anna.want(201, "POST", f"{path}/shares")["url"]
    ivan = _ivan(slides)
    for target in (f"/documents/{document_id}", path):
        ivan.want(404, "DELETE", target)
    listed = anna.want(200, "GET", "/documents?q=deleted")
    assert [each["document_id"] for each in listed["documents"]] == [document_id]
    anna.want(204, "DELETE", f"/documents/{document_id}")
    anna.want(404, "GET", f"/documents/{document_id}")
    assert len(_read(anna, presentation_id)["slides"]) == 2
    anna.want(204, "DELETE", path)
    anna.want(404, "GET", path)
    assert slides.client.get(link).status_code == 404


def test_a_share_is_a_page_for_browsers(anna: Person, slides: Served, slides_places: dict[str, str]) -> None:
    """Escaped, without scripts, notes or sources, with a policy that allows none; and it can expire."""
    presentation_id = _made(anna, "Shared", 2)
    path = f"/presentations/{presentation_id}"
    slide_id = _read(anna, presentation_id)["slides"][1]["slide_id"]
    change = {"title": "<script>alert(1)</script>", "notes": "a secret note"}
    anna.want(200, "PATCH", f"{path}/slides/{slide_id}", json=change)
    share = anna.want(201, "POST", f"{path}/shares", json={"days": 7})
    assert timedelta(days=6) < datetime.fromisoformat(share["expires_at"]) - datetime.now(UTC)
    assert anna.want(200, "GET", f"{path}/shares") == share, "reading the link does not change its end"
    Person(slides, VIEWER).want(403, "GET", f"{path}/shares")
    page = slides.client.get(share["url"], headers={"accept": "text/html,application/xhtml+xml"})
    assert page.headers["content-type"].startswith("text/html")
    assert "&lt;script&gt;" in page.text
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "a secret note" not in page.text
    assert slides.client.get(share["url"]).json()["slides"][1]["title"] == change["title"]
    chart = {"header": ["", "<GW>"], "rows": [["2023", "1.5"], ["2024", "2"]]}
    anna.want(200, "PATCH", f"{path}/slides/{slide_id}", json={"layout": "chart", "table": chart})
    page = slides.client.get(share["url"], headers={"accept": "text/html,application/xhtml+xml"})
    assert 'role="img" aria-label="2023: &lt;GW&gt; 1.5; 2024: &lt;GW&gt; 2.0"' in page.text
    anna.want(200, "PATCH", f"{path}/slides/{slide_id}", json={"layout": "closing", "bullets": []})
    assert len(slides.client.get(share["url"]).json()["slides"]) == 1, "a slide of sources alone is not shown"
    with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql:
        sql.execute(
            "UPDATE slides.presentation_shares SET expires_at = now() WHERE token = %s", (share["token"],)
        )
    assert slides.client.get(share["url"]).status_code == 404
    anna.want(404, "GET", f"{path}/shares")
    listed = anna.want(200, "GET", "/presentations?limit=100")["presentations"]
    assert [each["shared"] for each in listed if each["presentation_id"] == presentation_id] == [False]
    assert anna.want(201, "POST", f"{path}/shares")["token"] != share["token"]


def test_users_are_listed_and_deleted(slides: Served) -> None:
    """Their sessions and keys end, what they made stays; administrators cannot delete themselves."""
    root = Person(slides, ADMIN)
    email = "temporary@company.example"
    root.want(
        201, "POST", "/admin/users", json={"email": email, "password": "correct horse", "role": "editor"}
    )
    listed = {user["email"]: user for user in root.want(200, "GET", "/admin/users")["users"]}
    assert (listed[email]["role"], listed[email]["blocked"]) == ("editor", False)
    form = {"organization": "company", "email": email, "password": "correct horse"}
    with httpx.Client(base_url=slides.url, timeout=30) as client:
        assert client.post("/auth/login", json=form).status_code == 200
        begun = client.post("/presentations", json={"topic": "Made by another", "slides": 1}).json()
        key = client.post("/api-keys", json={"name": "k"}).json()["key"]
        root.want(204, "DELETE", f"/admin/users/{listed[email]['user_id']}")
        assert client.get("/usage").status_code == 401
    assert slides.client.get("/usage", headers={"x-api-key": key}).status_code == 401
    assert root.finished(begun["job_id"])["state"] == "done"
    assert len(_read(root, begun["presentation_id"])["slides"]) == 1
    root.want(404, "DELETE", f"/admin/users/{listed[email]['user_id']}")
    root.want(409, "DELETE", f"/admin/users/{root.account['user_id']}")
    assert Person(slides, VIEWER).ask("GET", "/admin/users").status_code == 403


def test_a_brand_kit_is_in_exports_while_the_plan_has_it(anna: Person, slides: Served) -> None:
    """Administrators set it, a plan without it refuses it, and a PPTX has its colours, fonts and logo."""
    root, ivan = Person(slides, ADMIN), _ivan(slides)
    file = BytesIO()
    Image.new("RGB", (64, 32), (1, 2, 3)).save(file, "PNG")
    kit = {"primary": "5b2a86", "accent": "FFCC00", "heading_font": "Georgia"}
    logo = {**kit, "logo": base64.b64encode(file.getvalue()).decode()}
    ivan.want(402, "PUT", "/brand-kit", json=kit)
    assert anna.ask("PUT", "/brand-kit", json=kit).status_code == 403
    root.want(422, "PUT", "/brand-kit", json={**kit, "logo": base64.b64encode(b"GIF89a").decode()})
    assert root.want(200, "PUT", "/brand-kit", json=logo)["has_logo"]
    try:
        deck = Presentation(BytesIO(anna.exported(_made(anna, "Branded", 1), "pptx")))
        layout = deck.slides[0].slide_layout
        assert [shape.image.blob for shape in layout.shapes if shape.shape_type == 13] == [file.getvalue()]
        assert anna.want(200, "GET", "/brand-kit")["primary"] == "5b2a86"
    finally:
        root.want(204, "DELETE", "/brand-kit")
    anna.want(404, "GET", "/brand-kit")


@pytest.mark.parametrize(
    ("status", "ends", "allowed"),
    [
        ("active", None, True),
        ("active", timedelta(days=-1), True),
        ("active", timedelta(days=-9), False),
        ("trialing", timedelta(days=1), True),
        ("trialing", timedelta(days=-1), False),
        ("past_due", None, False),
    ],
)
def test_the_subscription_decides_about_new_work(
    slides: Served, status: str, ends: timedelta | None, allowed: bool
) -> None:
    """A failed payment and the end of a period refuse new work, with the reason; reading goes on."""
    ivan = _ivan(slides)
    period_end = None if ends is None else (datetime.now(UTC) + ends).isoformat()
    subscription: dict[str, Any] = {"subscription_status": status, "period_end": period_end}
    set_plan(ivan, "enterprise", requests_per_minute=_UNLIMITED, **subscription)
    try:
        answer = ivan.ask("POST", "/presentations", json={"topic": "Subscribed", "slides": 1})
        assert answer.status_code == (202 if allowed else 402), answer.text
        assert ivan.upload(b"Some text.").status_code == (202 if allowed else 402)
        shown = ivan.want(200, "GET", "/usage")["limits"]
        assert shown["subscription_status"] == status
        assert (shown["period_end"] is None) == (ends is None)
    finally:
        set_plan(ivan, "free", requests_per_minute=_UNLIMITED)


def test_usage_is_recounted_from_the_jobs(anna: Person, slides: Served, slides_queue: Any) -> None:
    """Counters that Redis lost are what the jobs say again; a second recount has nothing to correct."""
    slides_queue.ask("PING")
    organization = anna.account["organization_id"]
    _made(anna, "Recounted", 2)
    before = anna.want(200, "GET", "/usage")
    url = f"{slides.url}/operator/organizations/{organization}/usage/recount?period={before['period']}"
    assert httpx.post(url, timeout=30).status_code == 401
    right = httpx.post(url, headers=OPERATOR, timeout=30)
    assert right.status_code == 200, right.text
    assert set(right.json()["corrected"].values()) == {0}
    assert right.json()["counted"] == before["used"]
    for key in slides_queue.ask("KEYS", f"usage:*{organization}*"):
        slides_queue.ask("DEL", key)
    for key in slides_queue.ask("KEYS", "usage:pending:*"):
        slides_queue.ask("DEL", key)
    lost = anna.want(200, "GET", "/usage")["used"]
    assert lost["presentations"] < before["used"]["presentations"]
    corrected = httpx.post(url, headers=OPERATOR, timeout=30).json()["corrected"]
    assert corrected["presentations"] == before["used"]["presentations"] - lost["presentations"]
    assert anna.want(200, "GET", "/usage")["used"] == before["used"]


def test_webhooks_are_signed_retried_and_logged(slides: Served, receiver: Endpoint) -> None:
    """A receiver that fails once gets the same delivery again, signed, and the log has the outcome."""
    root, ivan = Person(slides, ADMIN), _ivan(slides)
    ivan.want(402, "POST", "/webhooks", json={"url": f"{receiver.url}/hook"})
    made = root.want(201, "POST", "/webhooks", json={"url": f"{receiver.url}/hook"})
    path = f"/webhooks/{made['webhook_id']}"
    try:
        receiver.replies = [Reply(500, {}), Reply(204, None)]
        presentation_id = _made(root, "Hooked", 1)
        _until(lambda: len(receiver.seen) == 2)
        first, second = receiver.seen
        for _, headers, body in (first, second):
            signed = (made["secret"], headers["webhook-id"], headers["webhook-timestamp"], body)
            assert headers["webhook-signature"] == signature(*signed)
        assert first[1]["webhook-id"] == second[1]["webhook-id"]
        sent = json.loads(second[2])
        assert (sent["type"], sent["id"]) == ("presentation.ready", presentation_id)
        log = f"{path}/deliveries"
        _until(lambda: root.want(200, "GET", log)["deliveries"][0]["state"] == "delivered")
        (logged,) = root.want(200, "GET", log)["deliveries"]
        assert (logged["attempts"], logged["status"], logged["error"]) == (2, 204, None)
        assert [hook["url"] for hook in root.want(200, "GET", "/webhooks")["webhooks"]] == [
            f"{receiver.url}/hook"
        ]
        ivan.want(404, "GET", log)
    finally:
        root.want(204, "DELETE", path)
    root.want(404, "GET", log)


async def test_webhooks_call_public_addresses_only(server: Valkey, postgres: Postgres) -> None:
    """Plain HTTP is refused, and a name or an address of a private network is never called."""
    async with opened("slides", server, postgres) as app:
        root = await sign_in(app, ADMIN)
        invalid = ("https:///x", "https://[::1", "https://[x]/", "https://example.com:99999/")
        for url in ("http://example.com/hook", "https://user:word@example.com/", *invalid):
            assert (await root.ask("POST", "/webhooks", json={"url": url})).status_code == 422
        made = await root.want(201, "POST", "/webhooks", json={"url": "https://localhost:1/hook"})
        organization, job_id = UUID(root.account["organization_id"]), str(uuid4())
        service = app.service
        await announce(service.workspace.engine, service.store, organization, job_id, {"type": "x"})
        path = f"/webhooks/{made['webhook_id']}/deliveries"
        async with asyncio.timeout(30):
            while not (await root.want(200, "GET", path))["deliveries"][0]["attempts"]:
                await asyncio.sleep(0.05)
        (logged,) = (await root.want(200, "GET", path))["deliveries"]
        assert logged["status"] is None
        assert "has no public address" in logged["error"]


async def test_slow_webhooks_of_an_organization_delay_no_others(
    server: Valkey, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all receivers of one organization hang, another one's is called; then all of them get theirs."""
    ended, called = asyncio.Event(), list[str]()

    async def post(_: OutboundRequests, url: str, *__: Any) -> int:
        called.append(url)
        if "slow" in url:
            await ended.wait()
        return 200

    monkeypatch.setattr(OutboundRequests, "post", post)
    async with opened("slides", server, postgres) as app:
        root, ivan = await sign_in(app, ADMIN), await sign_in(app, FREE)
        engine, store, webhooks = app.service.workspace.engine, app.service.store, app.service.webhooks
        slow, quick = (UUID(each.account["organization_id"]) for each in (root, ivan))
        await app.service.plans.change(quick, PlanChange(plan="team"))
        for number in range(10):
            await webhooks.add(slow, f"https://slow.example/{number}")
        await announce(engine, store, slow, str(uuid4()), {"type": "x"})
        await webhooks.add(quick, "https://quick.example/")
        await announce(engine, store, quick, str(uuid4()), {"type": "x"})
        async with asyncio.timeout(60):
            while "https://quick.example/" not in called:
                await asyncio.sleep(0.01)
            assert 0 < len(called) < 10
            ended.set()
            while len(called) < 11:
                await asyncio.sleep(0.01)
        assert len(set(called)) == 11


@pytest.fixture
def receiver() -> Iterator[Endpoint]:
    """A receiver of webhooks."""
    running = Endpoint()
    yield running
    running.close()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
