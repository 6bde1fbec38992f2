"""What `settings.EPHEMERA` says: the store of the process, its catalogues, and the sessions.

The store is opened when it is first used, and the settings are read then.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from ephemera import sync
from ephemera.adapters._stored_sessions import SessionRecord, StoredSessions, declare_sessions
from ephemera.keyspace import Catalogue, sliding
from ephemera.patterns.sessions import Sessions
from ephemera.sync import SyncStore
from ephemera.web import ClientAddress

_KNOWN = {
    "URL": "the server: redis://host:6379/0",
    "CATALOGUES": "dotted paths of catalogues",
    "OPTIONS": "options of connect, such as queue_url",
    "MAX_SESSION_AGE": "the longest set_expiry, a timedelta",
    "TRUSTED_PROXIES": "addresses and networks whose X-Forwarded-For is believed",
    "LIMITS": "the limits of LimitMiddleware: {name: (rate, by)}",
}

_lock = threading.RLock()
_opened: SyncStore | None = None


def setting(name: str, default: Any = None) -> Any:
    """A setting of `EPHEMERA`."""
    given = getattr(settings, "EPHEMERA", None)
    if not isinstance(given, dict) or "URL" not in given:
        raise ImproperlyConfigured('EPHEMERA needs a URL: EPHEMERA = {"URL": "redis://localhost"}')
    if unknown := given.keys() - _KNOWN.keys():
        known = ", ".join(f"{each} ({means})" for each, means in _KNOWN.items())
        raise ImproperlyConfigured(f"EPHEMERA has no setting {', '.join(sorted(unknown))}; it has {known}")
    return given.get(name, default)


@cache
def configured_catalogues() -> tuple[Catalogue, ...]:
    """The catalogues of the store; sessions and limits are declared in the first."""
    named = tuple(import_string(path) for path in setting("CATALOGUES", ()))
    return named or (Catalogue("django"),)


@cache
def declared_sessions() -> Sessions[SessionRecord]:
    """The declaration of the sessions."""
    age: timedelta = setting("MAX_SESSION_AGE") or timedelta(seconds=settings.SESSION_COOKIE_AGE)
    return declare_sessions(configured_catalogues()[0], sliding(seconds=age.total_seconds()))


@cache
def client_address() -> ClientAddress:
    """What finds the address of a client."""
    return ClientAddress(trusted=setting("TRUSTED_PROXIES", ()))


def store() -> SyncStore:
    """The store of this process, opened when it is first used, even while its server is down."""
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                options = {"required": False, **setting("OPTIONS", {})}
                _opened = sync.connect(setting("URL"), *configured_catalogues(), **options)
    return _opened


def stored_sessions() -> StoredSessions:
    """The sessions on the store."""
    return StoredSessions(store(), declared_sessions())


def close_store() -> None:
    """Close the store; the next use opens another."""
    global _opened
    with _lock:
        closing, _opened = _opened, None
    if closing is not None:
        closing.close()


def _settings_changed(*, setting: str, **_: object) -> None:
    """In a test: open another store for other settings."""
    if setting == "EPHEMERA":
        close_store()
        client_address.cache_clear()


setting_changed.connect(_settings_changed, dispatch_uid="ephemera")
