"""A fan-out for tests."""

from __future__ import annotations

import msgspec

from ephemera import Catalogue, fixed
from ephemera.patterns.fanout import Fanout


class Note(msgspec.Struct):
    """A message to a user."""

    text: str


CATALOGUE = Catalogue("test-fanout")
NOTES = Fanout(CATALOGUE, "ws_connections:{user_id}", Note, channel="pubsub:notes", backlog=10)
BRIEF = Fanout(
    CATALOGUE, "brief_connections:{user_id}", Note, channel="pubsub:brief", lifetime=fixed(seconds=3)
)
