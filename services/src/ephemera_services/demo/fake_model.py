"""A fake language model for slides: OpenAI's chat completions with a configurable delay.

The demo downloads nothing, and a presentation that is written instantly shows no progress. The model
quotes sentences of the sources, or says that it is a fake. It runs in the demo's own process.
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


class FakeModel:
    """The model; it takes `seconds` to write a slide."""

    def __init__(self, port: int, seconds: float) -> None:
        self.url = f"http://{LOOPBACK}:{port}/v1"
        self._seconds = seconds

    async def complete(self, request: Request) -> Response:
        """Answer one request."""
        body = await request.json()
        prompt = str(body["messages"][-1]["content"])
        content = json.dumps(_answer(prompt))
        if _SLIDE.match(prompt):
            await asyncio.sleep(self._seconds)
        tokens = (len(prompt) + len(content)) // 4
        return JSONResponse(
            {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": tokens}}
        )


class _WithoutSignals(uvicorn.Server):
    """A server inside a program that handles signals itself."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals to the program."""
        return nullcontext()


@asynccontextmanager
async def serve_fake_model(seconds: float) -> AsyncIterator[FakeModel]:
    """Serve the model within a block."""
    port = free_ports(1)[0]
    model = FakeModel(port, seconds)
    app = Starlette(routes=[Route("/v1/chat/completions", model.complete, methods=["POST"])])
    config = uvicorn.Config(app, LOOPBACK, port, log_config=None, access_log=False, lifespan="off")
    server = _WithoutSignals(config)
    serving = asyncio.create_task(server.serve())
    try:
        yield model
    finally:
        server.should_exit = server.force_exit = True
        await serving


def _answer(prompt: str) -> dict[str, Any]:
    if (outline := _OUTLINE.match(prompt)) is not None:
        number, topic = int(outline[1]), outline[2]
        titles = [f"{_ASPECTS[at % len(_ASPECTS)]} ({at + 1})" for at in range(number)]
        return {"title": topic, "slides": titles}
    quoted = [line[:160] for line in _SOURCES.findall(prompt)][:4]
    invented = [
        "The demo's fake model wrote this slide: no model is configured.",
        "The model's text would be here.",
    ]
    return {"bullets": quoted or invented, "notes": "Written by the demo's fake model."}
