"""OPS3: a 503 left no reason in the log, so an operator could not see which server was down."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from sqlalchemy.exc import OperationalError

from ephemera.errors import Unavailable
from ephemera.keyspace import connect
from ephemera.web import LimitMiddleware, security_headers
from ephemera_services.runtime.logs import REQUEST_ID
from ephemera_services.runtime.middleware import RequestLogging
from ephemera_services.runtime.problem_documents import install_problem_handlers, problem
from tests.patterns.limit_fixtures import CATALOGUE, CLOSED, LIMITS

SECRET = "hunter2"
FAILURES: dict[str, tuple[Exception, str]] = {
    "redis": (Unavailable("10.0.0.7:6379", "the connection was lost"), "Unavailable: 10.0.0.7:6379"),
    "sql": (
        OperationalError("SELECT :p", {"p": SECRET}, Exception("connection refused\nDETAIL: none")),
        "OperationalError: connection refused",
    ),
    "busy": (problem(503, "Too many sign-ins at once."), "Too many sign-ins at once."),
    "framework": (HTTPException(503, "No worker is left."), "No worker is left."),
}


@pytest.fixture
def lines() -> Iterator[list[tuple[str | None, str]]]:
    """Each warning with the id of the request that it was logged for."""
    logged: list[tuple[str | None, str]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append((REQUEST_ID.get(), record.getMessage()))

    handler = Kept(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("ephemera_services", "ephemera.web")]
    for logger in loggers:
        logger.addHandler(handler)
    yield logged
    for logger in loggers:
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


async def test_ops3_a_limit_that_cannot_be_counted_has_its_reason(
    lines: list[tuple[str | None, str]],
) -> None:
    """The middleware that answers itself while Redis is down logs the rule, under the request's id."""
    async with connect("redis://127.0.0.1:1", CATALOGUE, required=False) as store:
        limited = LimitMiddleware(application(), lambda _: store[LIMITS], lambda _: [CLOSED.on("1.2.3.4")])
        app = RequestLogging(limited, headers=security_headers())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            response = await client.get("/fails/busy")
    assert response.status_code == 503
    found = [(request_id, line) for request_id, line in lines if line.startswith("answered with 503")]
    assert found == [
        (
            response.headers["x-request-id"],
            "answered with 503: limits cannot be counted while Redis is down: closed",
        )
    ]
