"""How a fixed window stands in a key: the field that names it, and the moment it starts, in UTC.

The last field of a fixed window's pattern says by its name how the window's start is written, as in
`ratelimit:{api_key_id}:{minute}` or `rate:{subject}:{endpoint}:{yyyyMMddHH}`:

| field | is written | for windows of |
|---|---|---|
| `minute`, `yyyyMMddHHmm` | `202509301059` | whole minutes |
| `hour`, `yyyyMMddHH` | `2025093010` | whole hours |
| `day`, `yyyyMMdd` | `20250930` | whole days |
| `window_start`, `window` | `1759226340`, seconds since 1970 | whole seconds |

Windows are counted from 1970 in UTC, so a day is a day of UTC. A pattern whose field is coarser than its
window would put two windows into one key, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from ephemera.errors import InvalidDeclaration

_FORMATS: dict[str, tuple[str | None, int]] = {
    "minute": ("%Y%m%d%H%M", 60),
    "yyyyMMddHHmm": ("%Y%m%d%H%M", 60),
    "hour": ("%Y%m%d%H", 3600),
    "yyyyMMddHH": ("%Y%m%d%H", 3600),
    "day": ("%Y%m%d", 86_400),
    "yyyyMMdd": ("%Y%m%d", 86_400),
    "window_start": (None, 1),
    "window": (None, 1),
}
"""How each window field is written (None: seconds since 1970), and how many seconds it can tell apart."""


NO_WINDOW = "%%"
"""How an empty window field is written, and no other value of it."""


class Window(NamedTuple):
    """One window: its bounds in milliseconds since 1970, how a key names it, what the script takes of it."""

    starts: int
    ends: int
    written: str
    arguments: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WindowField:
    """The field of a pattern that names the window, of windows of `per` ms kept for `keep` ms."""

    name: str
    format: str | None
    per: int
    keep: int

    def at(self, now: float) -> Window:
        """The window of a moment, in milliseconds since 1970."""
        start = int(now) // self.per * self.per
        seconds, end = start // 1000, start + self.per
        written = (
            str(seconds)
            if self.format is None
            else datetime.fromtimestamp(seconds, UTC).strftime(self.format)
        )
        return Window(start, end, written, (start, end, start + self.keep))


def window_field(pattern: str, fields: tuple[str, ...], per: int, keep: int) -> WindowField:
    """The field that ends a pattern and names its window."""
    last = fields[-1] if fields else ""
    if last not in _FORMATS or not pattern.endswith(f"{{{last}}}"):
        raise InvalidDeclaration(
            pattern,
            "it does not end with a field that names the window",
            f"end it with one of {', '.join(_FORMATS)}, as in 'ratelimit:{{user_id}}:{{minute}}'",
        )
    form, tells_apart = _FORMATS[last]
    if per % (tells_apart * 1000):
        raise InvalidDeclaration(
            pattern,
            f"{{{last}}} tells {tells_apart} s apart, and its windows are {per / 1000:g} s long",
            "use a finer field such as {window_start}, or windows of a multiple of that",
        )
    return WindowField(last, form, per, keep)
