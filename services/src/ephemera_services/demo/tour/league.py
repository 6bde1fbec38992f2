"""League on tour: a result that the next poll sees, and votes that are counted once."""

from __future__ import annotations

from contextlib import AsyncExitStack

import psycopg

from ephemera_services.demo.tour.guide import Guide, Step
from ephemera_services.demo.traffic.league import (
    REFEREE,
    new_supporter,
    scheduled,
    signed_in,
    to_finalize,
)

_RESULTS, _TABLE = "/api/league/results", "/api/league/table"
_VOTERS = 5


async def _finalized(guide: Guide) -> None:
    async with guide.visitor("league") as fan, guide.visitor("league") as referee:
        await signed_in(referee, REFEREE)
        match = await to_finalize(fan)
        first = await fan.ask("GET", _RESULTS)
        tag = {"if-none-match": first.headers["etag"]}
        unchanged = await fan.ask("GET", _RESULTS, headers=tag)
        guide.tell(f"GET {_RESULTS}, and again with its ETag", f"200, {unchanged.status_code}")
        guide.hold(unchanged.status_code == 304, "the page changed by itself")
        score = [3, 2] if match.get("score") != [3, 2] else [2, 3]
        form = dict(zip(("home_goals", "away_goals"), score, strict=True))
        await referee.want(200, "POST", f"/api/admin/matches/{match['id']}/finalize", json=form)
        final = f"{score[0]}:{score[1]}"
        guide.tell(f"the referee makes {match['home']} - {match['away']} final", final)
        results = await fan.want(200, "GET", _RESULTS, headers=tag)
        found = next((row["score"] for row in results if row["id"] == match["id"]), None)
        guide.hold(found == score, f"the next poll says {found}")
        table = await fan.want(200, "GET", _TABLE)
        played = sum(row["played"] for row in table) // 2
        finished = len([row for row in results if row["stage"] == "league"])
        guide.hold(played == finished, f"the table knows {played} matches, the results {finished}")
        guide.tell(
            "the next poll with the old ETag", f"200, {final}; table and results agree on {finished} matches"
        )


async def _voted(guide: Guide) -> None:
    async with AsyncExitStack() as stack:
        fans = [await stack.enter_async_context(guide.visitor("league")) for _ in range(_VOTERS)]
        for fan in fans:
            await new_supporter(fan)
        match = (await scheduled(fans[0]))[-1]
        path = f"/api/matches/{match['id']}/votes"
        before = await _votes(guide, match["id"])
        for fan in fans:
            await fan.want(202, "POST", path, json={"choice": "home"})
        guide.tell(f"{_VOTERS} people vote", "202: Redis has it, SQL will")
        again = await fans[0].ask("POST", path, json={"choice": "away"})
        guide.tell("one of them votes again", again.status_code)
        guide.hold(again.status_code == 409, "a second vote was taken")

        async def counted() -> bool:
            return await _votes(guide, match["id"]) >= before + _VOTERS

        await guide.until(counted, "SQL has the votes")
        votes = await _votes(guide, match["id"]) - before
        guide.hold(votes == _VOTERS, f"SQL counted {votes} votes")
        guide.tell("some seconds later SQL has", f"{votes} more votes, each once")


async def _votes(guide: Guide, match_id: int) -> int:
    url = guide.stage.servers.database_url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
        found = await sql.execute("SELECT count(*) FROM league.votes WHERE match_id = %s", (match_id,))
        row = await found.fetchone()
    return int(row[0]) if row else 0


STEPS = (
    Step("league", "a match is made final, and the next poll sees it", _finalized),
    Step("league", "votes reach SQL through Redis, each once", _voted),
)
