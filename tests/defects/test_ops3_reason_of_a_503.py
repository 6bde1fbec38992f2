"""OPS3: a 503 left no reason in the log, so an operator could not see which server was down."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.exc import OperationalError

from ephemera.errors import Unavailable
from ephemera.web import security_headers
from ephemera_services.runtime.logs import REQUEST_ID
from ephemera_services.runtime.middleware import RequestLogging
from ephemera_services.runtime.problem_documents import install_problem_handlers, problem

SECRET = "hunter2"
FAILURES: dict[str, tuple[Exception, str]] = {
    "redis": (Unavailable("10.0.0.7:6379", "the connection was lost"), "Unavailable: 10.0.0.7:6379"),
    "sql": (
        OperationalError("SELECT :p", {"p": SECRET}, Exception("connection refused\nDETAIL: none")),
        "OperationalError: connection refused",
    ),
    "busy": (problem(503, "Too many sign-ins at once."), "Too many sign-ins at once."),
}


@pytest.fixture
def lines() -> Iterator[list[tuple[str | None, str]]]:
    """Each warning with the id of the request that it was logged for."""
    logged: list[tuple[str | None, str]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append((REQUEST_ID.get(), record.getMessage()))

    handler = Kept(logging.WARNING)
    logger = logging.getLogger("ephemera_services")
    logger.addHandler(handler)
    yield logged
    logger.removeHandler(handler)


def application() -> Any:
    """A service whose routes fail, as every service is put together."""
    app = FastAPI()
    install_problem_handlers(app)

    @app.get("/fails/{how}")
    async def fails(how: str) -> None:
        if how == "hidden":
            try:
                raise FAILURES["redis"][0]
            except Unavailable:
                raise problem(503, "Your session cannot be read.") from None
        raise FAILURES[how][0]

    app.add_middleware(RequestLogging, headers=security_headers())
    return app


@pytest.mark.parametrize("how", [*FAILURES, "hidden"])
async def test_ops3_every_503_has_its_reason_and_the_requests_id(
    lines: list[tuple[str | None, str]], how: str
) -> None:
    """One line says what failed, under the id that the client got, without values of a statement."""
    reason = FAILURES["redis" if how == "hidden" else how][1]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application()), base_url="http://x") as client:
        response = await client.get(f"/fails/{how}")
    assert response.status_code == 503
    ((request_id, line),) = lines
    assert request_id == response.headers["x-request-id"]
    assert line.startswith(f"answered with 503: {reason}")
    assert SECRET not in line
    assert "10.0.0.7" not in response.text
