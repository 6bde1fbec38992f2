"""Creating, using, rotating and revoking sessions at the same time, by several connections and processes.

`EPHEMERA_CAMPAIGN=full` (`make chaos`) runs five times as many interleavings.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from contextlib import AsyncExitStack, suppress

from ephemera.embedded import Cluster, Valkey
from ephemera.errors import SessionsRevoked
from ephemera.keyspace import Store, connect
from ephemera.patterns.sessions import BoundSessions
from tests.patterns.session_fixtures import CATALOGUE, SLIDING, Session, all_keys, new_user

_INTERLEAVINGS = 10_000 if os.environ.get("EPHEMERA_CAMPAIGN") == "full" else 2_000
_CONNECTIONS = 8
_ROUNDS_AT_ONCE = 25


class Race:
    """One user's sessions, and actors on several connections that change them concurrently.

    When a revocation begins, every token and every sign-in known so far is doomed, and so is what derives
    from them later: a token rotated from a doomed one, a session created for a doomed sign-in.
    """

    def __init__(self, connections: list[BoundSessions[Session]], seed: int) -> None:
        self._connections = connections
        self._chance = random.Random(seed)
        self._user = new_user()
        self._known: list[str] = []
        self._doomed: set[str] = set()

    async def run(self) -> None:
        """Run six actors; nothing doomed may remain valid, and nothing at all after one more revocation."""
        await asyncio.gather(*(self._act() for _ in range(6)))
        await self._check_void(self._doomed)
        await self._revoke()
        assert await self._sessions.of_user(self._user) == []

    async def _act(self) -> None:
        for _ in range(3):
            for _ in range(self._chance.randrange(4)):
                await asyncio.sleep(0)
            actions = (self._create, self._sign_in, self._use, self._rotate, self._revoke)
            await self._chance.choices(actions, (3, 1, 3, 4, 2))[0]()

    async def _create(self) -> None:
        self._known.append(await self._sessions.create(Session(user_id=self._user)))

    async def _sign_in(self) -> None:
        sign_in = await self._sessions.begin_sign_in(self._user)
        self._known.append(sign_in)
        with suppress(SessionsRevoked):
            self._learn(sign_in, await self._sessions.create(Session(user_id=self._user), sign_in=sign_in))

    async def _use(self) -> None:
        if self._known:
            token = self._chance.choice(self._known)
            await asyncio.gather(self._sessions.get(token), self._sessions.update(token, role="admin"))

    async def _rotate(self) -> None:
        if self._known:
            old = self._chance.choice(self._known)
            self._learn(old, await self._sessions.rotate(old))

    def _learn(self, source: str, token: str | None) -> None:
        if token is not None:
            self._known.append(token)
            if source in self._doomed:
                self._doomed.add(token)

    async def _revoke(self) -> None:
        before = set(self._known)
        self._doomed |= before
        await self._sessions.end_all(self._user)
        await self._check_void(before)

    async def _check_void(self, tokens: set[str]) -> None:
        survivors = await asyncio.gather(*(self._sessions.get(token) for token in tokens))
        assert survivors == [None] * len(tokens)

    @property
    def _sessions(self) -> BoundSessions[Session]:
        """The sessions on a random one of the connections."""
        return self._chance.choice(self._connections)


async def _race(url: str, rounds: int) -> None:
    async with AsyncExitStack() as opened:
        connections = [
            (await opened.enter_async_context(connect(url, CATALOGUE)))[SLIDING] for _ in range(_CONNECTIONS)
        ]
        seeds = iter(range(rounds))

        async def race() -> None:
            for seed in seeds:
                await Race(connections, seed).run()

        await asyncio.gather(*(race() for _ in range(_ROUNDS_AT_ONCE)))


async def test_thousands_of_interleavings_leave_no_survivor(server: Valkey) -> None:
    """In any order of creates, reads, rotations and revocations, no revoked session is valid later."""
    await _race(server.url, _INTERLEAVINGS)


async def test_interleavings_on_a_cluster_leave_no_survivor(cluster: Cluster) -> None:
    """The same holds where the keys of different users are on different nodes."""
    await _race(cluster.url, _INTERLEAVINGS // 10)


def _start_processes(url: str, users: list[str], operations: int, count: int) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.patterns.session_load", url, str(operations)]
    return [
        subprocess.Popen([*command, str(seed), *users], stdout=subprocess.PIPE, text=True)
        for seed in range(count)
    ]


async def test_concurrent_processes_leave_no_survivor(server: Valkey) -> None:
    """A token that any process received before any process revoked its user's sessions is void."""
    users = [new_user() for _ in range(3)]
    processes = _start_processes(server.url, users, 2_000, 4)
    events = [
        json.loads(line) for process in processes for line in process.communicate(timeout=60)[0].splitlines()
    ]
    assert [process.returncode for process in processes] == [0] * 4
    last_revocation = {user: max(e[1] for e in events if e[0] == "revoke" and e[2] == user) for user in users}
    tokens = [event for event in events if event[0] == "token"]
    revoked = [token for _, when, user, token in tokens if when < last_revocation[user]]
    assert len(revoked) > 1_000
    async with connect(server.url, CATALOGUE) as store:
        assert [token for token in revoked if await store[SLIDING].get(token) is not None] == []
        for user in users:
            await store[SLIDING].end_all(user)
        assert [token for _, _, _, token in tokens if await store[SLIDING].get(token) is not None] == []


async def test_a_killed_process_leaves_nothing_beyond_revocation(server: Valkey) -> None:
    """After SIGKILL at any moment every listed session has its content, and a revocation ends everything."""
    chance = random.Random(4)
    async with connect(server.url, CATALOGUE) as store:
        for _ in range(12):
            user = new_user()
            tokens = await _killed_operate(server.url, user, chance.uniform(0.01, 0.1))
            listed = await store.call("ZRANGE", f"user_sessions:{user}", "-inf", "(+inf", "BYSCORE")
            assert len(await store[SLIDING].of_user(user)) == len(listed)
            await store[SLIDING].end_all(user)
            assert [token for token in tokens if await store[SLIDING].get(token) is not None] == []
            assert await _reachable(store, user) == []


async def _killed_operate(url: str, user: str, after: float) -> list[str]:
    """The tokens that a process received before it was killed in the middle of its work."""
    (process,) = _start_processes(url, [user], 1_000_000, 1)
    assert process.stdout is not None
    lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(10)]
    await asyncio.sleep(after)  # a random moment
    process.kill()
    rest, _ = await asyncio.to_thread(process.communicate)
    complete = [json.loads(line) for line in [*lines, *rest.splitlines(keepends=True)] if line.endswith("\n")]
    return [event[3] for event in complete if event[0] == "token"]


async def _reachable(store: Store, user: str) -> list[bytes]:
    """Session keys that the user's index still admits."""
    keys = [key async for key in all_keys(store) if key.startswith(b"session:")]
    ids = [key.removeprefix(b"session:").decode() for key in keys]
    return [key for key, each in zip(keys, ids, strict=True) if await store[SLIDING].get_by_id(user, each)]
