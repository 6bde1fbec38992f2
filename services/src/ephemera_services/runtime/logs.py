"""Structured logs of a service: the library's JSON lines, with the id of the request they belong to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ephemera.cli import configure_logs

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is being served, if any."""


class _AddRequestId(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if (request_id := REQUEST_ID.get()) is not None:
            record.request_id = request_id
        return True


def configure_logging(level: str) -> None:
    """Log everything in this process at or above a level to stderr, as JSON."""
    configure_logs(level, _AddRequestId())


@contextmanager
def minimum_log_level(level: int) -> Iterator[None]:
    """Raise the level of Ephemera's loggers within a block, where lost connections are expected."""
    ephemera = logging.getLogger("ephemera")
    before = ephemera.level
    ephemera.setLevel(level)
    try:
        yield
    finally:
        ephemera.setLevel(before)
