"""Errors that no caller awaits: asyncio only logs them, but they must fail a test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def no_unhandled_errors() -> Iterator[None]:
    """Fail a test during which a task, a future or a callback failed without being awaited."""
    collector = _Collector()
    logger = logging.getLogger("asyncio")
    logger.addHandler(collector)
    yield
    logger.removeHandler(collector)
    assert not [record.getMessage() for record in collector.records]
