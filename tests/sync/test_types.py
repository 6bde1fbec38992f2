"""The types of the synchronous API: which there are, and what a type checker infers from them.

That the generated file is current is checked by `make lint`, and so by `make test`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools import sync_api

ROOT = Path(__file__).parent.parent.parent
SAMPLE = """
from tests.sync.shop import (
    EVENTS, FANOUT, HASH, JOBS, LIMITS, LOCKS, PROFILES, SESSIONS, SIGN_INS, USAGE, VALUE, Account, double
)
from ephemera import sync

def load(user_id: str) -> Account:
    return Account(user_id)

with sync.connect("redis://localhost") as store:
    reveal_type(store[VALUE].get(name="a"))
    reveal_type(store[HASH].get_many([{"name": "a"}]))
    reveal_type(store[SESSIONS].get("token"))
    reveal_type(store[PROFILES].get_or_load(load, user_id="a"))
    with store[LOCKS].hold(name="a") as held:
        reveal_type(held)
    with store[LOCKS].try_hold(name="a") as maybe:
        reveal_type(maybe)
    with store[LIMITS].reserve(SIGN_INS.on("a"), cost=2) as reservation:
        reveal_type(reservation)
    with store[FANOUT].connect(user_id="a") as connection:
        for message in connection:
            reveal_type(message)
    with store[EVENTS].consume("group", lambda event, delivery: reveal_type(event), name="a") as consumer:
        reveal_type(consumer.pending)
    reveal_type(store[JOBS].enqueue(double, 1))
    reveal_type(store[USAGE].reserve("a", limits={}))
    store[VALUE].put("text", name="a")
    store[JOBS].enqueue(double, "text")
    store["no declaration"]
"""
REVEALED = [
    "tests.sync.shop.Account | None",
    "list[tests.sync.shop.Account | None]",
    "tests.sync.shop.Account | None",
    "tests.sync.shop.Account",
    "HeldLock",
    "HeldLock | None",
    "CostReservation",
    "tests.sync.shop.Account | Literal[ephemera.patterns.fanout._connections.Missing.MISSED]",
    "tests.sync.shop.Account",
    "int",
    "str",
    "ephemera.sync._bound.Reservation",
]
REFUSED = ['"put" of "ValueAccessor" has incompatible type "str"', '"enqueue" of "BoundJobs"', "__getitem__"]


def test_every_runtime_object_is_typed() -> None:
    """What each declaration of every pattern binds to has an overload of its own."""
    text = sync_api.STUB.read_text(encoding="utf-8")
    kinds = {kind.__name__ for kind in (*sync_api.accessors(), *sync_api.runtimes())} - {"Accessor"}
    assert len(kinds) > 30
    assert [kind for kind in sorted(kinds) if f"{kind}]" not in text and f"{kind}[" not in text] == []


def test_a_type_checker_infers_what_methods_return(tmp_path: Path) -> None:
    """mypy, as strict as for this project, knows values, blocks and iterators, and refuses wrong ones."""
    (tmp_path / "sample.py").write_text(SAMPLE, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", str(tmp_path / "sample.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    notes = [line for line in done.stdout.splitlines() if "sample.py" in line]
    revealed = [line.partition('Revealed type is "')[2].rstrip('"') for line in notes if "Revealed" in line]
    for shown, wanted in zip(revealed, REVEALED, strict=True):
        assert shown.endswith(wanted)
    errors = [line for line in notes if " error: " in line]
    for shown, wanted in zip(errors, REFUSED, strict=True):
        assert wanted in shown
