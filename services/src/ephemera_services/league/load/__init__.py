"""Load tests of a league: thousands of users simulated with locust, and a report with figures and advice.

python -m ephemera_services.league.load worst --users 5000 --seconds 60
"""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.league.load.picture import draw
    from ephemera_services.league.load.runner import LoadOutcome, run

__all__ = ["LoadOutcome", "draw", "run"]

__getattr__ = lazy_exports(__name__, {"LoadOutcome": "runner", "draw": "picture", "run": "runner"})
