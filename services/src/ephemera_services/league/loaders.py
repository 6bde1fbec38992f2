"""The loaders of the pages: each reads SQL and returns data that becomes JSON.

A loader gets the engine and the page's fields, which come from URLs: text that matches nothing returns None,
which is a 404. Each uses one or two statements on one connection.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Row, Select, and_, case, desc, func, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.league.seasons import (
    ALL,
    CURRENT,
    affected_seasons,
    current_season,
    in_season,
    is_season,
)
from ephemera_services.league.tables import (
    ads,
    clubs,
    comments,
    events,
    legacy_predictions,
    matches,
    predictions,
    ranks,
    seasons,
    users,
    votes,
)

MAX_COMMENTS = 120
LIVE_RETENTION = timedelta(hours=3)
"""How long a match's live page exists after its end, in SQL and in Redis."""
LIVE_LIFETIME = timedelta(minutes=3)
"""The lifetime of a live page outside match windows, fresh and stale together."""
BOARDS = ("season", "week")
HALF = timedelta(minutes=45)
PLAYED = ("live", "finished")
"""The statuses of matches that have a score."""
_ID = re.compile(r"[1-9][0-9]{0,14}")
_SCORE = re.compile(r"([0-9]{1,2}):([0-9]{1,2})")
RANGES = tuple(f"{days}d" for days in range(1, 15))
_MAX_ROWS = 100
"""Of the results of all seasons and of a user's predictions; the results of one season are complete."""
_FORM = 5  # matches that a club's form shows

_SIDES = (matches.c.home_id, matches.c.away_id)

home, away = clubs.alias("home"), clubs.alias("away")


def parse_id(text_: str) -> int | None:
    """Parse an id of a URL in its canonical form; None if it is not one."""
    return int(text_) if _ID.fullmatch(str(text_)) else None


def parse_score(text_: str) -> list[int] | None:
    """Parse the score of an old prediction; None if it is unreadable."""
    score = _SCORE.fullmatch(text_)
    return [int(goals) for goals in score.groups()] if score else None


def is_id(**fields: Any) -> bool:
    """Whether the one field of a page is an id."""
    return all(parse_id(each) is not None for each in fields.values())


def is_range(range: str) -> bool:
    """Whether a range of days is one that a page exists for."""
    return range in RANGES


def is_board(board: str) -> bool:
    """Whether there is such a leaderboard."""
    return board in BOARDS


def is_season_board(board: str, season: str) -> bool:
    """Whether there is such a leaderboard of a season."""
    return board == "season" and is_season(season)


def _matches() -> Select[Any]:
    return (
        select(
            matches,
            home.c.name.label("home"),
            away.c.name.label("away"),
            seasons.c.name.label("season"),
        )
        .join(home, matches.c.home_id == home.c.id)
        .join(away, matches.c.away_id == away.c.id)
        .join(seasons, matches.c.season_id == seasons.c.id)
    )


async def _fetch_all(engine: AsyncEngine, *queries: Select[Any]) -> list[list[Row[Any]]]:
    async with engine.connect() as sql:
        return [list((await sql.execute(each)).all()) for each in queries]


def _summary(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "season": row.season,
        "stage": row.stage,
        "round": row.round,
        "kickoff": row.kickoff,
        "status": row.status,
        "home": row.home,
        "away": row.away,
        "score": [row.home_goals, row.away_goals] if row.status in PLAYED else None,
    }


async def match_times(engine: AsyncEngine, since: datetime, until: datetime) -> list[datetime]:
    """The kickoffs between two times, for the windows."""
    query = select(matches.c.kickoff).where(
        matches.c.kickoff.between(since, until), matches.c.status.not_in(("postponed", "cancelled"))
    )
    (rows,) = await _fetch_all(engine, query)
    return [row.kickoff for row in rows]


async def league_table(engine: AsyncEngine, season: str = CURRENT) -> list[dict[str, Any]]:
    """The standings: three points per win, then goal difference, goals and name."""
    planned = and_(in_season(season), matches.c.stage == "league")
    finished = and_(planned, matches.c.status == "finished")
    sides = [
        select(
            of.label("club_id"),
            scored.label("scored"),
            conceded.label("conceded"),
            matches.c.id.label("match"),
        ).where(finished)
        for of, scored, conceded in (
            (matches.c.home_id, matches.c.home_goals, matches.c.away_goals),
            (matches.c.away_id, matches.c.away_goals, matches.c.home_goals),
        )
    ]
    played = sides[0].union_all(sides[1]).subquery()
    won, drawn = played.c.scored > played.c.conceded, played.c.scored == played.c.conceded
    points = func.coalesce(func.sum(case((won, 3), (drawn, 1), else_=0)), 0)
    scored = func.coalesce(func.sum(played.c.scored), 0)
    conceded = func.coalesce(func.sum(played.c.conceded), 0)
    query = (
        select(
            clubs.c.id,
            clubs.c.name,
            func.count(played.c.match).label("played"),
            func.count().filter(won).label("won"),
            func.count().filter(drawn).label("drawn"),
            scored.label("scored"),
            conceded.label("conceded"),
            points.label("points"),
        )
        .select_from(clubs.outerjoin(played, played.c.club_id == clubs.c.id))
        .where(or_(*(clubs.c.id.in_(select(of).where(planned)) for of in _SIDES)))
        .group_by(clubs.c.id, clubs.c.name)
        .order_by(desc("points"), desc(scored - conceded), desc("scored"), clubs.c.name)
    )
    latest = (
        select(played.c.club_id, won.label("won"), drawn.label("drawn"))
        .join(matches, matches.c.id == played.c.match)
        .order_by(desc(matches.c.kickoff), desc(matches.c.id))
    )
    rows, results = await _fetch_all(engine, query, latest)
    form: dict[int, list[str]] = {}
    for result in results:
        form.setdefault(result.club_id, []).append("W" if result.won else "D" if result.drawn else "L")
    return [
        {
            "rank": rank,
            "club_id": row.id,
            "club": row.name,
            "played": row.played,
            "won": row.won,
            "drawn": row.drawn,
            "lost": row.played - row.won - row.drawn,
            "goals": [row.scored, row.conceded],
            "points": row.points,
            "form": form.get(row.id, [])[:_FORM][::-1],
        }
        for rank, row in enumerate(rows, 1)
    ]


async def league_schedule(engine: AsyncEngine, season: str = CURRENT) -> list[dict[str, Any]]:
    """The matches that are not finished, in order."""
    query = _matches().where(in_season(season), matches.c.status != "finished")
    (rows,) = await _fetch_all(engine, query.order_by(matches.c.kickoff, matches.c.id))
    return [{**_summary(row), "venue": row.venue} for row in rows]


async def league_results(engine: AsyncEngine, season: str = CURRENT) -> list[dict[str, Any]]:
    """The finished matches, latest first: all of a season, the last hundred of all seasons."""
    query = _matches().where(in_season(season), matches.c.status == "finished")
    latest = query.order_by(desc(matches.c.kickoff), desc(matches.c.id))
    (rows,) = await _fetch_all(engine, latest.limit(_MAX_ROWS if season == ALL else None))
    return [_summary(row) for row in rows]


async def league_stats(engine: AsyncEngine, season: str = CURRENT) -> dict[str, Any]:
    """Goals and cards of the season."""
    side = case((events.c.side == "home", matches.c.home_id), else_=matches.c.away_id)
    count = func.count().label("number")
    per_player = (
        select(events.c.player, clubs.c.name.label("club"), count)
        .join(matches, matches.c.id == events.c.match_id)
        .join(clubs, clubs.c.id == side)
        .where(in_season(season))
        .group_by(events.c.player, clubs.c.name)
        .order_by(desc("number"), events.c.player, clubs.c.name)
        .limit(20)
    )
    totals = select(
        func.count().label("played"),
        func.coalesce(func.sum(matches.c.home_goals + matches.c.away_goals), 0).label("goals"),
    ).where(in_season(season), matches.c.status == "finished")
    scorers, booked, (total,) = await _fetch_all(
        engine, per_player.where(events.c.kind == "goal"), per_player.where(events.c.kind == "card"), totals
    )
    return {
        "played": total.played,
        "goals": total.goals,
        "scorers": [{"player": row.player, "club": row.club, "goals": row.number} for row in scorers],
        "cards": [{"player": row.player, "club": row.club, "cards": row.number} for row in booked],
    }


async def league_bracket(engine: AsyncEngine, season: str = CURRENT) -> list[dict[str, Any]]:
    """The rounds of the cup, of the latest season first."""
    query = _matches().where(in_season(season), matches.c.stage != "league")
    order = (desc(matches.c.season_id), matches.c.round, matches.c.id)
    (rows,) = await _fetch_all(engine, query.order_by(*order))
    rounds: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        rounds.setdefault((row.season_id, row.stage), []).append(_summary(row))
    return [
        {"round": stage, "season": summaries[0]["season"], "matches": summaries}
        for (_, stage), summaries in rounds.items()
    ]


async def _match(engine: AsyncEngine, match_id: str, *queries: Select[Any]) -> list[list[Row[Any]]] | None:
    number = parse_id(match_id)
    if number is None:
        return None
    results = await _fetch_all(engine, _matches().where(matches.c.id == number), *queries)
    return results if results[0] else None


async def match_meta(engine: AsyncEngine, match_id: str) -> dict[str, Any] | None:
    """The fixed data of a match, and of a finished one how it ended: its live page is gone later."""
    results = await _match(engine, match_id, *_events_and_votes(match_id))
    if results is None:
        return None
    (row,), events_, votes_ = results
    names = ("id", "stage", "round", "home_id", "away_id", "home", "away", "kickoff", "venue")
    meta = {name: row._mapping[name] for name in names}
    return meta | {"result": _progress(row, events_, votes_) if row.status == "finished" else None}


async def match_live(engine: AsyncEngine, match_id: str) -> dict[str, Any] | None:
    """The score, the events and the votes; None three hours after the end of the match."""
    now = select(func.now().label("now"))
    results = await _match(engine, match_id, *_events_and_votes(match_id), now)
    if results is None:
        return None
    (row,), events_, votes_, (clock,) = results
    if row.ended_at is not None and clock.now - row.ended_at > LIVE_RETENTION - LIVE_LIFETIME:
        return None
    return _progress(row, events_, votes_)


def _events_and_votes(match_id: str) -> tuple[Select[Any], Select[Any]]:
    number = parse_id(match_id) or 0
    counted = select(votes.c.choice, func.count().label("number")).where(votes.c.match_id == number)
    of_match = select(events).where(events.c.match_id == number)
    return of_match.order_by(events.c.minute, events.c.id), counted.group_by(votes.c.choice)


def _progress(row: Row[Any], events_: list[Row[Any]], votes_: list[Row[Any]]) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": row.status,
        "phase": row.phase,
        "minute": row.minute,
        "clock": clock_start(row),
        "score": [row.home_goals, row.away_goals],
        "events": [
            {"minute": each.minute, "kind": each.kind, "side": each.side, "player": each.player}
            for each in events_
        ],
        "votes": {"home": 0, "draw": 0, "away": 0} | {each.choice: each.number for each in votes_},
    }


async def match_comments(engine: AsyncEngine, match_id: str) -> list[dict[str, Any]] | None:
    """The last comments under a match, oldest first."""
    last = (
        select(comments.c.id, users.c.name, comments.c.text, comments.c.posted_at)
        .join(users, users.c.id == comments.c.user_id)
        .where(comments.c.match_id == (parse_id(match_id) or 0))
        .order_by(desc(comments.c.id))
        .limit(MAX_COMMENTS)
    )
    results = await _match(engine, match_id, last)
    if results is None:
        return None
    return [
        {"id": row.id, "by": row.name, "text": row.text, "at": row.posted_at} for row in reversed(results[1])
    ]


async def match_versions(engine: AsyncEngine, match_id: str) -> dict[str, int] | None:
    """The revisions of a match's parts: a client requests a part when its revision changes."""
    results = await _match(engine, match_id)
    if results is None:
        return None
    row = results[0][0]
    return {"meta": row.meta_revision, "live": row.live_revision, "comments": row.comments_revision}


async def matches_live(engine: AsyncEngine) -> list[dict[str, Any]]:
    """The live matches."""
    query = _matches().where(matches.c.status == "live").order_by(matches.c.kickoff, matches.c.id)
    goals = (
        select(events)
        .join(matches, matches.c.id == events.c.match_id)
        .where(matches.c.status == "live", events.c.kind == "goal")
        .order_by(events.c.minute, events.c.id)
    )
    rows, scored = await _fetch_all(engine, query, goals)
    of_match: dict[int, list[dict[str, Any]]] = {row.id: [] for row in rows}
    for each in scored:
        goal = {"minute": each.minute, "side": each.side, "player": each.player}
        of_match.get(each.match_id, []).append(goal)
    return [
        {
            **_summary(row),
            "phase": row.phase,
            "minute": row.minute,
            "clock": clock_start(row),
            "goals": of_match[row.id],
        }
        for row in rows
    ]


def clock_start(match: Row[Any]) -> datetime | None:
    """When the clock of a match would have begun without a break; None while it stands.

    Its minute is the number of whole minutes since then, and one: so a page stays the same while it counts.
    """
    if match.phase not in ("first half", "second half") or match.phase_since is None:
        return None
    if match.minute_at is not None:
        return cast("datetime", match.minute_at - timedelta(minutes=match.minute - 1))
    return cast("datetime", match.phase_since - (HALF if match.phase == "second half" else timedelta(0)))


async def club_matches(engine: AsyncEngine, id: str) -> dict[str, Any] | None:
    """All matches of a club."""
    club_id = parse_id(id)
    if club_id is None:
        return None
    query = _matches().where(or_(matches.c.home_id == club_id, matches.c.away_id == club_id))
    club, rows = await _fetch_all(
        engine, select(clubs).where(clubs.c.id == club_id), query.order_by(matches.c.kickoff)
    )
    return {"club": club[0].name, "matches": [_summary(row) for row in rows]} if club else None


async def active_predictions(engine: AsyncEngine, range: str) -> list[dict[str, Any]] | None:
    """The matches of the next days that can be predicted, with the number of predictions."""
    if not is_range(range):
        return None
    placed = (
        select(func.count()).where(predictions.c.match_id == matches.c.id).scalar_subquery().label("placed")
    )
    soon = matches.c.kickoff.between(func.now(), func.now() + literal(timedelta(days=int(range[:-1]))))
    query = _matches().add_columns(placed).where(matches.c.status == "scheduled", soon)
    (rows,) = await _fetch_all(engine, query.order_by(matches.c.kickoff, matches.c.id))
    return [{**_summary(row), "predictions": row.placed} for row in rows]


async def user_predictions(engine: AsyncEngine, user_id: str) -> list[dict[str, Any]]:
    """A user's predictions, latest matches first, with the old ones that are not migrated yet."""
    order = (desc(matches.c.kickoff), matches.c.id)
    query = (
        _matches()
        .add_columns(
            predictions.c.home_goals.label("predicted_home"),
            predictions.c.away_goals.label("predicted_away"),
            predictions.c.points,
            predictions.c.placed_at,
        )
        .join(predictions, predictions.c.match_id == matches.c.id)
        .where(predictions.c.user_id == int(user_id))
        .order_by(*order)
        .limit(_MAX_ROWS)
    )
    old = (
        _matches()
        .add_columns(legacy_predictions.c.score, legacy_predictions.c.placed_at)
        .join(legacy_predictions, legacy_predictions.c.match_id == matches.c.id)
        .where(legacy_predictions.c.user_id == int(user_id), legacy_predictions.c.outcome.is_(None))
        .order_by(*order, desc(legacy_predictions.c.placed_at), desc(legacy_predictions.c.id))
        .limit(_MAX_ROWS)
    )
    rows, old_rows = await _fetch_all(engine, query, old)
    pages = {
        row.id: {
            **_summary(row),
            "prediction": [row.predicted_home, row.predicted_away],
            "points": row.points,
        }
        for row in rows
    }
    placed = {row.id: row.placed_at for row in rows}
    for row in old_rows:  # the latest of a match first
        score = parse_score(row.score)
        if score is not None and (row.id not in placed or placed[row.id] < row.placed_at):
            pages[row.id] = {**_summary(row), "prediction": score, "points": None}
            placed[row.id] = row.placed_at
    return sorted(pages.values(), key=lambda page: (page["kickoff"], -page["id"]), reverse=True)[:_MAX_ROWS]


def board_of(season: Any) -> Any:
    """The name in SQL of a season's leaderboard."""
    return func.concat("season ", season)


async def leaderboard(engine: AsyncEngine, board: str, season: str = CURRENT) -> list[dict[str, Any]] | None:
    """The first page of a leaderboard."""
    if board not in BOARDS:
        return None
    query = select(ranks, users.c.name).join(users, users.c.id == ranks.c.user_id)
    shown = query.where(ranks.c.board == _board_name(board, season)).order_by(ranks.c.rank).limit(50)
    (rows,) = await _fetch_all(engine, shown)
    return [{"rank": row.rank, "name": row.name, "points": row.points, "exact": row.exact} for row in rows]


async def place(engine: AsyncEngine, user_id: int, board: str, season: str) -> Row[Any] | None:
    """The rank, points and exact predictions of a user on a leaderboard; None for one without a rank."""
    of_user = select(ranks).where(ranks.c.user_id == user_id, ranks.c.board == _board_name(board, season))
    (rows,) = await _fetch_all(engine, of_user)
    return rows[0] if rows else None


async def vote_of(engine: AsyncEngine, user_id: int, match_id: int) -> Any:
    """What a user has voted for on a match; None if there is no vote of theirs in SQL."""
    own = select(votes.c.choice).where(votes.c.user_id == user_id, votes.c.match_id == match_id)
    (rows,) = await _fetch_all(engine, own)
    return rows[0].choice if rows else None


def _board_name(board: str, season: str) -> Any:
    if board != "season":
        return board
    return ALL if season == ALL else board_of(current_season() if season == CURRENT else season)


async def boards(_: AsyncEngine) -> list[dict[str, str]]:
    """The leaderboards, for prewarming."""
    return [{"board": board} for board in BOARDS]


async def achievements(engine: AsyncEngine, user_id: str) -> dict[str, Any] | None:
    """A user's achievements, without the name: ids are enumerable."""
    number = parse_id(user_id)
    if number is None:
        return None
    counts = select(
        func.count().label("placed"),
        func.coalesce(func.sum(predictions.c.points), 0).label("points"),
        func.count().filter(predictions.c.points == 3).label("exact"),
    ).where(predictions.c.user_id == number)
    comment_count = select(func.count().label("number")).where(comments.c.user_id == number)
    user, (total,), (commented,) = await _fetch_all(
        engine, select(users.c.id).where(users.c.id == number), counts, comment_count
    )
    if not user:
        return None
    earned = {
        "first prediction": total.placed >= 1,
        "ten predictions": total.placed >= 10,
        "oracle": total.exact >= 1,
        "fifty points": total.points >= 50,
        "voice of the stand": commented.number >= 10,
    }
    return {"achievements": [name for name, has in earned.items() if has]}


async def all_ads(engine: AsyncEngine) -> list[dict[str, Any]]:
    """The advertisements, in order."""
    (rows,) = await _fetch_all(engine, select(ads).order_by(ads.c.position, ads.c.id))
    return [{"id": row.id, "title": row.title, "link": row.link, "position": row.position} for row in rows]


async def admin_stats(engine: AsyncEngine) -> dict[str, int]:
    """Row counts."""
    tables = (users, matches, events, comments, predictions, votes, ads)
    counts = [select(func.count().label("rows")).select_from(table) for table in tables]
    results = await _fetch_all(engine, *counts, select(func.count()).where(matches.c.status == "finished"))
    names = [*(table.name for table in tables), "finished_matches"]
    return {name: rows[0][0] for name, rows in zip(names, results, strict=True)}


async def affected_boards(engine: AsyncEngine) -> list[dict[str, str]]:
    """The leaderboards of the affected seasons, for prewarming."""
    return [{"board": "season", **each} for each in await affected_seasons(engine)]


async def live_ids(engine: AsyncEngine) -> list[dict[str, str]]:
    """The current matches, for prewarming."""
    around = matches.c.kickoff.between(text("now() - interval '3 hours'"), text("now() + interval '1 day'"))
    (rows,) = await _fetch_all(
        engine, select(matches.c.id).where(around).order_by(matches.c.kickoff).limit(20)
    )
    return [{"match_id": str(row.id)} for row in rows]
