"""Change: what a changed catalogue means for a live server, removal of orphaned keys, and where to begin.

    changes = plan(read_declarations(Path("released.json")), describe(catalogue))

*Plan.* Two versions of a catalogue are compared by the keys that their patterns render: keys that nothing
declares any more, values that new or old code cannot read, other lifetimes, another role. The earlier version
is a catalogue, or the JSON that `ephemera catalogue --json` printed when it was released.

*Sweep.* `sweep` removes the orphaned keys: a page at a time and not faster than asked, at most as many as
asked, and resumable. A key that the new catalogue could render is never removed. Without `delete` it counts.

*Adopt.* `adoption` lists the libraries found on a server in the order in which to replace them.

*When Redis is down.* Opening raises `ConnectionFailed`. A sweep that loses its connection ends with the
cursor to resume from; what it removed is counted.
"""

from ephemera.operations.change._adoption import AdoptionStep, adoption
from ephemera.operations.change._plan import PlannedChange, count_keys, orphans, plan, read_declarations
from ephemera.operations.change._sweep import SweepOptions, SweepResult, sweep

__all__ = [
    "AdoptionStep",
    "PlannedChange",
    "SweepOptions",
    "SweepResult",
    "adoption",
    "count_keys",
    "orphans",
    "plan",
    "read_declarations",
    "sweep",
]
