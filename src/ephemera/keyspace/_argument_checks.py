"""What a declaration is given, looked at before anything is made of it.

A type checker finds a number in place of a `timedelta`, and two arguments in each other's place. Who runs
none is told here, by the name of the parameter, where Python would speak of an operator or an attribute.
"""

from __future__ import annotations

from datetime import timedelta

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace._catalogue import Catalogue
from ephemera.keyspace._lifetime import no_duration


def check_declaration(catalogue: Catalogue, pattern: str, /, **durations: timedelta) -> None:
    """Refuse what is no catalogue, no text and no duration; a pattern's declaration begins with this."""
    first: object = catalogue
    second: object = pattern
    if not isinstance(first, Catalogue):
        raise InvalidDeclaration(
            str(first if isinstance(first, str) else second),
            f"the first parameter is the catalogue, and it is given {type(first).__name__}",
            "give it what Catalogue('...') made",
        )
    if not isinstance(second, str):
        raise InvalidDeclaration(
            first.name,
            f"after the catalogue come the keys that are declared, and {type(second).__name__} names none",
            "give a text",
        )
    check_durations(pattern, **durations)


def check_durations(declared: str, /, **durations: timedelta) -> None:
    """Refuse what is no duration, of what has this pattern or name."""
    if (wrong := no_duration(**durations)) is not None:
        raise InvalidDeclaration(declared, *wrong)
