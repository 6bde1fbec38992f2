"""The order of a feed: by how new, how large and how novel each item is.

    score = size x recency x novelty

*Size* is `log2(1 + n)` for the n insights that do not repeat each other, so that a story that everyone
copied does not hide the rest. *Recency* halves with each day since the newest insight was published.
*Novelty* is between a quarter, when all of it was in the reader's feed before, and one.

Scores are computed when clusters are built, so the order, and with it a cursor, is stable while a version
lasts.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

_HALF_LIFE = timedelta(days=1)
_OLD_NEWS = 0.25  # what is left of the score of an item with nothing new


def score(*, distinct: int, new: int, size: int, newest: datetime, now: datetime) -> float:
    """Return the score of an item: `distinct` and `new` of its `size` insights, the newest at a time."""
    age = max(now - newest, timedelta(0))
    novelty = _OLD_NEWS + (1.0 - _OLD_NEWS) * new / size
    return math.log2(1 + distinct) * math.exp2(-(age / _HALF_LIFE)) * novelty
