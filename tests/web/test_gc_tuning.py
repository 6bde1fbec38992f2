"""`tune_gc` exempts existing objects from garbage collection."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from ephemera.web import tune_gc

class Link:
    pass

kept, before = Link(), gc.get_threshold()[0]
tune_gc()
seen = any(each is kept for each in gc.get_objects())
print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] > before, seen)
ring, other = Link(), Link()
ring.other, other.other = other, ring
del ring, other
print(gc.collect())
"""


def test_existing_objects_are_exempt_and_new_cycles_are_collected() -> None:
    """Existing objects are frozen, and new cycles are still collected; in a process of its own."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    frozen, collected = done.stdout.splitlines()
    assert frozen == "True True False"
    assert int(collected) >= 2
