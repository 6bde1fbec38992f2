"""Structured logs: one JSON object per line on stderr.

    configure_logs("info")
    logger.info("signed in", extra={"user_id": user_id})      # extra becomes members of the line

No secrets: of an exception, the type and where it was raised are logged; its text only if it is one of
Ephemera's errors, which promise to hold none. Database errors repeat what was being written.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera.errors import EphemeraError

_STANDARD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"))
_FRAMES = 12  # of a traceback, the innermost


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line: time, level, logger, message, what `extra` adds, and the error."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _describe(record.exc_info[1])
        return msgspec.json.encode(line, enc_hook=str).decode()


class _StderrHandler(logging.Handler):
    """Writes to the current `sys.stderr`, which tests replace and close."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def configure_logs(level: str, *filters: logging.Filter) -> None:
    """Send everything this process logs at `level` or above to stderr as JSON; `filters` may add members."""
    handler = _StderrHandler()
    handler.setFormatter(JsonFormatter())
    for each in filters:
        handler.addFilter(each)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # they bring handlers of their own
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("uvicorn.access").disabled = True  # it logs whole paths
    # A failed start is logged by us; uvicorn would repeat it with the error's text.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "Traceback (most" not in record.getMessage())


def _describe(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    described: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if isinstance(error, EphemeraError):
        described["message"] = str(error)
    if error.__cause__ is not None:
        described["cause"] = _describe(error.__cause__)
    return described
