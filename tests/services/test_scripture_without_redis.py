"""What scripture does when its Redis is down, hung, or has lost everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera.embedded import Valkey
from tests.services.scripture_readers import administrator, eventually, ingest, reading, subscriber, verse
from tests.services.services import Served

CONTENT = (
    "/passages/john.3.16?include=words",
    "/chapters/ps.23",
    "/topics/love",
    "/lexicon/g26",
    "/search?q=light",
)


@pytest.fixture(scope="module")
def scripture(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with the limits of the design."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture(params=["down", "hung"])
def outage(request: pytest.FixtureRequest, scripture: Served, valkey: Valkey) -> Iterator[str]:
    """Redis is down or hung during a test; afterwards we wait until it answers."""
    if request.param == "down":
        valkey.kill()
    else:
        valkey.pause()
    yield request.param
    if request.param == "down":
        valkey.restart()
    else:
        valkey.resume()
    eventually(lambda: scripture.client.get("/readyz").json()["status"] == "ready")


@pytest.fixture
def headers(scripture: Served) -> dict[str, str]:
    """Headers of a user on a paid plan who came before the outage."""
    return {"authorization": f"Bearer {subscriber(scripture, 'paid').token}"}


def test_reads_fall_back_to_sql(headers: dict[str, str], outage: str, scripture: Served) -> None:
    """Content and search are served without a token, and to users by their plan, which is in SQL."""
    for path in CONTENT:
        assert scripture.client.get(path).status_code == 200, path
    paid = "/passages/john.3.16?include=commentary"
    assert scripture.client.get(paid, headers=headers).json()["commentary"]
    assert scripture.client.get(paid).status_code == 403
    eventually(lambda: scripture.client.get("/readyz").json()["status"] == "degraded")


def test_preferences_are_the_defaults_and_cannot_be_changed(
    headers: dict[str, str], outage: str, scripture: Served
) -> None:
    """Reading them works, changing them is 503 with Retry-After."""
    read = scripture.client.get("/me/preferences", headers=headers)
    assert (read.status_code, read.json()["font_size"]) == (200, 16)
    changed = scripture.client.put("/me/preferences", headers=headers, json={"font_size": 20})
    assert (changed.status_code, int(changed.headers["retry-after"]) >= 1) == (503, True)


def test_answers_are_counted_by_the_process_alone(outage: str, scripture: Served) -> None:
    """No more than the limit, which this process counts for itself; above it 503, not an open door."""
    statuses = [
        scripture.client.post("/ai/ask", json={"question": f"What is light? {outage} {number}"}).status_code
        for number in range(7)
    ]
    assert statuses[-1] == 503
    assert statuses.count(200) <= 5


def test_a_redis_that_lost_everything_is_only_slower(scripture: Served, valkey: Valkey) -> None:
    """After FLUSHALL all of it is read, asked and taken in again."""
    ingest(scripture, "passages", verse("before", 30))
    valkey.ask("FLUSHALL")
    for path in (*CONTENT, "/passages/jude.1.30"):
        assert scripture.client.get(path).status_code == 200, path
    ingest(scripture, "passages", verse("after", 30))
    assert scripture.client.get("/passages/jude.1.30").json()["texts"]["web"] == "after"
    assert administrator(scripture).ask("GET", "/me/preferences").status_code == 200
