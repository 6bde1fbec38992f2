"""Run an action of the console: check permission, log it, report the outcome.

    outcome = await act(actor, "session.end", "user 7", bound.end(session_id))

Permission is checked here, on the server, right before the action: a hidden button protects nothing. Each
attempt, including refused ones, is one line in the log `ephemera.console.actions`: who, from where, what, on
what, the outcome and the duration.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, TypeVar

from ephemera.console._access import ROLES, AccountRole, SignIn
from ephemera.errors import EphemeraError, OutcomeUnknown

T = TypeVar("T")
log = logging.getLogger("ephemera.console.actions")

READ_ONLY = "This console is read-only: start it with --allow-actions to make changes."
SIGNED_OUT = "You are signed out: sign in and try again."
_MAX_TARGET = 200  # characters of a target in the log


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, from which address, and whether changes are allowed."""

    signed_in: SignIn
    address: str
    may_act: bool
    """Whether the console allows changes at all; the role of the sign-in must allow them, too."""

    def refusal(self, needs: AccountRole) -> str | None:
        """Why an action that needs this role is refused; None if it is allowed."""
        if not self.signed_in.valid:
            return SIGNED_OUT
        if needs != "view" and not self.may_act:
            return READ_ONLY
        if ROLES.index(self.signed_in.role) < ROLES.index(needs):
            return f"This needs the role {needs}; yours is {self.signed_in.role}."
        return None


@dataclass(frozen=True, slots=True)
class ActionOutcome(Generic[T]):
    """The outcome of an action; true when it was done."""

    done: bool
    message: str = ""
    result: T | None = None

    def __bool__(self) -> bool:
        return self.done


async def act(
    actor: Actor,
    what: str,
    target: str,
    work: Coroutine[Any, Any, T],
    *,
    changes: bool = True,
    needs: AccountRole = "operate",
) -> ActionOutcome[T]:
    """Run an action if the actor may; errors are returned in the outcome, not raised.

    An action that changes nothing needs no role.
    """
    began = perf_counter()

    def note(outcome: str, reason: str = "") -> None:
        level = logging.INFO if outcome == "done" else logging.WARNING
        details = {
            "who": actor.signed_in.user,
            "role": actor.signed_in.role,
            "from": actor.address,
            "action": what,
            "target": target[:_MAX_TARGET],
            "outcome": outcome,
            "seconds": round(perf_counter() - began, 4),
        }
        log.log(level, "action", extra={**details, "because": reason} if reason else details)

    refusal = actor.refusal(needs if changes else "view")
    if refusal is not None:
        work.close()
        note("refused", refusal)
        return ActionOutcome(done=False, message=refusal)
    try:
        result = await work
    except EphemeraError as error:
        message = f"{error}"
        if isinstance(error, OutcomeUnknown):
            message += "; it may have been done: check before you try again"
        note("failed", message)
        return ActionOutcome(done=False, message=message)
    except Exception as error:
        # The text of other errors may contain what was being written.
        log.exception("an action failed", extra={"action": what})
        note("failed", type(error).__name__)
        return ActionOutcome(
            done=False, message=f"It failed ({type(error).__name__}); see the console's log."
        )
    note("done")
    return ActionOutcome(done=True, result=result)
