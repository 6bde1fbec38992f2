"""USE7: the usual slips of a new user raise errors that show what to write instead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from ephemera import Cache, Catalogue, Entitlements, Locks, Sessions, Store, blocking, connect, fixed, sliding
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, LoopMisuse, WrongFields
from ephemera.keyspace import _connect

HOUR, MINUTE = fixed(hours=1), timedelta(minutes=1)
CATALOGUE = Catalogue("use7")


class User(msgspec.Struct):
    """A record."""

    name: str


HASH = CATALOGUE.hash("use7_hash:{user_id}", User, lifetime=HOUR, purpose="x")
VALUE = CATALOGUE.value("use7_value:{user_id}", User, lifetime=HOUR, purpose="x")
SLIDING = CATALOGUE.value("use7_sliding:{user_id}:{day}", User, lifetime=sliding(hours=1), purpose="x")
COUNTER = CATALOGUE.counter("use7_counter:{user_id}", lifetime=HOUR, purpose="x")
FLAG = CATALOGUE.flag("use7_flag:{user_id}", lifetime=HOUR, purpose="x")
CACHE = Cache(CATALOGUE, "use7_cache:{user_id}", User, fresh=MINUTE, purpose="x")
PLANS = Entitlements(CATALOGUE, "use7_plan:{user_id}", User, lifetime=HOUR)
LOCK = Locks(CATALOGUE, "use7_lock:{user_id}", lease=MINUTE, purpose="x")


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with these declarations."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


@pytest.mark.parametrize(
    ("keyspace", "method"),
    [(HASH, "get"), (VALUE, "get"), (COUNTER, "get"), (FLAG, "is_set"), (FLAG, "set"), (CACHE, "get"),
     (HASH, "exists"), (VALUE, "delete")],
)  # fmt: skip
async def test_use7_a_field_without_its_name(store: Store, keyspace: Any, method: str) -> None:
    """`get("1")` says which name to write, and reads nothing."""
    with pytest.raises(WrongFields, match=rf"use7_.* write {method}\(user_id=\.\.\.\)"):
        await getattr(store[keyspace], method)("1")


async def test_use7_a_field_without_its_name_beside_other_arguments(store: Store) -> None:
    """Also for values, loaders, keys, and patterns with several fields."""
    hashes: Any = store[HASH]
    values: Any = store[VALUE]
    cache: Any = store[CACHE]
    two: Any = store[SLIDING]
    key: Any = HASH.key

    async def load(user_id: str) -> User:
        raise AssertionError(user_id)

    for accessor in (hashes, values):
        with pytest.raises(WrongFields, match=r"write put\(user_id=\.\.\.\)"):
            await accessor.put(User("ann"), "1")
    with pytest.raises(WrongFields, match=r"write get_or_load\(user_id=\.\.\.\)"):
        await cache.get_or_load(load, "1")
    with pytest.raises(WrongFields, match=r"write get\(user_id=\.\.\., day=\.\.\.\)"):
        await two.get("1", "2")
    with pytest.raises(WrongFields, match=r"write key\(user_id=\.\.\.\)"):
        key("1")


def test_use7_sessions_of_a_dict_or_a_model() -> None:
    """A plain dict is refused with what to use; a pydantic model is accepted, if it has the user."""

    class Session(pydantic.BaseModel):
        user_id: str

    options: Any = {"user": "user_id", "lifetime": sliding(hours=1)}
    for refused in (dict, dict[str, str]):
        with pytest.raises(
            InvalidDeclaration, match=r"no named fields; use a msgspec\.Struct, a pydantic model"
        ):
            Sessions(Catalogue("x"), "session:{session_id}", refused, **options)
    assert Sessions(Catalogue("x"), "session:{session_id}", Session, **options).record is Session
    with pytest.raises(InvalidDeclaration, match="Session has no field 'user'; user= is one of user_id"):
        Sessions(Catalogue("x"), "session:{session_id}", Session, user="user", lifetime=sliding(hours=1))


async def test_use7_a_synchronous_loader(store: Store, key: str) -> None:
    """A loader that is no coroutine function is named, with the form to write, and nothing is cached."""

    def load_user(user_id: str) -> User:
        return User(user_id)

    wrong: Any = load_user
    for call in (store[CACHE].get_or_load, store[PLANS].get):
        with pytest.raises(
            InvalidDeclaration, match=r"load_user is not async.* async def load_user\(user_id\)"
        ):
            await call(wrong, user_id=key)
    assert await store[CACHE].get(user_id=key) is None


async def test_use7_a_loader_that_was_called(store: Store, key: str) -> None:
    """A coroutine, or a value, in the place of the loader is refused, and nothing is left to await."""

    async def load_user(user_id: str) -> User:
        raise AssertionError(user_id)

    coroutine: Any = load_user(key)
    given: dict[str, Any] = {"coroutine": coroutine, "User": User("ann")}
    for kind, wrong in given.items():
        for call in (store[CACHE].get_or_load, store[PLANS].get):
            with pytest.raises(InvalidDeclaration, match=rf"is a {kind}, not a function; pass the function"):
                await call(wrong, user_id=key)
    assert coroutine.cr_frame is None


def test_use7_with_in_place_of_async_with(server: Valkey) -> None:
    """`with connect(...)` and `with ....hold()` show the right form, and where the synchronous API is."""
    opening: Any = _connect.connect(server.url, CATALOGUE)  # not the one that tests replace
    with pytest.raises(TypeError, match=r"needs `async with`, not `with`.*ephemera.sync"):
        with opening:
            raise AssertionError


async def test_use7_with_in_place_of_async_with_for_locks(store: Store) -> None:
    """`with store[LOCK].hold(...)` and `try_hold` acquire nothing."""
    for holding in (store[LOCK].hold(user_id="1"), store[LOCK].try_hold(user_id="1")):
        wrong: Any = holding
        with pytest.raises(TypeError, match=r"needs `async with`, not `with`.*ephemera.sync"):
            with wrong:
                raise AssertionError
    assert await store[LOCK].holder(user_id="1") is None


def test_use7_an_async_call_for_wait(server: Valkey) -> None:
    """`store.wait(store.aio.call(...))` says to call the blocking store itself."""
    with (
        blocking.connect(server.url, CATALOGUE) as store,
        pytest.raises(LoopMisuse, match=r"store\.call\(\.\.\.\), not store\.aio\.call"),
    ):
        store.wait(store.aio.call("PING"))  # type: ignore[arg-type]


def test_use7_a_missing_fastapi() -> None:
    """Importing `ephemera.web.fastapi` without FastAPI names the extra that has it."""
    program = (
        "import sys\n"
        "sys.modules['fastapi'] = sys.modules['starlette'] = None  # as if they were not installed\n"
        "import ephemera.web\n"
        "import ephemera.web.fastapi\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MissingExtra: ephemera.web.fastapi needs fastapi: pip install 'ephemera-data[web]'" in done.stderr
