"""Events whose retry comes half a minute after a failure, which is longer than any pause of the machine."""

from __future__ import annotations

from datetime import timedelta

from ephemera import Catalogue
from ephemera.patterns.events import DeliveryPolicy, Events
from tests.patterns.event_fixtures import Account

CATALOGUE = Catalogue("test-events-waiting")
WAITING: Events[Account] = Events(
    CATALOGUE,
    "waiting:{name}",
    Account,
    purpose="Events whose retry is later than any test",
    delivery=DeliveryPolicy(first_retry=timedelta(seconds=30)),
)
