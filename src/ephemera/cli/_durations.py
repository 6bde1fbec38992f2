"""Durations on the command line: 500ms, 30s, 5m, 1h."""

import re

import typer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")


def seconds(text: str | float) -> float:
    """Parse a duration; a bare number is seconds, and a number (a default) stays as it is."""
    if not isinstance(text, str):
        return text
    found = _DURATION.fullmatch(text.strip())
    length = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if length <= 0:
        raise typer.BadParameter(f"{text!r} is not a duration above 0, such as 500ms, 30s, 5m or 1h")
    return length
