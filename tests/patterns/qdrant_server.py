"""The REST routes of a Qdrant server that the adapter uses, over Qdrant's embedded engine, as a process.

Run as `python -m tests.patterns.qdrant_server PORT`; `QdrantServer` starts one and may pause or kill it.
Requests are parsed by Qdrant's own models, so what the adapter sends is checked, and what it gets has the
form that a server gives it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Self

import uvicorn
from qdrant_client import QdrantClient, models
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ephemera.embedded import free_ports

__all__ = ["QdrantServer"]


class QdrantServer:
    """A process that answers as a Qdrant server does."""

    def __init__(self) -> None:
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        command = [sys.executable, "-m", "tests.patterns.qdrant_server", str(self.port)]
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "it did not start"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections are taken, and nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def application() -> Starlette:  # noqa: C901 (one short function a route)
    """The routes."""
    engine = QdrantClient(":memory:")

    async def collections(request: Request) -> JSONResponse:
        return _result(engine.get_collections())

    async def exists(request: Request) -> JSONResponse:
        return _result({"exists": engine.collection_exists(_name(request))})

    async def create(request: Request) -> JSONResponse:
        body = models.CreateCollection(**await request.json())
        if engine.collection_exists(_name(request)):
            return JSONResponse({"status": {"error": "already exists"}}, 409)
        return _result(engine.create_collection(_name(request), vectors_config=body.vectors))

    async def index(request: Request) -> JSONResponse:
        models.CreateFieldIndex(**await request.json())
        return _done()

    async def upsert(request: Request) -> JSONResponse:
        body = models.PointsList(**await request.json())
        engine.upsert(_name(request), points=body.points)
        return _done()

    async def query(request: Request) -> JSONResponse:
        body = models.QueryRequest(**await request.json())
        query: Any = body.query
        found = engine.query_points(
            _name(request),
            query=getattr(query, "nearest", query),
            query_filter=body.filter,
            limit=body.limit or 10,
            score_threshold=body.score_threshold,
        )
        return _result(found)

    async def retrieve(request: Request) -> JSONResponse:
        body = models.PointRequest(**await request.json())
        return _result([each.model_dump() for each in engine.retrieve(_name(request), ids=body.ids)])

    async def scroll(request: Request) -> JSONResponse:
        body = models.ScrollRequest(**await request.json())
        points, following = engine.scroll(
            _name(request), scroll_filter=body.filter, limit=body.limit or 10, offset=body.offset
        )
        return _result({"points": [each.model_dump() for each in points], "next_page_offset": following})

    async def delete(request: Request) -> JSONResponse:
        engine.delete(_name(request), points_selector=models.FilterSelector(**await request.json()))
        return _done()

    collection = "/collections/{name}"
    return Starlette(
        routes=[
            Route("/collections", collections),
            Route(f"{collection}/exists", exists),
            Route(collection, create, methods=["PUT"]),
            Route(f"{collection}/index", index, methods=["PUT"]),
            Route(f"{collection}/points", upsert, methods=["PUT"]),
            Route(f"{collection}/points", retrieve, methods=["POST"]),
            Route(f"{collection}/points/query", query, methods=["POST"]),
            Route(f"{collection}/points/scroll", scroll, methods=["POST"]),
            Route(f"{collection}/points/delete", delete, methods=["POST"]),
        ],
        exception_handlers={ValueError: _not_found},
    )


async def _not_found(request: Request, problem: Exception) -> JSONResponse:
    return JSONResponse({"status": {"error": str(problem)}}, 404)


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _done() -> JSONResponse:
    return _result({"operation_id": 0, "status": "completed"})


def _result(result: Any) -> JSONResponse:
    dumped = result.model_dump() if hasattr(result, "model_dump") else result
    return JSONResponse({"result": dumped, "status": "ok", "time": 0.0})


if __name__ == "__main__":
    uvicorn.run(application(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
