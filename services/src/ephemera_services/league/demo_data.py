"""Demo data: two seasons with eight clubs, past and future rounds, a live match, a cup, users and ads.

`await seed(league)` creates it if there are no clubs, in one transaction, by one process. Kickoffs are
relative to the time of creation, so that there is always a match day soon.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.league.administration_tables import players
from ephemera_services.league.points import points_update
from ephemera_services.league.tables import (
    ads,
    clubs,
    competitions,
    events,
    matches,
    predictions,
    seasons,
    users,
)
from ephemera_services.runtime import DEMO_PASSWORD, advisory_lock

if TYPE_CHECKING:
    from ephemera_services.league.service import League

DEMO_ADMINISTRATOR, DEMO_HELPER = "referee", "linesman"
_USERS = ("ann", "bob", "carl", "dora")
SQUADS = {
    "Comet": ("Orlov", "Lundin", "Adeyemi", "Kraus", "Moretti", "Sato"),
    "Meteor": ("Novak", "Ferrari", "Okafor", "Lindqvist", "Duarte", "Weber"),
    "Quantum": ("Petrov", "Silva", "Hansen", "Mensah", "Rossi", "Kowal"),
    "Reactor": ("Serov", "Belov", "Ivanov", "Castillo", "Nakamura", "Berg"),
    "Proton": ("Titov", "Panin", "Larsen", "Diallo", "Fischer", "Ricci"),
    "Vortex": ("Zorin", "Marin", "Jensen", "Toure", "Vidal", "Horvat"),
    "Isotope": ("Sokolov", "Almeida", "Eriksen", "Kimura", "Braun", "Conti"),
    "Neutron": ("Volkov", "Santos", "Nilsen", "Traore", "Keller", "Bianchi"),
}
CLUBS = tuple(SQUADS)
_ROUNDS, _PAST_ROUNDS = 14, 8
_DAY = timedelta(days=1)


async def seed(league: League, *, live: bool = True, now: datetime | None = None) -> bool:
    """Create the season; False if there are clubs already. With `live` one match is being played."""
    password_hash = await league.passwords.hash(DEMO_PASSWORD)
    async with league.engine.begin() as sql:
        await advisory_lock(sql, "demo data of the league")
        if (await sql.execute(select(clubs.c.id).limit(1))).first() is not None:
            return False
        people = await _insert_users(sql, password_hash)
        ids = await _insert(sql, clubs, [{"name": name} for name in CLUBS])
        squads = [
            {"club_id": club_id, "name": name, "number": 7 + at}
            for club_id, squad in zip(ids, SQUADS.values(), strict=True)
            for at, name in enumerate(squad)
        ]
        await _insert(sql, players, squads)
        now = (now or datetime.now(UTC)).replace(microsecond=0)
        (competition_id,) = await _insert(sql, competitions, [{"name": "League"}])
        past_id, current_id = await _insert(
            sql,
            seasons,
            [
                {"competition_id": competition_id, "name": str(now.year - 1), "status": "past"},
                {"competition_id": competition_id, "name": str(now.year), "status": "current"},
            ],
        )
        for season_id, season in (
            (current_id, _season(ids, now, live=live)),
            (past_id, _past_season(ids, now - 300 * _DAY)),
        ):
            rows = [{**row, "season_id": season_id} for row in season]
            match_ids = await _insert(sql, matches, rows)
            await _insert_events_and_predictions(
                sql, rows, match_ids, people, dict(zip(ids, SQUADS.values(), strict=True))
            )
        shown = [("Boots from the old factory", 1), ("Tea at the stadium", 2), ("Season tickets", 3)]
        await _insert(
            sql, ads, [{"title": title, "link": "https://example.com", "position": at} for title, at in shown]
        )
    return True


async def _insert_users(sql: AsyncConnection, password_hash: str) -> list[int]:
    roles = {DEMO_ADMINISTRATOR: "admin", DEMO_HELPER: "helper"}
    known = (await sql.execute(select(users.c.name).where(users.c.name.in_(roles)))).scalars().all()
    rows = [{"name": name, "password_hash": password_hash, "role": "user"} for name in _USERS]
    ids = await _insert(sql, users, rows)
    staff = [{"name": name, "role": role} for name, role in roles.items() if name not in known]
    if staff:
        await _insert(sql, users, [{"password_hash": password_hash, **each} for each in staff])
    return ids


async def _insert(sql: AsyncConnection, table: Any, rows: list[dict[str, Any]]) -> list[int]:
    adding = insert(table).returning(table.c.id, sort_by_parameter_order=True)
    return list((await sql.execute(adding, rows)).scalars())


def _season(ids: list[int], now: datetime, *, live: bool) -> list[dict[str, Any]]:
    """A season of which eight rounds are played, and the semi-finals to come."""
    rows = rounds(ids, now, random.Random(2026), played=_PAST_ROUNDS)
    last = rows[4 * _PAST_ROUNDS - 1]
    last |= {"ended_at": None, "home_goals": 0, "away_goals": 0, "minute": 0}
    last |= {"status": "scheduled", "phase": "before"}
    if live:
        begun = now - timedelta(minutes=20)
        last |= {"kickoff": begun, "phase_since": begun}
        last |= {"status": "live", "phase": "first half", "minute": 20}
    else:
        last |= {"kickoff": now + 2 * _DAY}
    for pair in range(2):
        when = now + (30 + pair) * _DAY
        rows.append(fixture("semi-final", 1, ids[pair], ids[3 - pair], when))
    return rows


def _past_season(ids: list[int], end: datetime) -> list[dict[str, Any]]:
    """A season that is over, with its cup."""
    chance = random.Random(2025)
    rows = rounds(ids, end - (_ROUNDS - _PAST_ROUNDS) * 7 * _DAY, chance, played=_ROUNDS)
    ties = (("semi-final", 1, 0, 3, 12), ("semi-final", 1, 1, 2, 11), ("final", 2, 0, 1, 5))
    for stage, number, one, other, ago in ties:
        rows.append(fixture(stage, number, ids[one], ids[other], end - ago * _DAY))
        _finish(rows[-1], chance.randint(2, 4), chance.randint(0, 1))
    return rows


def rounds(ids: list[int], now: datetime, chance: random.Random, *, played: int) -> list[dict[str, Any]]:
    """Double round robin by the circle method; the last of the played rounds is that of `now`."""
    rows = []
    around = ids[1:]
    for number in range(1, _ROUNDS + 1):
        ring = [ids[0], *around]
        around = [around[-1], *around[:-1]]
        begins = now + (number - _PAST_ROUNDS) * 7 * _DAY - timedelta(hours=8)
        if number > _PAST_ROUNDS:
            begins -= 3 * _DAY
        for pair in range(4):
            sides = (ring[pair], ring[-1 - pair])
            home_id, away_id = sides if (number + pair) % 2 else sides[::-1]
            rows.append(fixture("league", number, home_id, away_id, begins + pair * timedelta(hours=1)))
            if number <= played:
                _finish(rows[-1], chance.randint(0, 4), chance.randint(0, 3))
    return rows


def _finish(row: dict[str, Any], home_goals: int, away_goals: int) -> None:
    row |= {
        "status": "finished",
        "phase": "ended",
        "minute": 90,
        "home_goals": home_goals,
        "away_goals": away_goals,
    }
    row["ended_at"] = row["kickoff"] + timedelta(hours=2)


def fixture(stage: str, number: int, home_id: int, away_id: int, kickoff: datetime) -> dict[str, Any]:
    """A match to come."""
    return {
        "stage": stage,
        "round": number,
        "home_id": home_id,
        "away_id": away_id,
        "kickoff": kickoff,
        "venue": "City stadium",
        "status": "scheduled",
        "phase": "before",
        "phase_since": None,
        "minute": 0,
        "home_goals": 0,
        "away_goals": 0,
        "ended_at": None,
    }


async def _insert_events_and_predictions(
    sql: AsyncConnection,
    season: list[dict[str, Any]],
    match_ids: list[int],
    people: list[int],
    squads: dict[int, tuple[str, ...]],
) -> None:
    """Insert goals of the finished matches, and predictions of them."""
    chance = random.Random(1)
    goals, predicted = [], []
    for row, match_id in zip(season, match_ids, strict=True):
        if row["status"] != "finished":
            continue
        for side in ("home", "away"):
            for _ in range(row[f"{side}_goals"]):
                where = {"match_id": match_id, "minute": chance.randint(1, 90), "kind": "goal", "side": side}
                goals.append({**where, "player": chance.choice(squads[row[f"{side}_id"]])})
        for user_id in people:
            guess = {"home_goals": chance.randint(0, 3), "away_goals": chance.randint(0, 2)}
            predicted.append({"user_id": user_id, "match_id": match_id, **guess})
    await sql.execute(insert(events), goals)
    await sql.execute(insert(predictions), predicted)
    await sql.execute(points_update(match_ids))
