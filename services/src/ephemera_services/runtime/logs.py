"""Structured logs: one JSON object per line on stderr, with the id of the request it belongs to.

    configure_logging("info")
    logger.info("signed in", extra={"user_id": user_id})      # `extra` is merged into the line

Logs contain no secrets. Of an exception, the type and the stack are logged, and its text only if it is one of
Ephemera's errors, which never contain values; database errors repeat what was being written.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera.errors import EphemeraError

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is being served, if any."""

_STANDARD_FIELDS = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message")
)
_FRAMES = 12  # of a stack trace, the innermost


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := REQUEST_ID.get()) is not None:
            line["request_id"] = request_id
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _describe(record.exc_info[1])
        return msgspec.json.encode(line, enc_hook=str).decode()


class _StderrHandler(logging.Handler):
    """Writes to the current `sys.stderr`, which tests and tools replace temporarily."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def configure_logging(level: str) -> None:
    """Log everything in this process at or above a level to stderr, as JSON."""
    handler = _StderrHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # they install handlers of their own
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("uvicorn.access").disabled = True  # it logs complete paths
    # A failed startup is logged by us; uvicorn would repeat it with the error's text.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "Traceback (most" not in record.getMessage())


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


def _describe(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    description: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if isinstance(error, EphemeraError):
        description["message"] = str(error)
    if error.__cause__ is not None:
        description["cause"] = _describe(error.__cause__)
    return description
