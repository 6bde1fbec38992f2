"""The collector of a service that has settled leaves alone what was there at the start."""

from __future__ import annotations

import subprocess
import sys

SETTLED = """
import gc
from ephemera.web._gc_tuning import settle

class Link:
    pass

kept, before = Link(), gc.get_threshold()[0]
settle()
seen = any(each is kept for each in gc.get_objects())
print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] > before, seen)
ring, other = Link(), Link()
ring.other, other.other = other, ring
del ring, other
print(gc.collect())
"""


def test_what_was_there_is_not_looked_at_again_and_new_cycles_are() -> None:
    """In a process of its own, because that lasts for as long as the process does."""
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, check=True)
    looked, collected = done.stdout.splitlines()
    assert looked == "True True False"
    assert int(collected) >= 2
