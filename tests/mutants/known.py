"""What a reader found out about mutants that no test kills: equivalent ones, and survivors that we accept.

A key is `Mutation.name`. An equivalent mutant behaves as the original does, or differs only in speed; it is
replaced by another when it is drawn.
"""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "src/ephemera/patterns/locks/lua/acquire.lua::acquire.lua: `0` -> `1` (3)": (
        "the fence of a counter that holds no number: 0 and 1 are both far below the clock's microseconds"
    ),
    "src/ephemera/patterns/cache/_load_coordinator.py::LoadCoordinator.fetch: `>` -> `>=`": (
        "an entry that is fresh for exactly zero milliseconds more: it is served, or refreshed at once"
    ),
    "src/ephemera/web/_cookies.py::_value: `0` -> `1` (3)": (
        "where the cookie ends: never at 0, because its name is before it"
    ),
    "src/ephemera/patterns/http_cache/_resource.py::BoundResource._page: `<` -> `<=`": (
        "a page made in the millisecond of an opening: its refresh finds it current, and loads nothing"
    ),
    "src/ephemera/patterns/jobs/_schedules.py::module: `3` -> `30`": (
        "how much later the search for past runs begins: those after the moment are skipped"
    ),
    "services/src/ephemera_services/identity/signing_keys.py::SigningKeys._load: `True` -> `False`": (
        "whether two lists must have one length: the one is made of the other, an element for each"
    ),
    "src/ephemera/keyspace/_template.py::module: `100` -> `1000`": (
        "up to which number a key is rendered by the fast path; the other one writes the same digits"
    ),
}

ACCEPTED: dict[str, str] = {
    "src/ephemera/web/_endpoints.py::module: `20` -> `200`": (
        "how many pings the health check sends: more of them only take longer"
    ),
    "src/ephemera/patterns/cache/_runtime.py::EntryGroup.delete: `self.drop_local()` -> `pass` (2)": (
        "drops what was read here during the deletion; the server's announcement drops it a moment later"
    ),
}

EARLIER = (
    "before: seed 1, of fewer files (no `__init__.py`, no scripts of the keyspace, less access code): 82 of "
    "100 at first, 99 after tests were written for survivors. Of seed 2 only survivors were run again on "
    "2026-11-18, each with the test that should notice it; the others were killed in the tree of their draw"
)
"""What came out of an earlier draw."""
