"""Which passwords are refused: those that a guesser would try early, however long they are.

zxcvbn estimates how many guesses a password takes, with lists of common passwords, names and words, and the
patterns that people use (keyboard rows, dates, repeats, letters replaced by digits). What the account is
about, its address and names, counts as known to the guesser. Composition rules ("one digit, one symbol") are
not used: they make passwords harder to remember and hardly harder to guess (NIST SP 800-63B).
"""

from __future__ import annotations

import re
from typing import Any

from zxcvbn import zxcvbn

from ephemera.web import Problem
from ephemera_services.runtime import problem

_MIN_SCORE = 3  # of 4: more than 10^8 guesses
_JUDGED = 40  # characters; an estimate takes time that grows with the square of the length
_MIN_OWN = 6  # characters that are not known from the account
_WEAK = "This password is easy to guess."


def refuse_weak(password: str, *about: str, field: str = "password") -> None:
    """Raise 422 if a password is easy to guess for one who knows these texts about the account."""
    known = [word for text in about for word in re.split(r"[\W_]+", text.casefold()) if len(word) > 2]
    found: dict[str, Any] = zxcvbn(password[:_JUDGED], user_inputs=known)
    if found["score"] < _MIN_SCORE:
        raise _weak(
            field, " ".join([found["feedback"]["warning"] or _WEAK, *found["feedback"]["suggestions"]])
        )
    rest = password.casefold()
    for word in sorted(known, key=len, reverse=True):
        rest = rest.replace(word, "")
    if len(rest) < _MIN_OWN:
        raise _weak(field, "It is little more than your address and name.")


def _weak(field: str, advice: str) -> Problem:
    """The problem, with advice that never repeats the password."""
    return problem(422, "The password is too weak.", errors=[{"at": f"body.{field}", "problem": advice}])
