"""How the console shows times, ratios and what must not be seen."""

from __future__ import annotations

from typing import Any

import msgspec

from ephemera.keyspace import Keyspace

HIDDEN = "(hidden: sensitive)"
"""What stands for the values of a sensitive space."""

_LONGEST = 2000  # characters of a value


def per_cent(share: float | None) -> str:
    """A share as people say it."""
    return "—" if share is None else f"{share:.1%}"


def shown_value(value: Any, space: Keyspace[Any] | None = None) -> str:
    """A decoded value as a text, unless its space is sensitive."""
    if space is not None and space.sensitive:
        return HIDDEN
    text = (
        value
        if isinstance(value, str)
        else msgspec.json.format(msgspec.json.encode(value, enc_hook=_as_text)).decode()
    )
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
