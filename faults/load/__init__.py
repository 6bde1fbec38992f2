"""The loads: for each system a driver that keeps a ledger of what was acknowledged, and checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.load.feed import FeedLoad
from faults.load.identity import IdentityLoad
from faults.load.league import LeagueLoad
from faults.load.scripture import ScriptureLoad
from faults.load.slides import SlidesLoad

if TYPE_CHECKING:
    from faults.load.driving import Load

LOADS: dict[str, type[Load]] = {
    each.system: each for each in (IdentityLoad, SlidesLoad, ScriptureLoad, FeedLoad, LeagueLoad)
}
