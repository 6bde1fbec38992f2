"""Knowing the ids of others' data gives access to none of it: every route that takes an id is tried."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.services import identity_users
from tests.services.services import Served
from tests.services.slides_users import FREE, VIEWER, Person, administrator, set_plan

_OWN_TOKEN = ("/operator/", "/p/")
"""Paths of slides that ask for no user: the operator's token or the link itself gives access."""


def _bodies(slide_id: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Valid bodies, so that no route refuses one before it looks whose data it is."""
    of_slide = "/presentations/{presentation_id}/slides/{slide_id}"
    return {
        ("PUT", "/admin/users/{user_id}/role"): {"role": "viewer"},
        ("PUT", "/admin/users/{user_id}/blocked"): {"blocked": True},
        ("PATCH", "/presentations/{presentation_id}"): {"title": "Mine"},
        ("POST", "/presentations/{presentation_id}/exports"): {"format": "pdf"},
        ("POST", "/presentations/{presentation_id}/shares"): {"days": 1},
        ("PUT", "/presentations/{presentation_id}/order"): {"slide_ids": [slide_id]},
        ("PATCH", of_slide): {"title": "Mine", "bullets": ["Mine"]},
    }


def _with_ids(served: Served) -> list[tuple[str, str]]:
    """The operations of a service whose path has an id."""
    paths: dict[str, Any] = served.client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, each in paths.items() if "{" in path for method in each]


def _presentation(person: Person) -> tuple[dict[str, str], str]:
    """A presentation that is written, with its job; and its slide."""
    begun = person.begin("Secret whales", 1)
    assert person.finished(begun["job_id"])["state"] == "done"
    shown = person.want(200, "GET", f"/presentations/{begun['presentation_id']}")
    return begun, shown["slides"][0]["slide_id"]


@pytest.mark.usefixtures("slides_worker")
def test_no_organization_reaches_data_of_another(slides: Served) -> None:
    """Its administrator gets 404 for every id of the other's, changes nothing, and no list shows one."""
    root, ivan = administrator(slides), Person(slides, FREE)
    set_plan(ivan, "enterprise", requests_per_minute=1_000_000)
    begun, slide_id = _presentation(root)
    shared = root.want(201, "POST", f"/presentations/{begun['presentation_id']}/shares")
    export = f"/presentations/{begun['presentation_id']}/exports"
    exported = root.want(202, "POST", export, json={"format": "pdf"})
    assert root.finished(exported["job_id"])["state"] == "done"
    hook = root.want(201, "POST", "/webhooks", json={"url": "http://127.0.0.1:9/hook"})
    key = root.want(201, "POST", "/api-keys", json={"name": "mine"})
    ids = {
        "document_id": root.document(),
        "presentation_id": begun["presentation_id"],
        "job_id": begun["job_id"],
        "slide_id": slide_id,
        "export_id": exported["export_id"],
        "webhook_id": hook["webhook_id"],
        "api_key_id": key["api_key_id"],
        "user_id": Person(slides, VIEWER).account["user_id"],
    }
    seen = [
        f"/presentations/{ids['presentation_id']}",
        "/documents",
        "/webhooks",
        "/api-keys",
        "/admin/users",
    ]
    before = [root.want(200, "GET", path) for path in seen]
    bodies, tried = _bodies(slide_id), set()
    for method, path in _with_ids(slides):
        if not path.startswith(_OWN_TOKEN):
            answer = ivan.ask(method, path.format(**ids), json=bodies.get((method, path)))
            assert answer.status_code == 404, (method, path, answer.text)
            tried |= {name for name in ids if f"{{{name}}}" in path}
    assert tried == set(ids)
    mine, _ = _presentation(ivan)
    for method in ("PATCH", "DELETE"):  # under a presentation of one's own
        path = f"/presentations/{mine['presentation_id']}/slides/{slide_id}"
        assert ivan.ask(method, path, json={"title": "Mine"}).status_code == 404
    order = f"/presentations/{mine['presentation_id']}/order"
    assert ivan.ask("PUT", order, json={"slide_ids": [slide_id]}).status_code == 409
    form = {"topic": "Whales", "slides": 1, "document_ids": [ids["document_id"]]}
    assert ivan.ask("POST", "/presentations", json=form).status_code == 422
    with pytest.raises(InvalidStatus) as refused:
        _socket(ivan, f"/jobs/{ids['job_id']}/ws")
    assert refused.value.response.status_code == 404
    for path in ("/presentations", "/documents", "/webhooks", "/api-keys", "/admin/users"):
        listed = ivan.ask("GET", path)
        assert listed.status_code == 200
        assert not [each for each in (*ids.values(), shared["url"]) if each in listed.text], path
    assert [root.want(200, "GET", path) for path in seen] == before
    root.want(204, "DELETE", f"/webhooks/{ids['webhook_id']}")
    root.want(204, "DELETE", f"/api-keys/{ids['api_key_id']}")


def test_no_user_of_slides_has_the_keys_of_another(slides: Served) -> None:
    """API keys belong to a user: a colleague, even the administrator, neither lists nor revokes them."""
    root, vera = administrator(slides), Person(slides, VIEWER)
    key = root.want(201, "POST", "/api-keys", json={"name": "mine"})
    assert vera.want(200, "GET", "/api-keys")["keys"] == []
    vera.want(404, "DELETE", f"/api-keys/{key['api_key_id']}")
    root.want(204, "DELETE", f"/api-keys/{key['api_key_id']}")


def test_no_user_of_identity_reaches_data_of_another(identity: Served) -> None:
    """Every route that takes an id refuses one of another user, whose data stays as it was."""
    ann, bob = identity_users.newcomer(identity), identity_users.newcomer(identity)
    files = {"file": ("a.txt", b"plain text")}
    document_id = ann.ask("POST", "/api/documents/upload", files=files).json()["document_id"]
    ids = {"user_id": ann.id, "document_id": document_id, "sid": ann.sid}
    form = {"first_name": "Bob", "last_name": "B", "phone": "", "address": ""}
    before = [ann.profile().json(), ann.ask("GET", "/api/documents").json()]
    for method, path in _with_ids(identity):
        body = form if method in ("PUT", "PATCH") and "/profiles/" in path else None
        answer = bob.ask(method, path.format(**ids), json=body)
        assert answer.status_code in (403, 404), (method, path, answer.text)
    assert bob.ask("GET", "/api/documents").json()["documents"] == []
    assert [ann.profile().json(), ann.ask("GET", "/api/documents").json()] == before


def _socket(person: Person, path: str) -> Any:
    url = person.served.url.replace("http:", "ws:", 1) + path
    return connect(url, additional_headers={"cookie": person.cookie})
