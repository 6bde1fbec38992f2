"""Django's session engine and middleware on the sessions of the store."""

from __future__ import annotations

import time
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions import middleware
from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_cache_control

from ephemera.adapters._request_limits import problem_response
from ephemera.adapters._stored_sessions import LoadedSession, is_owner, user_in
from ephemera.adapters.django._configuration import stored_sessions
from ephemera.errors import ConnectionFailed, InvalidLifetime, SessionsRevoked
from ephemera.keyspace import REDIS_ERRORS
from ephemera.web import Problem, unavailable

_UNAVAILABLE = "The sessions are not available at the moment; please try again."
_REVOKED = "Your sessions were ended while you signed in; please sign in again."
_EXPIRY = "_session_expiry"  # where Django keeps what `set_expiry` was given


class SessionStore(SessionBase):
    """The session engine: `SESSION_ENGINE = "ephemera.adapters.django"`."""

    unavailable = False
    """Whether Redis was needed and could not be asked."""

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self._owner: str | None = None
        self._sign_in: tuple[str, str] | None = None

    def load(self) -> dict[str, Any]:
        """Read the session; an unknown or expired key is dropped."""
        found = self._read(self.session_key)
        if found is None:
            self._session_key = None
            return {}
        self._owner = found.user
        return found.data

    def exists(self, session_key: str | None) -> bool:
        """Whether there is a session of this key."""
        return self._read(session_key) is not None

    def create(self) -> None:
        """Store what the session holds under a new key."""
        self._store_anew(replacing=None)
        self.modified = True

    def save(self, must_create: bool = False) -> None:
        """Store the session, under a new key if its user changed; `UpdateError` when it was ended."""
        if must_create and self.session_key is not None and self.exists(self.session_key):
            raise CreateError
        if must_create or self.session_key is None:
            return self.create()
        data = self._data()
        owner = self._owner or self._reread_owner()
        if owner is None:
            raise UpdateError
        if not is_owner(owner, user_in(data, SESSION_KEY)):
            return self._store_anew(replacing=self.session_key)
        sessions = stored_sessions()
        if not sessions.update(self.session_key, sessions.encode(data), expires_at=self._expires_at(data)):
            raise UpdateError
        return None

    def delete(self, session_key: str | None = None) -> None:
        """End a session, by default this one."""
        if key := session_key or self.session_key:
            stored_sessions().end(key)

    def cycle_key(self) -> None:
        """Give the session a new key, in one step."""
        data = self._data()
        rotated = None if self.session_key is None else stored_sessions().rotate(self.session_key)
        if rotated is None:
            return self.create()
        self._session_key = rotated
        self._session_cache = data
        self.modified = True
        return None

    async def acycle_key(self) -> None:
        """Give the session a new key, in one step."""
        await sync_to_async(self.cycle_key)()

    def begin_sign_in(self, user: object) -> None:
        """Announce a sign-in before the account is read, by the user's primary key.

        If all sessions of the user are ended before that, the response becomes a 401, and no session is left.
        """
        self._sign_in = str(user), stored_sessions().begin_sign_in(str(user))

    @classmethod
    def clear_expired(cls) -> None:
        """Nothing to do: the server removes expired sessions."""

    def _data(self, *, load: bool = True) -> dict[str, Any]:
        data: dict[str, Any] = cast("Any", self)._get_session(no_load=not load)
        return data

    def _read(self, session_key: str | None) -> LoadedSession | None:
        if not session_key:
            return None
        try:
            # As with Django's other engines, it is a save that extends a session, and not a read.
            return stored_sessions().read(session_key, extend=False)
        except REDIS_ERRORS:
            self.unavailable = True
            raise

    def _reread_owner(self) -> str | None:
        """The owner of a session whose data was replaced before it was read."""
        found = self._read(self.session_key)
        self._owner = None if found is None else found.user
        return self._owner

    def _store_anew(self, *, replacing: str | None) -> None:
        data = self._data(load=False)
        user, sessions = user_in(data, SESSION_KEY), stored_sessions()
        self._session_key, self._owner = sessions.create(
            user,
            sessions.encode(data),
            replacing=replacing,
            sign_in=self._sign_in[1] if self._sign_in and self._sign_in[0] == user else None,
            expires_at=self._expires_at(data),
        )

    def _expires_at(self, data: dict[str, Any]) -> float:
        """When a session ends by `set_expiry`; 0 if it lives for its declared lifetime."""
        expiry, longest = data.get(_EXPIRY), stored_sessions().lifetime
        age = self.get_expiry_age(expiry=expiry)
        if age > longest:
            raise InvalidLifetime(
                f"a session cannot last {age} s: EPHEMERA['MAX_SESSION_AGE'] allows {longest:.0f} s; raise it"
            )
        return time.time() + age if expiry or age < longest else 0


def end_sessions(user: object, *, keep: str | None = None) -> int:
    """End all sessions of a user, and return how many; when this returns, none of them is valid.

    Args:
        user: The user's primary key.
        keep: The session key of one to keep: `request.session.session_key` after a change of the password.

    """
    return stored_sessions().end_all(str(user), keep=keep)


class SessionMiddleware(middleware.SessionMiddleware):
    """Django's session middleware, which answers 503 when the session is needed and Redis is down."""

    def process_exception(self, _request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Respond to a view that needed Redis, and to a `Problem` that a view raised."""
        if isinstance(exception, ConnectionFailed):
            return as_response(unavailable())
        return as_response(exception) if isinstance(exception, Problem) else None

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Store the session and set its cookie, or respond that it cannot be done."""
        session = request.session
        if getattr(session, "unavailable", False) and response.status_code >= 500:
            return as_response(unavailable(_UNAVAILABLE))  # whatever middleware needed it
        try:
            response = super().process_response(request, response)
        except REDIS_ERRORS:
            return as_response(unavailable(_UNAVAILABLE))
        except SessionsRevoked:
            return as_response(Problem(401, "Unauthorized", _REVOKED))
        if settings.SESSION_COOKIE_NAME in response.cookies:
            patch_cache_control(response, private=True)  # no shared cache may store a cookie
        return response


def as_response(problem: Problem) -> HttpResponse:
    """A problem document as a response of Django."""
    body, status, headers = problem_response(problem)
    return HttpResponse(body, status=status, headers=dict(headers))
