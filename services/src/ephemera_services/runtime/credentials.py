"""Login formats, the fields of forms that carry passwords, and password hashing.

Passwords are hashed with argon2id. A check takes about 50 ms and as many mebibytes as the settings say, by
design. So it runs in threads, and when too many calls are queued the next one is refused with 503. Sign-ins
and new accounts have threads and queues of their own: a flood of one kind cannot starve the other.

A password is any text that UTF-8 can encode, without NUL, of at most 128 characters. `RequestBody` refuses
text that UTF-8 cannot encode (a lone surrogate, which JSON can express) in every field of a form, with 422.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from ephemera.web import unavailable

EMAIL_PATTERN = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}$"
EMAIL_LENGTH = 254
LOGIN_NAME_PATTERN = r"^[A-Za-z0-9._-]{1,40}$"

DEMO_PASSWORD = "correct horse battery"  # noqa: S105 - public: every account of the demo has it

T = TypeVar("T")

_MAX_LENGTH = 128  # characters of a password
_SIGN_IN_QUEUE = 64
_NEW_ACCOUNT_QUEUE = 16
_BUSY = "Too many people are signing in or registering at the moment; please try again."


def _without_nul(password: SecretStr) -> SecretStr:
    if "\0" in password.get_secret_value():
        raise ValueError("a password must not contain NUL")
    return password


def _reject_surrogates(body: Any) -> Any:
    """Raise ValueError if a text anywhere in a JSON document, or a name, cannot be encoded as UTF-8."""
    remaining = [body]
    while remaining:
        each = remaining.pop()
        if isinstance(each, str):
            if not each.isascii():
                _require_utf8(each)
        elif isinstance(each, dict):
            remaining.extend(each)
            remaining.extend(each.values())
        elif isinstance(each, list):
            remaining.extend(each)
    return body


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text contains a lone surrogate, which is not a character") from None


class RequestBody(BaseModel):
    """The base of the forms of services: no unknown fields, and only text that UTF-8 can encode."""

    model_config = ConfigDict(extra="forbid")

    _encodable = model_validator(mode="before")(_reject_surrogates)


NewPassword = Annotated[
    SecretStr,
    Field(min_length=10, max_length=_MAX_LENGTH, examples=["correct horse battery"]),
    AfterValidator(_without_nul),
]
"""The password of a new account, in a `RequestBody`."""
GivenPassword = Annotated[
    SecretStr, Field(min_length=1, max_length=_MAX_LENGTH), AfterValidator(_without_nul)
]
"""The password of a sign-in, in a `RequestBody`."""


class Passwords:
    """Hashes and verifies passwords."""

    def __init__(self, memory: int) -> None:
        """`memory` is what a check uses, in mebibytes."""
        self._hasher = PasswordHasher(time_cost=3, memory_cost=memory * 1024, parallelism=1)
        processors = min(4, os.cpu_count() or 1)
        self._sign_ins = _Lane("sign-ins", processors, _SIGN_IN_QUEUE)
        self._new_accounts = _Lane("new-accounts", max(1, processors // 2), _NEW_ACCOUNT_QUEUE)
        self._dummy_hash = self._hasher.hash(os.urandom(16))

    async def hash(self, password: str) -> str:
        """Return the hash to store for the password of a new account."""
        return await self._new_accounts.run(lambda: self._hasher.hash(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Whether the password matches a stored hash. Without one (no such user) it takes as long."""
        matches = await self._sign_ins.run(lambda: self._matches(password, stored or self._dummy_hash))
        return matches and stored is not None

    async def rehash(self, password: str, stored: str) -> str | None:
        """Return a hash with the current parameters for a verified password; None if it has them."""
        if not self._hasher.check_needs_rehash(stored):
            return None
        return await self._sign_ins.run(lambda: self._hasher.hash(password))

    def close(self) -> None:
        """Shut the threads down."""
        self._sign_ins.close()
        self._new_accounts.close()

    def _matches(self, password: str, stored: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


class _Lane:
    """Threads for one kind of work, with a bounded queue."""

    def __init__(self, name: str, threads: int, queue_limit: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"passwords-{name}")
        self._limit = threads + queue_limit
        self._pending = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work in a thread; 503 if too much is waiting."""
        if self._pending >= self._limit:
            raise unavailable(_BUSY)
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._pending -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
