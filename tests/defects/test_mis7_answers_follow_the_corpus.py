"""MIS7: "no passage fits" stayed cached after an ingest that brought the passage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ephemera.embedded import Postgres, Valkey
from tests.services.scripture_apps import Gateway, open_gateway

_QUESTION = "Where do unicorns graze?"


async def _ask(gateway: Gateway, question: str = _QUESTION) -> tuple[str, list[str]]:
    """How a question is answered, and from which passages."""
    body: dict[str, Any] = {"question": question, "translation": "test"}
    answer = (await gateway.ask("POST", "/ai/ask", json=body)).json()
    return answer["how"], [each["id"] for each in answer["passages"]]


async def test_mis7_an_ingest_ends_no_passage_fits(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """After the ingest is acknowledged the question is answered from the new passage, however it is put."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        assert await _ask(gateway) == ("asked", [])
        assert await _ask(gateway) == ("exact", [])
        await gateway.ingest(("jude.1.20", "Unicorns graze by the river."))
        assert await _ask(gateway, "where do unicorns graze") == ("asked", ["jude.1.20"])
        assert await _ask(gateway) in [("asked", ["jude.1.20"]), ("semantic", ["jude.1.20"])]


async def test_mis7_only_answers_that_change_end(server: Valkey, postgres: Postgres, tmp_path: Path) -> None:
    """An answer whose passages are the same stays cached; a correction or a deletion ends others."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        await gateway.ingest(("jude.1.20", "Unicorns graze by the river."), ("jude.1.21", "Dragons sleep."))
        dragons = "What do dragons do?"
        assert await _ask(gateway) == ("asked", ["jude.1.20"])
        assert await _ask(gateway, dragons) == ("asked", ["jude.1.21"])
        await gateway.ingest(("jude.1.20", "Unicorns graze on the hill."))
        assert await _ask(gateway, dragons) == ("exact", ["jude.1.21"])
        assert await _ask(gateway) == ("asked", ["jude.1.20"])
        await gateway.admin("DELETE", "/ingest/passages/jude.1.21")
        assert await _ask(gateway, dragons) == ("asked", [])
