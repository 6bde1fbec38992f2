"""The scripture service on a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ephemera import embedded
from ephemera.embedded import Postgres
from ephemera.operations.configuration import mark_server
from tests.services.scripture_readers import (
    UNLIMITED,
    eventually,
    ingest,
    keys_in,
    rows,
    subscriber,
    verse,
)
from tests.services.services import serving


def test_the_story_on_a_cluster(postgres: Postgres, tmp_path: Path) -> None:
    """Marked as a whole, it carries all of it: caches, copies, answers, limits, the lock, and events."""
    with embedded.cluster() as cluster:
        asyncio.run(mark_server(cluster.url, "scripture"))
        places = {
            "EPHEMERA_URL": cluster.url,
            "EPHEMERA_DATABASE_URL": postgres.database("test_scripture_cluster"),
        }
        variables = {**places, **keys_in(tmp_path), **UNLIMITED}
        with (
            serving("scripture", tmp_path, **variables) as one,
            serving("scripture", tmp_path, **variables) as other,
        ):
            for text in ("first", "second", "third"):
                taken = ingest(one, "passages", verse(text, 40))
                assert taken["passages"] == ["jude.1.40"]
                read = {
                    each.client.get("/passages/jude.1.40?include=words").json()["texts"]["web"]
                    for each in (one, other)
                }
                assert read == {text}
                ask = {"question": "What does it say?", "passages": ["jude.1.40"]}
                hows = [one.client.post("/ai/ask", json=ask).json()["how"] for _ in range(2)]
                assert hows == ["asked", "exact"]
            ann = subscriber(one, "paid")
            assert ann.ask("GET", "/passages/john.3.16?include=commentary", at=other).status_code == 200
            key = f"welcome:{ann.id}"
            eventually(lambda: rows(places, "SELECT 1 FROM scripture.mails WHERE key = %s", key))
            assert ann.ask("PUT", "/me/preferences", json={"font_size": 20}).status_code == 200
            assert ann.ask("GET", "/me/preferences", at=other).json()["font_size"] == 20
