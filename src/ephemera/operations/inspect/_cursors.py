"""Where a scan stopped, in a form to continue from: `1874@9f3c21ab,0@77e0aa10`, a place for each server.

A place is a SCAN cursor and the first characters of the server's run id. A server that was restarted orders
its keys anew, so an old cursor would skip some and repeat others without saying so: its run id has changed,
and the cursor is refused. Servers that were seen to the end have no place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ephemera.errors import InvalidCursor

BEGINNING = b"0"
"""The cursor of SCAN that starts, and that ends."""

_PLACE = re.compile(r"(\d{1,20})@([0-9a-f]{8})")
_ID_LENGTH = 8


def written(places: Mapping[str, bytes]) -> str | None:
    """The text to continue from, given a cursor by run id; None when there is nothing left."""
    return ",".join(f"{cursor.decode()}@{run_id[:_ID_LENGTH]}" for run_id, cursor in places.items()) or None


def read(text: str, run_ids: Iterable[str]) -> dict[str, bytes]:
    """The cursor by run id of each server that is to be continued; `InvalidCursor` when one is gone."""
    known = {run_id[:_ID_LENGTH]: run_id for run_id in run_ids}
    places: dict[str, bytes] = {}
    for part in text.split(","):
        place = _PLACE.fullmatch(part.strip())
        if place is None:
            raise InvalidCursor(text, "it is not of the form 1874@9f3c21ab")
        cursor, run_id = place.groups()
        if run_id not in known:
            raise InvalidCursor(
                text, f"no server here has the run id {run_id}: it was restarted, or it is another one"
            )
        places[known[run_id]] = cursor.encode()
    return places
