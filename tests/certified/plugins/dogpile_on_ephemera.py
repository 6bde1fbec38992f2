"""A pytest plugin: in the tests of dogpile.cache, its Redis backend is ours.

`CERTIFIED_SERIALIZER` is the serializer; dogpile's own tests expect pickle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dogpile.cache import region  # its loader is in no public place

from ephemera.adapters.dogpile import EphemeraBackend


class Certified(EphemeraBackend):
    """Ours, with what a busy machine needs."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        url = f"redis://{arguments.get('host', 'localhost')}:{arguments.get('port', 6379)}"
        patience = f"{url}/{arguments.get('db', 0)}?timeout=5&connect_timeout=10"
        super().__init__({**arguments, "url": patience, "serializer": os.environ["CERTIFIED_SERIALIZER"]})


vars(region)["_backend_loader"].impls["dogpile.cache.redis"] = lambda: Certified
