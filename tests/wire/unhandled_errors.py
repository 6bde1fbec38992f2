"""Errors that nobody awaits: asyncio only logs them, a test must fail by them."""

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
    """Fail a test during which a task, a future or a callback failed unseen."""
    collector = _Collector()
    logger = logging.getLogger("asyncio")
    logger.addHandler(collector)
    yield
    logger.removeHandler(collector)
    assert not [record.getMessage() for record in collector.records]
