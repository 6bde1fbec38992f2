"""Structured logs: one JSON object a line on stderr, with the id of the request that it belongs to.

    configure("info")
    logger.info("signed in", extra={"user_id": user_id})      # extra becomes members of the line

No secrets: of an exception, the type and where it was raised is logged; its text only where it is one of
Ephemera's errors, which promise to hold none: those of databases repeat what was being written. What is known
of requests is `requests`.
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

_USUAL = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"))
_FRAMES = 12  # of a trace, the innermost


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := REQUEST_ID.get()) is not None:
            line["request_id"] = request_id
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _described(record.exc_info[1])
        return msgspec.json.encode(line, enc_hook=str).decode()


class _Stderr(logging.Handler):
    """Writes to what `sys.stderr` is at the time: who replaces it for a while closes theirs afterwards."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def configure(level: str) -> None:
    """Send everything that is logged in this process to stderr as JSON, from a level on."""
    handler = _Stderr()
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # they bring handlers of their own
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("uvicorn.access").disabled = True  # it logs whole paths
    # A start that fails is logged by us; uvicorn repeats it with the error's text.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "Traceback (most" not in record.getMessage())


@contextmanager
def only_from(level: int) -> Iterator[None]:
    """For a while, nothing of ours below this level: where lost connections are part of the show."""
    ours = logging.getLogger("ephemera")
    before = ours.level
    ours.setLevel(level)
    try:
        yield
    finally:
        ours.setLevel(before)


def _described(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    described: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if isinstance(error, EphemeraError):
        described["says"] = str(error)
    if error.__cause__ is not None:
        described["because"] = _described(error.__cause__)
    return described
