"""A stand-in for a language model, for slides: it speaks OpenAI's chat completions and takes its time.

Nothing is downloaded for a demonstration, and a presentation that is written at once shows no progress. What
it writes are sentences of the sources, or words that say what they are. It runs in the demonstration's own
process.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ephemera.embedded import LOOPBACK, free_ports

_OUTLINE = re.compile(r"Write the outline of a presentation of (\d+) slides on: (.*)")
_SLIDE = re.compile(r"Write slide (\d+) of \d+ of a presentation on: (.*)")
_SOURCES = re.compile(r"^\[[^\]]*\] (.+)$", re.MULTILINE)
_ASPECTS = ("Why it matters", "How it began", "What is known", "An example", "What it costs", "What is next")


class StandInModel:
    """The model: `seconds` is how long it writes at a slide."""

    def __init__(self, port: int, seconds: float) -> None:
        self.url = f"http://{LOOPBACK}:{port}/v1"
        self._seconds = seconds

    async def complete(self, request: Request) -> Response:
        """Answer one question, in its own time."""
        body = await request.json()
        wish = str(body["messages"][-1]["content"])
        content = json.dumps(_answer(wish))
        if _SLIDE.match(wish):
            await asyncio.sleep(self._seconds)
        tokens = (len(wish) + len(content)) // 4
        return JSONResponse(
            {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": tokens}}
        )


class _WithoutSignals(uvicorn.Server):
    """A server inside of a program that has its own idea of Ctrl-C."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals to the program."""
        return nullcontext()


@asynccontextmanager
async def stand_in_model(seconds: float) -> AsyncIterator[StandInModel]:
    """A model that answers for the length of a block."""
    port = free_ports(1)[0]
    model = StandInModel(port, seconds)
    app = Starlette(routes=[Route("/v1/chat/completions", model.complete, methods=["POST"])])
    config = uvicorn.Config(app, LOOPBACK, port, log_config=None, access_log=False, lifespan="off")
    server = _WithoutSignals(config)
    serving = asyncio.create_task(server.serve())
    try:
        yield model
    finally:
        server.should_exit = server.force_exit = True
        await serving


def _answer(wish: str) -> dict[str, Any]:
    if (outline := _OUTLINE.match(wish)) is not None:
        number, topic = int(outline[1]), outline[2]
        titles = [f"{_ASPECTS[at % len(_ASPECTS)]} ({at + 1})" for at in range(number)]
        return {"title": topic, "slides": titles}
    quoted = [line[:160] for line in _SOURCES.findall(wish)][:4]
    invented = ["A stand-in wrote this slide: no model is configured.", "Its words would be here."]
    return {"bullets": quoted or invented, "notes": "Written by the demonstration's stand-in for a model."}
