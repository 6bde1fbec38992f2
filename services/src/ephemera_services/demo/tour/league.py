"""Tour of league: the next poll sees a final result, and votes are counted exactly once."""

from __future__ import annotations

from contextlib import AsyncExitStack

import psycopg

from ephemera_services.demo.tour.steps import Step, StepContext
from ephemera_services.demo.traffic.league import (
    REFEREE,
    match_to_finalize,
    new_supporter,
    scheduled,
    sign_in,
)

_RESULTS, _TABLE = "/api/league/results", "/api/league/table"
_VOTERS = 5


async def _finalized(context: StepContext) -> None:
    async with context.client("league") as fan, context.client("league") as referee:
        await sign_in(referee, REFEREE)
        match = await match_to_finalize(fan)
        first = await fan.request("GET", _RESULTS)
        tag = {"if-none-match": first.headers["etag"]}
        unchanged = await fan.request("GET", _RESULTS, headers=tag)
        context.report(f"GET {_RESULTS}, and again with its ETag", f"200, {unchanged.status_code}")
        context.check(unchanged.status_code == 304, "the page changed without a reason")
        score = [3, 2] if match.get("score") != [3, 2] else [2, 3]
        form = {"home_goals": score[0], "away_goals": score[1], "override": True}
        await referee.expect(200, "POST", f"/api/admin/matches/{match['id']}/finalize", json=form)
        final = f"{score[0]}:{score[1]}"
        context.report(f"the referee finalizes {match['home']} - {match['away']}", final)
        results = await fan.expect(200, "GET", _RESULTS, headers=tag)
        found = next((row["score"] for row in results if row["id"] == match["id"]), None)
        context.check(found == score, f"the next poll returned {found}")
        table = await fan.expect(200, "GET", _TABLE)
        played = sum(row["played"] for row in table) // 2
        finished = len([row for row in results if row["stage"] == "league"])
        context.check(played == finished, f"the table has {played} matches, the results have {finished}")
        context.report(
            "the next poll with the old ETag", f"200, {final}; table and results agree on {finished} matches"
        )


async def _voted(context: StepContext) -> None:
    async with AsyncExitStack() as stack:
        fans = [await stack.enter_async_context(context.client("league")) for _ in range(_VOTERS)]
        for fan in fans:
            await new_supporter(fan)
        match = (await scheduled(fans[0]))[-1]
        path = f"/api/matches/{match['id']}/votes"
        before = await _votes(context, match["id"])
        for fan in fans:
            await fan.expect(202, "POST", path, json={"choice": "home"})
        context.report(f"{_VOTERS} people vote", "202: queued in Redis")
        again = await fans[0].request("POST", path, json={"choice": "away"})
        context.report("one of them votes again", again.status_code)
        context.check(again.status_code == 409, "a second vote was accepted")

        async def counted() -> bool:
            return await _votes(context, match["id"]) >= before + _VOTERS

        await context.wait_until(counted, "SQL has the votes")
        votes = await _votes(context, match["id"]) - before
        context.check(votes == _VOTERS, f"SQL counted {votes} votes")
        context.report("seconds later SQL has", f"{votes} new votes, each exactly once")


async def _votes(context: StepContext, match_id: int) -> int:
    url = context.demo.servers.database_url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
        found = await sql.execute("SELECT count(*) FROM league.votes WHERE match_id = %s", (match_id,))
        row = await found.fetchone()
    return int(row[0]) if row else 0


STEPS = (
    Step("league", "a match is finalized, and the next poll sees it", _finalized),
    Step("league", "votes reach SQL through Redis, each exactly once", _voted),
)
