"""A process that performs random operations on the sessions of a few shared users, and logs them.

Run as `python -m tests.patterns.session_load URL OPERATIONS SEED USER...`; it prints a line for each token
it was given and each revocation it began, with the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

from ephemera.keyspace import connect
from ephemera.patterns.sessions import BoundSessions
from tests.patterns.session_fixtures import CATALOGUE, SLIDING, Session


async def main(url: str, operations: int, seed: int, users: list[str]) -> None:
    """Run ten tasks on one connection."""
    chance = random.Random(seed)
    async with connect(url, CATALOGUE) as store:
        tasks = [_operate(store[SLIDING], operations // 10, chance, users) for _ in range(10)]
        await asyncio.gather(*tasks)


async def _operate(
    sessions: BoundSessions[Session], operations: int, chance: random.Random, users: list[str]
) -> None:
    mine: list[tuple[str, str]] = []
    for _ in range(operations):
        user = chance.choice(users)
        match chance.choices(("create", "get", "update", "rotate", "end_all"), (4, 4, 2, 3, 1))[0]:
            case "create":
                _keep(mine, user, await sessions.create(Session(user_id=user)))
            case "end_all":
                _log("revoke", user)
                await sessions.end_all(user)
            case "get" if mine:
                await sessions.get(chance.choice(mine)[1])
            case "update" if mine:
                await sessions.update(chance.choice(mine)[1], role="admin")
            case "rotate" if mine:
                owner, token = chance.choice(mine)
                _keep(mine, owner, await sessions.rotate(token))


def _keep(mine: list[tuple[str, str]], user: str, token: str | None) -> None:
    if token is not None:
        mine.append((user, token))
        del mine[:-5]
        _log("token", user, token)


def _log(*words: str) -> None:
    event, *rest = words
    sys.stdout.write(json.dumps([event, time.monotonic(), *rest]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
