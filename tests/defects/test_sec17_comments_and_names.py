"""SEC17: 150 comments in 2.4 s, and all users' names readable by number without signing in."""

from __future__ import annotations

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import opened

_FORM = {"name": "ann", "password": "correct horse battery"}


async def test_sec17_comments_and_predictions_of_a_user_are_limited(
    server: Valkey, postgres: Postgres
) -> None:
    """Ten comments a minute; more are 429, whatever address they come from. Votes and own places, too."""
    names = ("PREDICTIONS_PER_MINUTE", "VOTES_PER_MINUTE", "PAGES_PER_10_SECONDS")
    limits = {f"EPHEMERA_LEAGUE_{name}": "3" for name in names}
    async with opened("league", server, postgres, limits) as app:
        await app.ask("POST", "/api/users", json=_FORM)
        signed_in = await app.ask("POST", "/api/session", json=_FORM)
        me = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        statuses = [
            (
                await app.ask(
                    "POST", "/api/matches/1/comments", json={"text": "!"}, headers=me, address=f"192.0.2.{n}"
                )
            ).status_code
            for n in range(12)
        ]
        assert statuses == [404] * 10 + [429] * 2, "this league has no matches"
        score = {"home_goals": 1, "away_goals": 0}
        predicted = [
            (await app.ask("PUT", "/api/me/predictions/1", json=score, headers=me)).status_code
            for _ in range(4)
        ]
        assert predicted == [404] * 3 + [429]
        voted = [
            (await app.ask("POST", "/api/matches/1/votes", json={"choice": "home"}, headers=me)).status_code
            for _ in range(4)
        ]
        assert voted == [404] * 3 + [429]
        places = [
            (await app.ask("GET", f"/api/me/leaderboards/{board}", headers=me)).status_code
            for board in ("week", "none", "season", "week")
        ]
        assert places == [200, 404, 200, 429], "each is a query"
        assert (await app.ask("GET", "/api/me/votes/1", headers=me)).status_code == 429, "so is this"


async def test_sec17_names_cannot_be_listed_by_number(server: Valkey, postgres: Postgres) -> None:
    """The achievements of a number tell no name."""
    async with opened("league", server, postgres) as app:
        number = (await app.ask("POST", "/api/users", json=_FORM)).json()["user_id"]
        answer = await app.ask("GET", f"/api/users/{number}/achievements")
        assert answer.status_code == 200
        assert answer.json() == {"achievements": []}
