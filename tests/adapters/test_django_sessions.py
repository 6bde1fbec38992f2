"""Django's session engine: what Django's own tests ask of every engine, and what `Sessions` guarantees."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.sessions.backends.base import CreateError, UpdateError
from django.core.management import call_command
from django.test import override_settings
from django.utils import timezone

from ephemera.adapters.django import SessionStore
from ephemera.errors import ConnectionFailed, InvalidLifetime, InvalidValue

pytestmark = pytest.mark.usefixtures("django_store")


def engine(key: str | None = None) -> SessionStore:
    """A session of the engine that the settings name."""
    return SessionStore(key)


def stored(**data: Any) -> SessionStore:
    """A saved session."""
    session = engine()
    session.update(data)
    session.save()
    return session


def test_a_new_session_touches_nothing() -> None:
    """It is neither accessed nor modified, has no key, and reads as empty."""
    session = engine()
    assert (session.modified, session.accessed, session.session_key) == (False, False, None)
    assert session.get("cat") is None
    assert list(session.items()) == []
    assert session.is_empty()


def test_access_and_change_are_noticed() -> None:
    """Reading marks it as accessed, and setting or removing as modified."""
    session = stored(a=1, b=2)
    again = engine(session.session_key)
    assert again["a"] == 1
    assert (again.accessed, again.modified) == (True, False)
    assert again.pop("a") == 1
    assert again.modified
    assert again.pop("nothing", "default") == "default"
    assert again.setdefault("c", 3) == again.setdefault("c", 4) == 3
    assert sorted(again.keys()) == ["b", "c"]
    again.clear()
    assert list(again.values()) == []


def test_saving_keeps_data_and_key() -> None:
    """A saved session exists, another object of its key has the data, and saving again keeps the key."""
    session = stored(a="b")
    key = session.session_key
    session["c"] = ["d", {"e": None}]
    session.save()
    assert session.session_key == key
    assert session["a"] == "b"
    assert dict(engine(key).items()) == {"a": "b", "c": ["d", {"e": None}]}
    assert session.exists(key)


def test_create_makes_a_new_session() -> None:
    """`create` stores what there is under a new key, and asks for its cookie."""
    session = engine()
    session.create()
    assert session.modified
    assert session.exists(session.session_key)
    assert list(engine(session.session_key).items()) == []


def test_must_create_refuses_an_existing_key() -> None:
    """`save(must_create=True)` never overwrites a session, and never uses a key that it was given."""
    session = stored(a=1)
    with pytest.raises(CreateError):
        engine(session.session_key).save(must_create=True)
    chosen = engine("chosen-by-a-visitor")
    chosen.save(must_create=True)
    assert chosen.session_key != "chosen-by-a-visitor"


def test_delete_and_flush_end_a_session() -> None:
    """After either it does not exist, and `flush` leaves an empty session without a key."""
    session = stored(a=1)
    session.delete(session.session_key)
    assert not session.exists(session.session_key)
    session = stored(a=1)
    key = session.session_key
    session.flush()
    assert not session.exists(key)
    assert (session.session_key, session.modified, session.accessed) == (None, True, True)
    assert session.is_empty()


def test_a_new_key_keeps_the_data() -> None:
    """`cycle_key` gives a loaded or unloaded session another key, and ends the old one."""
    session = stored(a="c", b="d")
    old = session.session_key
    session.cycle_key()
    assert session.session_key != old
    assert not session.exists(old)
    unread = engine(session.session_key)
    unread["unsaved"] = 1
    unread.cycle_key()
    unread.save()
    assert dict(engine(unread.session_key).items()) == {"a": "c", "b": "d", "unsaved": 1}
    fresh = engine()
    fresh["a"] = 1
    fresh.cycle_key()
    assert dict(engine(fresh.session_key).items()) == {"a": 1}


@pytest.mark.parametrize("key", ["1", "", "someunknownkey", "x" * 43 + ".YW5u", "é" * 60, "a" * 5000])
def test_an_unknown_key_is_never_adopted(key: str) -> None:
    """Loading with it creates nothing, and saving uses another one."""
    session = engine(key)
    assert session.get("cat") is None
    assert session.session_key is None
    assert not session.exists(None)  # as Django's own tests ask
    session.save()
    assert session.session_key != key
    session.delete(key)


def test_the_key_is_read_only() -> None:
    """Only the engine chooses keys."""
    with pytest.raises(AttributeError):
        engine().session_key = "chosen-key"  # type: ignore[misc]


def test_expiry_is_as_django_says() -> None:
    """By default the cookie's age; seconds, dates and differences otherwise; 0 is the browser's end."""
    session, now = engine(), timezone.now()
    assert session.get_expiry_age() == settings.SESSION_COOKIE_AGE
    session.set_expiry(10)
    assert session.get_expiry_date(modification=now) == now + timedelta(seconds=10)
    session.set_expiry(now + timedelta(seconds=20))
    assert session.get_expiry_age(modification=now) == 20
    session.set_expiry(0)
    assert session.get_expire_at_browser_close()
    assert session.get_expiry_age() == settings.SESSION_COOKIE_AGE
    session.save()
    assert engine(session.session_key).get_expire_at_browser_close()
    session.set_expiry(None)
    assert not session.get_expire_at_browser_close()


def test_an_expired_session_is_gone() -> None:
    """With an expiry in the past, the session ends with its save; one in the future lasts."""
    session = stored(foo="bar")
    session.set_expiry(-timedelta(seconds=10))
    session.save()
    assert "foo" not in engine(session.session_key)
    assert not session.exists(session.session_key)
    session = stored(foo="bar")
    session.set_expiry(3600)
    session.save()
    assert engine(session.session_key)["foo"] == "bar"


@pytest.mark.standalone("it looks at all keys of one server")
def test_the_server_s_ttl_follows_the_last_save(django_store: Any) -> None:
    """A save extends the session to its whole lifetime; reading does not, as in Django's other engines."""
    session = stored(a=1)
    (key,) = django_store.call("KEYS", "session:*")
    django_store.call("PEXPIRE", key, 60_000)
    assert engine(session.session_key)["a"] == 1
    assert django_store.call("PTTL", key) <= 60_000
    session["a"] = 2
    session.save()
    assert django_store.call("PTTL", key) > (settings.SESSION_COOKIE_AGE - 60) * 1000


def test_an_expiry_beyond_the_lifetime_is_refused() -> None:
    """It would end early on the server; the error names the setting."""
    session = engine()
    session.set_expiry(settings.SESSION_COOKIE_AGE + 60)
    with pytest.raises(InvalidLifetime, match="MAX_SESSION_AGE"):
        session.save()


def test_a_late_save_revives_nothing() -> None:
    """A session that was ended in the meantime raises `UpdateError`, and stays ended."""
    session = stored(test_data="value1")
    engine(session.session_key).delete()
    session["test_data"] = "value2"
    with pytest.raises(UpdateError):
        session.save()
    assert session.load() == {}
    cleared = engine(stored(a=1).session_key)
    cleared.clear()
    engine(cleared.session_key).delete()
    with pytest.raises(UpdateError):
        cleared.save()


def test_clearing_expired_sessions_has_nothing_to_do() -> None:
    """`manage.py clearsessions` works, and leaves what is valid."""
    session = stored(a=1)
    call_command("clearsessions")
    assert session.exists(session.session_key)


def test_values_that_json_cannot_express_are_named() -> None:
    """The error says which key; a lone surrogate, which could not be read back, among them."""
    for value in (timedelta(1), {1, 2}, b"bytes", float("nan"), "\ud800"):
        session = engine()
        session["fine"], session["wrong"] = 1, value
        with pytest.raises(InvalidValue, match="'wrong'"):
            session.save()


@pytest.mark.standalone("it looks at all keys of one server")
@pytest.mark.parametrize("data", ["", "[]", "{", "[" * 100_000, "gASVCgAAAA=="])
def test_what_redis_holds_is_not_trusted(django_store: Any, data: str) -> None:
    """Data that is not a JSON object is not a session, and nothing fails."""
    session = stored(a=1)
    (key,) = django_store.call("KEYS", "session:*")
    django_store.call("HSET", key, "data", data)
    assert engine(session.session_key).get("a") is None


def test_the_async_methods() -> None:
    """Each method of an async view does the same, on a running loop."""

    async def use() -> None:
        session = engine()
        await session.aset("a", 1)
        await session.asave()
        first = session.session_key
        assert first is not None
        assert await session.aexists(first)
        again = engine(first)
        assert await again.aget("a") == 1
        assert (await again.aload()) == {"a": 1}
        await again.acycle_key()
        assert not await again.aexists(first)
        await again.aset_expiry(60)
        assert await again.aget_expiry_age() == 60
        await again.asave()
        with pytest.raises(CreateError):
            await again.asave(must_create=True)
        other = engine(again.session_key)
        await other.aset("b", 2)
        await again.aflush()
        with pytest.raises(UpdateError):
            await other.asave()
        created = engine()
        await created.acreate()
        await created.adelete(created.session_key)
        assert not await created.aexists(created.session_key or "")
        await type(created).aclear_expired()

    async_to_sync(use)()


@override_settings(EPHEMERA={"URL": "redis://127.0.0.1:1"})
def test_an_outage_is_an_error_and_not_an_empty_session() -> None:
    """Reading and saving raise, and the key stays."""
    session = engine("x" * 43 + ".YW5u")
    with pytest.raises(ConnectionFailed):
        session.get("a")
    assert session.session_key is not None
    assert not session.is_empty()
    with pytest.raises(ConnectionFailed):
        engine().save()
