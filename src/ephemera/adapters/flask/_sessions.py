"""`flask.session` on the server: read when it is first used, written after the view if it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flask import Flask, Request, Response
from flask.sessions import SessionInterface, SessionMixin
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException

from ephemera.adapters._request_limits import problem_response
from ephemera.adapters._stored_sessions import LoadedSession, StoredSessions, is_owner, user_in
from ephemera.errors import SessionsRevoked
from ephemera.keyspace import REDIS_ERRORS
from ephemera.web import Problem, unavailable

_UNREADABLE = "The sessions cannot be read at the moment; please try again."
_NOT_STORED = "Your session could not be stored; please try again."
_REVOKED = "Your sessions were ended while you signed in; please sign in again."


class FlaskSession(SessionMixin):
    """The session of one request: a dictionary of what JSON can express."""

    modified = False
    """True if a value was set or removed; changes inside a value are noticed in any case."""

    def __init__(self, sessions: StoredSessions, token: str | None, user_key: str) -> None:
        self._sessions = sessions
        self._token = token
        self._user_key = user_key
        self._found: LoadedSession | None = None
        self._data: dict[str, Any] | None = None if token else {}
        self._sign_in: tuple[str, str] | None = None
        self._rotates = False

    def __repr__(self) -> str:
        return f"<FlaskSession, {'with' if self._token else 'without'} a token>"

    @property
    def new(self) -> bool:  # type: ignore[override]  # Flask has an attribute
        """Whether there was no session when the request began."""
        self._loaded()
        return self._found is None

    def rotate(self) -> None:
        """Replace the token with the response, as after a change of rights; a sign-in does it by itself."""
        self._loaded()
        self._rotates = True

    def begin_sign_in(self, user: object) -> None:
        """Announce a sign-in before you read the account.

        If all sessions of the user are ended before that, the response becomes a 401, and no session is left.
        """
        self._sign_in = str(user), self._guarded(lambda: self._sessions.begin_sign_in(str(user)))

    def __getitem__(self, key: str) -> Any:
        return self._loaded()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._loaded()[key] = value
        self.modified = True

    def __delitem__(self, key: str) -> None:
        del self._loaded()[key]
        self.modified = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def _loaded(self) -> dict[str, Any]:
        if self._data is None:
            token = self._token or ""
            self._found = self._guarded(lambda: self._sessions.read(token, extend=True))
            self._data = {} if self._found is None else self._found.data
        return self._data

    @staticmethod
    def _guarded(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except REDIS_ERRORS:
            raise as_http_exception(unavailable(_UNREADABLE)) from None

    def _write(self) -> bool:
        """Store what changed; True if the browser must be sent a token, or must delete it."""
        if self._data is None or (self._found is None and not self._data):
            return False
        if not self._data:
            self._sessions.end(self._token or "")
            self._token = None
            return True
        text = self._sessions.encode(self._data)
        user, found = user_in(self._data, self._user_key), self._found
        if found is None or not is_owner(found.user, user):
            replaced = None if found is None else self._token
            sign_in = self._sign_in[1] if self._sign_in and self._sign_in[0] == user else None
            self._token, _ = self._sessions.create(user, text, replacing=replaced, sign_in=sign_in)
            return True
        if text != found.text or self.modified:
            self._sessions.update(self._token or "", text)  # nothing is written if it has ended since
        if self._rotates:
            rotated = self._sessions.rotate(self._token or "")
            self._token = rotated or self._token
            return rotated is not None
        return False


class FlaskSessionInterface(SessionInterface):
    """Flask's session interface on the sessions of a store; `Ephemera.init_app` sets it.

    Args:
        sessions: Finds the stored sessions when a request begins.
        user_key: The key of a session under which the application puts the id of the signed-in user.

    """

    def __init__(self, sessions: Callable[[], StoredSessions], user_key: str) -> None:
        self._sessions = sessions
        self._user_key = user_key

    def open_session(self, app: Flask, request: Request) -> FlaskSession:
        """The session of a request; nothing is read yet."""
        token = request.cookies.get(self.get_cookie_name(app))
        return FlaskSession(self._sessions(), token, self._user_key)

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        """Store the session if it changed, and set or delete its cookie; 503 if that cannot be done."""
        if not isinstance(session, FlaskSession):
            raise TypeError(f"this session is not of {type(self).__name__}: {session!r}")
        if session.accessed:
            response.vary.add("Cookie")
        try:
            token_changed = session._write()
        except REDIS_ERRORS:
            return _replace(response, unavailable(_NOT_STORED))
        except SessionsRevoked:
            return _replace(response, Problem(401, "Unauthorized", _REVOKED))
        if token_changed or (session._found is not None and self.should_set_cookie(app, session)):
            self._set_cookie(app, session, response)
        return None

    def should_set_cookie(self, app: Flask, session: SessionMixin) -> bool:
        """Whether the cookie of a session that kept its token is sent again, so that it slides with it."""
        return bool(session.permanent and app.config["SESSION_REFRESH_EACH_REQUEST"])

    def _set_cookie(self, app: Flask, session: FlaskSession, response: Response) -> None:
        attributes: dict[str, Any] = {
            "domain": self.get_cookie_domain(app),
            "path": self.get_cookie_path(app),
            "secure": self.get_cookie_secure(app),
            "httponly": self.get_cookie_httponly(app),
            "samesite": self.get_cookie_samesite(app),
            "partitioned": self.get_cookie_partitioned(app),
        }
        name, token = self.get_cookie_name(app), session._token
        if token is None:
            response.delete_cookie(name, **attributes)
        else:
            response.set_cookie(name, token, expires=self.get_expiration_time(app, session), **attributes)
        response.vary.add("Cookie")
        if not response.headers.get("Cache-Control"):
            response.headers["Cache-Control"] = "no-store"
        elif not response.cache_control.no_store:  # no shared cache may store a cookie
            response.cache_control.public = False
            response.cache_control.private = True


def as_response(problem: Problem) -> Response:
    """A problem document as a response of Flask."""
    body, status, headers = problem_response(problem)
    return Response(body, status, headers)


def as_http_exception(problem: Problem) -> HTTPException:
    """A problem document to raise in a view."""
    return HTTPException(description=str(problem), response=as_response(problem))


def _replace(response: Response, problem: Problem) -> None:
    """Turn a response that promises what was not stored into a problem document."""
    body, status, headers = problem_response(problem)
    response.status_code = status
    response.headers = Headers(headers)
    response.set_data(body)
