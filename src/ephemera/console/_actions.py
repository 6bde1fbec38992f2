"""The one way in which the console does something: permitted or not, logged, and told.

    outcome = await act(actor, "session.end", "user 7", live.end(session_id))

The check is made here, on the server, when it is about to happen: a button that is not drawn protects
nothing. Each attempt is one line in the log `ephemera.console.actions`, with who, from where, what, on what,
how it ended and how long it took; refused ones as well.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, TypeVar

from ephemera.console._access import SignIn
from ephemera.errors import EphemeraError, OutcomeUnknown

T = TypeVar("T")
log = logging.getLogger("ephemera.console.actions")

READ_ONLY = "This console is read-only: start it with --allow-actions to change something."
SIGNED_OUT = "You are not signed in any more: sign in and try again."
_LONGEST = 200  # characters of a target in the log


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, from where, and whether changes are allowed at all."""

    signed_in: SignIn
    address: str
    may_act: bool


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How an action ended; true when it was done."""

    done: bool
    told: str = ""
    result: T | None = None

    def __bool__(self) -> bool:
        return self.done


async def act(
    actor: Actor, what: str, target: str, work: Coroutine[Any, Any, T], *, changes: bool = True
) -> Outcome[T]:
    """Do it if this person may; never raises what went wrong, but says it."""
    began = perf_counter()

    def note(outcome: str, told: str = "") -> None:
        level = logging.INFO if outcome == "done" else logging.WARNING
        details = {
            "who": actor.signed_in.user,
            "from": actor.address,
            "action": what,
            "target": target[:_LONGEST],
            "outcome": outcome,
            "seconds": round(perf_counter() - began, 4),
        }
        log.log(level, "action", extra={**details, "because": told} if told else details)

    refusal = _refusal(actor, changes)
    if refusal is not None:
        work.close()
        note("refused", refusal)
        return Outcome(done=False, told=refusal)
    try:
        result = await work
    except EphemeraError as error:
        told = f"{error}"
        if isinstance(error, OutcomeUnknown):
            told += "; it may have been done: look before you try again"
        note("failed", told)
        return Outcome(done=False, told=told)
    except Exception as error:
        # The text of other errors may repeat what was being written.
        log.exception("an action failed", extra={"action": what})
        note("failed", type(error).__name__)
        return Outcome(done=False, told=f"It failed ({type(error).__name__}): the console's log says where.")
    note("done")
    return Outcome(done=True, result=result)


def _refusal(actor: Actor, changes: bool) -> str | None:
    if not actor.signed_in.valid:
        return SIGNED_OUT
    if changes and not actor.may_act:
        return READ_ONLY
    return None
