"""The scripture service over HTTP: reading, asking, preferences, users, and taking content in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera.embedded import Valkey
from tests.services.scripture_readers import (
    UNLIMITED,
    Reader,
    administrator,
    eventually,
    ingest,
    keys,
    reading,
    rows,
    subscriber,
    verse,
)
from tests.services.services import Served

CHAPTER = {"book_id": "jude", "chapter": 1, "translation": "web"}


@pytest.fixture(scope="module")
def scripture(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service without limits that tests would meet."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **UNLIMITED) as running:
        yield running


def test_the_whole_story(scripture: Served, places: dict[str, str]) -> None:
    """Read, search, ask, join, set preferences, upgrade, and read what an ingest brought."""
    get = scripture.client.get
    passage = get("/passages/john.3.16", params={"include": "words,xrefs"})
    assert passage.status_code == 200, passage.text
    assert passage.json()["reference"] == "John 3:16"
    assert passage.json()["texts"]["kjv"].startswith("For God so loved the world")
    assert [each["word_id"] for each in passage.json()["words"]] == ["g25", "g2889", "g166"]
    assert "commentary" not in passage.json()
    assert '"passages";q=1000000;w=60' in passage.headers["ratelimit-policy"]

    psalm = get("/chapters/ps.23", params={"translation": "kjv"}).json()
    assert (psalm["book"], len(psalm["verses"])) == ("Psalm", 6)
    assert "1cor.13.13" in get("/topics/love").json()["passages"]
    assert get("/lexicon/g26").json()["transliteration"] == "agapē"
    found = get("/search", params={"q": "light darkness"}).json()["passages"]
    assert {"gen.1.4", "john.1.5"} <= {each["id"] for each in found}

    question = {"question": "What is said about love?"}
    first = scripture.client.post("/ai/ask", json=question).json()
    assert (first["how"], first["model"]) == ("asked", "extractive")
    assert "1cor.13.13" in {each["id"] for each in first["passages"]}
    assert scripture.client.post("/ai/ask", json=question).json()["how"] == "exact"
    similar = scripture.client.post("/ai/ask", json={"question": "what is said about love"}).json()
    assert similar["how"] == "semantic"
    assert question["question"] not in str(similar), "what another reader typed is theirs"

    ann = subscriber(scripture, "free")
    mail = eventually(
        lambda: rows(places, 'SELECT "to", subject FROM scripture.mails WHERE key = %s', f"welcome:{ann.id}")
    )
    assert mail == [(ann.email, "Welcome")]
    look = {"font_size": 20, "reading_mode": "night", "translation": "kjv", "verse_numbers": False}
    assert ann.ask("GET", "/me/preferences").json()["font_size"] == 16
    assert ann.ask("PUT", "/me/preferences", json=look).json() == look
    assert ann.ask("GET", "/me/preferences").json() == look

    commented = "/passages/john.3.16?include=commentary"
    assert ann.ask("GET", commented).status_code == 403
    plan = administrator(scripture).ask("PUT", f"/users/{ann.id}/plan", json={"plan": "paid"})
    assert plan.json() == {"user_id": ann.id, "plan": "paid"}
    assert ann.ask("GET", commented).json()["commentary"]

    assert get("/passages/jude.1.2").status_code == 404
    taken = ingest(scripture, "passages", verse("Mercy to you and peace and love be multiplied.", 2))
    assert (taken["passages"], taken["chapters"]) == (["jude.1.2"], [CHAPTER])
    assert get("/passages/jude.1.2").json()["texts"]["web"].startswith("Mercy to you")
    assert [each["id"] for each in get("/search", params={"q": "mercy"}).json()["passages"]] == ["jude.1.2"]


def test_an_ingest_ends_exactly_what_changed(scripture: Served, valkey: Valkey) -> None:
    """What is the same stays cached; what changed is ended: passage, part, chapter, answers on it."""
    get = scripture.client.get
    words = [{"position": 1, "text": "Ἰούδας", "gloss": "Judas", "word_id": None}]
    ingest(scripture, "passages", verse("First.", 3, words=words), verse("Second.", 4, texts={"kjv": "II."}))
    ingest(scripture, "passages", verse("Second.", 4))
    paths = (
        "/passages/jude.1.3?include=words,xrefs",
        "/passages/jude.1.4",
        "/chapters/jude.1",
        "/chapters/jude.1?translation=kjv",
    )
    for path in (*paths, "/topics/love", "/lexicon/g26"):
        assert get(path).status_code == 200, path
    questions = [
        {"question": f"What does it say? {each}", "passages": [each]} for each in ("jude.1.3", "jude.1.4")
    ]
    for question in questions:
        assert scripture.client.post("/ai/ask", json=question).json()["how"] == "asked"
    before = _cached(valkey)

    same = ingest(scripture, "passages", verse("First.", 3, words=words), verse("Second, corrected.", 4))
    assert (same["passages"], same["parts"], same["chapters"]) == (["jude.1.4"], [], [CHAPTER])
    gone = {key for key in before if key not in _cached(valkey)}
    assert gone == {"gl:passage:{jude.1.4}", "gl:chapter:jude.{1}:web"}
    hows = [scripture.client.post("/ai/ask", json=question).json()["how"] for question in questions]
    assert hows == ["exact", "asked"]

    part = ingest(scripture, "passages", verse("First.", 3, words=[]))
    assert (part["passages"], part["parts"], part["chapters"]) == (
        [],
        [{"passage_id": "jude.1.3", "suffix": "words"}],
        [],
    )
    assert get("/passages/jude.1.3?include=words").json()["words"] == []


def _cached(valkey: Valkey) -> set[str]:
    kinds = ("gl:passage:", "gl:chapter:", "gl:topic:", "gl:lexicon:")
    return {key for key in keys(valkey, "gl:*") if key.startswith(kinds)}


def test_a_topic_needs_passages_that_are_there(scripture: Served) -> None:
    """A topic with an unknown passage is refused, and one that is right is read at once."""
    admin = administrator(scripture)
    topic = {"id": "peace", "title": "Peace", "summary": "Of peace.", "passages": ["john.99.1"]}
    refused = admin.ask("POST", "/ingest/topics", json={"items": [topic]})
    assert (refused.status_code, refused.json()["detail"]) == (422, "The corpus does not have john.99.1.")
    assert ingest(scripture, "topics", {**topic, "passages": ["ps.23.4"]})["topics"] == ["peace"]
    assert scripture.client.get("/topics/peace").json()["passages"] == ["ps.23.4"]


def test_a_document_that_names_something_twice_is_refused(scripture: Served) -> None:
    """It is unknown which of the two is meant."""
    answer = administrator(scripture).ask(
        "POST", "/ingest/passages", json={"items": [verse("a"), verse("b")]}
    )
    assert (answer.status_code, answer.json()["detail"]) == (422, "The document has jude.1.1 twice.")


def test_administration_is_for_administrators(scripture: Served) -> None:
    """Without a token 401, as a user 403."""
    form = {"user_id": "5f0c5f3e-8a57-4a7e-9c07-0d5a0c6b7c11", "email": "a@example.com", "name": "A"}
    for method, path, body in (
        ("POST", "/users", form),
        ("PUT", f"/users/{form['user_id']}/plan", {"plan": "paid"}),
        ("PUT", "/plans/free/features/ai", {"allowed": False}),
        ("POST", "/ingest/passages", {"items": [verse("x")]}),
    ):
        assert scripture.client.request(method, path, json=body).status_code == 401
        assert Reader(scripture).ask(method, path, json=body).status_code == 403


def test_a_token_that_is_not_valid_is_not_taken_for_none(scripture: Served) -> None:
    """A forged or broken token is refused, also where one could read without."""
    for token in ("x", Reader(scripture).token[:-4] + "AAAA"):
        answer = scripture.client.get("/passages/john.3.16", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert "invalid_token" in answer.headers["www-authenticate"]


def test_a_features_change_holds_from_the_next_request(scripture: Served, second: Served) -> None:
    """An administrator takes a feature from a plan and gives it back; every process knows at once."""
    path, admin = "/passages/john.3.16?include=xrefs", administrator(scripture)
    assert second.client.get(path).status_code == 200
    assert admin.ask("PUT", "/plans/free/features/xrefs", json={"allowed": False}).status_code == 200
    assert [each.client.get(path).status_code for each in (scripture, second)] == [403, 403]
    assert admin.ask("PUT", "/plans/free/features/xrefs", json={"allowed": True}).status_code == 200
    assert [each.client.get(path).status_code for each in (scripture, second)] == [200, 200]


@pytest.fixture(scope="module")
def second(
    scripture: Served, places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Another process of the same service."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **UNLIMITED) as running:
        yield running


def test_users_are_mailed_and_recorded_once(scripture: Served, places: dict[str, str]) -> None:
    """A user who comes and changes plan has two mails and two rows of history."""
    ann = subscriber(scripture, "free")
    administrator(scripture).ask("PUT", f"/users/{ann.id}/plan", json={"plan": "ai"})
    mails = eventually(
        lambda: _when(
            2, rows(places, 'SELECT subject FROM scripture.mails WHERE "to" = %s ORDER BY at', ann.email)
        )
    )
    assert sorted(mails) == [("Welcome",), ("Your plan",)]
    history = eventually(
        lambda: _when(2, rows(places, "SELECT what FROM scripture.user_history WHERE user_id = %s", ann.id))
    )
    assert sorted(history) == [("created",), ("plan ai",)]
    again = administrator(scripture).ask(
        "POST", "/users", json={"user_id": ann.id, "email": ann.email, "name": "Ann", "plan": "free"}
    )
    assert again.status_code == 409


def _when(count: int, found: list[tuple[object, ...]]) -> list[tuple[object, ...]] | None:
    return found if len(found) == count else None
