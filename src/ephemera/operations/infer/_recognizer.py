"""What a piece of a key looks like: a number, a uuid, a date, a hash, a word; and what to call it.

Used to decide which pieces of foreign keys vary, and to give them names that a person would have chosen.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_HOUR, _MINUTE = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_WORD, _VERSION = "[a-z]+(?:[A-Z]?[a-z]+)*|[A-Z]+", r"v\d{1,2}"
_LOOKS = {
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "hash": r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9A-F]{40})",
    "minute": rf"{_YEAR}-?{_MONTH}-?{_DAY}[T_-]?{_HOUR}-?{_MINUTE}",
    "hour": rf"{_YEAR}-?{_MONTH}-?{_DAY}[T_-]?{_HOUR}",
    "date": rf"{_YEAR}[-./]?{_MONTH}[-./]?{_DAY}",
    "month": rf"{_YEAR}-?{_MONTH}",
    "timestamp": r"1\d{9}|1\d{12}",
    "number": r"-?\d+",
    "ip": r"\d{1,3}(?:\.\d{1,3}){3}",
    "email": r"[^@\s]+@[^@\s]+\.[a-zA-Z]+",
    "token": r"eyJ[\w-]+\.[\w-]+\.[\w-]*",
    "hex": r"(?=[a-f]*\d)[0-9a-f]{6,}",
    "word": rf"_*(?:{_WORD}|[A-Z][a-z]+)(?:[_.\-/](?:[a-z]+|[A-Z]+|{_VERSION}))*|{_VERSION}",
}
_LOOK = re.compile("|".join(f"(?P<{name}>{look})" for name, look in _LOOKS.items()), re.ASCII)
_LONGEST_WORD = 40
_OPENS_DOORS = "token|secret|passw|pwd|jwt|otp|api_?key|credential|private|csrf|cookie"
_BEFORE_SECRETS = re.compile(_OPENS_DOORS, re.IGNORECASE)
_SECRET = re.compile(rf"{_OPENS_DOORS}|session|\bsid\b|auth|refresh|signature", re.IGNORECASE)
_SAYS_NOTHING = frozenset(
    (
        "app",
        "by",
        "cache",
        "count",
        "counts",
        "data",
        "dev",
        "id",
        "ids",
        "key",
        "keys",
        "lock",
        "prod",
        "tmp",
        "v",
    )
)
_OWN_NAMES = {"uuid": "id", "number": "id", "hex": "id", "hash": "hash", "word": "name", "text": "id"}


def look_of(piece: str) -> str:
    """The name of what a piece looks like; `text` when it looks like nothing in particular."""
    found = _LOOK.fullmatch(piece)
    return found.lastgroup or "text" if found else "text"


def is_word(piece: str) -> bool:
    """Whether a piece reads like a word that a programmer wrote, not like data."""
    return len(piece) <= _LONGEST_WORD and look_of(piece) == "word"


def usual_look(looks: Counter[str]) -> str:
    """What nearly all of the pieces look like."""
    look, count = looks.most_common(1)[0] if looks else ("text", 0)
    if count >= 0.9 * looks.total():
        return look
    if looks.keys() <= {"hex", "number", "hash", "uuid"}:
        return "hex"
    return "text"


def looks_secret(*texts: str) -> bool:
    """Whether a name suggests that what it names must not be shown, or a value is a token."""
    return any(_SECRET.search(text) or look_of(text) == "token" for text in texts)


@lru_cache(maxsize=4096)
def before_secrets(piece: str) -> bool:
    """Whether what follows this piece in a key may be a secret, even if it reads like a word."""
    return _BEFORE_SECRETS.search(piece) is not None


def field_name(look: str, before: str, taken: Sequence[str]) -> str:
    """A name for a field by its look and the literal before it: 'users:' and a number make `user_id`."""
    noun, own = _noun(before), _OWN_NAMES.get(look, look)
    name = f"{noun}_{own}" if noun and look in _OWN_NAMES else own
    if not name.isidentifier() or keyword.iskeyword(name) or name == "until":
        name = own
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}_{number}", number + 1
    return unique


def _noun(before: str) -> str:
    """The last word of a literal, in the singular."""
    words: list[str] = re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1 \2", before).lower())
    telling = [word for word in words if word not in _SAYS_NOTHING]
    if not telling:
        return ""
    word = telling[-1]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word
