"""Server-side sessions that can be revoked without races.

    SESSIONS = Sessions(
        catalogue, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24)
    )
    sessions = store[SESSIONS]
    token = await sessions.create(Session(user_id="u1", role="editor"))
    session = await sessions.get(token)
    await sessions.end_all("u1")

*Keys.* A session is a hash (or a JSON value) under a digest of its token. A sorted set per user, the index,
lists the ids of that user's valid sessions by expiry. All keys of a user share one cluster slot.

*Lifetimes.* Reading a sliding session extends it and its index entry; the index lives as long as its longest
session. With `absolute_lifetime=timedelta(days=30)` it ends that long after its creation in any case; the end
is part of the token, by the clock of the process that created it. To keep reads cheap, a read within a
thousandth of the lifetime (at most a minute) after the last extension writes nothing, so a session may expire
that much early.

*Atomicity.* Every operation is one Lua script. A session is valid only while its user's index lists it, and
only `create` and `rotate` add an id to the index, always a fresh one. So revoking all sessions of a user
means deleting one key, and no session created before that moment can survive it. To refuse a sign-in that
began before a revocation and ends after it, announce it: `sign_in = await sessions.begin_sign_in(user_id)`,
read the account, then `create(session, sign_in=sign_in)`.

*When Redis is down.* Every call raises `ConnectionFailed` at once, or after the timeout if the server hangs.
Users are never signed in or out by guesswork; the web layer answers 503. A lost reply to `create` leaves a
session whose token was never delivered. `end_all` may be repeated. An eviction ends sessions early, and never
keeps one alive. A failover undoes a revocation that the new master had not received; revoke again after a
failover.
"""

from ephemera.patterns.sessions._sessions import BoundSessions, ListedSession, SessionReader, Sessions

__all__ = ["BoundSessions", "ListedSession", "SessionReader", "Sessions"]
