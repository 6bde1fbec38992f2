"""The loads: one per service, which keeps a ledger of what was acknowledged and checks it."""

from __future__ import annotations

from tests.chaos.campaign.load.feed import FeedLoad
from tests.chaos.campaign.load.identity import IdentityLoad
from tests.chaos.campaign.load.league import LeagueLoad
from tests.chaos.campaign.load.scripture import ScriptureLoad
from tests.chaos.campaign.load.service_load import Load
from tests.chaos.campaign.load.slides import SlidesLoad

LOADS: dict[str, type[Load]] = {
    each.system: each for each in (IdentityLoad, SlidesLoad, ScriptureLoad, FeedLoad, LeagueLoad)
}
