"""Flask: server-side sessions, limits with headers, and cached functions and views. Needs the extra `flask`.

    eph = Ephemera("redis://localhost", catalogue)
    app = Flask(__name__)
    eph.init_app(app)

    @app.post("/login")
    @eph.limit("5/minute", by="address")
    def login():
        session["user_id"] = check_password(request.form)      # a new token, as the user changed
        return redirect("/")

    @app.get("/products/<name>")
    @eph.page("product:{name}", fresh=timedelta(minutes=5))
    def product(name: str): ...

*Keys.* A session is a hash, `session:{session_id}`, with an index for each user, `user_sessions:{user}`.
Limits and caches declare theirs as in `ephemera.web.fastapi`. All are in the first catalogue.

*Sessions.* `flask.session` is read when it is first used, and written after the view if it changed, nested
values included. Its token changes with the user that it names, and `eph.end_sessions(user)` ends all sessions
of a user in one step. Nothing of it is in the cookie but the random token. Values are what JSON can express.

*Threads.* All threads of a process share one store and its connection; after a fork each worker opens its
own.

*When Redis is down.* A view that uses its session answers 503 with Retry-After, and so does one whose session
could not be stored. No user is signed out, and views without a session are not affected. Limits follow
`when_down`; cached functions and views load.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("flask") is None:
    raise MissingExtra("ephemera.adapters.flask needs Flask", "flask", "flask")

from ephemera.adapters.flask._cached_views import CachedFunction
from ephemera.adapters.flask._ephemera import Ephemera
from ephemera.adapters.flask._sessions import FlaskSession, FlaskSessionInterface

__all__ = ["CachedFunction", "Ephemera", "FlaskSession", "FlaskSessionInterface"]
