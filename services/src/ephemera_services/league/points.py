"""Points of predictions: three for the exact score, one for the winner."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Update, and_, case, func, update

from ephemera_services.league.tables import matches, predictions

EXACT, RIGHT_WINNER = 3, 1
"""Points of a prediction: the exact score, or only the winner."""


def points_update(match_ids: Sequence[int]) -> Update:
    """Set the points of all predictions of finished matches."""
    home, away = matches.c.home_goals, matches.c.away_goals
    exact = and_(predictions.c.home_goals == home, predictions.c.away_goals == away)
    winner = func.sign(predictions.c.home_goals - predictions.c.away_goals)
    points = case((exact, EXACT), (winner == func.sign(home - away), RIGHT_WINNER), else_=0)
    scored = and_(predictions.c.match_id == matches.c.id, matches.c.status == "finished")
    return update(predictions).where(scored, matches.c.id.in_(match_ids)).values(points=points)
