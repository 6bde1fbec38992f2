"""Passwords are hashed by a bounded number of threads, with a bounded queue."""

from __future__ import annotations

import asyncio

import pytest

from ephemera.web import Problem
from ephemera_services.runtime import Passwords


async def test_one_is_hashed_and_sixteen_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the number of processors is unknown there is one thread; what its queue cannot hold is a 503."""
    monkeypatch.setattr("os.cpu_count", lambda: None)
    passwords = Passwords(memory=8)
    try:
        hashing = [passwords.hash("correct horse battery") for _ in range(18)]
        *hashed, last = await asyncio.gather(*hashing, return_exceptions=True)
        assert all(isinstance(each, str) for each in hashed)
        assert isinstance(last, Problem)
        assert last.status == 503
        assert await passwords.verify("correct horse battery", str(hashed[0]))
    finally:
        passwords.close()
