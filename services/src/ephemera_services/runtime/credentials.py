"""Login formats and password hashing.

Passwords are hashed with argon2id. A check takes about 50 ms and as many mebibytes as the settings say, by
design. So it runs in threads, as many at once as there are processors, and when too many calls are queued the
next one is refused with 503.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from ephemera.web import unavailable

EMAIL_PATTERN = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}$"
EMAIL_LENGTH = 254
LOGIN_NAME_PATTERN = r"^[A-Za-z0-9._-]{1,40}$"

DEMO_PASSWORD = "correct horse battery"  # noqa: S105 - public: every account of the demo has it

T = TypeVar("T")

_QUEUE_LIMIT = 64


class Passwords:
    """Hashes and verifies passwords."""

    def __init__(self, memory: int) -> None:
        """`memory` is what a check uses, in mebibytes."""
        self._hasher = PasswordHasher(time_cost=3, memory_cost=memory * 1024, parallelism=1)
        self._parallel = min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(self._parallel, thread_name_prefix="passwords")
        self._pending = 0
        self._dummy_hash = self._hasher.hash(os.urandom(16))

    async def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        return await self._in_thread(lambda: self._hasher.hash(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Whether the password matches a stored hash. Without one (no such user) it takes as long."""
        return (
            await self._in_thread(lambda: self._matches(password, stored or self._dummy_hash))
            and stored is not None
        )

    def is_outdated(self, stored: str) -> bool:
        """Whether a hash was made with other parameters than the current ones."""
        return self._hasher.check_needs_rehash(stored)

    def close(self) -> None:
        """Shut the threads down."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._pending >= self._parallel + _QUEUE_LIMIT:
            raise unavailable("Too many people are signing in at the moment; please try again.")
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._pending -= 1

    def _matches(self, password: str, stored: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False
