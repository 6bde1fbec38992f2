"""Sessions: who is signed in, for as long as they use it, and not a moment after that is revoked.

    SESSIONS = Sessions(
        catalogue, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24)
    )
    sessions = store[SESSIONS]
    token = await sessions.create(Session(user_id="u1", role="editor"))
    session = await sessions.get(token)
    await sessions.end_all("u1")

Keys: the session itself, a hash or a JSON value under a digest of its token; and the user's index, a sorted
set of session ids by the instant they end. All keys of a user share a cluster slot (`places`).
Lifetimes: a sliding session's life starts anew when it is used, its index entry's with it, and the index
lives as long as its longest session. So that reading need not be writing, a use within a thousandth of the
life (at most a minute) after the last slide leaves both as they are: a session ends that much early at
most.
Atomic: every operation is one script. A session is valid only while its index lists it, and only `create`
and `rotate` enter an id there, a fresh one. So a revocation, which removes the index, cannot be outrun by
anything: whatever was listed before it is dead, whatever else survived of it. A sign-in that began before a
revocation and ends after it is refused when it was announced: `begun = await sessions.begin(user_id)`, read
the account, `create(session, begun=begun)`.
Down or hung: every call raises `ConnectionFailed` at once or after the wire's time-out; nobody is let in or
thrown out by guessing (`web.sessions` answers 503). A lost reply to `create` leaves a session whose token
nobody has; `end_all` may be repeated. Evicted: a lost session or index ends sessions early, it never keeps
one. Failing over: a revocation that the new master had not received yet is undone with everything else of
that moment; revoke again after a fail-over.
"""

from ephemera.patterns.sessions._declaration import Sessions
from ephemera.patterns.sessions._runtime import BoundSessions, Listed, let_go

__all__ = ["BoundSessions", "Listed", "Sessions", "let_go"]
